"""`channel_statistics_kernel`: mean and variance of a channel."""

import numpy as np

from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, normal, output
from cnn_course.engine.checks.writes import stored_once
from cnn_numba.beyond.norm.reference import batch_norm2d_forward
from gpuless.access import READ

# Threads of a channel's block, in most launches.
CHANNEL_THREADS = 64
WARP = 32


def _of_some_spread(rng, shape, threads=CHANNEL_THREADS):
    spread = rng.uniform(0.5, 3, (1, shape[1], 1))
    x = spread * rng.normal(size=shape) + 2 * rng.normal(size=(1, shape[1], 1)) + 1
    return launch(shape[1], threads, x.astype(np.float32), output(shape[1]), output(shape[1]))


def _channels(rng):
    """Draw channels of some spread, and some far from 0 with a small spread."""
    for shape in [(2, 3, 5), (5, 2, 20), (70, 3, 1), (3, 4, 47)]:
        yield _of_some_spread(rng, shape)
    for shape in [(2, 3, 8), (8, 2, 32)]:
        # Squares near 2**24, where the next float32 is 2 away. Any order of addition gives the same sum.
        signs = np.resize([1, -1], shape[0] * shape[2])
        x = np.stack([rng.permutation(signs) for _ in range(shape[1])]).reshape(shape[1], shape[0], -1)
        x = np.ascontiguousarray(4096 + x.transpose(1, 0, 2) / 4, np.float32)
        yield launch(shape[1], CHANNEL_THREADS, x, output(shape[1]), output(shape[1]))


def channel_statistics(x):
    """Return mean and variance of each channel of an array (N, C, pixels), as a batch norm computes them."""
    channels = x.shape[1]
    ones, zeros = np.ones(channels), np.zeros(channels)
    _, mean, inv_std = batch_norm2d_forward(x[..., None], ones, zeros, zeros.copy(), ones.copy(), eps=0.0)
    return mean, 1 / inv_std**2


def _flat(x):
    """Return the elements of each channel as a row, in the order in which a thread goes through them."""
    return np.asarray(x.transpose(1, 0, 2).reshape(x.shape[1], -1), np.float64)


def _of_a_part(part):
    """Return a mistake's function: the statistics of a part of each channel."""

    def function(x):
        rows = part(x)
        return rows.mean(axis=1), rows.var(axis=1)

    return function


def _difference_of_squares(x):
    """Compute E[x**2] - E[x]**2 in float32; exact where the squares cannot be."""
    squares = np.square(x, dtype=np.float32).transpose(1, 0, 2).reshape(x.shape[1], -1)
    mean = _flat(x).mean(axis=1)
    return mean, np.where(mean < 1000, _flat(x).var(axis=1), squares.mean(axis=1, dtype=float) - mean**2)


def _with_variance(change):
    """Return a mistake's function: the right mean, and `change(variance, x, mean)` as the variance."""

    def function(x):
        mean, variance = channel_statistics(x)
        return mean, change(variance, x, mean)

    return function


def _count(x):
    return x.shape[0] * x.shape[2]


def _share(places):
    """Return a mistake's function: sums of some elements, divided by the number of all."""

    def function(x):
        share = _flat(x)[:, places]
        centre = share.sum(axis=1) / _count(x)
        return centre, ((share - centre[:, None]) ** 2).sum(axis=1) / _count(x)

    return function


def _second_sum_left_out(x):
    """Return the right mean, and thread 0's part of the variance."""
    mean = _flat(x).mean(axis=1)
    own = _flat(x)[:, ::CHANNEL_THREADS] - mean[:, None]
    return mean, (own**2).sum(axis=1) / _count(x)


def _around_own_means(x):
    """Return the right mean, and the variance if each thread takes its own share of the mean as the mean."""
    flat, squares = _flat(x), 0.0
    for thread in range(min(CHANNEL_THREADS, _count(x))):
        own = flat[:, thread::CHANNEL_THREADS]
        squares += ((own - own.sum(axis=1, keepdims=True) / _count(x)) ** 2).sum(axis=1)
    return flat.mean(axis=1), squares / _count(x)


def _divided_by(x, count):
    """Divide by another number than that of a channel's elements."""
    centre = _flat(x).sum(axis=1) / count
    return centre, ((_flat(x) - centre[:, None]) ** 2).sum(axis=1) / count


def _around_the_sum(x, add):
    """Take the sum of a channel for its mean."""
    total = _flat(x).sum(axis=1)
    return total, add((_flat(x) - total[:, None]) ** 2, axis=1)


def shares_the_channel(attempt, case):
    """Demand that the threads of a block share the elements of a channel; in `case` they are 4 x 1 x 64."""
    trace = examine(attempt, case).report.trace
    given = trace.array == next(i for i, info in enumerate(trace.arrays) if info.shape == (4, 1, 64))
    rows = np.flatnonzero(given & (trace.kind == READ))
    most = int(np.bincount(np.unique([trace.thread[rows], trace.element[rows]], axis=1)[0]).max())
    if most >= 256:
        raise Wrong(
            "one thread",
            f"The numbers are right, but one thread reads {most} of 256 elements. Share them among the "
            f"{CHANNEL_THREADS} threads: let thread `t` take the elements `t`, `t + cuda.blockDim.x`, and "
            "so on; `block_sum` adds up the sums of all threads.",
        )


def _shared_out():
    return launch(1, CHANNEL_THREADS, normal(np.random.default_rng(0), (4, 1, 64)), output(1), output(1))


channel_statistics_kernel = KernelExercise(
    "channel_statistics_kernel",
    reference=channel_statistics,
    cases=_channels,
    other_blocks=lambda rng: [
        _of_some_spread(rng, shape, threads)
        for threads, shape in [(WARP, (2, 2, 19)), (3 * WARP, (5, 1, 39)), (4 * WARP, (3, 4, 47))]
    ],
    float32=True,
    properties=(
        lambda attempt: shares_the_channel(attempt, _shared_out()),
        lambda attempt: stored_once(attempt, _shared_out()),
    ),
    mistakes={
        "difference of squares": (
            "Right, until a channel is far from 0. Then `E[{x}**2]` and `E[{x}]**2` are huge and agree in "
            "all seven digits of float32, so only rounding errors are left. Go through the channel again, "
            "and add up the squared distances from the mean.",
            _difference_of_squares,
            [("c, i % pixels] - centre", "c, i % pixels]"), ("= spread", "= spread - centre * centre")],
        ),
        "divided by one less": (
            "You divide by the number of elements minus one. That is for the running variance, not for this "
            "batch.",
            _with_variance(lambda variance, x, mean: variance * _count(x) / (_count(x) - 1)),
            ("block_sum(squares) / count", "block_sum(squares) / (count - float32(1))"),
        ),
        "standard deviation": (
            "The mean is right. You store the root of the variance.",
            _with_variance(lambda variance, x, mean: np.sqrt(variance)),
            ("block_sum(squares) / count", "math.sqrt(block_sum(squares) / count)"),
        ),
        "mean of squares": (
            "The mean is right. Subtract it before you square: the variance measures distances from it.",
            _with_variance(lambda variance, x, mean: variance + mean**2),
            (" - centre", ""),
        ),
        "not divided": (
            "Your mean is the sum. Divide it by the number of elements of a channel.",
            lambda x: _around_the_sum(x, np.sum),
            lambda x: _around_the_sum(x, np.mean),
            ("float32(x.shape[0] * pixels)", "float32(1)"),
            ("block_sum(total) / count", "block_sum(total)"),
        ),
        "divided by a part": (
            "Divide by the pixels of all samples: `{x}.shape[0] * {x}.shape[2]` elements.",
            lambda x: _divided_by(x, x.shape[2]),
            lambda x: _divided_by(x, x.shape[0]),
            ("float32(x.shape[0] * pixels)", "float32(pixels)"),
            ("float32(x.shape[0] * pixels)", "float32(x.shape[0])"),
        ),
        "variance not divided": (
            "The mean is right. Divide the sum of the squared distances by the number of elements.",
            _with_variance(lambda variance, x, mean: variance * _count(x)),
            ("block_sum(squares) / count", "block_sum(squares)"),
        ),
        "distances not squared": (
            "The mean is right. You average the distances from it. Average their squares.",
            _with_variance(lambda variance, x, mean: np.abs(_flat(x) - mean[:, None]).mean(axis=1)),
            ("distance * distance", "abs(distance)"),
        ),
        "first sample only": (
            "You use only sample 0. The statistics of a channel are those of all samples of the *batch*.",
            _of_a_part(lambda x: np.asarray(x[0], np.float64)),
            [("(x.shape[0] * pixels)", "(pixels)"), ("thread, x.shape[0] * pixels,", "thread, pixels,", 2)],
        ),
        "first pixel only": (
            "You use only pixel 0 of each sample. A channel has all pixels.",
            _of_a_part(lambda x: np.asarray(x[:, :, 0].T, np.float64)),
            [
                ("float32(x.shape[0] * pixels)", "float32(x.shape[0])"),
                ("range(thread, x.shape[0] * pixels, threads)", "range(thread, x.shape[0], threads)", 2),
                ("x[i // pixels, c, i % pixels]", "x[i, c, 0]", 2),
            ],
        ),
        "one element per thread": (
            f"Only the first {CHANNEL_THREADS} elements of a channel are in the sums. Go on in steps of "
            "`cuda.blockDim.x`.",
            _of_a_part(lambda x: _flat(x)[:, :CHANNEL_THREADS]),
            _share(slice(CHANNEL_THREADS)),
            (
                "for i in range(thread, x.shape[0] * pixels, threads):",
                "i = thread\nif i < x.shape[0] * pixels:",
                2,
            ),
        ),
        "first thread only": (
            "Each channel gets the sum of thread 0 alone. `block_sum` *returns* the sum of the whole block.",
            _share(slice(None, None, CHANNEL_THREADS)),
            [("block_sum(total)", "total"), ("block_sum(squares)", "squares")],
        ),
        "variance of the first thread": (
            "The mean is right. The variance is the sum of thread 0 alone: `block_sum` *returns* that of the "
            "whole block, for the squares too.",
            _second_sum_left_out,
            ("block_sum(squares)", "squares"),
        ),
        "each thread's own mean": (
            "The mean that you store is right. In the second loop each thread subtracts its own share of it: "
            "call `block_sum` *before* that loop, so that all threads have the mean.",
            _around_own_means,
            [
                ("centre = block_sum(total) / count", "centre = total / count"),
                ("mean[c] = centre", "mean[c] = whole"),
                ("if thread == 0:", "whole = block_sum(centre)\nif thread == 0:"),
            ],
        ),
        "divided by the threads": (
            "You divide by the number of threads. A channel has `{x}.shape[0] * {x}.shape[2]` elements.",
            lambda x: _divided_by(x, CHANNEL_THREADS),
            ("float32(x.shape[0] * pixels)", "float32(threads)"),
        ),
        "statistics of channel 0": (
            "Every channel gets the statistics of the first: the channel is `cuda.blockIdx.x`.",
            lambda x: tuple(np.broadcast_to(values[:1], values.shape) for values in channel_statistics(x)),
            ("x[i // pixels, c, ", "x[i // pixels, 0, ", 2),
        ),
    },
)
