"""Make every import of `numba.cuda` load the simulator, even if Numba isn't installed.

The folder `standin` holds the files that Python then loads under Numba's names: `numba.cuda`,
`numba_cuda_mlir` with its `cuda`, and, only if Numba isn't installed, `numba` and `llvmlite`. As importing
Numba takes time, this imports nothing: the first import of one of these names finds the stand-in.
"""

import importlib.util
import sys
from pathlib import Path

from gpuless.importing import is_installed
from gpuless.simulator.jit import jit
from gpuless.simulator.lacking import remedy

_HERE = Path(__file__).parent / "standin"
#: The folder that stands in for each package.
_FOLDERS = {
    "llvmlite": _HERE / "llvmlite",
    "numba": _HERE / "numba",
    "numba.cuda": _HERE / "cuda",
    "numba_cuda_mlir": _HERE / "numba_cuda_mlir",
    "numba_cuda_mlir.cuda": _HERE / "cuda",
}


def install():
    """Use this simulator for every kernel defined from now on, unless its compiler has been imported.

    If Numba's own simulator has been imported, this one replaces it. Calling it again changes nothing.
    """
    if not any(isinstance(finder, _StandIns) for finder in sys.meta_path):
        sys.meta_path.insert(0, _StandIns())
    late = sys.modules.get("numba.cuda")
    if late is not None and "numba.cuda.simulator" in sys.modules and not is_ours(late):
        ours = importlib.util.module_from_spec(_spec("numba.cuda", _HERE / "cuda"))
        ours.__spec__.loader.exec_module(ours)
        vars(late).update({name: value for name, value in vars(ours).items() if not name.startswith("__")})


def is_ours(module):
    """Return whether kernels of a module `cuda` are this simulator's."""
    return getattr(module, "jit", None) is jit


class _StandIns:
    """Finds the stand-ins for compilers, and for Numba if that isn't installed."""

    def __init__(self):
        theirs = _FOLDERS.keys() & sys.modules.keys()
        theirs |= {name for name in ("numba", "llvmlite") if is_installed(name)}
        if "numba_cuda_mlir" in theirs:
            theirs.add("numba_cuda_mlir.cuda")
        self._packages = {name: folder for name, folder in _FOLDERS.items() if name not in theirs}

    def find_spec(self, name, path=None, target=None):
        """Return how to load a module, None to leave it to other finders."""
        parts = name.split(".")
        for count in (2, 1):
            package = ".".join(parts[:count])
            if package in self._packages:
                spec = _spec(name, self._packages[package].joinpath(*parts[count:]))
                if spec is None:
                    fix = "pip install numba" if package in ("numba", "llvmlite") else remedy()
                    message = (
                        f"{name} is not in the simulator, in which kernels run; a compiler may have it: {fix}"
                    )
                    raise ModuleNotFoundError(message, name=package)
                return spec
        return None


def _spec(name, path):
    """Return how to load a module from a folder or a file; None if neither exists."""
    if path.is_dir():
        return importlib.util.spec_from_file_location(
            name, path / "__init__.py", submodule_search_locations=[str(path)]
        )
    file = path.with_suffix(".py")
    return importlib.util.spec_from_file_location(name, file) if file.is_file() else None
