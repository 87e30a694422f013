"""Where in a tile of a matrix product a thread's results lie, and how they are written."""

import math

from cnn_numba.device.compiler import ZERO, cuda, float32, uint32
from cnn_numba.ops.shared.warps import store4, warp_and_lane

MINUS_INFINITY = float32(-math.inf)
OUTSIDE = uint32(0xFFFFFFFF)  # a place outside of every array

# How the 32 threads of a warp lie on its results. Reading four numbers each, they read 8 x 4 neighbours of a
# row of the right tile and 4 x 4 of the left one: few, and no two of them in the same bank.
LANES_DOWN, LANES_ACROSS = 4, 8


def thread_results(tile):
    """Make the device functions that return where in its tile a thread's results lie.

    They are groups of up to 4 x 4, and the next group begins where the warp's last one ends. ``first()``
    returns row and column of the first result, ``row(i)`` and ``column(j)`` how far it is from there to
    row i and column j of the thread's results.
    """
    if tile.tensor_cores:
        return _fragment_results(tile)
    group = min(4, tile.thread_rows)
    row_step, column_step = LANES_DOWN * group, LANES_ACROSS * 4
    warp_rows, warp_columns = LANES_DOWN * tile.thread_rows, LANES_ACROSS * tile.thread_columns
    warps_across = tile.columns // warp_columns

    @cuda.jit(device=True)
    def first():
        warp, lane = warp_and_lane()
        row = warp // warps_across * warp_rows + lane // LANES_ACROSS * group
        column = warp % warps_across * warp_columns + lane % LANES_ACROSS * 4
        return uint32(row), uint32(column)

    @cuda.jit(device=True)
    def row(i):
        return uint32(i // group * row_step + i % group)

    @cuda.jit(device=True)
    def column(j):
        return uint32(j // 4 * column_step + j % 4)

    return first, row, column


def _fragment_results(tile):
    """Do what `thread_results` does, for the results that Tensor Cores leave with a thread.

    Those of 16 x 8 are two pairs of neighbours, eight rows apart; a warp has several such pieces.
    """
    warp_rows, warp_columns = 8 * tile.thread_rows, 4 * tile.thread_columns
    warps_across = tile.columns // warp_columns

    @cuda.jit(device=True)
    def first():
        warp, lane = warp_and_lane()
        row = warp // warps_across * warp_rows + lane // 4
        return uint32(row), uint32(warp % warps_across * warp_columns + lane % 4 * 2)

    @cuda.jit(device=True)
    def row(i):
        return uint32(8 * i)

    @cuda.jit(device=True)
    def column(j):
        return uint32(j // 2 * 8 + j % 2)

    return first, row, column


@cuda.jit(device=True)
def lower_bound(relu):
    """Return what no result may be below, 0 or minus infinity: chosen once, not at every result."""
    return ZERO if relu else MINUS_INFINITY


@cuda.jit(device=True)
def at_least(bound, value):
    """Return the larger of the two; NaN stays."""
    return bound if value < bound else value


@cuda.jit(device=True)
def _activated(four, relu):
    if relu:
        a, b, c, d = four
        four = at_least(ZERO, a), at_least(ZERO, b), at_least(ZERO, c), at_least(ZERO, d)
    return four


def _written_out(count, step):
    """Make a device function ``(0, given)`` that calls ``step(i, given)`` for each i below `count`.

    There is no loop: what it indexes may go to local memory. `count` is a power of 2.
    """
    if count == 1:
        return step
    half, middle = _written_out(count // 2, step), count // 2

    @cuda.jit(device=True)
    def steps(first, given):
        half(first, given)
        half(first + middle, given)

    return steps


@cuda.jit(device=True)
def _put_each(target, places, further, values):
    for q in range(4):
        if places[q] != OUTSIDE:
            target[uint32(places[q] + further)] = values[q]


@cuda.jit(device=True)
def _column(given, column):
    return column if column < given[2] else OUTSIDE


@cuda.jit(device=True)
def _bias(given, column):
    bias, has_bias, columns = given
    return bias[column] if has_bias and column < columns else ZERO


def result_store(tile, locate=_column, addend=_bias, by_row=False):
    """Make the device function that writes a thread's results, four at once where they lie side by side.

    It is called as ``store(sums, first, rows, pitch, relu, fours, target, given)``: `first` is the tile's
    first row and column, `pitch` the distance of rows in the target, `fours` says whether columns lie side by
    side there, four at a time. ``locate(given, column)`` returns where in row 0 a column lies, OUTSIDE if
    there is none, ``addend(given, column)`` what is added there, or with `by_row` in a row. The defaults are
    for a matrix; they take `given` as (bias, has_bias, columns).
    """
    thread_rows, thread_columns, in_fours = tile.thread_rows, tile.thread_columns, not tile.tensor_cores
    first_result, result_row, result_column = thread_results(tile)
    second, third, fourth = ((1, 2, 3), (0, 0, 0))[by_row]  # a row has one addend, each column its own

    @cuda.jit(device=True)
    def store_four(i, how):
        """Write the results of row i in four columns, that of the first at `at` in the thread's sums."""
        sums, at, addends, places, row, rows, pitch, relu, fours, target, given = how
        m, at = uint32(row + result_row(i)), i * thread_columns + at
        if by_row:
            addends[0] = addend(given, m)
        if m < rows:
            four = (
                sums[at] + addends[0],
                sums[at + 1] + addends[second],
                sums[at + 2] + addends[third],
                sums[at + 3] + addends[fourth],
            )
            four = _activated(four, relu)
            if not fours:
                _put_each(target, places, m * pitch, four)
            elif places[0] != OUTSIDE:
                store4(target, uint32(places[0] + m * pitch), *four)

    store_rows = _written_out(thread_rows, store_four)

    @cuda.jit(device=True)
    def store_columns(number, how):
        sums, row, column, rows, pitch, relu, fours, target, given = how
        places, addends = cuda.local.array(4, uint32), cuda.local.array(4, float32)
        for q in range(4):
            n = uint32(column + result_column(4 * number + q))
            places[q] = locate(given, n) if q == 0 or not fours else OUTSIDE
            if not by_row:
                addends[q] = addend(given, n)
        store_rows(0, (sums, 4 * number, addends, places, row, rows, pitch, relu, fours, target, given))

    store_all = _written_out(thread_columns // 4, store_columns)

    @cuda.jit(device=True)
    def store(sums, first, rows, pitch, relu, fours, target, given):
        row, column = first_result()
        row, column, fours = uint32(first[0] + row), uint32(first[1] + column), fours and in_fours
        store_all(0, (sums, row, column, rows, pitch, relu, fours, target, given))

    return store
