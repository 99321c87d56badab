"""A worker's long-running duties, each a small loop in a thread of its own."""
