"""What the rooms of several operations share."""
