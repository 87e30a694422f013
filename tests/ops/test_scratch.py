"""Backends beside their operations: working space for those that need it."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

from cnn_numba.ops.backends import backend
from cnn_numba.ops.scratch import with_scratch

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
