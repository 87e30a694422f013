"""Correct kernels of many kinds, for which the scheduler and the sanitizer must find nothing.

This module imports nothing of ours, so that Numba's own simulator can run the kernels as well.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32, int32

T = 4
TP = T + 1
WIDE = 32
B = 16
HALO = B + 2
TAPS = np.array([0.25, 0.5, 0.25], np.float32)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def nans(*shape, dtype=np.float32):
    return np.full(shape, np.nan, dtype)


@dataclass
class Case:
    """A launch and its expected results, a function of its arguments: a dict from position to array."""

    kernel: Any
    grid: Any
    block: Any
    arguments: Any
    expected: Any
    dynamic: int = 0
    stock: bool = True
    """Whether Numba's own simulator can run it."""

    @property
    def name(self):
        return self.kernel.py_func.__name__

    def run(self):
        """Launch the kernel; return its arguments as they were before, and the arrays after."""
        before = self.arguments(np.random.default_rng(0))
        given = [cuda.to_device(value) if isinstance(value, np.ndarray) else value for value in before]
        self.kernel[self.grid, self.block, 0, self.dynamic](*given)
        after = [value.copy_to_host() if hasattr(value, "copy_to_host") else value for value in given]
        return before, after


# --- One thread, one element -------------------------------------------------------------------------------


@cuda.jit(device=True)
def half(x):
    return x * float32(0.5)


@cuda.jit(device=True)
def quarter(x):
    return half(half(x))


@cuda.jit
def scale(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = quarter(x[i])


@cuda.jit
def early_return(x, y):
    i = cuda.grid(1)
    if i >= x.size:
        return
    y[i] = x[i] if x[i] > 0 else float32(0)


@cuda.jit
def relu_in_place(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = max(x[i], float32(0))


@cuda.jit
def grid_stride(x, y, factor):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = x[i] * factor


@cuda.jit
def add_2d(a, b, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = a[y, x] + b[y, x]


@cuda.jit
def index_3d(out):
    x, y, z = cuda.grid(3)
    if z < out.shape[0] and y < out.shape[1] and x < out.shape[2]:
        out[z, y, x] = cuda.blockIdx.z * 1000 + cuda.threadIdx.y * 100 + x


@cuda.jit
def naive_conv2d(x, weight, out):
    ow, oh = cuda.grid(2)
    if oh < out.shape[0] and ow < out.shape[1]:
        acc = float32(0)
        for kh in range(weight.shape[0]):
            for kw in range(weight.shape[1]):
                acc += x[oh + kh, ow + kw] * weight[kh, kw]
        out[oh, ow] = acc


@cuda.jit
def constant_taps(x, y):
    taps = cuda.const.array_like(TAPS)
    i = cuda.grid(1)
    if i < y.size:
        y[i] = taps[0] * x[i] + taps[1] * x[i + 1] + TAPS[2] * x[i + 2]


@cuda.jit
def max_pool(x, out, argmax):
    ow, oh = cuda.grid(2)
    if oh < out.shape[0] and ow < out.shape[1]:
        best, where = float32(-math.inf), int32(-1)
        for kh in range(2):
            for kw in range(2):
                value = x[2 * oh + kh, 2 * ow + kw]
                if value > best:
                    best, where = value, (2 * oh + kh) * x.shape[1] + 2 * ow + kw
        out[oh, ow], argmax[oh, ow] = best, where


@cuda.jit
def row_views(x, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        row = x[i, 1:]
        acc = float32(0)
        for value in row:
            acc += value
        out[i] = acc + x.T[0, i] + x[i][-1]


@cuda.jit
def local_window(x, y):
    window = cuda.local.array(3, float32)
    i = cuda.grid(1)
    if i < y.size:
        for k in range(3):
            window[k] = x[i + k]
        y[i] = max(window[0], window[1], window[2])


# --- Shared memory and barriers ----------------------------------------------------------------------------


@cuda.jit
def tiled_matmul(a, b, c):
    a_tile = cuda.shared.array((T, T), float32); b_tile = cuda.shared.array((T, T), float32)  # fmt: skip # noqa: E702
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    acc = float32(0)
    for start in range(0, a.shape[1], T):
        a_tile[ty, tx] = b_tile[ty, tx] = 0
        if y < a.shape[0] and start + tx < a.shape[1]:
            a_tile[ty, tx] = a[y, start + tx]
        if x < b.shape[1] and start + ty < b.shape[0]:
            b_tile[ty, tx] = b[start + ty, x]
        cuda.syncthreads()
        for k in range(T):
            acc += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = acc


@cuda.jit
def double_buffered(x, out):
    tiles = cuda.shared.array((2, B), float32)
    tx = cuda.threadIdx.x
    acc = float32(0)
    tiles[0, tx] = x[tx]
    for step in range(x.size // B):
        cuda.syncthreads()
        if (step + 1) * B < x.size:
            tiles[(step + 1) % 2, tx] = x[(step + 1) * B + tx]
        for k in range(B):
            acc += tiles[step % 2, k] * float32(tx + 1)
    out[tx] = acc


@cuda.jit
def halo_conv(x, y):
    tile = cuda.shared.array(HALO, float32)
    i, tx = cuda.grid(1), cuda.threadIdx.x
    tile[tx + 1] = x[i] if i < x.size else 0
    if tx == 0:
        tile[0] = x[i - 1] if i > 0 else 0
    if tx == B - 1:
        tile[B + 1] = x[i + 1] if i + 1 < x.size else 0
    cuda.syncthreads()
    if i < y.size:
        y[i] = tile[tx] + tile[tx + 1] + tile[tx + 2]


@cuda.jit
def tree_reduction(x, partial):
    values = cuda.shared.array(64, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    values[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    stride = 32
    while stride > 0:
        if t < stride:
            values[t] += values[t + stride]
        cuda.syncthreads()
        stride //= 2
    if t == 0:
        partial[cuda.blockIdx.x] = values[0]


@cuda.jit
def prefix_sum(x, y):
    values = cuda.shared.array(B, float32)
    t = cuda.threadIdx.x
    values[t] = x[t]
    step = 1
    while step < B:
        cuda.syncthreads()
        other = values[t - step] if t >= step else float32(0)
        cuda.syncthreads()
        values[t] += other
        step *= 2
    y[t] = values[t]


@cuda.jit
def padded_transpose(x, y):
    tile = cuda.shared.array((T, TP), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        tile[ty, tx] = x[row, column]
    cuda.syncthreads()
    column, row = cuda.blockIdx.y * T + tx, cuda.blockIdx.x * T + ty
    if row < y.shape[0] and column < y.shape[1]:
        y[row, column] = tile[tx, ty]


@cuda.jit
def softmax_rows(x, y):
    values = cuda.shared.array(8, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    values[t] = x[row, t]
    cuda.syncthreads()
    top = values[0]
    for k in range(1, 8):
        top = max(top, values[k])
    cuda.syncthreads()
    values[t] = math.exp(x[row, t] - top)
    cuda.syncthreads()
    total = float32(0)
    for k in range(8):
        total += values[k]
    y[row, t] = values[t] / total


@cuda.jit
def dynamic_shared(x, y):
    values = cuda.shared.array(0, float32)
    counts = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    values[t] = x[t]
    counts[B + t] = t
    cuda.syncthreads()
    y[t] = values[B - 1 - t] + counts[2 * B - 1 - t]


@cuda.jit(device=True)
def block_sum(value, scratch):
    t = cuda.threadIdx.x
    scratch[t] = value
    cuda.syncthreads()
    total = float32(0)
    for k in range(B):
        total += scratch[k]
    cuda.syncthreads()
    return total


@cuda.jit
def centred(x, y):
    scratch = cuda.shared.array(B, float32)
    i = cuda.grid(1)
    mean = block_sum(x[i], scratch) / float32(B)
    variance = block_sum((x[i] - mean) ** 2, scratch) / float32(B)
    y[i] = (x[i] - mean) / math.sqrt(variance)


@cuda.jit
def predicates(x, counts):
    positive = int32(x[cuda.grid(1)] > 0)
    count = cuda.syncthreads_count(positive)
    every = cuda.syncthreads_and(positive)
    some = cuda.syncthreads_or(positive)
    if cuda.threadIdx.x == 0:
        counts[cuda.blockIdx.x, 0] = count
        counts[cuda.blockIdx.x, 1] = every
        counts[cuda.blockIdx.x, 2] = some


# --- Atomics -----------------------------------------------------------------------------------------------


@cuda.jit
def histogram(x, bins):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(bins, x[i], 1)


@cuda.jit
def private_histogram(x, bins):
    mine = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    if t < 8:
        mine[t] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(mine, x[i], 1)
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.add(bins, t, mine[t])


@cuda.jit
def atomic_kinds(x, out, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(out, 0, x[i])
        cuda.atomic.min(out, 1, x[i])
        cuda.atomic.sub(out, 2, x[i])
        cuda.atomic.or_(out, 3, x[i])
        cuda.atomic.and_(out, 4, x[i])
        cuda.atomic.xor(out, 5, x[i])
        cuda.atomic.inc(counts, 0, 5)
        cuda.atomic.dec(counts, 1, 5)
        cuda.atomic.cas(out, 8, 0, x[0])
        cuda.atomic.compare_and_swap(out[9:], 0, 7)
        if i == 3:
            cuda.atomic.exch(out, (10,), x[i])


@cuda.jit
def float_sum(x, total):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(total, 0, x[i])


@cuda.jit
def compaction(x, kept, count):
    i = cuda.grid(1)
    if i < x.size and x[i] > 0:
        kept[cuda.atomic.add(count, 0, 1)] = x[i]


@cuda.jit
def last_block_sums(x, partial, count, out):
    is_last = cuda.shared.array(1, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    values = cuda.shared.array(B, float32)
    values[t] = x[i]
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for k in range(B):
            total += values[k]
        partial[cuda.blockIdx.x] = total
        cuda.threadfence()
        is_last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if is_last[0] and t == 0:
        total = float32(0)
        for block in range(cuda.gridDim.x):
            total += partial[block]
        out[0] = total


@cuda.jit
def same_flag(x, found):
    i = cuda.grid(1)
    if i < x.size and x[i] > 0:
        found[0] = 1


# --- Warps (the stock simulator has none of these) ---------------------------------------------------------


@cuda.jit
def warp_reduction(x, out):
    i = cuda.grid(1)
    value = x[i] if i < x.size else float32(0)
    offset = 16
    while offset > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
        offset //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)


@cuda.jit
def block_reduction_by_warps(x, out):
    sums = cuda.shared.array(WIDE, float32)
    t = cuda.threadIdx.x
    value = x[cuda.grid(1)]
    for power in range(5):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, 1 << power)
    if t % 32 == 0:
        sums[t // 32] = value
    cuda.syncthreads()
    if t < 32:
        value = sums[t] if t < cuda.blockDim.x // 32 else float32(0)
        for power in range(5):
            value += cuda.shfl_xor_sync(0xFFFFFFFF, value, 1 << power)
        if t == 0:
            out[cuda.blockIdx.x] = value


@cuda.jit
def warp_synchronous(x, y):
    values = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    lane, base = t % 32, t // 32 * 32
    values[t] = x[t]
    cuda.syncwarp()
    stride = 16
    while stride > 0:
        if lane < stride:
            values[t] += values[t + stride]
        cuda.syncwarp()
        stride //= 2
    y[t] = values[base]


@cuda.jit
def warp_votes(x, out):
    t = cuda.threadIdx.x
    mask = 0xFFFFFFFF
    out[t, 0] = cuda.ballot_sync(mask, x[t] > 3)
    out[t, 1] = cuda.all_sync(mask, x[t] >= 0)
    out[t, 2] = cuda.any_sync(mask, x[t] > 6)
    out[t, 3] = cuda.eq_sync(mask, x[t] > 100)
    out[t, 4] = cuda.match_any_sync(mask, x[t])
    out[t, 5] = cuda.shfl_sync(mask, x[t], 5)
    out[t, 6] = cuda.shfl_up_sync(mask, x[t], 2)
    out[t, 7] = cuda.popc(cuda.activemask() & cuda.lanemask_lt())
    out[t, 8] = cuda.shfl_down_sync(mask, x[t], 3)
    out[t, 9] = cuda.shfl_sync(mask, x[t], t + 32)
    out[t, 10] = cuda.match_all_sync(mask, x[t] >= 0)[0] + cuda.match_all_sync(mask, x[t])[0]


@cuda.jit
def half_warp(x):
    t = cuda.threadIdx.x
    if t < 16:
        x[t] = cuda.shfl_xor_sync(0x0000FFFF, x[t], 1)
        cuda.syncwarp(0x0000FFFF)
    else:
        x[t] = cuda.shfl_xor_sync(0xFFFF0000, x[t], 3)


def _floats(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


def _conv2d(x, weight, out):
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape)
    return {2: np.einsum("ijkl,kl->ij", windows, weight)}


def _pooled(x, out, argmax):
    best = x[:6, :8].reshape(3, 2, 4, 2).transpose(0, 2, 1, 3).reshape(3, 4, 4)
    k = best.argmax(-1)
    oh, ow = np.indices(k.shape)
    return {1: best.max(-1), 2: (2 * oh + k // 2) * x.shape[1] + 2 * ow + k % 2}


def _neighbours(x, y):
    padded = np.pad(x, 1)
    return {1: padded[:-2] + padded[1:-1] + padded[2:]}


def _softmax(x, y):
    powers = np.exp(x - x.max(1, keepdims=True))
    return {1: powers / powers.sum(1, keepdims=True)}


def _normalised(x, y):
    rows = x.reshape(-1, B)
    return {1: ((rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)).ravel()}


def _atomics(x, out, counts):
    bits = [np.bitwise_or.reduce(x), out[4] & np.bitwise_and.reduce(x), np.bitwise_xor.reduce(x)]
    inc = dec = 0
    for _ in x:
        inc = 0 if inc >= 5 else inc + 1
        dec = 5 if dec == 0 or dec > 5 else dec - 1
    return {1: [x.max(), min(0, x.min()), -x.sum(), *bits, 0, 0, x[0], 7, x[3]], 2: [inc, dec]}


def _votes(x, out):
    lanes = np.arange(32)
    masks = [((x > 3) << lanes).sum(), *(((x == value) << lanes).sum() for value in x)]
    ballot, *same = np.array(masks, np.int64).astype(np.int32)  # as Numba types masks
    up = np.where(lanes >= 2, x[lanes - 2], x)
    ones = np.ones(32)
    down = np.where(lanes < 29, x[(lanes + 3) % 32], x)
    votes = [ballot * ones, ones, ones * (x > 6).any(), ones, same, ones * x[5], up, lanes]
    return {1: np.stack([*votes, down, x, -ones], 1)}


def _half_warp(x):
    lanes = np.arange(32)
    return {0: np.where(lanes < 16, x[lanes ^ 1], x[lanes ^ 3])}


CASES = [
    Case(scale, 3, 8, lambda r: [_floats(r, 21), nans(21)], lambda x, y: {1: x / 4}),
    Case(early_return, 3, 8, lambda r: [_floats(r, 21), nans(21)], lambda x, y: {1: np.maximum(x, 0)}),
    Case(relu_in_place, 3, 8, lambda r: [_floats(r, 21)], lambda x: {0: np.maximum(x, 0)}),
    Case(grid_stride, 2, 3, lambda r: [_floats(r, 20), nans(20), 3.0], lambda x, y, f: {1: x * 3}),
    Case(
        add_2d,
        (3, 2),
        (4, 3),
        lambda r: [_floats(r, 5, 11), _floats(r, 5, 11), nans(5, 11)],
        lambda a, b, out: {2: a + b},
    ),
    Case(
        index_3d,
        (2, 1, 3),
        (4, 2, 2),
        lambda r: [nans(5, 2, 7)],
        lambda out: {0: np.fromfunction(lambda z, y, x: z // 2 * 1000 + y * 100 + x, out.shape)},
    ),
    Case(naive_conv2d, (2, 2), (4, 4), lambda r: [_floats(r, 9, 8), _floats(r, 3, 2), nans(7, 7)], _conv2d),
    Case(
        constant_taps,
        2,
        8,
        lambda r: [_floats(r, 15), nans(13)],
        lambda x, y: {1: np.convolve(x, TAPS, "valid")},
    ),
    Case(
        max_pool,
        (2, 2),
        (3, 2),
        lambda r: [_floats(r, 7, 9), nans(3, 4), zeros(3, 4, dtype=np.int32)],
        _pooled,
    ),
    Case(row_views, 2, 4, lambda r: [_floats(r, 6, 5), nans(6)], lambda x, y: {1: x.sum(1) + x[:, -1]}),
    Case(
        local_window,
        2,
        8,
        lambda r: [_floats(r, 15), nans(13)],
        lambda x, y: {1: np.lib.stride_tricks.sliding_window_view(x, 3).max(1)},
    ),
    Case(
        tiled_matmul,
        (2, 2),
        (T, T),
        lambda r: [_floats(r, 6, 9), _floats(r, 9, 7), nans(6, 7)],
        lambda a, b, c: {2: a @ b},
        # Two shared arrays on one line are one array there.
        stock=False,
    ),
    Case(
        double_buffered,
        1,
        B,
        lambda r: [_floats(r, 4 * B), nans(B)],
        lambda x, y: {1: x.sum() * np.arange(1, B + 1)},
    ),
    Case(halo_conv, 3, B, lambda r: [_floats(r, 41), nans(41)], _neighbours),
    Case(
        tree_reduction,
        2,
        64,
        lambda r: [_floats(r, 100), nans(2)],
        lambda x, y: {1: [x[:64].sum(), x[64:].sum()]},
    ),
    Case(prefix_sum, 1, B, lambda r: [_floats(r, B), nans(B)], lambda x, y: {1: np.cumsum(x)}),
    Case(padded_transpose, (2, 2), (T, T), lambda r: [_floats(r, 6, 7), nans(7, 6)], lambda x, y: {1: x.T}),
    Case(softmax_rows, 3, 8, lambda r: [50 * _floats(r, 3, 8), nans(3, 8)], _softmax),
    Case(
        dynamic_shared,
        1,
        B,
        lambda r: [_floats(r, B), nans(B)],
        lambda x, y: {1: x[::-1] + np.arange(B)[::-1]},
        dynamic=8 * B,
    ),
    Case(centred, 2, B, lambda r: [_floats(r, 2 * B), nans(2 * B)], _normalised),
    Case(
        predicates,
        3,
        8,
        lambda r: [np.r_[_floats(r, 8), np.ones(8), -np.ones(8)].astype(np.float32), zeros(3, 3)],
        lambda x, c: {1: [[(x[:8] > 0).sum(), 0, 1], [8, 1, 1], [0, 0, 0]]},
    ),
    Case(
        histogram,
        3,
        16,
        lambda r: [r.integers(0, 8, 45), zeros(8, dtype=np.int32)],
        lambda x, bins: {1: np.bincount(x, minlength=8)},
    ),
    Case(
        private_histogram,
        3,
        16,
        lambda r: [r.integers(0, 8, 45), zeros(8, dtype=np.int32)],
        lambda x, bins: {1: np.bincount(x, minlength=8)},
    ),
    Case(
        atomic_kinds,
        2,
        8,
        lambda r: [
            r.integers(1, 100, 13).astype(np.int32),
            np.array([0] * 4 + [-1] + [0] * 6, np.int32),
            zeros(2, dtype=np.uint32),
        ],
        _atomics,
    ),
    Case(float_sum, 12, 8, lambda r: [_floats(r, 90), zeros(1)], lambda x, total: {1: [x.sum()]}),
    Case(
        compaction,
        3,
        8,
        lambda r: [_floats(r, 21), zeros(21), zeros(1, dtype=np.int32)],
        lambda x, kept, count: {2: [(x > 0).sum()]},
    ),
    Case(
        last_block_sums,
        3,
        B,
        lambda r: [_floats(r, 3 * B), nans(3), zeros(1, dtype=np.int32), nans(1)],
        lambda x, partial, count, out: {3: [x.sum()]},
    ),
    Case(same_flag, 2, 8, lambda r: [_floats(r, 16), zeros(1)], lambda x, found: {1: [1]}),
    Case(
        warp_reduction,
        2,
        64,
        lambda r: [_floats(r, 90), zeros(1)],
        lambda x, out: {1: [x.sum()]},
        stock=False,
    ),
    Case(
        block_reduction_by_warps,
        2,
        64,
        lambda r: [_floats(r, 128), nans(2)],
        lambda x, out: {1: x.reshape(2, 64).sum(1)},
        stock=False,
    ),
    Case(
        warp_synchronous,
        1,
        64,
        lambda r: [_floats(r, 64), nans(64)],
        lambda x, y: {1: np.repeat(x.reshape(2, 32).sum(1), 32)},
        stock=False,
    ),
    Case(
        warp_votes,
        1,
        32,
        lambda r: [r.integers(0, 8, 32), zeros(32, 11, dtype=np.int64)],
        _votes,
        stock=False,
    ),
    Case(half_warp, 1, 32, lambda r: [_floats(r, 32)], _half_warp, stock=False),
]
