"""What kernels run on and what compiles them, selected at import: see `SELECTION` and `COMPILER`."""

import os
import platform
import sys

from cnn_numba import extras
from cnn_numba.arguments import choice
from cnn_numba.starting import COMMAND_LINE
from gpuless import nvidia
from gpuless.selection import Selection, select

_CHOICE = "CNN_NUMBA_COMPILER"
_COMPILERS = {"numba-cuda": "numba-cuda", "mlir": "numba-cuda-mlir"}


def _compiler(selection: Selection) -> str:
    chosen = os.environ.get(_CHOICE, "").strip() or "numba-cuda"
    choice(chosen, _CHOICE, tuple(_COMPILERS))
    if chosen == "mlir":
        extras.need(extras.MLIR, f"{_CHOICE}=mlir")
        if selection.simulated:
            raise ValueError(
                f"{_CHOICE}=mlir compiles kernels, and the simulator does not ({selection.reason}): "
                f"unset {_CHOICE}, or choose another GPU"
            )
    return chosen


def _selected() -> tuple[Selection, str]:
    """Select what kernels run on, and what compiles them.

    The command line imports the package before it can catch errors. So a wrong environment is reported here,
    in one line and without a traceback, like a wrong argument.
    """
    try:
        selection = select("cnn_numba")
        return selection, _compiler(selection)
    except (ValueError, RuntimeError, extras.MissingPackage) as error:
        if not COMMAND_LINE:
            raise
        print(f"cnn-numba: {error}", file=sys.stderr)
        sys.exit(2)


# What runs kernels, a GPU, the emulated one or the simulator: from now on numba.cuda is the selected one. And
# what compiles the package's: "numba-cuda", or "mlir" for numba-cuda-mlir, which is experimental.
SELECTION, COMPILER = _selected()


class NoGpu(ValueError):
    """The GPU was requested, but there is none; the message says why."""


def simulated() -> bool:
    """Return whether kernels run in the simulator."""
    return SELECTION.simulated


def hardware() -> bool:
    """Return whether kernels run on a real GPU, so their times mean something."""
    return SELECTION.gpu == "hardware"


def choose(wish: str = "auto", timed: bool = False) -> str:
    """Return the backend to compute in, "cpu" or "gpu".

    "auto" is "gpu" on a real GPU only. Raises NoGpu for "gpu" in the simulator; with `timed`, without a GPU.
    """
    choice(wish, "device", ("auto", "cpu", "gpu"))
    if wish == "gpu" and (simulated() or (timed and not hardware())):
        raise NoGpu(SELECTION.reason)
    return wish if wish != "auto" else "gpu" if hardware() else "cpu"


def place_of(backend: str) -> str:
    """Return what a backend computes on, as text."""
    counted = f"{threads()} CPU thread{'s' * (threads() != 1)}"
    if backend == "cpu":
        return counted + ("" if hardware() else f" (no GPU: {SELECTION.reason})")
    if SELECTION.emulated:
        return f"on the emulated GPU, which is {counted} ({SELECTION.reason})"
    return f"on {nvidia.driver().gpus[0].name}"


def threads() -> int:
    """Return how many threads the CPU backend uses."""
    import numba

    return numba.get_num_threads()


def share_threads(processes: int) -> None:
    """Let this process use its share of the cores; call it before the emulated GPU is used.

    NUMBA_NUM_THREADS overrides it for the CPU backend, GPULESS_THREADS for the emulated GPU.
    """
    import numba

    share = max(1, numba.get_num_threads() // processes)
    if "NUMBA_NUM_THREADS" not in os.environ:
        numba.set_num_threads(share)
    os.environ.setdefault("GPULESS_THREADS", str(share))


_WHERE = {
    "hardware": "on the GPU",
    "emulator": "compiled, on the emulated GPU",
    "simulator": "as Python, in the simulator",
}


def facts() -> dict[str, str]:
    """Return the facts about this machine that `describe` prints, by name.

    Examples
    --------
    >>> list(facts())
    ['kernels', 'GPU', 'driver', 'CPU threads', 'Python', 'NumPy', 'numba', 'numba-cuda', 'CUDA toolkit']
    """
    found, toolkit = nvidia.driver(), nvidia.toolkit()
    compiler, driver = _COMPILERS[COMPILER], "none"
    if found.cuda is not None or found.version is not None:
        supports = f"supports CUDA {nvidia.dotted(found.cuda)}" if found.cuda else "says no CUDA version"
        driver = f"{found.version or 'of unknown version'}, {supports}"
    gpus = ", ".join(f"{gpu.name} (compute capability {nvidia.dotted(gpu.capability)})" for gpu in found.gpus)
    return {
        "kernels": f"run {_WHERE[SELECTION.gpu]}: {SELECTION.reason}",
        "GPU": gpus or f"none: {found.problem}",
        "driver": driver,
        "CPU threads": str(threads()),
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "NumPy": nvidia.installed("numpy") or "not installed",
        "numba": nvidia.installed("numba") or "not installed",
        compiler: nvidia.installed(compiler) or "not installed (gpuless's simulator is used)",
        "CUDA toolkit": nvidia.dotted(toolkit) if toolkit else "not installed",
    }


def describe() -> str:
    """Return text on what kernels run on, driver, threads and versions, one fact per line."""
    lines = facts()
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {value}" for name, value in lines.items())
