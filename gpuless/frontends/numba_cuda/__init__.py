"""numba-cuda: all that touches its internals.

What is replaced in it (`install`), its kernels on disk (`overloads`, `fingerprints`, `registrations`), what
is known of a kernel beyond its PTX (`origins`), its compiler without a GPU (`compiling`), and the types that
it finds (`typed`).
"""

from gpuless.frontends.numba_cuda import compiling
from gpuless.frontends.numba_cuda.install import install, installed, keep_kernels, present, simulated

__all__ = ["compiling", "install", "installed", "keep_kernels", "present", "simulated"]
