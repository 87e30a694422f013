"""Checking a learner's attempt, and saying in words what is wrong with it.

An `Exercise` is declared once: a reference, a generator of inputs, and the mistakes people make: by name,
what to say, and the wrong functions themselves. Calling it on an attempt runs all of them on the same inputs
and returns a `Verdict`: solved, not solved yet, or not right yet with a diagnosis. If its outputs are
those of a known mistake, the diagnosis names it; all other mistakes are recognised alike in every exercise.
The tuple `judges.JUDGES` says what is asked of an attempt, and in which order. Where the cell that was to
define the attempt has failed, the check says that and judges nothing (`cells`).

With the environment variable ``CNN_NUMBA_STRICT=1``, an exercise that is not solved raises `CheckFailed`.
"""

import html
import inspect
import os
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from cnn_course.engine import workbook
from cnn_course.engine.checks import cells
from cnn_course.engine.checks.compare import same
from cnn_course.engine.checks.endless import limited
from cnn_course.engine.checks.evidence import Case, Evidence, StandIn, Trial, Wrong, call, first_finding
from cnn_course.engine.checks.judges import JUDGES
from cnn_course.engine.checks.launches import few_prints
from cnn_course.engine.checks.source import is_blank
from cnn_course.engine.checks.uninitialised import code_of, names_in

# An exercise is imported before its cells are run.
cells.watch()

__all__ = ["CheckFailed", "Exercise", "StandIn", "Verdict", "Wrong", "avoids", "case", "fills", "strict"]


class CheckFailed(AssertionError):
    """An exercise is not solved, and strict mode is on."""


def case(*args, **kwargs) -> Case:
    """Return the arguments of one call as a `Case`; needed only where there are keywords.

    Parameters
    ----------
    *args, **kwargs
        As the attempt is to receive them.

    Examples
    --------
    >>> case(3, delay=1)
    Case(args=(3,), kwargs={'delay': 1})
    """
    return Case(args, kwargs)


_HEADLINES = {"solved": "✔ solved", "unsolved": "○ not solved yet", "wrong": "✘ not right yet"}
# An open problem is never solved: `cnn_course.engine.checks.contest`.
_HEADLINES |= {"measured": "◆ measured", "modelled": "◆ modelled"}
_TINTS = {"solved": "46, 160, 67", "unsolved": "140, 140, 140", "wrong": "218, 54, 51"}
_TINTS |= {"measured": "56, 132, 196", "modelled": "56, 132, 196"}


@dataclass(frozen=True, repr=False)
class Verdict:
    """The answer to an attempt, as plain text and as HTML.

    Parameters
    ----------
    exercise : str
        Name of the exercise.
    status : {"solved", "unsolved", "wrong"}
    message : str
        A sentence or two. Backticks mark code.
    details : tuple of str
        Further lines.
    mistake : str
        Name of the mistake, where there is one.
    """

    exercise: str
    status: str
    message: str
    details: tuple = ()
    mistake: str = ""

    @property
    def headline(self):
        """The status in words, after a mark that does not depend on colour."""
        return _HEADLINES[self.status]

    def __repr__(self):
        return "\n  ".join([f"{self.headline}: {self.exercise}", self.message, *self.details])

    def _repr_html_(self):
        # The text keeps the page's own colour and the tint is translucent: it reads on light and on dark.
        tint = _TINTS[self.status]
        box = f"border-left: 4px solid rgb({tint}); background: rgba({tint}, 0.1); padding: 8px 14px"
        head = f"<b>{self.headline}</b>: <code>{html.escape(self.exercise)}</code>"
        lines = [head, *(_html(line) for line in (self.message, *self.details))]
        body = "".join(f'<div style="margin: 3px 0">{line}</div>' for line in lines)
        return f'<div style="{box}">{body}</div>'


@dataclass(frozen=True, repr=False)
class Exercise:
    """An exercise's check: call it on an attempt and it returns a `Verdict`.

    Parameters
    ----------
    name : str
        The name of the function the learner writes.
    reference : callable
        The right answer. Where it raises, the attempt must raise the same kind of exception.
    cases : callable
        Takes a seeded generator, returns the inputs: each a tuple of arguments, or a `case`. Begin
        with the smallest; let shapes be neither square, nor alike, nor round numbers.
    mistakes : dict of str to tuple
        For each mistake's name: what to say of an attempt that behaves like it; one wrong function or more,
        with the arguments of `reference`; and the slips in the solution that lead to it, from which the tests
        make wrong answers (``tests/course/wrong_answers.py`` says how). In the text, ``{x}`` stands for what
        the learner calls the reference's argument `x`; a brace that is meant as one is doubled.
    properties : tuple of callable
        What must hold besides the numbers: each takes the attempt, and raises `Wrong` if it does not.
    starts_as : callable, optional
        Where a function is to be repaired: the broken one the learner starts from.
    run : callable, optional
        How to call the attempt, ``run(attempt, *args, **kwargs)``; see `fills`. May raise `Wrong`.
    dtype : dtype, optional
        The dtype the result must have. Without it the kind must agree (floating-point, integer, ...).
    rtol : float
        Allowed error, relative to the largest magnitude in the expected result.

    Attributes
    ----------
    slips : dict of str to list
        Those of each mistake. `mistakes` itself keeps what the check needs: texts and functions.

    Raises
    ------
    CheckFailed
        On calling it in strict mode, if the attempt is not a solution.

    Examples
    --------
    >>> double = Exercise(
    ...     "double",
    ...     reference=lambda x: 2 * x,
    ...     cases=lambda rng: [(rng.normal(size=(2, 3)),), (rng.normal(size=5),)],
    ...     mistakes={"squared": ("You square `{x}`; doubling is meant.", lambda x: x * x)},
    ... )
    >>> double(lambda x: x + x).status
    'solved'
    >>> double(lambda values: values**2).message
    'You square `values`; doubling is meant.'
    """

    name: str
    reference: Callable
    cases: Callable[[np.random.Generator], Iterable]
    mistakes: dict = field(default_factory=dict)
    properties: tuple = ()
    starts_as: Callable | None = None
    run: Callable | None = None
    dtype: object = None
    rtol: float = 1e-6
    judges: ClassVar[tuple] = JUDGES
    """What is asked of an attempt, in order: see `evidence`."""
    slips: dict = field(init=False, default_factory=dict)

    def __post_init__(self):
        mistakes = {name: (text, *filter(callable, parts)) for name, (text, *parts) in self.mistakes.items()}
        for name, (_, *parts) in self.mistakes.items():
            self.slips[name] = [part for part in parts if not callable(part)]
        object.__setattr__(self, "mistakes", mistakes)

    def __call__(self, attempt):
        """Check `attempt`, a function (not what it returns); keep it if it is right; return the `Verdict`."""
        failure = cells.failure_of(self.name, attempt)
        with few_prints():
            verdict = self._failed(failure) if failure else self._verdict(attempt)
        if verdict.status == "solved":
            kept = workbook.keep(self, attempt)
            return replace(verdict, details=(*verdict.details, *filter(None, [kept])))
        if strict():
            raise CheckFailed(str(verdict))
        earlier = workbook.told_of_earlier(self, attempt) if verdict.status == "wrong" else ""
        return replace(verdict, details=(*verdict.details, *filter(None, [earlier])))

    def inputs(self):
        """Return the list of cases: random, but the same on every call and every machine."""
        entries = self.cases(self.generator())
        return [entry if isinstance(entry, Case) else Case(tuple(entry), {}) for entry in entries]

    def generator(self):
        """Return the generator that the cases come from, the same every time."""
        return np.random.default_rng(zlib.crc32(self.name.encode()))

    def trials(self, attempt):
        """Run the attempt on every case, beside the reference; return a list of `Trial`."""
        trials = []
        for given in self.inputs():
            expected = call(self.reference, given)
            got = self.attempted(attempt, given)
            trials.append(Trial(given, expected, got, self.is_right(got, expected, given)))
        return trials

    def attempted(self, attempt, given):
        """Run the attempt on one case; return the `Outcome`."""
        with limited(attempt):
            return call(attempt, given, None if isinstance(attempt, StandIn) else self.run)

    def behaving_like(self, function):
        """Return an attempt that comes to what a function with the reference's arguments comes to."""
        return StandIn(function)

    def agrees(self, outcome, other):
        """Return whether two outcomes are alike: the same result, or the same type of exception."""
        if outcome.error is not None or other.error is not None:
            return type(outcome.error) is type(other.error)
        return same(outcome.value, other.value, None, self.rtol)

    def is_right(self, got, expected, given):
        """Return whether an outcome is the right one of a case."""
        if expected.error is not None:
            return isinstance(got.error, type(expected.error))
        return got.error is None and same(got.value, expected.value, self.dtype, self.rtol)

    def _verdict(self, attempt):
        if attempt is ... or is_blank(attempt):
            return self._unsolved("Write your answer into the cell above, run it, then run this check again.")
        if not callable(attempt):
            given = f"a value of type `{type(attempt).__name__}`"
            message = f"The check takes the function itself, `{self.name}`, and was given {given}."
            return Verdict(self.name, "wrong", message, mistake="not a function")
        try:
            trials = self.trials(attempt)
            if any(trial.got.value is ... for trial in trials):
                return self._unsolved("The function still returns `...`: put your answer there.")
            if self.starts_as and all(self.is_like(self.starts_as, trial) for trial in trials):
                return self._unsolved(
                    "It still does what it did at the start. Change it, run its cell, then this check again."
                )
            found = self.finding(Evidence(self, attempt, trials))
        except Wrong as raised:  # by the exercise's own `run`
            found = raised
        if found is None:
            return Verdict(self.name, "solved", self._praise(trials))
        return Verdict(self.name, "wrong", found.message, found.details, found.mistake)

    def finding(self, evidence):
        """Return what the first judge finds that finds anything, None if the attempt is right."""
        return first_finding(self.judges, evidence)

    def names_of(self, attempt, given):
        """Return an attempt's names for the reference's arguments, as many as are known."""
        try:
            parameters = inspect.signature(getattr(attempt, "py_func", attempt)).parameters.values()
        except (TypeError, ValueError):
            return []
        return [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]

    def _praise(self, trials):
        return f"Right on all {len(trials)} test cases."

    def _unsolved(self, message):
        return Verdict(self.name, "unsolved", message)

    def _failed(self, failure):
        message, details = failure.describe()
        return Verdict(self.name, "wrong", message, details, "cell failed")

    def is_like(self, function, trial):
        """Return whether the attempt did in this trial what `function` does."""
        return self.agrees(trial.got, call(function, trial.case))


def strict() -> bool:
    """Return whether strict mode is on: ``CNN_NUMBA_STRICT`` set to anything but 0."""
    return os.environ.get("CNN_NUMBA_STRICT", "") not in ("", "0")


def fills(shape, dtype=np.float32) -> Callable:
    """Return a `run` for attempts that write into an array instead of returning one.

    The array comes last in the call and is full of NaN, so that an element without a value shows.

    Parameters
    ----------
    shape : callable
        Takes the case's arguments, returns the shape of the array.
    dtype : dtype
        A floating-point one.

    Examples
    --------
    >>> def double_into(x, out):
    ...     out[:-1] = 2 * x[:-1]
    >>> fills(np.shape)(double_into, np.ones(3))
    array([ 2.,  2., nan], dtype=float32)
    """

    def run(attempt, *args, **kwargs):
        out = np.full(shape(*args, **kwargs), np.nan, dtype)
        attempt(*args, out, **kwargs)
        return out

    return run


def avoids(*names) -> Callable:
    """Return a property: the attempt does not use these functions.

    Parameters
    ----------
    *names : str
        Functions, such as ``"sorted"``; keyword arguments, ``"key="``; strings, ``"'same'"``.

    Examples
    --------
    >>> avoids("sorted")(lambda x: sorted(x))
    Traceback (most recent call last):
        ...
    cnn_course.engine.checks.evidence.Wrong: ... `sorted` does the work. Do without it here.
    """

    def holds(attempt):
        used = names_in(code_of(attempt))
        for name in names:
            if name in used:
                message = f"The numbers are right, but `{name}` does the work. Do without it here."
                raise Wrong("shortcut", message)

    return holds


def _html(text):
    """Escape a message for HTML; backticks become code, and outside of it stars emphasis."""
    parts = re.split(r"`([^`]+)`", html.escape(text, quote=False))
    parts[::2] = (re.sub(r"\*(\w[^*]*)\*", r"<em>\1</em>", part) for part in parts[::2])
    parts[1::2] = (f"<code>{part}</code>" for part in parts[1::2])
    return "".join(parts)
