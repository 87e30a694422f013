"""The full messages of the checks of notebook 05 for some wrong answers."""

import pytest
from test_exercises import FOUND
from wrong_answers import lines_of

pytestmark = pytest.mark.usefixtures("quickly_compiled")

KERNELS = {found.cells.name: found for found in FOUND if found.path.stem == "05_pooling_and_softmax"}
START, LARGER = "largest, total = logits[row, 0]", "largest = max(largest, logits[row, k])"
ADD = "total += math.exp(logits[row, k] - largest)"
LOOPS = f"for k in range(1, logits.shape[1]):\n    {LARGER}\nfor k in range(logits.shape[1]):\n    {ADD}"
FIRST = "x[plane, top, left], top * x.shape[2] + left"

ANOTHER_ROW = (
    "You subtract a number from another row. Each row needs its own maximum: start the search from "
    "`logits[row, 0]`, and go on with `logits[row, k]`."
)
IN_THE_SEARCH = (
    "You start the sum before you know the maximum, so its first terms use another one. Use one loop for "
    "the maximum, and a second for the sum."
)
PYTHON_FLOAT = (
    "A Python float, such as `0.0`, `1e-5` or `math.inf`, is float64, and so is what is computed with it."
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((START, "largest, total = logits[0, 0]"), ANOTHER_ROW),
        ((LARGER, "largest = max(largest, logits[0, k])"), ANOTHER_ROW),
        ((LOOPS, f"for k in range(logits.shape[1]):\n    {LARGER}\n    {ADD}"), IN_THE_SEARCH),
        ((LOOPS, f"for k in range(logits.shape[1]):\n    {ADD}\n    {LARGER}"), IN_THE_SEARCH),
        (
            ("math.exp(logits[row, k] - largest) / total", "math.exp(logits[row, k]) / total"),
            "You subtract the maximum in the sum, but not in the numerator. Subtract it in both.",
        ),
        (
            (f"    {ADD}", f"    {ADD.replace(' - largest', '')}"),
            "You subtract the maximum in the numerator, but not in the sum. Subtract it in both.",
        ),
    ],
)
def test_softmax(change, message):
    assert lines_of(KERNELS["softmax_kernel"], change)[0] == message


def test_a_pool_that_starts_from_minus_infinity_and_place_0():
    message, seen = lines_of(KERNELS["max_pool_kernel"], (FIRST, "float32(-math.inf), 0"))
    assert message.endswith("Start with the place of the window's first pixel.")
    assert seen == "`argmax[0, 0, 2]` is 0 where 4 is right."


def test_a_pool_that_starts_from_0_gets_advice_about_the_place():
    (message,) = lines_of(KERNELS["max_pool_kernel"], (FIRST, "float32(0), 0"))
    assert "or from `float32(-math.inf)`. Either way, start the place at the window's first pixel." in message


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ((FIRST, "float32(-999), 0"), "out"),
        (("[plane, oh, ow] = where", "[plane, oh, ow] = where + 7"), "argmax"),
    ],
)
def test_wrong_numbers_name_their_array(change, name):
    assert f"That is in `{name}`." in lines_of(KERNELS["max_pool_kernel"], change)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "change",
    [
        [(START, "largest, total = -math.inf"), ("range(1, ", "range(")],
        ("math.exp(logits[row, k] - largest)", "math.e ** (logits[row, k] - largest)", 2),
        ("float32(0)", "0.0"),
    ],
)
def test_float64_is_put_down_to_a_python_float(change):
    assert PYTHON_FLOAT in lines_of(KERNELS["softmax_kernel"], change)
