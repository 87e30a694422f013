"""The chapter "Reductions"."""
