"""The simulator's own tests, named on the command line: they run in it, whatever is selected elsewhere."""

import os
from pathlib import Path

FILES = "test_simulator_*.py"


def environment(arguments):
    """Return the variables to set before gpuless selects, if pytest's arguments name no other test files."""
    files = [Path(argument.partition("::")[0]) for argument in arguments]
    files = [file for file in files if file.suffix == ".py"]
    alone = files and all(file.match(FILES) for file in files)
    return {"GPULESS": "simulator"} if alone and "GPULESS" not in os.environ else {}
