"""The checks of notebook 17, ``17_tensor_cores``."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output, uses
from cnn_numba.ops._reference import rounded

# --- Who holds what ----------------------------------------------------------------------------------------


def _held_by(row, k):
    return 4 * (row % 8) + k % 4, row // 8 + 2 * (k // 4)


_REGISTER = "row // 8 + 2 * (k // 4)"

held_by = Exercise(
    "held_by",
    reference=_held_by,
    cases=lambda rng: [
        *((0, 0), (0, 3), (1, 0), (7, 2), (8, 1), (0, 4), (9, 6), (15, 7), (3, 5)),
        *((int(row), int(k)) for row, k in zip(rng.integers(0, 16, 6), rng.integers(0, 8, 6), strict=True)),
    ],
    mistakes={
        "registers exchanged": (
            "Your registers 1 and 2 have changed places: 1 holds row + 8, and 2 holds k + 4.",
            lambda row, k: (4 * (row % 8) + k % 4, 2 * (row // 8) + k // 4),
            (_REGISTER, "2 * (row // 8) + k // 4"),
        ),
        "lanes down the columns": (
            "Your lanes count down the columns. Count along the rows: lane 4 begins row 1.",
            lambda row, k: (row % 8 + 8 * (k % 4), row // 8 + 2 * (k // 4)),
            ("4 * (row % 8) + k % 4", "row % 8 + 8 * (k % 4)"),
        ),
        "eight lanes to a row": (
            "You give a row eight lanes. It has four: the lane of k = 0 also holds k = 4.",
            lambda row, k: (8 * (row % 4) + k, row // 4),
            [("4 * (row % 8) + k % 4", "8 * (row % 4) + k"), (_REGISTER, "row // 4")],
        ),
        "lanes past the warp": (
            "There are 32 lanes, 0 to 31: row 8 is held by the lanes of row 0.",
            lambda row, k: (4 * row + k % 4, row // 8 + 2 * (k // 4)),
            lambda row, k: (4 * row + k % 4, 2 * (k // 4)),
            ("row % 8", "row"),
        ),
        "two registers": (
            "You fill two registers only; there are four: row + 8 adds 1, k + 4 adds 2.",
            lambda row, k: (4 * (row % 8) + k % 4, row // 8),
            lambda row, k: (4 * (row % 8) + k % 4, k // 4),
            lambda row, k: (4 * (row % 8) + k % 4, row // 8 + k // 4),
            (_REGISTER, "k // 4"),
            (_REGISTER, "row // 8 + k // 4"),
        ),
        "lane and register exchanged": (
            "The lane comes first, then the register.",
            lambda row, k: _held_by(row, k)[::-1],
            ("return lane, register", "return register, lane"),
        ),
    },
)


# --- A product by warps ------------------------------------------------------------------------------------


def _tf32(array):
    return rounded(np.asarray(array, np.float64), "tf32")


def _cut(array):
    """Return the numbers without the bits that a Tensor Core does not look at."""
    return (np.float32(array).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(float)


def _product(a, b):
    return _tf32(a) @ _tf32(b)


def _pieces(array, height, width, change):
    """Return a matrix with each of its pieces of height x width changed."""
    changed = np.array(array)
    for top in range(0, array.shape[0], height):
        for left in range(0, array.shape[1], width):
            place = slice(top, top + height), slice(left, left + width)
            changed[place] = change(array[place])
    return changed


def _quarters_exchanged(piece):
    """Exchange the upper right quarter and the lower left one."""
    half, quarter = piece.shape[0] // 2, piece.shape[1] // 2
    upper, lower = piece[:half], piece[half:]
    return np.block([[upper[:, :quarter], lower[:, :quarter]], [upper[:, quarter:], lower[:, quarter:]]])


def _lower_half_first(piece):
    return np.concatenate([piece[len(piece) // 2 :], piece[: len(piece) // 2]])


def _matrices(rng):
    for down, steps, across in [(1, 1, 1), (1, 1, 2), (2, 1, 1), (1, 3, 1), (2, 2, 3)]:
        a, b = normal(rng, (16 * down, 8 * steps)), normal(rng, (8 * steps, 8 * across))
        yield launch((across, down), 32, a, b, output((16 * down, 8 * across)))


_UPPER = "out[top, column], out[top, column + 1] ="
_LOWER = "out[top + 8, column], out[top + 8, column + 1] ="

warp_product_kernel = KernelExercise(
    "warp_product_kernel",
    reference=_product,
    cases=_matrices,
    other_blocks=False,
    float32=True,
    properties=(uses("multiply_tf32"),),
    mistakes={
        "not rounded": (
            "You do not round the numbers, so the Tensor Core cuts them off: round them with `to_tf32`.",
            lambda a, b: _cut(a) @ _cut(b),
            lambda a, b: _tf32(a) @ _cut(b),
            lambda a, b: _cut(a) @ _tf32(b),
            ("to_tf32(", "(", 6),
            ("to_tf32(b[k, left]), to_tf32(b[k + 4, left])", "b[k, left], b[k + 4, left]"),
        ),
        "registers exchanged": (
            "Left registers 1 and 2 are exchanged: `(row + 8, k)` comes before `(row, k + 4)`.",
            lambda a, b: _product(_pieces(a, 16, 8, _quarters_exchanged), b),
            ("above[0], below[0], above[1], below[1]", "above[0], above[1], below[0], below[1]"),
        ),
        "right one transposed": (
            "Your right fragment is transposed: a lane holds `{b}[k, row]` and `{b}[k + 4, row]`.",
            lambda a, b: _product(a, _pieces(b, 8, 8, np.transpose)),
            [
                ("b[k, left]", "b[k - first + row, left - row + first]"),
                ("b[k + 4, left]", "b[k - first + row, left - row + first + 4]"),
            ],
        ),
        "halves of the right one exchanged": (
            "The two registers of the right fragment have changed places: `k` comes first, then `k + 4`.",
            lambda a, b: _product(a, _pieces(b, 8, 8, _lower_half_first)),
            ("to_tf32(b[k, left]), to_tf32(b[k + 4, left])", "to_tf32(b[k + 4, left]), to_tf32(b[k, left])"),
        ),
        "last step only": (
            "Your sums begin anew with every step: hand what `multiply_tf32` returns to its next call.",
            lambda a, b: _product(a[:, -8:], b[-8:]),
            [("for k in range(", "zero = sums\nfor k in range("), ("right, sums)", "right, zero)")],
        ),
        "first step only": (
            "You multiply the first eight k only: there are `{a}.shape[1]`.",
            lambda a, b: _product(a[:, :8], b[:8]),
            ("a.shape[1], 8", "8, 8"),
        ),
        "first step again": (
            "Every step reads the same eight k: add the step's first k to the column (or row) of a fragment.",
            lambda a, b: _product(np.tile(a[:, :8], a.shape[1] // 8), np.tile(b[:8], (len(b) // 8, 1))),
            lambda a, b: _product(np.tile(a[:, :8], a.shape[1] // 8), b),
            lambda a, b: _product(a, np.tile(b[:8], (len(b) // 8, 1))),
            ("above =", "k = first\nabove ="),
        ),
        "halves of the result exchanged": (
            "The last two of the four sums belong eight rows below the first two.",
            lambda a, b: _pieces(_product(a, b), 16, 8, _lower_half_first),
            [
                (f"{_UPPER} sums[0], sums[1]", f"{_UPPER} sums[2], sums[3]"),
                (f"{_LOWER} sums[2], sums[3]", f"{_LOWER} sums[0], sums[1]"),
            ],
        ),
    },
)


# --- Two numbers of tf32 for one of float32 ----------------------------------------------------------------


def _split(x):
    near = rounded(x, "tf32")
    return near, rounded(x - near, "tf32")


_REST = 'rounded(x - near, "tf32")'

split_tf32 = Exercise(
    "split_tf32",
    reference=_split,
    cases=lambda rng: [
        (np.float32([1 / 3]),),
        *((normal(rng, shape),) for shape in (5, 17, (3, 4), (2, 7), 40)),
        (np.float32([0, 1, -0.5, 1e6, 1e-6]),),
    ],
    mistakes={
        "rest not rounded": (
            "What is left needs up to 12 bits, and tf32 has 11: round it, too.",
            lambda x: (rounded(x, "tf32"), x - rounded(x, "tf32")),
            (_REST, "x - near"),
        ),
        "sign": (
            "The two do not add up to `{x}`: the rest is `{x}` minus the nearest, not the reverse.",
            lambda x: (rounded(x, "tf32"), rounded(rounded(x, "tf32") - x, "tf32")),
            ("x - near", "near - x"),
        ),
        "the same twice": (
            "You round `{x}` a second time. To be rounded is what the first number leaves of it.",
            lambda x: (rounded(x, "tf32"), rounded(x, "tf32")),
            ("x - near", "x"),
        ),
        "not rounded": (
            "Your first number has more bits than tf32: round `{x}`.",
            lambda x: (x, np.zeros_like(x)),
            ('near = rounded(x, "tf32")', "near = x"),
        ),
        "another format": (
            "You round to another format than tf32.",
            lambda x: (rounded(x, "bfloat16"), rounded(x - rounded(x, "bfloat16"), "bfloat16")),
            lambda x: (rounded(x, "bfloat16"), rounded(x - rounded(x, "bfloat16"), "tf32")),
            ('"tf32"', '"bfloat16"', 2),
        ),
        "rest first": (
            "The nearest comes first, and then the rest.",
            lambda x: _split(x)[::-1],
            (f"return near, {_REST}", f"return {_REST}, near"),
        ),
    },
)


# --- Turns of shared memory --------------------------------------------------------------------------------

BANKS = 32


def _turns(pitch, rows=8, words=4, banks=BANKS, step=1):
    begins = pitch * np.arange(rows)[:, None]
    return int(np.bincount((step * (begins + np.arange(words))).ravel() % banks).max())


turns = Exercise(
    "turns",
    reference=_turns,
    cases=lambda rng: [(pitch,) for pitch in (8, 16, 32, 4, 12, 20, 24, 28, 36, 40, 48, 64, 68)],
    mistakes={
        "conflicts": (
            "You count what comes on top of the first turn. A load without a conflict takes one turn.",
            lambda pitch: _turns(pitch) - 1,
            ("return max(", "return -1 + max("),
        ),
        "bytes": (
            "You take bytes for words. A bank is as wide as a word, and the pitch is in words already.",
            lambda pitch: _turns(pitch, step=4),
            ("(pitch * row + word) %", "4 * (pitch * row + word) %"),
        ),
        "sixteen banks": ("There are 32 banks.", lambda pitch: _turns(pitch, banks=16), ("% 32", "% 16")),
        "all rows": (
            "You take 32 rows. A matrix has eight; the other lanes hold where the next three begin.",
            lambda pitch: _turns(pitch, rows=32),
            lambda pitch: _turns(pitch, rows=16),
            ("range(8)", "range(32)"),
        ),
        "first row only": (
            "You look at one row. Its words lie in different banks anyhow; the eight together do not.",
            lambda pitch: _turns(pitch, rows=1),
            ("range(8)", "range(1)"),
        ),
        "banks": (
            "You return how many banks are used. Asked is how often the busiest one is.",
            lambda pitch: len(set(((pitch * np.arange(8)[:, None] + np.arange(4)) % BANKS).ravel().tolist())),
            ("return max(banks.count(bank) for bank in banks)", "return len(set(banks))"),
        ),
    },
)
