"""The chapter "Other parts"."""
