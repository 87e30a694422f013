"""The compilers whose kernels the simulator runs, found among the modules that this process has imported."""

import functools
import sys
import types

from gpuless.simulator import numba_errors, settings

#: Packages whose functions are not the user's.
PACKAGES = {"numba", "numba_cuda_mlir"}
#: The module `cuda` of each; `install` puts the simulator's in their place.
CUDA_NAMES = ("numba.cuda", "numba_cuda_mlir.cuda")
# Where each keeps its settings and errors, and its support of NumPy.
_CORES = ("numba.core", "numba.cuda.core", "numba_cuda_mlir.numba_cuda.core")
_SUPPORTS = ("numba.np", "numba.cuda.np", "numba_cuda_mlir.numba_cuda.np")


def cuda_modules():
    """Return the modules `cuda` of the compilers in this process."""
    return tuple(sys.modules[name] for name in CUDA_NAMES if name in sys.modules)


@functools.cache  # a kernel asks for its types in every step
def of_cuda(name):
    """Return an attribute of a compiler's `cuda`; AttributeError if none has it."""
    for module in cuda_modules():
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module '{CUDA_NAMES[0]}' has no attribute '{name}'")


def _imported(parents, name):
    return [sys.modules[f"{parent}.{name}"] for parent in parents if f"{parent}.{name}" in sys.modules]


def errors() -> types.ModuleType:
    """Return the module of Numba's errors and warnings; our own if Numba has not been imported."""
    return next(iter(_imported(_CORES[:1], "errors")), numba_errors)


def performance_warning():
    """Return the class of performance warnings; with several compilers, one derived from each one's."""
    classes = (each.NumbaPerformanceWarning for each in (errors(), *_imported(_CORES, "errors")))
    return _joined(tuple(dict.fromkeys(classes)))


@functools.cache
def _joined(classes):
    return classes[0] if len(classes) == 1 else type(classes[0].__name__, classes, {})


def warns_of_copies():
    """Return whether a launch warns of copied host arrays: unless a compiler's settings turn that off."""
    configs = settings, *_imported(_CORES, "config")
    wanted = all(getattr(each, "CUDA_WARN_ON_IMPLICIT_COPY", 1) for each in configs)
    return wanted and not any(getattr(each, "DISABLE_PERFORMANCE_WARNINGS", 0) for each in configs)


def dtype_of(kind):
    """Return the dtype of a compiler's type whose name NumPy doesn't know, such as that of a string."""
    for support in _imported(_SUPPORTS, "numpy_support"):
        try:
            return support.as_dtype(kind)
        except Exception:  # not this compiler's
            continue
    raise TypeError(f"{kind} is not a type of elements in a kernel")
