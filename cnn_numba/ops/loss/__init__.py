"""Losses: the same functions in every room."""
