"""The checks of notebook 13, ``13_matrix_product``."""

from itertools import permutations, starmap

import numpy as np

from cnn_course.chapters.dense_layers.exercises import multiplications, product
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, uses
from cnn_course.engine.checks.writes import from_tiles
from gpuless.access import READ, WRITE

# As in the notebook: threads of a block along either axis, and its results at four per thread.
TILE = 8
WIDE = 2 * TILE


def _in_tiles(matrix, side):
    """Return a matrix as tiles, (rows of tiles, columns of tiles, side, side), padded with zeros."""
    rows, columns = (-(-n // side) for n in matrix.shape)
    padded = np.zeros((rows * side, columns * side))
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded.reshape(rows, side, columns, side).transpose(0, 2, 1, 3)


def _from_tiles(tiles, shape):
    rows, columns, side, _ = tiles.shape
    matrix = tiles.transpose(0, 2, 1, 3).reshape(rows * side, columns * side)
    return matrix[: shape[0], : shape[1]]


# --- Tiles with tails --------------------------------------------------------------------------------------


def with_stale_tail(a, b):
    """Multiply, with old numbers in the last tiles past the end of k; NaN if there were none before."""
    depth = a.shape[1]
    tail = depth % TILE
    if not tail:
        return product(a, b)
    if depth < TILE:
        return np.full((a.shape[0], b.shape[1]), np.nan)
    stale = slice(depth - TILE, depth - tail)
    return product(a, b) + product(a[:, stale], b[stale])


def _copied_by_threads_with_results(of_a, of_b):
    """Return a product in which threads without a result copy zeros, for `a`, `b` or both."""

    def multiply(a, b):
        rows, columns = np.indices((len(a), b.shape[1]))
        k = np.arange(a.shape[1])[:, None, None] % TILE
        in_a = (columns // TILE * TILE + k < b.shape[1]) | (not of_a)
        in_b = (rows // TILE * TILE + k < len(a)) | (not of_b)
        return np.einsum("mk,kn,kmn->mn", np.asarray(a, np.float64), b, in_a & in_b)

    return multiply


def with_turned_tiles(a, b):
    """Multiply, with each tile of `b` transposed."""
    return product(a, _from_tiles(_in_tiles(b, TILE).swapaxes(2, 3), (a.shape[1], b.shape[1])))


def _with_turned_tiles_of_a(a, b):
    return product(_from_tiles(_in_tiles(a, TILE).swapaxes(2, 3), a.shape), b)


def _with_as_many_steps_as_rows(a, b):
    """Multiply with one step per tile of rows of `a`; there should be one per tile of its columns."""
    end = -(-len(a) // TILE) * TILE
    return product(a[:, :end], b[:end])


def _with_the_first_tiles(a, b):
    """Multiply with the tiles of the first step in every step."""
    k = np.arange(a.shape[1]) % TILE
    return product(a[:, k], b[k])


def _of_whole_tiles(a, b):
    whole = a.shape[1] // TILE * TILE
    return product(a[:, :whole], b[:whole])


def _of_first_tile(a, b):
    return product(a[:, :TILE], b[:TILE])


def _loads_each_number_once(wide):
    """Return a property: a block reads each number once from global memory, and then from its tiles."""
    sides = [(2 * wide, 2 * TILE, wide)]
    return from_tiles(
        dict.fromkeys((0, 1), "a number"),
        lambda rng: next(iter(multiplications(rng, (TILE, TILE), (wide, wide), sides))),
        "the loop over `k`",
    )


matmul_tiled_kernel = KernelExercise(
    "matmul_tiled_kernel",
    reference=product,
    cases=lambda rng: multiplications(
        rng, (TILE, TILE), (TILE, TILE), [(3, 2, 5), (8, 19, 6), (7, 16, 13), (10, 13, 4), (17, 9, 9)]
    ),
    large=lambda rng: multiplications(rng, (TILE, TILE), (TILE, TILE), [(67, 300, 91)]),
    other_blocks=False,
    float32=True,
    once=True,
    properties=(uses("shared"), _loads_each_number_once(TILE)),
    mistakes={
        "tail not zeroed": (
            "Past the end of a matrix your tile keeps old numbers. Write a zero there.",
            with_stale_tail,
            [
                (
                    "a_tile[y, x] = a[row, start + x] if in_a else float32(0)",
                    "if in_a:\n    a_tile[y, x] = a[row, start + x]",
                ),
                (
                    "b_tile[y, x] = b[start + y, column] if in_b else float32(0)",
                    "if in_b:\n    b_tile[y, x] = b[start + y, column]",
                ),
            ],
            (
                "b_tile[y, x] = b[start + y, column] if in_b else float32(0)",
                "if in_b:\n    b_tile[y, x] = b[start + y, column]",
            ),
        ),
        "copies for itself only": (
            "Threads without a result copy zeros, but others need the numbers that they should copy. For "
            "each copy, test whether its own two indices lie inside the matrix, not whether the thread has "
            "a result.",
            *(
                _copied_by_threads_with_results(*which)
                for which in [(True, True), (True, False), (False, True)]
            ),
            ("in_a = row < a.shape[0]", "in_a = row < out.shape[0] and column < out.shape[1]"),
            ("and column < b.shape[1]", "and row < out.shape[0] and column < out.shape[1]"),
            [
                ("in_a = row < a.shape[0]", "in_a = row < out.shape[0] and column < out.shape[1]"),
                ("and column < b.shape[1]", "and row < out.shape[0] and column < out.shape[1]"),
            ],
        ),
        "tail left out": (
            "You leave out the last, narrower tiles. Round the number of steps up.",
            _of_whole_tiles,
            ("range(0, a.shape[1], TILE)", "range(0, a.shape[1] // TILE * TILE, TILE)"),
        ),
        "first tile only": (
            "Only the first pair of tiles is multiplied. Go on to the end of the sum.",
            _of_first_tile,
            ("range(0, a.shape[1], TILE)", "range(0, TILE, TILE)"),
        ),
        "tile turned": (
            "You read the tile of `{b}` transposed. Its first index is `k`.",
            with_turned_tiles,
            ("b_tile[k, x]", "b_tile[x, k]"),
        ),
        "tile of a turned": (
            "You read the tile of `{a}` transposed. Its first index is the row.",
            _with_turned_tiles_of_a,
            ("a_tile[y, k]", "a_tile[k, y]"),
        ),
        "steps by the rows": (
            "Your number of steps comes from the rows of `{a}`. Take it from its columns: a sum has one "
            "product for each.",
            _with_as_many_steps_as_rows,
            ("range(0, a.shape[1], TILE)", "range(0, a.shape[0], TILE)"),
        ),
        "first tiles again": (
            "Every step copies the first tiles. Add `start` to the index that counts along the sum.",
            _with_the_first_tiles,
            [("a[row, start + x]", "a[row, x]"), ("b[start + y, column]", "b[y, column]")],
        ),
        "last step only": (
            "The sum restarts at each pair of tiles. Set it to zero once, before the loop.",
            lambda a, b: product(
                a[:, (a.shape[1] - 1) // TILE * TILE :], b[(a.shape[1] - 1) // TILE * TILE :]
            ),
            [("total = float32(0)", ""), ("for k in range", "total = float32(0)\nfor k in range")],
        ),
    },
)


# --- Four results per thread -------------------------------------------------------------------------------


def _quarters(a, b):
    """Return the product in blocks of WIDE x WIDE, (rows, columns, 2, TILE, 2, TILE), and its shape."""
    whole = product(a, b)
    tiles = _in_tiles(whole, WIDE)
    return tiles.reshape(*tiles.shape[:2], 2, TILE, 2, TILE).copy(), whole.shape


def _rearranged(change):
    def function(a, b):
        quarters, shape = _quarters(a, b)
        change(quarters)
        return _from_tiles(quarters.reshape(*quarters.shape[:2], WIDE, WIDE), shape)

    return function


@_rearranged
def _exchanged(quarters):
    upper, lower = quarters[:, :, 0, :, 1].copy(), quarters[:, :, 1, :, 0].copy()
    quarters[:, :, 0, :, 1], quarters[:, :, 1, :, 0] = lower, upper


@_rearranged
def _row_repeated(quarters):
    quarters[:, :, 1] = quarters[:, :, 0]


@_rearranged
def _column_repeated(quarters):
    quarters[:, :, :, :, 1] = quarters[:, :, :, :, 0]


def _one_repeated(target, source):
    """Return a function in which one of the four results is another one."""

    def repeat(quarters):
        quarters[:, :, target[0], :, target[1]] = quarters[:, :, source[0], :, source[1]]

    return _rearranged(repeat)


def _trace_of_a_block(attempt):
    """Return the trace of a block with all its results, and one tile along k."""
    (case,) = multiplications(np.random.default_rng(0), (TILE, TILE), (WIDE, WIDE), [(WIDE, TILE, WIDE)])
    return examine(attempt, case).report.trace


def _each_number_is_read_once(attempt):
    """Demand that a thread reads two numbers of each tile for four products."""
    trace = _trace_of_a_block(attempt)
    shared = [number for number, info in enumerate(trace.arrays) if info.space == "shared"]
    reads = int(((trace.kind == READ) & np.isin(trace.array, shared)).sum())
    products = WIDE * WIDE * TILE
    if reads > products:
        raise Wrong(
            "read for each product",
            f"The numbers are right, but you read {reads / products:.3g} numbers from shared memory for each "
            "multiply-add, and 1 is enough: the four products share four numbers. Load each of them once.",
        )


def _results_are_apart(attempt):
    """Demand that the results of a thread are `TILE` rows and columns apart."""
    trace = _trace_of_a_block(attempt)
    in_global = np.array([info.space == "global" for info in trace.arrays])[trace.array]
    x, y = 1, 2
    mine = (trace.kind == WRITE) & in_global & (trace.thread == y * TILE + x)
    rows, columns = map(np.unique, np.divmod(trace.element[mine], WIDE))
    wanted = [y, y + TILE], [x, x + TILE]
    if (rows.tolist(), columns.tolist()) != wanted:
        raise Wrong(
            "results not apart",
            "The numbers are right, but a thread should compute rows `y` and `y + TILE`, columns `x` and "
            "`x + TILE`, so that neighbouring threads read and write neighbouring numbers.",
            f"Your thread with `x` = {x} and `y` = {y} has {_listed('row', rows)} and "
            f"{_listed('column', columns)} of the block's results. It should have rows {y} and {y + TILE} "
            f"and columns {x} and {x + TILE}.",
        )


def _listed(word, numbers):
    return f"{word}{'s' * (len(numbers) > 1)} {' and '.join(map(str, numbers))}"


matmul_2x2_kernel = KernelExercise(
    "matmul_2x2_kernel",
    reference=product,
    cases=lambda rng: multiplications(
        rng, (TILE, TILE), (WIDE, WIDE), [(3, 2, 5), (16, 9, 12), (11, 8, 18), (19, 10, 21), (9, 17, 10)]
    ),
    large=lambda rng: multiplications(rng, (TILE, TILE), (WIDE, WIDE), [(67, 300, 91)]),
    other_blocks=False,
    float32=True,
    once=True,
    properties=(uses("shared"), _loads_each_number_once(WIDE), _each_number_is_read_once, _results_are_apart),
    mistakes={
        "sums exchanged": (
            "Two of the four results are exchanged: the upper right and the lower left one.",
            _exchanged,
            [("column + x + TILE, t01", "column + x + TILE, t10"), ("column + x, t10", "column + x, t01")],
        ),
        "row repeated": (
            "The second row of results repeats the first. It needs another number of `{a}`.",
            _row_repeated,
            ("a1 *", "a0 *", 2),
        ),
        "column repeated": (
            "The second column of results repeats the first. It needs another number of `{b}`.",
            _column_repeated,
            ("* b1", "* b0", 2),
        ),
        "one repeated": (
            "One of the four results repeats another. Each needs its own pair: one of two numbers of `{a}`, "
            "and one of two of `{b}`.",
            *starmap(_one_repeated, permutations(np.ndindex(2, 2), 2)),
            ("t10 + a1 * b0", "t10 + a0 * b1"),
            ("t11 + a1 * b1", "t11 + a1 * b0"),
        ),
        "first tile only": (
            "Only the first pair of tiles is multiplied. Go on to the end of the sum.",
            _of_first_tile,
            ("range(0, a.shape[1], TILE)", "range(0, TILE, TILE)"),
        ),
    },
)
