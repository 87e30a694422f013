"""Compilers of kernels that find the emulated GPU in the place of the hardware: a folder for each.

Only here the internals of a compiler are touched. A frontend lets it hand over PTX, and tells the emulator
what it knows of that (`gpuless.emulator.run.lines.Source`); the emulator knows no frontend.
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

# To ask numba-cuda imports it, to ask the other does not.
_COMPILERS = numba_cuda_mlir, numba_cuda


def install():
    """Let kernels that this process compiles run on the emulated GPU."""
    emulator.install()
    for each in _COMPILERS:
        each.install()


def keep_kernels():
    """Let kernels that this process compiles for a real GPU be kept on disk, where their compiler can."""
    numba_cuda.keep_kernels()


def present():
    """Return whether any compiler is installed."""
    return any(each.present() for each in _COMPILERS)


def compiles():
    """Return whether anything compiles kernels here: a compiler, or the older `numba.cuda` inside Numba."""
    return present() or is_installed("numba")


def cuda():
    """Return the module `cuda` of a compiler, numba-cuda's where it is installed; it may be a simulator."""
    name = "numba_cuda_mlir" if numba_cuda_mlir.present() and not numba_cuda.present() else "numba"
    return importlib.import_module(f"{name}.cuda")


def installed():
    """Return whether kernels that this process launches run on the emulated GPU."""
    return any(each.installed() for each in _COMPILERS)


def simulated():
    """Return whether the compiler that has been imported is a simulator that steps Python code."""
    return numba_cuda.simulated()


def prepare_compilers():
    """Make all compilers compile without a GPU, for a process that does nothing else."""
    for each in _COMPILERS:
        if each.present():
            each.compiling.prepare()


def compiler_of(kernel):
    """Return what compiles a kernel, a module `compiling` of one of the folders; None if it is no kernel."""
    return next(
        (each.compiling for each in _COMPILERS if isinstance(kernel, each.compiling.kernel_types())), None
    )


def make_kernel(package, function, options):
    """Return a kernel of a function, by the compiler in a package, which may be imported for it."""
    return importlib.import_module(f"{package}.cuda").jit(**options)(function)


def launch_of(value):
    """Return the `Launch` that a kernel with its launch configuration is, None if it is something else."""
    return next(filter(None, (each.compiling.launch_of(value) for each in _COMPILERS)), None)


def kernel_types():
    """Return the classes of what the ``@cuda.jit`` of each compiler in this process makes."""
    return tuple(kind for each in _COMPILERS for kind in each.compiling.kernel_types())
