"""The gradient of convolution weights on the GPU, as a matrix product whose sums are split over blocks.

Written out, ``grad_weight = grad_output @ columns.T``: C_out rows, C_in * K_h * K_w columns, and each element
a sum over all output positions of all images. The result is small and the sums are long, which is the wrong
way round for a GPU: a block for each tile of the result would leave most of it idle. So each tile is given
to many blocks, and each sums up a part of the positions. A second kernel adds up their parts, always in the
same order: atomic additions would save it, and give other bits in every run.
"""

from typing import NamedTuple

from numba import cuda, float32, int32, uint32, uint64

from cnn_numba import device
from cnn_numba.ops.conv.gpu_checks import backward_weight_arguments
from cnn_numba.ops.conv.gpu_naive import conv2d_backward_weight_naive
from cnn_numba.ops.shapes import check_device_array, conv2d_window, sizes
from cnn_numba.ops.shared.products import register_tile, transposed_load


def reciprocal(divisor):
    """Return what `divide` needs to know of a divisor, a factor and a shift.

    Dividing takes a GPU about 20 instructions, and multiplying one: Granlund and Montgomery, "Division by
    invariant integers using multiplication" (1994).

    Parameters
    ----------
    divisor : int
        From 1 to 2**31.

    Returns
    -------
    tuple of (int, int)

    Examples
    --------
    >>> factor, shift = reciprocal(121)
    >>> [(n * factor) >> shift for n in (0, 120, 121, 2**31 - 1)] == [0, 0, 1, (2**31 - 1) // 121]
    True
    """
    shift = 31 + (divisor - 1).bit_length()
    return -(-(1 << shift) // divisor), shift


@cuda.jit(device=True)
def divide(number, factor, shift):
    """Return number // divisor, for numbers below 2**31 and what `reciprocal` says of the divisor."""
    return uint32((uint64(number) * uint64(factor)) >> uint64(shift))


def weight_kernel(block_rows, block_columns, depth_step, thread_rows, thread_columns):
    """Make a kernel whose blocks sum up a part of tiles of block_rows x block_columns.

    Parameters
    ----------
    block_rows, block_columns : int
        Rows (output channels) and columns (input channels and taps) of a block's tile.
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
    place = transposed_load(depth_step, threads)
    gradient_pitch, pixel_pitch = block_rows + 4, block_columns + 4
    gradient_half, pixel_half = depth_step * gradient_pitch, depth_step * pixel_pitch
    gradient_tile_size, pixel_tile_size = 2 * gradient_half, 2 * pixel_half
    gradient_loads, pixel_loads = block_rows * depth_step // threads, block_columns * depth_step // threads
    jump = threads // depth_step
    products = thread_rows * thread_columns
    steps = min(depth_step, 128 // products)
    multiply = register_tile(
        block_rows, block_columns, thread_rows, thread_columns, gradient_pitch, pixel_pitch, steps
    )

    @cuda.jit
    def conv2d_backward_weight_kernel(
        grad_output,
        x,
        sums,
        rows,
        columns,
        depth,
        share,
        channels,
        height,
        width,
        kernel_h,
        kernel_w,
        out_h,
        out_w,
        stride_h,
        stride_w,
        padding_h,
        padding_w,
        positions_factor,
        positions_shift,
        out_w_factor,
        out_w_shift,
    ):
        """Sum up `share` of the `depth` positions for a tile a block; grid (column tiles, row tiles, shares).

        All indices are 32 bits wide: no array of more than 2**31 elements.
        """
        gradient_tile = cuda.shared.array(gradient_tile_size, float32)
        pixel_tile = cuda.shared.array(pixel_tile_size, float32)
        total = cuda.local.array(products, float32)
        gradients = cuda.local.array(thread_rows, float32)
        pixels = cuda.local.array(thread_columns, float32)
        next_gradients = cuda.local.array(gradient_loads, float32)
        next_pixels = cuda.local.array(pixel_loads, float32)
        row_from = cuda.local.array(gradient_loads, uint32)
        column_from = cuda.local.array(pixel_loads, int32)
        column_h = cuda.local.array(pixel_loads, int32)
        column_w = cuda.local.array(pixel_loads, int32)

        thread = uint32(cuda.threadIdx.x)
        first_row = uint32(cuda.blockIdx.y) * uint32(block_rows)
        first_column = uint32(cuda.blockIdx.x) * uint32(block_columns)
        positions, plane = uint32(out_h * out_w), uint32(height * width)

        # Lanes side by side load positions side by side, and each thread always the same rows and columns.
        # Rows and columns beyond the last repeat it; they are not stored.
        load_k, load_first = place(thread)
        for i in range(gradient_loads):
            row = uint32(first_row + load_first + uint32(i * jump))
            row_from[i] = uint32(min(row, uint32(rows - 1)) * positions)
        taps = uint32(kernel_h * kernel_w)
        for i in range(pixel_loads):
            column = uint32(min(uint32(first_column + load_first + uint32(i * jump)), uint32(columns - 1)))
            ic, tap = uint32(column // taps), uint32(column % taps)
            kh, kw = uint32(tap // uint32(kernel_w)), uint32(tap % uint32(kernel_w))
            column_h[i], column_w[i] = int32(kh) - int32(padding_h), int32(kw) - int32(padding_w)
            column_from[i] = int32(int32(ic * plane) + column_h[i] * int32(width) + column_w[i])

        thread_row = uint32(4) * (thread // uint32(column_threads))
        thread_column = uint32(4) * (thread % uint32(column_threads))
        for i in range(products):
            total[i] = float32(0)
        half = uint32(0)
        begin = uint32(uint32(cuda.blockIdx.z) * uint32(share))
        end = uint32(min(uint32(begin + uint32(share)), uint32(depth)))
        start = begin
        while start < uint32(end + uint32(depth_step)):
            # The next tiles are on their way from global memory while the current ones are multiplied.
            k = uint32(start + load_k)
            wanted = k < end
            n = divide(k, positions_factor, positions_shift)
            position = uint32(k - n * positions)
            oh = divide(position, out_w_factor, out_w_shift)
            ow = uint32(position - oh * uint32(out_w))
            at = uint32(n * uint32(rows) * positions + position)
            for i in range(gradient_loads):
                next_gradients[i] = float32(0)
                if wanted:
                    next_gradients[i] = grad_output[uint32(row_from[i] + at)]
            top, left = int32(int32(oh) * int32(stride_h)), int32(int32(ow) * int32(stride_w))
            corner = int32(int32(n * uint32(channels) * plane) + top * int32(width) + left)
            for i in range(pixel_loads):
                next_pixels[i] = float32(0)
                # Unsigned, -1 is a large number: one comparison asks for both ends.
                in_h = uint32(top + column_h[i]) < uint32(height)
                in_w = uint32(left + column_w[i]) < uint32(width)
                if wanted & in_h & in_w:
                    next_pixels[i] = x[uint32(corner + column_from[i])]

            if start > begin:
                gradient_at = uint32(half * uint32(gradient_half) + thread_row)
                gradient_end = uint32(gradient_at + uint32(gradient_half))
                pixel_at = uint32(half * uint32(pixel_half) + thread_column)
                while gradient_at != gradient_end:
                    multiply(gradient_tile, gradient_at, pixel_tile, pixel_at, gradients, pixels, total)
                    gradient_at = uint32(gradient_at + uint32(steps * gradient_pitch))
                    pixel_at = uint32(pixel_at + uint32(steps * pixel_pitch))

            # Into the other half, which nobody reads since the last barrier: one barrier a step is enough.
            half = half ^ uint32(1)
            at = uint32(half * uint32(gradient_half) + load_k * uint32(gradient_pitch) + load_first)
            for i in range(gradient_loads):
                gradient_tile[at + uint32(i * jump)] = next_gradients[i]
            at = uint32(half * uint32(pixel_half) + load_k * uint32(pixel_pitch) + load_first)
            for i in range(pixel_loads):
                pixel_tile[at + uint32(i * jump)] = next_pixels[i]
            cuda.syncthreads()
            start = uint32(start + uint32(depth_step))

        for i in range(thread_rows):
            row = uint32(first_row + thread_row + uint32(i // 4 * 4 * row_threads + i % 4))
            if row < uint32(rows):
                at = uint32((uint32(cuda.blockIdx.z) * uint32(rows) + row) * uint32(columns))
                for j in range(thread_columns):
                    column = uint32(
                        first_column + thread_column + uint32(j // 4 * 4 * column_threads + j % 4)
                    )
                    if column < uint32(columns):
                        sums[uint32(at + column)] = total[i * thread_columns + j]

    return conv2d_backward_weight_kernel


# Rows and columns of a block, products between barriers, rows and columns of a thread.
WIDE, NARROW = (64, 64, 32, 4, 4), (32, 32, 16, 4, 4)
conv2d_backward_weight_wide_kernel = weight_kernel(*WIDE)
conv2d_backward_weight_narrow_kernel = weight_kernel(*NARROW)
_KERNELS = {WIDE: conv2d_backward_weight_wide_kernel, NARROW: conv2d_backward_weight_narrow_kernel}

LANES, GROUPS = 32, 8


@cuda.jit
def conv2d_sum_parts_kernel(parts, total):
    """Add up `parts` (P, size) into `total` (size,): LANES elements a block of (LANES, GROUPS) threads."""
    group_sums = cuda.shared.array((GROUPS, LANES), float32)
    lane, group = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    i = uint32(cuda.blockIdx.x) * uint32(LANES) + lane
    size = uint32(total.size)
    group_sum = float32(0)
    if i < size:
        for part in range(group, uint32(parts.shape[0]), uint32(GROUPS)):
            group_sum += parts[part, i]
    group_sums[group, lane] = group_sum
    cuda.syncthreads()
    if group == uint32(0) and i < size:
        for other in range(uint32(1), uint32(GROUPS)):
            group_sum += group_sums[other, lane]
        total[i] = group_sum


class Conv2dScratch(NamedTuple):
    """Working space of one convolution on the GPU."""

    parts: object
    """(P, C_out * C_in * K_h * K_w) float32: the weight gradient of each part of the positions."""


# What fills the 132 multiprocessors of an H200: 2 blocks of 256 threads for each, or 4 of 64.
_ENOUGH_BLOCKS = {WIDE: 264, NARROW: 528}


def _tile(weight_shape):
    """Return the tile that wastes least on rows and columns that are not there, and how many there are."""
    rows, columns = weight_shape[0], weight_shape[1] * weight_shape[2] * weight_shape[3]
    tile = NARROW if min(rows, columns) <= NARROW[0] else WIDE
    return tile, (device.blocks(columns, tile[1]), device.blocks(rows, tile[0]))


def checked_scratch(scratch, input_shape, weight_shape, stride, padding):
    """Return `scratch` once checked, or a new one if it is None.

    Parameters
    ----------
    scratch : Conv2dScratch or None
    input_shape, weight_shape : tuple
    stride, padding : int or pair of ints

    Returns
    -------
    Conv2dScratch

    Raises
    ------
    TypeError, ValueError
        If it is something else, or was made for another weight.
    """
    input_shape = sizes(input_shape, "input_shape", "(N, C_in, H, W)")
    weight_shape = sizes(weight_shape, "weight_shape", "(C_out, C_in, K_h, K_w)")
    conv2d_window(input_shape, weight_shape, stride, padding)
    tile, (across, down) = _tile(weight_shape)
    size = weight_shape[0] * weight_shape[1] * weight_shape[2] * weight_shape[3]
    shape = device.blocks(_ENOUGH_BLOCKS[tile], across * down), size
    if scratch is None:
        return Conv2dScratch(parts=device.empty(shape))
    if not isinstance(scratch, Conv2dScratch):
        raise TypeError(f"scratch must come from conv2d_scratch, got {type(scratch).__name__}")
    try:
        check_device_array("scratch.parts", scratch.parts, shape)
    except ValueError as error:
        raise ValueError(f"{error}: make it with conv2d_scratch for these shapes") from None
    return scratch


def conv2d_backward_weight_implicit(
    grad_output, x, weight_shape, stride=1, padding=0, grad_weight=None, scratch=None
):
    """`conv2d_backward_weight` as a matrix product with split sums; arguments and result are the same."""
    steps, grad_weight = backward_weight_arguments(grad_output, x, weight_shape, stride, padding, grad_weight)
    scratch = checked_scratch(scratch, x.shape, weight_shape, stride, padding)
    (batch, rows, out_h, out_w), (_, channels, height, width) = grad_output.shape, x.shape
    depth = batch * out_h * out_w
    if depth == 0:
        return conv2d_backward_weight_naive(grad_output, x, weight_shape, stride, padding, grad_weight)
    tile, tiles = _tile(weight_shape)
    # As many equal shares as there are parts, each a whole number of steps.
    share = tile[2] * device.blocks(device.blocks(depth, scratch.parts.shape[0]), tile[2])
    shares = device.blocks(depth, share)
    total = grad_weight.reshape(-1)
    parts = scratch.parts[:shares]
    device.launch(
        _KERNELS[tile],
        (*tiles, shares),
        tile[0] * tile[1] // (tile[3] * tile[4]),
        *(grad_output.reshape(-1), x.reshape(-1), total if shares == 1 else parts.reshape(-1)),
        *(rows, total.size // rows, depth, share),
        *(channels, height, width, *weight_shape[2:], out_h, out_w, *steps),
        *(*reciprocal(out_h * out_w), *reciprocal(out_w)),
    )
    if shares > 1:
        grid, block = device.blocks(total.size, LANES), (LANES, GROUPS)
        device.launch(conv2d_sum_parts_kernel, grid, block, parts, total)
    return grad_weight


_SIGNATURE = f"void(float32[::1], float32[::1], float32[::1]{', int64' * 19})"
SIGNATURES = {
    "conv2d_backward_weight_wide_kernel": _SIGNATURE,
    "conv2d_backward_weight_narrow_kernel": _SIGNATURE,
    "conv2d_sum_parts_kernel": "void(float32[:, ::1], float32[::1])",
}
