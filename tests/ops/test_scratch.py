"""Backends beside their operations: working space for those that need it."""

import copy
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from cnn_numba import device
from cnn_numba.ops.backends import backend
from cnn_numba.ops.scratch import with_scratch, working_space
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.specs import Spec

SIZES = {
    "conv2d": ((2, 1, 5, 5), (3, 1, 2, 2)),
    "linear": (2, 5, 3),
    "attention": ((1, 2, 3, 4), (1, 2, 3, 4)),
    "lstm": (2, 3, 4, 5),
}
FOLDERS = {"conv2d": "conv", "linear": "dense", "attention": "attention", "lstm": "recurrent"}


@pytest.mark.parametrize("name", SIZES)
def test_the_reference_needs_no_working_space(name):
    functions = getattr(backend("reference").ops, FOLDERS[name])
    assert with_scratch(functions, name, *SIZES[name]) is functions


def test_functions_with_working_space_get_the_same_each_time():
    made = []

    def toy_scratch(size):
        made.append(np.zeros(size))
        return made[-1]

    functions = SimpleNamespace(
        toy_scratch=toy_scratch,
        toy_forward=lambda x, *, scratch=None: (x, scratch),
        toy_backward=lambda x: x,
    )
    scratched = with_scratch(functions, "toy", 3)
    for x in (1, 2):
        assert scratched.toy_forward(x) == (x, made[0])
        assert scratched.toy_backward(x) == x
    assert scratched.toy_forward(1, scratch="mine") == (1, "mine")
    assert len(made) == 1
    with pytest.raises(AttributeError, match="toy_sideways"):
        scratched.toy_sideways  # noqa: B018


def test_a_call_with_working_space_allocates_none(monkeypatch):
    cpu = backend("cpu").ops.conv
    scratched = with_scratch(cpu, "conv2d", *SIZES["conv2d"])
    monkeypatch.delattr(cpu, "lay_out")
    x, weight = (np.ones(shape, np.float32) for shape in SIZES["conv2d"])
    assert (scratched.conv2d_forward(x, weight) == 4).all()
    with pytest.raises(NameError, match="lay_out"):
        cpu.conv2d_forward(x, weight)


def test_python_may_look_up_special_names():
    functions = with_scratch(backend("cpu").ops.conv, "conv2d", *SIZES["conv2d"])
    assert copy.copy(functions).conv2d_forward.keywords["scratch"] is functions.scratch
    with pytest.raises(TypeError, match="module"):  # it holds one, and no RecursionError hides that
        copy.deepcopy(functions)


def test_arrays_of_working_space_are_checked_like_arguments():
    functions = backend("cpu").ops.recurrent
    scratch, x = functions.lstm_scratch(*SIZES["lstm"]), np.zeros((2, 3, 4), np.float32)
    weights, out = (
        (np.zeros((20, 4), np.float32), np.zeros((20, 5), np.float32)),
        np.zeros((2, 3, 5), np.float32),
    )
    for change, error, match in (
        ({"joined": scratch.joined.astype(np.float64)}, TypeError, "scratch.joined must have dtype float32"),
        ({"joined": np.asfortranarray(scratch.joined)}, ValueError, "scratch.joined must be C-contiguous"),
        ({"joined": device.zeros((2, 9))}, TypeError, "scratch.joined is an array on the device"),
        ({"joined": scratch.joined.tolist()}, ValueError, r"scratch.joined must be \(2, 9\), got"),
        ({"before": out}, ValueError, "out must not share memory with scratch.before"),
        (
            {"joined": scratch.panels[:18]},
            ValueError,
            "scratch.panels must not share memory with scratch.joined",
        ),
    ):
        with pytest.raises(error, match=match):
            functions.lstm_forward(x, *weights, out=out, scratch=scratch._replace(**change))


def test_working_space_on_the_gpu_shares_no_memory_with_arguments():
    functions = backend("gpu").ops.conv
    arrays = device.zeros((2, 3, 4, 4)), device.zeros((2, 1, 5, 5)), (3, 1, 2, 2)
    scratch = functions.conv2d_scratch(*SIZES["conv2d"])
    its = scratch.parts.reshape(-1)[:12].reshape(3, 1, 2, 2)
    with pytest.raises(ValueError, match=r"grad_weight must not share memory with scratch\.parts"):
        functions.conv2d_backward_weight(*arrays, grad_weight=its, scratch=scratch)


def test_a_declaration_names_the_sizes_of_its_working_space():
    scratch = backend("cpu").ops.recurrent.lstm_scratch, None
    with pytest.raises(TypeError, match=r"lstm_scratch\(\) missing 4 required positional arguments"):
        Spec("x[N]")(HOST, np.zeros(3, np.float32), scratch=scratch)


def test_working_space_says_what_does_not_suffice():
    class Space(NamedTuple):
        most: int
        flag: bool
        how: str
        part: np.ndarray

    @working_space(HOST, Space, lambda most, flag, how, shape: (most, flag, how, np.zeros(shape, np.float32)))
    def toy_scratch(most, flag, how):
        return most, flag, how, (most, 2)

    scratch = toy_scratch(3, flag=True, how="a")
    assert toy_scratch.fit(scratch, 3, True, "a") is scratch
    assert toy_scratch.fit(None, 3, False, "a").part.shape == (3, 2)
    smaller = toy_scratch.fit(scratch, 2, False, "a")
    assert (smaller.most, smaller.part.shape) == (3, (2, 2))
    assert np.shares_memory(smaller.part, scratch.part)
    of_numpy = toy_scratch(np.int64(3), flag=True, how="a")
    assert toy_scratch.fit(of_numpy, np.int64(3), True, "a") is of_numpy
    cut = scratch._replace(part=scratch.part[:1])
    for given, needs, match in (
        (scratch, (4, True, "a"), "scratch.most must be at least 4, got 3"),
        (of_numpy, (np.int64(4), True, "a"), "scratch.most must be at least 4, got 3"),
        (scratch, (3, True, "b"), "scratch.how must be 'b', got 'a'"),
        (scratch._replace(flag=False), (3, True, "a"), "scratch.flag must be True, got False"),
        (cut, (3, True, "a"), "scratch.part must have at least 6 elements, got 2"),
    ):
        with pytest.raises(ValueError, match=f"^{match}: make it with toy_scratch for these arguments$"):
            toy_scratch.fit(given, *needs)
    with pytest.raises(TypeError, match="scratch must come from toy_scratch, got tuple"):
        toy_scratch.fit((3, True), 3, True, "a")
