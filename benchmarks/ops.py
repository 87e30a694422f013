"""Benchmarks of single operations on the GPU: each rung compared with the device's roof, and PyTorch.

Arithmetic units and memory limit the speed of a kernel: the *roof*. Two kernels that do nothing else measure
both. Without a GPU nothing is timed; a report shows what the compiler made of each rung instead.

Times are taken by the device's clock, with a pair of events for each sample. A sample of short launches has
several of them, and the GPU is kept busy until all wait in its queue, so that the host's speed does not
matter. All contenders for a case are sampled in turns.
"""

import functools
import math
import statistics
from collections.abc import Sequence
from contextlib import contextmanager

import numpy as np

from benchmarks.cases import CASES, Case
from benchmarks.pytorch import need_pytorch
from benchmarks.records import new_record, text_table
from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.shared.warps import load4, store4

# --- The roof ----------------------------------------------------------------------------------------------

THREADS = 256
SUMS, UNROLLED = 8, 16  # independent sums of a thread, and multiply-adds on each between two branches
PEAK_BLOCKS, PEAK_ITERATIONS = 65536, 64
COPIED = 2**27  # float32: 512 MiB, far more than any cache
HOLD_ITERATIONS = 100_000  # some milliseconds for one warp


@cuda.jit
@device.signature("void(int64, float32, float32, float32[::1])")
def fma_peak_kernel(iterations, x, y, out):
    """Do ``iterations * UNROLLED * SUMS`` multiply-adds per thread; any number of blocks of THREADS.

    Each sum waits for itself only: eight of them, and the other warps, keep the units busy.
    """
    sums = cuda.local.array(SUMS, float32)
    for k in range(SUMS):
        sums[k] = float32(k)
    for _ in range(iterations):
        for _ in range(UNROLLED):
            for k in range(SUMS):
                sums[k] = sums[k] * x + y
    total = float32(0)
    for k in range(SUMS):
        total += sums[k]
    # Never true, but the compiler does not know that and must keep the sums.
    if total == x:
        out[0] = total


@cuda.jit
@device.signature("void(float32[::1], float32[::1])")
def copy_kernel(source, target):
    """Copy four neighbouring elements per thread; blocks of THREADS cover a size that is a multiple of 4."""
    i = uint32(cuda.grid(1)) * uint32(4)
    if i < uint32(source.size):
        a, b, c, d = load4(source, i)
        store4(target, i, a, b, c, d)


def peak_flops(blocks: int, iterations: int) -> int:
    """Return the number of operations in a launch of `fma_peak_kernel`.

    Examples
    --------
    >>> peak_flops(1, 1)
    65536
    """
    return 2 * blocks * THREADS * iterations * UNROLLED * SUMS


def _multiply_add(blocks, threads, iterations, out):
    # The sums converge to 1, so no number becomes too large or too small for full speed.
    device.launch(fma_peak_kernel, blocks, threads, iterations, np.float32(0.5), np.float32(0.5), out)


@functools.cache
def _nothing():
    """Return the array that the kernel never writes; made once, as allocating waits for the GPU."""
    return device.zeros(1)


def measure_roof(repeats: int = 10):
    """Measure this device's rates of multiply-adds and of copying.

    Returns
    -------
    dict
        Operations and bytes per second, from the medians, and the samples in seconds.
    """
    peak = device.seconds(lambda: _multiply_add(PEAK_BLOCKS, THREADS, PEAK_ITERATIONS, _nothing()), repeats)
    source, target = device.zeros(COPIED), device.zeros(COPIED)
    grid = device.blocks(COPIED // 4, THREADS)
    copy = device.seconds(lambda: device.launch(copy_kernel, grid, THREADS, source, target), repeats)
    roof = {
        "flops_per_second": peak_flops(PEAK_BLOCKS, PEAK_ITERATIONS) / statistics.median(peak),
        "bytes_per_second": 2 * source.nbytes / statistics.median(copy),
        "seconds": {"multiply-add": peak, "copy": copy},
    }
    print(
        f"roof, measured: {roof['flops_per_second'] / 1e12:.1f} TFLOP/s in float32, "
        f"{roof['bytes_per_second'] / 1e9:.0f} GB/s"
    )
    return roof


def bound(roof, flops, traffic) -> float:
    """Return the most operations per second that the roof allows for some work.

    The roofline model of Williams, Waterman and Patterson (2009): ``min(peak, intensity * bandwidth)``, where
    intensity is the number of operations per byte moved.

    Parameters
    ----------
    roof : dict
        As `measure_roof` returns it.
    flops, traffic : int
        Operations, and bytes moved.

    Examples
    --------
    >>> bound({"flops_per_second": 100.0, "bytes_per_second": 10.0}, flops=30, traffic=6)
    50.0
    """
    return min(roof["flops_per_second"], flops / traffic * roof["bytes_per_second"])


# --- What a rung launches ----------------------------------------------------------------------------------


def signature(launch):
    """Return the signature of a launch's arguments, as Numba writes it."""
    return f"void({', '.join(map(_type_text, launch.arguments))})"


def _type_text(argument):
    if device.is_device_array(argument):
        return f"{argument.dtype}[{', '.join([':'] * (argument.ndim - 1) + ['::1'])}]"
    if hasattr(argument, "_fields"):
        return type(argument).__name__
    numbers = {bool: "bool", int: "int64", float: "float64"}
    return numbers.get(type(argument)) or str(argument.dtype)


def launches_of(call, run) -> list[device.Launch]:
    """Return the launches that a call without arguments makes; `run` them, or only note them."""
    launches = []

    def note(launch):
        launches.append(launch)
        if run:
            launch.run()

    with device.observe_launches(note):
        call()
    return launches


# --- Timing ------------------------------------------------------------------------------------------------

SHORT = 50e-6  # seconds: below this, a sample has several runs
MOST_REPEATS, FEWEST_REPEATS, SECONDS_EACH = 20, 3, 0.5
MOST_RUNS = 25  # the host can queue these while the GPU is kept busy


def bench_ops(cases: Sequence[Case] = CASES):
    """Time each rung of the ladders on this GPU, and PyTorch, in turns; without a GPU `bench_ops_static`.

    A rung with a wrong result, or one that does not support the shape, is not timed; the record says why.

    Returns
    -------
    dict
        The roof, and for each case every sample of every contender, with the rates from its median.
    """
    if not device.hardware():
        return bench_ops_static(cases)
    need_pytorch()
    roof = measure_roof()
    return new_record(
        "ops", gpu=True, roof=roof, method=_METHOD, results=[bench_case(c, roof) for c in cases]
    )


_METHOD = (
    "Seconds are those of one run of an operation's kernels, without what its launcher does on the host. A "
    "sample is a pair of events around `runs` runs, which all wait in the GPU's queue before the first one "
    "begins. The contenders take their samples in turn. Small arrays stay in the GPU's cache from one run to "
    "the next, so that a share of the roof may exceed 1."
)


def bench_case(case: Case, roof: dict) -> dict:
    """Time all contenders for one case."""
    limit = bound(roof, case.flops, case.bytes)
    print(f"{case.operation}, {case.text}: at most {limit / 1e9:.0f} GFLOP/s")
    calls, contenders = _calls(case)
    for who, figures in _in_turn(calls).items():
        contenders[who] = figures | rates(case, figures["median"], limit)
    for who, figures in contenders.items():
        print(f"  {who:16} {_line(figures)}", flush=True)
    return {
        "operation": case.operation,
        "size": case.size,
        "shape": case.text,
        "flops": case.flops,
        "bytes": case.bytes,
        "measure": case.measure,
        "bound": limit,
        "contenders": contenders,
    }


def rates(case, seconds, limit):
    """Return the rates of a time: 10^9 operations and bytes per second, and the share of the `limit`."""
    return {
        "GFLOP/s": case.flops / seconds / 1e9,
        "GB/s": case.bytes / seconds / 1e9,
        "share_of_roof": case.flops / seconds / limit,
    }


def _line(figures):
    if "median" not in figures:
        return "; ".join(f"{why}: {text}" for why, text in figures.items())
    return (
        f"{figures['median'] * 1e6:10.1f} us {figures['GFLOP/s']:9.0f} GFLOP/s {figures['GB/s']:7.0f} GB/s "
        f"{figures['share_of_roof']:6.1%} of the roof"
    )


def _calls(case):
    """Return the calls to be timed, by contender, and why some of ours are left out."""
    import torch

    generator = np.random.default_rng(0)
    inputs = [device.to_device(generator.standard_normal(shape, np.float32)) for shape in case.inputs]
    tensors = [_tensor(array) for array in inputs]
    calls, left_out = {}, {}
    # In float64: PyTorch's float32 results have errors, too, larger than ours if it uses transforms.
    exact = case.theirs(torch, *(tensor.double() for tensor in tensors))
    for who, function in case.contenders.items():
        # Each rung has its own poisoned output: with a shared one, a rung that does nothing could pass.
        out = device.to_device(np.full(case.outputs[0], np.nan, np.float32))
        call = case.ours(function, *inputs, out)
        try:
            launches = launches_of(call, run=True)
        except ValueError as error:
            left_out[who] = {"refused": str(error)}
            continue
        error = float((_tensor(out).double() - exact).abs().max())
        if error <= case.tolerance:
            # Only the launches: some launchers read back or allocate, which a training step never does.
            calls[who] = functools.partial(_launch_again, launches)
        else:  # NaN too
            left_out[who] = {"wrong": f"off by up to {error:.3g}, and {case.tolerance:.3g} is allowed"}
    for who in case.libraries:
        calls[who] = _library_call(case, tensors, tf32="TF32" in who)
    return calls, left_out


def _launch_again(launches):
    for launch in launches:
        launch.run()


def _tensor(array):
    """Return a device array as a tensor that shares its memory."""
    import torch

    return torch.as_tensor(array, device="cuda")


def _library_call(case, tensors, tf32):
    import torch

    def call():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        case.theirs(torch, *tensors)

    return call


@contextmanager
def _library_settings():
    """Let PyTorch search for its fastest algorithm within the block, and restore its settings."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    cudnn.benchmark = True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


def _in_turn(calls):
    """Return samples and median of each call; all are warmed up, then sampled in turns."""
    with _library_settings():
        plans = {who: _plan(call) for who, call in calls.items()}
        samples = {who: [] for who in calls}
        for round_ in range(MOST_REPEATS):
            for who, (runs, repeats) in plans.items():
                if round_ < repeats:
                    samples[who].append(_sample(calls[who], runs))
    return {
        who: {"runs": plans[who][0], "seconds": seconds, "median": statistics.median(seconds)}
        for who, seconds in samples.items()
    }


def _plan(call):
    """Return the number of runs in a sample, and the number of samples."""
    shortest = min(_sample(call, 1) for _ in range(3))
    runs = min(max(math.ceil(SHORT / shortest), 1), MOST_RUNS)
    repeats = min(max(int(SECONDS_EACH / (shortest * runs)), FEWEST_REPEATS), MOST_REPEATS)
    return runs, repeats


def _sample(call, runs):
    """Return the seconds of one run, as the mean of several without pauses."""

    def burst():
        for _ in range(runs):
            call()

    _multiply_add(1, 32, HOLD_ITERATIONS, _nothing())
    return device.seconds(burst, repeats=1, warm_up=0)[0] / runs


# --- Without a GPU -----------------------------------------------------------------------------------------

STATIC_CC = "9.0"


def bench_ops_static(cases: Sequence[Case] = CASES):
    """Report what the compiler makes of each rung, if there is no GPU to time it.

    Returns
    -------
    dict
        For each rung its kernels, with registers, spills, shared memory, occupancy and instructions by kind,
        for compute capability 9.0.
    """
    print(f"Nothing is timed: there is no GPU ({device.SELECTION.reason}).")
    print(f"What the compiler makes of each kernel for compute capability {STATIC_CC} instead,")
    print("with shares of its instructions as they stand in the code, those in loops counted once:")
    launches = _launches_by_rung(cases)
    rows = [
        {"operation": operation, "contender": who} | _static_figures(report)
        for (operation, who, _), report in zip(launches, _inspect(launches.values()), strict=True)
    ]
    _print_table(rows)
    return new_record("ops-static", compute_capability=STATIC_CC, results=rows)


def _launches_by_rung(cases):
    """Return one launch of each kernel, by operation, contender, and the kernel's name and launch."""
    launches = {}
    for case in cases:
        if case.size == "large":  # they have the same kernels, and arrays of gigabytes
            continue
        for who, function in case.contenders.items():
            arrays = map(device.empty, (*case.inputs, case.outputs[0]))
            try:
                found = launches_of(case.ours(function, *arrays), run=False)
            except ValueError:
                continue  # the rung does not support this shape
            for launch in found:
                which = launch.kernel.py_func.__name__, launch.threads, launch.shared
                launches.setdefault((case.operation, who, which), launch)
    return launches


def _inspect(launches):
    """Return the inspector's report of each launch; all are compiled together."""
    from gpuless.inspector import inspect_kernels

    requests = [
        (each.kernel, signature(each), {"threads_per_block": each.threads, "dynamic_shared": each.shared})
        for each in launches
    ]
    return inspect_kernels(requests, [STATIC_CC])


def _static_figures(report):
    return {
        "kernel": report.name,
        "threads": report.occupancy.threads_per_block,
        "registers": report.registers,
        "spill_bytes": report.spill_bytes,
        "shared_bytes": report.shared_bytes + report.dynamic_shared,
        "occupancy": report.occupancy.fraction,
        "limited_by": list(report.occupancy.limited_by),
        "language": report.language,
        "instructions": len(report.instructions),
        "mix": report.mix,
        "vector_widths": report.vector_widths,
    }


_SHOWN = {"FMA": "FMA", "shared load": "shared", "global load": "global", "integer": "integer"}


def _print_table(rows):
    """Print the figures, a line for each kernel; the last columns are shares of its instructions."""
    table = [["operation", "rung", "kernel", "threads", "registers", "spilled", "shared B", "occupancy"]]
    table[0] += ["instr.", *_SHOWN.values()]
    for row in rows:
        names = [row["operation"], row["contender"], row["kernel"].removesuffix("_kernel")]
        figures = [row[key] for key in ("threads", "registers", "spill_bytes", "shared_bytes")]
        shares = [row["mix"].get(kind, 0) / row["instructions"] for kind in _SHOWN]
        table.append([*names, *map(str, figures), f"{row['occupancy']:.0%}", str(row["instructions"])])
        table[-1] += [f"{share:.0%}" for share in shares]
    print(text_table(table, left=3))  # names, then numbers
