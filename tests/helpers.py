"""What several test modules share."""

import importlib
import inspect

import numpy as np
import pytest

ROOMS = ("reference", "cpu")


def rooms(operation):
    """Run a test in every room of an operation; the room's module arrives as `ops`."""
    modules = [importlib.import_module(f"cnn_numba.ops.{operation}.{room}") for room in ROOMS]
    return pytest.mark.parametrize("ops", modules, ids=ROOMS)


def signatures(module):
    """Return the public functions defined in a module, each with its arguments."""
    return {
        name: str(inspect.signature(function))
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
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
    """Return the same values as every second element of a larger array: right in all but the layout."""
    return np.repeat(array, 2, axis=-1)[..., ::2]


def assert_close(received, expected):
    """Compare as closely as the dtype of `received` allows; shapes must match and nothing may be NaN."""
    expected = np.asarray(expected)
    assert received.shape == expected.shape
    assert np.isfinite(expected).all()
    epsilon = 1e-11 if received.dtype == np.float64 else 3e-6
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(received, expected, rtol=10 * epsilon, atol=epsilon * scale)
