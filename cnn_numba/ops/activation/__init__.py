"""Activations: the same functions in every backend."""
