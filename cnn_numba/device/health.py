"""Do GPU, driver and toolkit fit together? Each finding names the exact fix."""

from typing import NamedTuple

from cnn_numba import extras
from cnn_numba.device import selection
from gpuless import nvidia

# The oldest driver and compute capability for each CUDA toolkit, from its release notes.
NEWEST_CUDA = 13
_NEEDS = {12: ("525", (5, 0)), 13: ("580", (7, 5))}


class Finding(NamedTuple):
    """The result of one check."""

    topic: str
    healthy: bool
    text: str  #: What was found
    fix: str = ""  #: What to do, if only to install something optional; empty if there is nothing to do


def gpu_findings() -> list[Finding]:
    """Check what kernels run on, the GPU and the driver."""
    return [_kernels(), _gpu(), _driver()]


def _kernels() -> Finding:
    gpu, reason = selection.SELECTION
    found = bool(nvidia.driver().gpus)
    text = selection.facts()["kernels"]
    if found == (gpu == "hardware"):
        return Finding("kernels", True, text if found else f"{text}; training uses the CPU's own kernels")
    text = f"{text}, although there is a GPU" if found else f"cannot run: {reason}, and there is no GPU"
    return Finding("kernels", False, text, "unset GPULESS NUMBA_ENABLE_CUDASIM")


def _gpu() -> Finding:
    """Check the GPU against the installed toolkit."""
    found = nvidia.driver()
    if not found.gpus:
        if found.broken:
            fix = "restart the machine; afterwards nvidia-smi must list the GPU"
            return Finding("GPU", False, found.problem or "", fix)
        return Finding("GPU", True, f"none ({found.problem}); every notebook works without one")
    text = ", ".join(f"{gpu.name}, compute capability {nvidia.dotted(gpu.capability)}" for gpu in found.gpus)
    capability, newest, toolkit = found.gpus[0].capability, (found.cuda or (0,))[0], nvidia.toolkit()
    # The newest toolkit that both the driver and the first GPU can use.
    usable = [major for major, (_, least) in _NEEDS.items() if newest >= major and capability >= least]
    best = max(usable, default=min(_NEEDS))
    if toolkit is None:
        return Finding("GPU", False, f"{text}; no CUDA toolkit", extras.install(f"cu{best}"))
    if toolkit[0] in _NEEDS and capability < _NEEDS[toolkit[0]][1]:
        wrong = f"{text}: too old for the CUDA {nvidia.dotted(toolkit)} toolkit"
        if best == toolkit[0]:
            return Finding("GPU", False, wrong, "export GPULESS=emulator")
        return Finding("GPU", False, wrong, extras.install(f"cu{best}"))
    return Finding("GPU", True, text)


def _driver() -> Finding:
    """Check the driver against the installed toolkit."""
    found, toolkit = nvidia.driver(), nvidia.toolkit()
    text = selection.facts()["driver"]
    if not found.gpus or toolkit is None or found.cuda is None or found.cuda[0] >= toolkit[0]:
        return Finding("driver", True, text)
    oldest = _NEEDS.get(toolkit[0], ("a newer one", None))[0]
    fix = f"update the driver to {oldest} or newer"
    if found.cuda[0] == 12:
        fix = f"{extras.install('cu12')}, or {fix}"
    return Finding("driver", False, f"{text}, but the toolkit is CUDA {nvidia.dotted(toolkit)}", fix)
