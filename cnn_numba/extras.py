"""What is installed on request: training needs neither PyTorch nor what notebooks 25 and 26 compare with."""

from importlib.util import find_spec
from pathlib import Path

from gpuless import nvidia

#: Where both packages lie in a clone of the repository; anything else where they were installed as wheels.
CHECKOUT = Path(__file__).resolve().parents[1]

#: Where the course, the notebooks and the benchmarks are, which an installed package lacks.
REPOSITORY = "https://github.com/cnn-numba/cnn-numba"

#: The compiler that can be in numba-cuda's place; the extra `mlir` installs it.
MLIR = "numba_cuda_mlir"

#: What the extra `roads` installs, under the names by which Python imports it.
ROADS = ("pyopencl", "jax", "keras", "onnx", "onnxruntime")


class MissingPackage(ImportError):
    """A package that is installed on request, and is not; the message says how to get it."""


def need(package: str, purpose: str) -> None:
    """Insist that a package, torch, torchvision, `MLIR` or one of `ROADS`, is installed; nothing is imported.

    `purpose` is what needs it, as the message of MissingPackage begins.

    Examples
    --------
    >>> need("no_such_package", "Magic")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    cnn_numba.extras.MissingPackage: Magic needs no_such_package, which is not installed: ...
    """
    if not present(package):
        raise MissingPackage(f"{purpose} needs {package}, which is not installed: {command(package)}")


def present(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return find_spec(package) is not None


def command(package: str = "torch") -> str:
    """Return what installs a package: torch and torchvision beside the CUDA toolkit that is there, if one is.

    Examples
    --------
    >>> command("onnx")
    "pip install --editable ./gpuless --editable '.[roads]'"
    """
    if package in ROADS:
        return install("roads")
    if package == MLIR:
        return install("mlir")
    toolkit = nvidia.toolkit()
    return install(f"torch-cu{toolkit[0]}" if toolkit else "torch")


def install(extra: str = "") -> str:
    """Return what installs an extra: in a clone both packages of it, so that pip looks nowhere for either.

    Examples
    --------
    >>> install("cu13")
    "pip install --editable ./gpuless --editable '.[cu13]'"
    """
    wanted = f"[{extra}]" if extra else ""
    if in_checkout():
        return f"pip install --editable ./gpuless --editable '.{wanted}'"
    return f"pip install 'cnn-numba{wanted}'"


def in_checkout() -> bool:
    """Return whether this is a clone of the repository, and not the package alone."""
    return (CHECKOUT / "gpuless" / "pyproject.toml").is_file()
