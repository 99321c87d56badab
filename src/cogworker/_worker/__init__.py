"""A worker process from the inside. ``launcher`` tells the order in which things happen."""
