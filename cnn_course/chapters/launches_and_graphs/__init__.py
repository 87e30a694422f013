"""The chapter "Make it fast"."""
