"""Convolution: the same functions in every room."""
