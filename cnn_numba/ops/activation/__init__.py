"""Activations: the same functions in every room."""
