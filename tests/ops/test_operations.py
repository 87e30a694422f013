"""Rules for every operation in every backend: shared memory, and plain arrays."""

import ast
import importlib
import inspect
import itertools
import re
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
from helpers import arguments

from benchmarks.rungs import conv_constant, conv_naive, conv_tiled, matmul, matmul_tensor, max_pool
from cnn_numba import beyond, device, ops
from cnn_numba.ops.backends import backend
from cnn_numba.ops.conv import reference as conv_reference
from cnn_numba.ops.dense import reference as dense_reference
from cnn_numba.ops.pool import reference as pool_reference
from cnn_numba.ops.specs import Spec

#: Rungs that the package does not run, and the place of their contracts.
RUNGS = {
    **dict.fromkeys((conv_constant, conv_naive, conv_tiled), conv_reference),
    **dict.fromkeys((matmul, matmul_tensor), dense_reference),
    max_pool: pool_reference,
}


class Case(NamedTuple):
    """An operation's arrays by name, and the inputs that its output may overwrite."""

    written: dict
    read: dict
    options: dict = MappingProxyType({})
    may_be: tuple = ()


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def positive(*shape):
    return np.abs(normal(*shape)) + np.float32(0.5)


def integers(*shape, dtype=np.int32):
    return (np.arange(np.prod(shape)) % 2).astype(dtype).reshape(shape)


IMAGES, PLANES, CHANNELS = (2, 2, 4, 4), (2, 2, 2, 2), (2,)
NAMED = {name: positive(*CHANNELS) for name in ("weight", "bias", "running_mean", "running_var")}
BATCH_STATISTICS = {name: positive(*CHANNELS) for name in ("mean", "inv_std")}
SAMPLE_STATISTICS = {name: positive(4) for name in ("mean", "inv_std")}
GRADIENTS = {"grad_input": IMAGES, "grad_weight": CHANNELS, "grad_bias": CHANNELS}
ARENAS = {name: positive(6) for name in ("parameters", "exp_avg", "exp_avg_sq")}
MOMENTUM = {name: positive(6) for name in ("parameters", "velocity")}
SCHEDULE, ADVANCED = {"rates": positive(2, 2), "cursor": integers(1)}, {"advances": integers(1)}
DATA = {"images": integers(3, 1, 2, 2, dtype=np.uint8), "labels": integers(3)}
NORMALISED = {"mean": 0.5, "std": 0.25}
AUGMENTED = {"padding": 1, "flip": True}
ELEMENTWISE = Case({"out": normal(6)}, {"x": normal(6)}, may_be=("x",))
ELEMENTWISE_BACK = Case(
    {"grad_input": normal(6)}, {"grad_output": positive(6), "out": normal(6)}, may_be=("grad_output", "out")
)
HEADS = (2, 1, 3, 4)
QUERIES = {name: normal(*HEADS) + np.float32(i) for i, name in enumerate("qkv")}
HEAD_GRADIENTS = {f"grad_{name}": normal(*HEADS) for name in "qkv"}
WINDOWS = {"x": integers(2, 3), "y": integers(6)}
SCORES = {"logits": normal(3, 4), "labels": integers(3)}

CASES = {
    "relu_forward": ELEMENTWISE,
    "sigmoid_forward": ELEMENTWISE,
    "gelu_forward": ELEMENTWISE,
    "tanh_forward": ELEMENTWISE,
    "relu_backward": ELEMENTWISE_BACK,
    "sigmoid_backward": ELEMENTWISE_BACK,
    "tanh_backward": ELEMENTWISE_BACK,
    "gelu_backward": Case(
        {"grad_input": normal(6)}, {"grad_output": positive(6), "x": normal(6)}, may_be=("grad_output", "x")
    ),
    "add_forward": Case({"out": normal(6)}, {"a": normal(6), "b": positive(6)}, may_be=("a", "b")),
    "conv2d_forward": Case(
        {"out": normal(2, 2, 4, 4)},
        {"x": normal(2, 2, 4, 4), "weight": normal(2, 2, 3, 3), "bias": normal(2)},
        {"padding": 1},
    ),
    "conv2d_backward_input": Case(
        {"grad_input": normal(2, 2, 4, 4)},
        {"grad_output": normal(2, 2, 4, 4), "weight": normal(2, 2, 3, 3)},
        {"padding": 1, "input_shape": IMAGES},
    ),
    "conv2d_backward_weight": Case(
        {"grad_weight": normal(2, 2, 3, 3)},
        {"grad_output": normal(2, 2, 4, 4), "x": normal(2, 2, 4, 4)},
        {"padding": 1, "weight_shape": (2, 2, 3, 3)},
    ),
    "conv2d_backward_bias": Case({"grad_bias": normal(2)}, {"grad_output": normal(*IMAGES)}),
    "max_pool2d_forward": Case(
        {"out": normal(*PLANES), "argmax": integers(*PLANES)}, {"x": normal(*IMAGES)}, {"kernel_size": 2}
    ),
    "max_pool2d_backward": Case(
        {"grad_input": normal(*IMAGES)},
        {"grad_output": normal(*PLANES), "argmax": integers(*PLANES)},
        {"input_shape": IMAGES},
    ),
    "avg_pool2d_forward": Case({"out": normal(*PLANES)}, {"x": normal(*IMAGES)}, {"kernel_size": 2}),
    "avg_pool2d_backward": Case(
        {"grad_input": normal(*IMAGES)},
        {"grad_output": normal(*PLANES)},
        {"kernel_size": 2, "input_shape": IMAGES},
    ),
    "linear_forward": Case(
        {"out": normal(4, 4)}, {"x": normal(4, 4), "weight": normal(4, 4), "bias": normal(4)}
    ),
    "linear_backward_input": Case(
        {"grad_input": normal(4, 4)}, {"grad_output": normal(4, 4), "weight": normal(4, 4)}
    ),
    "linear_backward_weight": Case(
        {"grad_weight": normal(4, 4)}, {"grad_output": normal(4, 4), "x": normal(4, 4)}
    ),
    "linear_backward_bias": Case({"grad_bias": normal(4)}, {"grad_output": normal(4, 4)}),
    "linear_backward": Case(
        {"grad_input": normal(4, 4), "grad_weight": normal(4, 4), "grad_bias": normal(4)},
        {name: normal(4, 4) for name in ("grad_output", "x", "weight")},
    ),
    "matmul": Case({"out": normal(4, 4)}, {"a": normal(4, 4), "b": normal(4, 4)}),
    "matmul_float16": Case({"out": normal(4, 4)}, {name: normal(4, 4).astype(np.float16) for name in "ab"}),
    "batch_norm2d_forward": Case(
        {
            **{k: NAMED[k] for k in ("running_mean", "running_var")},
            "out": normal(*IMAGES),
            **BATCH_STATISTICS,
        },
        {"x": normal(*IMAGES), **{k: NAMED[k] for k in ("weight", "bias")}},
    ),
    "batch_norm2d_backward": Case(
        {name: normal(*shape) for name, shape in GRADIENTS.items()},
        {
            **{name: normal(*IMAGES) for name in ("grad_output", "x")},
            "weight": normal(2),
            **BATCH_STATISTICS,
        },
    ),
    "layer_norm_forward": Case(
        {"out": normal(4, 4), **SAMPLE_STATISTICS},
        {name: normal(*shape) for name, shape in {"x": (4, 4), "weight": (4,), "bias": (4,)}.items()},
    ),
    "layer_norm_backward": Case(
        {"grad_input": normal(4, 4), "grad_weight": normal(4), "grad_bias": normal(4)},
        {
            **{name: normal(4, 4) for name in ("grad_output", "x")},
            "weight": normal(4),
            **SAMPLE_STATISTICS,
        },
    ),
    "lstm_forward": Case(
        {
            **{"out": normal(2, 3, 2), "h_n": normal(2, 2), "c_n": normal(2, 2)},
            **{"cells": normal(2, 3, 2), "gates": normal(2, 3, 8)},
        },
        {
            **{"x": normal(2, 3, 4), "weight_ih": normal(8, 4), "weight_hh": normal(8, 2)},
            **{name: normal(8) for name in ("bias_ih", "bias_hh")},
            **{name: normal(2, 2) for name in ("h0", "c0")},
        },
    ),
    "lstm_backward": Case(
        {"grad_gates": normal(2, 3, 8), **{name: normal(2, 2) for name in ("grad_h0", "grad_c0")}},
        {
            **{"grad_output": normal(2, 3, 2), "weight_hh": normal(8, 2)},
            **{"cells": normal(2, 3, 2), "gates": positive(2, 3, 8)},
            **{name: normal(2, 2) for name in ("c0", "grad_h_n", "grad_c_n")},
        },
    ),
    "lstm_backward_weight": Case(
        {"grad_weight_ih": normal(8, 4), "grad_weight_hh": normal(8, 2)},
        {"grad_gates": normal(2, 3, 8), "x": normal(2, 3, 4), "out": normal(2, 3, 2), "h0": normal(2, 2)},
    ),
    "attention_forward": Case({"out": normal(*HEADS), "log_sum_exp": normal(2, 1, 3)}, QUERIES),
    "attention_backward": Case(
        HEAD_GRADIENTS,
        {"grad_output": normal(*HEADS), "out": normal(*HEADS), "log_sum_exp": positive(2, 1, 3), **QUERIES},
    ),
    "attention_weights": Case({"out": normal(2, 1, 3, 3)}, {key: QUERIES[key] for key in "qk"}),
    "split_heads": Case({"out": normal(2, 1, 2, 3, 2)}, {"x": normal(1, 3, 2, 2, 2)}),
    "merge_heads": Case({"out": normal(1, 3, 2, 2, 2)}, {"x": normal(2, 1, 2, 3, 2)}),
    "embedding_forward": Case(
        {"out": normal(2, 3, 4)},
        {"tokens": integers(2, 3), "weight": normal(2, 4), "positions": normal(3, 4)},
    ),
    "embedding_backward": Case(
        {"grad_weight": normal(2, 4)}, {"grad_output": normal(2, 3, 4), "tokens": integers(2, 3)}
    ),
    "gather_windows": Case(
        WINDOWS,
        {"text": integers(9, dtype=np.uint8), "indices": integers(2, dtype=np.int64)},
        {"stride": 2},
    ),
    "gather_windows_at": Case(
        WINDOWS,
        {
            "text": integers(9, dtype=np.uint8),
            "order": integers(3, dtype=np.int64),
            "cursor": np.zeros(1, np.int32),
        },
        {"stride": 2},
    ),
    "cross_entropy_forward": Case({"losses": normal(3), "probabilities": normal(3, 4)}, SCORES),
    "cross_entropy_backward": Case(
        {"grad_logits": normal(3, 4)},
        {"probabilities": positive(3, 4), "labels": integers(3)},
        may_be=("probabilities",),
    ),
    "cross_entropy_forward_backward": Case({"losses": normal(3), "grad_logits": normal(3, 4)}, SCORES),
    "accumulate_metrics": Case({"totals": np.zeros(2)}, {"losses": positive(3), **SCORES}),
    "sgd_update": Case(MOMENTUM, {"gradients": normal(6)}, {"lr": 0.1, "momentum": 0.9}),
    "sgd_update_scheduled": Case(
        {**MOMENTUM, **ADVANCED}, {"gradients": normal(6), **SCHEDULE}, {"momentum": 0.9}
    ),
    "adam_update": Case(ARENAS, {"gradients": normal(6)}, {"step": 1, "lr": 0.1}),
    "adam_update_scheduled": Case({**ARENAS, **ADVANCED}, {"gradients": normal(6), **SCHEDULE}),
    "scale_gradient": Case(
        {"out": normal(6)}, {"gradient": normal(6), "scale": positive(1)}, may_be=("gradient",)
    ),
    "unscale_gradients": Case(
        {"gradients": normal(6), "found_inf": np.zeros(1, np.int32)}, {"scale": positive(1)}
    ),
    "update_loss_scale": Case(
        {"scale": positive(1), **{name: integers(1) for name in ("good_steps", "skipped", "found_inf")}}, {}
    ),
    "scheduled_rates": Case(
        {"taken": integers(1), "row": normal(1, 2), "row_cursor": integers(1)},
        {
            "rates": positive(2, 2),
            "corrections": positive(2, 2),
            "cursor": integers(1),
            "found_inf": integers(1),
        },
    ),
    "gather_batch": Case(
        {"out": normal(2, 1, 2, 2)},
        {"images": DATA["images"], "indices": integers(2, dtype=np.int64)},
        NORMALISED,
    ),
    "gather_augmented": Case(
        {"out": normal(2, 1, 2, 2)},
        {"images": DATA["images"], "indices": integers(2, dtype=np.int64)},
        {**NORMALISED, **AUGMENTED, "seed": 3, "epoch": 1},
    ),
    "gather_augmented_at": Case(
        {"x": normal(2, 1, 2, 2), "y": integers(2)},
        {
            **DATA,
            "order": integers(3, dtype=np.int64),
            "cursor": np.zeros(1, np.int32),
            "draw": np.array([3, 1], np.uint32),
        },
        {**NORMALISED, **AUGMENTED},
    ),
    "gather_labels": Case(
        {"out": integers(2)}, {"labels": DATA["labels"], "indices": integers(2, dtype=np.int64)}
    ),
    "gather_batch_at": Case(
        {"x": normal(2, 1, 2, 2), "y": integers(2), **ADVANCED},
        {**DATA, "order": integers(3, dtype=np.int64), "cursor": np.zeros(1, np.int32)},
        NORMALISED,
    ),
}

# Not in the table: arguments that are no arrays, and working space, which nobody makes by hand.
SETTINGS = {
    *(
        "stride",
        "padding",
        "scratch",
        "relu",
        "tile",
        "training",
        "momentum",
        "eps",
        "weight_decay",
        "nesterov",
    ),
    *("beta1", "beta2", "transpose_a", "transpose_b", "batch_size", "launch", "causal", "precision"),
    *("growth", "backoff", "interval", "label_smoothing"),
}
# Functions of the backends that write no array, or take no other.
WRITE_NOTHING = {
    *("conv_cpu", "correlate_cpu", "conv2d_scratch", "linear_scratch", "attention_scratch", "lstm_scratch"),
    *("sgd_rates", "adam_rates", "advance"),
}


def case_of(name):
    """Return the case of an operation; that of a rung is the longest name it begins with."""
    return CASES.get(max((stem for stem in CASES if name.startswith(stem)), key=len, default=None))


def public_functions():
    """Return (module, name) of the public functions in all backends of all operations, rungs included."""
    not_operations = "constant_kernel", "shared_bytes"
    found = [(module, name) for module in RUNGS for name in _defined_in(module) if name not in not_operations]
    folders = {path.parent.name for package in (ops, beyond) for path in folder_of(package).glob("*/gpu.py")}
    folders -= {"fused"}  # chains are no operation of every backend; their tests are in `test_fused*.py`
    for operation in sorted(folders):
        for name in ("reference", "cpu", "gpu"):
            module = getattr(backend(name).ops, operation)
            # Another file may define what a backend offers: what the reference has too, and working space.
            known = {*_defined_in(module), *_defined_in(getattr(backend("reference").ops, operation))}
            functions = [name for name, _ in inspect.getmembers(module, inspect.isfunction)]
            found += [(module, each) for each in functions if each in known or each.endswith("_scratch")]
    assert all(folders == backend(name).ops.names() - {"fused"} for name in ("cpu", "gpu"))
    return found


def _defined_in(module):
    functions = inspect.getmembers(module, inspect.isfunction)
    return [name for name, f in functions if f.__module__ == module.__name__ and not name.startswith("_")]


def folder_of(package):
    return Path(package.__file__).parent


def for_each(functions):
    """Run a test for each (module, name)."""
    ids = [f"{module.__name__.split('.', 2)[2]}.{name}" for module, name in functions]
    return pytest.mark.parametrize(("module", "name"), functions, ids=ids)


PUBLIC = public_functions()
OPERATIONS = [(module, name) for module, name in PUBLIC if name not in WRITE_NOTHING]
every_operation = for_each(OPERATIONS)


@every_operation
def test_the_table_knows_every_argument(module, name):
    case = case_of(name)
    assert case, f"{name} is new: add it to CASES, or to WRITE_NOTHING if it writes into no array"
    known = {*case.written, *case.read, *case.options}
    parameters = set(inspect.signature(getattr(module, name)).parameters)
    assert known <= parameters
    assert parameters - known <= SETTINGS


def test_rungs_are_found():
    names = [name for _, name in OPERATIONS]
    assert names.count("relu_forward") == 3
    assert {"matmul_split", "conv2d_forward_tiled"} <= set(names)


# ------------------------------------------------------------------------------------------------ contracts

# "Returns" is for results beside the outputs.
CONTRACT = {"Parameters", "Examples"}


def reference_of(module):
    """Return the reference backend beside a backend, or itself."""
    return RUNGS.get(module) or importlib.import_module(f"{module.__package__}.reference")


def is_defined_here(module, name):
    """Return whether this backend has the contract: the reference, or a backend without a reference."""
    return module is reference_of(module) or not hasattr(reference_of(module), name)


def sections(module, name):
    """Return the headings of a numpydoc docstring."""
    return set(re.findall(r"^(\w+)\n-+$", inspect.getdoc(getattr(module, name)), re.MULTILINE))


def has_contract(module, name):
    """Return whether a docstring has all sections; "Raises" is for errors beyond the common rules."""
    return sections(module, name) >= CONTRACT


@for_each(PUBLIC)
def test_a_contract_is_written_once(module, name):
    """The other backends and the rungs refer to it; rungs may add their own limits."""
    text = inspect.getdoc(getattr(module, name))
    assert "wrong type" not in text, "the rule for all stands in `ops`"
    if not is_defined_here(module, name):
        assert f"see `reference.{name}`" in text
        assert not sections(module, name) & {"Parameters", "Returns", "Raises"}
    elif module is reference_of(module):
        assert has_contract(module, name)
    elif not has_contract(module, name):
        others = [(there, other) for there, other in PUBLIC if reference_of(there) is reference_of(module)]
        mentioned = [each for each in others if each[1] != name and f"`{each[1]}`" in text]
        assert any(not is_defined_here(*each) or has_contract(*each) for each in mentioned)


@for_each(PUBLIC)
def test_a_function_takes_the_same_arguments_in_every_backend(module, name):
    """`scratch` is the one exception."""
    if not is_defined_here(module, name):
        assert arguments(getattr(module, name)) == arguments(getattr(reference_of(module), name))


class Declared(Exception):
    """Ends an operation where it checks its arguments: nothing is computed, and no kernel compiled."""


@for_each([each for each in OPERATIONS if is_defined_here(*each)])
def test_arguments_are_declared_in_the_order_of_the_function(module, name, monkeypatch):
    """The declaration is the same for all backends."""

    def stop(spec, *arrays, **settings):
        raise Declared([argument.name for argument in spec.arguments])

    monkeypatch.setattr(Spec, "__call__", stop)
    case, function = case_of(name), getattr(module, name)
    arrays = {key: send(module, array) for key, array in {**case.written, **case.read}.items()}
    with pytest.raises(Declared) as stopped:
        function(**arrays, **case.options)
    (first,) = stopped.value.args
    assert first == [parameter for parameter in inspect.signature(function).parameters if parameter in first]


@for_each(OPERATIONS)
def test_a_function_uses_every_argument(module, name):
    function = getattr(module, name)
    names = {
        node.id for node in ast.walk(ast.parse(inspect.getsource(function))) if isinstance(node, ast.Name)
    }
    assert set(inspect.signature(function).parameters) <= names


SCRATCH = [(module, name) for module, name in PUBLIC if name.endswith("_scratch")]


@for_each(SCRATCH)
def test_scratch_functions_belong_to_functions_that_take_scratch(module, name):
    """It is an optional keyword; the fast backends make it from the same sizes."""
    assert module is not reference_of(module)
    found = [
        inspect.signature(getattr(module, other)).parameters for there, other in PUBLIC if there is module
    ]
    taken = [parameters["scratch"] for parameters in found if "scratch" in parameters]
    assert taken
    assert {(each.kind, each.default) for each in taken} == {(inspect.Parameter.KEYWORD_ONLY, None)}
    alike = [arguments(getattr(there, other)) for there, other in SCRATCH if other == name]
    assert all(each == arguments(getattr(module, name)) for each in alike)


def test_functions_that_take_scratch_have_a_scratch_function():
    takes = {m for m, name in PUBLIC if "scratch" in inspect.signature(getattr(m, name)).parameters}
    assert takes == {module for module, _ in SCRATCH}


@every_operation
def test_a_contract_says_what_an_output_may_be(module, name):
    if name not in CASES or not is_defined_here(module, name):
        return  # a rung, or another backend than the reference: they refer to it
    text = inspect.getdoc(getattr(module, name))
    said = text.partition("May be ")[2].partition(" itself")[0]
    assert re.findall(r"`(\w+)`", said) == list(case_of(name).may_be)


# --------------------------------------------------------------------------------------------------- memory


def side_by_side(a, b, shift):
    """Return memory with two arrays in it, the second whole, and where each of them begins.

    b begins `shift` bytes after a. The later of the two lies at a multiple of 8, and so both are aligned.
    """
    begins = 1024 - max(shift, 0), 1024 + min(shift, 0)
    memory = np.zeros(2048, np.uint8)
    for begin, array in zip(begins, (a, b), strict=True):
        memory[begin : begin + array.nbytes] = array.reshape(-1).view(np.uint8)
    return memory, begins


def view(memory, begin, like):
    """Return the array of this dtype and shape that begins there."""
    return memory[begin : begin + like.nbytes].view(like.dtype).reshape(like.shape)


def shifts(a, b):
    """Return the distances in bytes of b from a: none, or such that the two share one element."""
    return {0, a.nbytes - a.itemsize, b.itemsize - b.nbytes}


def is_on_device(module):
    return module in RUNGS or module.__name__.endswith("gpu")


def send(module, array):
    return device.to_device(array) if is_on_device(module) else array.copy()


def pairs(case):
    """Return each output with each other array, once."""
    names = [*case.written, *case.read]
    return [pair for pair in itertools.combinations(names, 2) if pair[0] in case.written]


@every_operation
def test_overlapping_outputs_raise_unless_allowed(module, name):
    case, function = case_of(name), getattr(module, name)
    arrays = {**case.written, **case.read}
    if case.may_be:  # otherwise nothing is computed, and no kernel compiled
        apart = {key: send(module, array) for key, array in arrays.items()}
        function(**apart, **case.options)
        expected = {key: device.to_host(array) for key, array in apart.items()}

    unchanged = {key: send(module, array) for key, array in arrays.items()}
    for first, second in pairs(case):
        for shift in shifts(arrays[first], arrays[second]):
            host, begins = side_by_side(arrays[first], arrays[second], shift)
            memory = send(module, host)
            shared = {
                key: view(memory, begin, arrays[key])
                for key, begin in zip((first, second), begins, strict=True)
            }
            if shift == 0 and second in case.may_be:
                there = {key: send(module, array) for key, array in arrays.items()} | shared
                function(**there, **case.options)
                for key in arrays:
                    received = device.to_host(there[key])
                    np.testing.assert_array_equal(received, expected[first if key == second else key])
                continue
            with pytest.raises(ValueError, match=f"{first} must not share memory with {second}"):
                function(**unchanged | shared, **case.options)
            np.testing.assert_array_equal(device.to_host(memory), host)
    for key, array in arrays.items():
        np.testing.assert_array_equal(device.to_host(unchanged[key]), array)


@every_operation
@pytest.mark.parametrize("kind", [np.ma.MaskedArray, np.matrix, np.recarray])
def test_array_subclasses_raise(module, name, kind):
    """Kernels would compute with masked values; using the plain array underneath would hide the loss."""
    case = case_of(name)
    arrays = {**case.written, **case.read}
    for key, array in arrays.items():
        if kind is np.matrix and array.ndim > 2:
            continue
        there = {other: send(module, array) for other, array in arrays.items()}
        there[key] = np.ma.array(array) if kind is np.ma.MaskedArray else array.copy().view(kind)
        on_host = "is an array on the host, shape .*: copy it"
        match = on_host if is_on_device(module) else f"must be a plain array, got {kind.__name__}"
        with pytest.raises(TypeError, match=f"{key} {match}"):
            getattr(module, name)(**there, **case.options)


@pytest.mark.exhaustive_unless(
    lambda module: not module.__name__.startswith("cnn_numba.beyond."),
    "the operations of the core, which check their arrays by the same functions",
)
@every_operation
def test_a_mapped_file_is_an_array_like_any_other(module, name, tmp_path):
    if is_on_device(module):
        return  # it has to be copied there
    case = case_of(name)
    plain = {key: array.copy() for key, array in {**case.written, **case.read}.items()}
    mapped = {}
    for key, array in plain.items():
        mapped[key] = np.memmap(tmp_path / key, array.dtype, "w+", shape=array.shape)
        mapped[key][:] = array
    for arrays in (plain, mapped):
        getattr(module, name)(**arrays, **case.options)
    for key, array in plain.items():
        np.testing.assert_array_equal(mapped[key], array)
