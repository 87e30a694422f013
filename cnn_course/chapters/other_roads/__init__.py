"""The chapter "Other roads"."""
