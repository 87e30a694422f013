"""PyTorch is installed on request: training needs none of it."""

from importlib.util import find_spec

from gpuless import nvidia


class MissingPackage(ImportError):
    """A package that is installed on request, and is not; the message says how to get it."""


def need(package: str, purpose: str) -> None:
    """Insist that torch or torchvision is installed; nothing is imported.

    Parameters
    ----------
    package : {"torch", "torchvision"}
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
        raise MissingPackage(f"{purpose} needs {package}, which is not installed: {command()}")


def present(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return find_spec(package) is not None


def command() -> str:
    """Return what installs torch and torchvision beside the CUDA toolkit that is there, if one is."""
    toolkit = nvidia.toolkit()
    return f"pip install --editable '.[torch{f'-cu{toolkit[0]}' if toolkit else ''}]'"
