"""Attention tile by tile: keys and values pass through shared memory, and no table of weights is stored.

A thread keeps a query and its average so far in registers. For the softmax it keeps two numbers: the largest
score so far, and the sum of ``exp(score - largest)``. When a larger score appears, average and sum are
multiplied by ``exp(largest - new largest)``: then they are what they would be had it been known from the
start. Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), and Dao et al.,
"FlashAttention" (2022).

A thread holds 16 features. `lanes` neighbours, up to four, share a longer row: each multiplies every second
(or fourth) group of four features, and shuffles add their sums up. Shorter rows are padded with zeros.
"""

import math

from cnn_numba import device
from cnn_numba.device.compiler import ONE, ZERO, cuda, float32, uint32
from cnn_numba.ops.shared.warps import ALL_LANES, load4, unsigned_divmod

ROWS = 64  # of a block: queries; keys where their gradients are computed
TILE = 32  # rows of the other kind that are in shared memory at a time
CHUNK = 8  # scores that a thread computes before it looks for a larger one
FEATURES = 16  # of a thread
HEAD_DIMS = 16, 32, 64  # those that have kernels, with 1, 2 and 4 lanes; others are padded
MINUS_INFINITY = float32(-math.inf)
_HEADS, _ROWS = "float32[:, :, ::1]", "float32[:, ::1]"


@cuda.jit(device=True, inline="always")
def _head_and_row(lanes):
    """Return the thread's head and row."""
    row, _ = unsigned_divmod(cuda.threadIdx.x, lanes)
    return uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.x * ROWS + row)


@cuda.jit(device=True, inline="always")
def _is_in(array, row, d):
    """Return whether an array (heads, rows, features) has that row and that feature."""
    return row < uint32(array.shape[1]) and d < uint32(array.shape[2])


@cuda.jit(device=True, inline="always")
def _copy_tile(array, head, first, lanes, tile):
    """Copy TILE rows with the whole block; zeros past the last one."""
    for step in range(TILE * FEATURES // ROWS):
        i = uint32(cuda.threadIdx.x + step * ROWS * lanes)
        row, d = unsigned_divmod(i, FEATURES * lanes)
        row = uint32(first + row)
        tile[i] = array[head, row, d] if _is_in(array, row, d) else ZERO


@cuda.jit(device=True, inline="always")
def _first_feature(lanes):
    """Return the thread's first feature: 0 of the first thread of a row."""
    _, lane = unsigned_divmod(cuda.threadIdx.x, lanes)
    return 4 * lane


@cuda.jit(device=True, inline="always")
def _feature(i, lanes):
    """Return how far from the thread's first feature its i-th one is."""
    # Neighbours read neighbouring groups of four: different banks.
    return i // 4 * 4 * lanes + i % 4


@cuda.jit(device=True, inline="always")
def _load_row(array, head, row, lanes, part):
    """Load the thread's part of a row; zeros past the last one."""
    start = _first_feature(lanes)
    for i in range(FEATURES):
        d = uint32(start + _feature(i, lanes))
        part[i] = array[head, row, d] if _is_in(array, row, d) else ZERO


@cuda.jit(device=True, inline="always")
def _store_row(part, factor, array, head, row, lanes):
    """Store the thread's part of a row times a factor, unless it is past the last one."""
    start = _first_feature(lanes)
    for i in range(FEATURES):
        d = uint32(start + _feature(i, lanes))
        if _is_in(array, row, d):
            array[head, row, d] = part[i] * factor


@cuda.jit(device=True, inline="always")
def _row_sum(value, lanes):
    """Sum over the threads that share a row."""
    if lanes > 1:
        value += cuda.shfl_xor_sync(ALL_LANES, value, 1)
    if lanes > 2:
        value += cuda.shfl_xor_sync(ALL_LANES, value, 2)
    return value


@cuda.jit(device=True, inline="always")
def _dot(part, tile, j, lanes):
    """Return the product of the row of which the thread has a part, and row j of a tile."""
    at = uint32(j * (FEATURES * lanes) + _first_feature(lanes))
    total = ZERO
    for i in range(0, FEATURES, 4):
        a, b, c, d = load4(tile, uint32(at + _feature(i, lanes)))
        total += part[i] * a + part[i + 1] * b + part[i + 2] * c + part[i + 3] * d
    return _row_sum(total, lanes)


@cuda.jit(device=True, inline="always")
def _add(weight, tile, j, lanes, part):
    """Add row j of a tile, times a weight, to the thread's part of a row."""
    at = uint32(j * (FEATURES * lanes) + _first_feature(lanes))
    for i in range(0, FEATURES, 4):
        a, b, c, d = load4(tile, uint32(at + _feature(i, lanes)))
        part[i] += weight * a
        part[i + 1] += weight * b
        part[i + 2] += weight * c
        part[i + 3] += weight * d


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
    return math.exp(score - log_sum_exp) if seen else ZERO


@cuda.jit(device=True, inline="always")
def _score(q_part, k_tile, j, start, query, keys, causal, lanes):
    """Return the score of key j of a tile; minus infinity if the query doesn't see it."""
    score = _dot(q_part, k_tile, j, lanes)
    return score if _is_seen(query, uint32(start + j), keys, causal) else MINUS_INFINITY


def _forward(head_dim):
    lanes, tile_size = head_dim // FEATURES, TILE * head_dim

    @cuda.jit(launch_bounds=ROWS * lanes)
    @device.signature(
        f"void({_HEADS}, {_HEADS}, {_HEADS}, float32, bool, {_HEADS}, {_ROWS})",
        name=f"attention_forward_{head_dim}_kernel",
    )
    def forward(q, k, v, scale, causal, out, log_sum_exp):
        """Average for ROWS queries per block, one or more threads each; launched over (queries, heads)."""
        k_tile = cuda.shared.array(tile_size, float32, alignment=16)
        v_tile = cuda.shared.array(tile_size, float32, alignment=16)
        q_part = cuda.local.array(FEATURES, float32)
        average = cuda.local.array(FEATURES, float32)
        scores = cuda.local.array(CHUNK, float32)
        head, query = _head_and_row(lanes)
        _load_row(q, head, query, lanes, q_part)
        for i in range(FEATURES):
            q_part[i] *= scale
            average[i] = 0
        largest, total = MINUS_INFINITY, ZERO
        keys = uint32(k.shape[1])
        for start in range(0, _keys_to_see(keys, causal), TILE):
            _copy_tile(k, head, start, lanes, k_tile)
            _copy_tile(v, head, start, lanes, v_tile)
            cuda.syncthreads()  # the tiles are complete
            for first in range(0, TILE, CHUNK):
                new_largest = largest
                for c in range(CHUNK):
                    j = uint32(first + c)
                    scores[c] = _score(q_part, k_tile, j, start, query, keys, causal, lanes)
                    new_largest = max(new_largest, scores[c])
                factor = math.exp(largest - new_largest)
                total *= factor
                for i in range(FEATURES):
                    average[i] *= factor
                largest = new_largest
                for c in range(CHUNK):
                    weight = math.exp(scores[c] - largest)
                    total += weight
                    _add(weight, v_tile, first + c, lanes, average)
            cuda.syncthreads()  # all threads have read them
        _store_row(average, ONE / total, out, head, query, lanes)
        if query < uint32(q.shape[1]) and _first_feature(lanes) == 0:
            log_sum_exp[head, query] = largest + math.log(total)

    return forward


def _backward_q(head_dim):
    lanes, tile_size = head_dim // FEATURES, TILE * head_dim

    @cuda.jit(launch_bounds=ROWS * lanes)
    @device.signature(
        f"void({', '.join([_HEADS] * 5)}, {_ROWS}, float32, bool, {_ROWS}, {_HEADS})",
        name=f"attention_backward_q_{head_dim}_kernel",
    )
    def backward_q(grad_output, q, k, v, out, log_sum_exp, scale, causal, averages, grad_q):
        """Compute grad_q for ROWS queries per block, and the `averages`; launched over (queries, heads)."""
        k_tile = cuda.shared.array(tile_size, float32, alignment=16)
        v_tile = cuda.shared.array(tile_size, float32, alignment=16)
        q_part = cuda.local.array(FEATURES, float32)
        gradient = cuda.local.array(FEATURES, float32)
        sums = cuda.local.array(FEATURES, float32)
        head, query = _head_and_row(lanes)
        inside = query < uint32(q.shape[1])
        _load_row(q, head, query, lanes, q_part)
        _load_row(grad_output, head, query, lanes, gradient)
        _load_row(out, head, query, lanes, sums)
        average = ZERO
        for i in range(FEATURES):
            average += gradient[i] * sums[i]
            q_part[i] *= scale
            sums[i] = 0
        average = _row_sum(average, lanes)
        logarithm = ZERO
        if inside:
            logarithm = log_sum_exp[head, query]
            if _first_feature(lanes) == 0:
                averages[head, query] = average
        keys = uint32(k.shape[1])
        for start in range(0, _keys_to_see(keys, causal), TILE):
            _copy_tile(k, head, start, lanes, k_tile)
            _copy_tile(v, head, start, lanes, v_tile)
            cuda.syncthreads()
            for j in range(TILE):
                seen = inside and _is_seen(query, uint32(start + j), keys, causal)
                weight = _weight_of(_dot(q_part, k_tile, j, lanes), logarithm, seen)
                grad_score = weight * (_dot(gradient, v_tile, j, lanes) - average)
                _add(grad_score, k_tile, j, lanes, sums)
            cuda.syncthreads()
        _store_row(sums, scale, grad_q, head, query, lanes)

    return backward_q


def _backward_kv(head_dim):
    lanes, tile_size = head_dim // FEATURES, TILE * head_dim

    @cuda.jit(launch_bounds=ROWS * lanes)
    @device.signature(
        f"void({', '.join([_HEADS] * 4)}, {_ROWS}, {_ROWS}, float32, bool, {_HEADS}, {_HEADS})",
        name=f"attention_backward_kv_{head_dim}_kernel",
    )
    def backward_kv(grad_output, q, k, v, log_sum_exp, averages, scale, causal, grad_k, grad_v):
        """Compute grad_k and grad_v for ROWS keys per block; launched over (keys, heads)."""
        q_tile = cuda.shared.array(tile_size, float32, alignment=16)
        gradient_tile = cuda.shared.array(tile_size, float32, alignment=16)
        k_part = cuda.local.array(FEATURES, float32)
        v_part = cuda.local.array(FEATURES, float32)
        k_sums = cuda.local.array(FEATURES, float32)
        v_sums = cuda.local.array(FEATURES, float32)
        head, key = _head_and_row(lanes)
        _load_row(k, head, key, lanes, k_part)
        _load_row(v, head, key, lanes, v_part)
        for i in range(FEATURES):
            k_part[i] *= scale
            k_sums[i] = 0
            v_sums[i] = 0
        keys, queries = uint32(k.shape[1]), uint32(q.shape[1])
        # Causal: no query before the block's first key sees any of its keys.
        begin = uint32(cuda.blockIdx.x * ROWS) if causal else uint32(0)
        for start in range(begin, queries, uint32(TILE)):
            _copy_tile(q, head, start, lanes, q_tile)
            _copy_tile(grad_output, head, start, lanes, gradient_tile)
            cuda.syncthreads()
            for i in range(uint32(0), min(uint32(TILE), uint32(queries - start))):
                query = uint32(start + i)
                seen = _is_seen(query, key, keys, causal)
                weight = _weight_of(_dot(k_part, q_tile, i, lanes), log_sum_exp[head, query], seen)
                grad_score = weight * (_dot(v_part, gradient_tile, i, lanes) - averages[head, query])
                _add(weight, gradient_tile, i, lanes, v_sums)
                _add(grad_score, q_tile, i, lanes, k_sums)
            cuda.syncthreads()
        _store_row(k_sums, scale, grad_k, head, key, lanes)
        _store_row(v_sums, ONE, grad_v, head, key, lanes)

    return backward_kv


_KERNELS = {
    head_dim: (ROWS * head_dim // FEATURES, _forward(head_dim), _backward_q(head_dim), _backward_kv(head_dim))
    for head_dim in HEAD_DIMS
}
# Module-level names, by which `cnn-numba inspect` finds them.
_, attention_forward_16_kernel, attention_backward_q_16_kernel, attention_backward_kv_16_kernel = _KERNELS[16]
_, attention_forward_32_kernel, attention_backward_q_32_kernel, attention_backward_kv_32_kernel = _KERNELS[32]
_, attention_forward_64_kernel, attention_backward_q_64_kernel, attention_backward_kv_64_kernel = _KERNELS[64]


def kernels_for(head_dim):
    """Return the threads of a block, and the three kernels, for rows of `head_dim` features."""
    for most in HEAD_DIMS:
        if head_dim <= most:
            return _KERNELS[most]
    raise ValueError(f"head_dim must be at most {HEAD_DIMS[-1]} here, got {head_dim}: use more heads")
