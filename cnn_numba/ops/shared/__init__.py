"""What the backends of several operations share."""
