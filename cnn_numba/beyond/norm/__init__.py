"""Normalisation: the same functions in every backend."""
