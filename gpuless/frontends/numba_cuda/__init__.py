"""numba-cuda: everything that touches its internals.

Replacements in it (`install`), its kernels on disk (`overloads`, `fingerprints`, `registrations`), the
sources of kernels (`origins`), its compiler without a GPU (`compiling`), and the types that it infers
(`typed`).
"""

from gpuless.frontends.numba_cuda import compiling
from gpuless.frontends.numba_cuda.install import install, installed, keep_kernels, present, simulated

__all__ = ["compiling", "install", "installed", "keep_kernels", "present", "simulated"]
