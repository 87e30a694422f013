"""The public faces say their types: every parameter and result, in words that resolve and are true."""

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numba import cuda
from numpy.typing import ArrayLike, DTypeLike

import gpuless
from cnn_numba import data, device
from cnn_numba.data import digits
from cnn_numba.nn import gradcheck, layers, models
from cnn_numba.train import batches, checkpoint, loop, optim, records, step
from gpuless import inspector

ROOT = Path(__file__).parents[1]
FACES = (
    *("cnn_numba", "cnn_numba.data", "cnn_numba.data.digits", "cnn_numba.device", "cnn_numba.extras"),
    *("cnn_numba.nn.gradcheck", "cnn_numba.nn.layers", "cnn_numba.nn.models"),
    *("cnn_numba.train.checkpoint", "cnn_numba.train.graphs", "cnn_numba.train.loop"),
    *("cnn_numba.train.optim", "cnn_numba.train.records", "cnn_numba.beyond.precision.scaling"),
    *("cnn_numba.train.step", "cnn_numba.train.batches", "cnn_numba.beyond.text.batches"),
    *("gpuless", "gpuless.inspector"),
)


def public(face):
    """Yield what a module offers: the names in its __all__, else those that it defines."""
    module = importlib.import_module(face)
    for name in getattr(module, "__all__", None) or vars(module):
        value = getattr(module, name)
        listed = hasattr(module, "__all__") or getattr(value, "__module__", None) == face
        if listed and not name.startswith("_"):
            yield name, value


def functions_of(name, value):
    """Yield the public functions behind a name: itself, or what its class defines, properties included."""
    if inspect.isfunction(value):
        yield name, value
    elif inspect.isclass(value) and value.__module__.startswith(("cnn_numba.", "gpuless.")):
        for key, member in vars(value).items():
            function = getattr(member, "fget", None) or getattr(member, "func", member)
            ours = inspect.isfunction(function) and function.__module__ == value.__module__
            if ours and (not key.startswith("_") or key == "__init__"):
                yield f"{name}.{key}", function


FUNCTIONS = {
    f"{function.__module__}.{name}": function
    for face in FACES
    for known, value in public(face)
    for name, function in functions_of(known, value)
}


def test_there_are_public_functions():
    assert {"cnn_numba.train.loop.fit", "gpuless.sanitizer.sanitize.sanitize"} <= FUNCTIONS.keys()
    assert len(FUNCTIONS) > 150


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_its_types(name):
    function = inspect.unwrap(FUNCTIONS[name])
    hints = typing.get_type_hints(function)
    parameters = [each for each in inspect.signature(function).parameters if each != "self"]
    made = function.__name__ == "__init__" and "return" not in function.__annotations__  # by a dataclass
    assert [each for each in (*parameters, "return") if each not in hints and not made] == []


@pytest.mark.parametrize("package", ["cnn_numba", "gpuless"])
def test_type_checkers_are_told_to_read_them(package):
    assert (ROOT / package / "py.typed").read_bytes() == b""


# --- Are they true? ----------------------------------------------------------------------------------------


def fits(value, hint):
    """Return whether a value is of a type, as far as one can see without calling or exhausting it."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (typing.Any, ArrayLike, DTypeLike):
        return True
    if hint is device.DeviceArray:
        return device.is_device_array(value)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is tuple and isinstance(value, tuple):
        wanted = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(value) == len(wanted) and all(map(fits, value, wanted))
    if origin in (list, set, Sequence) and isinstance(value, origin):
        return all(fits(each, parts[0]) for each in value)
    if origin in (dict, Mapping) and isinstance(value, origin):
        return all(fits(key, parts[0]) and fits(each, parts[1]) for key, each in value.items())
    return isinstance(value, bool if origin is typing.TypeGuard else origin or hint)


def checked(function, *arguments, **keywords):
    """Call a function; insist that what it takes and gives is of the types it says."""
    hints = typing.get_type_hints(function)
    signature = inspect.signature(function)
    bound = signature.bind(*arguments, **keywords)
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL:
            assert fits(value, hints[name]), f"{function.__qualname__}: {name} = {value!r}, not {hints[name]}"
    result = function(*arguments, **keywords)
    assert fits(result, hints["return"]), f"{function.__qualname__} gives {result!r}, not {hints['return']}"
    return result


@pytest.mark.parametrize(
    ("value", "hint", "right"),
    [
        (1, float, True),
        (True, int, False),
        ((1, 2), tuple[int, ...], True),
        ((1, "2"), tuple[int, ...], False),
        ((1, 2, 3), tuple[int, int], False),
        ([("a", 1.0)], list[tuple[str, float]], True),
        ({"a": None}, dict[str, int], False),
        (None, int | None, True),
        (len, Callable[..., int], True),
    ],
)
def test_the_judge_of_types_can_tell(value, hint, right):
    assert fits(value, hint) == right


@pytest.fixture(scope="module")
def dataset():
    images, labels = np.zeros((6, 1, 28, 28), np.uint8), np.arange(6, dtype=np.int32)
    return data.Dataset("few", images, labels, images, labels, classes=data.classes("mnist"))


def test_the_types_of_a_training_are_true(dataset, tmp_path):
    model = checked(models.mnist_cnn, 4)
    optimizer = optim.Adam(model)
    history = checked(loop.fit, model, dataset, optimizer, epochs=1, out=tmp_path, progress=False)
    checked(records.write_history, history, tmp_path)
    checked(records.plot_history, history)
    checked(loop.evaluate, model, dataset.test_images, dataset.test_labels)
    checked(checkpoint.load_model, tmp_path / "checkpoint.npz")
    checked(checkpoint.restore, checked(checkpoint.load_checkpoint, tmp_path / "checkpoint.npz"), model)
    checked(optim.one_cycle, 0.1, 1, 10)
    x, loss = np.zeros((2, 1, 28, 28), np.float32), layers.CrossEntropyLoss(2, 10)
    checked(step.train_step, model, loss, optimizer, x, dataset.train_labels[:2])
    checked(model.predict, x)
    checked(model.summary)
    for layer in model.layers:
        checked(layer.parameter_shapes)
        checked(layer.output_shape, layer.input_shape)
        x = checked(layer.forward, x)
        gradient = checked(layer.backward, x)
        assert (gradient is None) == (layer is model.layers[0])
    source = checked(batches.batches_of, model, dataset.test_images, dataset.test_labels, 0.0, 1.0)
    checked(source.begin, np.arange(6))
    checked(source.take, 4)
    checked(source.advance)


def test_the_types_of_data_and_gradients_are_true(dataset):
    checked(data.load, "mnist")
    checked(data.normalisation, "cifar10")
    checked(data.image_shape, "cifar10")
    assert fits(next(checked(data.batches, 5, 2)), np.ndarray)
    picture = np.full((40, 40), 255, np.uint8)
    picture[8:32, 18:22] = 0
    checked(data.prepare_digit, picture)
    checked(digits.find_digit, picture)
    x = np.ones((2, 3))
    report = checked(gradcheck.gradcheck, np.sum, x, np.ones((2, 3)))
    assert fits((report.index, report.passed, report.max_error), tuple[tuple[int, ...], bool, float])


def test_the_types_of_the_device_are_true():
    array = checked(device.to_device, np.ones((2, 3), np.float32))
    checked(device.copy, checked(device.zeros, (2, 3)), array)
    checked(device.to_host, array)
    checked(device.is_device_array, array)
    checked(device.overlap, checked(device.extent, array), device.extent(array))
    checked(device.elsewhere, array)
    for function in (device.choose, device.describe, device.facts, device.threads, device.simulated):
        checked(function)
    checked(device.blocks, 10, 4)


@cuda.jit
def add_one_kernel(x):
    """Add 1 to the element of the thread's number."""
    x[cuda.threadIdx.x] += 1


def test_the_types_of_gpuless_are_true():
    checked(gpuless.check_launch, 2, (8, 8))
    checked(gpuless.set_limits, **checked(gpuless.set_limits))
    for tool, result in (
        (gpuless.sanitize, gpuless.Report),
        (gpuless.record, gpuless.Trace),
        (gpuless.access_map, gpuless.AccessMap),
    ):
        launch = checked(checked(tool, add_one_kernel).__getitem__, (1, 4))
        assert fits(launch(device.zeros(4)), result)
    if gpuless.select().emulated:
        launch = checked(checked(gpuless.count, add_one_kernel).__getitem__, (1, 4))
        assert fits(launch(device.zeros(4)), gpuless.Counts)
    access = gpuless.access_map(add_one_kernel)[1, 4](device.zeros(4))
    checked(access.total, "x")
    checked(access.reads, "x", 0)
    assert fits((access.sectors, access.efficiency), tuple[int, float])
    checked(gpuless.plot_access, access, "x")
    checked(inspector.occupancy, "9.0", 256, 64)
    checked(inspector.registers_for, (9, 0), 256, 5)
