"""`llvmlite.binding` where Numba is not installed: nothing makes machine code."""

from gpuless.simulator.inert import attribute as __getattr__
