"""Is everything here that the course needs? Each finding comes with the exact fix for what is missing."""

import importlib
import importlib.metadata
import platform
import sys
import textwrap
from typing import NamedTuple

from cnn_numba import device
from cnn_numba.device import installed

_COLUMNS = 96

# What the two CUDA toolkits ask of the driver and of the GPU (their release notes).
_NEWEST_CUDA = 13
_NEEDS = {12: ("525", (5, 0)), 13: ("580", (7, 5))}


class Finding(NamedTuple):
    """One thing that was looked at."""

    topic: str
    healthy: bool
    text: str
    """What is there."""
    fix: str = ""
    """What to type or do; empty where nothing is wrong."""


def examine():
    """Look at Python, the packages, the GPU or simulator, the CPU and the data.

    Returns
    -------
    list of Finding

    Examples
    --------
    >>> [finding.topic for finding in examine()]
    ['Python', 'packages', 'torchvision', 'numba.cuda', 'kernels', 'GPU', 'driver', 'CPU', 'MNIST']
    """
    return [
        _python(),
        _packages(),
        _torchvision(),
        _numba_cuda(),
        *gpu_findings(),
        Finding("CPU", True, f"{device.threads()} threads, {platform.machine()}"),
        _mnist(),
    ]


def gpu_findings():
    """Hold GPU, driver, toolkit and the choice of the simulator against each other.

    Returns
    -------
    list of Finding
    """
    return [_kernels(), _gpu(), _driver()]


def report(findings):
    """Return findings as text: a line each, and under what is wrong how to repair it.

    Parameters
    ----------
    findings : list of Finding

    Returns
    -------
    str

    Examples
    --------
    >>> print(report([Finding("Python", True, "3.12"), Finding("GPU", False, "too old", "get a newer one")]))
    ok     Python  3.12
    WRONG  GPU     too old
                   fix: get a newer one
    """
    width = max(len(finding.topic) for finding in findings)
    indent = " " * (7 + width + 2)
    lines = []
    for finding in findings:
        head = f"{'ok   ' if finding.healthy else 'WRONG'}  {finding.topic:{width}}  "
        lines += textwrap.wrap(
            head + finding.text,
            _COLUMNS,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        if finding.fix:  # on one line, to be copied
            lines.append(f"{indent}fix: {finding.fix}")
    return "\n".join(lines)


def _python():
    fix = (
        ""
        if sys.version_info >= (3, 11)
        else "install Python 3.11 or newer and make a new environment with it"
    )
    return Finding("Python", not fix, platform.python_version(), fix)


def _packages():
    """Compare what is installed with what the package asks for."""
    # Only here: everything else in this module works without it.
    from packaging.requirements import Requirement

    try:
        lines = importlib.metadata.requires("cnn-numba") or []
    except importlib.metadata.PackageNotFoundError:
        return Finding("packages", False, "cnn-numba is not installed", "pip install --editable .")
    requirements = [Requirement(line) for line in lines]
    requirements = [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    wrong = [
        requirement
        for requirement in requirements
        if not (version := installed(requirement.name))
        or not requirement.specifier.contains(version, prereleases=True)
    ]
    if not wrong:
        return Finding("packages", True, ", ".join(f"{r.name} {installed(r.name)}" for r in requirements))
    text = ", ".join(f"{r.name} {installed(r.name) or 'is missing'} (needs {r.specifier})" for r in wrong)
    names = " ".join(f"'{r.name}{r.specifier}'" for r in wrong)
    return Finding("packages", False, text, f"pip install {names}")


def _torchvision():
    """Import what downloads data sets: torch and torchvision of different builds do not go together."""
    try:
        torchvision = importlib.import_module("torchvision")
    except Exception as error:
        # Whatever is raised while a half-fitting pair is imported; the first line is enough.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return Finding("torchvision", False, f"does not import: {reason}", _together())
    return Finding("torchvision", True, f"{torchvision.__version__}, imports")


def _together():
    return "pip install --force-reinstall torch torchvision  (both from the same index)"


def _numba_cuda():
    if sys.platform == "darwin":
        return Finding("numba.cuda", True, "numba's own simulator (macOS has no numba-cuda)")
    fix = f"pip uninstall --yes numba-cuda && pip install {_extra(_NEWEST_CUDA)}"
    try:
        cuda = importlib.import_module("numba.cuda")
    except Exception as error:
        return Finding("numba.cuda", False, f"does not import: {(str(error).splitlines() or ['?'])[0]}", fix)
    if "numba_cuda" not in (cuda.__file__ or ""):
        return Finding("numba.cuda", False, "is the old one inside numba, not numba-cuda's", fix)
    return Finding("numba.cuda", True, f"numba-cuda {installed('numba-cuda')}")


def _extra(major):
    return f"--editable '.[cu{major}]'"


def _kernels():
    simulator, reason = device.SELECTION
    if simulator and device.driver().gpus:
        text = f"run in the simulator although there is a GPU: {reason}"
        return Finding("kernels", False, text, "unset NUMBA_ENABLE_CUDASIM")
    if not simulator and not device.driver().gpus:
        return Finding(
            "kernels", False, f"cannot run: {reason}, and there is no GPU", "unset NUMBA_ENABLE_CUDASIM"
        )
    where = (
        "in the simulator, at toy sizes; training uses the CPU at full speed" if simulator else "on the GPU"
    )
    return Finding("kernels", True, f"run {where} ({reason})")


def _gpu():
    """Hold the GPU against the toolkit that is installed."""
    found = device.driver()
    if not found.gpus:
        if found.problem.startswith("the NVIDIA driver answers") and "NO_DEVICE" not in found.problem:
            return Finding(
                "GPU", False, found.problem, "restart the machine; afterwards nvidia-smi must list the GPU"
            )
        return Finding("GPU", True, f"none ({found.problem}); every notebook works without one")
    text = ", ".join(f"{gpu.name}, compute capability {device.dotted(gpu.capability)}" for gpu in found.gpus)
    best, toolkit = _best_toolkit(found), device.toolkit()
    if toolkit is None:
        return Finding("GPU", False, f"{text}; no CUDA toolkit", f"pip install {_extra(best)}")
    capability = found.gpus[0].capability
    if toolkit[0] in _NEEDS and capability < _NEEDS[toolkit[0]][1]:
        wrong = f"{text}: too old for the CUDA {device.dotted(toolkit)} toolkit"
        if best == toolkit[0]:
            return Finding("GPU", False, wrong, "export NUMBA_ENABLE_CUDASIM=1 (the simulator)")
        return Finding("GPU", False, wrong, f"pip install {_extra(best)}")
    return Finding("GPU", True, text)


def _best_toolkit(found):
    """Return the newest toolkit that both the driver and the first GPU can use."""
    for major in sorted(_NEEDS, reverse=True):
        if found.gpus[0].capability >= _NEEDS[major][1] and (found.cuda or (0,))[0] >= major:
            return major
    return min(_NEEDS)


def _driver():
    """Hold the driver against the toolkit that is installed."""
    found, toolkit = device.driver(), device.toolkit()
    text = device.facts()["driver"]
    if not found.gpus or toolkit is None or found.cuda is None or found.cuda[0] >= toolkit[0]:
        return Finding("driver", True, text)
    oldest = _NEEDS.get(toolkit[0], ("a newer one", None))[0]
    fix = f"update the driver to {oldest} or newer"
    if found.cuda[0] == 12:
        fix = f"pip install {_extra(12)}, or {fix}"
    return Finding("driver", False, f"{text}, but the toolkit is CUDA {device.dotted(toolkit)}", fix)


def _mnist():
    from cnn_numba.data import DataError, load

    try:
        mnist = load("mnist")
    except DataError as error:
        return Finding("MNIST", False, *str(error).split("; ", 1))
    return Finding("MNIST", True, f"{len(mnist.train_images)} + {len(mnist.test_images)} images")
