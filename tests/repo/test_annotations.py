"""Public functions have annotations of arguments and results; mypy (`make lint`) proves them."""

import importlib
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FACES = (
    *("cnn_numba", "cnn_numba.data", "cnn_numba.data.digits", "cnn_numba.device", "cnn_numba.extras"),
    *("cnn_numba.nn.gradcheck", "cnn_numba.nn.layer", "cnn_numba.nn.layers", "cnn_numba.nn.models"),
    *("cnn_numba.train.checkpoint", "cnn_numba.train.graphs", "cnn_numba.train.loop"),
    *("cnn_numba.train.optim", "cnn_numba.train.records", "cnn_numba.beyond.precision.scaling"),
    *("cnn_numba.train.step", "cnn_numba.train.batches", "cnn_numba.beyond.text.batches"),
    *("gpuless", "gpuless.inspector"),
)


def public(face):
    """Yield the public names of a module: those in its __all__, else those that it or its folder defines."""
    module = importlib.import_module(face)
    for name in getattr(module, "__all__", None) or vars(module):
        value = getattr(module, name)
        listed = hasattr(module, "__all__") or f"{getattr(value, '__module__', None)}.".startswith(f"{face}.")
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
    parameters = [each for each in inspect.signature(function).parameters if each != "self"]
    made = function.__name__ == "__init__" and "return" not in function.__annotations__  # by a dataclass
    said = function.__annotations__.keys()
    assert [each for each in (*parameters, "return") if each not in said and not made] == []


@pytest.mark.parametrize("package", ["cnn_numba", "gpuless"])
def test_the_packages_are_marked_as_typed(package):
    assert (ROOT / package / "py.typed").read_bytes() == b""
