"""Checking a swap, a launcher for a part of the step: it must be right, sanitized, and faster by the model.

The checks, in this order: the signature; the sanitizer on two small sizes; the results against the reference
on five small sizes, and on two of them again with other numbers; the results at the network's own sizes; and
whether the part gets faster on at least one GPU, modelled by `gpuless.profiling`. The baseline is always the
part with the kernels of Part I.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cnn_course.chapters.capstone import modelling
from cnn_course.chapters.capstone.first_launchers import fingerprint, first_launchers
from cnn_course.chapters.capstone.modelling import NAMES, Modelled, arguments_of, can_model
from cnn_course.chapters.capstone.parts import PARTS, calls_of
from cnn_course.chapters.capstone.slips import SLIPS
from cnn_course.chapters.capstone.watching import fresh, refuse_findings, sanitized, watched
from cnn_course.engine.checks import errors
from cnn_course.engine.checks.evidence import Wrong, is_or_are
from cnn_course.engine.checks.exercise import Exercise, Verdict
from cnn_course.engine.checks.float64 import float64_in
from cnn_course.engine.checks.kernels import _kernel_problem, is_unfinished
from cnn_course.engine.checks.launches import is_result

#: Tolerances relative to the largest number: for small sums, and for the network's, added in another order.
SMALL, LARGE = 2e-5, 2e-4
_SANITIZED = 2


class Judged(NamedTuple):
    """A swap that has passed: the part before and after, and remarks on float64."""

    before: Modelled
    after: Modelled
    float64: tuple = ()

    def in_a_line(self):
        """Return the part's times before and after, all GPUs in one line."""
        times = (
            f"{_ms(self.before.microseconds(k))} to {_ms(self.after.microseconds(k))} ms on {gpu}"
            for k, gpu in enumerate(NAMES)
        )
        return f"{', '.join(times)} (modelled)"

    def lines(self):
        """Return a line for each GPU with the part's time before and after."""
        return [
            f"{gpu}: the part takes {_ms(self.after.microseconds(k))} ms, and took "
            f"{_ms(self.before.microseconds(k))} before (modelled)"
            for k, gpu in enumerate(NAMES)
        ] + [*self.float64]


class KernelLauncher:
    """A launcher with a given launch; the reader writes only the kernel."""

    def __init__(self, kernel, launch):
        self.kernel, self.launch = kernel, launch
        self.__name__ = kernel.py_func.__name__

    def __call__(self, *arguments):
        """Launch it."""
        self.launch(self.kernel, *arguments)

    @property
    def fingerprint(self):
        """A hash of the kernel's source."""
        return fingerprint(self.kernel)


def judge(name: str, launcher) -> Judged:
    """Check a swap.

    Parameters
    ----------
    name : str
        Of a part.
    launcher : callable
        Called with the arguments of the part.

    Raises
    ------
    Wrong
        If the swap fails a check, which `mistake` names.
    """
    part = PARTS.get(name)
    if part is None:
        raise Wrong("no such part", f"The step has no part `{name}`. Its parts are {', '.join(PARTS)}.")
    _callable(part, launcher)
    marks = [modelling.fingerprint_of(one) for one in (launcher, first_launchers()[name])]
    key = (name, *marks)
    if key not in _passed or not all(marks):
        kernels = _named_if_wrong(part, launcher)
        _passed[key] = _faster(part, launcher)._replace(float64=tuple(_float64_remarks(kernels)))
    return _passed[key]


_passed = {}  # in this process, so that another part doesn't rerun the earlier checks


def _named_if_wrong(part, launcher):
    """Check numbers as `_right` does; raise `Wrong` for the slip that explains those of all small sizes."""
    try:
        return _right(part, launcher)
    except Wrong as found:
        slips = SLIPS.get(part.name)
        if found.mistake != "wrong numbers" or not slips:
            raise
        runs = [(given, watched(launcher, given, part.arguments).results) for given in _small(part)]
        for name, (text, *functions) in slips.items():
            for function in functions:
                if all(_agree(results, function(*fresh(given))) for given, results in runs):
                    raise Wrong(name, text) from None
        raise


def _right(part, launcher):
    """Raise `Wrong` for findings of the sanitizer and for wrong numbers; return the compiled kernels."""
    drawn, kernels = _small(part), {}
    for given in drawn[:_SANITIZED]:
        refuse_findings(sanitized(launcher, given))
    for given in drawn:
        run = watched(launcher, given, part.arguments)
        _compare(part, given, run.results)
        kernels |= {kernel.py_func.__name__: kernel for kernel in run.kernels}
    for given in _small(part, seed=1)[:_SANITIZED]:
        try:
            _compare(part, given, watched(launcher, given, part.arguments).results)
        except Wrong as found:
            message = "The first call is right, but a call with other numbers of the same sizes is not."
            raise Wrong("keeps results", message, _KEPT, found.message) from None
    return kernels


def _float64_remarks(kernels):
    """Yield a remark for each kernel that computes in float64: right, but perhaps slower than necessary."""
    for name, kernel in kernels.items():
        if found := float64_in(kernel):
            yield f"`{name}` computes in float64, which most GPUs do far more slowly. {found.details[-1]}"


_KEPT = "Does the launcher keep results from an earlier call instead of computing them again?"


def _small(part, seed=0):
    rng = np.random.default_rng([len(part.name), seed])
    return [part.draw(rng, *size) for size in part.small]


def _callable(part, launcher):
    """Raise `Wrong` if the launcher can't be called with the part's arguments."""
    wanted = f"`{part.name}({', '.join(part.arguments)})`"
    if hasattr(launcher, "py_func"):
        message = "This is a kernel. Write a launcher, a plain function that launches it."
        raise Wrong("a kernel", message, f"The step calls the launcher as {wanted}.")
    if not callable(launcher):
        raise Wrong("not a function", f"A launcher is a function, called as {wanted}.")
    if not isinstance(launcher, KernelLauncher):
        try:
            inspect.signature(launcher).bind(*part.arguments)
        except TypeError:
            raise Wrong("wrong signature", f"The step calls this part as {wanted}.") from None


def _compare(part, given, results, expected=None, tolerance=SMALL, where=""):
    """Compare a launcher's results with the right ones."""
    if expected is None:
        expected = part.reference(*fresh(given))
        expected = expected if isinstance(expected, tuple) else (expected,)
    names = [name for name, one in zip(part.arguments, given, strict=True) if is_result(one)]
    for name, got, right in zip(names, results, expected, strict=True):
        if missing := int(np.isnan(got).sum()):
            missed = f"{missing} of {got.size} elements of `{name}`"
            message = f"{missed} {is_or_are(missing)} not written, or NaN{where}."
            raise Wrong("never written", message)
        wrong = np.abs(got - right) > tolerance * max(np.abs(right).max(), 1e-30)
        if count := int(wrong.sum()):
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            at = f"{name}[{', '.join(map(str, place))}]"
            first = f"Right at small sizes, wrong{where}: " if where else ""
            message = (
                f"{first}{count} of {got.size} elements of `{name}` {is_or_are(count)} wrong, the first is "
                f"`{at}`, {got[place]:.6g} and not {right[place]:.6g}."
            )
            raise Wrong("wrong when large" if where else "wrong numbers", message, _sizes(part, given))


def _agree(results, expected):
    (got,) = results
    return np.abs(got - expected).max() <= SMALL * max(np.abs(expected).max(), 1e-30)


def _sizes(part, given):
    pairs = zip(part.arguments, given, strict=True)
    shapes = [f"`{name}` {getattr(getattr(one, 'array', one), 'shape', one)}" for name, one in pairs]
    return f"In the launch with {', '.join(shapes)}."


def _faster(part, launcher):
    """Model the part; raise `Wrong` if it's wrong at full size, or not faster on any GPU."""
    if not can_model():
        raise Wrong(
            "cannot be modelled",
            "Steps are modelled only on the emulated GPU, and kernels run on something else here.",
        )
    after = modelling.model_part(part.name, launcher)
    right = first_launchers({})[part.name]
    for call, results in zip(calls_of(part.name), after.results, strict=True):
        given = arguments_of(call)
        expected = watched(right, given, part.arguments).results
        _compare(part, given, results, expected, LARGE, f" at the size of {call.layer}")
    before = modelling.known(part.name, first_launchers()[part.name])
    if not any(after.microseconds(k) < before.microseconds(k) for k in range(len(NAMES))):
        lines = Judged(before, after).lines()
        raise Wrong("slower", "The numbers are right, but the part does not get faster on any GPU.", *lines)
    modelling.note(part.name, launcher, after)
    return Judged(before, after._replace(results=None))


def _ms(microseconds):
    return f"{microseconds / 1000:.3g}"


# --- Exercises ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class KernelSwap(Exercise):
    """An exercise whose answer is a kernel for a part of the step.

    Parameters
    ----------
    part : str
    launch : callable
        ``launch(kernel, *arguments)`` launches it for the part.
    """

    part: str = ""
    launch: Callable | None = None

    def _verdict(self, attempt):
        if is_unfinished(attempt):
            return self._unsolved("Write your kernel into the cell above, run it, then run this check again.")
        if problem := _kernel_problem(attempt, self.name):
            return Verdict(self.name, "wrong", problem, mistake="not a kernel")
        wanted, code = PARTS[self.part].arguments, attempt.py_func.__code__
        if code.co_argcount != len(wanted):
            message = f"The kernel is launched with {', '.join(wanted)}, and yours takes {code.co_argcount}."
            return Verdict(self.name, "wrong", message, mistake="wrong signature")
        verdict = self._judged({self.part: KernelLauncher(attempt, self.launch)})
        try:
            for holds in self.properties if verdict.status == "solved" else ():
                holds(attempt)
        except Wrong as found:
            return Verdict(self.name, "wrong", found.message, found.details, found.mistake)
        return verdict

    def _judged(self, swaps):
        lines = []
        for name, launcher in swaps.items():
            try:
                judged = judge(name, launcher)
                if len(swaps) > 1:
                    lines += [f"{name}: {judged.in_a_line()}", *judged.float64]
                else:
                    lines += judged.lines()
            except Wrong as found:
                title = f"`{name}`: " if len(swaps) > 1 or not self.part else ""
                return Verdict(self.name, "wrong", title + found.message, found.details, found.mistake)
        message = "Right at every size, nothing found by the sanitizer, and faster by the model."
        return Verdict(self.name, "solved", message, tuple(lines))


@dataclass(frozen=True, repr=False)
class OwnSwaps(KernelSwap):
    """The open exercise: a function that returns launchers by the names of their parts."""

    def _verdict(self, attempt):
        if is_unfinished(attempt):
            return self._unsolved("Return a launcher of yours, run the cell, then run this check again.")
        if not callable(attempt) or hasattr(attempt, "py_func"):
            message = f"The check takes the function `{self.name}`, which returns launchers by name."
            return Verdict(self.name, "wrong", message, mistake="not a function")
        try:
            swaps = attempt()
        except Exception as error:
            message = f"Your function raises `{type(error).__name__}`: {error}."
            if isinstance(error, TypeError):
                message += (
                    " Put launchers into the dict by their names, without brackets: the step calls them."
                )
            return Verdict(self.name, "wrong", message, errors.line_of(error, attempt, "function"), "raises")
        if not isinstance(swaps, dict) or not swaps:
            message = 'Return a dict with at least one launcher, as `{"dense_forward": my_launcher}`.'
            if swaps is None:
                message = f"Your function returns nothing: is there a `return`? {message}"
            return Verdict(self.name, "wrong", message, mistake="no swaps")
        unknown = [str(name) for name in swaps if name not in PARTS]
        if unknown:
            message = f"The step has no part `{unknown[0]}`. Its parts are {', '.join(PARTS)}."
            return Verdict(self.name, "wrong", message, mistake="no such part")
        return self._judged(swaps)


def small_cases(part):
    """Return the `cases` of an exercise: the small sizes of a part."""
    return lambda rng: [PARTS[part].draw(rng, *size) for size in PARTS[part].small]
