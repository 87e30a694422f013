"""The full messages of the checks of notebook 04 for some wrong answers."""

import pytest
from test_exercises import FOUND
from wrong_answers import lines_of

pytestmark = pytest.mark.usefixtures("quickly_compiled")

KERNELS = {found.cells.name: found for found in FOUND if found.path.stem == "04_debugging"}
RIGHT, BOTH = "min(column + 1, width - 1)", "min(column + 1, width - 1), max(column - 1, 0)"
ROOT = "math.sqrt(squares / n + float32(1e-5))"
DIFFERENCE = "squares / n - mean * mean"
SQUARES = ("squares += (x[row, k] - mean) * (x[row, k] - mean)", "squares += x[row, k] * x[row, k]")
FLOAT64 = ("total = squares = float32(0)", "total = squares = 0.0")


@pytest.mark.parametrize(
    "change", [(RIGHT, "column + 1"), (RIGHT, "min(column + 1, width)"), (BOTH, "column + 1, column - 1")]
)
def test_a_right_neighbour_that_does_not_exist(change):
    assert lines_of(KERNELS["edges_kernel"], change) == [
        "The thread has a pixel, but the neighbour that it reads doesn't exist: it reads `image[0, 3]`, and "
        "the last column is 2. Take the pixel itself instead.",
        "That is thread (2, 0) of block 0.",
        "Line 8 of your kernel: `difference = image[row, right] - image[row, left]`",
        "Seen with `image` of shape (2, 3), launched as `[(1, 1), (4, 4)]`.",
    ]


@pytest.mark.parametrize(
    "change",
    [
        [(RIGHT, "column + 1"), ("row < height and column < width", "row <= height and column < width")],
        ("image[row, right] - image[row, left]", "image[right, row] - image[left, row]"),
        ("image[row, right] - image[row, left]", "image[row + 1, right] - image[row, left]"),
    ],
)
def test_other_reads_past_the_edge_have_another_message(change):
    assert "neighbour" not in lines_of(KERNELS["edges_kernel"], change)[0]


def test_an_epsilon_added_to_the_root():
    assert lines_of(KERNELS["standardise_kernel"], (ROOT, "(math.sqrt(squares / n) + float32(1e-5))")) == [
        "You add 0.00001 to the root. Add it to the variance, before you take the root."
    ]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ([SQUARES, ("squares / n", f"max({DIFFERENCE}, 0)")], 1.3125),
        ([SQUARES, ("squares / n", f"abs({DIFFERENCE})")], 1.3125),
        ([FLOAT64, SQUARES, ("squares / n", DIFFERENCE)], 1.05826),
    ],
)
def test_a_variance_that_is_still_a_difference(change, found):
    message, seen, where = lines_of(KERNELS["standardise_kernel"], change)
    assert message == (
        "Your variance is still a difference of two large numbers, so only a few digits are right. Neither "
        "clamping nor sums in float64 restore them. Subtract the mean first, then square."
    )
    assert seen == f"In row 0 it's {found} instead of 1.0665."
    assert where == "Seen with `x` of shape (4, 256), launched as `[3, 2]`."


def test_other_wrong_rows_have_another_message():
    lines = lines_of(KERNELS["standardise_kernel"], ("float32(1e-5)", "float32(1e-3)"))
    assert lines[0].startswith("Entry ")


@pytest.mark.gpu
def test_float64_is_put_down_to_a_python_float():
    lines = lines_of(KERNELS["standardise_kernel"], ("float32(1e-5)", "1e-5"))
    assert lines[1].startswith("A Python float, such as `0.0`, `1e-5` or `math.inf`, is float64")
