"""Warps that hide latency, and warps that are not in lockstep: exercises of notebook 10."""

from functools import partial
from math import ceil, floor

import numpy as np
from numba import cuda, float32

from cnn_course.chapters.the_machine.gpus import GPUS
from cnn_course.engine.checks.exercise import Exercise, Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, inout, launch, normal, uses
from cnn_course.engine.checks.uninitialised import code_of, names_in

# --- Bytes in flight ---------------------------------------------------------------------------------------

LANES = 32


def _warps(latency, bandwidth, clock, sms, bytes_per_thread, lanes=LANES, rounded=ceil):
    """Apply Little's law to each multiprocessor; each keyword can make it wrong."""
    return rounded(latency / clock * bandwidth / sms / (lanes * bytes_per_thread))


# Machines that need an exactly whole number of warps.
_WHOLE = [(400, 320.0, 1.0, 40, 4), *((64 * n, 320.0, 1.0, 40, 4) for n in (1, 3, 5, 7, 9, 11))]


def _counted(attempt, *machine):
    """Call the attempt, and tolerate what rounding errors add to a whole number of warps.

    With another order of operations `ceil` may give one more, though not in every case; ``int(q) + 1`` always
    does.
    """
    warps, right = attempt(*machine), _warps(*machine)
    if machine in _WHOLE and warps == right + 1 and any(attempt(*one) == _warps(*one) for one in _WHOLE):
        return right
    return warps


def _machines(rng):
    real = [
        (gpu.latency["global memory"], gpu.bandwidth / 1e9, gpu.clock / 1e9, gpu.sms, size)
        for gpu in GPUS
        for size in (4, 16)
    ]
    return [
        *real,
        _WHOLE[0],
        (700, 500.0, 1.25, 2, 2),  # few multiprocessors: without any of the numbers it is more than 1
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


_WARP = "(32 * bytes_per_thread)"

warps_needed = Exercise(
    "warps_needed",
    reference=_warps,
    cases=_machines,
    run=_counted,
    mistakes={
        "rounded down": (
            "You round down, so the memory is sometimes idle. Round up.",
            partial(_warps, rounded=floor),
            ("math.ceil(", "int("),
        ),
        "one too many": (
            "`int(q) + 1` is one too many when `q` is a whole number. `math.ceil(q)` is right for both.",
            partial(_warps, rounded=lambda warps: floor(warps) + 1),
            ("math.ceil(", "1 + int("),
        ),
        "whole GPU": (
            "You count the warps of the whole GPU. Return how many each of its `{sms}` multiprocessors "
            "needs.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, clock, 1, size),
            (" / sms", ""),
        ),
        "threads": (
            "You count threads. A warp has 32 threads, so it loads 32 times as many bytes.",
            partial(_warps, lanes=1),
            lambda *machine: LANES * _warps(*machine),
            (_WARP, "bytes_per_thread"),
            ("return math", "return 32 * math"),
        ),
        "bytes, not warps": (
            "You return bytes. Divide them by the bytes that one warp loads, and round up.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, clock, sms, 1, lanes=1),
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, clock, 1, 1, lanes=1),
            (f" / {_WARP}", ""),
            [(f" / {_WARP}", ""), (" / sms", "")],
        ),
        "always as many bytes": (
            "Your result does not depend on `{bytes_per_thread}`. If each thread loads more bytes, fewer "
            "warps are enough.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, clock, sms, 4),
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, clock, sms, 1),
            (_WARP, "128"),
            (_WARP, "32"),
        ),
        "cycles for nanoseconds": (
            "`{latency}` is in cycles. Divide it by the clock in GHz to get nanoseconds.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, 1, sms, size),
            ("latency / clock", "latency"),
        ),
        "clock upside down": (
            "You multiply by the clock. To turn cycles into nanoseconds, divide by it.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, 1 / clock, sms, size),
            ("latency / clock", "latency * clock"),
        ),
        "powers of ten": (
            "The units fit as they are: GHz are cycles in a nanosecond, and GB/s bytes in one. No power of "
            "ten is needed.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, bandwidth, 1e9 * clock, sms, size),
            lambda latency, bandwidth, clock, sms, size: _warps(latency, 1e9 * bandwidth, clock, sms, size),
            ("latency / clock", "latency / (clock * 1e9)"),
            ("* bandwidth", "* bandwidth * 1e9"),
        ),
        "bandwidth left out": (
            "`{bandwidth}` is missing. The more bytes memory delivers, the more must be in flight.",
            lambda latency, bandwidth, clock, sms, size: _warps(latency, 1, clock, sms, size),
            (" * bandwidth", ""),
        ),
        "latency left out": (
            "`{latency}` is missing. The longer a load takes, the more loads must be in flight.",
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
    """Draw elements for whole blocks; in the last launch no warp writes the last sum."""
    return [
        launch(blocks, block, normal(rng, blocks * block), inout(normal(rng, sums)))
        for blocks, block, sums in [(1, 32, 1), (1, 64, 2), (2, 32, 2), (3, 64, 6), (2, 64, 5)]
    ]


def _sums(x, out, first=0, last=32, stride=1, scale=1.0):
    sums = x.reshape(-1, 32)[:, first:last:stride].sum(axis=1) * scale
    return np.append(sums, out[len(sums) :]).astype(np.float32)


def _keeps_its_lanes(attempt):
    """Demand that no lane returns before the last barrier of its warp."""
    case = launch(1, THREADS, normal(np.random.default_rng(0), THREADS), inout(np.zeros(2, np.float32)))
    if any(note.kind == "finished lanes" for note in examine(attempt, case).report.notes):
        raise Wrong(
            "lanes that return",
            "The numbers are right. But some threads `return` before `cuda.syncwarp()`, so nothing orders "
            "their writes. Let all 32 threads of a warp reach it, even those that add nothing.",
        )


def _waits_for_its_warp(attempt):
    """Demand `syncwarp`; a barrier of the block is right too, but the exercise is about the warp's."""
    if {"syncthreads", "syncwarp"} & names_in(code_of(attempt)) == {"syncthreads"}:
        raise Wrong(
            "waits for the block",
            "The numbers are right. But `cuda.syncthreads()` makes every warp wait for the whole block, "
            "and each warp needs only its own 32 elements. The barrier of a warp is enough.",
        )
    uses("syncwarp")(attempt)


warp_sums_kernel = KernelExercise(
    "warp_sums_kernel",
    reference=_sums,
    cases=_elements,
    broken=_in_lockstep_kernel,
    other_blocks=False,
    float32=True,
    properties=(_waits_for_its_warp, _keeps_its_lanes),
    mistakes={
        "first half only": (
            "You add up only 16 of the 32 elements of each warp. The first step is 16.",
            partial(_sums, last=16),
            ("(16, 8, 4, 2, 1)", "(8, 4, 2, 1)"),
        ),
        "last step missing": (
            "The step 1 is missing, so the sum lacks the odd elements.",
            partial(_sums, stride=2),
            ("(16, 8, 4, 2, 1)", "(16, 8, 4, 2)"),
        ),
        "first element only": (
            "You store the first element of each warp, not the sum.",
            partial(_sums, last=1),
            [("(16, 8, 4, 2, 1)", "(32,)"), ("t % 32 < step", "t % 32 < 0")],
        ),
        "mean": (
            "You store the mean of the 32 elements. Store the sum.",
            partial(_sums, scale=1 / 32),
            ("out[i // 32] = line[t]", "out[i // 32] = line[t] / float32(32)"),
        ),
    },
)
