"""The compilers whose kernels are stepped: what a kernel names is one's, and what it is here is the same."""

import functools
import sys

#: Packages whose functions nobody wrote for this kernel.
PACKAGES = {"numba", "numba_cuda_mlir"}
#: What each calls `cuda`, and the simulators that stand for the first.
CUDA_NAMES = ("numba.cuda", "numba_cuda_mlir.cuda", "numba.cuda.simulator")


def cuda_modules():
    """Return the modules `cuda` of the compilers in this process."""
    return tuple(sys.modules[name] for name in CUDA_NAMES[:2] if name in sys.modules)


@functools.cache  # a kernel asks for its types in every step
def of_cuda(name):
    """Return what has a name in a compiler's `cuda`; raise AttributeError if there is nothing of the name."""
    modules = cuda_modules()
    found = next((module for module in modules if hasattr(module, name)), modules[0])
    return getattr(found, name)
