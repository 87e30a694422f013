"""Messages describe a value, and do not print all of it."""

import ast
from pathlib import Path

import numpy as np
import pytest

from cnn_numba import data, device
from cnn_numba.arguments import shown
from cnn_numba.beyond.onnx import to_onnx
from cnn_numba.beyond.precision.scaling import LossScaler
from cnn_numba.beyond.text.data import decode, encode
from cnn_numba.beyond.text.generation import generate
from cnn_numba.data import Dataset, batches, prepare_digit
from cnn_numba.nn.gradcheck import compare_gradients, gradcheck, numerical_gradient
from cnn_numba.nn.layers import Flatten, Linear
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.backends import backend
from cnn_numba.train.augment import augmentation
from cnn_numba.train.checkpoint import load_checkpoint, load_model, save_checkpoint
from cnn_numba.train.loop import evaluate, fit
from cnn_numba.train.optim import SGD, Adam

ROOT = Path(__file__).parents[1]
# Objects with a short text.
SHORT = {"self", "layer"}
LONG = 400

LARGE = [
    [*range(50_000)],
    tuple(range(50_000)),
    "long " * 50_000,
    b"long " * 50_000,
    10**50_000,
    dict.fromkeys(range(50_000)),
    {*range(50_000)},
    [[0.5] * 1000] * 1000,
    np.zeros((100, 100)),
    np.full(3, "long " * 1000),
    np.zeros(2, [(f"field{i}", int) for i in range(2000)]),
    np.ma.zeros(5000),
    [np.zeros(100)] * 100,
    type("Long", (), {"__repr__": lambda self: "lines\n" * 1000})(),
]
IDS = [f"{type(value).__name__}{i}" for i, value in enumerate(LARGE)]
each_large_value = pytest.mark.parametrize("value", LARGE, ids=IDS)


@each_large_value
def test_a_large_value_is_shown_in_a_short_line(value):
    text = shown(value)
    assert len(text) < 250
    assert "\n" not in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", "'1'"),
        ((1, 2.5, None), "(1, 2.5, None)"),
        ([0] * 6, "[0, 0, 0, 0, 0, ...], a list of 6"),
        (np.arange(6), "ndarray of shape (6,) and dtype int64: 0, 1, 2, 3, 4, ..."),
        (np.float32([[1.5]]), "ndarray of shape (1, 1) and dtype float32: 1.5"),
        (np.array(3), "ndarray of shape () and dtype int64: 3"),
        (np.empty((0, 2)), "ndarray of shape (0, 2) and dtype float64"),
        pytest.param(10**5000, "an int of 16610 bits", id="huge"),
    ],
)
def test_shown_values(value, expected):
    assert shown(value) == expected


def test_no_values_of_device_arrays_are_fetched():
    array = device.zeros((2, 3))
    assert shown(array) == f"{type(array).__name__} of shape (2, 3) and dtype float32"


IMAGES, LABELS = np.zeros((4, 1, 2, 2), np.uint8), np.zeros(4, np.int32)
DATASET = Dataset("toy", IMAGES, LABELS, IMAGES, LABELS)


def network():
    return Sequential([Flatten(), Linear(4, 2)], (1, 2, 2), batch_size=2)


# Functions with arguments that are no arrays, beside layers, optimisers and operations.
CALLS = {
    "fit model": lambda value: fit(value, DATASET, None),
    "fit dataset": lambda value: fit(network(), value, None),
    "fit optimizer": lambda value: fit(network(), DATASET, value),
    **{
        f"fit {name}": lambda value, name=name: (
            lambda model: fit(model, DATASET, SGD(model), **{"progress": False, name: value})
        )(network())
        for name in (
            *("epochs", "schedule", "seed", "resume", "progress", "log", "on_step", "graph", "augment"),
            *("workers", "scaler", "label_smoothing", "out"),
        )
    },
    "evaluate model": lambda value: evaluate(value, IMAGES, LABELS),
    "evaluate images": lambda value: evaluate(network(), value, LABELS),
    "evaluate labels": lambda value: evaluate(network(), IMAGES, value),
    "evaluate mean": lambda value: evaluate(network(), IMAGES, LABELS, value),
    "evaluate std": lambda value: evaluate(network(), IMAGES, LABELS, 0.0, value),
    "evaluate workers": lambda value: evaluate(network(), IMAGES, LABELS, workers=value),
    "forward training": lambda value: network().forward(np.zeros((1, 1, 2, 2), np.float32), value),
    "forward x": lambda value: network().forward(value),
    "SGD model": SGD,
    "LossScaler model": LossScaler,
    "Adam betas": lambda value: Adam(network(), betas=value),
    "to_onnx model": to_onnx,
    "to_onnx pixels": lambda value: to_onnx(network(), value),
    "generate model": lambda value: generate(value, "a"),
    "device.empty shape": device.empty,
    "device.zeros shape": device.zeros,
    "device.pinned shape": device.pinned,
    "batches count": lambda value: batches(value, 2),
    "batches batch_size": lambda value: batches(2, value),
    "backend device": backend,
    "load set": data.load,
    "batches generator": lambda value: batches(2, 2, value),
    "encode text": encode,
    "decode number": lambda value: decode([value]),
    "augmentation shape": lambda value: augmentation("crop", value, 0),
    "augmentation seed": lambda value: augmentation("crop", (1, 2, 2), value),
    "save_checkpoint model": lambda value: save_checkpoint("none.npz", value),
    **{
        f"save_checkpoint {name}": lambda value, name=name: save_checkpoint(
            "none.npz", network(), **{name: value}
        )
        for name in ("optimizer", "progress", "scaler")
    },
    "save_checkpoint path": lambda value: save_checkpoint(value, network()),
    "load_checkpoint path": load_checkpoint,
    "load_model path": load_model,
    "prepare_digit image": prepare_digit,
    "gradcheck function": lambda value: gradcheck(value, np.ones(2), np.ones(2)),
    "gradcheck gradient": lambda value: gradcheck(np.sum, np.ones(2), value),
    "gradcheck output": lambda value: gradcheck(lambda x: value, np.ones(2), np.ones(2)),
    "choose device": device.choose,
    "compare_gradients rtol": lambda value: compare_gradients([1], [1], rtol=value),
    "compare_gradients atol": lambda value: compare_gradients([1], [1], atol=value),
    "numerical_gradient array": lambda value: numerical_gradient(np.sum, value),
    "numerical_gradient epsilon": lambda value: numerical_gradient(np.sum, np.ones(2), epsilon=value),
    "check_array array": lambda value: device.arrays.check_array("array", value, (3, 3, 3)),
    "check_device_array array": lambda value: device.arrays.check_device_array("array", value, (3,)),
}


# Valid arguments.
ACCEPTED = {
    **dict.fromkeys(("fit log", "fit on_step", "fit scaler", "to_onnx pixels", "load set"), type(None)),
    **dict.fromkeys(("batches generator", "save_checkpoint optimizer", "save_checkpoint scaler"), type(None)),
    "save_checkpoint progress": (type(None), dict),
    **dict.fromkeys(("fit seed", "augmentation seed", "evaluate mean"), int),
    **dict.fromkeys(("save_checkpoint path", "load_checkpoint path", "load_model path"), str),
    "fit out": (str, type(None)),
    "prepare_digit image": (str, np.ndarray),
    "gradcheck output": int,
    "encode text": str,
    "numerical_gradient array": np.ndarray,
}
WRONG = [None, "1", -1, float("nan"), object(), [], *LARGE]


@pytest.mark.parametrize("value", WRONG, ids=[f"{type(value).__name__}{i}" for i, value in enumerate(WRONG)])
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_named_in_a_short_message(call, value):
    a_scalar = call.startswith("device.") and isinstance(value, list) and not value  # its shape has no axis
    if isinstance(value, ACCEPTED.get(call, ())) or a_scalar:
        return
    with pytest.raises((TypeError, ValueError)) as caught:
        CALLS[call](value)
    message = str(caught.value)
    assert call.rpartition(" ")[2] in message, message
    assert len(message) < LONG


def test_messages_show_values_by_one_function():
    """`{value!r}` would print a whole list."""
    for path in sorted((ROOT / "cnn_numba").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FormattedValue) and node.conversion == ord("r"):
                assert ast.unparse(node.value) in SHORT, f"{path}, line {node.lineno}"
