"""The operations, one folder each, with the same functions in every room of a folder.

`reference` defines what is computed, in plain NumPy and float64. `cpu` computes it fast.
"""
