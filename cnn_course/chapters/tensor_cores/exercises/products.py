"""The checks of notebook 17 about lanes and products."""

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
            "Registers 1 and 2 are exchanged. Which of them holds the element eight rows below?",
            lambda row, k: (4 * (row % 8) + k % 4, 2 * (row // 8) + k // 4),
            (_REGISTER, "2 * (row // 8) + k // 4"),
        ),
        "lanes down the columns": (
            "Your lanes count down the columns. In the picture they count along the rows.",
            lambda row, k: (row % 8 + 8 * (k % 4), row // 8 + 2 * (k // 4)),
            ("4 * (row % 8) + k % 4", "row % 8 + 8 * (k % 4)"),
        ),
        "eight lanes to a row": (
            "You give eight lanes to a row. Only four lanes hold its eight elements.",
            lambda row, k: (8 * (row % 4) + k, row // 4),
            [("4 * (row % 8) + k % 4", "8 * (row % 4) + k"), (_REGISTER, "row // 4")],
        ),
        "lanes past the warp": (
            "You use lanes above 31. A warp has 32: which lanes hold row 8 in the picture?",
            lambda row, k: (4 * row + k % 4, row // 8 + 2 * (k // 4)),
            lambda row, k: (4 * row + k % 4, 2 * (k // 4)),
            ("row % 8", "row"),
        ),
        "two registers": (
            "You use two registers only. A lane has four elements, each in its own register.",
            lambda row, k: (4 * (row % 8) + k % 4, row // 8),
            lambda row, k: (4 * (row % 8) + k % 4, k // 4),
            lambda row, k: (4 * (row % 8) + k % 4, row // 8 + k // 4),
            (_REGISTER, "k // 4"),
            (_REGISTER, "row // 8 + k // 4"),
        ),
        "a lane for each k": (
            "Four lanes hold a row. They hold `k` 0 to 3, and the same four hold 4 to 7, in other registers.",
            lambda row, k: (4 * (row % 8) + k, row // 8 + 2 * (k // 4)),
            ("k % 4", "k"),
        ),
        "lanes again after four rows": (
            "Your lanes begin again after four rows. In the picture they do so after eight.",
            lambda row, k: (4 * (row % 4) + k % 4, row // 8 + 2 * (k // 4)),
            lambda row, k: (4 * (row % 4) + k % 4, row // 4),
            ("row % 8", "row % 4"),
        ),
        "eight lanes on": (
            "Your lane numbers grow by eight from row to row. Only four lanes hold a row, twice each.",
            lambda row, k: (8 * (row % 8) + k % 4, row // 8 + 2 * (k // 4)),
            lambda row, k: (8 * (row % 8) + k, row // 8 + 2 * (k // 4)),
            ("4 * (row % 8)", "8 * (row % 8)"),
        ),
        "registers from 1": (
            "Your registers are 1 to 4. They are numbered from 0.",
            lambda row, k: (4 * (row % 8) + k % 4, 1 + row // 8 + 2 * (k // 4)),
            (_REGISTER, f"1 + {_REGISTER}"),
        ),
        "right matrix": (
            "That is who holds an element of the *right* matrix. The left one has rows where it has columns.",
            lambda row, k: (4 * (k % 8) + row % 4, row // 4),
            [("4 * (row % 8) + k % 4", "4 * k + row % 4"), (_REGISTER, "row // 4")],
        ),
        "sums": (
            "That is who holds one of the *sums*, where neighbours belong to one lane. In the left matrix "
            "they belong to two.",
            lambda row, k: (4 * (row % 8) + k // 2, 2 * (row // 8) + k % 2),
            lambda row, k: (4 * (row % 8) + k // 2, row // 8 + 2 * (k // 4)),
            ("k % 4", "k // 2"),
            [("k % 4", "k // 2"), (_REGISTER, "2 * (row // 8) + k % 2")],
        ),
        "registers of the rows below": (
            "The element eight rows below is in the *next* register, 1 or 3.",
            lambda row, k: (4 * (row % 8) + k % 4, 2 * (row // 8) + 2 * (k // 4)),
            lambda row, k: (4 * (row % 8) + k % 4, 3 * (row // 8) + 2 * (k // 4)),
            (_REGISTER, "2 * (row // 8) + 2 * (k // 4)"),
        ),
        "lane and register exchanged": (
            "Return the lane first, then the register.",
            lambda row, k: _held_by(row, k)[::-1],
            ("return lane, register", "return register, lane"),
        ),
    },
)


# --- A product by warps ------------------------------------------------------------------------------------


def _tf32(array):
    return rounded(np.asarray(array, np.float64), "tf32")


def _cut(array):
    """Return the numbers without the bits that a Tensor Core ignores."""
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


def _sums_exchanged(piece):
    """Exchange the second sum of each lane, to the right of the first, and the third, eight rows below."""
    exchanged = piece.copy()
    exchanged[:8, 1::2], exchanged[8:, ::2] = piece[8:, ::2], piece[:8, 1::2]
    return exchanged


def _summed_again(a, b):
    """Add the result to the sums, although it already contains them."""
    sums = 0
    for k in range(0, a.shape[1], 8):
        sums = 2 * sums + _product(a[:, k : k + 8], b[k : k + 8])
    return sums


def _steps_of_one(a, b):
    steps = range(a.shape[1] // 8)
    return sum(_product(a[:, k : k + 8], b[k : k + 8]) for k in steps)


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
            "The Tensor Core ignores the lower bits of your numbers. Round each number first: `to_tf32`.",
            lambda a, b: _cut(a) @ _cut(b),
            lambda a, b: _tf32(a) @ _cut(b),
            lambda a, b: _cut(a) @ _tf32(b),
            ("to_tf32(", "(", 6),
            ("to_tf32(b[k, left]), to_tf32(b[k + 4, left])", "b[k, left], b[k + 4, left]"),
        ),
        "registers exchanged": (
            "Registers 1 and 2 of the left fragment are exchanged. Look at their order in the picture.",
            lambda a, b: _product(_pieces(a, 16, 8, _quarters_exchanged), b),
            ("above[0], below[0], above[1], below[1]", "above[0], above[1], below[0], below[1]"),
        ),
        "right one transposed": (
            "Your right fragment is transposed. In `{b}`, which of the two, `row` or `k`, counts down?",
            lambda a, b: _product(a, _pieces(b, 8, 8, np.transpose)),
            [
                ("b[k, left]", "b[k - first + row, left - row + first]"),
                ("b[k + 4, left]", "b[k - first + row, left - row + first + 4]"),
            ],
        ),
        "halves of the right one exchanged": (
            "The two registers of the right fragment are exchanged.",
            lambda a, b: _product(a, _pieces(b, 8, 8, _lower_half_first)),
            ("to_tf32(b[k, left]), to_tf32(b[k + 4, left])", "to_tf32(b[k + 4, left]), to_tf32(b[k, left])"),
        ),
        "last step only": (
            "Your sums start from zero in every step. Only the last eight k are left at the end.",
            lambda a, b: _product(a[:, -8:], b[-8:]),
            [("for k in range(", "zero = sums\nfor k in range("), ("right, sums)", "right, zero)")],
        ),
        "first step only": (
            "You multiply the first eight k only. There are `{a}.shape[1]`.",
            lambda a, b: _product(a[:, :8], b[:8]),
            ("a.shape[1], 8", "8, 8"),
        ),
        "first step again": (
            "Every step reads the same eight k. The column of the left fragment and the row of the right one "
            "must move with the step.",
            lambda a, b: _product(np.tile(a[:, :8], a.shape[1] // 8), np.tile(b[:8], (len(b) // 8, 1))),
            lambda a, b: _product(np.tile(a[:, :8], a.shape[1] // 8), b),
            lambda a, b: _product(a, np.tile(b[:8], (len(b) // 8, 1))),
            ("above =", "k = first\nabove ="),
        ),
        "sums exchanged": (
            "The second and the third sum are exchanged. The second belongs to the right of the first, the "
            "third eight rows below.",
            lambda a, b: _pieces(_product(a, b), 16, 8, _sums_exchanged),
            [
                (f"{_UPPER} sums[0], sums[1]", f"{_UPPER} sums[0], sums[2]"),
                (f"{_LOWER} sums[2], sums[3]", f"{_LOWER} sums[1], sums[3]"),
            ],
        ),
        "sums dropped": (
            "Your sums stay zero. `multiply_tf32` returns the new sums, and does not change those that you "
            "pass: `sums = multiply_tf32(left, right, sums)`.",
            lambda a, b: np.zeros((a.shape[0], b.shape[1])),
            ("sums = multiply_tf32(", "multiply_tf32("),
        ),
        "sums added twice": (
            "`multiply_tf32` already adds the sums that you pass, and you add its result to them again.",
            _summed_again,
            [
                ("sums = multiply_tf32(", "new = multiply_tf32("),
                (
                    "right, sums)",
                    "right, sums)\n"
                    "sums = sums[0] + new[0], sums[1] + new[1], sums[2] + new[2], sums[3] + new[3]",
                ),
            ],
        ),
        "steps of one": (
            "Your steps begin one k apart, and overlap. A step takes eight k: go on by 8.",
            _steps_of_one,
            ("range(first, a.shape[1], 8)", "range(first, first + a.shape[1] // 8)"),
        ),
        "result rounded": (
            "You round the result as well. The sums are float32: store them as they are.",
            lambda a, b: _tf32(_product(a, b)),
            [(f"sums[{k}]", f"to_tf32(sums[{k}])") for k in range(4)],
        ),
        "lower rows again": (
            "Your left fragment has rows four apart. Its second and fourth number lie eight rows below.",
            lambda a, b: _product(_pieces(a, 16, 8, lambda piece: piece[[*range(8), *range(4, 12)]]), b),
            ("top + 8, k", "top + 4, k", 2),
        ),
        "first four k again": (
            "Your left fragment has k 0 to 3 twice. Its third and fourth number lie four further on.",
            lambda a, b: _product(_pieces(a, 16, 8, lambda piece: np.tile(piece[:, :4], 2)), b),
            [("a[top, k + 4]", "a[top, k]"), ("a[top + 8, k + 4]", "a[top + 8, k]")],
        ),
        "halves of the result exchanged": (
            "The two halves of your result are exchanged. Which rows do the last two sums belong to?",
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
            "Your second number has more bits than tf32. Round it as well.",
            lambda x: (rounded(x, "tf32"), x - rounded(x, "tf32")),
            (_REST, "x - near"),
        ),
        "sign": (
            "Your two numbers do not add up to `{x}`: the second has the wrong sign.",
            lambda x: (rounded(x, "tf32"), rounded(rounded(x, "tf32") - x, "tf32")),
            ("x - near", "near - x"),
        ),
        "the same twice": (
            "You round `{x}` twice. The second number must be what the first leaves over.",
            lambda x: (rounded(x, "tf32"), rounded(x, "tf32")),
            ("x - near", "x"),
        ),
        "not rounded": (
            "Your first number has more bits than tf32. Round it.",
            lambda x: (x, np.zeros_like(x)),
            ('near = rounded(x, "tf32")', "near = x"),
        ),
        "another format": (
            "You round to another format. Its name is `tf32`.",
            lambda x: (rounded(x, "bfloat16"), rounded(x - rounded(x, "bfloat16"), "bfloat16")),
            lambda x: (rounded(x, "bfloat16"), rounded(x - rounded(x, "bfloat16"), "tf32")),
            lambda x: (rounded(x, "float16"), rounded(x - rounded(x, "float16"), "float16")),
            lambda x: (rounded(x, "float16"), rounded(x - rounded(x, "float16"), "tf32")),
            ('"tf32"', '"bfloat16"', 2),
            ('"tf32"', '"float16"', 2),
        ),
        "cut off": (
            "Your first number is cut off, not rounded: it is not the nearest.",
            lambda x: (_cut(x), rounded(x - _cut(x), "tf32")),
            (
                'near = rounded(x, "tf32")',
                "near = (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)",
            ),
        ),
        "rest of the first": (
            "Your second number is always 0. The rest is what the first leaves over of `{x}`: `{x} - ...`.",
            lambda x: (rounded(x, "tf32"), np.zeros_like(x)),
            ("x - near", "near - near"),
        ),
        "rest in another format": (
            "The rest is rounded to another format. Both numbers must be `tf32`.",
            lambda x: (rounded(x, "tf32"), rounded(x - rounded(x, "tf32"), "bfloat16")),
            lambda x: (rounded(x, "tf32"), rounded(x - rounded(x, "tf32"), "float16")),
            (_REST, 'rounded(x - near, "bfloat16")'),
        ),
        "rest first": (
            "Return the nearest first, then the rest.",
            lambda x: _split(x)[::-1],
            (f"return near, {_REST}", f"return {_REST}, near"),
        ),
    },
)
