"""The chapter "Start here"."""
