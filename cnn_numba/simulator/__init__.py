"""Kernels without a GPU, and tools that look into them with or without one.

Importing `cnn_numba` where there is no GPU puts the scheduler here in the place of Numba's simulator: kernels
are launched as ever, run many times faster, and are held to the limits of real hardware.

- `sanitize` finds races, divergence, bad indices, garbage that is read, and results that are not there.
- `record` returns every access to memory as columns of numbers, to compute and to draw from.
- `set_limits` says when a launch that does not end is stopped.
- `access_map` counts what the accesses cost: sectors, bank conflicts, reuse. `plot_access` draws them.
- `cnn_numba.simulator.inspector` compiles for real GPUs, none needed, and tells what comes out.
- `cnn_numba.simulator.benchmark` compares with Numba's own simulator.
"""

from cnn_numba.device import LaunchError
from cnn_numba.simulator.access import AccessMap, access_map
from cnn_numba.simulator.access_plot import plot_access
from cnn_numba.simulator.errors import DivergenceError, LaunchStopped, UnsupportedPython
from cnn_numba.simulator.explorer import explore_access
from cnn_numba.simulator.findings import Finding, Report
from cnn_numba.simulator.install import install
from cnn_numba.simulator.sanitizer import sanitize
from cnn_numba.simulator.trace import Trace
from cnn_numba.simulator.tracing import record
from cnn_numba.simulator.watchdog import set_limits

__all__ = [
    "AccessMap",
    "DivergenceError",
    "Finding",
    "LaunchError",
    "LaunchStopped",
    "Report",
    "Trace",
    "UnsupportedPython",
    "access_map",
    "explore_access",
    "install",
    "plot_access",
    "record",
    "sanitize",
    "set_limits",
]
