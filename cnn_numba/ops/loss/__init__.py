"""Losses: the same functions in every backend."""
