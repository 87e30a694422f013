"""Recurrent layers: the same functions in every backend."""
