"""Convolution, ReLU and 2x2 max pooling on the GPU in one kernel: what is pooled away is never written.

The product is that of `conv.gpu_implicit`, but its columns come window by window: the four positions of a
pooling window are neighbouring columns, and so one thread's results. It keeps the largest and its *code*:
which of the four it was, or DEAD where the ReLU lets no gradient through. The positions that a pooling drops,
a last odd row or column, are not computed.
"""

import math

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, int32, uint8, uint32
from cnn_numba.ops.conv.gpu_implicit import (
    LARGE,
    PLAIN,
    TABLE_SIZE,
    Gather,
    best_tile,
    forward_gather,
    gathered_product,
    grid_of,
)
from cnn_numba.ops.shared.products import Tile, thread_results

#: Positions of a pooling window, and the code of one that gets no gradient.
WINDOW, DEAD = 4, 4
ABSENT = 0xFFFFFFFF  # where a window lies that there is not


@cuda.jit(device=True)
def window_by_window(gather, column):
    """Return image, row and column of the convolution's output in that column of the product."""
    windows, across = uint32(gather.count_h * gather.count_w) // WINDOW, uint32(gather.count_w) // uint32(2)
    window, which = column // uint32(WINDOW), column % uint32(WINDOW)
    n, place = window // windows, uint32(window % windows)
    row, column = place // across, uint32(place % across)
    return uint32(n), uint32(2 * row + which // uint32(2)), uint32(2 * column + which % uint32(2))


@cuda.jit(device=True)
def _keep_larger(best, code, value, here):
    """Return the larger value and its code: of equals the first, of a number and a NaN the NaN."""
    better = (value > best) | (math.isnan(value) & (best == best))  # no "or": that would branch
    return value if better else best, here if better else code


@cuda.jit(device=True)
def pooled(first, second, third, fourth, relu):
    """Return the largest of a window's results, rectified, and its code."""
    best, code = _keep_larger(first, uint32(0), second, uint32(1))
    best, code = _keep_larger(best, code, third, uint32(2))
    best, code = _keep_larger(best, code, fourth, uint32(3))
    if relu & (best <= float32(0)):
        best, code = float32(0), uint32(DEAD)
    return best, code


def pooled_kernel(tile):
    """Make a kernel whose blocks compute such tiles, and write a quarter of their results."""
    results, thread_rows, thread_columns = tile.results, tile.thread_rows, tile.thread_columns
    groups = thread_columns // WINDOW
    multiply = gathered_product(tile, window_by_window, PLAIN)
    first_result, result_row, result_column = thread_results(tile)

    @cuda.jit(device=True)
    def store(sums, first_row, first_column, bias, relu, out, codes, gather):
        """Write the largest of each window, and its code."""
        out_at = cuda.local.array(groups, uint32)
        row, column = first_result()
        rows, plane = uint32(gather.rows), uint32(gather.target_plane)
        windows = uint32(gather.images) * plane
        for group in range(groups):
            at = uint32(first_column + column + result_column(WINDOW * group)) // uint32(WINDOW)
            n = at // plane
            out_at[group] = uint32(n * uint32(rows * plane) + (at - n * plane)) if at < windows else ABSENT
        for i in range(thread_rows):
            m = uint32(first_row + row + result_row(i))
            if m < rows:
                addend = bias[m]
                for group in range(groups):
                    k = i * thread_columns + WINDOW * group
                    best, code = pooled(
                        sums[k] + addend,
                        sums[k + 1] + addend,
                        sums[k + 2] + addend,
                        sums[k + 3] + addend,
                        relu,
                    )
                    if out_at[group] != uint32(ABSENT):
                        at = uint32(out_at[group] + m * plane)
                        out[at], codes[at] = best, uint8(code)

    @cuda.jit
    @device.signature(
        "void(float32[::1], float32[::1], float32[::1], bool, float32[::1], uint8[::1], Gather)"
    )
    def conv2d_pool_kernel(x, weight, bias, relu, out, codes, gather: Gather):
        """Compute a tile a block; a grid of (blocks of columns, blocks of rows).

        All indices are 32 bits wide: no array of more than 2**31 elements.
        """
        table = cuda.shared.array(TABLE_SIZE, int32)
        sums = cuda.local.array(results, float32)
        first_row, first_column = multiply(x, weight, table, sums, gather)
        store(sums, first_row, first_column, bias, relu, out, codes, gather)

    return conv2d_pool_kernel


# Half as deep as those of a convolution alone, so that more blocks share a multiprocessor of a T4.
SMALL, NARROW = Tile(64, 64, 16, 4, 4), Tile(32, 64, 16, 4, 4)
_KERNELS = {tile: pooled_kernel(tile) for tile in (LARGE, SMALL, NARROW)}
# Each under its name as well, by which `cnn-numba inspect` finds it.
conv2d_pool_large_kernel, conv2d_pool_small_kernel, conv2d_pool_narrow_kernel = _KERNELS.values()


def conv2d_pool(x, weight, bias, relu, window, out, codes):
    """Convolve, rectify and pool into `out` and `codes`; all are checked."""
    pooled_h, pooled_w = out.shape[2:]
    gather = forward_gather(x, weight, window)._replace(
        count_h=2 * pooled_h, count_w=2 * pooled_w, target_plane=pooled_h * pooled_w
    )
    tile = best_tile(gather, LARGE, SMALL, NARROW)
    flat = [array.reshape(-1) for array in (x, weight, out, codes)]
    device.launch(
        _KERNELS[tile], grid_of(tile, gather), tile.threads, *flat[:2], bias, relu, *flat[2:], gather
    )
