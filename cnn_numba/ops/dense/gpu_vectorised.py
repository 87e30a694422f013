"""The fastest matrix products: loads of 128 bits, tiles fetched ahead, sums split over blocks.

Unlike `matmul_register_tiled`, a thread reads four neighbours at a time from global and from shared memory,
and writes four results. While a block multiplies one pair of tiles, it loads the next to registers; with two
buffers, one barrier per pair is enough.

A product with few results and long sums, such as a dense layer's at batch 64, would use only a few blocks.
Then several blocks compute parts of the same sums, and a second kernel adds up the parts, always in the same
order.
"""

from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import ZERO, cuda, float32, uint32
from cnn_numba.ops.shared.products import (
    REDUCED,
    Operand,
    Tile,
    ffma_tiles,
    product_engine,
    tensor_tiles,
    tile_for,
)
from cnn_numba.ops.shared.results import at_least, lower_bound, result_store
from cnn_numba.ops.shared.warps import load4, store4, sum_grid, sum_of_parts

LARGE = Tile(64, 128, 8, thread_rows=8, thread_columns=8, part_depth=128, fewest_parts=2)
SMALL = Tile(32, 32, 16, thread_rows=2, thread_columns=4, part_depth=64, fewest_parts=4)
# For rounded operands: 8 warps of 32 x 16 results each.
TENSOR = Tile(64, 64, 16, thread_rows=4, thread_columns=4, part_depth=64, fewest_parts=4)
# Blocks that share a multiprocessor: the most whose registers fit, on every GPU.
BLOCKS = {LARGE.results: 3, SMALL.results: 7, TENSOR.results: 3}
NOTHING = ZERO, ZERO, ZERO, ZERO
_PRODUCT = f"void({', '.join(4 * ['float32[::1]'])}, Product)"


class Product(NamedTuple):
    """The sizes of a product, and what else a kernel must know of it."""

    rows: np.uint32
    columns: np.uint32
    depth: np.uint32
    part_depth: np.uint32  # products that a block adds
    transpose_a: bool
    transpose_b: bool
    has_bias: bool
    relu: bool


def aligned(matrix, vector=4):
    """Return whether each row of a matrix consists of whole vectors, at multiples of 16 bytes."""
    return matrix.shape[1] % vector == 0 and device.aligned(matrix)


def _layout(lines, tile):
    """Make three device functions: the (line, k) of a thread in a tile, its index there, and the store.

    With `along_k` neighbours in memory have neighbouring k, else neighbouring lines; so have a thread's four
    elements, and the next thread's. Return also how many vectors of four a thread has, and how far they are
    apart, in lines or in k.
    """
    fours_along_k, fours_along_lines = tile.depth // 4, lines // 4
    pitch, fours = lines + tile.padding, lines * tile.depth // (4 * tile.threads)
    line_jump, k_jump = 4 * tile.threads // tile.depth, 4 * tile.threads // lines

    @cuda.jit(device=True)
    def line_and_k(along_k):
        thread = uint32(cuda.threadIdx.x)
        if along_k:
            return uint32(thread // fours_along_k), uint32(thread % fours_along_k * 4)
        return uint32(thread % fours_along_lines * 4), uint32(thread // fours_along_lines)

    @cuda.jit(device=True)
    def begin(source):
        line, k = line_and_k(source[1])
        return uint32(k * pitch + line)

    @cuda.jit(device=True)
    def stash(source, values, tile, first):
        along_k = source[1]
        if along_k:
            for v in range(fours):
                for i in range(4):
                    tile[first + v * line_jump + i * pitch] = values[4 * v + i]
        else:
            for v in range(fours):
                at = first + v * k_jump * pitch
                store4(tile, at, values[4 * v], values[4 * v + 1], values[4 * v + 2], values[4 * v + 3])

    return (line_and_k, begin, stash), fours, (line_jump, k_jump)


class _MatrixOperand(NamedTuple):
    """A matrix as an operand of the product engine."""

    operand: Operand
    locate: object
    """``(matrix, along_k, first_line, lines, depth, part, at)``: what the operand loads from."""
    fours: int
    """How many vectors of four a thread loads, and `at` has elements."""


def _operand(lines, tile, vectors):
    """Return the operand for a tile of this many lines; with `vectors` all rows are whole vectors of four.

    The tiles end where the product ends, so the first one may begin before the product does, and has zeros
    there. Later loads need no bounds check along k. The tile's depth is a power of 2.
    """
    (line_and_k, begin, stash), fours, jumps = _layout(lines, tile)
    zero, tile_depth, (line_jump, k_jump) = uint32(0), uint32(tile.depth), map(uint32, jumps)

    @cuda.jit(device=True)
    def locate(matrix, along_k, first_line, lines, depth, part, at):
        """Note in `at` where the thread's vectors begin in the first tile."""
        begin, end = part
        missing_k = tile_depth if begin == end else uint32(uint32(begin - end) % tile_depth)  # zeros
        line, k = line_and_k(along_k)
        more_lines, more_k = (line_jump, zero) if along_k else (zero, k_jump)
        line_step, k_step = (depth, uint32(1)) if along_k else (uint32(1), lines)
        # Lines beyond the last repeat it, and are not kept.
        last = uint32(lines - (4 if vectors and not along_k else 1))
        for v in range(fours):
            its_line = min(uint32(first_line + line + v * more_lines), last)
            at[v] = its_line * line_step + (begin - missing_k + k + v * more_k) * k_step
        left = uint32(lines - min(uint32(first_line + line), last))
        return matrix, along_k, at, uint32(tile_depth * k_step), k, left, begin, missing_k

    @cuda.jit(device=True)
    def fetch_first(source, start, end, values):
        matrix, along_k, at, step, first_k, _, _, missing_k = source
        more_k = zero if along_k else k_jump
        for v in range(fours):
            i = 4 * v
            values[i], values[i + 1], values[i + 2], values[i + 3] = NOTHING
            if uint32(first_k + v * more_k) >= missing_k:
                values[i], values[i + 1], values[i + 2], values[i + 3] = load4(matrix, at[v])
            at[v] += step

    @cuda.jit(device=True)
    def fetch_vectors(source, start, end, values):
        matrix, _, at, step, _, _, _, _ = source
        for v in range(fours):
            i = 4 * v
            values[i], values[i + 1], values[i + 2], values[i + 3] = load4(matrix, at[v])
            at[v] += step

    @cuda.jit(device=True)
    def fetch_numbers(source, start, end, values):
        matrix, along_k, at, step, first_k, left, begin, missing_k = source
        more_k = zero if along_k else k_jump
        for v in range(fours):
            k = uint32(start - begin + first_k + v * more_k)
            for i in range(4):
                is_inside = uint32(k + i) >= missing_k if along_k else (k >= missing_k) & (i < left)
                values[4 * v + i] = matrix[uint32(at[v] + i)] if is_inside else ZERO
            at[v] += step

    fetch, fetch_first = (fetch_vectors, fetch_first) if vectors else (fetch_numbers, None)
    return _MatrixOperand(Operand(fetch, begin, stash, lines + tile.padding, fetch_first), locate, fours)


def tile_product(tile, vectors):
    """Make the device function with which a block computes a tile of results, or a part of their sums.

    With `vectors` all three matrices need rows of 4 n elements.
    """
    results = tile.results
    left, right = (_operand(lines, tile, vectors) for lines in (tile.rows, tile.columns))
    locate_left, locate_right, left_fours, right_fours = left.locate, right.locate, left.fours, right.fours
    accumulate = product_engine(tile, left.operand, right.operand)
    store = result_store(tile)

    @cuda.jit(device=True, inline="always")
    def compute(a, b, bias, out, first, sizes, part, how):
        """Write the tile at `first`; `sizes` are rows, columns, depth; `how` the flags of a `Product`."""
        (first_row, first_column), (rows, columns, depth) = first, sizes
        transpose_a, transpose_b, has_bias, relu = how
        sums = cuda.local.array(results, float32)
        a_at, b_at = cuda.local.array(left_fours, uint32), cuda.local.array(right_fours, uint32)
        a_source = locate_left(a, not transpose_a, first_row, rows, depth, part, a_at)
        b_source = locate_right(b, transpose_b, first_column, columns, depth, part, b_at)
        accumulate(a_source, b_source, part[0], part[1], sums)
        # In `out`, the parts follow one another as further rows.
        earlier = cuda.blockIdx.z * rows
        first, end_row = (uint32(earlier + first_row), first_column), uint32(earlier + rows)
        store(sums, first, end_row, columns, relu, vectors, out, (bias, has_bias, columns))

    return compute


def _make_kernel(name, tile, vectors):
    """Return the kernel of one tile; with `vectors` all three matrices need rows of 4 n elements."""
    compute = tile_product(tile, vectors)
    block_rows, block_columns = tile.rows, tile.columns

    @cuda.jit(launch_bounds=(tile.threads, BLOCKS[tile.results]))
    @device.signature(_PRODUCT, capability=tile.capability, name=name)
    def kernel(a, b, bias, out, product: Product):
        """Compute a tile per block, or a part of its sums; a grid of (column tiles, row tiles, parts)."""
        first_row = uint32(cuda.blockIdx.y * block_rows)
        first_column = uint32(cuda.blockIdx.x * block_columns)
        begin = uint32(cuda.blockIdx.z * product.part_depth)
        part = begin, min(uint32(begin + product.part_depth), product.depth)
        sizes = product.rows, product.columns, product.depth
        how = product.transpose_a, product.transpose_b, product.has_bias, product.relu
        compute(a, b, bias, out, (first_row, first_column), sizes, part, how)

    return kernel


# Rounded operands: on Tensor Cores, and for GPUs without, whose kernels read one number at a time.
_NAMES = {LARGE: "large", SMALL: "small"} | dict(zip(tensor_tiles(TENSOR), REDUCED, strict=True))
_KERNELS = {
    (tile, vectors): _make_kernel(f"matmul_{name}{'' if vectors else '_guarded'}_kernel", tile, vectors)
    for tile, name in _NAMES.items()
    for vectors in (True, False)
}
_FFMA = {
    tile: _make_kernel(f"matmul_{tile.precision}_ffma_kernel", tile, False) for tile in ffma_tiles(SMALL)
}
_KERNELS |= {(tile, vectors): _FFMA[tile] for tile in _FFMA for vectors in (True, False)}


@cuda.jit
@device.signature("void(float32[:, ::1], float32[::1], uint32, bool, bool, float32[::1])")
def matmul_sum_parts_kernel(parts, bias, columns, has_bias, relu, out):
    """Add up `parts` (P, size) into `out` (size,), in blocks of `sum_grid`."""
    i, total, is_mine = sum_of_parts(parts, uint32(cuda.blockIdx.x))
    if is_mine:
        if has_bias:
            total += bias[i % columns]
        out[i] = at_least(lower_bound(relu), total)


# The most blocks of a split product: of LARGE some four for each of the 132 multiprocessors of an H200, of
# which three run at a time (fewer are no faster, modelled); more of SMALL would have more partial sums.
# On every GPU sums are split the same way and give the same bits.
_ENOUGH_BLOCKS = {LARGE.results: 512, SMALL.results: 256, TENSOR.results: 256}
# With fewer blocks of LARGE, SMALL is mostly faster on an A100 (modelled), though not on a T4.
_ENOUGH_LARGE_BLOCKS = 192


def choose_tile(rows, columns, depth):
    """Return LARGE if enough of its blocks have a full tile, else SMALL."""
    full_tiles = (rows // LARGE.rows) * (columns // LARGE.columns)
    parts, _ = count_parts(LARGE, rows, columns, depth)
    return LARGE if full_tiles * parts >= _ENOUGH_LARGE_BLOCKS else SMALL


def count_parts(tile, rows, columns, depth):
    """Return the number of blocks that share a sum, and the number of products that a block adds."""
    tiles = device.blocks(rows, tile.rows) * device.blocks(columns, tile.columns)
    parts = min(_ENOUGH_BLOCKS[tile.results] // tiles, depth // tile.part_depth)
    if parts < tile.fewest_parts:
        return 1, depth
    # Whole tiles along k, and so whole vectors.
    part_depth = device.blocks(device.blocks(depth, parts), SMALL.depth) * SMALL.depth
    return device.blocks(depth, part_depth), part_depth


def most_partial_sums(rows, columns, depth):
    """Return an upper limit for the size of `partial`; it never decreases as the sizes grow."""
    most = max(_ENOUGH_BLOCKS[tile.results] * tile.rows * tile.columns for tile in (LARGE, SMALL, TENSOR))
    return min(depth // SMALL.part_depth * rows * columns, most)


def scratch_size(batch_size, in_features, out_features):
    """Return the size of `partial` that is enough for the three products of a dense layer."""
    n, m, k = batch_size, out_features, in_features
    return max(1, *(most_partial_sums(*sizes) for sizes in ((n, m, k), (n, k, m), (m, k, n))))


def add_up(parts, out, bias=None, relu=False):
    """Add up a product's partial sums, (P, size), with `bias` and ReLU, into `out`, checked; return it."""
    has_bias, flat = bias is not None, out.reshape(out.size)
    arguments = parts, bias if has_bias else flat, np.uint32(out.shape[1]), has_bias, relu, flat
    device.launch(matmul_sum_parts_kernel, *sum_grid(out.size), *arguments)
    return out


def multiply(a, b, out, transpose_a, transpose_b, tile=None, *, bias=None, relu=False, **options):
    """Launch the kernels of a product; return `out`. Arguments as for `multiply_parts`, unchecked."""
    parts = multiply_parts(a, b, out, transpose_a, transpose_b, tile, bias=bias, relu=relu, **options)
    return out if parts is None else add_up(parts, out, bias, relu)


def multiply_parts(
    a, b, out, transpose_a, transpose_b, tile=None, *, bias=None, relu=False, partial=None,
    precision="float32",
):  # fmt: skip
    """Launch the first kernel of a product; return the partial sums, (P, size) without bias and ReLU.

    If each sum is computed in one block, `out` is complete, and None is returned.

    `bias`, shape (N,), is added to every row. `partial` has at least `most_partial_sums` elements; None
    allocates it if needed. `tile` None chooses it by the shape; operands rounded to a `precision` have only
    one tile.
    """
    rows, columns = out.shape
    if not out.size:
        return None
    depth = a.shape[0 if transpose_a else 1]
    if precision != "float32":
        tile = tile_for(precision, TENSOR, SMALL)
    tile = tile or choose_tile(rows, columns, depth)
    parts, part_depth = count_parts(tile, rows, columns, depth)
    whole = parts == 1
    sums = out.reshape(out.size) if whole else partial
    if sums is None:
        sums = device.empty(parts * out.size)
    left, right = a.reshape(a.size), b.reshape(b.size)
    has_bias = bias is not None
    bias = bias if has_bias else right  # a kernel needs some array, and ignores it
    kernel = _KERNELS[tile, all(map(aligned, (a, b, out)))]
    grid = device.blocks(columns, tile.columns), device.blocks(rows, tile.rows), parts
    flags = transpose_a, transpose_b, has_bias and whole, relu and whole
    product = device.for_kernel(Product(rows, columns, depth, part_depth, *flags))
    device.launch(kernel, grid, tile.threads, left, right, bias, sums, product)
    return None if whole else sums[: parts * out.size].reshape(parts, out.size)
