"""Helpers shared by several test modules."""

import functools
import inspect
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

from cnn_numba import device
from cnn_numba.data import load
from cnn_numba.ops.backends import backend

BACKENDS = ("reference", "cpu")
# Programs that tests run, each in its own process.
PROGRAMS = Path(__file__).with_name("programs")
# The modules of the operations.
PACKAGES = ("cnn_numba.ops.", "cnn_numba.beyond.", "benchmarks.rungs.")


def backends(operation, gpu=False):
    """Run a test in every backend of an operation; the backend's module arrives as `ops`.

    The gpu backend arrives as `OnDevice`, and only where the test's shapes are small enough to simulate.
    """
    names = (*BACKENDS, "gpu") if gpu else BACKENDS
    modules = [getattr(backend(name).ops, operation) for name in names]
    modules = [
        OnDevice(module) if name == "gpu" else module for module, name in zip(modules, names, strict=True)
    ]
    return pytest.mark.parametrize("ops", modules, ids=names)


class OnDevice:
    """A gpu backend for tests that only know NumPy arrays.

    Its functions take and return NumPy arrays. Around the call every array is copied to the device
    and back, inputs too: a changed input shows.
    """

    def __init__(self, module):
        self.module = module
        self.__name__ = module.__name__

    def __getattr__(self, name):
        attribute = getattr(self.module, name)
        return self._around(attribute) if inspect.isfunction(attribute) else attribute

    def _around(self, function):
        @functools.wraps(function)
        def call(*arguments, **keywords):
            there = {}  # by id: an array given twice is one array there too

            def send(value):
                if not isinstance(value, np.ndarray) or not value.flags.c_contiguous:
                    return value
                return there.setdefault(id(value), (value, device.to_device(value)))[1]

            def fetch(result):
                if type(result) is tuple:
                    return tuple(map(fetch, result))
                if not device.is_device_array(result):
                    return result
                for here, sent in there.values():
                    if sent is result:
                        return here
                return device.to_host(result)

            result = function(*map(send, arguments), **{key: send(value) for key, value in keywords.items()})
            for here, sent in there.values():
                if here.flags.writeable:
                    device.copy(here, sent)
            return fetch(result)

        return call


@functools.cache  # tests of every kernel ask tens of thousands of times
def kernels_in(module):
    """Return the kernels that a module defines, by name; those in its dicts by their functions' names."""
    tables = [value for value in vars(module).values() if isinstance(value, dict)]
    listed = [each for table in tables for each in table.values() if hasattr(each, "py_func")]
    return {
        name: value
        for name, value in ({each.py_func.__name__: each for each in listed} | vars(module)).items()
        if hasattr(value, "targetoptions")
        and not value.targetoptions.get("device")
        and value.py_func.__module__ == module.__name__
    }


def check_signature(kernel, arguments):
    """Check that a kernel of an operation is launched with the argument types in its signature."""
    function = getattr(kernel, "py_func", None)
    if function is None or not function.__module__.startswith(PACKAGES):
        return
    noted = getattr(function, "signature", None)
    assert noted, f"{function.__name__} is launched, and has no @device.signature"
    launched = f"void({', '.join(map(_type_text, arguments))})"
    assert launched == noted, f"{launched} is launched, {noted} noted, by {kernel!r}"


def _type_text(argument):
    """Return Numba's type of a launch's argument, as written in a signature."""
    if device.is_device_array(argument):
        return f"{argument.dtype}[{', '.join([':'] * (argument.ndim - 1) + ['::1'])}]"
    if isinstance(argument, np.generic):
        return str(argument.dtype)
    if hasattr(argument, "_fields"):
        kinds = get_type_hints(type(argument)).items()
        wrong = [name for name, kind in kinds if type(getattr(argument, name)) is not kind]
        assert not wrong, f"{argument}: {wrong} are not of the types that the signature stands for"
        return type(argument).__name__
    return {bool: "bool", int: "int64", float: "float64"}[type(argument)]


def arguments(function):
    """Return names, kinds and defaults of a function's arguments; their types differ between backends.

    `scratch` differs too: only a backend that needs working space has it.
    """
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters if each.name != "scratch"]


def signatures(module):
    """Return the public functions defined in a module, except those that make working space or arguments."""
    return {
        name: arguments(function)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and not name.endswith("_scratch")
    }


def poisoned(shape, dtype=np.float32):
    """Return an output array full of NaN: an element nobody writes stays NaN and fails the comparison.

    Integers have no NaN and get their smallest value instead.
    """
    dtype = np.dtype(dtype)
    return np.full(shape, np.nan if dtype.kind == "f" else np.iinfo(dtype).min, dtype)


def random_float32(rng, *shape):
    """Return normally distributed numbers."""
    return rng.standard_normal(shape, dtype=np.float32)


def strided(array):
    """Return the same values as every second element of a larger array: only the layout is wrong."""
    return np.repeat(array, 2, axis=-1)[..., ::2]


def assert_close(received, expected):
    """Compare as closely as the dtype of `received` allows; shapes must match and nothing may be NaN."""
    expected = np.asarray(expected)
    assert received.shape == expected.shape
    assert np.isfinite(expected).all()
    epsilon = 1e-11 if received.dtype == np.float64 else 3e-6
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(received, expected, rtol=10 * epsilon, atol=epsilon * scale)


def write_few_digits(folder, train, test):
    """Write the first `train` and `test` digits of MNIST's two sets to a folder, in MNIST's format."""
    mnist = load("mnist")
    for part, images, labels in (
        ("train", mnist.train_images[:train], mnist.train_labels[:train]),
        ("t10k", mnist.test_images[:test], mnist.test_labels[:test]),
    ):
        for kind, array in (("images", images[:, 0]), ("labels", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            path = folder / f"{part}-{kind}-idx{array.ndim}-ubyte"
            path.write_bytes(header + array.astype(np.uint8).tobytes())
