"""Declarations of an operation's arguments: what they accept, and the messages of their errors."""

import re

import numpy as np
import pytest

from cnn_numba.ops._reference import ANYTHING
from cnn_numba.ops.shapes import DEVICE, HOST
from cnn_numba.ops.specs import Spec

DENSE = Spec("x[N in], weight[out in], bias?[out] -> y[N out]", filled="in")
WINDOW = Spec("shape(N C H W), g[N C H_out W_out] -> x[N C H W]", computed="H_out W_out")


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def test_missing_outputs_are_allocated():
    x, weight, bias, y = DENSE(HOST, ones(2, 3), ones(4, 3), None, None)
    assert (x.shape, weight.shape, bias) == ((2, 3), (4, 3), None)
    assert (y.shape, y.dtype) == ((2, 4), np.float32)
    assert DENSE(HOST, ones(2, 3), ones(4, 3), None, y)[-1] is y
    assert DEVICE.empty((2,), np.int32).dtype == np.int32


def test_a_definition_gets_float64_and_no_output():
    x, weight, bias, y = DENSE(ANYTHING, [[1, 2, 3]], ones(4, 3)[:, ::-1], ones(4), None)
    assert x.dtype == weight.dtype == bias.dtype == np.float64
    assert y is None


@pytest.mark.parametrize("memory", [HOST, ANYTHING], ids=["host", "anything"])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2,), (4, 3), None, None), "x must have shape (N, in), got (2,)"),
        (((2, 3), (4, 2), None, None), "weight must have shape (out, 3), got (4, 2): x has in = 3"),
        (((2, 3), (4,), None, None), "weight must have shape (out, 3), got (4,): x has in = 3"),
        (((2, 3), (4, 3), (3,), None), "bias must have shape (4,), got (3,): weight has out = 4"),
        (
            ((2, 3), (4, 3), None, (3, 5)),
            "y must have shape (2, 4), got (3, 5): x has N = 2, weight has out = 4",
        ),
        (((2, 0), (4, 0), None, None), "x must not be empty, got shape (2, 0): in is 0"),
    ],
)
def test_messages_name_the_source_of_a_size(memory, shapes, message):
    arrays = [None if shape is None else ones(*shape) for shape in shapes]
    for _ in range(2):  # rejected arrays do not count as known
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            DENSE(memory, *arrays)


def test_the_type_of_known_arrays_is_checked_again():
    DENSE(HOST, ones(2, 3), ones(4, 3), None, None)
    with pytest.raises(TypeError, match="weight must have dtype float32, got float64"):
        DENSE(HOST, ones(2, 3), ones(4, 3, dtype=np.float64), None, None)
    square = ones(3, 3)
    with pytest.raises(ValueError, match="y must not share memory with x"):
        DENSE(HOST, square, ones(3, 3), None, square)


def test_known_shapes_do_not_excuse_other_arguments():
    x, weight, bias, y = ones(2, 3), ones(3, 3), ones(3), ones(2, 3)
    assert DENSE(HOST, x, weight, bias, y)[-1] is y
    for _ in range(2):
        with pytest.raises(ValueError, match="precision must be one of"):
            DENSE(HOST, x, weight, bias, y, precision="float8")
        with pytest.raises(ValueError, match="y must not share memory with x"):
            DENSE(HOST, x, weight, bias, x)
        with pytest.raises(TypeError, match="x is an array on the host"):
            DENSE(DEVICE, x, weight, bias, y)
        assert DENSE(ANYTHING, x, weight, bias, y)[0].dtype == np.float64
        made = DENSE(HOST, x, weight, None, None)[-1]
        assert made is not DENSE(HOST, x, weight, None, None)[-1]


def test_equal_shapes_of_other_types_are_checked_again():
    g, x = ones(1, 1, 1, 1), ones(1, 1, 2, 2)
    for _ in range(2):
        assert WINDOW(HOST, (1, 1, 2, 2), g, x, window=(1, 0, 2))[-1].out == (1, 1)
    with pytest.raises(TypeError, match="shape must be"):
        WINDOW(HOST, (True, 1, 2, 2), g, x, window=(1, 0, 2))
    with pytest.raises(TypeError, match="stride must be"):
        WINDOW(HOST, (1, 1, 2, 2), g, x, window=(True, 0, 2))
    with pytest.raises(TypeError, match="stride must be"):
        WINDOW(HOST, (1, 1, 2, 2), g, x, window=(1.0, 0, 2))
    assert WINDOW(HOST, [1, 1, 2, 2], g, x, window=(1, 0, (2, 2)))[0] == (1, 1, 2, 2)
    with pytest.raises(ValueError, match="g must have shape"):
        WINDOW(HOST, (1, 1, 2, 2), g, x, window=(1, 0, 1))


def test_further_axes_and_numbers():
    spec = Spec("x[N C ...], two[2] -> y[N ...]")
    assert spec(HOST, ones(2, 3, 4, 5), ones(2), None)[-1].shape == (2, 4, 5)
    assert spec(HOST, ones(2, 3), ones(2), None)[-1].shape == (2,)
    with pytest.raises(ValueError, match=re.escape("x must have shape (N, C, ...), got (3,)")):
        spec(HOST, ones(3), ones(2), None)
    with pytest.raises(ValueError, match=re.escape("two must have shape (2,), got (3,)")):
        spec(HOST, ones(2, 3), ones(3), None)
    message = "y must have shape (2, 4, 5), got (2, 5, 4): x has ... = (4, 5)"
    with pytest.raises(ValueError, match=re.escape(message)):
        spec(HOST, ones(2, 3, 4, 5), ones(2), ones(2, 5, 4))


def test_an_axis_may_be_a_multiple():
    spec = Spec("gates[N 4H], weight[4H H] -> h[N H]", filled="H")
    assert spec(HOST, ones(2, 12), ones(12, 3), None)[-1].shape == (2, 3)
    for shape, weight, message in (
        ((2, 13), (12, 3), "gates must have shape (N, 4H), got (2, 13)"),
        ((2, 12), (12, 4), "weight must have shape (12, 3), got (12, 4): gates has H = 3"),
        ((2, 12), (16, 4), "weight must have shape (12, 3), got (16, 4): gates has H = 3"),
        ((2, 0), (0, 0), "gates must not be empty, got shape (2, 0): H is 0"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            spec(HOST, ones(*shape), ones(*weight), None)


def test_any_number_of_leading_axes():
    spec = Spec("w[F ...], x[samples... F ...] -> mean[samples...]", filled="samples...")
    assert spec(HOST, ones(4, 5), ones(2, 3, 4, 5), None)[-1].shape == (2, 3)
    assert spec(HOST, ones(4), ones(2, 4), None)[-1].shape == (2,)
    assert spec(HOST, ones(4, 5), ones(4, 5), None)[-1].shape == ()
    for w, x, message in (
        ((5, 5), (2, 4, 5), "x must have shape (samples..., 5, 5), got (2, 4, 5): w has F = 5"),
        ((4, 5), (5,), "x must have shape (samples..., 4, 5), got (5,): w has F = 4 and ... = (5,)"),
        ((4, 5), (2, 0, 4, 5), "x must not be empty, got shape (2, 0, 4, 5): samples... is (2, 0)"),
        ((), (4,), "w must have shape (F, ...), got ()"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            spec(HOST, ones(*w), ones(*x), None)
    message = "mean must have shape (2, 3), got (2,): x has samples... = (2, 3)"
    with pytest.raises(ValueError, match=re.escape(message)):
        spec(HOST, ones(4), ones(2, 3, 4), ones(2))


def test_arrays_updated_in_place_are_no_other_input():
    spec = Spec("p![P], g[P], count!:int32[1]")
    p = ones(3)
    assert spec(HOST, p, ones(3), ones(1, dtype=np.int32))[0] is p
    with pytest.raises(ValueError, match="p must not share memory with g"):
        spec(HOST, p, p, ones(1, dtype=np.int32))
    with pytest.raises(TypeError, match="p must be an array, got NoneType: None"):
        spec(HOST, None, p, ones(1, dtype=np.int32))
    p.flags.writeable = False
    with pytest.raises(ValueError, match="p must be writeable"):
        spec(HOST, p, ones(3), ones(1, dtype=np.int32))


@pytest.mark.parametrize("memory", [HOST, ANYTHING], ids=["host", "anything"])
def test_computed_axes_come_from_the_window(memory):
    *_, window = WINDOW(memory, (1, 2, 5, 6), ones(1, 2, 3, 4), None, window=(1, 0, 3))
    assert window.out == (3, 4)
    message = "g must have shape (1, 2, 2, 2), got (1, 2, 3, 4): the window has H_out = 2 and W_out = 2"
    with pytest.raises(ValueError, match=re.escape(message)):
        WINDOW(memory, (1, 2, 5, 6), ones(1, 2, 3, 4), None, window=(2, 0, 3))
    with pytest.raises(TypeError, match=re.escape("shape must be (N, C, H, W) of ints")):
        WINDOW(memory, (True, 2, 5, 6), ones(1, 2, 3, 4), None, window=(1, 0, 3))
    with pytest.raises(TypeError, match="stride must be an int or a pair of ints, got True"):
        WINDOW(memory, (1, 2, 5, 6), ones(1, 2, 3, 4), None, window=(True, 0, 3))


def test_settings_are_checked_by_their_names():
    with pytest.raises(ValueError, match=r"precision must be one of float32, .*, got 'float8'"):
        DENSE(HOST, ones(2, 3), ones(4, 3), None, None, precision="float8")
