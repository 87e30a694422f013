"""Run kernels as Python code, one generator per thread: for toy sizes, stepping and the sanitizer."""

from gpuless.simulator.arguments import argument_names
from gpuless.simulator.coroutines import Coroutine
from gpuless.simulator.errors import (
    Divergence,
    DivergenceError,
    LaunchStopped,
    Place,
    SourcePlace,
    UnsupportedPython,
)
from gpuless.simulator.foreign import Cause, cause_of, compiler_cause, compiler_line, is_about_axes
from gpuless.simulator.install import install, is_ours
from gpuless.simulator.kernel import Launch, simulate
from gpuless.simulator.memory import poisoned
from gpuless.simulator.scheduler import order_of_launches

__all__ = [
    "Cause",
    "Coroutine",
    "Divergence",
    "DivergenceError",
    "Launch",
    "LaunchStopped",
    "Place",
    "SourcePlace",
    "UnsupportedPython",
    "argument_names",
    "cause_of",
    "compiler_cause",
    "compiler_line",
    "install",
    "is_about_axes",
    "is_ours",
    "order_of_launches",
    "poisoned",
    "simulate",
]
