"""The command ``doctor``: does this machine have everything the course needs? Findings name the exact fix."""

import importlib
import importlib.metadata
import platform
import shutil
import textwrap

import typer

from cnn_numba import device, extras
from cnn_numba.cli.shared import OPTIONS
from cnn_numba.device.health import NEWEST_CUDA, Finding, gpu_findings
from gpuless.nvidia import installed, versions

commands = typer.Typer(**OPTIONS)

_MOST_COLUMNS = 96
_TOPIC = len("torchvision")  # the longest


@commands.command(short_help="Look at this machine; say how to repair what is wrong.")
def doctor():
    """Look at Python, packages, what kernels run on, driver, threads and data; say how to fix what is wrong.

    The exit code is 0 if all is well and 1 if not.

    \b
    Example:
      cnn-numba doctor
    """
    healthy = True
    for finding in examine():
        print(report(finding), flush=True)
        healthy &= finding.healthy
    raise typer.Exit(0 if healthy else 1)


def examine():
    """Yield findings on Python, packages, GPU, CPU and data one by one, as some imports are slow."""
    yield _python()
    yield _packages()
    yield _torchvision()
    yield _roads()
    yield _numba_cuda()
    yield from gpu_findings()
    threads = device.threads()
    yield Finding("CPU", True, f"{threads} thread{'s' * (threads != 1)}, {platform.machine()}")
    yield _mnist()


def report(finding):
    """Return a finding as text: below it stands the fix, or how to get something optional.

    Examples
    --------
    >>> print(report(Finding("GPU", False, "too old", "get a newer one")))
    WRONG  GPU          too old
                        fix: get a newer one
    """
    indent = " " * (7 + _TOPIC + 2)
    head = f"{'ok   ' if finding.healthy else 'WRONG'}  {finding.topic:{_TOPIC}}  "
    columns = min(_MOST_COLUMNS, shutil.get_terminal_size((_MOST_COLUMNS, 0)).columns)
    whole_words = {"break_long_words": False, "break_on_hyphens": False}
    text = textwrap.fill(head + finding.text, columns, subsequent_indent=indent, **whole_words)
    if finding.fix:  # on one line, for copying
        text += f"\n{indent}{'to get it' if finding.healthy else 'fix'}: {finding.fix}"
    return text


def _python():
    python, numpy = versions()
    fix = "" if python.works else f"install Python {python.working} and make a new environment with it"
    text = f"{python.here} ({python.working} work, with NumPy {numpy.working})"
    return Finding("Python", python.works, text, fix)


def _packages():
    """Compare the installed packages with the requirements."""
    try:
        requirements = _required("cnn-numba") + (_required("gpuless") if installed("gpuless") else [])
    except importlib.metadata.PackageNotFoundError:
        return Finding("packages", False, "cnn-numba is not installed", extras.install())
    needed = {}
    for requirement in requirements:  # of both packages
        needed.setdefault(requirement.name, requirement).specifier &= requirement.specifier
    wrong = [
        r
        for r in needed.values()
        if not (version := installed(r.name)) or not r.specifier.contains(version, prereleases=True)
    ]
    if not wrong:
        return Finding("packages", True, ", ".join(f"{r.name} {installed(r.name)}" for r in needed.values()))
    text = ", ".join(f"{r.name} {installed(r.name) or 'is missing'} (needs {r.specifier})" for r in wrong)
    names = " ".join(f"'{r.name}{r.specifier}'" for r in wrong)
    return Finding("packages", False, text, f"pip install {names}")


def _required(package):
    """Return the requirements of an installed package on this machine, without extras."""
    # Imported here because the rest of this module works without it.
    from packaging.requirements import Requirement

    requirements = map(Requirement, importlib.metadata.requires(package) or [])
    return [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]


def _torchvision():
    """Import torchvision, which fails with a torch of another build."""
    if missing := [name for name in ("torch", "torchvision") if not extras.present(name)]:
        text = f"{' and '.join(missing)} not installed (optional: bench, notebook 07)"
        return Finding("torchvision", True, text, extras.command())
    try:
        torchvision = importlib.import_module("torchvision")
    except Exception as error:
        # A mismatched pair can raise anything; the first line is enough.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        fix = "pip install --force-reinstall torch torchvision  (both from the same index)"
        return Finding("torchvision", False, f"does not import: {reason}", fix)
    return Finding("torchvision", True, f"{torchvision.__version__} with torch {installed('torch')}, imports")


def _roads():
    """Look for the libraries of notebooks 25 and 26, without importing them, which would take seconds."""
    if missing := [name for name in extras.ROADS if not extras.present(name)]:
        text = f"{', '.join(missing)} not installed (optional: cnn-numba export, notebooks 25 and 26)"
        return Finding("roads", True, text, extras.command(missing[0]))
    return Finding("roads", True, f"{', '.join(extras.ROADS)} are installed")


def _numba_cuda():
    if device.simulated():
        there = installed("numba-cuda")
        beside = f"beside numba-cuda {there}" if there else "without numba-cuda"
        return Finding("numba.cuda", True, f"gpuless's simulator, {beside}")
    fix = f"pip uninstall --yes numba-cuda && {extras.install(f'cu{NEWEST_CUDA}')}"
    try:
        cuda = importlib.import_module("numba.cuda")
    except Exception as error:
        return Finding("numba.cuda", False, f"does not import: {(str(error).splitlines() or ['?'])[0]}", fix)
    if "numba_cuda" not in (cuda.__file__ or ""):
        return Finding("numba.cuda", False, "is the old one inside numba, not numba-cuda's", fix)
    chosen = device.facts().get("numba-cuda-mlir")
    instead = f"; the package's kernels are compiled by numba-cuda-mlir {chosen}" if chosen else ""
    return Finding("numba.cuda", True, f"numba-cuda {installed('numba-cuda')}{instead}")


def _mnist():
    from cnn_numba.data import DataError, load
    from cnn_numba.data.datasets import needs_download

    try:
        if needs_download():  # the doctor downloads nothing
            return Finding("MNIST", True, "not here yet: the first training run downloads it (12 MB)")
        mnist = load("mnist")
    except DataError as error:
        return Finding("MNIST", False, error.problem, error.fix)
    return Finding("MNIST", True, f"{len(mnist.train_images)} + {len(mnist.test_images)} images")
