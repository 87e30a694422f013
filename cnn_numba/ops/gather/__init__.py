"""Batches gathered from a data set: the same functions in every backend."""
