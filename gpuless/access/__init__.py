"""The memory accesses of a launch: as columns of numbers, with their cost, and in pictures."""

from gpuless.access.explorer import explore_access
from gpuless.access.lines import Line, LineTrace, record_lines
from gpuless.access.map import AccessMap, access_map
from gpuless.access.plot import plot_access
from gpuless.access.recording import record
from gpuless.access.requests import BANKS
from gpuless.access.trace import ATOMIC, READ, WRITE, Trace
from gpuless.limits import SECTOR, WARP

__all__ = [
    "ATOMIC",
    "BANKS",
    "READ",
    "SECTOR",
    "WARP",
    "WRITE",
    "AccessMap",
    "Line",
    "LineTrace",
    "Trace",
    "access_map",
    "explore_access",
    "plot_access",
    "record",
    "record_lines",
]
