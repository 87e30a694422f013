"""Normalisation: the same functions in every room."""
