"""Parts that several test folders use."""
