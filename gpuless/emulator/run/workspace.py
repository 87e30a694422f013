"""The workspace of a cooperative launch: where blocks of CUDA C++ wait for each other, in `grid.sync()`.

It holds its size, and a counter whose highest bit changes when all blocks have come. `%envreg1` and
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
    """That of the cooperative launch which runs, once a kernel has asked for one."""

    def __init__(self, arena):
        self._arena, self._address = arena, None

    def begin(self, launch, kernel):
        """Give it to a launch of a kernel that asks for it, as at the beginning."""
        if "%envreg" not in kernel.source.text:
            return
        if self._address is None:
            self._address = self._arena.allocate(_CONTENT.size)
        ctypes.memmove(self._address, _CONTENT.pack(_CONTENT.size, 0), _CONTENT.size)
        _field(launch).value = self._address


def done_alone(launch, tasks, seconds):
    """Return whether tasks come to an end in time, where a block passes the barrier of the grid alone."""
    end, address = time.monotonic() + seconds, _field(launch).value
    while not (done := all_done(tasks, _PERIOD)) and time.monotonic() < end:
        if address:
            ctypes.c_uint32.from_address(address + 4).value ^= _ALL_CAME
    return done


def _field(launch):
    return ctypes.c_uint64.from_buffer(launch, layout.LAUNCH["workspace"])
