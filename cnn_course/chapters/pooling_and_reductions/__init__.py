"""The chapter "Pooling and reductions"."""
