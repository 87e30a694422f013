"""Select the GPU of a program in every process that it starts.

Python imports the module `sitecustomize` when it starts, and `gpuless.running.inherit` puts this folder first
on the ``PYTHONPATH`` of child processes. Nothing is loaded until a process imports `numba.cuda`, the driver's
bindings, or a Numba that isn't installed. A `sitecustomize` that this one hides is run as well.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Selecting:
    """Finds modules that use a GPU as Python would, but selects the GPU first."""

    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        """Return how to load a module, None to leave it to other finders."""
        if name not in self.names:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Selecting)]
        if importlib.util.find_spec("gpuless") is None:  # not installed
            sys.path.append(str(HERE.parents[1]))
        try:
            from gpuless.selection import select
        except ImportError:  # another Python, without the packages that gpuless needs
            return None
        select()
        # Searched again, as `select` has added finders.
        return importlib.util.find_spec(name)


def run_the_hidden_one():
    """Run the `sitecustomize` that Python would have found without this one."""
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, Selecting("numba.cuda", "numba_cuda_mlir", "cuda.bindings"))
    sys.meta_path.append(Selecting("numba"))
    run_the_hidden_one()
