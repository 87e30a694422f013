"""Compilers of kernels that find the emulated GPU in the place of the hardware: a folder for each.

Only here the internals of a compiler are touched. A frontend lets it hand over PTX, and tells the emulator
what it knows of that (`gpuless.emulator.run.lines.Source`); the emulator knows no frontend.
"""

from gpuless import emulator
from gpuless.frontends import numba_cuda, numba_cuda_mlir

__all__ = ["install", "installed", "simulated"]


def install():
    """Let kernels that this process compiles run on the emulated GPU."""
    emulator.install()
    numba_cuda.install()
    numba_cuda_mlir.install()


def installed():
    """Return whether kernels that this process launches run on the emulated GPU."""
    return numba_cuda.installed() or numba_cuda_mlir.installed()


def simulated():
    """Return whether the compiler that has been imported is a simulator that steps Python code."""
    return numba_cuda.simulated()
