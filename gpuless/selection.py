"""Hardware, emulator or simulator? The choice is made once, best before `numba.cuda` is imported.

A GPU is taken where there is one. Else the emulated GPU of `gpuless.emulator` runs Numba's compiled kernels
on the CPU, at a pace at which networks train. Where that cannot be (on macOS, say), the simulator runs the
kernels' Python code, slowly: `numba.cuda` is that of `gpuless.simulator` then, which needs no compiler and no
Numba. Nothing is printed.

The environment variable ``GPULESS`` overrides: ``hardware``, ``emulator`` or ``simulator``.
"""

import os
import sys
import warnings
from typing import NamedTuple

from gpuless import emulator, frontends, nvidia

_SIMULATOR = "NUMBA_ENABLE_CUDASIM"
_WISH, _WISHES = "GPULESS", ("hardware", "emulator", "simulator")


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
        """Whether kernels are Python functions, stepped by the simulator."""
        return self.gpu == "simulator"

    @property
    def emulated(self) -> bool:
        """Whether kernels are compiled, and the CPU runs them."""
        return self.gpu == "emulator"


def select(package: str = "gpuless") -> Selection:
    """Select what runs kernels: a GPU, the emulated one, or the simulator.

    Call it before `numba.cuda` is imported, as the simulator can be selected only then. Calling it again
    changes nothing.

    Parameters
    ----------
    package : str
        Whose import calls it, for the messages.

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
        _tell_children(wanted.simulated)
    if selection.simulated:
        from gpuless import simulator  # which takes time, and elsewhere is not needed

        simulator.order_of_launches()  # a wrong one ends the program here, not at its first launch
        simulator.install()
    elif selection.emulated:
        frontends.install()
    else:
        frontends.keep_kernels()
    return selection


def _wanted():
    asked = os.environ.get(_WISH, "").strip()
    if asked not in ("", *_WISHES):
        raise ValueError(f"{_WISH} must be {', '.join(_WISHES[:-1])} or {_WISHES[-1]}, got {asked!r}")
    if asked == "emulator" and (lack := emulator.problem()):
        raise RuntimeError(f"{_WISH} is emulator, and there can be no emulated GPU: {lack}")
    if asked == "hardware" and not frontends.compiles():
        fix = "pip install 'gpuless[cu13]'"
        raise RuntimeError(f"{_WISH} is hardware, and no compiler of kernels is installed: {fix}")
    if asked:
        return Selection(asked, f"the environment variable {_WISH} is {asked}")
    numbas = os.environ.get(_SIMULATOR, "").strip()
    numbas_reason = f"the environment variable {_SIMULATOR} is {numbas}"
    problem = nvidia.driver().problem
    lack = problem and emulator.problem()
    if numbas == "0" and (lack or not problem):
        return Selection("hardware", numbas_reason)
    # Where the simulator is all there is, the variable is no wish: a process of ours inherits what we set.
    if numbas not in ("", "0") and not lack:
        return Selection("simulator", numbas_reason)
    if problem is None:
        return Selection("hardware", "a GPU was found")
    if lack:
        return Selection("simulator", f"{problem}, and no GPU can be emulated: {lack}")
    return Selection("emulator", problem)


def _tell_children(simulated):
    """Set what Numba's own variable says, for the processes of this one and for who asks Numba's settings."""
    if simulated or os.environ.get(_SIMULATOR):
        os.environ[_SIMULATOR] = str(int(simulated))
        if "numba" in sys.modules:
            sys.modules["numba"].config.ENABLE_CUDASIM = int(simulated)


def _possible(wanted, package):
    """Return what can be had of a choice, now that `numba.cuda` is imported: as the simulator, or not."""
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
    # The first kernel would fail with an error about a driver, far from the line that is to be changed.
    warnings.warn(reason, RuntimeWarning, stacklevel=4)
    return Selection("hardware", reason)
