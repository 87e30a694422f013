"""The NVIDIA driver, its GPUs and the CUDA toolkit of this machine, found without numba."""

import ctypes
import functools
import importlib.metadata
import os
import platform
import re
import sys
from pathlib import Path
from typing import NamedTuple

# From the first version to below the second. numba-cuda 0.30 has no wheels for Python 3.15, and it uses
# np.row_stack, which NumPy 2.5 removed: compiling for a real GPU would fail.
_WORKING = {"Python": ((3, 11), (3, 15)), "NumPy": ((1, 26), (2, 5))}
_DRIVER_LIBRARIES = {"win32": ("nvcuda.dll",)}
_NVML_LIBRARIES = {"win32": ("nvml.dll",)}
# Where numba-cuda looks for a toolkit without wheels, in its order, and the files that name the version.
_TOOLKIT_ROOTS = ("CONDA_PREFIX", "CUDA_PATH", "CUDA_HOME")
_TOOLKIT_FILES = ("conda-meta/cuda-nvrtc-[0-9]*.json", "lib/libnvrtc.so.*.*", "lib64/libnvrtc.so.*.*")
# The libraries of NVIDIA's compiler, the wheels that hold them, and their folders in the other toolkits.
_COMPILER = {
    "libnvvm.so": ("nvidia-nvvm", "nvidia-cuda-nvcc-cu12"),
    "libnvJitLink.so": ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12"),
}
_LIBRARY_FOLDERS = ("lib", "lib64", "nvvm/lib64")
# Attributes of cuDeviceGetAttribute: the compute capability's two numbers.
_CAPABILITY = (75, 76)
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_HIDDEN = ("", "-1")  # CUDA_VISIBLE_DEVICES begins with one of these if it hides all GPUs


class Gpu(NamedTuple):
    """One GPU as the driver describes it."""

    name: str
    capability: tuple[int, int]
    """(major, minor) compute capability."""


class Driver(NamedTuple):
    """What the NVIDIA driver answered."""

    gpus: tuple[Gpu, ...]
    """In the driver's order; empty if no GPU can be used."""
    cuda: tuple[int, int] | None
    """The newest CUDA version the driver supports, as (major, minor)."""
    version: str | None
    """The driver's own version, such as "580.65.06"."""
    problem: str | None
    """Why no GPU can be used, in a few words; None if one can."""
    broken: bool = False
    """Whether the driver fails, rather than just finding no GPU."""


def _open_library(names):
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


_played: list[str] = []


def driver_is_played(by: str) -> None:
    """From now on `driver` reports that `by` stands in for the driver, unless it has been called before."""
    _played.append(by)


@functools.cache
def driver() -> Driver:
    """Ask the NVIDIA driver for its version and its GPUs, once per process and without numba.

    Examples
    --------
    >>> found = driver()
    >>> (found.problem is None) == (len(found.gpus) > 0)
    True
    """
    if _played:
        return Driver((), None, None, f"{_played[0]} is in the driver's place")
    # Don't load the driver if all GPUs are hidden: it would take the place of the emulated GPU's.
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip() in _HIDDEN:
        return Driver((), None, None, "CUDA_VISIBLE_DEVICES hides all GPUs")
    names = ("libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1")
    cuda = None
    if sys.platform != "darwin":  # macOS has no NVIDIA driver, and looking for one takes time
        cuda = _open_library(_DRIVER_LIBRARIES.get(sys.platform, names))
    if cuda is None:
        return Driver((), None, None, "no NVIDIA driver is installed")
    version = ctypes.c_int(0)
    supported = None
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value:
        supported = (version.value // 1000, version.value % 1000 // 10)
    status = cuda.cuInit(0)
    count = ctypes.c_int(0)
    if status == 0:
        status = cuda.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        problem = f"the NVIDIA driver answers {_error_name(cuda, status)}"
        return Driver((), supported, _driver_version(), problem, broken=status != _NO_DEVICE)
    if count.value == 0:
        return Driver((), supported, _driver_version(), "the NVIDIA driver sees no GPU")
    gpus = tuple(_gpu(cuda, ordinal) for ordinal in range(count.value))
    return Driver(gpus, supported, _driver_version(), None)


def _error_name(cuda, status):
    text = ctypes.c_char_p()
    if cuda.cuGetErrorName(status, ctypes.byref(text)) == 0 and text.value:
        return f"{text.value.decode()} ({status})"
    return f"error {status}"


def _gpu(cuda, ordinal):
    handle, name = ctypes.c_int(0), ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(handle), ordinal)
    cuda.cuDeviceGetName(name, len(name), handle)
    capability = []
    for attribute in _CAPABILITY:
        value = ctypes.c_int(0)
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
        capability.append(value.value)
    return Gpu(name.value.decode(errors="replace"), tuple(capability))


def _driver_version():
    """Return the driver's version as text, from its management library; None without that library."""
    names = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
    nvml = _open_library(_NVML_LIBRARIES.get(sys.platform, names))
    if nvml is None or nvml.nvmlInit_v2() != 0:
        return None
    text = ctypes.create_string_buffer(96)
    status = nvml.nvmlSystemGetDriverVersion(text, len(text))
    nvml.nvmlShutdown()
    return text.value.decode() if status == 0 else None


def toolkit() -> tuple[int, int] | None:
    """Return the CUDA toolkit's version, from its wheels, from conda or from ``CUDA_HOME``; None if none."""
    for wheel in ("cuda-toolkit", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"):
        if version := installed(wheel):
            return _major_minor(version)
    return next((_major_minor(path.name) for path in _in_toolkits(_TOOLKIT_FILES)), None)


def _in_toolkits(patterns):
    roots = (Path(os.environ[name]) for name in _TOOLKIT_ROOTS if os.environ.get(name))
    return (path for root in roots for pattern in patterns for path in root.glob(pattern))


def has_compiler() -> bool:
    """Return whether the libraries of NVIDIA's compiler and their bindings are installed.

    Loads nothing, as that takes 130 MB and up to a second. The loader may still find libraries in places that
    are not searched here.
    """
    return installed("cuda-bindings") is not None and all(map(_has_library, _COMPILER))


def _has_library(name):
    for wheel in filter(installed, _COMPILER[name]):
        if any(
            file.name.startswith(name) and file.locate().is_file()
            for file in importlib.metadata.files(wheel) or ()
        ):
            return True
    return any(_in_toolkits(f"{folder}/{name}*" for folder in _LIBRARY_FOLDERS))


def _major_minor(text: str) -> tuple[int, int]:
    major, minor = re.findall(r"(\d+)\.(\d+)", text)[0]
    return int(major), int(minor)


def installed(package: str) -> str | None:
    """Return the version of an installed package, None if it is not installed.

    Examples
    --------
    >>> installed("no-such-package") is None
    True
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


class Version(NamedTuple):
    """The installed version of Python or NumPy, and the versions that kernels can be compiled with."""

    name: str
    here: str
    works: bool
    working: str
    """The first and the last version that work, as text."""

    def __str__(self):
        return f"{self.name} {self.here} {'works' if self.works else 'does not work'} ({self.working} do)"


def versions() -> list[Version]:
    """Compare the versions of Python and NumPy with those that work.

    Examples
    --------
    >>> [(version.name, version.working) for version in versions()]
    [('Python', '3.11 to 3.14'), ('NumPy', '1.26 to 2.4')]
    """
    here = {"Python": platform.python_version(), "NumPy": installed("numpy") or "0.0"}
    return [
        Version(
            name,
            here[name],
            first <= _major_minor(here[name]) < end,
            f"{dotted(first)} to {end[0]}.{end[1] - 1}",
        )
        for name, (first, end) in _WORKING.items()
    ]


def dotted(version: tuple[int, ...]) -> str:
    """Return a version as text.

    Examples
    --------
    >>> dotted((13, 2))
    '13.2'
    """
    return ".".join(map(str, version))
