"""Hardware, emulator or simulator? The choice is made once, before `numba.cuda` is imported.

Numba reads ``NUMBA_ENABLE_CUDASIM`` when `numba.cuda` is first imported. Without a GPU its simulator runs the
same kernels in Python, slowly, which is what learning and testing need; so where there is no GPU, `select`
chooses it and puts the scheduler of `gpuless.simulator` in the place of its slow part. Nothing is printed.

The environment variable ``GPULESS`` overrides: ``hardware``, ``simulator``, or ``emulator``, which is the
emulated GPU of `gpuless.emulator`: Numba's compiled kernels, run by the CPU.
"""

import os
import sys
import warnings
from typing import NamedTuple

from gpuless.nvidia import driver
from gpuless.simulator.install import install

_SIMULATOR = "NUMBA_ENABLE_CUDASIM"
_WISH, _WISHES = "GPULESS", ("hardware", "emulator", "simulator")


class Selection(NamedTuple):
    """What numba.cuda is in this process, and why."""

    simulator: bool
    reason: str
    emulated: bool = False


def select(package: str = "gpuless") -> Selection:
    """Select the simulator where there is no GPU, unless the user or an earlier import has decided.

    To be called before `numba.cuda` is imported. Calling it again changes nothing.

    Parameters
    ----------
    package : str
        Whose import calls it, for the messages.

    Returns
    -------
    Selection

    Examples
    --------
    >>> select() == select()
    True
    """
    selection = _already_imported(package) if "numba.cuda" in sys.modules else _choose()
    if selection.simulator:
        install()
    return selection


def _choose() -> Selection:
    asked = os.environ.get(_WISH, "").strip()
    if asked not in ("", *_WISHES):
        raise ValueError(f"{_WISH} must be {', '.join(_WISHES[:-1])} or {_WISHES[-1]}, got {asked!r}")
    if asked == "emulator":
        return _emulator()
    wish = {"simulator": "1", "hardware": "0"}.get(asked, os.environ.get(_SIMULATOR, "").strip())
    problem = driver().problem
    # A process started by ours inherits the variable that is set below: without a GPU that is no wish.
    if asked or (wish and (problem is None or wish == "0")):
        _set_simulator(wish)
        return Selection(wish != "0", f"the environment variable {_reason(asked, wish)}")
    if problem is None:
        return Selection(False, "a GPU was found")
    _set_simulator("1")
    return Selection(True, problem)


def _reason(asked, wish):
    return f"{_WISH} is {asked}" if asked else f"{_SIMULATOR} is {wish}"


def _set_simulator(wish):
    os.environ[_SIMULATOR] = wish
    if "numba" in sys.modules:
        # numba has read its environment; numba.cuda will look here.
        sys.modules["numba"].config.ENABLE_CUDASIM = int(wish)


def _emulator():
    from gpuless import emulator

    problem = emulator.problem()
    if problem:
        raise RuntimeError(f"{_WISH} is emulator, and there can be no emulated GPU: {problem}")
    _set_simulator("0")
    emulator.install()
    driver.cache_clear()
    return Selection(False, f"the environment variable {_WISH} is emulator", True)


def _already_imported(package):
    """Return what numba.cuda is, now that it can no longer be changed."""
    config = sys.modules.get("numba.cuda.core.config") or sys.modules["numba"].config
    if config.ENABLE_CUDASIM:
        return Selection(True, f"numba.cuda was imported before {package}, as the simulator")
    problem = driver().problem
    if problem is None:
        return Selection(False, "a GPU was found")
    reason = (
        f"numba.cuda was imported before {package}, and {problem}: no kernel can run; "
        f"import {package} first, or set {_SIMULATOR}=1"
    )
    # The first kernel would fail with an error about a driver, far from the line that is to be changed.
    warnings.warn(reason, RuntimeWarning, stacklevel=5)
    return Selection(False, reason)
