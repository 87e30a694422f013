"""Running a launcher: under the sanitizer, or compiled, with shortcuts refused."""

import linecache
import traceback
import warnings
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import numpy as np

from cnn_course.chapters.capstone.modelling import on_device, results_of
from cnn_course.engine.checks import wording
from cnn_course.engine.checks.evidence import Wrong, plain
from cnn_course.engine.checks.launches import InOut, Output, short_launches
from cnn_course.engine.checks.surroundings import is_ours
from cnn_numba import device
from gpuless import sanitize

#: Limits of a sanitized launch.
_LIMITS = {"seconds": 10, "log_entries": 2_000_000}


class Run(NamedTuple):
    """A run of a launcher: the arrays it filled, the sanitizer's reports, and the compiled kernels."""

    results: list
    reports: list = ()
    kernels: list = ()


def _to_host(*arguments, **keywords):
    raise Wrong("computes on the host", "An array is copied to the host. Leave the work to kernels.")


def _copied(*arguments, **keywords):
    message = "An array is filled or copied without a kernel of yours, but the model counts only kernels."
    raise Wrong("copies", message, "Write a short kernel for it. `array[:] = 0` is a copy as well.")


#: Functions of the driver, and their replacements while a launcher is watched.
TO_HOST = {"device_to_host": _to_host}
COPIES = {**TO_HOST, "host_to_device": _copied, "device_to_device": _copied}


def sanitized(launcher, drawn, refused=COPIES) -> Run:
    """Run a launcher with its kernels under the sanitizer; stop at the first kernel with findings."""
    reports = []

    def call(dispatcher, arguments, configuration):
        shape = configuration.griddim, configuration.blockdim
        shared = (0, configuration.sharedmem) if configuration.sharedmem else ()
        with allowed():  # on a GPU the sanitizer copies the arrays
            reports.append(sanitize(dispatcher)[(*shape, *shared)](*arguments))
        if not reports[-1].ok:
            raise _Found

    given = on_device(drawn)
    with (
        short_launches(**_LIMITS),
        copies_refused(refused) as allowed,
        _replaced(_dispatcher(), "call", call),
    ):
        try:
            _called(launcher, given, _Found)
        except _Found:
            return Run([], reports)
    return Run(results_of(drawn, given), reports)


def refuse_findings(run):
    """Raise `Wrong` for the sanitizer's first finding in a run."""
    for report in run.reports:
        if not report.ok:
            finding = report.findings[0]
            raise Wrong(finding.kind, wording.meaning(finding, report.kernel), *str(finding).splitlines())


def watched(launcher, drawn, names, refused=COPIES) -> Run:
    """Run a launcher compiled; refuse kernels of the package, some copies, and a run without launches.

    `names` are the names of the arguments.

    Raises
    ------
    Wrong
        If something is refused, the launcher raises, or an input has changed.
    """
    given, launched = on_device(drawn), []
    with launches_watched(launched, refused):
        _called(launcher, given)
    if not launched:
        raise Wrong("no launch", "No kernel was launched. A launcher launches kernels of yours.")
    for name, one, there in zip(names, drawn, given, strict=True):
        if isinstance(one, np.ndarray) and not np.array_equal(device.to_host(there), one):
            raise Wrong("changes input", f"Your launch changes `{name}`, which must stay as it is.")
    return Run(results_of(drawn, given), kernels=launched)


@contextmanager
def launches_watched(launched, refused=COPIES):
    """Collect the kernels that are launched in `launched`; refuse those of the package, and some copies."""
    from numba.cuda import dispatcher

    launch = dispatcher._Kernel.launch

    def noted(kernel, *arguments, **keywords):
        if is_ours(kernel.py_func):
            name = kernel.py_func.__name__
            raise Wrong("package's kernel", f"`{name}` is a kernel of the package. Launch your own.")
        launched.append(kernel)
        return launch(kernel, *arguments, **keywords)

    with _replaced(dispatcher._Kernel, "launch", noted), copies_refused(refused):
        yield


@contextmanager
def copies_refused(refused):
    """Refuse copies; yield a context manager that allows them."""
    if device.simulated():
        message = "The check watches copies in the driver, and the simulator has none."
        raise Wrong("in the simulator", message, "Run the notebook on a GPU or on the emulated one.")
    from numba.cuda.cudadrv import driver

    before = {name: getattr(driver, name) for name in refused}

    @contextmanager
    def copying(functions):
        with ExitStack() as stack:
            for name, function in functions.items():
                stack.enter_context(_replaced(driver, name, function))
            yield

    with copying(refused):
        yield lambda: copying(before)


def fresh(drawn):
    """Return the arguments for a reference: `drawn` with floats in float64 and without outputs."""
    inputs = (one.array if isinstance(one, InOut) else one for one in drawn if not isinstance(one, Output))
    return [_wide(one) for one in inputs]


def _wide(value):
    is_float = isinstance(value, np.ndarray) and value.dtype == np.float32
    return value.astype(np.float64) if is_float else value


class _Found(Exception):
    """The sanitizer has found something."""


def _called(launcher, given, passing=Wrong):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small grids
        try:
            launcher(*given)
            device.synchronize()
        except (Wrong, passing):
            raise
        except Exception as error:
            message = f"Your code raises `{type(error).__name__}`."
            raise Wrong("raises", message, plain(str(error)), *_places(error, launcher)) from error


def _places(error, launcher):
    """Return, in a tuple, the last line of the launcher's cell in an exception's traceback."""
    own, places = getattr(launcher, "__code__", None), ()
    for frame, number in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if own is not None and code.co_filename == own.co_filename:
            text = linecache.getline(code.co_filename, number).strip()
            places = (f"Line {number - code.co_firstlineno + 1} of `{code.co_name}`: `{text}`",)
    return places


def _dispatcher():
    from numba.cuda import dispatcher

    return dispatcher.CUDADispatcher


@contextmanager
def _replaced(owner, name, value):
    before = getattr(owner, name)
    with ExitStack() as stack:
        stack.callback(setattr, owner, name, before)
        setattr(owner, name, value)
        yield
