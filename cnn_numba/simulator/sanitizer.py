"""Find what is wrong with a kernel that seems to work.

A race hides: most runs compute the right thing. `sanitize` does not wait for a wrong result. It runs the
kernel once with every access logged and finds from the log which accesses nothing orders, whatever the order
was this time. Then it runs blocks and threads in other orders, and compares.

It looks at one launch: mistakes on paths that these arguments do not take stay hidden. It runs the kernel's
Python function, so it works on machines with a GPU as well.
"""

import numpy as np

from cnn_numba.simulator.arguments import argument_names, device_arguments
from cnn_numba.simulator.diagnosis import Diagnosis
from cnn_numba.simulator.errors import DivergenceError
from cnn_numba.simulator.findings import Finding, Report
from cnn_numba.simulator.kernel import Launch
from cnn_numba.simulator.scheduler import ORDERS
from cnn_numba.simulator.trace import ATOMIC
from cnn_numba.simulator.tracing import TracedMemory, run_traced


def sanitize(kernel, seed=0):
    """Return a kernel that, launched, is run under scrutiny and returns a report.

    Parameters
    ----------
    kernel : kernel or function
    seed : int
        For the shuffled order.

    Returns
    -------
    object
        To be launched as the kernel is: ``sanitize(kernel)[grid, block](*arguments)`` returns a `Report` and
        leaves in the arguments what the launch computes.

    Examples
    --------
    >>> import cnn_numba
    >>> from numba import cuda, float32
    >>> @cuda.jit
    ... def reverse(x):
    ...     tile = cuda.shared.array(4, float32)
    ...     i = cuda.threadIdx.x
    ...     tile[i] = x[i]
    ...     x[i] = tile[3 - i]
    >>> report = sanitize(reverse)[1, 4](cuda.to_device(np.arange(4, dtype=np.float32)))
    >>> report.ok
    False
    >>> finding = report.findings[0]
    >>> finding.kind, finding.array, finding.index, finding.thread, finding.other_thread
    ('missing barrier', 'tile', (0,), (3, 0, 0), (0, 0, 0))
    """
    return Sanitizer(kernel, seed)


class Sanitizer:
    """What `sanitize` returns."""

    def __init__(self, kernel, seed=0):
        self._kernel, self._seed = kernel, seed

    def __getitem__(self, configuration):
        launch = Launch(self._kernel, *configuration)

        def run(*arguments):
            with device_arguments(launch, arguments) as on_device:
                return _Examination(launch, on_device, self._seed).report()

        return run


class _Examination:
    """One launch under scrutiny, with its arguments in device memory."""

    def __init__(self, launch, arguments, seed):
        self.launch, self.arguments, self.seed = launch, arguments, seed
        names = argument_names(launch.function, len(arguments))
        self.arrays = [pair for pair in zip(names, arguments, strict=True) for pair in _arrays(*pair)]
        self.findings, self.notes, self.orders = [], [], []
        self.trace = None

    def report(self):
        """Run in every order and return what was found."""
        before = self._contents()
        if self._examine("forwards"):
            after = self._contents()
            for order in ORDERS[1:]:
                self._restore(before)
                self._compare(order, before, after)
            self._restore(after)
        return Report(
            self.launch.name,
            self.launch.grid,
            self.launch.block,
            tuple(self.findings),
            tuple(self.notes),
            tuple(self.orders),
            self.trace,
        )

    def _contents(self):
        return [array.copy() for _, array in self.arrays]

    def _restore(self, contents):
        for (_, array), content in zip(self.arrays, contents, strict=True):
            array[...] = content

    def _examine(self, order):
        """Run with every access logged and look through the log; return whether all of the launch ran."""
        memory, divergence = TracedMemory(self.launch.dynamic_bytes, tolerant=True), None
        try:
            run_traced(self.launch, self.arguments, memory, order, self.seed)
        except DivergenceError as error:
            divergence = error
        trace = memory.trace(self.launch)
        if self.trace is None:
            self.trace = trace
            self.orders.append(order)
        self.findings += Diagnosis(trace, memory, divergence, self.notes, self._expects_nan).findings()
        return divergence is None and not memory.misses

    @property
    def _expects_nan(self):
        """Whether the kernel names NaN, or is given it as a number."""
        names = self.launch.function.__code__.co_names
        return "nan" in names or any(isinstance(value, float) and value != value for value in self.arguments)

    def _compare(self, order, before, after):
        """Run in another order and see whether the results are the same."""
        self.orders.append(order)
        try:
            self.launch.run(self.arguments, order=order, seed=self.seed)
            differences = self._differences(after)
        except (IndexError, DivergenceError):
            differences = {"what the launch does": False}
        if not all(differences.values()) and not self.findings:
            # The first run did not show why. Look again, in the order that does.
            self._restore(before)
            self._examine(order)
        for name, only_rounding in differences.items():
            self._tell_difference(name, order, only_rounding)

    def _differences(self, after):
        """Return the names of the arrays that differ, and whether by no more than the rounding of sums."""
        differences = {}
        for (name, array), expected in zip(self.arrays, after, strict=True):
            is_float = array.dtype.kind in "fc"
            if not np.array_equal(array, expected, equal_nan=is_float):
                differences[name] = is_float and _close(array, expected)
        return differences

    def _tell_difference(self, name, order, only_rounding):
        what = f"{name} differs when blocks and threads run {order}"
        # Atomic operations hand out places in the order in which threads come, and that may be meant.
        has_atomics = (self.trace.kind == ATOMIC).any()
        if not (has_atomics or self.findings):
            self.findings.append(Finding("depends on order", what, name))
        elif only_rounding:
            self.notes.append(f"{what}, by the rounding of sums")
        else:
            self.notes.append(what)


def _arrays(name, value):
    """Yield the arrays in an argument, each with the argument's name."""
    if isinstance(value, np.ndarray) and value.ndim > 0:
        yield name, value
    elif isinstance(value, tuple):
        for part in value:
            yield from _arrays(name, part)


def _close(one, other):
    """Return whether two float arrays are equal but for the rounding of sums."""
    epsilon = 1000 * float(np.finfo(one.dtype).eps)
    scale = float(np.max(np.abs(other), initial=0, where=np.isfinite(other)))
    return np.allclose(one, other, rtol=epsilon, atol=epsilon * scale, equal_nan=True)
