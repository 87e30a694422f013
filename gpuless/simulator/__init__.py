"""Kernels in Python, one greenlet a thread: for toy sizes, for stepping, and for the sanitizer."""

from gpuless.simulator.arguments import argument_names
from gpuless.simulator.errors import DivergenceError, LaunchStopped, UnsupportedPython
from gpuless.simulator.install import install
from gpuless.simulator.kernel import Launch, simulate
from gpuless.simulator.memory import poisoned

__all__ = [
    "DivergenceError",
    "Launch",
    "LaunchStopped",
    "UnsupportedPython",
    "argument_names",
    "install",
    "poisoned",
    "simulate",
]
