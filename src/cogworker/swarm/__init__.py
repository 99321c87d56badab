"""Several workers and the parent that keeps them going; start with ``supervisor``."""
