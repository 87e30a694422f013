"""Launches of a kernel: the cases of a `KernelExercise`, and running them."""

import contextlib
import copy
import inspect
import io
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from cnn_course.engine.checks.evidence import Outcome
from gpuless import sanitize, set_limits
from gpuless.simulator import argument_names, poisoned


class Output(NamedTuple):
    """An array that the kernel fills."""

    shape: tuple
    dtype: object


class InOut(NamedTuple):
    """An array that the kernel changes."""

    array: np.ndarray


def output(shape, dtype=np.float32):
    """Mark an array that the kernel fills; it is poisoned before the launch, floats with NaN."""
    return Output(shape if isinstance(shape, tuple) else (shape,), dtype)


def inout(array):
    """Mark an array that the kernel changes; the reference returns its contents after the launch."""
    return InOut(array)


def normal(rng: np.random.Generator, shape: int | tuple) -> np.ndarray:
    """Draw a float32 array of normally distributed numbers."""
    return rng.normal(size=shape).astype(np.float32)


@dataclass(frozen=True)
class LaunchCase:
    """One launch of a kernel, as a case of a `KernelExercise`; made by `launch`.

    Attributes
    ----------
    grid, block : int or tuple of int
    arguments : tuple
        In the kernel's order, outputs marked.
    shared : int
        Bytes of dynamic shared memory.
    """

    grid: object
    block: object
    arguments: tuple
    shared: int = 0
    kwargs: ClassVar = {}

    @property
    def args(self):
        """The reference's arguments: all but the outputs."""
        given = (value for value in self.arguments if not isinstance(value, Output))
        return tuple(value.array if isinstance(value, InOut) else value for value in given)

    @property
    def configuration(self):
        """The contents of the launch's square brackets."""
        return self.grid, self.block, *((0, self.shared) if self.shared else ())

    @property
    def circumstances(self):
        """Grid and block, in words."""
        return f", launched as `[{', '.join(map(str, self.configuration))}]`"

    def named(self, function):
        """Return the reference's arguments as a dict, by their names in `function`."""
        return inspect.signature(function).bind(*map(_as_typed, self.args)).arguments

    def replaced(self, index, value):
        """Return the launch with one argument of the reference replaced."""
        places = [place for place, old in enumerate(self.arguments) if not isinstance(old, Output)]
        arguments = list(self.arguments)
        old = arguments[places[index]]
        arguments[places[index]] = InOut(value) if isinstance(old, InOut) else value
        return replace(self, arguments=tuple(arguments))

    def arrays(self):
        """Return new arguments for the kernel: copies of inputs, and poisoned outputs."""
        return [_fresh(value) for value in self.arguments]

    def outcome(self, arrays, error=None):
        """Return the outcome of a launch, given its arguments after it."""
        results = [a for a, given in zip(arrays, self.arguments, strict=True) if is_result(given)]
        after = tuple(g if is_result(g) else a for a, g in zip(arrays, self.arguments, strict=True))
        value = results[0] if len(results) == 1 else tuple(results)
        return Outcome(value, error, replace(self, arguments=after))


def is_result(given):
    """Return whether an argument of a launch is an `output` or an `inout`."""
    return isinstance(given, (Output, InOut))


def _as_typed(value):
    """Convert a NumPy number to Python's, ``np.float32(0.1)`` to 0.1; return other values unchanged."""
    if isinstance(value, np.floating):
        return float(str(value))
    return int(value) if isinstance(value, np.integer) else value


def _fresh(value):
    if isinstance(value, Output):
        return poisoned(value.shape, value.dtype)
    return copy.deepcopy(value.array if isinstance(value, InOut) else value)


def launch(grid, block, *arguments, shared=0) -> LaunchCase:
    """Return a case: ``kernel[grid, block](*arguments)``.

    Parameters
    ----------
    grid, block : int or tuple of int
        As in the launch, x first.
    *arguments
        Arrays and numbers, `output` and `inout`, in the kernel's order.
    shared : int
        Bytes of dynamic shared memory.

    Examples
    --------
    >>> case = launch(3, 32, np.ones(2, np.float32), np.float32(2), output(2))
    >>> case.named(lambda x, scale: x * scale)["scale"], case.circumstances
    (2.0, ', launched as `[3, 32]`')
    """
    if not any(map(is_result, arguments)):
        raise ValueError("a launch needs an `output` or an `inout` among its arguments")
    return LaunchCase(grid, block, arguments, shared)


class Examination(NamedTuple):
    """The outcome of a launch, and the sanitizer's report, None if an exception ended it."""

    outcome: Outcome
    report: object


def examine(kernel, case: LaunchCase):
    """Run a launch of a kernel under the sanitizer.

    Returns
    -------
    Examination
        ``.outcome.value`` has the outputs, ``.report.trace`` every access (`gpuless.access.trace`).

    Examples
    --------
    >>> import cnn_numba
    >>> from numba import cuda
    >>> @cuda.jit
    ... def count(out):
    ...     out[cuda.grid(1)] = cuda.grid(1)
    >>> found = examine(count, launch(2, 3, output(5)))
    >>> found.outcome.value, found.report.kinds
    (array([0., 1., 2., 3., 4.], dtype=float32), {'out of bounds'})
    """
    with short_launches():
        return run(sanitize(kernel), case)


# More must be an endless loop: a slow scan by three blocks logs 300,000 entries, other kernels far fewer.
_LIMITS = {"seconds": 5, "log_entries": 500_000}


@contextlib.contextmanager
def short_launches(**limits):
    """Within the block, stop launches at these limits, or at those of a check."""
    before = set_limits(**limits or _LIMITS)
    try:
        yield
    finally:
        set_limits(**before)


def run(kernel, case):
    """Launch a kernel on copies of a case's arguments."""
    arrays = case.arrays()
    report = error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about copies of host arrays, and small grids
        try:
            report = kernel[case.configuration](*arrays)
        except Exception as raised:
            error = raised
    if stop := getattr(report, "stop", None):  # the report is incomplete
        report, error = None, stop
    return Examination(case.outcome(arrays, error), report)


def result_names(attempt, case):
    """Return the names of the arguments that a kernel fills or changes."""
    names = argument_names(attempt.py_func, len(case.arguments))
    return [name for name, given in zip(names, case.arguments, strict=True) if is_result(given)]


_PRINTED, _MOST_TEXT = 20, 20_000  # lines, and characters


class _FirstLines(io.TextIOBase):
    """Keeps the first lines that are written, and counts all lines: an endless loop may print, too."""

    def __init__(self):
        self.kept, self.size, self.lines = [], 0, 0

    def writable(self):
        return True

    def write(self, text):
        if self.lines < _PRINTED and self.size < _MOST_TEXT:
            self.kept.append(text[:_MOST_TEXT])
            self.size += len(text)
        self.lines += text.count("\n")
        return len(text)


@contextlib.contextmanager
def few_prints():
    """Show only the first lines that attempts print: a check runs many cases, and thousands of threads."""
    printed = _FirstLines()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        lines = "".join(printed.kept).splitlines()[:_PRINTED]
        if printed.lines > len(lines):
            lines.append(f"... and {printed.lines - len(lines)} more lines, of all cases of the check")
        if lines:
            print(*lines, sep="\n")
