"""The workspace of a cooperative launch of CUDA C++, with which blocks wait for each other in `grid.sync()`.

It holds its size, and a counter whose highest bit flips when all blocks have arrived. `%envreg1` and
`%envreg2` are the two halves of its address.
"""

import ctypes
import struct
import time

from gpuless.emulator.run.threads import all_done
from gpuless.emulator.translate import layout

_CONTENT, _ALL_CAME = struct.Struct("<II"), 1 << 31
_PERIOD = 0.1  # seconds that a block which runs alone waits at a barrier


class Workspace:
    """The workspace of the running cooperative launch; allocated when a kernel first needs one."""

    def __init__(self, arena):
        self._arena, self._address = arena, None

    def begin(self, launch, kernel):
        """Reset the workspace and pass it to a launch, if the kernel uses one."""
        if "%envreg" not in kernel.source.text:
            return
        if self._address is None:
            self._address = self._arena.allocate(_CONTENT.size)
        ctypes.memmove(self._address, _CONTENT.pack(_CONTENT.size, 0), _CONTENT.size)
        _field(launch).value = self._address


def done_alone(launch, tasks, seconds):
    """Return whether tasks end in time; a block that runs alone is let through the barrier of the grid."""
    end, address = time.monotonic() + seconds, _field(launch).value
    while not (done := all_done(tasks, _PERIOD)) and time.monotonic() < end:
        if address:
            ctypes.c_uint32.from_address(address + 4).value ^= _ALL_CAME
    return done


def _field(launch):
    return ctypes.c_uint64.from_buffer(launch, layout.LAUNCH["workspace"])
