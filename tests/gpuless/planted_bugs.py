"""Kernels with one mistake each: what the sanitizer must find and how it must name it.

The comment ``# bug`` marks a line that the finding must point to. The kernels at the end look much
like them and are right.
"""

import inspect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64

T = 4
B = 16
HALO = B + 2
ALL = 0xFFFFFFFF


def floats(*shape):
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def new(*shape, dtype=np.float32):
    """Return an array for `cuda.device_array_like`: uninitialised."""
    return New(shape, dtype)


@dataclass
class New:
    shape: tuple
    dtype: Any


@dataclass
class Bug:
    kernel: Any
    grid: Any
    block: Any
    arguments: Any
    kinds: set
    array: str | None
    dynamic: int = 0

    @property
    def name(self):
        return self.kernel.py_func.__name__

    @property
    def lines(self):
        """Numbers of the lines that end with ``# bug``."""
        source, first = inspect.getsourcelines(self.kernel.py_func)
        return {first + i for i, line in enumerate(source) if line.rstrip().endswith("# bug")}

    def device_arguments(self):
        return [
            cuda.to_device(value)
            if isinstance(value, np.ndarray)
            else cuda.device_array(value.shape, value.dtype)
            if isinstance(value, New)
            else value
            for value in self.arguments()
        ]


BUGS = []


def bug(grid, block, arguments, *kinds, array=None, dynamic=0):
    """Make a function a kernel and record its mistake."""

    def note(function):
        kernel = cuda.jit(function)
        BUGS.append(Bug(kernel, grid, block, arguments, set(kinds), array, dynamic))
        return kernel

    return note


# --- Missing barriers --------------------------------------------------------------------------------------


@bug(1, B, lambda: [floats(B), new(B)], "missing barrier", array="tile")
def reverse_without_barrier(x, y):
    tile = cuda.shared.array(B, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    y[t] = tile[B - 1 - t]  # bug


@bug((2, 2), (T, T), lambda: [floats(6, 9), floats(9, 7), new(6, 7)], "missing barrier", array="a_tile")
def matmul_without_first_barrier(a, b, c):
    a_tile = cuda.shared.array((T, T), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    acc = float32(0)
    for start in range(0, a.shape[1], T):
        a_tile[ty, tx] = a[y, start + tx] if y < a.shape[0] and start + tx < a.shape[1] else 0
        for k in range(min(T, a.shape[1] - start)):
            acc += a_tile[ty, k] * (b[start + k, x] if x < b.shape[1] else 0)  # bug
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = acc


@bug((2, 2), (T, T), lambda: [floats(6, 9), floats(9, 7), new(6, 7)], "missing barrier", array="a_tile")
def matmul_without_second_barrier(a, b, c):
    a_tile = cuda.shared.array((T, T), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    acc = float32(0)
    for start in range(0, a.shape[1], T):
        a_tile[ty, tx] = a[y, start + tx] if y < a.shape[0] and start + tx < a.shape[1] else 0
        cuda.syncthreads()
        for k in range(min(T, a.shape[1] - start)):
            acc += a_tile[ty, k] * (b[start + k, x] if x < b.shape[1] else 0)  # bug
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = acc


@bug(1, 64, lambda: [floats(64), new(1)], "missing barrier", array="values")
def reduction_without_barrier_in_loop(x, out):
    values = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    values[t] = x[t]
    cuda.syncthreads()
    stride = 32
    while stride > 0:
        if t < stride:
            values[t] += values[t + stride]  # bug
        stride //= 2
    cuda.syncthreads()
    if t == 0:
        out[0] = values[0]


@bug(1, B, lambda: [np.arange(B) % 3, zeros(3, dtype=np.int32)], "missing barrier", array="mine")
def bins_zeroed_too_late(x, bins):
    mine = cuda.shared.array(3, int32)
    t = cuda.threadIdx.x
    if t < 3:
        mine[t] = 0
    cuda.atomic.add(mine, x[t], 1)  # bug
    cuda.syncthreads()
    if t < 3:
        cuda.atomic.add(bins, t, mine[t])


@bug(3, B, lambda: [floats(41), new(41)], "missing barrier", array="tile")
def halo_without_barrier(x, y):
    tile = cuda.shared.array(HALO, float32)
    i, tx = cuda.grid(1), cuda.threadIdx.x
    tile[tx + 1] = x[i] if i < x.size else 0
    if tx == 0:
        tile[0] = x[i - 1] if i > 0 else 0
    if tx == B - 1:
        tile[B + 1] = x[i + 1] if i + 1 < x.size else 0
    if i < y.size:
        y[i] = tile[tx] + tile[tx + 1] + tile[tx + 2]  # bug


@bug(1, B, lambda: [floats(B)], "missing barrier", array="x")
def shift_in_place(x):
    t = cuda.threadIdx.x
    if t + 1 < x.size:
        x[t] = x[t + 1]  # bug


@bug(1, B, lambda: [floats(4 * B), new(B)], "missing barrier", array="tiles")
def double_buffer_without_barrier(x, out):
    tiles = cuda.shared.array((2, B), float32)
    tx = cuda.threadIdx.x
    acc = float32(0)
    tiles[0, tx] = x[tx]
    cuda.syncthreads()
    for step in range(x.size // B):
        if (step + 1) * B < x.size:
            tiles[(step + 1) % 2, tx] = x[(step + 1) * B + tx]
        for k in range(B):
            acc += tiles[step % 2, k]  # bug
    out[tx] = acc


@bug(1, 32, lambda: [floats(32), new(1)], "missing barrier", array="values")
def warp_without_syncwarp(x, out):
    values = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    values[t] = x[t]
    cuda.syncwarp()
    stride = 16
    while stride > 0:
        if t < stride:
            values[t] += values[t + stride]  # bug
        stride //= 2
    if t == 0:
        out[0] = values[0]


@bug(1, 64, lambda: [floats(64), new(64)], "missing barrier", array="values")
def syncwarp_where_a_barrier_is_due(x, y):
    values = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    values[t] = x[t]
    cuda.syncwarp()
    y[t] = values[63 - t]  # bug


@bug(1, B, lambda: [floats(B), new(B)], "missing barrier", array="values", dynamic=8 * B)
def dynamic_shared_overlap(x, y):
    values = cuda.shared.array(0, float32)
    wide = cuda.shared.array(0, int64)
    t = cuda.threadIdx.x
    values[t] = x[t]
    cuda.syncthreads()
    if t == 0:
        wide[1] = 7  # these are values[2] and values[3]
    y[t] = values[3]  # bug


@bug(2, B, lambda: [floats(2 * B), new(2 * B)], "missing barrier", array="scratch")
def scratch_used_twice(x, y):
    scratch = cuda.shared.array(1, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    for part in range(2):
        if t == part:
            scratch[0] = x[i]
        cuda.syncthreads()
        y[i] = scratch[0]  # bug


@bug(1, 64, lambda: [floats(64), new(1)], "missing barrier", array="s")
def tree_without_barriers(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    k = cuda.blockDim.x // 2
    while k:
        if t < k:
            s[t] += s[t + k]  # bug
        k //= 2
    if t == 0:
        out[0] = s[0]


@bug(1, B, lambda: [new(1, dtype=np.int32)], "missing barrier", array="s")
def counter_zeroed_by_all(out):
    s = cuda.shared.array(1, int32)
    s[0] = 0
    cuda.atomic.add(s, 0, 1)  # bug
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[0] = s[0]


@bug(2, B, lambda: [zeros(1, dtype=np.int32)], "race between blocks", array="count")
def counter_zeroed_by_all_blocks(count):
    count[0] = 0
    cuda.atomic.add(count, 0, 1)  # bug


@bug(1, B, lambda: [floats(B + 1)], "missing barrier", array="x")
def swap_with_the_neighbour(x):
    t = cuda.threadIdx.x
    mine, other = x[t], x[t + 1]
    x[t] = other
    x[t + 1] = mine  # bug


@bug(1, B, lambda: [floats(2 * B)], "missing barrier", array="x")
def odd_even_steps(x):
    for step in range(x.size):
        i = 2 * cuda.threadIdx.x + step % 2
        if i + 1 < x.size and x[i] > x[i + 1]:
            x[i], x[i + 1] = x[i + 1], x[i]  # bug


@bug(1, B, lambda: [floats(B)], "missing barrier", array="s")
def bitonic_steps(x):
    s = cuda.shared.array(B, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    k = 2
    while k <= B:
        j = k // 2
        while j > 0:
            other = t ^ j
            if other > t:
                low, high = min(s[t], s[other]), max(s[t], s[other])  # bug
                s[t] = low if t & k == 0 else high
                s[other] = high if t & k == 0 else low
            j //= 2
        k *= 2
    cuda.syncthreads()
    x[t] = s[t]


# --- Lost updates ------------------------------------------------------------------------------------------


@bug(1, B, lambda: [np.arange(B) % 3, zeros(3, dtype=np.int32)], "lost update", array="bins")
def histogram_without_atomic(x, bins):
    i = cuda.grid(1)
    if i < x.size:
        bins[x[i]] += 1  # bug


@bug(1, B, lambda: [floats(B), new(1)], "lost update", array="count")
def shared_counter(x, out):
    count = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        count[0] = 0
    cuda.syncthreads()
    if x[t] > 0:
        count[0] += 1  # bug
    cuda.syncthreads()
    if t == 0:
        out[0] = count[0]


@bug(4, 1, lambda: [floats(4), zeros(1)], "lost update", array="total")
def sum_over_blocks(x, total):
    total[0] += x[cuda.blockIdx.x]  # bug


@bug(1, B, lambda: [floats(B), zeros(1)], "lost update", array="best")
def maximum_by_hand(x, best):
    t = cuda.threadIdx.x
    value = best[0]
    best[0] = max(value, x[t])  # bug


@bug(2, B, lambda: [floats(B), new(1)], "lost update", array="out")
def sum_that_one_thread_sets_to_zero(x, out):
    i = cuda.grid(1)
    if i == 0:
        out[0] = 0
    if i < x.size:
        out[0] += x[i]  # bug


@bug(1, B, lambda: [floats(B), zeros(1)], "lost update", array="best")
def maximum_by_a_branch(x, best):
    t = cuda.threadIdx.x
    if x[t] > best[0]:
        best[0] = x[t]  # bug


@bug(1, B, lambda: [floats(B), zeros(1)], "lost update", array="sums")
def sum_by_way_of_a_variable(x, sums):
    t = cuda.threadIdx.x
    total = sums[0] + x[t]
    sums[0] = total  # bug


# --- Two writers -------------------------------------------------------------------------------------------


@bug(1, B, lambda: [floats(B), new(1)], "write-write race", array="out")
def everyone_writes_the_result(x, out):
    out[0] = x[cuda.threadIdx.x]  # bug


@bug(1, B, lambda: [floats(B), zeros(1), new(B)], "write-write race", array="last")
def everyone_writes_and_reads_back(x, last, y):
    t = cuda.threadIdx.x
    last[0] = x[t]  # bug
    y[t] = last[0]


@bug(1, B, lambda: [floats(B), new(B)], "write-write race", array="tile")
def wrong_slot(x, y):
    tile = cuda.shared.array(B, float32)
    t = cuda.threadIdx.x
    tile[t] = 0
    cuda.syncthreads()
    tile[t // 2] = x[t]  # bug
    cuda.syncthreads()
    y[t] = tile[t]


@bug(1, (4, 4), lambda: [floats(4, 4), zeros(4, 4)], "write-write race", array="out")
def forgotten_axis(x, out):
    column, row = cuda.grid(2)
    out[0, column] = x[row, column]  # bug


@bug(1, B, lambda: [floats(B)], "write-write race", array="x")
def doubled_through_a_wrong_index(x):
    t = cuda.threadIdx.x
    x[t // 2] *= 2  # bug


@bug(1, (8, 2), lambda: [floats(8), zeros(1)], "write-write race", array="s")
def tree_in_a_block_of_two_rows(x, out):
    s = cuda.shared.array(8, float32)
    tx = cuda.threadIdx.x
    s[tx] = x[tx]
    cuda.syncthreads()
    if tx < 4:
        s[tx] += s[tx + 4]  # bug
    cuda.syncthreads()
    if tx == 0:
        out[0] = s[0]


# --- Between blocks ----------------------------------------------------------------------------------------


@bug(3, 4, lambda: [floats(12), zeros(4)], "race between blocks", array="out")
def forgotten_block_index(x, out):
    t = cuda.threadIdx.x
    out[t] = x[cuda.grid(1)]  # bug


@bug(3, B, lambda: [floats(3 * B)], "race between blocks", array="x")
def stencil_in_place(x):
    i = cuda.grid(1)
    left = x[i - 1] if i > 0 else float32(0)
    cuda.syncthreads()
    x[i] += left  # bug


@bug(3, B, lambda: [floats(3 * B), new(3), new(1)], "race between blocks", array="partial")
def first_block_sums_too_early(x, partial, out):
    t = cuda.threadIdx.x
    if t == 0:
        partial[cuda.blockIdx.x] = x[cuda.grid(1)]  # bug
    cuda.syncthreads()
    if cuda.blockIdx.x == 2 and t == 0:
        total = float32(0)
        for block in range(cuda.gridDim.x):
            total += partial[block]
        out[0] = total


@bug(3, B, lambda: [floats(3 * B), new(3), zeros(1, dtype=np.int32), new(1)], "race between blocks", array="partial")  # fmt: skip # noqa: E501
def flag_without_fence(x, partial, count, out):
    t = cuda.threadIdx.x
    if t == 0:
        partial[cuda.blockIdx.x] = x[cuda.grid(1)]
        if cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1:
            total = float32(0)
            for block in range(cuda.gridDim.x):
                total += partial[block]  # bug
            out[0] = total


@bug(3, B, lambda: [floats(3 * B), new(3), zeros(1, dtype=np.int32), new(1)], "race between blocks", array="partial")  # fmt: skip # noqa: E501
def fence_too_early(x, partial, count, out):
    if cuda.threadIdx.x == 0:
        cuda.threadfence()
        partial[cuda.blockIdx.x] = x[cuda.grid(1)]
        if cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1:
            total = float32(0)
            for block in range(cuda.gridDim.x):
                total += partial[block]  # bug
            out[0] = total


@bug(3, B, lambda: [floats(3 * B), new(3), zeros(1, dtype=np.int32), new(1)], "race between blocks", array="partial")  # fmt: skip # noqa: E501
def flag_that_is_never_read(x, partial, count, out):
    if cuda.threadIdx.x == 0:
        if cuda.blockIdx.x < cuda.gridDim.x - 1:
            partial[cuda.blockIdx.x] = x[cuda.grid(1)]
            cuda.threadfence()
            cuda.atomic.add(count, 0, 1)
        else:
            partial[cuda.blockIdx.x] = x[cuda.grid(1)]
            total = float32(0)
            for block in range(cuda.gridDim.x):
                total += partial[block]  # bug
            out[0] = total


@bug(2, 4, lambda: [floats(8), zeros(1)], "race between blocks", array="total")
def reads_what_others_add(x, total):
    cuda.atomic.add(total, 0, x[cuda.grid(1)])
    if cuda.grid(1) == 7:
        x[0] = total[0]  # bug


@bug(2, 4, lambda: [floats(9)], "race between blocks", array="x")
def swap_over_blocks(x):
    i = cuda.grid(1)
    x[i], x[i + 1] = x[i + 1], x[i]  # bug


@bug(2, 8, lambda: [floats(16)], "race between blocks", array="x")
def doubled_with_a_wrong_stride(x):
    i = cuda.blockIdx.x * 4 + cuda.threadIdx.x
    x[i] *= 2  # bug


# --- Divergence --------------------------------------------------------------------------------------------


@bug(2, B, lambda: [floats(20), new(20)], "divergent barrier")
def barrier_under_a_guard(x, y):
    tile = cuda.shared.array(B, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < x.size:
        tile[t] = x[i]
        cuda.syncthreads()  # bug
        y[i] = tile[t]


@bug(2, B, lambda: [floats(20), new(20)], "divergent barrier")
def return_before_a_barrier(x, y):
    tile = cuda.shared.array(B, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i >= x.size:
        return
    tile[t] = x[i]
    cuda.syncthreads()  # bug
    y[i] = tile[t]


@bug(1, B, lambda: [floats(B)], "divergent barrier")
def a_barrier_in_each_branch(x):
    if cuda.threadIdx.x < 4:
        x[cuda.threadIdx.x] = 0
        cuda.syncthreads()  # bug
    else:
        cuda.syncthreads()


@bug(1, B, lambda: [np.arange(B)], "divergent barrier")
def barriers_in_an_uneven_loop(lengths):
    for _ in range(lengths[cuda.threadIdx.x]):
        cuda.syncthreads()  # bug


@bug(1, B, lambda: [floats(B)], "divergent barrier")
def barrier_in_another_round(x):
    t = cuda.threadIdx.x
    for k in range(2):
        if k == t % 2:
            cuda.syncthreads()  # bug


@bug(1, B, lambda: [floats(B)], "divergent barrier")
def barrier_that_half_the_rounds_skip(x):
    t = cuda.threadIdx.x
    for k in range(4):
        if (k + t) % 2 == 0:
            continue
        x[t] += k
        cuda.syncthreads()  # bug


@bug(1, B, lambda: [floats(B)], "divergent barrier")
def barrier_in_a_while_loop(x):
    t = cuda.threadIdx.x
    k = 2
    while k > 0:
        k -= 1
        if k == t % 2:
            cuda.syncthreads()  # bug


@cuda.jit(device=True)
def wait_for_the_block():
    cuda.syncthreads()  # bug


@bug(1, B, lambda: [floats(B)], "divergent barrier")
def device_function_in_another_round(x):
    for k in range(2):
        if k == cuda.threadIdx.x % 2:
            wait_for_the_block()


@bug(1, 32, lambda: [floats(32)], "divergent warp")
def shuffle_under_a_guard(x):
    t = cuda.threadIdx.x
    if t < 16:
        x[t] += cuda.shfl_down_sync(0xFFFFFFFF, x[t], 8)  # bug
    cuda.syncthreads()


@bug(1, 32, lambda: [floats(32)], "divergent warp")
def syncwarp_in_each_branch(x):
    if cuda.laneid < 16:
        cuda.syncwarp()  # bug
    else:
        x[cuda.laneid] = 0
        cuda.syncwarp()


@bug(1, 32, lambda: [np.arange(32)], "divergent warp")
def shuffle_by_half_a_warp(x):
    t = cuda.threadIdx.x
    value = x[t]
    if t < 16:
        value += cuda.shfl_down_sync(ALL, value, 8)  # bug
    x[t] = value


@bug(2, 64, lambda: [floats(100), zeros(4, dtype=np.uint32)], "divergent warp")
def ballot_under_a_guard(x, out):
    i = cuda.grid(1)
    if i < x.size:
        votes = cuda.ballot_sync(ALL, x[i] > 0)  # bug
        if i % 32 == 0:
            out[i // 32] = votes


@bug(1, 64, lambda: [floats(60), zeros(64)], "divergent warp")
def vote_in_a_branch_after_a_return(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    if x[i] > 0:
        out[i] = cuda.any_sync(ALL, x[i] > 1)  # bug


@bug(1, 32, lambda: [floats(30), zeros(32)], "divergent warp")
def vote_behind_and(x, out):
    t = cuda.threadIdx.x
    if t >= x.size:
        return
    if x[t] > 0 and cuda.all_sync(ALL, x[t] > -9):  # bug
        out[t] = 1


@bug(1, 32, lambda: [floats(32), zeros(32)], "divergent warp")
def vote_in_a_branch_before_a_return(x, out):
    t = cuda.threadIdx.x
    if t < 16:
        out[t] = cuda.any_sync(ALL, x[t] > 1)  # bug
    if t >= 8:
        return
    out[t] += 1


@bug(1, 32, lambda: [floats(32)], "divergent warp")
def syncwarp_under_a_guard(x):
    t = cuda.threadIdx.x
    if t < 16:
        x[t] *= 2
        cuda.syncwarp()  # bug


@bug(1, 32, lambda: [np.arange(32) % 5, zeros(32)], "divergent warp")
def vote_in_an_uneven_loop(lengths, out):
    t = cuda.threadIdx.x
    for k in range(lengths[t]):
        out[t] += cuda.any_sync(ALL, k > 2)  # bug


@cuda.jit(device=True)
def count_of_the_warp(flag):
    return cuda.popc(cuda.ballot_sync(ALL, flag))  # bug


@bug(1, 32, lambda: [floats(32), zeros(32, dtype=np.int32)], "divergent warp")
def device_function_under_a_guard(x, out):
    t = cuda.threadIdx.x
    if t % 2:
        out[t] = count_of_the_warp(x[t] > 0)


@bug(1, 32, lambda: [floats(32), zeros(32, dtype=np.int32)], "divergent warp")
def mask_without_the_caller(x, out):
    t = cuda.threadIdx.x
    out[t] = cuda.popc(cuda.ballot_sync(0x0000FFFF, x[t] > 0))  # bug


@bug(1, 32, lambda: [np.arange(32), zeros(32, dtype=np.int32)], "divergent warp")
def masks_that_differ(x, out):
    t = cuda.threadIdx.x
    out[t] = cuda.shfl_xor_sync(1 << t | 1 << (t ^ 1) | 1 << (t & 1), x[t], 1)  # bug


# --- Lanes that are not there ------------------------------------------------------------------------------


@bug(1, 40, lambda: [np.arange(40), zeros(2, dtype=np.int32)], "absent lane")
def tree_in_a_partial_warp(x, out):
    t = cuda.threadIdx.x
    value = x[t]
    offset = 16
    while offset > 0:
        value += cuda.shfl_down_sync(ALL, value, offset)  # bug
        offset //= 2
    if t % 32 == 0:
        out[t // 32] = value


@bug(1, 24, lambda: [floats(24), zeros(24)], "absent lane")
def butterfly_in_a_partial_warp(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t] + cuda.shfl_xor_sync(ALL, x[t], 8)  # bug


@bug(1, 64, lambda: [np.arange(50) % 7, zeros(2, dtype=np.int32)], "absent lane")
def tree_after_a_return(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    value = x[i]
    for power in range(4, -1, -1):
        value = max(value, cuda.shfl_down_sync(ALL, value, 1 << power))  # bug
    if i % 32 == 0:
        out[i // 32] = value


@bug(1, 20, lambda: [np.arange(20) + 5, zeros(1, dtype=np.int32)], "absent lane")
def least_of_a_partial_warp(x, out):
    t = cuda.threadIdx.x
    value = x[t]
    for power in range(4, -1, -1):
        value = min(value, cuda.shfl_down_sync(ALL, value, 1 << power))  # bug
    if t == 0:
        out[0] = value


@bug(1, 20, lambda: [floats(20), zeros(1)], "absent lane")
def least_float_of_a_partial_warp(x, out):
    t = cuda.threadIdx.x
    value = x[t]
    for power in range(4, -1, -1):
        value = min(value, cuda.shfl_down_sync(ALL, value, 1 << power))  # bug
    if t == 0:
        out[0] = value


@bug(1, 8, lambda: [np.arange(8), zeros(8, dtype=np.int32)], "absent lane")
def harmless_garbage_and_then_harm(x, out):
    t = cuda.threadIdx.x
    half = cuda.shfl_down_sync(ALL, x[t], 4)
    last = cuda.shfl_down_sync(ALL, x[t], 7)  # bug
    if t < 4:
        out[t] = half + (last if t == 3 else 0)


@bug(1, 32, lambda: [np.arange(32), zeros(32, dtype=np.int32)], "absent lane")
def broadcast_from_outside_the_mask(x, out):
    t = cuda.threadIdx.x
    if t < 16:
        out[t] = cuda.shfl_sync(0x0000FFFF, x[t], 20)  # bug


@bug(1, 24, lambda: [floats(24), zeros(24, dtype=np.int32)], "absent lane")
def flag_of_a_missing_neighbour(x, out):
    t = cuda.threadIdx.x
    if cuda.shfl_down_sync(ALL, int32(x[t] > 100), 1) and t < 24:  # bug
        out[t] = 1


# --- Beyond the array --------------------------------------------------------------------------------------


@bug(3, 8, lambda: [floats(21), new(21)], "out of bounds", array="y")
def missing_guard(x, y):
    i = cuda.grid(1)
    y[i] = 2  # bug


@bug(1, 8, lambda: [floats(8), new(8)], "out of bounds", array="x")
def one_too_far(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i + 1]  # bug


@bug(1, B, lambda: [floats(B), new(B)], "out of bounds", array="tile")
def tile_without_room_for_the_halo(x, y):
    tile = cuda.shared.array(B, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    cuda.syncthreads()
    y[t] = tile[t] + tile[t + 1]  # bug


@bug((2, 2), (4, 4), lambda: [floats(5, 8), new(5, 8)], "out of bounds", array="y")
def swapped_axes(x, y):
    row, column = cuda.grid(2)
    if row < x.shape[1] and column < x.shape[0]:
        y[row, column] = x[row, column]  # bug


@bug(1, 4, lambda: [floats(4), new(4)], "out of bounds", array="window")
def local_array_too_small(x, y):
    window = cuda.local.array(2, float32)
    i = cuda.threadIdx.x
    for k in range(3):
        window[k] = x[i]  # bug
    y[i] = window[0] + window[1]


@bug(1, 8, lambda: [np.arange(8), zeros(7, dtype=np.int32)], "out of bounds", array="bins")
def bin_beyond_the_last(x, bins):
    cuda.atomic.add(bins, x[cuda.threadIdx.x], 1)  # bug


@bug(1, 4, lambda: [floats(4, 3), new(4)], "out of bounds", array="x")
def beyond_a_row(x, y):
    i = cuda.threadIdx.x
    row = x[i]
    y[i] = row[0] + row[3]  # bug


# --- Division by zero --------------------------------------------------------------------------------------


@bug(1, 8, lambda: [np.arange(8), np.arange(8) % 3, zeros(8)], "division by zero")
def quotient_of_integers(a, b, y):
    i = cuda.threadIdx.x
    y[i] = a[i] // b[i]  # bug


@bug(1, 8, lambda: [floats(8), zeros(8), 0], "division by zero")
def bucket_of_none(x, y, buckets):
    i = cuda.threadIdx.x
    y[i % buckets] = x[i]  # bug


# --- Negative indices --------------------------------------------------------------------------------------


@bug(1, 8, lambda: [floats(8), new(8)], "negative index", array="x")
def left_neighbour(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i - 1]  # bug


@bug(1, B, lambda: [floats(B), new(B)], "negative index", array="tile")
def left_neighbour_in_a_tile(x, y):
    tile = cuda.shared.array(B, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    cuda.syncthreads()
    y[t] = tile[t - 1]  # bug


@bug((2, 2), (4, 4), lambda: [floats(5, 7), new(5, 7)], "negative index", array="x")
def padding_without_a_guard(x, y):
    column, row = cuda.grid(2)
    if row < y.shape[0] and column < y.shape[1]:
        acc = float32(0)
        for k in range(2):
            acc += x[row - k, column]  # bug
        y[row, column] = acc


@bug(1, 4, lambda: [np.array([0, -1, 2, 1]), zeros(3, dtype=np.int32)], "negative index", array="bins")
def label_of_minus_one(labels, bins):
    cuda.atomic.add(bins, labels[cuda.threadIdx.x], 1)  # bug


# --- Garbage -----------------------------------------------------------------------------------------------


@bug(1, B, lambda: [floats(B), new(B)], "uninitialised read", array="acc")
def shared_accumulator_not_zeroed(x, y):
    acc = cuda.shared.array(B, float32)
    t = cuda.threadIdx.x
    acc[t] += x[t]  # bug
    y[t] = acc[t]


@bug(3, B, lambda: [floats(48), new(48)], "uninitialised read", array="tile")
def halo_not_loaded(x, y):
    tile = cuda.shared.array(HALO, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t + 1] = x[i]
    cuda.syncthreads()
    y[i] = tile[t] + tile[t + 1] + tile[t + 2]  # bug


@bug(1, 4, lambda: [floats(4, 3), new(4)], "uninitialised read", array="acc")
def local_accumulator_not_zeroed(x, y):
    acc = cuda.local.array(1, float32)
    i = cuda.threadIdx.x
    for k in range(3):
        acc[0] += x[i, k]  # bug
    y[i] = acc[0]


@bug(1, 8, lambda: [floats(8), new(8)], "uninitialised read", array="out")
def output_not_zeroed(x, out):
    i = cuda.threadIdx.x
    out[i] += x[i]  # bug


@bug(2, 8, lambda: [np.arange(16) % 4, new(4, dtype=np.int32)], "uninitialised read", array="bins")
def bins_not_zeroed(x, bins):
    cuda.atomic.add(bins, x[cuda.grid(1)], 1)  # bug


@bug(1, B, lambda: [np.arange(B) % 4, zeros(4, dtype=np.int32)], "uninitialised read", array="mine")
def shared_bins_not_zeroed(x, bins):
    mine = cuda.shared.array(4, int32)
    t = cuda.threadIdx.x
    cuda.atomic.add(mine, x[t], 1)  # bug
    cuda.syncthreads()
    if t < 4:
        cuda.atomic.add(bins, t, mine[t])


@bug(1, 8, lambda: [new(8), zeros(8)], "uninitialised read", array="x")
def arguments_in_the_wrong_order(x, y):
    i = cuda.threadIdx.x
    y[i] = x[i] * 2  # bug


# --- Results that are not there ----------------------------------------------------------------------------


@bug(2, 8, lambda: [floats(16), new(16)], "never written", array="y")
def guard_too_strict(x, y):
    i = cuda.grid(1)
    if i < x.size - 1:
        y[i] = x[i]


@bug(2, 8, lambda: [floats(21), new(21)], "never written", array="y")
def grid_too_small(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]


@bug(1, 8, lambda: [floats(8), new(12), new(8)], "never written", array="y")
def one_of_two_outputs_is_longer(x, y, z):
    i = cuda.threadIdx.x
    y[i] = x[i]
    z[i] = -x[i]


@bug(1, 8, lambda: [floats(8), np.full(8, np.nan, np.float32)], "never written", array="y")
def result_written_to_the_input(x, y):
    i = cuda.threadIdx.x
    x[i] = x[i] * 2


@bug(1, (4, 2), lambda: [floats(2, 5), new(2, 5)], "never written", array="y")
def last_column_forgotten(x, y):
    column, row = cuda.grid(2)
    y[row, column] = x[row, column]


@bug(3, 8, lambda: [floats(21), new(5, 5)], "never written", array="y")
def square_by_a_grid_too_small(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i // 5, i % 5] = x[i]


@bug(2, 8, lambda: [floats(16), new(32)], "never written", array="y")
def every_other_element(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[2 * i] = x[i]


@bug(2, 4, lambda: [floats(11), new(11)], "never written", array="y")
def stride_one_too_long(x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1) + 1):
        y[i] = x[i]


@bug(1, (4, 4), lambda: [floats(8, 7), new(8, 7)], "never written", array="y")
def only_the_tiles_of_the_diagonal(x, y):
    column, row = cuda.grid(2)
    for tile in range(2):
        if column + 4 * tile < y.shape[1]:
            y[row + 4 * tile, column + 4 * tile] = x[row, column]


@bug(2, 8, lambda: [floats(16), new(16)], "never written", array="y")
def first_elements_left_out(x, y):
    i = cuda.grid(1)
    if 1 < i < x.size:
        y[i] = x[i] - x[i - 2]


# --- NaN ---------------------------------------------------------------------------------------------------


@bug(1, 4, lambda: [np.array([1, 0, 2, 3], np.float32), new(4)], "NaN produced", array="y")
def zero_by_zero(x, y):
    i = cuda.threadIdx.x
    y[i] = x[i] / x[i]  # bug


@bug(1, 4, lambda: [np.array([1, 4, -1, 3], np.float32), new(4)], "NaN produced", array="y")
def root_of_a_negative(x, y):
    i = cuda.threadIdx.x
    y[i] = math.sqrt(x[i])  # bug


@bug(2, 4, lambda: [np.array([[1, 2, 3, 4], [900, 1, 1, 1]], np.float32), new(2, 4)], "NaN produced", array="y")  # fmt: skip # noqa: E501
def softmax_without_the_maximum(x, y):
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    total = float32(0)
    for k in range(4):
        total += math.exp(x[row, k])
    y[row, t] = math.exp(x[row, t]) / total  # bug


@bug(1, 4, lambda: [np.array([1, 1, 1, 1], np.float32), new(4)], "NaN produced", array="tile")
def variance_of_one_value(x, y):
    tile = cuda.shared.array(T, float32)
    t = cuda.threadIdx.x
    tile[t] = (x[t] - float32(1)) / float32(0) if t > 4 else math.log(x[t] - 2)  # bug
    cuda.syncthreads()
    y[t] = tile[t]


# --- Fields of records -------------------------------------------------------------------------------------

POINT = np.dtype([("x", np.float32), ("hits", np.int64), ("grad", np.float32, 2)])


@bug(1, 4, lambda: [zeros(1, dtype=POINT)], "write-write race", array="points.x")
def record_changed_by_all(points):
    points[0].x = points[0].x * 2 + cuda.threadIdx.x  # bug


@bug(1, 4, lambda: [zeros(1, dtype=POINT)], "lost update", array="points.hits")
def hits_without_atomic(points):
    points[0].hits += 1  # bug


@bug(2, 4, lambda: [zeros(8, dtype=POINT)], "race between blocks", array="points.grad")
def gradient_of_the_neighbour(points):
    i = cuda.grid(1)
    points[i].grad[0] = i
    points[i]["x"] = points[(i + 1) % 8].grad[0]  # bug


@bug(1, 8, lambda: [zeros(8, dtype=POINT)], "missing barrier", array="points")
def records_shifted_in_place(points):
    t = cuda.threadIdx.x
    if t < 7:
        points[t] = points[t + 1]  # bug


@bug(1, 8, lambda: [zeros(8, dtype=POINT)], "out of bounds", array="points.x")
def record_beyond_the_last(points):
    points[cuda.threadIdx.x + 1].x = 1  # bug


# --- And no bugs -------------------------------------------------------------------------------------------

CORRECT = []


def correct(grid, block, arguments):
    """Make a function a kernel that the sanitizer must leave alone."""

    def note(function):
        kernel = cuda.jit(function)
        CORRECT.append(Bug(kernel, grid, block, arguments, set(), None))
        return kernel

    return note


@correct(2, 64, lambda: [floats(100), zeros(4)])
def tree_of_full_warps_with_guarded_loads(x, out):
    i = cuda.grid(1)
    value = x[i] if i < x.size else float32(0)
    for power in range(4, -1, -1):
        value += cuda.shfl_down_sync(ALL, value, 1 << power)
    if i % 32 == 0:
        out[i // 32] = value


@correct(1, 40, lambda: [np.arange(40), zeros(2, dtype=np.int32)])
def tree_in_a_partial_warp_that_looks_first(x, out):
    t = cuda.threadIdx.x
    value = x[t]
    for power in range(4, -1, -1):
        other = cuda.shfl_down_sync(ALL, value, 1 << power)
        if t % 32 + (1 << power) < 32 and t + (1 << power) < cuda.blockDim.x:
            value += other
    if t % 32 == 0:
        out[t // 32] = value


@correct(3, 8, lambda: [np.arange(24), zeros(3, dtype=np.int32)])
def tree_of_eight_threads(x, out):
    value = x[cuda.grid(1)]
    offset = cuda.blockDim.x // 2
    while offset > 0:
        # The upper half takes garbage, and nothing uses its sums.
        value += cuda.shfl_down_sync(ALL, value, offset)
        offset //= 2
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = value


@correct(1, 8, lambda: [floats(8), zeros(1)])
def garbage_stored_and_never_read(x, out):
    sums = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    sums[t] = x[t] + cuda.shfl_down_sync(ALL, x[t], 4)
    cuda.syncthreads()
    if t == 0:
        out[0] = sums[0] + sums[1] + sums[2] + sums[3]


@correct(1, 64, lambda: [floats(64), zeros(2, dtype=np.uint32), zeros(64)])
def votes_of_full_warps(x, out, places):
    t = cuda.threadIdx.x
    votes = cuda.ballot_sync(ALL, x[t] > 0)
    places[t] = cuda.popc(votes & cuda.lanemask_lt())
    if t % 32 == 0:
        out[t // 32] = votes


@correct(1, 40, lambda: [floats(40), zeros(40)])
def votes_of_a_partial_warp(x, out):
    t = cuda.threadIdx.x
    out[t] = cuda.any_sync(ALL, x[t] > 1) + cuda.popc(cuda.ballot_sync(ALL, x[t] > 0))
    cuda.syncwarp()


@correct(2, 128, lambda: [floats(200), zeros(2)])
def block_reduction_of_several_warps(x, out):
    sums = cuda.shared.array(32, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    warp, lane = t // 32, t % 32
    value = x[i] if i < x.size else float32(0)
    for power in range(4, -1, -1):
        value += cuda.shfl_down_sync(ALL, value, 1 << power)
    if lane == 0:
        sums[warp] = value
    cuda.syncthreads()
    if warp == 0:
        value = sums[lane] if lane < cuda.blockDim.x // 32 else float32(0)
        for power in range(4, -1, -1):
            value += cuda.shfl_down_sync(ALL, value, 1 << power)
        if lane == 0:
            out[cuda.blockIdx.x] = value


@correct(1, 64, lambda: [floats(64), zeros(1)])
def first_warp_sums_in_shared_memory(x, out):
    values = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    values[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        stride = 32
        while stride > 0:
            other = values[t + stride] if t + stride < 64 else float32(0)
            cuda.syncwarp()
            values[t] += other
            cuda.syncwarp()
            stride //= 2
        if t == 0:
            out[0] = values[0]


@correct(2, 32, lambda: [floats(50), zeros(50)])
def votes_after_a_return(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    total = cuda.popc(cuda.ballot_sync(ALL, x[i] > 0))
    for _ in range(2):
        total += cuda.any_sync(ALL, x[i] > 1)
    cuda.syncwarp()
    out[i] = total + cuda.shfl_sync(ALL, x[i], 0)


@correct(1, 32, lambda: [floats(20), zeros(20)])
def only_arriving_lanes_are_named(x, out):
    t = cuda.threadIdx.x
    mask = cuda.ballot_sync(ALL, t < x.size)
    if t < x.size:
        below = cuda.shfl_up_sync(mask, x[t], 1)
        out[t] = x[t] + (below if t > 0 else float32(0))
        cuda.syncwarp(mask)


@correct(1, 64, lambda: [np.arange(64) % 9, zeros(64)])
def the_warp_goes_on_while_one_lane_does(lengths, out):
    t = cuda.threadIdx.x
    left = lengths[t]
    while cuda.any_sync(ALL, left > 0):
        out[t] += cuda.popc(cuda.ballot_sync(ALL, left > 0))
        left -= 1


@correct(1, 32, lambda: [np.arange(32) % 5, zeros(32)])
def lanes_leave_a_loop_and_the_kernel(lengths, out):
    t = cuda.threadIdx.x
    for k in range(8):
        if k > lengths[t]:
            return
        out[t] += cuda.popc(cuda.ballot_sync(ALL, True))


@correct(1, 64, lambda: [floats(64), zeros(64)])
def each_warp_its_branch(x, out):
    t = cuda.threadIdx.x
    if t < 32:
        out[t] = cuda.shfl_xor_sync(ALL, x[t], 1)
    else:
        out[t] = cuda.shfl_sync(ALL, x[t], 3)


@correct(2, 16, lambda: [floats(30), zeros(1, dtype=np.int32), new(30)])
def compaction_by_an_atomic(x, count, kept):
    i = cuda.grid(1)
    if i < x.size and x[i] > 0:
        kept[cuda.atomic.add(count, 0, 1)] = x[i]


@correct(2, 16, lambda: [floats(30), np.arange(30) // 2, new(30)])
def compaction_by_places(x, places, kept):
    i = cuda.grid(1)
    if i < x.size and i % 2 == 0:
        place = places[i]
        kept[place] = x[i]


@correct(1, 32, lambda: [floats(32), new(32)])
def compaction_in_a_warp(x, kept):
    t = cuda.threadIdx.x
    votes = cuda.ballot_sync(ALL, x[t] > 0)
    place = cuda.popc(votes & cuda.lanemask_lt())
    if x[t] > 0:
        kept[place] = x[t]


@correct((2, 2), (4, 4), lambda: [floats(7, 7), new(7, 7)])
def lower_triangle(x, y):
    column, row = cuda.grid(2)
    if row < y.shape[0] and column <= row:
        y[row, column] = x[row, column]


@correct(1, 7, lambda: [floats(7, 7), new(7, 7)])
def triangle_row_by_row(x, y):
    row = cuda.grid(1)
    for column in range(row + 1):
        y[row, column] = x[row, column]


@correct(1, 7, lambda: [floats(7, 7), new(7, 7)])
def triangle_to_the_end_of_the_row(x, y):
    row = cuda.grid(1)
    for column in range(row, x.shape[1]):
        y[row, column] = x[row, column]


@correct((2, 2), (4, 4), lambda: [floats(8, 8), new(8, 8)])
def border_left_out_at_the_corners(x, y):
    column, row = cuda.grid(2)
    if (row in (0, 7)) != (column in (0, 7)):
        y[row, column] = x[row, column]


@correct(1, 32, lambda: [floats(32)])
def barrier_under_a_condition_all_share(x):
    t = cuda.threadIdx.x
    for k in range(4):
        if k % 2 == 0 and x.size > k:
            x[t] += k
            cuda.syncthreads()


@correct(1, 32, lambda: [floats(96)])
def barrier_in_rounds_that_begin_at_the_thread(x):
    total = float32(0)
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        if cuda.threadIdx.x < 32:
            total += x[i]
            cuda.syncthreads()
            x[i] = total


@correct(1, 32, lambda: [np.arange(32) % 3, zeros(32)])
def barrier_after_searches_of_different_length(x, out):
    t = cuda.threadIdx.x
    for step in range(3):
        found = 0
        while found < 3:
            if x[t] == found:
                break
            found += 1
        if t < 64:
            out[t] += found + step
            cuda.syncthreads()


@correct(1, B, lambda: [zeros(1, dtype=POINT)])
def fields_of_one_record(points):
    t = cuda.threadIdx.x
    if t == 0:
        points[0].x = 1
    elif t == 1:
        points[0].hits = 2
    elif t < 4:
        points[0].grad[t - 2] = t


@correct(2, B, lambda: [zeros(32, dtype=POINT), zeros(32)])
def records_of_their_own(points, out):
    i = cuda.grid(1)
    points[i].x = i
    points.hits[i] += 1
    cuda.atomic.add(points["grad"], (0, i % 2), 1)
    out[i] = points[i]["x"] * points[i].hits


@correct(1, B, lambda: [floats(2 * B)])
def odd_even_sort(x):
    for step in range(x.size):
        i = 2 * cuda.threadIdx.x + step % 2
        if i + 1 < x.size and x[i] > x[i + 1]:
            x[i], x[i + 1] = x[i + 1], x[i]
        cuda.syncthreads()


@correct(1, B, lambda: [new(1, dtype=np.int32)])
def counter_zeroed_and_waited_for(out):
    s = cuda.shared.array(1, int32)
    s[0] = 0
    cuda.syncthreads()
    cuda.atomic.add(s, 0, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[0] = s[0]
