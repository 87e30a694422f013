"""The chapter "Sequences"."""
