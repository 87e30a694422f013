"""The simulator's own tests, named on the command line: they run in it, whatever is selected elsewhere."""

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().with_name("simulator")


def environment(arguments):
    """Return the variables to set before gpuless selects, if pytest's arguments name no other tests."""
    paths = [Path(argument.partition("::")[0]).resolve() for argument in arguments]
    named = [path for path in paths if path.suffix == ".py" or path == FOLDER]
    alone = named and all(FOLDER in (path, *path.parents) for path in named)
    return {"GPULESS": "simulator"} if alone and "GPULESS" not in os.environ else {}
