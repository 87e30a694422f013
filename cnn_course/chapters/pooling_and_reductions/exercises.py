"""The checks of notebook 05, ``05_pooling_and_reductions``."""

import numpy as np

from cnn_course.engine.checks.exercise import Wrong, avoids
from cnn_course.engine.checks.kernels import (
    KernelExercise,
    examine,
    global_updates,
    inout,
    launch,
    normal,
    output,
    uses,
)
from cnn_course.engine.checks.uninitialised import code_of, names_in
from cnn_numba.ops.pool import reference
from gpuless.access import READ, WRITE, access_map

# Threads of a block: in the exercises with shared memory the notebook's cell says the same.
THREADS = 128
ROW_THREADS = 64
BINS = 16
WARP = 32


# --- max_pool_kernel ---------------------------------------------------------------------------------------


def _planes(rng):
    """Draw planes of few different values, so that there are ties, and two of numbers far below 0."""
    for blocks, shape, kernel, stride in [
        (1, (1, 2, 3), 2, 1),
        (2, (5, 6, 4), 2, 2),
        (2, (3, 7, 5), 3, 2),
        (2, (2, 5, 12), 2, 3),
        (6, (2, 9, 8), 3, 1),
        (1, (2, 11, 7), 4, 3),
    ]:
        x = rng.integers(-9, 5, shape).astype(np.float32)
        if kernel == 4:
            x = 1e6 * (x - 5)
        planes, h, w = shape
        pooled = planes, (h - kernel) // stride + 1, (w - kernel) // stride + 1
        yield launch(blocks, 16, x, kernel, stride, output(pooled), output(pooled, np.int32))


def _pooled(x, kernel, stride):
    out, argmax = reference.max_pool2d_forward(x[None], kernel, stride)
    return out[0], argmax[0]


def _windows(x, kernel, stride):
    """Return every window as a row of pixels: shape (planes, H_out, W_out, kernel * kernel)."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(1, 2))
    windows = windows[:, ::stride, ::stride]
    return windows.reshape(*windows.shape[:3], -1)


def _in_plane(x, kernel, stride, where):
    """Turn positions in the windows, as `_windows` has them, into positions in the plane."""
    _, oh, ow = np.indices(where.shape)
    return ((oh * stride + where // kernel) * x.shape[2] + ow * stride + where % kernel).astype(np.int32)


def _last_of_equals(x, kernel, stride):
    windows = _windows(x, kernel, stride)
    last = windows.shape[-1] - 1 - windows[..., ::-1].argmax(axis=-1)
    return windows.max(axis=-1), _in_plane(x, kernel, stride, last)


def _first_down_the_columns(x, kernel, stride):
    windows = _windows(x, kernel, stride)
    turned = windows.reshape(*windows.shape[:-1], kernel, kernel).swapaxes(-1, -2).reshape(windows.shape)
    w, h = np.divmod(turned.argmax(axis=-1), kernel)
    return windows.max(axis=-1), _in_plane(x, kernel, stride, h * kernel + w)


def _from_zero(x, kernel, stride, where=None):
    """Pool with 0 as the value to beat; `where` stays if none does."""
    out, argmax = _pooled(x, kernel, stride)
    if where is None:
        where = _in_plane(x, kernel, stride, np.zeros(out.shape, int))
    return np.maximum(out, 0), np.where(out > 0, argmax, where).astype(np.int32)


def _with_argmax(change):
    """Return a mistake's function that changes the positions only, given planes, window and rows, columns."""

    def function(x, kernel, stride):
        out, argmax = _pooled(x, kernel, stride)
        changed = change(x, kernel, stride, *np.divmod(argmax, x.shape[2]))
        return out, changed.astype(np.int32)

    return function


def _from_place_zero(x, kernel, stride, h, w):
    """Return 0 in the place of each position that is the first of its window."""
    _, oh, ow = np.indices(h.shape)
    return np.where((h == oh * stride) & (w == ow * stride), 0, h * x.shape[2] + w)


def _in_the_window(x, kernel, stride, h, w):
    _, oh, ow = np.indices(h.shape)
    return (h - stride * oh) * kernel + w - stride * ow


def _of_the_first_plane(x, kernel, stride):
    """Pool the first plane, and write that to every output."""
    return tuple(np.repeat(first[:1], len(x), axis=0) for first in _pooled(x, kernel, stride))


def _at_every_pixel(x, kernel, stride):
    _, h, w = _pooled(x, kernel, stride)[0].shape
    return tuple(every[:, :h, :w] for every in _pooled(x, kernel, 1))


def _short_windows(x, kernel, stride):
    """Pool with windows that lack their last row and column."""
    short = kernel - 1
    _, h, w = _pooled(x, kernel, stride)[0].shape
    windows = _windows(x, short, stride)[:, :h, :w]
    return windows.max(axis=-1), _in_plane(x, short, stride, windows.argmax(axis=-1))


_FROM_ZERO = (
    "Where all pixels of a window are negative you give 0, which is not among them. Start the search from "
    "the window's first pixel, or from `float32(-math.inf)`, and compare with nothing but its pixels."
)

max_pool_kernel = KernelExercise(
    "max_pool_kernel",
    reference=_pooled,
    cases=_planes,
    once=True,
    mistakes={
        "tie goes to the last": (
            "The maxima are right. Of equal pixels keep the first: compare with `>`, not `>=`.",
            _last_of_equals,
            ("x[plane, h, w] > best", "x[plane, h, w] >= best"),
            [
                ("x[plane, top, left], top * x.shape[2] + left", "float32(-math.inf), 0"),
                ("range(top, top + kernel)", "range(top + kernel - 1, top - 1, -1)"),
                ("range(left, left + kernel)", "range(left + kernel - 1, left - 1, -1)"),
            ],
        ),
        "tie goes down the columns": (
            "The maxima are right. Of equal pixels take the first row by row: rows in the outer loop.",
            _first_down_the_columns,
            (
                "for h in range(top, top + kernel):\n    for w in range(left, left + kernel):",
                "for w in range(left, left + kernel):\n    for h in range(top, top + kernel):",
            ),
        ),
        "starts from 0": (
            _FROM_ZERO,
            _from_zero,
            lambda x, kernel, stride: _from_zero(x, kernel, stride, 0),
            ("x[plane, top, left], top * x.shape[2] + left", "float32(0), 0"),
            ("x[plane, top, left]", "float32(0)"),
        ),
        "place starts from 0": (
            "The maxima are right. Where the first pixel of a window is the largest, nothing beats it, and "
            "`argmax` is the 0 that you began with. Begin with that pixel's place.",
            _with_argmax(_from_place_zero),
            ("top * x.shape[2] + left", "0"),
        ),
        "place of the output": (
            "The maxima are right. Store the pixel's place in its plane: `row * {x}.shape[2] + column`.",
            _with_argmax(lambda x, kernel, stride, h, w: np.arange(h.size).reshape(h.shape)),
            ("argmax[plane, oh, ow] = where", "argmax[plane, oh, ow] = i"),
        ),
        "position in the window": (
            "Your positions count within the window. Count in the plane: `row * width + column`.",
            _with_argmax(_in_the_window),
            [("top * x.shape[2] + left", "0"), ("h * x.shape[2] + w", "(h - top) * kernel + w - left")],
        ),
        "place in all planes": (
            "The maxima are right. Positions start from 0 in each plane: `row * {x}.shape[2] + column`.",
            _with_argmax(
                lambda x, kernel, stride, h, w: (np.indices(h.shape)[0] * x.shape[1] + h) * x.shape[2] + w
            ),
            ("[plane, oh, ow] = where", "[plane, oh, ow] = where + plane * x.shape[1] * x.shape[2]"),
        ),
        "first plane": (
            "Every plane of your output is that of the first: read `{x}[plane, h, w]`, not `{x}[0, h, w]`.",
            _of_the_first_plane,
            ("x[plane, ", "x[0, ", 3),
        ),
        "width of the output": (
            "The maxima are right. Count with the width of the input: `row * {x}.shape[2] + column`.",
            _with_argmax(lambda x, kernel, stride, h, w: h * _pooled(x, kernel, stride)[0].shape[2] + w),
            ("x.shape[2]", "out.shape[2]", 2),
        ),
        "height for width": (
            "The maxima are right, and the positions are `row * height + column`, or `column * height + "
            "row`. A row has as many pixels as the plane is wide: `row * {x}.shape[2] + column`.",
            _with_argmax(lambda x, kernel, stride, h, w: h * x.shape[1] + w),
            ("x.shape[2]", "x.shape[1]", 2),
        ),
        "down the columns": (
            "The maxima are right. Count the positions row by row: `row * {x}.shape[2] + column`.",
            _with_argmax(lambda x, kernel, stride, h, w: w * x.shape[1] + h),
            [
                ("top * x.shape[2] + left", "left * x.shape[1] + top"),
                ("h * x.shape[2] + w", "w * x.shape[1] + h"),
            ],
        ),
        "stride left out": (
            "Your windows are one pixel apart: window `(oh, ow)` begins at `oh * {stride}`, `ow * {stride}`.",
            _at_every_pixel,
            ("oh * stride, ow * stride", "oh, ow"),
        ),
        "window one short": (
            "Each window lacks its last row and column: `range({kernel})` already ends at `{kernel} - 1`.",
            _short_windows,
            [("top + kernel", "top + kernel - 1"), ("left + kernel", "left + kernel - 1")],
        ),
    },
)


# --- block_sums_kernel -------------------------------------------------------------------------------------


def _in_blocks(x):
    """Return the elements of each block as a row, zeros behind the last."""
    blocks = -(-x.size // THREADS)
    return np.pad(x, (0, blocks * THREADS - x.size)).reshape(blocks, THREADS)


def _vectors(rng):
    """Draw numbers around 3: the rounding of a sum near 0 would be large, seen from the sum."""
    vectors = [normal(rng, n) + np.float32(3) for n in (100, 128, 129, 300, 500)]
    return [launch(-(-x.size // THREADS), THREADS, x, output(-(-x.size // THREADS))) for x in vectors]


def _shared_rows(trace):
    """Return which rows of a trace touch shared memory."""
    shared = np.array([info.space == "shared" for info in trace.arrays] + [False])
    return shared[trace.array]


def _adds_in_a_tree(attempt):
    """Demand few steps, few warps at work in each, and no bank conflicts."""
    case = launch(1, THREADS, normal(np.random.default_rng(0), THREADS), output(1))
    trace = examine(attempt, case).report.trace
    reads = _shared_rows(trace) & (trace.kind == READ)
    busiest = np.bincount(trace.thread[reads]).max()
    if busiest > 2 * THREADS.bit_length():
        raise Wrong(
            "one after the other",
            f"The numbers are right, but one thread reads {busiest} shared elements while the others wait. "
            f"In a tree {THREADS} elements take 7 steps, and every thread that still has work adds one pair.",
        )
    access = access_map(trace)
    if access.degree > 1:
        raise Wrong(
            "bank conflicts",
            f"The numbers are right, but there are {access.degree}-way bank conflicts: the elements that "
            "neighbouring threads add are not neighbours. Let thread `t` add element `t + half` to element "
            "`t`, and halve `half` each time.",
        )
    changes = _shared_rows(trace) & (trace.kind == WRITE)
    steps = np.unique(trace.interval[changes])  # the first fills the array
    second = changes & (trace.interval == steps[2]) if len(steps) > 2 else changes
    warps = len(np.unique(trace.thread[second] // WARP))
    if warps > 1:
        raise Wrong(
            "scattered threads",
            f"The numbers are right, but in the second step, with 32 sums to do, {warps} warps are at work "
            "with a few lanes each. Let the threads with work be neighbours: those with `t < half`.",
        )


block_sums_kernel = KernelExercise(
    "block_sums_kernel",
    reference=lambda x: _in_blocks(x).sum(axis=1, dtype=np.float64),
    cases=_vectors,
    large=lambda rng: [launch(547, THREADS, normal(rng, 70_001) + np.float32(3), output(547))],
    other_blocks=False,
    float32=True,
    once=True,
    properties=(avoids("atomic", "block_sum", "warp_sum"), uses("shared", "syncthreads"), _adds_in_a_tree),
    mistakes={
        "last step missing": (
            "Half of the elements are missing: the tree's last step has `half = 1`. Go on while `half > 0`.",
            lambda x: _in_blocks(x)[:, ::2].sum(axis=1),
            ("half > 0", "half > 1"),
        ),
        "one step only": (
            "You halve the elements once. Halve again and again, until one is left.",
            lambda x: _in_blocks(x)[:, [0, THREADS // 2]].sum(axis=1),
            [("while half > 0:", "if True:"), ("half //= 2", "")],
        ),
        "first quarter": (
            "You start with `half` a quarter of the block: the elements behind `2 * half` are never added.",
            lambda x: _in_blocks(x)[:, : THREADS // 2].sum(axis=1),
            ("THREADS // 2", "THREADS // 4"),
        ),
        "mean": (
            "You divide by the number of threads. Return the sum.",
            lambda x: _in_blocks(x).mean(axis=1),
            ("partial[0]", "partial[0] / float32(THREADS)"),
        ),
        "first element": (
            "Each block gives its first element, to which nothing has been added.",
            lambda x: _in_blocks(x)[:, 0],
            ("half = THREADS // 2", "half = 0"),
        ),
        "maximum": (
            "You keep the larger of two; here they are added.",
            lambda x: np.array([x[i : i + THREADS].max() for i in range(0, x.size, THREADS)]),
            [("(0)", "(-math.inf)"), ("+= partial[t + half]", "= max(partial[t], partial[t + half])")],
        ),
    },
)


# --- row_max_kernel ----------------------------------------------------------------------------------------


def _rows(rng):
    """Draw rows shorter and longer than a block; some with negative numbers alone, one far below 0."""
    for rows, columns in [(1, 1), (3, 20), (2, 64), (4, 150), (3, 201), (2, 83)]:
        x = normal(rng, (rows, columns))
        if columns in (20, 150, 83):
            x = -1 - np.abs(x)
        if columns == 83:
            x *= 1e6
        yield launch(rows, ROW_THREADS, x, output(rows))
    # One warp, and four, whose last one has the largest elements and its two neighbours the smallest.
    yield launch(2, WARP, normal(rng, (2, 20)), output(2))
    x = normal(rng, (2, 4 * WARP))
    x[:, WARP : 3 * WARP] -= 10
    x[:, 3 * WARP :] += 10
    yield launch(2, 4 * WARP, x, output(2))


def _first_warp(x):
    of_the_warp = np.arange(x.shape[1]) % ROW_THREADS < WARP
    return x[:, of_the_warp].max(axis=1)


def _uses_a_shuffle(attempt):
    names = names_in(code_of(attempt))
    if not any(name.startswith("shfl_") for name in names):
        raise Wrong(
            "without",
            "The numbers are right, but shuffles are what this exercise is about.",
            "None occurs in your kernel: compare within a warp with `cuda.shfl_xor_sync`.",
        )


row_max_kernel = KernelExercise(
    "row_max_kernel",
    reference=lambda x: x.max(axis=1),
    cases=_rows,
    large=lambda rng: [launch(37, ROW_THREADS, normal(rng, (37, 5001)), output(37))],
    other_blocks=lambda rng: [launch(3, 4 * WARP, normal(rng, (3, 150)), output(3))],
    float32=True,
    once=True,
    properties=(avoids("warp_max", "block_max", "atomic"), _uses_a_shuffle),
    mistakes={
        "starts from 0": (
            "For negative rows your maximum is 0. Start from `float32(-math.inf)`, below all numbers.",
            lambda x: np.maximum(x.max(axis=1), 0),
            ("float32(-math.inf)", "float32(0)"),
        ),
        "first warp only": (
            "Your maximum is that of the first warp's columns. The shuffles end at the warp's edge: each "
            "warp has to leave its maximum in shared memory, for a thread that reads them all. Are they "
            "left there, and is there a barrier before they are read?",
            _first_warp,
            ("cuda.syncthreads()", ""),
            ("range(cuda.blockDim.x // 32)", "range(1)"),
        ),
        "one element a thread": (
            f"Columns from {ROW_THREADS} on are never read: go on in steps of `cuda.blockDim.x`.",
            lambda x: x[:, :ROW_THREADS].max(axis=1),
            [
                ("for column in range(t, x.shape[1], cuda.blockDim.x):", "if t < x.shape[1]:"),
                ("max(largest, x[row, column])", "x[row, t]"),
            ],
        ),
        "two warps only": (
            "Right for blocks of two warps only. A block has `cuda.blockDim.x // 32` of them.",
            lambda x: (x[:, :ROW_THREADS] if x.shape[1] == 4 * WARP else x).max(axis=1),
            ("for warp in range(cuda.blockDim.x // 32):", "for warp in range(2):"),
        ),
        "first thread only": (
            "Your maximum is that of thread 0's own columns: it does not see those of the other threads.",
            lambda x: x[:, ::ROW_THREADS].max(axis=1),
            [("lanes = 16", "lanes = 0"), ("range(cuda.blockDim.x // 32)", "range(1)")],
        ),
        "sum": (
            "You add the elements. Find the largest.",
            lambda x: x.sum(axis=1),
            [
                ("float32(-math.inf)", "float32(0)"),
                ("= max(largest, ", "+= (", 3),
                ("range(cuda.blockDim.x // 32)", "range(1, cuda.blockDim.x // 32)"),
            ],
        ),
        "minimum": (
            "That is the smallest element of each row.",
            lambda x: x.min(axis=1),
            [("-math.inf", "math.inf"), ("max(", "min(", 3)],
        ),
        "absolute value": (
            "You compare absolute values: -3 is less than 2.",
            lambda x: np.abs(x).max(axis=1),
            [("float32(-math.inf)", "float32(0)"), ("x[row, column]", "abs(x[row, column])")],
        ),
    },
)


# --- histogram_kernel --------------------------------------------------------------------------------------


def _pixels(rng):
    """Draw pixels, many of them black as in a digit, and counts of what was counted before."""
    for blocks, n in [(1, 5), (1, 64), (2, 70), (3, 190), (4, 211)]:
        x = rng.integers(0, 256, n).astype(np.uint8)
        x[rng.random(n) < 0.4] = 0
        x[-1] = 255
        counts = rng.integers(1, 9, BINS).astype(np.int32)
        yield launch(blocks, ROW_THREADS, x, inout(counts))


def _counted(x, counts, bins=None):
    bins = x // (256 // BINS) if bins is None else bins
    return counts + np.bincount(bins[bins < BINS], minlength=BINS).astype(np.int32)


def _counts_in_shared_memory(attempt):
    """Demand one global update for each bin of a block, not for each pixel."""
    n = 4 * ROW_THREADS
    x = (np.arange(n) % 256).astype(np.uint8)
    updates = global_updates(attempt, launch(4, ROW_THREADS, x, inout(np.zeros(BINS, np.int32))))
    if updates > 4 * BINS:
        raise Wrong(
            "one update a pixel",
            f"The counts are right, but {n} pixels made {updates} atomic updates in global memory, where all "
            "blocks wait for each other. Count in shared memory first, and add a block's counts at its end: "
            f"{BINS} updates a block.",
        )


histogram_kernel = KernelExercise(
    "histogram_kernel",
    reference=_counted,
    cases=_pixels,
    large=lambda rng: [launch(1100, ROW_THREADS, np.zeros(70_001, np.uint8), inout(np.ones(BINS, np.int32)))],
    other_blocks=False,
    properties=(_counts_in_shared_memory,),
    mistakes={
        "forgets what was there": (
            "You overwrite the counts that were in `{counts}`. Add those of this image to them.",
            lambda x, counts: _counted(x, 0 * counts),
            """
            i = cuda.grid(1)
            if i < counts.size:
                total = 0
                for k in range(x.size):
                    if x[k] // 16 == i:
                        total += 1
                counts[i] = total
            """,
        ),
        "remainder": (
            "Your bin is `{x}[i] % 16`. Neighbouring values share a bin: `{x}[i] // 16`.",
            lambda x, counts: _counted(x, counts, x % BINS),
            ("x[i] // 16", "x[i] % BINS"),
        ),
        "bins of 17": (
            "You divide by more than 16, so the last bin gets too little: a bin has 256 / 16 values.",
            lambda x, counts: _counted(x, counts, x // 17),
            ("x[i] // 16", "x[i] * (BINS - 1) // 255"),
        ),
        "added by every thread": (
            f"You add each bin {ROW_THREADS} times, once in each thread. Let only thread `t` add bin `t`.",
            lambda x, counts: counts + ROW_THREADS * _counted(x, 0 * counts),
            (
                "if t < BINS:\n    cuda.atomic.add(counts, t, own[t])",
                "for b in range(BINS):\n    cuda.atomic.add(counts, b, own[b])",
            ),
        ),
        "brightness added": (
            "You add the pixel's value to its bin; a histogram counts, so add 1.",
            lambda x, counts: counts + np.bincount(x // 16, x, minlength=BINS).astype(np.int32),
            ("x[i] // 16, 1", "x[i] // 16, int32(x[i])"),
        ),
        "black left out": (
            "Black pixels are missing: the value 0 belongs to bin 0.",
            lambda x, counts: _counted(x[x > 0], counts),
            ("i < x.size", "i < x.size and x[i] > 0"),
        ),
    },
)


# --- softmax_kernel ----------------------------------------------------------------------------------------


def _logits(rng):
    """Draw rows of logits as they come, and some far from 0 or far apart."""
    for rows, classes, scale, offset in [
        (1, 1, 1, 0),
        (3, 10, 3, 0),
        (5, 33, 1, 0),
        (2, 10, 1, 1000),
        (6, 7, 1, -1000),
        (3, 70, 90, 0),
    ]:
        x = (scale * rng.normal(size=(rows, classes)) + offset).astype(np.float32)
        yield launch(-(-rows // 4), (WARP, 4), x, output((rows, classes)))


def _softmax(x, shift=None, axis=1):
    """Compute in float32, so that what overflows there overflows here."""
    shift = x.max(axis=axis, keepdims=True) if shift is None else shift
    exponentials = np.exp(x - np.asarray(shift, np.float32))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def _by_lane(x, reduce):
    """Reduce the columns of each lane, and give every column its lane's result."""
    lanes = np.arange(x.shape[1]) % WARP
    of_lanes = np.stack([reduce(x[:, lanes == lane], axis=1) for lane in range(lanes.max() + 1)], axis=1)
    return of_lanes[:, lanes]


def _lanes_apart(x):
    exponentials = np.exp(x - _by_lane(x, np.max))
    return exponentials / _by_lane(exponentials, np.sum)


def _row_from_the_grid(x):
    """Take lane and row from `cuda.grid(2)`: a block starts 32 columns after the one before, in row 0."""
    out = np.full_like(x, np.nan)
    blocks = -(-len(x) // 4)
    for first in range(0, min(WARP * blocks, x.shape[1]), WARP):
        out[:4, first:] = _softmax(x[:4, first:])
    return out


def _own_total(x):
    exponentials = np.exp(x - x.max(axis=1, keepdims=True))
    return exponentials / _by_lane(exponentials, np.sum)


def _shares_the_row(attempt):
    """Demand that the lanes of a warp share a row's columns."""
    case = launch(1, (WARP, 4), normal(np.random.default_rng(0), (2, 40)), output((2, 40)))
    trace = examine(attempt, case).report.trace
    if len(np.unique(trace.thread[trace.kind == WRITE] % WARP)) == 1:
        raise Wrong(
            "one lane",
            "The numbers are right, but one lane of each warp does everything, and 31 look on. Let each lane "
            "take the columns `lane`, `lane + 32`, and so on.",
        )
    reads = int(np.bincount(trace.thread[trace.kind == READ]).max())
    if reads >= case.args[0].shape[1]:
        raise Wrong(
            "every lane reads the row",
            f"The numbers are right, but each lane reads the whole row: {reads} reads for 40 logits. Let it "
            "read its own columns, `lane`, `lane + 32`, and so on, and combine the lanes with `warp_max` and "
            "`warp_sum`.",
        )


softmax_kernel = KernelExercise(
    "softmax_kernel",
    reference=lambda x: _softmax(x.astype(np.float64)),
    cases=_logits,
    large=lambda rng: [launch(20, (WARP, 4), normal(rng, (77, 1000)), output((77, 1000)))],
    other_blocks=False,
    float32=True,
    properties=(_shares_the_row,),
    mistakes={
        "no shift": (
            "It is right for small logits. `exp` of a large one is infinite, and inf / inf is NaN; with "
            "large negative ones it is 0 / 0. Subtract the row's maximum from each logit first.",
            lambda x: _softmax(x, 0),
            (" - largest", "", 2),
        ),
        "shifted by at least 0": (
            "In a row of large negative logits you subtract more than any of them: every `exp` is 0, and 0 / "
            "0 is NaN. Start the search for the maximum from `float32(-math.inf)`.",
            lambda x: _softmax(x, np.maximum(x.max(axis=1, keepdims=True), 0)),
            ("float32(-math.inf)", "float32(0)"),
        ),
        "shifted by the first": (
            "You subtract the first logit. Where another is larger by 90, `exp` overflows: take the largest.",
            lambda x: _softmax(x, x[:, :1]),
            ("warp_max(largest)", "logits[row, 0]"),
        ),
        "maximum of the lane": (
            "Each lane subtracts the maximum of its columns. `warp_max` returns the row's to every lane.",
            lambda x: _softmax(x, _by_lane(x, np.max)),
            ("largest = warp_max(largest)", ""),
        ),
        "total of the lane": (
            "Each lane divides by the sum of its columns. `warp_sum` returns the row's to every lane.",
            _own_total,
            ("total = warp_sum(total)", ""),
        ),
        "lanes apart": (
            "Each lane keeps the maximum and the sum of its columns only. `warp_max` and `warp_sum` *return* "
            "those of the warp: `largest = warp_max(largest)`.",
            _lanes_apart,
            [("largest = warp_max", "warp_max"), ("total = warp_sum", "warp_sum")],
        ),
        "added 32 times": (
            "Your probabilities are 32 times too small: every lane adds up the whole row, and `warp_sum` "
            "adds up the lanes. A lane's share is the columns `lane`, `lane + 32`, and so on.",
            lambda x: _softmax(x) / WARP,
            [
                ("(0)\nfor k in range(lane, logits.shape[1], 32):", "(0)\nfor k in range(logits.shape[1]):"),
                (
                    "largest = warp_max(largest)\nfor k in range(lane, logits.shape[1], 32):",
                    "largest = warp_max(largest)\nfor k in range(logits.shape[1]):",
                ),
            ],
        ),
        "sum not shifted": (
            "The exponentials above the line are shifted by the maximum, those in the sum are not.",
            lambda x: np.exp(x - x.max(axis=1, keepdims=True)) / np.exp(x).sum(axis=1, keepdims=True),
            ("total += math.exp(logits[row, k] - largest)", "total += math.exp(logits[row, k])"),
        ),
        "row from the grid": (
            "Only rows 0 to 3 are written. `cuda.grid(2)` takes the row from y, and here the blocks stand "
            "side by side in x: the row is `cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y`.",
            _row_from_the_grid,
            ("= cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y", "= cuda.grid(2)"),
        ),
        "not divided": (
            "A row's probabilities do not add up to 1: divide by the sum.",
            lambda x: np.exp(x - x.max(axis=1, keepdims=True)),
            (" / total", ""),
        ),
        "first columns only": (
            "A lane handles one column, and those from 32 on are left out: go on in steps of 32.",
            lambda x: np.pad(
                _softmax(x[:, :WARP]), ((0, 0), (0, max(0, x.shape[1] - WARP))), constant_values=np.nan
            ),
            ("logits.shape[1]", "min(32, logits.shape[1])", 3),
        ),
        "logarithm": (
            "You give the logarithms of the probabilities.",
            lambda x: np.log(_softmax(x.astype(np.float64))),
            ("math.exp(logits[row, k] - largest) / total", "logits[row, k] - largest - math.log(total)"),
        ),
    },
)
