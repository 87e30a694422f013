"""Kernels of the package that notebooks build up in their cells: a module for each notebook."""
