"""Kernels in Python, one greenlet a thread: for toy sizes, for stepping, and for the sanitizer."""

from gpuless.simulator.arguments import argument_names
from gpuless.simulator.errors import (
    Divergence,
    DivergenceError,
    LaunchStopped,
    Place,
    SourcePlace,
    UnsupportedPython,
)
from gpuless.simulator.foreign import Cause, compiler_cause
from gpuless.simulator.install import install
from gpuless.simulator.kernel import Launch, simulate
from gpuless.simulator.memory import poisoned

__all__ = [
    "Cause",
    "Divergence",
    "DivergenceError",
    "Launch",
    "LaunchStopped",
    "Place",
    "SourcePlace",
    "UnsupportedPython",
    "argument_names",
    "compiler_cause",
    "install",
    "poisoned",
    "simulate",
]
