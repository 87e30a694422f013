"""Attention tile by tile: keys and values pass through shared memory, and no table of weights is stored.

A thread keeps a query and its average so far in registers. For the softmax it keeps two numbers: the largest
score so far, and the sum of ``exp(score - largest)``. When a larger score appears, average and sum are
multiplied by ``exp(largest - new largest)``: then they are what they would be had it been known from the
start. Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), and Dao et al.,
"FlashAttention" (2022).

A thread holds up to 16 features. Two or four neighbours share a longer row: each multiplies every second (or
fourth) group of four features, and shuffles add their sums up. Shorter rows are padded with zeros.
"""

import math
from typing import NamedTuple

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.shared.warps import ALL_LANES, load4

ROWS = 64  # of a block: queries; keys where their gradients are computed
TILE = 32  # rows of the other kind that are in shared memory at a time
CHUNK = 8  # scores that a thread computes before it looks for a larger one
MOST_FEATURES = 16  # of a thread
HEAD_DIMS = 16, 32, 64  # those that have kernels; others are padded
MINUS_INFINITY = float32(-math.inf)
_HEADS, _ROWS = "float32[:, :, ::1]", "float32[:, ::1]"


class _Rows(NamedTuple):
    """How many threads share a row, and the device functions with which a thread works on its part of one."""

    lanes: int  # threads that share a row
    features: int  # of each thread
    head_and_row: object  # (): the thread's head and row
    copy_tile: object  # (array, head, first, tile): the block copies TILE rows, zeros past the last
    load_row: object  # (array, head, row, part): load the thread's part of a row, zeros past the last
    store_row: object  # (part, factor, array, head, row): store it times a factor, unless past the last
    dot: object  # (part, tile, j): the product of the thread's row with row j of a tile
    row_sum: object  # (value): the sum over the threads that share a row
    add: object  # (weight, tile, j, part): add row j's part, times a weight, to the thread's part


def _rows_of(head_dim):
    """Make the functions for rows of up to `head_dim` features."""
    lanes = max(1, head_dim // MOST_FEATURES)
    features, threads = head_dim // lanes, ROWS * lanes
    first_feature, feature = _features_of(lanes)

    @cuda.jit(device=True)
    def head_and_row():
        row = uint32(cuda.blockIdx.x) * ROWS + uint32(cuda.threadIdx.x) // uint32(lanes)
        return uint32(cuda.blockIdx.y), uint32(row)

    @cuda.jit(device=True)
    def copy_tile(array, head, first, tile):
        for step in range(TILE * head_dim // threads):
            i = uint32(cuda.threadIdx.x + step * threads)
            row, d = uint32(first + i // uint32(head_dim)), uint32(i % uint32(head_dim))
            inside = row < uint32(array.shape[1]) and d < uint32(array.shape[2])
            tile[i] = array[head, row, d] if inside else float32(0)

    @cuda.jit(device=True)
    def load_row(array, head, row, part):
        start = first_feature()
        for i in range(features):
            d = uint32(start + feature(i))
            inside = row < uint32(array.shape[1]) and d < uint32(array.shape[2])
            part[i] = array[head, row, d] if inside else float32(0)

    @cuda.jit(device=True)
    def store_row(part, factor, array, head, row):
        start = first_feature()
        for i in range(features):
            d = uint32(start + feature(i))
            if row < uint32(array.shape[1]) and d < uint32(array.shape[2]):
                array[head, row, d] = part[i] * factor

    moves = head_and_row, copy_tile, load_row, store_row
    return _Rows(lanes, features, *moves, *_products_of(head_dim, lanes, features))


def _features_of(lanes):
    """Make the functions that return a thread's first feature, and how far from it the i-th one is."""

    @cuda.jit(device=True)
    def first_feature():
        return uint32(cuda.threadIdx.x) % uint32(lanes) * 4

    @cuda.jit(device=True)
    def feature(i):
        # Neighbours read neighbouring groups of four: different banks.
        return uint32(i // 4 * 4 * lanes + i % 4)

    return first_feature, feature


def _products_of(head_dim, lanes, features):
    """Make `dot`, `row_sum` and `add` of a `_Rows`."""
    first_feature, feature = _features_of(lanes)

    @cuda.jit(device=True)
    def dot(part, tile, j):
        at = uint32(j * head_dim + first_feature())
        total = float32(0)
        for i in range(0, features, 4):
            a, b, c, d = load4(tile, uint32(at + feature(i)))
            total += part[i] * a + part[i + 1] * b + part[i + 2] * c + part[i + 3] * d
        return row_sum(total)

    @cuda.jit(device=True)
    def row_sum(value):
        if lanes > 1:
            value += cuda.shfl_xor_sync(ALL_LANES, value, 1)
        if lanes > 2:
            value += cuda.shfl_xor_sync(ALL_LANES, value, 2)
        return value

    @cuda.jit(device=True)
    def add(weight, tile, j, part):
        at = uint32(j * head_dim + first_feature())
        for i in range(0, features, 4):
            a, b, c, d = load4(tile, uint32(at + feature(i)))
            part[i] += weight * a
            part[i + 1] += weight * b
            part[i + 2] += weight * c
            part[i + 3] += weight * d

    return dot, row_sum, add


@cuda.jit(device=True)
def _is_seen(query, key, keys, causal):
    """Return whether a key exists and a query sees it."""
    return key < keys and (key <= query or not causal)


@cuda.jit(device=True)
def _keys_to_see(keys, causal):
    """Return how many keys the block's queries see together."""
    return min(keys, uint32((cuda.blockIdx.x + 1) * ROWS)) if causal else keys


@cuda.jit(device=True)
def _weight_of(score, log_sum_exp, seen):
    """Compute a weight of the forward pass again."""
    return math.exp(score - log_sum_exp) if seen else float32(0)


def _forward(head_dim, rows):
    lanes, features, head_and_row, copy_tile, load_row, store_row, dot, _, add = rows
    tile_size = TILE * head_dim

    @cuda.jit(device=True)
    def score_chunk(q_part, k_tile, first, start, query, keys, causal, scores):
        """Compute the scores of CHUNK keys of the tile; return the largest one."""
        largest = MINUS_INFINITY
        for c in range(CHUNK):
            j = uint32(first + c)
            score = dot(q_part, k_tile, j)
            scores[c] = score if _is_seen(query, uint32(start + j), keys, causal) else MINUS_INFINITY
            largest = max(largest, scores[c])
        return largest

    @cuda.jit(device=True)
    def rescale(average, total, factor):
        """Multiply the average in place; return the total times the factor."""
        for i in range(features):
            average[i] *= factor
        return total * factor

    @cuda.jit(launch_bounds=ROWS * lanes)
    @device.signature(
        f"void({_HEADS}, {_HEADS}, {_HEADS}, float32, bool, {_HEADS}, {_ROWS})",
        name=f"attention_forward_{head_dim}_kernel",
    )
    def forward(q, k, v, scale, causal, out, log_sum_exp):
        """Average for ROWS queries per block, one or more threads each; launched over (queries, heads)."""
        k_tile = cuda.shared.array(tile_size, float32, alignment=16)
        v_tile = cuda.shared.array(tile_size, float32, alignment=16)
        q_part = cuda.local.array(features, float32)
        average = cuda.local.array(features, float32)
        scores = cuda.local.array(CHUNK, float32)
        head, query = head_and_row()
        load_row(q, head, query, q_part)
        for i in range(features):
            q_part[i] *= scale
            average[i] = 0
        largest, total = MINUS_INFINITY, float32(0)
        keys = uint32(k.shape[1])
        for start in range(0, _keys_to_see(keys, causal), TILE):
            copy_tile(k, head, start, k_tile)
            copy_tile(v, head, start, v_tile)
            cuda.syncthreads()  # the tiles are complete
            for first in range(0, TILE, CHUNK):
                chunk_largest = score_chunk(q_part, k_tile, first, start, query, keys, causal, scores)
                new_largest = max(largest, chunk_largest)
                total = rescale(average, total, math.exp(largest - new_largest))
                largest = new_largest
                for c in range(CHUNK):
                    weight = math.exp(scores[c] - largest)
                    total += weight
                    add(weight, v_tile, first + c, average)
            cuda.syncthreads()  # all threads have read them
        store_row(average, float32(1) / total, out, head, query)
        if query < uint32(q.shape[1]) and uint32(cuda.threadIdx.x) % uint32(lanes) == 0:
            log_sum_exp[head, query] = largest + math.log(total)

    return forward


def _backward_q(head_dim, rows):
    lanes, features, head_and_row, copy_tile, load_row, store_row, dot, row_sum, add = rows
    tile_size = TILE * head_dim

    @cuda.jit(launch_bounds=ROWS * lanes)
    @device.signature(
        f"void({', '.join([_HEADS] * 5)}, {_ROWS}, float32, bool, {_ROWS}, {_HEADS})",
        name=f"attention_backward_q_{head_dim}_kernel",
    )
    def backward_q(grad_output, q, k, v, out, log_sum_exp, scale, causal, averages, grad_q):
        """Compute grad_q for ROWS queries per block, and the `averages`; launched over (queries, heads)."""
        k_tile = cuda.shared.array(tile_size, float32, alignment=16)
        v_tile = cuda.shared.array(tile_size, float32, alignment=16)
        q_part = cuda.local.array(features, float32)
        gradient = cuda.local.array(features, float32)
        sums = cuda.local.array(features, float32)
        head, query = head_and_row()
        inside = query < uint32(q.shape[1])
        load_row(q, head, query, q_part)
        load_row(grad_output, head, query, gradient)
        load_row(out, head, query, sums)
        average = float32(0)
        for i in range(features):
            average += gradient[i] * sums[i]
            q_part[i] *= scale
            sums[i] = 0
        average = row_sum(average)
        logarithm = float32(0)
        if inside:
            logarithm = log_sum_exp[head, query]
            if uint32(cuda.threadIdx.x) % uint32(lanes) == 0:
                averages[head, query] = average
        keys = uint32(k.shape[1])
        for start in range(0, _keys_to_see(keys, causal), TILE):
            copy_tile(k, head, start, k_tile)
            copy_tile(v, head, start, v_tile)
            cuda.syncthreads()
            for j in range(TILE):
                seen = inside and _is_seen(query, uint32(start + j), keys, causal)
                weight = _weight_of(dot(q_part, k_tile, j), logarithm, seen)
                grad_score = weight * (dot(gradient, v_tile, j) - average)
                add(grad_score, k_tile, j, sums)
            cuda.syncthreads()
        store_row(sums, scale, grad_q, head, query)

    return backward_q


def _backward_kv(head_dim, rows):
    lanes, features, head_and_row, copy_tile, load_row, store_row, dot, _, add = rows
    tile_size = TILE * head_dim

    @cuda.jit(launch_bounds=ROWS * lanes)
    @device.signature(
        f"void({', '.join([_HEADS] * 4)}, {_ROWS}, {_ROWS}, float32, bool, {_HEADS}, {_HEADS})",
        name=f"attention_backward_kv_{head_dim}_kernel",
    )
    def backward_kv(grad_output, q, k, v, log_sum_exp, averages, scale, causal, grad_k, grad_v):
        """Compute grad_k and grad_v for ROWS keys per block; launched over (keys, heads)."""
        q_tile = cuda.shared.array(tile_size, float32, alignment=16)
        gradient_tile = cuda.shared.array(tile_size, float32, alignment=16)
        k_part = cuda.local.array(features, float32)
        v_part = cuda.local.array(features, float32)
        k_sums = cuda.local.array(features, float32)
        v_sums = cuda.local.array(features, float32)
        head, key = head_and_row()
        load_row(k, head, key, k_part)
        load_row(v, head, key, v_part)
        for i in range(features):
            k_part[i] *= scale
            k_sums[i] = float32(0)
            v_sums[i] = float32(0)
        keys, queries = uint32(k.shape[1]), uint32(q.shape[1])
        # Causal: no query before the block's first key sees any of its keys.
        begin = uint32(cuda.blockIdx.x * ROWS) if causal else uint32(0)
        for start in range(begin, queries, uint32(TILE)):
            copy_tile(q, head, start, q_tile)
            copy_tile(grad_output, head, start, gradient_tile)
            cuda.syncthreads()
            for i in range(uint32(0), min(uint32(TILE), uint32(queries - start))):
                query = uint32(start + i)
                seen = _is_seen(query, key, keys, causal)
                weight = _weight_of(dot(k_part, q_tile, i), log_sum_exp[head, query], seen)
                grad_score = weight * (dot(v_part, gradient_tile, i) - averages[head, query])
                add(weight, gradient_tile, i, v_sums)
                add(grad_score, q_tile, i, k_sums)
            cuda.syncthreads()
        store_row(k_sums, scale, grad_k, head, key)
        store_row(v_sums, float32(1), grad_v, head, key)

    return backward_kv


def _make_kernels(head_dim):
    """Return the threads of a block, and the three kernels, for rows of up to `head_dim` features."""
    rows = _rows_of(head_dim)
    return ROWS * rows.lanes, *(make(head_dim, rows) for make in (_forward, _backward_q, _backward_kv))


_KERNELS = {head_dim: _make_kernels(head_dim) for head_dim in HEAD_DIMS}
# Module-level names, by which `cnn-numba inspect` finds them.
_, attention_forward_16_kernel, attention_backward_q_16_kernel, attention_backward_kv_16_kernel = _KERNELS[16]
_, attention_forward_32_kernel, attention_backward_q_32_kernel, attention_backward_kv_32_kernel = _KERNELS[32]
_, attention_forward_64_kernel, attention_backward_q_64_kernel, attention_backward_kv_64_kernel = _KERNELS[64]


def kernels_for(head_dim):
    """Return the result of `_make_kernels` that fits rows of `head_dim` features."""
    for most in HEAD_DIMS:
        if head_dim <= most:
            return _KERNELS[most]
    raise ValueError(f"head_dim must be at most {HEAD_DIMS[-1]} here, got {head_dim}: use more heads")
