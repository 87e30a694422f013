"""numba-cuda-mlir: all that touches its internals.

What is replaced in it (`install`), and what is known of a kernel beyond its PTX (`origins`).
"""

from gpuless.frontends.numba_cuda_mlir import compiling
from gpuless.frontends.numba_cuda_mlir.install import install, installed, present

__all__ = ["compiling", "install", "installed", "present"]
