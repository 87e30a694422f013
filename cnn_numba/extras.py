"""What is installed on request: training needs neither PyTorch nor what notebooks 15 and 15b compare with."""

from importlib.util import find_spec

from gpuless import nvidia

#: What the extra `roads` installs, under the names by which Python imports it.
ROADS = ("pyopencl", "jax", "keras", "onnx", "onnxruntime")


class MissingPackage(ImportError):
    """A package that is installed on request, and is not; the message says how to get it."""


def need(package: str, purpose: str) -> None:
    """Insist that a package is installed; nothing is imported.

    Parameters
    ----------
    package : str
        ``"torch"``, ``"torchvision"`` or one of `ROADS`.
    purpose : str
        What needs it, as the message begins.

    Raises
    ------
    MissingPackage
        If it is not there.

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
    "pip install --editable '.[roads]'"
    """
    if package in ROADS:
        return "pip install --editable '.[roads]'"
    toolkit = nvidia.toolkit()
    return f"pip install --editable '.[torch{f'-cu{toolkit[0]}' if toolkit else ''}]'"
