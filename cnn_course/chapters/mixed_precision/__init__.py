"""The chapter "Mixed precision"."""
