"""The chapter "Dense layers"."""
