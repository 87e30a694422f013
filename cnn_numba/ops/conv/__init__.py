"""Convolution: the same functions in every backend."""
