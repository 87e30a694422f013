"""Numba-CUDA kernels without a GPU: run them, find their mistakes, model their time.

- `select` gives `numba.cuda` an emulated GPU if there is no real one: kernels are compiled as usual, and the
  CPU runs them. If no GPU can be emulated, a simulator runs their Python code. ``GPULESS`` in the environment
  overrides the choice.
- `cuda` is `numba.cuda` or its replacement: ``from gpuless import cuda`` needs no compiler.
- `simulate` runs one launch as Python code, and reports a mistake with its line and thread.
- `sanitize` finds races, divergence, bad indices, reads of garbage, and missing results.
- `record` returns every memory access as columns of numbers.
- `set_limits` sets the limits at which a launch is stopped.
- `count` counts a launch's work at full size: instructions, sectors, wavefronts, barriers. `counting` does so
  for all launches within a block.
- `profile` models a launch's time on a named GPU, and what limits it. `profiling` gives a timeline of all
  launches and copies within a block.
- `access_map` counts the cost of accesses: sectors, bank conflicts, reuse. `plot_access` draws them, and
  `explore_access` adds sliders.
- `gpuless.inspector` compiles for real GPUs, without one, and reports on the machine code.

``python -m gpuless script.py`` and ``pytest -p gpuless`` run programs and tests that do not import it.
"""

from typing import TYPE_CHECKING

from gpuless.limits import SHARED_LIMIT, LaunchError, check_launch, set_limits

# Imported here, as the package gpuless.profile, imported later, would replace the function.
from gpuless.profile import profile, profiling
from gpuless.selection import Selection, select

if TYPE_CHECKING:
    from gpuless.access import AccessMap, Trace, access_map, explore_access, plot_access, record
    from gpuless.counts import Counts, count, counting
    from gpuless.sanitizer.findings import Finding, Report
    from gpuless.sanitizer.sanitize import sanitize
    from gpuless.simulator import DivergenceError, LaunchStopped, UnsupportedPython, simulate

__all__ = [
    "SHARED_LIMIT",
    "AccessMap",
    "Counts",
    "DivergenceError",
    "Finding",
    "LaunchError",
    "LaunchStopped",
    "Report",
    "Selection",
    "Trace",
    "UnsupportedPython",
    "access_map",
    "check_launch",
    "count",
    "counting",
    "explore_access",
    "plot_access",
    "profile",
    "profiling",
    "record",
    "sanitize",
    "select",
    "set_limits",
    "simulate",
]

#: What ``pytest -p gpuless`` loads.
pytest_plugins = ("gpuless.testing",)


def __getattr__(name):
    """Import the tools at the first use of one: most programs only run kernels."""
    if name == "cuda":  # not in `__all__`: importing it selects a GPU
        from gpuless import frontends

        select()
        return frontends.cuda()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpuless import access, counts, sanitizer, simulator

    parts = access, counts, sanitizer, simulator
    return next(getattr(part, name) for part in parts if hasattr(part, name))


def __dir__():
    return sorted({*globals(), *__all__})
