"""The chapter "The machine"."""
