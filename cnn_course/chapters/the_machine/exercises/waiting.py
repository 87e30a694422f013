"""Warps that hide latency, and warps that keep no step: exercises of notebook 10."""

from functools import partial
from math import ceil, floor

import numpy as np
from numba import cuda, float32

from cnn_course.chapters.the_machine.pictures import GPUS
from cnn_course.engine.checks.exercise import Exercise, Wrong
from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, normal, uses
from cnn_course.engine.checks.uninitialised import code_of, names_in

# --- Bytes in flight ---------------------------------------------------------------------------------------

LANES = 32


def _warps(latency, bandwidth, clock, sms, bytes_a_thread, lanes=LANES, rounded=ceil):
    """Apply Little's law to each multiprocessor; every keyword is a way to go wrong."""
    return rounded(latency / clock * bandwidth / sms / (lanes * bytes_a_thread))


def _machines(rng):
    real = [
        (gpu.latency["global memory"], gpu.bandwidth / 1e9, gpu.clock / 1e9, gpu.sms, size)
        for gpu in GPUS
        for size in (4, 16)
    ]
    return [
        *real,
        (400, 320.0, 1.0, 40, 4),  # 25 warps, and nothing over
        *(
            (int(latency), float(bandwidth), float(clock), int(sms), size)
            for latency, bandwidth, clock, sms, size in zip(
                rng.integers(250, 700, 5),
                rng.uniform(200, 4000, 5).round(1),
                rng.uniform(1, 2, 5).round(3),
                rng.integers(20, 150, 5),
                (4, 8, 4, 16, 2),
                strict=True,
            )
        ),
    ]


_WARP = "(32 * bytes_a_thread)"

warps_needed = Exercise(
    "warps_needed",
    reference=_warps,
    cases=_machines,
    mistakes={
        "rounded down": (
            "You round down, so the memory is idle at times: round up.",
            partial(_warps, rounded=floor),
            ("math.ceil(", "int("),
        ),
        "one too many": (
            "`int(q) + 1` is one too many for whole numbers: `math.ceil(q)` leaves them as they are.",
            partial(_warps, rounded=lambda warps: floor(warps) + 1),
            ("math.ceil(", "1 + int("),
        ),
        "whole GPU": (
            "That is for the whole GPU. Return how many warps each of its `{sms}` multiprocessors needs.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, clock, 1, size),
            (" / sms", ""),
        ),
        "threads": (
            "You count threads. A warp has 32 of them, and asks for `32 * {bytes_a_thread}` bytes.",
            partial(_warps, lanes=1),
            lambda *machine: LANES * _warps(*machine),
            (_WARP, "bytes_a_thread"),
            ("return math", "return 32 * math"),
        ),
        "bytes, not warps": (
            "You return bytes. Divide by those of a warp, `32 * {bytes_a_thread}`, and round up.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, clock, sms, 1, lanes=1),
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, clock, 1, 1, lanes=1),
            (f" / {_WARP}", ""),
            [(f" / {_WARP}", ""), (" / sms", "")],
        ),
        "always as many bytes": (
            "You count as many bytes for a thread whatever it loads: `{bytes_a_thread}` is missing.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, clock, sms, 4),
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, clock, sms, 1),
            (_WARP, "128"),
            (_WARP, "32"),
        ),
        "cycles for nanoseconds": (
            "The latency comes in cycles. Divide it by the clock in GHz, and it is in nanoseconds.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, 1, sms, size),
            ("latency / clock", "latency"),
        ),
        "clock upside down": (
            "You multiply by the clock: cycles are divided by it to become nanoseconds.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, 1 / clock, sms, size),
            ("latency / clock", "latency * clock"),
        ),
        "latency left out": (
            "You leave the latency out: the longer a load takes, the more of them have to be under way.",
            lambda latency, bandwidth, clock, sms, size: _warps(1, bandwidth, clock, sms, size),
            ("latency / clock", "1 / clock"),
        ),
    },
)

# --- Warps are not in lockstep -----------------------------------------------------------------------------

THREADS = 64


@cuda.jit
def _in_lockstep_kernel(x, out):
    """Write the sum of the 32 elements of each warp; a thread for each element."""
    line = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    line[t] = x[i]
    for step in (16, 8, 4, 2, 1):
        if t % 32 < step:
            line[t] += line[t + step]
    if t % 32 == 0:
        out[i // 32] = line[t]


def _elements(rng):
    """Draw elements for whole blocks; the last launches leave sums that no warp writes as they were."""
    return [
        launch(blocks, block, normal(rng, blocks * block), inout(normal(rng, sums)))
        for blocks, block, sums in [(1, 32, 1), (1, 64, 2), (2, 32, 2), (3, 64, 6), (2, 64, 5)]
    ]


def _sums(x, out, first=0, last=32, stride=1, scale=1.0):
    sums = x.reshape(-1, 32)[:, first:last:stride].sum(axis=1) * scale
    return np.append(sums, out[len(sums) :]).astype(np.float32)


def _waits_for_its_warp(attempt):
    """Demand `syncwarp`; the wider barrier is right as well, and not what the exercise is about."""
    if {"syncthreads", "syncwarp"} & names_in(code_of(attempt)) == {"syncthreads"}:
        raise Wrong(
            "waits for the block",
            "The numbers are right. `cuda.syncthreads()` makes every warp wait for all others of its block, "
            "though each adds up its own 32 elements: `cuda.syncwarp()` is enough.",
        )
    uses("syncwarp")(attempt)


warp_sums_kernel = KernelExercise(
    "warp_sums_kernel",
    reference=_sums,
    cases=_elements,
    broken=_in_lockstep_kernel,
    other_blocks=False,
    float32=True,
    properties=(_waits_for_its_warp,),
    mistakes={
        "first half only": (
            "You add up 16 of the 32 elements of each warp: the first step is 16.",
            partial(_sums, last=16),
            ("(16, 8, 4, 2, 1)", "(8, 4, 2, 1)"),
        ),
        "last step missing": (
            "You leave out the step 1: the odd elements are missing in the sum.",
            partial(_sums, stride=2),
            ("(16, 8, 4, 2, 1)", "(16, 8, 4, 2)"),
        ),
        "first element only": (
            "That is the first element of each warp.",
            partial(_sums, last=1),
            [("(16, 8, 4, 2, 1)", "(32,)"), ("t % 32 < step", "t % 32 < 0")],
        ),
        "mean": (
            "That is the mean of each warp's elements. Return the sum.",
            partial(_sums, scale=1 / 32),
            ("out[i // 32] = line[t]", "out[i // 32] = line[t] / float32(32)"),
        ),
    },
)
