"""numba-cuda-mlir: everything that touches its internals.

Replacements in it (`install`), its compiler without a GPU (`compiling`), the sources of kernels (`origins`),
and the strides of arrays (`strides`).
"""

from gpuless.frontends.numba_cuda_mlir import compiling
from gpuless.frontends.numba_cuda_mlir.install import install, installed, present

__all__ = ["compiling", "install", "installed", "present"]
