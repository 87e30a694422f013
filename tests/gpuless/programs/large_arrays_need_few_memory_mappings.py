"""Large arrays need few mappings of memory."""

import ctypes

import emulated  # noqa: F401

from gpuless.emulator.run.memory import PAGE, Arena
from gpuless.emulator.translate.layout import ARENA_SPAN, POISON, PRIVATE_MARGIN, PRIVATE_SPAN

arena = Arena(1 << 40)
size = ARENA_SPAN - PRIVATE_SPAN - PRIVATE_MARGIN - PAGE
address = arena.allocate(size)
with open("/proc/self/maps") as maps:
    shown = [line.split()[0].split("-") for line in maps if "gpuless (deleted)" in line]
pieces = [(int(begin, 16), int(end, 16)) for begin, end in shown]
pieces = [piece for piece in pieces if arena.base <= piece[0] < arena.end]  # not those of the context
assert 1000 < len(pieces) < 20_000
assert pieces[-1][1] == arena.end
for at in (0, 12345678, size // 3, size - 4):
    assert ctypes.c_uint32.from_address(address + at // 4 * 4).value == POISON
