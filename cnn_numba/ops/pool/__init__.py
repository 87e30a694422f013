"""Pooling: the same functions in every room."""
