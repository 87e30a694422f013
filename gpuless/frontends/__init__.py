"""The compilers whose kernels run on the emulated GPU: a folder for each.

Only frontends touch a compiler's internals. A frontend makes its compiler hand over PTX, and gives the
emulator the kernel's source (`gpuless.emulator.run.lines.Source`); the emulator imports no frontend.
"""

import importlib

from gpuless import emulator
from gpuless.frontends import numba_cuda, numba_cuda_mlir
from gpuless.importing import is_installed

__all__ = [
    "compiler_of",
    "compiles",
    "cuda",
    "install",
    "installed",
    "keep_kernels",
    "kernel_types",
    "launch_of",
    "make_kernel",
    "prepare_compilers",
    "present",
    "simulated",
]

# In this order, as asking numba-cuda imports it, and asking the other does not.
_COMPILERS = numba_cuda_mlir, numba_cuda


def install():
    """Make kernels that this process compiles run on the emulated GPU."""
    emulator.install()
    for each in _COMPILERS:
        each.install()


def keep_kernels():
    """Cache the kernels that numba-cuda compiles for a real GPU on disk."""
    numba_cuda.keep_kernels()


def present():
    """Return whether any compiler is installed."""
    return any(each.present() for each in _COMPILERS)


def compiles():
    """Return whether kernels can be compiled: by a compiler, or by the older `numba.cuda` inside Numba."""
    return present() or is_installed("numba")


def cuda():
    """Return a compiler's module `cuda`, numba-cuda's if that is installed; it may be a simulator."""
    name = "numba_cuda_mlir" if numba_cuda_mlir.present() and not numba_cuda.present() else "numba"
    return importlib.import_module(f"{name}.cuda")


def installed():
    """Return whether kernels that this process launches run on the emulated GPU."""
    return any(each.installed() for each in _COMPILERS)


def simulated():
    """Return whether the imported compiler is a simulator that runs Python code."""
    return numba_cuda.simulated()


def prepare_compilers():
    """Make all compilers compile without a GPU, in a process that does nothing else."""
    for each in _COMPILERS:
        if each.present():
            each.compiling.prepare()


def compiler_of(kernel):
    """Return the module `compiling` of a kernel's compiler; None for anything but a kernel."""
    return next(
        (each.compiling for each in _COMPILERS if isinstance(kernel, each.compiling.kernel_types())), None
    )


def make_kernel(package, function, options):
    """Return a function's kernel, made by the compiler in a package, which is imported."""
    return importlib.import_module(f"{package}.cuda").jit(**options)(function)


def launch_of(value):
    """Return the `Launch` of a kernel with its launch configuration, None for anything else."""
    return next(filter(None, (each.compiling.launch_of(value) for each in _COMPILERS)), None)


def kernel_types():
    """Return the classes of kernels, for each compiler in this process."""
    return tuple(kind for each in _COMPILERS for kind in each.compiling.kernel_types())
