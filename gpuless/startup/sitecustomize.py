"""Let every process that a program starts have the GPU that the program has.

Python imports the module `sitecustomize` when it starts, and this folder is first on the ``PYTHONPATH`` that
`gpuless.running.inherit` leaves to them. Nothing is loaded until a process asks for `numba.cuda` or for the
driver, or for a Numba that is not installed. Another `sitecustomize`, which this one hides, is run as well.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Selecting:
    """Finds what speaks to a GPU as it would have been found, once it is selected which one that is."""

    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        """Return how to load a module, None to leave that to others."""
        if name not in self.names:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Selecting)]
        if importlib.util.find_spec("gpuless") is None:  # it is not installed
            sys.path.append(str(HERE.parents[1]))
        try:
            from gpuless.selection import select
        except ImportError:  # another Python, which has not what gpuless needs
            return None
        select()
        # Afresh: others have been put before it by now.
        return importlib.util.find_spec(name)


def run_the_hidden_one():
    """Run the `sitecustomize` that would have been found without this one."""
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, Selecting("numba.cuda", "numba_cuda_mlir", "cuda.bindings"))
    sys.meta_path.append(Selecting("numba"))
    run_the_hidden_one()
