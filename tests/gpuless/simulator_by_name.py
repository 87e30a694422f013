"""The simulator's own tests, named on the command line: they run in it, whatever is selected elsewhere."""

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().with_name("simulator")
TESTS = FOLDER.parents[1]


def _names_tests(path):
    # An argument may be a text too long for a name, at which `Path.is_dir` raises an error.
    return path.suffix == ".py" or (os.path.isdir(path) and TESTS in (path, *path.parents))


def _named(arguments):
    paths = [Path(argument.partition("::")[0]).resolve() for argument in arguments]
    return [path for path in paths if _names_tests(path)]


def files(arguments):
    """Return the simulator's files that pytest's arguments name."""
    return [path for path in _named(arguments) if FOLDER in path.parents]


def environment(arguments):
    """Return the variables to set before gpuless selects, if pytest's arguments name no other tests."""
    named = _named(arguments)
    alone = named and all(FOLDER in (path, *path.parents) for path in named)
    return {"GPULESS": "simulator"} if alone and "GPULESS" not in os.environ else {}
