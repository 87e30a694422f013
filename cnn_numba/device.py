"""GPU or simulator? Asked once, when the package is imported, before numba can be.

Numba reads ``NUMBA_ENABLE_CUDASIM`` when `numba.cuda` is first imported. Without a GPU its simulator runs the
same kernels in Python, slowly, which is what learning and testing need; so where there is no GPU the package
selects it. Nothing is printed: `describe` tells.
"""

import ctypes
import functools
import importlib.metadata
import os
import platform
import re
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

_SIMULATOR = "NUMBA_ENABLE_CUDASIM"
_DRIVER_LIBRARIES = {"win32": ("nvcuda.dll",)}
_NVML_LIBRARIES = {"win32": ("nvml.dll",)}
# Where numba-cuda looks for a toolkit without wheels, in its order, and what tells the version there.
_TOOLKIT_ROOTS = ("CONDA_PREFIX", "CUDA_PATH", "CUDA_HOME")
_TOOLKIT_FILES = ("conda-meta/cuda-nvrtc-[0-9]*.json", "lib/libnvrtc.so.*.*", "lib64/libnvrtc.so.*.*")
# Attributes of cuDeviceGetAttribute: the compute capability's two numbers.
_CAPABILITY = (75, 76)


class Gpu(NamedTuple):
    """One GPU as the driver describes it."""

    name: str
    capability: tuple
    """(major, minor) compute capability."""


class Driver(NamedTuple):
    """What asking the NVIDIA driver gave."""

    gpus: tuple
    """One `Gpu` each, in the driver's order; empty if there is none that can be used."""
    cuda: tuple | None
    """The newest CUDA version the driver supports, as (major, minor)."""
    version: str | None
    """The driver's own version, such as "580.65.06"."""
    problem: str | None
    """Why there is no GPU to use, in a few words; None if there is one."""


class Selection(NamedTuple):
    """What numba.cuda will be in this process, and why."""

    simulator: bool
    reason: str


def _open_library(names):
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


@functools.cache
def driver():
    """Ask the NVIDIA driver for its version and its GPUs, once per process and without numba.

    Returns
    -------
    Driver

    Examples
    --------
    >>> found = driver()
    >>> (found.problem is None) == (len(found.gpus) > 0)
    True
    """
    names = ("libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1")
    cuda = None
    # Apple has no NVIDIA driver, and looking for one takes time there.
    if sys.platform != "darwin":
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
        return Driver(
            (), supported, _driver_version(), f"the NVIDIA driver answers {_error_name(cuda, status)}"
        )
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
    """Return the driver's version as text from its management library, None if that is not there."""
    names = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
    nvml = _open_library(_NVML_LIBRARIES.get(sys.platform, names))
    if nvml is None or nvml.nvmlInit_v2() != 0:
        return None
    text = ctypes.create_string_buffer(96)
    status = nvml.nvmlSystemGetDriverVersion(text, len(text))
    nvml.nvmlShutdown()
    return text.value.decode() if status == 0 else None


def select():
    """Select the simulator where there is no GPU, unless the user or an earlier import has decided.

    Called when `cnn_numba` is imported; calling it again changes nothing.

    Returns
    -------
    Selection

    Examples
    --------
    >>> select() == select()
    True
    """
    if "numba.cuda" in sys.modules:
        return _already_imported()
    wish = os.environ.get(_SIMULATOR, "").strip()
    problem = driver().problem
    # A process started by ours inherits the variable that is set below: without a GPU that is no wish.
    if wish and (problem is None or wish == "0"):
        return Selection(wish != "0", f"the environment variable {_SIMULATOR} is {wish}")
    if problem is None:
        return Selection(False, "a GPU was found")
    os.environ[_SIMULATOR] = "1"
    if "numba" in sys.modules:
        # numba has read its environment; numba.cuda will look here.
        sys.modules["numba"].config.ENABLE_CUDASIM = 1
    return Selection(True, problem)


def _already_imported():
    """Return what numba.cuda is, now that it can no longer be changed."""
    config = sys.modules.get("numba.cuda.core.config") or sys.modules["numba"].config
    if config.ENABLE_CUDASIM:
        return Selection(True, "numba.cuda was imported before cnn_numba, as the simulator")
    problem = driver().problem
    if problem is None:
        return Selection(False, "a GPU was found")
    reason = (
        f"numba.cuda was imported before cnn_numba, and {problem}: no kernel can run; "
        f"import cnn_numba first, or set {_SIMULATOR}=1"
    )
    # The first kernel would fail with an error about a driver, far from the line that is to be changed.
    warnings.warn(reason, RuntimeWarning, stacklevel=5)
    return Selection(False, reason)


def simulated():
    """Return whether kernels run in the simulator.

    Returns
    -------
    bool
    """
    return SELECTION.simulator


def installed(package):
    """Return the version of an installed package, None if it is not installed.

    Parameters
    ----------
    package : str

    Returns
    -------
    str or None

    Examples
    --------
    >>> installed("no-such-package") is None
    True
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def toolkit():
    """Return the version of the CUDA toolkit: of its wheels, else conda's, else that of ``CUDA_HOME``.

    Returns
    -------
    tuple of (int, int) or None
        None if there is none of them.
    """
    version = (
        installed("cuda-toolkit") or installed("nvidia-cuda-runtime") or installed("nvidia-cuda-runtime-cu12")
    )
    if version:
        return _major_minor(version)
    roots = (Path(os.environ[name]) for name in _TOOLKIT_ROOTS if os.environ.get(name))
    files = (path for root in roots for pattern in _TOOLKIT_FILES for path in root.glob(pattern))
    return next((_major_minor(path.name) for path in files), None)


def _major_minor(text):
    return tuple(map(int, re.search(r"(\d+)\.(\d+)", text).groups()))


def threads():
    """Return how many threads the CPU room uses.

    Returns
    -------
    int
    """
    import numba

    return numba.get_num_threads()


def facts():
    """Return what this machine gives the package to work with.

    Returns
    -------
    dict of str to str
        In the order `describe` prints.

    Examples
    --------
    >>> list(facts())
    ['kernels', 'GPU', 'driver', 'CPU threads', 'Python', 'NumPy', 'numba', 'numba-cuda', 'CUDA toolkit']
    """
    found = driver()
    gpus = ", ".join(f"{gpu.name} (compute capability {dotted(gpu.capability)})" for gpu in found.gpus)
    return {
        "kernels": f"run {'in the simulator' if simulated() else 'on the GPU'}: {SELECTION.reason}",
        "GPU": gpus or f"none: {found.problem}",
        "driver": _driver_text(found),
        "CPU threads": str(threads()),
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "NumPy": installed("numpy") or "not installed",
        "numba": installed("numba") or "not installed",
        "numba-cuda": installed("numba-cuda") or "not installed (numba's own simulator is used)",
        "CUDA toolkit": dotted(toolkit()) if toolkit() else "not installed",
    }


def dotted(version):
    """Return a version as text.

    Parameters
    ----------
    version : tuple of int

    Returns
    -------
    str

    Examples
    --------
    >>> dotted((13, 2))
    '13.2'
    """
    return ".".join(map(str, version))


def _driver_text(found):
    if found.cuda is None and found.version is None:
        return "none"
    supports = f"supports CUDA {dotted(found.cuda)}" if found.cuda else "says no CUDA version"
    return f"{found.version or 'of unknown version'}, {supports}"


def describe():
    """Return one short paragraph, a fact a line, on GPU or simulator, driver, threads and versions.

    Returns
    -------
    str

    Examples
    --------
    >>> describe().splitlines()[0].startswith("kernels")
    True
    """
    lines = facts()
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {value}" for name, value in lines.items())


# Decided at import, once: whoever imports numba.cuda after this gets the one or the other.
SELECTION = select()
