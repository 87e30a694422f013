import numpy as np
from numba import cuda, float32

from wrong_answers import wrong

BLOCK, RADIUS = 16, 2
SPAN = BLOCK + 2 * RADIUS
SHORT = BLOCK + RADIUS
TILE_W, TILE_H, TAPS = 16, 4, 3
PATCH_H, PATCH_W = TILE_H + TAPS - 1, TILE_W + TAPS - 1
STRIDE = 2
STRIDED_H, STRIDED_W = (TILE_H - 1) * STRIDE + TAPS, (TILE_W - 1) * STRIDE + TAPS
SIDE, ROWS = 32, 8
PITCH = SIDE + 1


# --- smooth_kernel ---


@wrong("smooth_kernel", "missing barrier")
@cuda.jit
def smooth_without_barrier(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "missing barrier")
@cuda.jit
def smooth_waits_before_it_loads(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    cuda.syncthreads()
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "missing barrier")
@cuda.jit
def smooth_waits_after_the_sum(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total
    cuda.syncthreads()


@wrong("smooth_kernel", "divergent barrier")
@cuda.jit
def smooth_guards_the_barrier(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    if i < out.size:
        cuda.syncthreads()
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "divergent barrier")
@cuda.jit
def smooth_returns_early(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i >= out.size:
        return
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    cuda.syncthreads()
    total = float32(0)
    for k in range(weights.size):
        total += tile[t + k] * weights[k]
    out[i] = total


@wrong("smooth_kernel", "divergent barrier")
@cuda.jit
def smooth_waits_in_the_load_loop(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
        cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "no halo")
@cuda.jit
def smooth_without_halo(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "no halo")
@cuda.jit
def smooth_with_a_halo_of_zeros(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)
    if t < RADIUS:
        tile[t] = float32(0)
        tile[t + RADIUS + BLOCK] = float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "left only")
@cuda.jit
def smooth_with_a_left_halo(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)
    if t < RADIUS:
        tile[t] = signal[i - RADIUS] if i >= RADIUS else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "right only")
@cuda.jit
def smooth_with_a_right_halo(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)
    if t < RADIUS:
        tile[t] = float32(0)
        after = i + BLOCK
        tile[t + RADIUS + BLOCK] = signal[after] if after < signal.size else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "halo one short")
@cuda.jit
def smooth_loads_one_too_few(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN - 1, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "halo one short")
@cuda.jit
def smooth_with_a_halo_of_one(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)
    if t < RADIUS - 1:
        tile[t + 1] = signal[i - 1] if i >= 1 else float32(0)
        after = i + BLOCK
        tile[t + RADIUS + BLOCK] = signal[after] if after < signal.size else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "outside the tile")
@cuda.jit
def smooth_in_a_tile_too_small(signal, weights, out):
    tile = cuda.shared.array(SHORT, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "negative index")
@cuda.jit
def smooth_reads_before_the_signal(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        tile[k] = signal[start + k] if start + k < signal.size else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "reads past the edge")
@cuda.jit
def smooth_reads_behind_the_signal(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        tile[k] = signal[start + k] if start + k >= 0 else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "tile not zeroed")
@cuda.jit
def smooth_leaves_garbage_outside(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        if 0 <= start + k < signal.size:
            tile[k] = signal[start + k]
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "edge repeated")
@cuda.jit
def smooth_repeats_the_edge(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        tile[k] = signal[min(max(start + k, 0), signal.size - 1)]
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "shifted")
@cuda.jit
def smooth_of_a_window_that_begins_here(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "flipped")
@cuda.jit
def smooth_with_flipped_weights(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[weights.size - 1 - k]
        out[i] = total


@wrong("smooth_kernel", "writes past the edge")
@cuda.jit
def smooth_without_guard(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    cuda.syncthreads()
    total = float32(0)
    for k in range(weights.size):
        total += tile[t + k] * weights[k]
    out[i] = total


@wrong("smooth_kernel", "without")
@cuda.jit
def smooth_without_a_tile(signal, weights, out):
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            j = i + k - RADIUS
            if 0 <= j < signal.size:
                total += signal[j] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "not from the tile")
@cuda.jit
def smooth_with_a_tile_for_show(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            j = i + k - RADIUS
            if 0 <= j < signal.size:
                total += signal[j] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "not from the tile")
@cuda.jit
def smooth_loaded_by_every_thread(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(SPAN):
        if t == k % BLOCK or t == 0:
            inside = 0 <= start + k < signal.size
            value = signal[start + k] if inside else float32(0)
            if t == k % BLOCK:
                tile[k] = value
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "one thread loads")
@cuda.jit
def smooth_loaded_by_the_first_thread(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t == 0:
        for k in range(SPAN):
            inside = 0 <= i - RADIUS + k < signal.size
            tile[k] = signal[i - RADIUS + k] if inside else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "float64")
@cuda.jit
def smooth_in_float64(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, SPAN, BLOCK):
        inside = 0 <= start + k < signal.size
        tile[k] = signal[start + k] if inside else float32(0)
    cuda.syncthreads()
    if i < out.size:
        total = 0.0
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "not a kernel")
def smooth_in_numpy(signal, weights, out):
    out[:] = np.correlate(np.pad(signal, RADIUS), weights, "valid")


# --- conv_channels_kernel ---


@wrong("conv_channels_kernel", "missing barrier")
@cuda.jit
def channels_without_barriers(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "read too early")
@cuda.jit
def channels_wait_before_the_end(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
    cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "overwritten too early")
@cuda.jit
def channels_wait_for_the_load_only(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        cuda.syncthreads()
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "overwritten too early")
@cuda.jit
def channels_wait_again_at_the_end(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        cuda.syncthreads()
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
    cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "read too early")
@cuda.jit
def channels_wait_for_the_sum_only(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "read too early")
@cuda.jit
def channels_wait_before_they_load(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        cuda.syncthreads()
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "divergent barrier")
@cuda.jit
def channels_wait_in_the_load_loop(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
            cuda.syncthreads()
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "divergent barrier")
@cuda.jit
def channels_wait_in_the_guard(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        if row < out.shape[0] and column < out.shape[1]:
            cuda.syncthreads()
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "divergent barrier")
@cuda.jit
def channels_wait_in_the_sum(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        cuda.syncthreads()
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
            cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "divergent barrier")
@cuda.jit
def channels_return_early(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    if row >= out.shape[0] or column >= out.shape[1]:
        return
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        cuda.syncthreads()
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "needless barrier")
@cuda.jit
def channels_wait_for_every_row(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        cuda.syncthreads()
        for i in range(TAPS):
            cuda.syncthreads()
            if row < out.shape[0] and column < out.shape[1]:
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "needless barrier")
@cuda.jit
def channels_wait_three_times(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        cuda.syncthreads()
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        cuda.syncthreads()
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "not called")
@cuda.jit
def channels_do_not_call(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        cuda.syncthreads  # noqa: B018
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
        cuda.syncthreads  # noqa: B018
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "warp only")
@cuda.jit
def channels_wait_for_the_warp(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        cuda.syncwarp()
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
        cuda.syncwarp()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "last channel only")
@cuda.jit
def channels_begin_anew(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        total = float32(0)
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        cuda.syncthreads()
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("conv_channels_kernel", "first channel only")
@cuda.jit
def channels_stop_at_the_first(x, weight, out):
    patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
    row, column = top + ty, left + tx
    total = float32(0)
    for c in range(x.shape[0]):
        for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
            h, w = k // PATCH_W, k % PATCH_W
            if top + h < x.shape[1] and left + w < x.shape[2]:
                patch[h, w] = x[c, top + h, left + w]
        cuda.syncthreads()
        if row < out.shape[0] and column < out.shape[1]:
            for i in range(TAPS):
                for j in range(TAPS):
                    total += patch[ty + i, tx + j] * weight[c, i, j]
        cuda.syncthreads()
        break
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


# --- conv_strided_kernel ---


@wrong("conv_strided_kernel", "corner without the stride")
@cuda.jit
def strided_corner_of_stride_1(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H - 1, cuda.blockIdx.x * TILE_W - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "corner without the stride")
@cuda.jit
def strided_corner_pads_first(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top = (cuda.blockIdx.y * TILE_H - 1) * STRIDE
    left = (cuda.blockIdx.x * TILE_W - 1) * STRIDE
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "padding left out")
@cuda.jit
def strided_without_padding(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE, cuda.blockIdx.x * TILE_W * STRIDE
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "block axes exchanged")
@cuda.jit
def strided_exchanges_the_blocks(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top = cuda.blockIdx.x * TILE_H * STRIDE - 1
    left = cuda.blockIdx.y * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "edge repeated")
@cuda.jit
def strided_repeats_the_edge(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        row = min(max(top + h, 0), image.shape[0] - 1)
        column = min(max(left + w, 0), image.shape[1] - 1)
        patch[h, w] = image[row, column]
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "patch not zeroed")
@cuda.jit
def strided_leaves_garbage_outside(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        if 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]:
            patch[h, w] = image[top + h, left + w]
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "one pixel a thread")
@cuda.jit
def strided_loads_a_corner(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    h, w = ty, tx
    inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
    patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "one pixel a thread")
@cuda.jit
def strided_loads_one_round(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    k = ty * TILE_W + tx
    h, w = k // STRIDED_W, k % STRIDED_W
    inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
    patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "halo one short")
@cuda.jit
def strided_loads_a_row_too_few(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, (STRIDED_H - 1) * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "halo one short")
@cuda.jit
def strided_loads_a_column_too_few(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for h in range(ty, STRIDED_H, TILE_H):
        for w in range(tx, STRIDED_W - 1, TILE_W):
            inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
            patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "halo one short")
@cuda.jit
def strided_loads_stride_times_the_tile(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for h in range(ty, TILE_H * STRIDE, TILE_H):
        for w in range(tx, TILE_W * STRIDE, TILE_W):
            inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
            patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "outside the tile")
@cuda.jit
def strided_divides_by_the_tile(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // TILE_W, k % TILE_W
        inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "outside the tile")
@cuda.jit
def strided_divides_by_the_height(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_H, k % STRIDED_H
        inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "negative index")
@cuda.jit
def strided_guards_one_end(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        inside = top + h < image.shape[0] and left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "reads past the edge")
@cuda.jit
def strided_guards_the_other_end(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        inside = top + h >= 0 and left + w >= 0
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "loaded more than once")
@cuda.jit
def strided_steps_by_a_row_of_threads(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "loaded more than once")
@cuda.jit
def strided_loads_for_the_neighbour(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        for n in range(TILE_W):
            h, w = (k + n) // STRIDED_W, (k + n) % STRIDED_W
            inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
            if h < STRIDED_H:
                value = image[top + h, left + w] if inside else float32(0)
                if n == tx:
                    patch[h, w] = value
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "divergent barrier")
@cuda.jit
def strided_returns_early(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    if row >= out.shape[0] or column >= out.shape[1]:
        return
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_strided_kernel", "missing barrier")
@cuda.jit
def strided_without_barrier(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        h, w = k // STRIDED_W, k % STRIDED_W
        inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
        patch[h, w] = image[top + h, left + w] if inside else float32(0)
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


# --- turn_kernel ---


@wrong("turn_kernel", "missing barrier")
@cuda.jit
def turn_without_barrier(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[width - 1 - left - r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "bank conflicts")
@cuda.jit
def turn_without_padding(image, out):
    tile = cuda.shared.array((SIDE, SIDE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[width - 1 - left - r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "bank conflicts")
@cuda.jit
def turn_with_a_row_of_padding(image, out):
    tile = cuda.shared.array((PITCH, SIDE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[width - 1 - left - r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "without")
@cuda.jit
def turn_without_a_tile(image, out):
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            out[width - 1 - left - tx, top + r] = image[top + r, left + tx]


@wrong("turn_kernel", "scattered")
@cuda.jit
def turn_writes_scattered(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            out[width - 1 - left - tx, top + r] = tile[r, tx]


@wrong("turn_kernel", "scattered")
@cuda.jit
def turn_reads_scattered(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            tile[r, tx] = image[top + tx, left + r]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[width - 1 - left - r, top + tx] = tile[r, tx]


@wrong("turn_kernel", "clockwise")
@cuda.jit
def turn_clockwise(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[left + r, height - 1 - top - tx] = tile[tx, r]


@wrong("turn_kernel", "only transposed")
@cuda.jit
def turn_transposes(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[left + r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "one row off")
@cuda.jit
def turn_one_row_off(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[width - left - r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "turned within tiles")
@cuda.jit
def turn_within_the_tile(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        last = min(SIDE, width - left) - 1
        if left + r < width and top + tx < height:
            out[left + last - r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "writes past the edge")
@cuda.jit
def turn_guards_the_wrong_sides(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            out[width - 1 - left - r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "divergent barrier")
@cuda.jit
def turn_guards_the_barrier(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
            cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[width - 1 - left - r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "one row a thread")
@cuda.jit
def turn_one_row_a_thread(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    if top + ty < height and left + tx < width:
        tile[ty, tx] = image[top + ty, left + tx]
    cuda.syncthreads()
    if left + ty < width and top + tx < height:
        out[width - 1 - left - ty, top + tx] = tile[tx, ty]


@wrong("turn_kernel", "one row a thread")
@cuda.jit
def turn_one_pixel_a_thread(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        out[width - 1 - column, row] = image[row, column]


@wrong("turn_kernel", "one row a thread")
@cuda.jit
def turn_loads_one_row_a_thread(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    if top + ty < height and left + tx < width:
        tile[ty, tx] = image[top + ty, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[width - 1 - left - r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "outside the tile")
@cuda.jit
def turn_in_a_tile_as_large_as_the_block(image, out):
    tile = cuda.shared.array((ROWS, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[width - 1 - left - r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "reads past the edge")
@cuda.jit
def turn_without_guards(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(ty, SIDE, ROWS):
        if left + r < width and top + tx < height:
            out[width - 1 - left - r, top + tx] = tile[tx, r]


@wrong("turn_kernel", "not a kernel")
def turn_in_numpy(image, out):
    out[...] = np.rot90(image)


@wrong("turn_kernel", "done more than once")
@cuda.jit
def turn_all_rows_in_each_thread(image, out):
    tile = cuda.shared.array((SIDE, PITCH), float32)
    tx = cuda.threadIdx.x
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(SIDE):
        if top + r < height and left + tx < width:
            tile[r, tx] = image[top + r, left + tx]
    cuda.syncthreads()
    for r in range(SIDE):
        if left + r < width and top + tx < height:
            out[width - 1 - left - r, top + tx] = tile[tx, r]
