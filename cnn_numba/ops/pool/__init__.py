"""Pooling: the same functions in every backend."""
