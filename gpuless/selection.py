"""Choose between hardware, emulator and simulator, once, and best before `numba.cuda` is imported.

A real GPU is used if there is one. If not, the emulated GPU of `gpuless.emulator` runs Numba's compiled
kernels on the CPU, fast enough to train networks. If no GPU can be emulated, as on macOS, the simulator runs
the kernels' Python code, slowly: `gpuless.simulator` then replaces `numba.cuda`, and needs neither a compiler
nor Numba.

The environment variable ``GPULESS`` overrides the choice: ``hardware``, ``emulator`` or ``simulator``.
"""

import os
import sys
import warnings
from typing import NamedTuple

from gpuless import emulator, frontends, nvidia

_SIMULATOR = "NUMBA_ENABLE_CUDASIM"
_VARIABLE, _GPUS = "GPULESS", ("hardware", "emulator", "simulator")


class Selection(NamedTuple):
    """What kernels run on in this process, and why."""

    gpu: str
    """"hardware", "emulator" or "simulator"."""
    reason: str

    def __str__(self):
        place = {"hardware": "on the GPU", "emulator": "on the emulated GPU", "simulator": "in the simulator"}
        return f"kernels run {place[self.gpu]}: {self.reason}"

    @property
    def simulated(self) -> bool:
        """Whether the simulator runs the kernels' Python code."""
        return self.gpu == "simulator"

    @property
    def emulated(self) -> bool:
        """Whether the CPU runs compiled kernels."""
        return self.gpu == "emulator"


def select(package: str = "gpuless") -> Selection:
    """Select what runs kernels: a GPU, the emulated GPU, or the simulator.

    Call it before `numba.cuda` is imported: later, the simulator can't be selected. Calling it again changes
    nothing.

    Parameters
    ----------
    package : str
        The package whose import makes the call, for messages.

    Raises
    ------
    ValueError
        If ``GPULESS`` or ``GPULESS_ORDER`` in the environment has an unknown value.
    RuntimeError
        If ``GPULESS`` asks for an emulated GPU that cannot run here, or for a GPU without a compiler.

    Examples
    --------
    >>> select() == select()
    True
    """
    wanted = _wanted()
    if "numba.cuda" in sys.modules:
        selection = _possible(wanted, package)
    else:
        selection = wanted
        _set_numba_variable(wanted.simulated)
    if selection.simulated:
        from gpuless import simulator  # takes time, and is needed only here

        simulator.order_of_launches()  # raises for a wrong GPULESS_ORDER now, not at the first launch
        simulator.install()
    elif selection.emulated:
        frontends.install()
    else:
        frontends.keep_kernels()
    return selection


def _wanted():
    gpu = os.environ.get(_VARIABLE, "").strip()
    if gpu not in ("", *_GPUS):
        raise ValueError(f"{_VARIABLE} must be {', '.join(_GPUS[:-1])} or {_GPUS[-1]}, got {gpu!r}")
    if gpu == "emulator" and (no_emulator := emulator.problem()):
        raise RuntimeError(f"{_VARIABLE} is emulator, and there can be no emulated GPU: {no_emulator}")
    if gpu == "hardware" and not frontends.compiles():
        fix = "pip install 'gpuless[cu13]'"
        raise RuntimeError(f"{_VARIABLE} is hardware, and no compiler of kernels is installed: {fix}")
    if gpu:
        return Selection(gpu, f"the environment variable {_VARIABLE} is {gpu}")
    cudasim = os.environ.get(_SIMULATOR, "").strip()
    cudasim_reason = f"the environment variable {_SIMULATOR} is {cudasim}"
    problem = nvidia.driver().problem
    no_emulator = problem and emulator.problem()
    if cudasim == "0" and (no_emulator or not problem):
        return Selection("hardware", cudasim_reason)
    # Where only the simulator works, the variable is no choice of the user: a parent process may have set it.
    if cudasim not in ("", "0") and not no_emulator:
        return Selection("simulator", cudasim_reason)
    if problem is None:
        return Selection("hardware", "a GPU was found")
    if no_emulator:
        return Selection("simulator", f"{problem}, and no GPU can be emulated: {no_emulator}")
    return Selection("emulator", problem)


def _set_numba_variable(simulated):
    """Set Numba's own variable, for child processes and for code that reads Numba's settings."""
    if simulated or os.environ.get(_SIMULATOR):
        os.environ[_SIMULATOR] = str(int(simulated))
        if "numba" in sys.modules:
            sys.modules["numba"].config.ENABLE_CUDASIM = int(simulated)


def _possible(wanted, package):
    """Return the selection closest to `wanted`: `numba.cuda` has been imported, as the simulator or not."""
    early = f"numba.cuda was imported before {package}"
    if frontends.simulated():
        from gpuless import simulator

        if not simulator.is_ours(sys.modules["numba.cuda"]):
            stays = "kernels made so far stay in Numba's own simulator"
            warnings.warn(f"{early}: {stays}; import {package} first", RuntimeWarning, stacklevel=4)
        return wanted if wanted.simulated else Selection("simulator", f"{early}, as the simulator")
    if not wanted.simulated:
        return wanted
    reason = f"{early}, and {wanted.reason}: import {package} first, or set {_SIMULATOR}=1"
    # Else the first kernel fails with an error about a driver, far from the line to change.
    warnings.warn(reason, RuntimeWarning, stacklevel=4)
    return Selection("hardware", reason)
