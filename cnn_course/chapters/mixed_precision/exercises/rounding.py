"""Stochastic rounding: an exercise of notebook 16."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, output
from cnn_numba import device

THREADS = 16  # of a block


def _bits(rng):
    """Draw the bits of floats, and as many random ones."""
    for size in (4, 23, THREADS, 47):
        x = (rng.normal(size=size) * 10.0 ** rng.integers(-3, 4, size)).astype(np.float32)
        noise = rng.integers(0, 2**32, size, dtype=np.uint32)
        grid = device.blocks(size + 1, THREADS)
        yield launch(grid, THREADS, x.view(np.uint32), noise, output(size, np.uint32))
    exact = np.array([1, -2, 0.5, 0, 3], np.float32)  # bfloat16 numbers stay as they are
    noise = np.array([2**32 - 1, 0, 2**16 - 1, 2**15, 2**31], np.uint32)
    yield launch(1, THREADS, exact.view(np.uint32), noise, output(5, np.uint32))


def _upper(values):
    return (np.asarray(values, np.uint64) & 0xFFFF0000).astype(np.uint32)


def _with_noise(noise):
    """Return a function that adds `noise(random bits)` and cuts off the lower half."""
    return lambda x, random: _upper(x.astype(np.uint64) + noise(random.astype(np.uint64)))


stochastic_kernel = KernelExercise(
    "stochastic_kernel",
    reference=_with_noise(lambda random: random & 0xFFFF),
    cases=_bits,
    once=True,
    mistakes={
        "cut off": (
            "You only cut off the lower half, which rounds towards 0. Add the random bits before you cut: "
            "only `+` carries into the upper half.",
            lambda x, random: _upper(x),
            ("x[i] + noise", "x[i]"),
            ("x[i] + noise", "x[i] ^ noise"),
            ("x[i] + noise", "x[i] | noise"),
        ),
        "nearest": (
            "You round to the nearest. Add random bits instead: the lower 16 of `{random}[i]`.",
            _with_noise(lambda random: 0x8000 + 0 * random),
            _with_noise(lambda random: 0x7FFF + 0 * random),
            ("random[i] & uint32(0xFFFF)", "uint32(0x8000)"),
            ("random[i] & uint32(0xFFFF)", "uint32(0x7FFF)"),
        ),
        "all random bits": (
            "You add all 32 random bits. Add only the lower 16.",
            _with_noise(lambda random: random),
            lambda x, random: _upper(x + random),
            ("random[i] & uint32(0xFFFF)", "random[i]"),
        ),
        "upper random bits": (
            "You add random bits to the upper half. Add the lower 16: they decide whether the cut carries.",
            _with_noise(lambda random: random & 0xFFFF0000),
            lambda x, random: _upper(x + (random & np.uint32(0xFFFF0000))),
            _with_noise(lambda random: random << 16),
            ("random[i] & uint32(0xFFFF)", "random[i] << uint32(16)"),
            ("random[i] & uint32(0xFFFF)", "random[i] & uint32(0xFFFF0000)"),
        ),
        "half of the noise": (
            "You take fewer than 16 random bits. They carry too seldom, so you round up too seldom: "
            "`0xFFFF` has 16.",
            _with_noise(lambda random: random & 0x7FFF),
            _with_noise(lambda random: random & 0xFFF),
            _with_noise(lambda random: random & 0xFF),
            ("uint32(0xFFFF)", "uint32(0x7FFF)"),
            ("uint32(0xFFFF)", "uint32(0xFFF)"),
        ),
        "not cut off": (
            "You add the noise and leave it there. Cut off the lower half after that.",
            lambda x, random: (x.astype(np.uint64) + (random & 0xFFFF)).astype(np.uint32),
            ("(x[i] + noise) & uint32(0xFFFF0000)", "x[i] + noise"),
        ),
        "or instead of plus": (
            "`|` and `^` never carry into the upper half. Add the random bits, then cut off the lower half.",
            lambda x, random: (x | (random & 0xFFFF)).astype(np.uint32),
            lambda x, random: (x ^ (random & 0xFFFF)).astype(np.uint32),
            ("(x[i] + noise) & uint32(0xFFFF0000)", "x[i] ^ noise"),
        ),
        "the other random bits": (
            "You take the upper 16 random bits. Take the lower ones here.",
            _with_noise(lambda random: random >> 16),
            ("random[i] & uint32(0xFFFF)", "random[i] >> uint32(16)"),
        ),
        "noise added after the cut": (
            "You cut first and then add, so the lower half of the result is not 0. Add, then cut.",
            lambda x, random: (_upper(x) + (random & np.uint32(0xFFFF))).astype(np.uint32),
            ("(x[i] + noise) & uint32(0xFFFF0000)", "(x[i] & uint32(0xFFFF0000)) + noise"),
        ),
        "another cut": (
            "Your mask for the upper half has the wrong bits. `0xFFFF0000` has sixteen ones, then sixteen "
            "zeros.",
            *(
                lambda x, random, mask=mask: (x + (random & np.uint32(0xFFFF))) & np.uint32(mask)
                for mask in (0xFFFFF000, 0x0FFF0000, 0xFFFFFF00, 0xFFFF8000, 0x7FFF0000)
            ),
            ("uint32(0xFFFF0000)", "uint32(0xFFFFF000)"),
            ("uint32(0xFFFF0000)", "uint32(0xFFF0000)"),
        ),
        "not shifted back": (
            "You leave the upper half where the lower one was. Shift it back to the left.",
            lambda x, random: (x + (random & np.uint32(0xFFFF))) >> np.uint32(16),
            ("(x[i] + noise) & uint32(0xFFFF0000)", "(x[i] + noise) >> uint32(16)"),
        ),
        "up for small random bits": (
            "You round up where the random bits are *smaller* than what you cut off. That is just as fair, "
            "but add the two here: the sum carries where the random bits are large.",
            lambda x, random: _upper(x + 0x10000 * (random % 65536 < x % 65536).astype(np.uint64)),
            lambda x, random: _upper(x + 0x10000 * (random % 65536 <= x % 65536).astype(np.uint64)),
            """
            i = cuda.grid(1)
            if i < x.size:
                out[i] = x[i] & 0xFFFF0000
                if random[i] & 0xFFFF < x[i] & 0xFFFF:
                    out[i] += 0x10000
            """,
        ),
        "+ before &": (
            "Your result is always 0. `+` binds tighter than `&`, so you add all bits first, and then keep "
            "the lower half. Write `({random}[i] & 0xFFFF)`.",
            lambda x, random: 0 * x,
            ("(x[i] + noise) & uint32(0xFFFF0000)", "x[i] + random[i] & 0xFFFF & 0xFFFF0000"),
        ),
        "and for &": (
            "Your result is the mask itself, for all numbers. `and` returns one of its two operands whole. "
            "Select bits with `&`.",
            lambda x, random: 0 * x + np.uint32(0xFFFF0000),
            ("& uint32(0xFFFF0000)", "and uint32(0xFFFF0000)"),
        ),
        "the same random bits": (
            "All numbers are rounded by the first random bits. Each has its own: `{random}[i]`.",
            lambda x, random: _upper(x + (random[:1] & np.uint32(0xFFFF))),
            ("random[i]", "random[0]"),
        ),
        "wrong half": (
            "You keep the lower half, and throw sign, exponent and the mantissa's upper bits away.",
            lambda x, random: ((x.astype(np.uint64) + (random & 0xFFFF)) & 0xFFFF).astype(np.uint32),
            ("uint32(0xFFFF0000)", "uint32(0xFFFF)"),
        ),
        "taken away": (
            "You subtract the noise, so you round down at random. Add it.",
            lambda x, random: _upper(x.astype(np.int64) - (random & 0xFFFF).astype(np.int64) & 0xFFFFFFFF),
            ("x[i] + noise", "x[i] - noise"),
        ),
    },
)
