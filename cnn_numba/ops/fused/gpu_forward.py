"""Convolution, ReLU and 2x2 max pooling on the GPU in one kernel: what is pooled away is never written.

The product is that of `conv.gpu_implicit`, but its columns come window by window: the four positions of a
pooling window are neighbouring columns, and so one thread's results. It keeps the largest and its *code*:
which of the four it was, or DEAD where the ReLU lets no gradient through. The positions that a pooling drops,
a last odd row or column, are not computed.

A 3x3 kernel gathers each pixel nine times that way, and computes an address for each. Where the results are
too few for large tiles, a thread has a window's 4x4 pixels in registers instead, and multiplies them with the
weights of four output channels: 144 products for 13 loads. Products are added in the same order, so that the
results are the same bits.

The first stage of a training step can gather its batch in the same launch. It doesn't wait for the batch: it
reads the bytes of the data set itself, and also writes the normalised images, which the backward pass needs.
"""

from cnn_numba import device
from cnn_numba.device.compiler import ZERO, cuda, float32, int32, uint8, uint32
from cnn_numba.ops.conv.gpu_implicit import LARGE, NARROW, SMALL, gathered_product, table_size
from cnn_numba.ops.conv.index_maps import ConvGeometry, best_tile, forward_geometry, grid_of
from cnn_numba.ops.gather.gpu import AT, Batch, advance_other, gather_share, index_at, normalised
from cnn_numba.ops.pool.gpu import larger
from cnn_numba.ops.shared.results import OUTSIDE, thread_results
from cnn_numba.ops.shared.warps import WARP, load4, unsigned_divmod, warp_and_lane

#: Positions of a pooling window, and the code of one that gets no gradient.
WINDOW, DEAD = 4, 4
_LAYER = "float32[::1], float32[::1], bool, float32[::1], uint8[::1], ConvGeometry"
_POOLED = f"void(float32[::1], {_LAYER})"


@cuda.jit(device=True)
def window_by_window(geometry, column):
    """Return image, row and column of the convolution's output in that column of the product."""
    window, which = unsigned_divmod(column, WINDOW)
    n, window = unsigned_divmod(window, uint32(geometry.count_h * geometry.count_w) // WINDOW)
    row, column = unsigned_divmod(window, geometry.count_w // 2)
    return n, uint32(2 * row + which // 2), uint32(2 * column + which % 2)


@cuda.jit(device=True)
def pooled(sums, first, addend, relu):
    """Return the largest of a window's results, rectified, and its code; its sums begin at `first`."""
    best, code = larger(sums[first] + addend, 0, sums[first + 1] + addend, 1)
    best, code = larger(best, code, sums[first + 2] + addend, 2)
    best, code = larger(best, code, sums[first + 3] + addend, 3)
    if relu & (best <= ZERO):
        best, code = ZERO, DEAD
    return best, code


def pooled_kernel(tile, name):
    """Make a kernel whose blocks compute such tiles, and write a quarter of their results."""
    results, thread_rows, thread_columns = tile.results, tile.thread_rows, tile.thread_columns
    groups, table_numbers = thread_columns // WINDOW, table_size(tile)
    multiply = gathered_product(tile, window_by_window)
    first_result, result_row, result_column = thread_results(tile)

    @cuda.jit(device=True)
    def store(sums, first_row, first_column, bias, relu, out, codes, geometry):
        """Write the largest of each window, and its code."""
        out_at = cuda.local.array(groups, uint32)
        row, column = first_result()
        rows, plane = geometry.rows, geometry.target_plane
        windows = geometry.images * plane
        for group in range(groups):
            at = uint32(first_column + column + result_column(WINDOW * group)) // uint32(WINDOW)
            n = at // plane
            out_at[group] = uint32(n * (rows * plane) + (at - n * plane)) if at < windows else OUTSIDE
        for i in range(thread_rows):
            m = uint32(first_row + row + result_row(i))
            if m < rows:
                addend = bias[m]
                for group in range(groups):
                    best, code = pooled(sums, i * thread_columns + WINDOW * group, addend, relu)
                    if out_at[group] != OUTSIDE:
                        at = uint32(out_at[group] + m * plane)
                        out[at], codes[at] = best, uint8(code)

    @cuda.jit
    @device.signature(_POOLED, name=name)
    def kernel(x, weight, bias, relu, out, codes, geometry: ConvGeometry):
        """Compute one tile per block; a grid of (blocks of columns, blocks of rows)."""
        table = cuda.shared.array(table_numbers, uint32)
        sums = cuda.local.array(results, float32)
        first_row, first_column = multiply(x, weight, table, sums, geometry)
        store(sums, first_row, first_column, bias, relu, out, codes, geometry)

    return kernel


_KERNELS = {
    tile: pooled_kernel(tile, f"conv2d_pool_{name}_kernel")
    for tile, name in ((LARGE, "large"), (SMALL, "small"), (NARROW, "narrow"))
}


# --- 3x3 kernels, window by window --------------------------------------------------------------------------

TAPS, PATCH, PIXELS = 9, 4, 16  # of a kernel; of a window the pixels along each side, and all
WINDOWS, OUTS, THREAD_OUTS = 16, 64, 4  # windows and output channels of a block, output channels of a thread
CHANNELS = 4  # between barriers
THREADS = WINDOWS * OUTS // THREAD_OUTS
WINDOW_SUMS = WINDOW * THREAD_OUTS
DEPTH = CHANNELS * TAPS
_LOADERS = THREADS // OUTS  # threads that load the weights of an output channel
_LOADS = DEPTH // _LOADERS
# Of a window in shared memory, and of a tap: multiples of 4, so that a thread reads four numbers at once, and
# such that neighbours are in different banks.
_WINDOW_PITCH, _TAP_PITCH = PIXELS + 4, OUTS + 8
_PATCHES, _WEIGHTS = CHANNELS * WINDOWS * _WINDOW_PITCH, DEPTH * _TAP_PITCH


@cuda.jit(device=True)
def _add_tap(sums, pixels, first, a, b, c, d):
    """Add four output channels' weights of a tap times the pixels of the four positions."""
    for which in range(WINDOW):
        pixel = pixels[first + PATCH * (which // 2) + which % 2]
        sums[which] += a * pixel
        sums[WINDOW + which] += b * pixel
        sums[2 * WINDOW + which] += c * pixel
        sums[3 * WINDOW + which] += d * pixel


@cuda.jit(device=True)
def _multiply_window(patches, patch_at, weights, weight_at, pixels, sums):
    """Add the products of a window and four output channels, in one channel."""
    for h in range(PATCH):
        row = load4(patches, patch_at + PATCH * h)
        pixels[4 * h], pixels[4 * h + 1], pixels[4 * h + 2], pixels[4 * h + 3] = row
    for tap in range(TAPS):
        first, second, third, fourth = load4(weights, weight_at + tap * _TAP_PITCH)
        _add_tap(sums, pixels, PATCH * (tap // 3) + tap % 3, first, second, third, fourth)


@cuda.jit(device=True)
def _multiply_windows(patches, patch_at, weights, weight_at, pixels, sums):
    """Add the products of a window and four output channels, over the channels between two barriers."""
    end = weight_at + DEPTH * _TAP_PITCH
    while weight_at < end:
        _multiply_window(patches, patch_at, weights, weight_at, pixels, sums)
        patch_at = uint32(patch_at + WINDOWS * _WINDOW_PITCH)
        weight_at = uint32(weight_at + TAPS * _TAP_PITCH)


@cuda.jit(device=True)
def _store_windows(sums, window, first_out, bias, relu, out, codes, geometry):
    """Write the largest of a window, and its code, for four output channels."""
    rows, plane = geometry.rows, geometry.target_plane
    n = window // plane
    at = uint32(n * (rows * plane) + (window - n * plane) + first_out * plane)
    if window < geometry.images * plane:
        for i in range(THREAD_OUTS):
            m = uint32(first_out + i)
            if m < rows:
                best, code = pooled(sums, WINDOW * i, bias[m], relu)
                out[uint32(at + i * plane)], codes[uint32(at + i * plane)] = best, uint8(code)


@cuda.jit
@device.signature(_POOLED)
def conv2d_pool_windows_kernel(x, weight, bias, relu, out, codes, geometry: ConvGeometry):
    """Compute WINDOWS windows of OUTS output channels per block; grid (windows, output channels)."""
    patches = cuda.shared.array(_PATCHES, float32, alignment=16)
    weights = cuda.shared.array(_WEIGHTS, float32, alignment=16)
    sums, pixels = cuda.local.array(WINDOW_SUMS, float32), cuda.local.array(PIXELS, float32)
    fetched, fetched_weights = cuda.local.array(CHANNELS, float32), cuda.local.array(_LOADS, float32)
    thread = uint32(cuda.threadIdx.x)
    first_window, first_row = uint32(cuda.blockIdx.x * WINDOWS), uint32(cuda.blockIdx.y * OUTS)
    height, width, channels = geometry.source_h, geometry.source_w, geometry.channels

    # Each thread loads a pixel of a window, the same one in every channel, and weights of an output channel.
    n, top, left = window_by_window(geometry, uint32((first_window + thread // PIXELS) * WINDOW))
    h = uint32(top + geometry.start_h + thread % PIXELS // PATCH)
    w = uint32(left + geometry.start_w + thread % PATCH)
    is_inside = (n < geometry.images) & (h < height) & (w < width)
    source, size = uint32((n * channels * height + h) * width + w), uint32(height * width)
    row, k = uint32(first_row + thread // _LOADERS), thread % _LOADERS
    depth = uint32(channels * TAPS) if row < geometry.rows else uint32(0)
    weight_from = uint32(row * geometry.weight_m + k)
    patch_to = thread // PIXELS * _WINDOW_PITCH + thread % PIXELS
    weight_to = k * _TAP_PITCH + thread // _LOADERS

    window, group = thread % WINDOWS, thread // WINDOWS
    patch_at, weight_at = uint32(window * _WINDOW_PITCH), uint32(group * THREAD_OUTS)
    for i in range(WINDOW_SUMS):
        sums[i] = 0
    first, k = uint32(0), uint32(k)
    while first < uint32(channels + CHANNELS):
        # The next channels' numbers are on their way while those of the current ones are multiplied.
        for c in range(CHANNELS):
            fetched[c] = 0
            if is_inside & (uint32(first + c) < channels):
                fetched[c] = x[source]
            source = uint32(source + size)
        for i in range(_LOADS):
            fetched_weights[i] = 0
            if k + _LOADERS * i < depth:
                fetched_weights[i] = weight[weight_from + _LOADERS * i]
        k, weight_from = uint32(k + DEPTH), uint32(weight_from + DEPTH)
        if first > 0:
            _multiply_windows(patches, patch_at, weights, weight_at, pixels, sums)
        # Overwrite both arrays only when all threads have used them.
        cuda.syncthreads()
        for c in range(CHANNELS):
            patches[patch_to + c * WINDOWS * _WINDOW_PITCH] = fetched[c]
        for i in range(_LOADS):
            weights[weight_to + i * _LOADERS * _TAP_PITCH] = fetched_weights[i]
        cuda.syncthreads()
        first = uint32(first + CHANNELS)
    first_out = uint32(first_row + group * THREAD_OUTS)
    _store_windows(sums, uint32(first_window + window), first_out, bias, relu, out, codes, geometry)


# --- The first stage of a chain, while its batch is gathered ------------------------------------------------

FIRST_OUTS = 32  # output channels at most; each warp of a block has THREAD_OUTS of them
FIRST_WARPS = FIRST_OUTS // THREAD_OUTS
_FIRST_PATCHES, _FIRST_WEIGHTS = WARP * _WINDOW_PITCH, TAPS * _TAP_PITCH


@cuda.jit
@device.signature(f"void({AT}, {_LAYER})")
def gather_conv2d_pool_kernel(
    images, labels, order, cursor, other, factors, batch: Batch, x, y, weight, bias, relu, out, codes,
    geometry: ConvGeometry,
):  # fmt: skip
    """Compute a window per lane of a block, from the data set, and gather a share of the batch per thread."""
    patches = cuda.shared.array(_FIRST_PATCHES, float32, alignment=16)
    weights = cuda.shared.array(_FIRST_WEIGHTS, float32, alignment=16)
    sums, pixels = cuda.local.array(WINDOW_SUMS, float32), cuda.local.array(PIXELS, float32)
    warp, lane = warp_and_lane()
    window, first_out = uint32(cuda.blockIdx.x * WARP + lane), uint32(warp * THREAD_OUTS)
    height, width, channels = geometry.source_h, geometry.source_w, int32(geometry.channels)
    n, top, left = window_by_window(geometry, uint32(window * WINDOW))
    # A window's pixels are loaded by its threads, two each.
    h = uint32(top + geometry.start_h + warp // 2)
    w = uint32(left + geometry.start_w + warp % 2 * 2)
    is_inside, index = (n < geometry.images) & (h < height), index_at(order, cursor, batch.size, n)
    for i in range(WINDOW_SUMS):
        sums[i] = 0
    for c in range(channels):
        for j in range(2):
            pixel = ZERO
            if is_inside & (uint32(w + j) < width):
                at = uint32((c * height + h) * width + w + j)
                pixel = normalised(images, index, at, c, factors)
            patches[lane * _WINDOW_PITCH + 2 * warp + j] = pixel
        tap = warp
        while tap < TAPS:
            weights[tap * _TAP_PITCH + lane] = 0
            if lane < geometry.rows:
                weights[tap * _TAP_PITCH + lane] = weight[uint32(lane * geometry.weight_m + c * TAPS + tap)]
            tap = uint32(tap + FIRST_WARPS)
        cuda.syncthreads()
        _multiply_window(patches, uint32(lane * _WINDOW_PITCH), weights, first_out, pixels, sums)
        cuda.syncthreads()
    _store_windows(sums, window, first_out, bias, relu, out, codes, geometry)
    advance_other(other, batch.advances)
    gather_share(images, labels, order, cursor, factors, batch, x, y)


#: The fewest channels for which `conv2d_pool_windows_kernel` is worth its barriers. Products with enough
#: results for `LARGE` use that.
_FEWEST_CHANNELS = 2 * CHANNELS


def can_gather(x, weight, window):
    """Return whether `conv2d_pool` can gather x as well."""
    return window[:4] == (3, 3, 1, 1) and len(weight) <= FIRST_OUTS and len(x) > 0


def conv2d_pool(x, weight, bias, relu, window, out, codes, gathering=()):
    """Convolve, rectify and pool into `out` and `codes`; all are checked.

    With the arguments of `gather_batch_at_kernel` gather x and its labels in the same launch. In a training
    step of `mnist_cnn`, the first convolution does so, in `gather_conv2d_pool_kernel`; the second one runs
    `conv2d_pool_windows_kernel` for up to 336 images.
    """
    pooled_h, pooled_w = out.shape[2:]
    geometry = forward_geometry(x, weight, window)._replace(
        count_h=2 * pooled_h, count_w=2 * pooled_w, target_plane=pooled_h * pooled_w
    )
    tile, windows = best_tile(geometry, (LARGE, SMALL), (NARROW, NARROW)), len(x) * geometry.target_plane
    if gathering:
        kernel, threads, grid = gather_conv2d_pool_kernel, WARP * FIRST_WARPS, device.blocks(windows, WARP)
    elif window[:4] == (3, 3, 1, 1) and tile == SMALL and geometry.channels >= _FEWEST_CHANNELS:
        kernel, threads = conv2d_pool_windows_kernel, THREADS
        grid = device.blocks(windows, WINDOWS), device.blocks(geometry.rows, OUTS)
    else:
        kernel, threads, grid = _KERNELS[tile], tile.threads, grid_of(tile, geometry)
    flat = [array.reshape(-1) for array in (x, weight, out, codes)]
    arguments = *(gathering or flat[:1]), flat[1], bias, relu, *flat[2:], device.for_kernel(geometry)
    device.launch(kernel, grid, threads, *arguments)
