"""Convolution on the GPU as one matrix product, forward and backward, without ever building the matrix.

Written out (im2col), the forward pass is ``out = weight @ columns``: `weight` has a row of C_in * K_h * K_w
numbers for each output channel, and `columns` has for each output position a column with the pixels under its
window. That matrix is K_h * K_w times as large as the images. Here it is *implicit*: a block computes a tile
of `out`, and gathers from the images just the piece of `columns` that it multiplies next.

The gradient of the images is the same product with other operands: each pixel gathers from the outputs it
took part in, through the weights it met there. With a stride the pixels fall into classes, such as even and
odd rows: those of one class meet the same weights, and each class is a convolution of stride 1.

One kernel does it all. What slides over what is in `Gather`, a dozen numbers for each.
"""

import math
from typing import NamedTuple

from numba import boolean, cuda, float32, int32, uint32

from cnn_numba import device
from cnn_numba.ops.conv.gpu_checks import backward_input_arguments, forward_arguments
from cnn_numba.ops.shared.products import register_tile, transposed_load

#: Entries of the gather table, which is filled again when they are used up.
TABLE = 256
NOWHERE = 1 << 30  # a row outside of every image


class Gather(NamedTuple):
    """Which numbers of `source` and `weight` make up an element of `target`.

    Image n, row m, position (i, j) of the target is a sum over channels c and taps (a, b) of::

        weight[weight_first + m * weight_m + c * weight_c + a * weight_a + b * weight_b]
        * source[n, c, i * step_h + start_h + a * sign, j * step_w + start_w + b * sign]

    and lies in the plane (n, m) of the target at ``target_first + i * target_i + j * target_j``.
    """

    images: int
    rows: int
    count_h: int
    count_w: int
    channels: int
    taps_h: int
    taps_w: int
    source_h: int
    source_w: int
    step_h: int
    step_w: int
    start_h: int
    start_w: int
    sign: int
    weight_first: int
    weight_m: int
    weight_c: int
    weight_a: int
    weight_b: int
    target_plane: int
    target_first: int
    target_i: int
    target_j: int


@cuda.jit(device=True)
def fill_table(
    table,
    start,
    depth,
    depth_step,
    taps_h,
    taps_w,
    source_h,
    source_w,
    sign,
    weight_first,
    weight_c,
    weight_a,
    weight_b,
):
    """Note for each of the next products what to add to a source index, its row, its column, a weight index.

    To divide by `taps` for every number that is loaded would take longer than to multiply it.
    """
    taps = uint32(taps_h * taps_w)
    entry = uint32(cuda.threadIdx.x)
    # Up to the end of the step after the last, whose loads are on their way in vain.
    end = uint32(min(uint32(TABLE), uint32(depth + uint32(2 * depth_step) - start)))
    while entry < end:
        k = uint32(start + entry)
        c, tap = int32(k // taps), uint32(k % taps)
        a, b = int32(tap // uint32(taps_w)), int32(tap % uint32(taps_w))
        at = uint32(4) * entry
        table[at] = c * source_h * source_w + sign * (a * source_w + b)
        table[at + uint32(1)] = sign * a if k < depth else NOWHERE
        table[at + uint32(2)] = sign * b
        table[at + uint32(3)] = weight_first + c * weight_c + a * weight_a + b * weight_b
        entry = uint32(entry + uint32(cuda.blockDim.x))


def implicit_kernel(block_rows, block_columns, depth_step, thread_rows, thread_columns):
    """Make a kernel whose blocks compute tiles of block_rows x block_columns.

    Parameters
    ----------
    block_rows, block_columns : int
        Rows (channels) and columns (positions) of a block's tile.
    depth_step : int
        How many products each element gets between two barriers.
    thread_rows, thread_columns : int
        The part of the tile that a thread keeps in registers; multiples of 4.

    Returns
    -------
    kernel
    """
    row_threads, column_threads = block_rows // thread_rows, block_columns // thread_columns
    threads = row_threads * column_threads
    # The 4 keep a warp's stores in different banks; a multiple of 4 keeps loads of 128 bits possible.
    weight_place = transposed_load(depth_step, threads)
    weight_pitch = block_rows + 4
    weight_half, pixel_half = depth_step * weight_pitch, depth_step * block_columns
    weight_tile_size, pixel_tile_size, table_size = 2 * weight_half, 2 * pixel_half, 4 * TABLE
    weight_loads, pixel_loads = block_rows * depth_step // threads, block_columns * depth_step // threads
    weight_jump, pixel_jump = threads // depth_step, threads // block_columns
    products = thread_rows * thread_columns
    steps = min(depth_step, 128 // products)
    multiply = register_tile(
        block_rows, block_columns, thread_rows, thread_columns, weight_pitch, block_columns, steps
    )
    minus_infinity = float32(-math.inf)

    @cuda.jit
    def conv2d_implicit_kernel(
        source,
        weight,
        bias,
        has_bias,
        relu,
        target,
        images,
        rows,
        count_h,
        count_w,
        channels,
        taps_h,
        taps_w,
        source_h,
        source_w,
        step_h,
        step_w,
        start_h,
        start_w,
        sign,
        weight_first,
        weight_m,
        weight_c,
        weight_a,
        weight_b,
        target_plane,
        target_first,
        target_i,
        target_j,
    ):
        """Compute a tile a block; a grid of (blocks of columns, blocks of rows). Arguments as in `Gather`.

        All indices are 32 bits wide: no array of more than 2**31 elements.
        """
        weight_tile = cuda.shared.array(weight_tile_size, float32)
        pixel_tile = cuda.shared.array(pixel_tile_size, float32)
        table = cuda.shared.array(table_size, int32)
        total = cuda.local.array(products, float32)
        weights = cuda.local.array(thread_rows, float32)
        pixels = cuda.local.array(thread_columns, float32)
        next_weights = cuda.local.array(weight_loads, float32)
        next_pixels = cuda.local.array(pixel_loads, float32)
        weight_row = cuda.local.array(weight_loads, uint32)
        target_at = cuda.local.array(thread_columns, uint32)
        inside = cuda.local.array(thread_columns, boolean)

        thread = uint32(cuda.threadIdx.x)
        first_row = uint32(cuda.blockIdx.y) * uint32(block_rows)
        first_column = uint32(cuda.blockIdx.x) * uint32(block_columns)
        depth = uint32(channels * taps_h * taps_w)
        positions = uint32(count_h * count_w)
        columns = uint32(images * positions)

        # The thread loads pixels of one column. Those beyond the last repeat it, and are not stored.
        pixel_k, pixel_column = thread // uint32(block_columns), thread % uint32(block_columns)
        column = uint32(min(uint32(first_column + pixel_column), uint32(columns - uint32(1))))
        n, position = uint32(column // positions), uint32(column % positions)
        top = int32(position // uint32(count_w)) * int32(step_h) + int32(start_h)
        left = int32(position % uint32(count_w)) * int32(step_w) + int32(start_w)
        corner = int32(int32(n) * int32(channels * source_h * source_w) + top * int32(source_w) + left)
        # And weights of one k, in rows weight_jump apart.
        weight_k, weight_first_row = weight_place(thread)
        for i in range(weight_loads):
            row = uint32(first_row + weight_first_row + uint32(i * weight_jump))
            weight_row[i] = uint32(min(row, uint32(rows - 1)) * uint32(weight_m))

        # It multiplies for rows and columns that come in fours: 128 bits at once from shared memory, and the
        # fours of neighbouring threads side by side, so that their loads meet in no bank.
        thread_row = uint32(4) * (thread // uint32(column_threads))
        thread_column = uint32(4) * (thread % uint32(column_threads))
        for i in range(products):
            total[i] = float32(0)
        half = uint32(0)
        start = uint32(0)
        while start < uint32(depth + uint32(depth_step)):
            first = start % uint32(TABLE)
            if first == uint32(0):
                fill_table(
                    table,
                    start,
                    depth,
                    depth_step,
                    taps_h,
                    taps_w,
                    source_h,
                    source_w,
                    sign,
                    weight_first,
                    weight_c,
                    weight_a,
                    weight_b,
                )
                cuda.syncthreads()

            # The next tiles are on their way from global memory while the current ones are multiplied.
            at = uint32(4) * uint32(first + weight_k)
            wanted, weight_at = table[at + uint32(1)] != int32(NOWHERE), table[at + uint32(3)]
            for i in range(weight_loads):
                next_weights[i] = float32(0)
                if wanted:
                    next_weights[i] = weight[uint32(weight_row[i] + uint32(weight_at))]
            at = uint32(4) * uint32(first + pixel_k)
            for i in range(pixel_loads):
                entry = at + uint32(4 * i * pixel_jump)
                offset, h, w = table[entry], table[entry + uint32(1)], table[entry + uint32(2)]
                next_pixels[i] = float32(0)
                # Unsigned, -1 is a large number: one comparison asks for both ends.
                if (uint32(top + h) < uint32(source_h)) & (uint32(left + w) < uint32(source_w)):
                    next_pixels[i] = source[uint32(corner + offset)]

            if start > uint32(0):
                weight_at = uint32(half * uint32(weight_half) + thread_row)
                weight_end = uint32(weight_at + uint32(weight_half))
                pixel_at = uint32(half * uint32(pixel_half) + thread_column)
                while weight_at != weight_end:
                    multiply(weight_tile, weight_at, pixel_tile, pixel_at, weights, pixels, total)
                    weight_at = uint32(weight_at + uint32(steps * weight_pitch))
                    pixel_at = uint32(pixel_at + uint32(steps * block_columns))

            # Into the other half, which nobody reads since the last barrier: one barrier a step is enough.
            half = half ^ uint32(1)
            at = uint32(half * uint32(weight_half) + weight_k * uint32(weight_pitch) + weight_first_row)
            for i in range(weight_loads):
                weight_tile[at + uint32(i * weight_jump)] = next_weights[i]
            at = uint32(half * uint32(pixel_half) + pixel_k * uint32(block_columns) + pixel_column)
            for i in range(pixel_loads):
                pixel_tile[at + uint32(i * pixel_jump * block_columns)] = next_pixels[i]
            cuda.syncthreads()
            start = uint32(start + uint32(depth_step))

        for j in range(thread_columns):
            column = uint32(first_column + thread_column + uint32(j // 4 * 4 * column_threads + j % 4))
            n, position = uint32(column // positions), uint32(column % positions)
            i, j_ = uint32(position // uint32(count_w)), uint32(position % uint32(count_w))
            inside[j] = column < columns
            target_at[j] = uint32(
                n * uint32(rows * target_plane)
                + uint32(target_first)
                + i * uint32(target_i)
                + j_ * uint32(target_j)
            )
        smallest = float32(0) if relu else minus_infinity
        for i in range(thread_rows):
            row = uint32(first_row + thread_row + uint32(i // 4 * 4 * row_threads + i % 4))
            if row < uint32(rows):
                addend = bias[row] if has_bias else float32(0)
                for j in range(thread_columns):
                    value = total[i * thread_columns + j] + addend
                    if value < smallest:  # not so for NaN, which must stay
                        value = smallest
                    if inside[j]:
                        target[uint32(target_at[j] + uint32(row * uint32(target_plane)))] = value

    return conv2d_implicit_kernel


# Rows and columns of a block, products between barriers, rows and columns of a thread. What they should do on
# the 132 multiprocessors of an H200, with 64 images and kernels of 3 x 3:
# - LARGE loads least for each product: two thirds of its instructions multiply. 128 registers a thread let 4
#   blocks of 128 threads share a multiprocessor. 64 -> 64 channels at 56 x 56 are 1568 blocks: 2.97 rounds.
# - SMALL has half the sums a block and twice the threads, for results too small to fill a GPU with LARGE:
#   32 -> 64 channels at 11 x 11 are 121 blocks of 8 warps, about one for each multiprocessor.
# - NARROW is for few rows: half of those the others compute would not be there. The gradient of the same
#   images has 32 rows, 338 blocks. Where there are few threads, they can have the registers for long steps.
LARGE, SMALL, NARROW = (64, 128, 8, 8, 8), (64, 64, 32, 4, 4), (32, 32, 32, 4, 4)
conv2d_implicit_large_kernel = implicit_kernel(*LARGE)
conv2d_implicit_small_kernel = implicit_kernel(*SMALL)
conv2d_implicit_narrow_kernel = implicit_kernel(*NARROW)
_KERNELS = {
    LARGE: conv2d_implicit_large_kernel,
    SMALL: conv2d_implicit_small_kernel,
    NARROW: conv2d_implicit_narrow_kernel,
}
# Two for each of the 132 multiprocessors of an H200.
_ENOUGH_BLOCKS = 264


def _blocks(tile, gather):
    columns = gather.images * gather.count_h * gather.count_w
    return device.blocks(columns, tile[1]), device.blocks(gather.rows, tile[0])


def best_tile(gather):
    """Return the tile with which this product is expected to run fastest.

    A large tile loads least for each product, but a GPU with idle multiprocessors is slower still.

    Parameters
    ----------
    gather : Gather

    Returns
    -------
    tuple of int
        LARGE, SMALL or NARROW.
    """
    if gather.rows <= NARROW[0]:
        return NARROW
    across, down = _blocks(LARGE, gather)
    return LARGE if across * down >= _ENOUGH_BLOCKS else SMALL


def _launch(gather, source, weight, bias, has_bias, relu, target, tile):
    tile = best_tile(gather) if tile is None else tile
    threads = tile[0] * tile[1] // (tile[3] * tile[4])
    flat = [array.reshape(-1) for array in (source, weight, bias)]
    device.launch(
        _KERNELS[tile],
        _blocks(tile, gather),
        threads,
        *(*flat, has_bias, relu, target.reshape(-1), *gather),
    )


def _forward_gather(x, weight, steps, out):
    (images, channels, height, width), (rows, _, kernel_h, kernel_w) = x.shape, weight.shape
    stride_h, stride_w, padding_h, padding_w = steps
    out_h, out_w = out.shape[2:]
    taps = kernel_h * kernel_w
    return Gather(
        images=images,
        rows=rows,
        count_h=out_h,
        count_w=out_w,
        channels=channels,
        taps_h=kernel_h,
        taps_w=kernel_w,
        source_h=height,
        source_w=width,
        step_h=stride_h,
        step_w=stride_w,
        start_h=-padding_h,
        start_w=-padding_w,
        sign=1,
        weight_first=0,
        weight_m=channels * taps,
        weight_c=taps,
        weight_a=kernel_w,
        weight_b=1,
        target_plane=out_h * out_w,
        target_first=0,
        target_i=out_w,
        target_j=1,
    )


def conv2d_forward_implicit(
    x, weight, bias=None, stride=1, padding=0, out=None, scratch=None, relu=False, tile=None
):
    """`conv2d_forward` as a matrix product; arguments and result are the same.

    `tile` may be one of `LARGE`, `SMALL`, `NARROW`; None lets `best_tile` choose.
    """
    steps, bias_array, out = forward_arguments(x, weight, bias, stride, padding, out)
    if out.size:
        gather = _forward_gather(x, weight, steps, out)
        _launch(gather, x, weight, bias_array, bias is not None, relu, out, tile)
    return out


def _axis(size, kernel, stride, padding, first):
    """Return what holds along one axis for the pixels first, first + stride, ...

    That is how many they are, how many taps they meet, the first of these, and where they meet it first.
    """
    begin = first + padding
    tap = begin % stride
    return (
        device.blocks(size - first, stride),
        max(device.blocks(kernel - tap, stride), 0),
        tap,
        begin // stride,
    )


def _backward_gathers(grad_output, weight, steps, grad_input):
    """Yield the gather of each class of pixels that meet the same weights: one if the stride is 1."""
    images, rows, height, width = grad_input.shape
    channels, _, kernel_h, kernel_w = weight.shape
    stride_h, stride_w, padding_h, padding_w = steps
    taps = kernel_h * kernel_w
    for first_h in range(min(stride_h, height)):
        count_h, taps_h, tap_h, start_h = _axis(height, kernel_h, stride_h, padding_h, first_h)
        for first_w in range(min(stride_w, width)):
            count_w, taps_w, tap_w, start_w = _axis(width, kernel_w, stride_w, padding_w, first_w)
            # Pixels that a step longer than the kernel leaves out: a sum over nothing, not a division by it.
            met = taps_h * taps_w > 0
            yield Gather(
                images=images,
                rows=rows,
                count_h=count_h,
                count_w=count_w,
                channels=channels if met else 0,
                taps_h=taps_h if met else 1,
                taps_w=taps_w if met else 1,
                source_h=grad_output.shape[2],
                source_w=grad_output.shape[3],
                step_h=1,
                step_w=1,
                start_h=start_h,
                start_w=start_w,
                sign=-1,
                weight_first=tap_h * kernel_w + tap_w,
                weight_m=taps,
                weight_c=rows * taps,
                weight_a=stride_h * kernel_w,
                weight_b=stride_w,
                target_plane=height * width,
                target_first=first_h * width + first_w,
                target_i=stride_h * width,
                target_j=stride_w,
            )


def conv2d_backward_input_implicit(
    grad_output, weight, input_shape, stride=1, padding=0, grad_input=None, scratch=None, tile=None
):
    """`conv2d_backward_input` as a matrix product a class of pixels; arguments and result are the same.

    `tile` may be one of `LARGE`, `SMALL`, `NARROW`; None lets `best_tile` choose.
    """
    steps, grad_input = backward_input_arguments(
        grad_output, weight, input_shape, stride, padding, grad_input
    )
    if grad_input.size:
        for gather in _backward_gathers(grad_output, weight, steps, grad_input):
            _launch(gather, grad_output, weight, weight, False, False, grad_input, tile)
    return grad_input


_SIGNATURE = f"void(float32[::1], float32[::1], float32[::1], bool, bool, float32[::1]{', int64' * 23})"
SIGNATURES = {
    "conv2d_implicit_large_kernel": _SIGNATURE,
    "conv2d_implicit_small_kernel": _SIGNATURE,
    "conv2d_implicit_narrow_kernel": _SIGNATURE,
}
