"""Optional packages: training needs neither PyTorch nor the libraries of notebooks 25 and 26."""

from importlib.util import find_spec
from pathlib import Path

from gpuless import nvidia

#: The root of the repository in a clone; some other folder where wheels were installed.
CHECKOUT = Path(__file__).resolve().parents[1]

#: The repository, with the course, notebooks and benchmarks that an installed package lacks.
REPOSITORY = "https://github.com/cnn-numba/cnn-numba"

#: The compiler that can replace numba-cuda; the extra `mlir` installs it.
MLIR = "numba_cuda_mlir"

#: The packages of the extra `roads`, by the names they are imported by.
ROADS = ("pyopencl", "jax", "keras", "onnx", "onnxruntime")


class MissingPackage(ImportError):
    """An optional package is not installed; the message says how to install it."""


def need(package: str, purpose: str) -> None:
    """Raise MissingPackage if a package isn't installed: torch, `MLIR` or one of `ROADS`.

    The message begins with `purpose`. Nothing is imported.
    """
    if not present(package):
        raise MissingPackage(f"{purpose} needs {package}, which is not installed: {command(package)}")


def present(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return find_spec(package) is not None


def command(package: str = "torch") -> str:
    """Return the command that installs a package; torch and torchvision fit the installed CUDA toolkit."""
    if package in ROADS:
        return install("roads")
    if package == MLIR:
        return install("mlir")
    toolkit = nvidia.toolkit()
    return install(f"torch-cu{toolkit[0]}" if toolkit else "torch")


def install(extra: str = "") -> str:
    """Return the command that installs an extra.

    In a clone it names both packages, so pip downloads neither.
    """
    wanted = f"[{extra}]" if extra else ""
    if in_checkout():
        return f"pip install --editable ./gpuless --editable '.{wanted}'"
    return f"pip install 'cnn-numba{wanted}'"


def in_checkout() -> bool:
    """Return whether this is a clone of the repository, not the package alone."""
    return (CHECKOUT / "gpuless" / "pyproject.toml").is_file()
