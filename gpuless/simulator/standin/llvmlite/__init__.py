"""`llvmlite` where Numba is not installed: nothing makes machine code."""

from . import binding, ir
