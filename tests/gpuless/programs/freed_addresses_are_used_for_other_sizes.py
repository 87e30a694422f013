"""Freed addresses are used again for other sizes."""

import ctypes

import emulated  # noqa: F401
import numpy as np

from gpuless.emulator.run.memory import PAGE, Arena

arena = Arena(1 << 30)
arena.end = arena._fresh + 80 * PAGE
rng, held = np.random.default_rng(0), []
for _ in range(2000):
    if len(held) > 4 or (held and rng.random() < 0.4):
        arena.free(held.pop(rng.integers(len(held)))[0])
    size = int(rng.integers(1, 4 * PAGE))
    address = arena.allocate(size)
    assert arena.base <= address and address + size <= arena.end
    assert all(address + size <= a or a + s <= address for a, s in held)
    ctypes.memset(address, 1, size)
    held.append((address, size))
for address, _ in held:
    arena.free(address)
assert arena.used == 0 and arena.allocate(70 * PAGE)
