"""Other roads to the same numbers: notebook 25's kernels in three languages, and their yardstick.

- `yardstick`: the task of every road, what ours computes, and how far apart two results are.
- `opencl` with kernels.cl, `cuda_cpp` with kernels.cu, `blocks` with triton_kernels: a road each, the same
  seven kernels behind the same methods.
- `tiles`: cuTile's product, run in NumPy, and compiled where NVIDIA's compiler is installed.
- `watched` with watched.h: which places of its local array each work-item of an OpenCL kernel accesses.
- `machine_code`: registers and instructions of what NVRTC or Triton compiled.
- `tuning` with tuned_product.cu: candidates for the auto-tuner.
"""

import contextlib
import functools
from pathlib import Path

from cnn_course.chapters.other_roads.roads.complaints import first_error
from cnn_numba import device, extras


def source(name: str) -> str:
    """Return the text of one of the kernels' files.

    Parameters
    ----------
    name : str
        Such as ``"kernels.cl"``.

    Examples
    --------
    >>> "get_local_id" in source("kernels.cl")
    True
    """
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def kernel(name: str, file: str) -> str:
    """Return one kernel's text: from the comment above it to the brace that closes it.

    Parameters
    ----------
    name : str
    file : str
        Such as ``"kernels.cl"``.

    Examples
    --------
    >>> print(kernel("sgd", "kernels.cl").splitlines()[0])
    // One parameter a work-item.
    """
    pieces = source(file).split("\n\n")
    return next(piece for piece in pieces if f" {name}(" in piece.partition("{")[0]).rstrip()


def missing(language: str) -> str:
    """Return why a language cannot be used here, "" if it can.

    Parameters
    ----------
    language : {"OpenCL", "Triton", "CUDA C++"}

    Examples
    --------
    >>> missing("Fortran")
    Traceback (most recent call last):
        ...
    ValueError: language must be OpenCL, Triton or CUDA C++, got 'Fortran'
    """
    if language not in _PACKAGES:
        raise ValueError(f"language must be OpenCL, Triton or CUDA C++, got {language!r}")
    absent = [package for package in _PACKAGES[language] if not extras.present(package)]
    if absent:
        how = extras.command("torch" if "torch" in _PACKAGES[language] else absent[0])  # torch brings triton
        return f"{language} is left out: {' and '.join(absent)} not installed ({how})."
    if language == "OpenCL" and (reason := _without_opencl()):
        return f"OpenCL is left out: {reason}."
    if language == "CUDA C++" and device.simulated():
        return "CUDA C++ is left out: the simulator runs Python only."
    return ""


_PACKAGES = {"OpenCL": ("pyopencl",), "Triton": ("triton", "torch"), "CUDA C++": ()}


def first_opencl_device():
    """Return OpenCL's first device, on any platform.

    Raises
    ------
    LookupError
        If no platform has one.
    """
    import pyopencl

    # Without any platform, pyopencl raises. For a platform without devices it returns an empty list, but a
    # driver without a device may raise.
    with contextlib.suppress(pyopencl.Error):
        for platform in pyopencl.get_platforms():
            with contextlib.suppress(pyopencl.Error):
                if devices := platform.get_devices():
                    return devices[0]
    raise LookupError("OpenCL has no platform with a device")


def _without_opencl():
    """Return why no OpenCL C runs here, "" if it does."""
    try:
        return _compiler_refuses(first_opencl_device())
    except LookupError:
        return "it has no platform with a device (pocl-binary-distribution provides one)"


@functools.cache
def _compiler_refuses(device):
    """Return why a device's compiler refuses the smallest program, "" if it accepts it.

    PoCL's wheels contain a compiler of 2022, which accepts nothing on a processor that it does not know.
    """
    import pyopencl

    try:
        program = pyopencl.Program(pyopencl.Context([device]), "kernel void nothing() {}")
        program.build(cache_dir=False)
    except pyopencl.Error as error:
        return (
            f"the compiler of {device.platform.name} accepts no program for this processor "
            f"({first_error(error)}); conda's PoCL is newer"
        )
    return ""
