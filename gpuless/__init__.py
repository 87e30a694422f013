"""Numba-CUDA kernels without a GPU: run them, find what is wrong with them, see what they become.

- `select` gives `numba.cuda` an emulated GPU where there is no other: kernels are compiled as usual, and the
  CPU runs them. Where that cannot be, a simulator steps their Python code. ``GPULESS`` in the environment
  overrides.
- `cuda` is `numba.cuda`, or what stands in for it: ``from gpuless import cuda`` needs no compiler.
- `simulate` steps one launch in Python, and reports a mistake where it is made.
- `sanitize` finds races, divergence, bad indices, garbage that is read, and results that are not there.
- `record` returns every access to memory as columns of numbers, to compute and to draw from.
- `set_limits` says when a launch that does not end is stopped.
- `count` counts what a launch would have a GPU do, at full size: instructions, sectors, wavefronts, barriers.
  `counting` does so for all launches within a block.
- `profile` says how long a launch would take on a GPU that is not here, and what bounds it: modelled.
  `profiling` gives a timeline of all launches and copies within a block.
- `access_map` counts what the accesses cost: sectors, bank conflicts, reuse. `plot_access` draws them, and
  `explore_access` puts sliders around it.
- `gpuless.inspector` compiles for real GPUs, without one, and shows what comes out.

``python -m gpuless script.py`` and ``pytest -p gpuless`` run programs and tests that know nothing of it.
"""

from typing import TYPE_CHECKING

from gpuless.limits import SHARED_LIMIT, LaunchError, check_launch, set_limits

# At once: a package of that name, imported later, would take its place.
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

#: ``pytest -p gpuless`` takes what it adds from here.
pytest_plugins = ("gpuless.testing",)


def __getattr__(name):
    """Import the tools when one of them is first asked for: most programs only run kernels."""
    if name == "cuda":  # not in `__all__`: who asks for it selects
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
