"""Convolution on the GPU as one matrix product, forward and backward, without ever building the matrix.

Written out (im2col), the forward pass is ``out = weight @ columns``: `weight` has a row of C_in * K_h * K_w
numbers for each output channel, and `columns` has for each output position a column with the pixels under its
window. That matrix is K_h * K_w times as large as the images. Here it is *implicit*: a block computes a tile
of `out`, and gathers from the images just the piece of `columns` that it multiplies next.

The gradient of the images is the same product with other operands: each pixel gathers from the outputs it
took part in, through the weights it met there. With a stride the pixels fall into classes, such as even and
odd rows: those of one class meet the same weights, and each class is a convolution of stride 1.

One kernel does both, except for large 3x3 convolutions (`gpu_direct`). A `ConvGeometry` (`index_maps`) says
which numbers are multiplied. In a model, a float32 convolution with a 2x2 pooling runs in `ops/fused`.
"""

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.conv import checks, gpu_direct
from cnn_numba.ops.conv.index_maps import (
    CONVOLUTION,
    ConvGeometry,
    backward_geometries,
    best_tile,
    forward_geometry,
    grid_of,
    target_store,
)
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.products import (
    Operand,
    Tile,
    begin_at,
    ffma_tiles,
    hold_loads,
    product_engine,
    scattered_store,
    tensor_tiles,
    tile_for,
    transposed_load,
)
from cnn_numba.ops.shared.warps import unsigned_divmod

NOWHERE = uint32(1 << 30)  # a row outside of every image


def table_size(tile):
    """Return how many numbers the table has: four a product; it is filled again when they are used up.

    Tiles with a depth of 8, which are for large products, have half as many as the others: so one more block
    fits into the shared memory of a T4.
    """
    return 4 * min(256, 16 * tile.depth)


@cuda.jit(device=True)
def _depth(geometry):
    """Return how many products each element of the target is a sum of."""
    return uint32(geometry.channels * geometry.taps_h * geometry.taps_w)


@cuda.jit(device=True)
def row_by_row(geometry, column):
    """Return image, row and column of the target's element in that column of the product."""
    n, position = unsigned_divmod(column, geometry.count_h * geometry.count_w)
    i, j = unsigned_divmod(position, geometry.count_w)
    return n, i, j


def _table_filler(tile):
    """Make the device function that prepares the next products; return for how many it does."""
    entries = uint32(table_size(tile) // 4)

    @cuda.jit(device=True)
    def fill_table(table, start, end, geometry):
        """Note of each what to add to a source index, its row, its column, a weight index.

        To divide by `taps` for every number that is loaded would take longer than to multiply it.
        """
        entry = uint32(cuda.threadIdx.x)
        while entry < min(entries, end):
            k = uint32(start + entry)
            c, tap = unsigned_divmod(k, geometry.taps_h * geometry.taps_w)
            a, b = unsigned_divmod(tap, geometry.taps_w)
            at = 4 * entry
            in_plane = geometry.sign * (a * geometry.source_w + b)
            table[at] = c * geometry.source_h * geometry.source_w + in_plane
            table[at + 1] = geometry.sign * a if k < _depth(geometry) else NOWHERE
            table[at + 2] = geometry.sign * b
            of_channel = geometry.weight_first + c * geometry.weight_c
            table[at + 3] = of_channel + a * geometry.weight_a + b * geometry.weight_b
            entry = uint32(entry + cuda.blockDim.x)

    return fill_table, entries


def weights_operand(tile):
    """Return the operand on the left: a thread loads weights of one k, in rows `jump` apart.

    Its source is (weight, table, index of each row, geometry).
    """
    fill_table, entries = _table_filler(tile)
    loads, jump, pitch = tile.row_loads, tile.threads // tile.depth, tile.rows + tile.padding
    ahead = tile.depth  # up to the end of the last step
    k_and_line = transposed_load(tile.depth, tile.threads)

    @cuda.jit(device=True)
    def rows(geometry, first_row, row_at):
        """Note where each of the thread's rows begins; those beyond the last repeat it, and are not kept."""
        _, line = k_and_line()
        for i in range(loads):
            row = min(uint32(first_row + line + i * jump), uint32(geometry.rows - 1))
            row_at[i] = row * geometry.weight_m

    @cuda.jit(device=True)
    def fetch(source, start, end, values):
        weight, table, row_at, geometry = source
        first = start % entries
        # The left operand is fetched first: it fills the table for both.
        if first == 0:
            fill_table(table, start, uint32(end + ahead - start), geometry)
            cuda.syncthreads()
        k, _ = k_and_line()
        at = 4 * uint32(first + k)
        wanted, weight_at = table[at + 1] != NOWHERE, table[at + 3]
        for i in range(loads):
            values[i] = 0
            if wanted:
                values[i] = weight[uint32(row_at[i] + weight_at)]

    return Operand(fetch, *scattered_store(k_and_line, loads, jump, pitch), pitch), rows


def pixels_operand(tile, position):
    """Return the operand on the right: a thread loads pixels of its columns, for k that are `jump` apart.

    It has one column, or several, `lines` apart, where there are more columns than threads. Its source is
    (images, table, corner, top, left, geometry), where the windows of its columns begin in three arrays.
    ``position(geometry, column)`` returns image, row and column of the target's element in that column.
    """
    entries = uint32(table_size(tile) // 4)
    each, lines = max(1, tile.columns // tile.threads), min(tile.columns, tile.threads)
    loads, jump = tile.column_loads // each, tile.threads // lines
    # A warp's threads store neighbours. What it reads of one k are neighbours, too; Tensor Cores read four k.
    pitch = tile.columns + tile.padding if tile.tensor_cores else tile.columns

    @cuda.jit(device=True)
    def k_and_line():
        return unsigned_divmod(cuda.threadIdx.x, lines)

    @cuda.jit(device=True)
    def corners(geometry, first_column, corner, top, left):
        """Note where each column's window begins: index, row, column. The last column stands for more."""
        _, line = k_and_line()
        last = uint32(geometry.images * geometry.count_h * geometry.count_w - 1)
        for c in range(each):
            n, i, j = position(geometry, min(uint32(first_column + line + c * lines), last))
            top[c] = i * geometry.step_h + geometry.start_h
            left[c] = j * geometry.step_w + geometry.start_w
            image = n * (geometry.channels * geometry.source_h * geometry.source_w)
            corner[c] = image + top[c] * geometry.source_w + left[c]

    @cuda.jit(device=True)
    def fetch(source, start, end, values):
        images, table, corner, top, left, geometry = source
        k, _ = k_and_line()
        at = 4 * uint32(start % entries + k)
        for i in range(loads):
            entry = at + 4 * i * jump
            offset, h, w = table[entry], table[entry + 1], table[entry + 2]
            for c in range(each):
                # Unsigned, -1 is a large number: one comparison asks for both ends.
                row, column = uint32(top[c] + h), uint32(left[c] + w)
                values[i * each + c] = 0
                if (row < geometry.source_h) & (column < geometry.source_w):
                    values[i * each + c] = images[uint32(corner[c] + offset)]
        hold_loads()  # issue them now: computing their addresses takes many instructions

    @cuda.jit(device=True)
    def stash(source, values, tile, at):
        for i in range(loads * each):
            tile[at + i // each * jump * pitch + i % each * lines] = values[i]

    return Operand(fetch, begin_at(k_and_line, pitch), stash, pitch), corners, each


def gathered_product(tile, position):
    """Make a device function ``(source, weight, table, sums, geometry)`` that computes a block's tile.

    It fills the local array `sums` with the thread's results, and returns the tile's first row and column.
    The grid is (blocks of columns, blocks of rows); `table` is shared, of `table_size` uint32. `position` is
    that of `pixels_operand`.
    """
    row_loads, block_rows, block_columns = tile.row_loads, tile.rows, tile.columns
    weights, weight_rows = weights_operand(tile)
    pixels, pixel_corners, each = pixels_operand(tile, position)
    accumulate = product_engine(tile, weights, pixels)

    @cuda.jit(device=True)
    def multiply(source, weight, table, sums, geometry):
        row_at = cuda.local.array(row_loads, uint32)
        corner = cuda.local.array(each, uint32)
        top = cuda.local.array(each, uint32)
        left = cuda.local.array(each, uint32)
        first_row = uint32(cuda.blockIdx.y * block_rows)
        first_column = uint32(cuda.blockIdx.x * block_columns)
        weight_rows(geometry, first_row, row_at)
        pixel_corners(geometry, first_column, corner, top, left)
        pixel_source = source, table, corner, top, left, geometry
        accumulate((weight, table, row_at, geometry), pixel_source, uint32(0), _depth(geometry), sums)
        return first_row, first_column

    return multiply


def implicit_kernel(tile, name):
    """Make a kernel whose blocks compute such tiles."""
    results, table_numbers = tile.results, table_size(tile)
    multiply, store = gathered_product(tile, row_by_row), target_store(tile, row_by_row)

    @cuda.jit
    @device.signature(CONVOLUTION, capability=tile.capability, name=name)
    def kernel(source, weight, bias, has_bias, relu, target, geometry: ConvGeometry):
        """Compute one tile per block; a grid of (blocks of columns, blocks of rows)."""
        table = cuda.shared.array(table_numbers, uint32)
        sums = cuda.local.array(results, float32)
        first = multiply(source, weight, table, sums, geometry)
        store(sums, first, bias, has_bias, relu, target, geometry)

    return kernel


# Rows and columns of a block, products between barriers, rows and columns of a thread. Why these, for the
# 132 multiprocessors of an H200, 64 images and kernels of 3 x 3:
# - LARGE loads least per product: two thirds of its instructions multiply. 128 registers per thread let 4
#   blocks of 128 threads share a multiprocessor. 64 -> 64 channels at 28 x 28 are 392 blocks, 2.97 for each.
# - SMALL has half the sums per block and twice the threads, for results too small to fill a GPU with LARGE:
#   32 -> 64 channels at 11 x 11 are 121 blocks of 8 warps, about one for each multiprocessor. Twice as deep,
#   it would be a tenth faster on an H100, and take half as long again on a T4, which had room for one block.
# - NARROW is for few rows: half of those the others compute would not be there.
# - FLAT is for few rows of many columns: two warps of LARGE's threads.
LARGE, SMALL = Tile(64, 128, 8, 8, 8), Tile(64, 64, 16, 4, 4)
FLAT, NARROW = Tile(32, 128, 8, 8, 8), Tile(32, 64, 16, 4, 4)
# For rounded operands: 4 warps of 32 x 32 results each, on Tensor Cores, or else NARROW.
TENSOR = Tile(64, 64, 16, 4, 8)
_NAMES = {LARGE: "large", SMALL: "small", FLAT: "flat", NARROW: "narrow"}
_NAMES |= {tile: tile.precision for tile in tensor_tiles(TENSOR)}
_NAMES |= {tile: f"{tile.precision}_ffma" for tile in ffma_tiles(NARROW)}
_KERNELS = {tile: implicit_kernel(tile, f"conv2d_implicit_{name}_kernel") for tile, name in _NAMES.items()}


def _launch(geometry, source, weight, bias, has_bias, relu, target, precision):
    flat = [array.reshape(-1) for array in (source, weight, bias, target)]
    geometry = geometry.aimed_at(target)
    if precision == "float32" and gpu_direct.can_compute(geometry) and gpu_direct.pays(geometry):
        kernel, tile, grid = gpu_direct.conv2d_direct_kernel, gpu_direct.TILE, gpu_direct.grid_of(geometry)
        geometry = geometry._replace(target_fours=geometry.target_fours and geometry.count_w % 4 == 0)
    else:
        tile = best_tile(geometry, (LARGE, SMALL), (FLAT, NARROW))
        tile = tile if precision == "float32" else tile_for(precision, TENSOR, NARROW)
        kernel, grid = _KERNELS[tile], grid_of(tile, geometry)
    arguments = *flat[:3], has_bias, relu, flat[3], device.for_kernel(geometry)
    device.launch(kernel, grid, tile.threads, *arguments)


def conv2d_forward(x, weight, bias=None, stride=1, padding=0, out=None, relu=False, precision="float32"):
    """Convolve a batch of images, ReLU included; see `reference.conv2d_forward`."""
    arrays, how = (x, weight, bias, out), {"relu": relu, "precision": precision}
    *_, out, window = checks.conv2d_forward(DEVICE, *arrays, window=(stride, padding), **how)
    if out.size:
        geometry = forward_geometry(x, weight, window)
        _launch(geometry, x, weight, *checks.bias_for_kernel(weight, bias), relu, out, precision)
    return out


def conv2d_backward_input(
    grad_output, weight, input_shape, stride=1, padding=0, grad_input=None, precision="float32"
):
    """Gradient of `conv2d_forward` with respect to `x`; see `reference.conv2d_backward_input`.

    One launch per class of pixels.
    """
    arrays, steps = (grad_output, weight, input_shape, grad_input), (stride, padding)
    *_, grad_input, window = checks.conv2d_backward_input(DEVICE, *arrays, window=steps, precision=precision)
    if grad_input.size:
        for geometry in backward_geometries(weight, window, grad_input):
            _launch(geometry, grad_output, weight, weight, False, False, grad_input, precision)
    return grad_input
