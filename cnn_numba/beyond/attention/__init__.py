"""Attention: the same functions in every backend."""
