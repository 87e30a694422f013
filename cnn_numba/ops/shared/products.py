"""The engine of the matrix products: tiles in shared memory, fetched ahead, and multiplied in registers.

A product is ``sum over k of left[row, k] * right[k, column]``. A block computes a tile of it, some k at a
time: it copies that piece of both operands to shared memory, and each thread multiplies for its part of the
tile. Where the operands come from is what makes a dense layer of it, or a convolution.

Operands may be rounded on the way, to tf32, float16 or bfloat16. Tensor Cores multiply those; a GPU without
multiplies them like other float32 numbers, with FFMA, and gets the same products.
"""

from typing import NamedTuple

from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.shared.results import thread_results
from cnn_numba.ops.shared.tensor_cores import (
    multiply_bfloat16,
    multiply_float16,
    multiply_tf32,
    pack_bfloat16,
    pack_float16,
    product_unit,
    round_to_bfloat16,
    round_to_float16,
    round_to_tf32,
    to_tf32,
)
from cnn_numba.ops.shared.warps import load4, warp_and_lane

REDUCED = "tf32", "float16", "bfloat16"


class Tile(NamedTuple):
    """What a block computes: `rows` x `columns` results, `depth` products at a time."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    """Rows of a thread's results: a power of 2, at least 2."""
    thread_columns: int
    """Four times a power of 2."""
    part_depth: int = 1
    """Where sums are split: the least length of a part that pays."""
    fewest_parts: int = 1
    """The fewest parts for which the second kernel pays."""
    precision: str = "float32"
    """What the operands are rounded to."""
    tensor_cores: bool = False
    """Whether Tensor Cores multiply. Then `depth` is a multiple of 16, else of 8."""

    @property
    def threads(self):
        """How many threads a block has."""
        return self.rows * self.columns // (self.thread_rows * self.thread_columns)

    @property
    def results(self):
        """How many results a thread has."""
        return self.thread_rows * self.thread_columns

    @property
    def capability(self):
        """Which GPUs a kernel with this tile is for: those with Tensor Cores, or those without; "" is all."""
        if self.precision == "float32":
            return ""
        return ">= 8.0" if self.tensor_cores else "< 8.0"

    @property
    def padding(self):
        """How much the pitch exceeds the lines, a multiple of 32: see `Operand`, and `_fragments`."""
        return 8 if self.tensor_cores else 4

    @property
    def row_loads(self):
        """How many numbers of the left operand's tile a thread copies."""
        return self.rows * self.depth // self.threads

    @property
    def column_loads(self):
        """How many numbers of the right operand's tile a thread copies."""
        return self.columns * self.depth // self.threads


class Operand(NamedTuple):
    """How an operand gets into its tile, ``tile[k, line]``: three device functions, and the tile's pitch.

    The first argument of each is what the kernel gives `accumulate`: the array, where the thread begins.
    """

    fetch: object
    """``(source, start, end, values)``: load the thread's share of the next tile; zeros where there is no k.
    `start` grows from the product's first k by the depth. Both operands must agree on the k of a tile."""
    begin: object
    """``(source)``: where in the tile the thread's share begins."""
    stash: object
    """``(source, values, tile, at)``: put it there, at `at`."""
    pitch: int
    """Distance from one k to the next in the tile, a multiple of 4. With four more than a multiple of 32,
    what is written down a column goes to different banks."""
    fetch_first: object = None
    """What loads the first tile, if not `fetch`."""


def tile_for(precision, tensor_tile, other_tile):
    """Return `tensor_tile` where Tensor Cores multiply numbers of this precision, else `other_tile`."""
    if product_unit(precision) == "Tensor Cores":
        return tensor_tile._replace(precision=precision, tensor_cores=True)
    return other_tile._replace(precision=precision)


def tensor_tiles(tile):
    """Return the tile for tf32, float16 and bfloat16 on Tensor Cores."""
    return [tile._replace(precision=precision, tensor_cores=True) for precision in REDUCED]


def ffma_tiles(tile):
    """Return the tile for tf32, float16 and bfloat16 that are multiplied like any float32 numbers."""
    return [tile._replace(precision=precision) for precision in REDUCED]


@cuda.jit(device=True)
def _go_on():
    pass


@cuda.jit(device=True)
def hold_loads():
    """Keep ptxas from moving loads from before to after this.

    It would delay the next tile's loads until after the multiplications, where their results are used.
    """
    cuda.syncwarp()


def _fragments(tile, row_pitch, column_pitch):
    """Make two device functions: where a thread reads its parts of the operands, and `_multiplier` of them.

    A thread takes k = lane % 4 and every fourth k after it. The instructions number these k differently: that
    changes only the order of a sum. So the lanes of a warp read 8 neighbours of 4 k, and with a pitch of 8
    more than a multiple of 32 those lie in 32 different banks.
    """
    thread_columns = tile.thread_columns
    row_tiles, column_tiles = tile.thread_rows // 2, thread_columns // 2
    row_step, column_step = 4 * row_pitch, 4 * column_pitch
    first, _, _ = thread_results(tile)
    pack = pack_bfloat16 if tile.precision == "bfloat16" else pack_float16
    product = multiply_bfloat16 if tile.precision == "bfloat16" else multiply_float16

    @cuda.jit(device=True)
    def begin():
        row, column = first()
        _, lane = warp_and_lane()
        k, line = lane % 4, lane // 4
        column = uint32(column - 2 * k + line)  # of the right operand, too, a lane holds one line
        return uint32(row + k * row_pitch), uint32(column + k * column_pitch)

    @cuda.jit(device=True)
    def multiply_tf32_pieces(left, below, right, sums):
        """Multiply 16 x 16 by 16 x 8 numbers; a thread has 4 of each of its rows, and of its column."""
        sums = multiply_tf32((left[0], below[0], left[1], below[1]), (right[0], right[1]), sums)
        return multiply_tf32((left[2], below[2], left[3], below[3]), (right[2], right[3]), sums)

    @cuda.jit(device=True)
    def multiply_packed_pieces(left, below, right, sums):
        upper, lower = pack(left[0], left[1]), pack(below[0], below[1])
        further, last = pack(left[2], left[3]), pack(below[2], below[3])
        return product(
            (upper, lower, further, last), (pack(right[0], right[1]), pack(right[2], right[3])), sums
        )

    multiply_pieces = multiply_tf32_pieces if tile.precision == "tf32" else multiply_packed_pieces

    @cuda.jit(device=True)
    def four(tile, at, step):
        return tile[at], tile[at + step], tile[at + 2 * step], tile[at + 3 * step]

    @cuda.jit(device=True)
    def multiply(tile, row_at, column_at, rows, columns, sums):
        hold_loads()
        for j in range(column_tiles):
            right = four(tile, column_at + 8 * j, column_step)
            columns[4 * j], columns[4 * j + 1], columns[4 * j + 2], columns[4 * j + 3] = right
        for i in range(row_tiles):
            left = four(tile, row_at + 16 * i, row_step)
            below = four(tile, row_at + 16 * i + 8, row_step)
            for j in range(column_tiles):
                right = columns[4 * j], columns[4 * j + 1], columns[4 * j + 2], columns[4 * j + 3]
                at = 2 * i * thread_columns + 2 * j
                under = at + thread_columns
                before = sums[at], sums[at + 1], sums[under], sums[under + 1]
                after = multiply_pieces(left, below, right, before)
                sums[at], sums[at + 1], sums[under], sums[under + 1] = after

    return begin, multiply


def _rounder(tile, loads):
    """Make the device function that rounds what a thread has fetched, in its local array."""
    rounds = {"tf32": round_to_tf32, "float16": round_to_float16, "bfloat16": round_to_bfloat16}
    if tile.tensor_cores:
        rounds = {"tf32": to_tf32}  # numbers of 16 bits are rounded where two of them are packed
    nearest = rounds.get(tile.precision)

    @cuda.jit(device=True)
    def leave(values):
        pass

    @cuda.jit(device=True)
    def round_values(values):
        for i in range(loads):
            values[i] = nearest(values[i])

    return round_values if nearest else leave


def _multiplier(tile, row_pitch, column_pitch, steps, in_the_middle=_go_on):
    """Make a device function that adds `steps` products, a power of 2, to each of a thread's sums.

    Every number that comes from shared memory is used thread_columns (or thread_rows) times, so that
    multiplying takes longer than loading. The steps are written out one after the other, as the compiler
    would not do it: their addresses are constants from the first, and the loads of one run beside the
    multiplications of another. The device function `in_the_middle` is called after half of them.
    """
    if steps > 1:
        half = _multiplier(tile, row_pitch, column_pitch, steps // 2)
        row_jump, column_jump = steps // 2 * row_pitch, steps // 2 * column_pitch

        @cuda.jit(device=True)
        def multiply(tile, row_at, column_at, rows, columns, sums):
            half(tile, row_at, column_at, rows, columns, sums)
            in_the_middle()
            half(tile, row_at + row_jump, column_at + column_jump, rows, columns, sums)

        return multiply

    thread_rows, thread_columns = tile.thread_rows, tile.thread_columns
    _, row, column = thread_results(tile)

    @cuda.jit(device=True)
    def multiply_once(tile, row_at, column_at, rows, columns, sums):
        if thread_rows >= 4:
            for i in range(0, thread_rows, 4):
                rows[i], rows[i + 1], rows[i + 2], rows[i + 3] = load4(tile, row_at + row(i))
        else:
            for i in range(thread_rows):
                rows[i] = tile[row_at + row(i)]
        for j in range(0, thread_columns, 4):
            four = load4(tile, column_at + column(j))
            columns[j], columns[j + 1], columns[j + 2], columns[j + 3] = four
        for i in range(thread_rows):
            for j in range(thread_columns):
                sums[i * thread_columns + j] += rows[i] * columns[j]

    return multiply_once


def _tile_multiplier(tile, left_pitch, right_pitch):
    """Make two device functions: where in the tiles a thread reads first, and what multiplies two tiles.

    Return also how many numbers its two local arrays have.
    """
    if tile.tensor_cores:
        steps, numbers = 16, (1, 2 * tile.thread_columns)
        first, multiply = _fragments(tile, left_pitch, right_pitch)
    else:
        steps, numbers = 8, (tile.thread_rows, tile.thread_columns)
        first, _, _ = thread_results(tile)
        multiply = _multiplier(tile, left_pitch, right_pitch, steps, hold_loads)
    left_jump, right_jump = steps * left_pitch, steps * right_pitch
    size = tile.depth * left_pitch

    @cuda.jit(device=True)
    def multiply_tiles(tiles, left_at, right_at, rows, columns, sums):
        left_end = uint32(left_at + size)
        while left_at != left_end:
            multiply(tiles, left_at, right_at, rows, columns, sums)
            left_at, right_at = uint32(left_at + left_jump), uint32(right_at + right_jump)

    return first, multiply_tiles, numbers


def product_engine(tile, left, right):
    """Make the main loop of a matrix product, ``accumulate(left_source, right_source, begin, end, sums)``.

    It fills the local array `sums` with the thread's results, row by row, each a sum over k from `begin` to
    `end`. The whole block must call it: it has barriers.
    """
    depth, results = tile.depth, tile.results
    row_loads, column_loads = tile.row_loads, tile.column_loads
    left_half, half = tile.depth * left.pitch, tile.depth * (left.pitch + right.pitch)
    size = 2 * half
    fetch_left, begin_left, stash_left, _, first_left = left
    fetch_right, begin_right, stash_right, _, first_right = right
    fetch_first_left, fetch_first_right = first_left or fetch_left, first_right or fetch_right
    first, multiply, (row_numbers, column_numbers) = _tile_multiplier(tile, left.pitch, right.pitch)
    round_left, round_right = _rounder(tile, row_loads), _rounder(tile, column_loads)

    @cuda.jit(device=True)
    def stash(left_source, right_source, next_left, next_right, tiles, left_to, right_to):
        """Put what was fetched where no thread has read since the last barrier."""
        round_left(next_left)
        round_right(next_right)
        stash_left(left_source, next_left, tiles, left_to)
        stash_right(right_source, next_right, tiles, right_to)
        cuda.syncthreads()

    @cuda.jit(device=True, inline="always")
    def accumulate(left_source, right_source, begin, end, sums):
        # The left tile and the right one, twice, so that one barrier a step is enough.
        tiles = cuda.shared.array(size, float32, alignment=16)
        rows, columns = cuda.local.array(row_numbers, float32), cuda.local.array(column_numbers, float32)
        next_left = cuda.local.array(row_loads, float32)
        next_right = cuda.local.array(column_loads, float32)
        for i in range(results):
            sums[i] = 0
        row, column = first()
        # The half that is read and the one that is written change places at each step. All places are carried
        # along: the compiler would work them out again from the thread's number.
        left_at, right_at = uint32(row), uint32(column + left_half)
        left_to, right_to = begin_left(left_source), uint32(begin_right(right_source) + left_half)
        fetch_first_left(left_source, begin, end, next_left)
        fetch_first_right(right_source, begin, end, next_right)
        stash(left_source, right_source, next_left, next_right, tiles, left_to, right_to)
        start, move = uint32(begin + depth), uint32(half)
        while start < end:
            # The next tiles are on their way from global memory while the current ones are multiplied.
            fetch_left(left_source, start, end, next_left)
            fetch_right(right_source, start, end, next_right)
            multiply(tiles, left_at, right_at, rows, columns, sums)
            left_to, right_to = uint32(left_to + move), uint32(right_to + move)
            left_at, right_at = uint32(left_at + move), uint32(right_at + move)
            move = uint32(-move)
            stash(left_source, right_source, next_left, next_right, tiles, left_to, right_to)
            start = uint32(start + depth)
        multiply(tiles, left_at, right_at, rows, columns, sums)

    return accumulate


def transposed_load(depth_step, threads):
    """Make a device function ``()`` that tells each of `threads` its k and its first line of a tile to load.

    Neighbouring lanes load neighbouring k, which lie side by side in global memory, and store them a pitch
    apart in shared memory. With a pitch of 4 more than a multiple of 32, 8 k of 4 lines lie in 32 different
    banks: so a warp takes 8 k, or more if there are too few warps for that.
    """
    lanes = max(8, 32 * depth_step // threads)
    groups, warp_lines = depth_step // lanes, 32 // lanes

    @cuda.jit(device=True)
    def k_and_line():
        warp, lane = warp_and_lane()
        k = lane % lanes + warp % groups * lanes
        line = lane // lanes + warp // groups * warp_lines
        return uint32(k), uint32(line)

    return k_and_line


def begin_at(k_and_line, pitch):
    """Make the `begin` of an operand whose threads begin at the k and the line from ``k_and_line()``."""

    @cuda.jit(device=True)
    def begin(source):
        k, line = k_and_line()
        return uint32(k * pitch + line)

    return begin


def scattered_store(k_and_line, loads, jump, pitch):
    """Make `begin` and `stash` of an operand whose threads load numbers that are `jump` apart in the tile."""

    @cuda.jit(device=True)
    def stash(source, values, tile, at):
        for i in range(loads):
            tile[at + i * jump] = values[i]

    return begin_at(k_and_line, pitch), stash
