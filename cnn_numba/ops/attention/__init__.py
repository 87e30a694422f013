"""Attention: the same functions in every room."""
