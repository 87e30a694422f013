"""Open problems: compares a learner's version of an operation with the package's.

A `Contest` is declared once, with the package's operation and random inputs of one shape. Call it on an
entry, a function that launches the learner's kernels. It returns a `Standing` with the factor by which the
entry is slower or faster. On a GPU both times are measured. On the emulated GPU they are modelled for three
GPUs, as a CPU's time would say nothing. Nothing depends on a contest; an open problem is never *solved*.

The factor means something because shortcuts are refused. In each round the entry gets new random numbers, and
a poisoned array for the result, so it cannot reuse anything from an earlier run; every result is compared
with the reference. An entry may not launch the package's kernels, nor copy to the host, where NumPy could do
the work. A last turn counts the operations of its kernels, as they must do the work.
"""

import statistics
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np

from cnn_course.engine.checks.evidence import Wrong, is_or_are, plain
from cnn_course.engine.checks.exercise import Verdict
from cnn_course.engine.checks.source import is_blank
from cnn_course.engine.checks.surroundings import is_ours
from cnn_course.engine.ladders import ModelledLadder, modelled
from cnn_course.engine.launch_lists import replaced
from cnn_numba import device
from gpuless import counting

__all__ = ["Contest", "Standing"]

_ROUNDS = 5  # in which both are measured on a GPU
_RANGE = "In brackets: four of five measured times would lie in this range."


@dataclass(frozen=True, repr=False)
class Standing(Verdict):
    """The result of an entry: a `Verdict` whose status may be "measured" or "modelled", with the factor.

    Parameters
    ----------
    factor : float
        The entry's time divided by the package's: below 1 the entry is faster. None if there are no times.
        Of modelled times, those on the first GPU.
    ladder : ModelledLadder
        The modelled times of both.
    """

    factor: float | None = None
    ladder: ModelledLadder | None = None


@dataclass(frozen=True, repr=False)
class Contest:
    """An open problem: call it on an entry and it returns a `Standing`.

    Parameters
    ----------
    name : str
        The package's function.
    package : callable
        Launches the package's kernels: ``package(*inputs, out)``, all arrays on the device.
    reference : callable
        The right answer, for arrays on the host.
    draw : callable
        Takes a generator, returns the inputs: float32 arrays of one shape.
    least_operations : int
        Floating-point operations that the best algorithm needs. An entry with fewer computes elsewhere.
    rtol : float
        Allowed error, relative to the largest magnitude in the result.
    """

    name: str
    package: Callable
    reference: Callable
    draw: Callable[[np.random.Generator], tuple]
    least_operations: int = 0
    rtol: float = 1e-5

    def __call__(self, entry):
        """Check and compare `entry`, called as ``entry(*inputs, out)``; return the `Standing`."""
        if is_blank(entry):
            message = "Write your entry into the cell above, then run this cell again."
            return Standing(self.name, "unsolved", message)
        if device.simulated():
            message = "Kernels run in the simulator here, where there is nothing to measure or model."
            return Standing(self.name, "unsolved", message)
        try:
            return self._compared(entry)
        except Wrong as finding:
            return Standing(self.name, "wrong", finding.message, tuple(finding.details), finding.mistake)

    def _compared(self, entry):
        # Different numbers each time, so that an entry cannot know its inputs.
        bench = _Bench(self, np.random.default_rng())
        bench.turn(entry, watched=True)  # both compile in their first run
        bench.turn(self.package)
        return (self._measured if device.hardware() else self._modelled)(bench, entry)

    def _measured(self, bench, entry):
        times = [(bench.turn(self.package), bench.turn(entry, watched=True)) for _ in range(_ROUNDS)]
        theirs, yours = (statistics.median(column) for column in zip(*times, strict=True))
        message = f"Your result is right. It takes {_times(yours / theirs)} as long as `{self.name}`."
        medians = (
            f"{1e3 * yours:.3g} ms against {1e3 * theirs:.3g} ms: medians of {_ROUNDS} turns on this GPU."
        )
        return Standing(self.name, "measured", message, (medians,), factor=yours / theirs)

    def _modelled(self, bench, entry):
        counts = self._counts_in_words([bench.counted(entry), bench.counted(self.package)])
        rungs = {"yours": lambda: bench.turn(entry, True), self.name: lambda: bench.turn(self.package)}
        try:
            ladder = modelled(rungs)
        except (RuntimeError, ValueError) as error:
            message = "Your result is right, but the time of its kernels cannot be modelled."
            raise Wrong("not modelled", message, plain(str(error))) from error
        yours, theirs = ladder.times.values()
        factors = {gpu: yours[gpu].microseconds / theirs[gpu].microseconds for gpu in yours}
        close = {gpu for gpus in ladder.close().values() for gpu in gpus}
        said = (
            f"{_times(factor)} as long on {gpu}{' (within the error of the model)' * (gpu in close)}"
            for gpu, factor in factors.items()
        )
        message = f"Your result is right. Its modelled time, compared with `{self.name}`: {', '.join(said)}."
        details = [f"{gpu}: {yours[gpu]}, `{self.name}` {theirs[gpu]}." for gpu in yours]
        details += [f"Yours is limited by {'; '.join(ladder.limits('yours'))}.", _RANGE, *counts]
        return Standing(
            self.name, "modelled", message, tuple(details), factor=next(iter(factors.values())), ladder=ladder
        )

    def _counts_in_words(self, counts):
        """Return the counts of both as lines; raise `Wrong` if the entry has too few operations."""
        least = self.least_operations
        operations = sum(each.flops for each in counts[0])
        if operations < least:
            message = f"Your kernels do {operations:,} operations, but the work takes at least {least:,}."
            raise Wrong("computes elsewhere", message)
        return [
            f"{who}: {_in_words(each)}."
            for who, each in zip(("Yours", f"`{self.name}`"), counts, strict=True)
        ]


class _Bench:
    """Arrays on the device, and turns of functions that fill the last one."""

    def __init__(self, contest, rng):
        self.contest, self.rng = contest, rng
        self.inputs = contest.draw(rng)
        self.on_device = [device.to_device(array) for array in self.inputs]
        self.out = device.to_device(np.float32(contest.reference(*self.inputs)))

    def turn(self, function, watched=False):
        """Run a function on new numbers and check its result; on a GPU, return its seconds."""
        self.inputs = self.contest.draw(self.rng)
        for there, array in zip(self.on_device, self.inputs, strict=True):
            device.copy(there, array)
        device.copy(self.out, np.full(self.out.shape, np.nan, np.float32))
        with _watch() if watched else nullcontext([]) as self.launched:
            seconds = _seconds(lambda: _call(function, *self.on_device, self.out))
        self._judge()
        return seconds

    def counted(self, function):
        """Run a function once more, counted; return the `gpuless.Counts` of its launches."""
        with counting() as counts:
            self.turn(function, watched=function is not self.contest.package)
        if self.launched and len(self.launched) != len(counts):
            message = "Launch every kernel by `kernel[grid, block](...)`, and none as part of a graph."
            raise Wrong("launched otherwise", message)
        return counts

    def _judge(self):
        expected, got = self.contest.reference(*self.inputs), device.to_host(self.out)
        if missing := int(np.isnan(got).sum()):
            raise Wrong(
                "never written", f"{missing} of {got.size} results {is_or_are(missing)} NaN or never written."
            )
        wrong = np.abs(got - expected) > self.contest.rtol * np.abs(expected).max()
        if count := int(wrong.sum()):
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            message = (
                f"{count} of {got.size} results {is_or_are(count)} wrong; the first is "
                f"`out[{', '.join(map(str, place))}]`: {got[place]:.6g} instead of {expected[place]:.6g}."
            )
            raise Wrong("wrong result", message)
        for number, (there, array) in enumerate(zip(self.on_device, self.inputs, strict=True)):
            if not np.array_equal(device.to_host(there), array):
                raise Wrong("changes input", f"Your function changes argument {number}, an input.")


def _in_words(counts):
    instructions = sum(each.warp_instructions for each in counts)
    fused = sum(each.by_class["fma"].warp for each in counts if "fma" in each.by_class)
    moved = sum(each.bytes_moved for each in counts) / 1e6
    wavefronts = sum(each.shared_memory.wavefronts for each in counts)
    return (
        f"{instructions:,} instructions of warps, {fused / instructions:.0%} of them multiply-adds; "
        f"{moved:,.1f} MB between the cores and L1; {wavefronts:,} deliveries by shared memory"
    )


def _call(function, *arrays):
    try:
        function(*arrays)
        device.synchronize()
    except Wrong:
        raise
    except Exception as error:
        raise Wrong("raises", f"It raises `{type(error).__name__}`.", plain(str(error))) from error


def _seconds(work):
    if device.hardware():
        return device.seconds(work, repeats=1, warm_up=0)[0]
    work()
    return None


def _times(factor):
    return f"{factor:.3g} times"


@contextmanager
def _watch():
    """Refuse an entry that launches the package's kernels or none, or copies to the host."""
    from numba.cuda import dispatcher
    from numba.cuda.cudadrv import driver

    launched, launch = [], dispatcher._Kernel.launch

    def noted(kernel, *args, **kwargs):
        if is_ours(kernel.py_func):
            name = kernel.py_func.__name__
            raise Wrong("package's kernel", f"`{name}` is a kernel of the package. Launch your own kernels.")
        launched.append(kernel)
        return launch(kernel, *args, **kwargs)

    def refused(*args, **kwargs):
        raise Wrong("computes on the host", "You copy an array to the host. Let kernels do the work.")

    with replaced(dispatcher._Kernel, "launch", noted), replaced(driver, "device_to_host", refused):
        yield launched
    if not launched:
        raise Wrong("no launch", "No kernel was launched. Launch your own kernels.")
