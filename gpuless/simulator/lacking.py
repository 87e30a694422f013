"""Stand-ins for what the simulator lacks and for what only kernels can use: using them raises."""

import os
import sys

from gpuless.limits import LaunchError
from gpuless.simulator.judge import has_compiler


class NeedsCompiler:
    """Stands for a function of the compiler: calling it raises an error that says what to do."""

    def __init__(self, name, fix=None):
        self.__name__, self._fix = name, fix

    def __call__(self, *arguments, **options):
        """Raise NotImplementedError."""
        needed = f"needs Numba: {self._fix}" if self._fix else needs_compiler()
        raise NotImplementedError(f"{self.__name__} {needed}")


def needs_compiler():
    """Return, as the end of a sentence, why something is missing and what to do."""
    return f"needs a compiler, and kernels run in the simulator: {remedy()}"


def remedy():
    """Return how to get a compiler."""
    if sys.platform == "darwin":
        return "take a container, or an online notebook, as NVIDIA has no compiler for macOS"
    wish = next((name for name in ("GPULESS", "NUMBA_ENABLE_CUDASIM") if os.environ.get(name)), None)
    if wish and has_compiler():
        return f"one is installed, so unset {wish}, which asks for the simulator"
    return "pip install 'gpuless[cu13]'"


def declare_device(name, sig, **options):
    """Return a stand-in for a device function of compiled code, which the simulator cannot run."""
    return NeedsCompiler(f"the device function {name}, which is linked,")


class _UsedOnHost(LaunchError, AttributeError):
    """Also an AttributeError, so that `hasattr` returns False."""


class DeviceOnly:
    """Stands for a name that only kernels can use, such as `cuda.syncthreads`."""

    def __init__(self, name):
        self.__name__ = name

    def __call__(self, *arguments):
        """Raise LaunchError."""
        raise LaunchError(f"cuda.{self.__name__} can only be used in a kernel")

    def __getattr__(self, attribute):
        raise _UsedOnHost(f"cuda.{self.__name__}.{attribute} can only be used in a kernel")
