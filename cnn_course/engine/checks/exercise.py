"""Checks a learner's attempt, and says what is wrong with it.

An `Exercise` is declared once: a reference, a generator of inputs, and known mistakes, each with a name, a
text and wrong functions. Calling it on an attempt runs all of these on the same inputs and returns a
`Verdict`: solved, not solved yet, or not right yet with a diagnosis. If the attempt returns what a known
mistake returns, the diagnosis names that mistake. All other mistakes are recognised in the same way in every
exercise, by the judges in `judges.JUDGES`. If the cell that should define the attempt has failed, the check
says so and judges nothing (`cells`).

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

# Exercises are imported before their cells run.
cells.watch()

__all__ = ["CheckFailed", "Exercise", "StandIn", "Verdict", "Wrong", "avoids", "case", "strict"]


class CheckFailed(AssertionError):
    """An exercise is not solved, and strict mode is on."""


def case(*args, **kwargs) -> Case:
    """Return the arguments of a call as a `Case`; needed only for keyword arguments.

    Examples
    --------
    >>> case(3, delay=1)
    Case(args=(3,), kwargs={'delay': 1})
    """
    return Case(args, kwargs)


# Headline and colour.
_STATUSES = {
    "solved": ("✔ solved", "46, 160, 67"),
    "unsolved": ("○ not solved yet", "140, 140, 140"),
    "wrong": ("✘ not right yet", "218, 54, 51"),
    # For open problems, which are never solved: `cnn_course.engine.checks.contest`.
    "measured": ("◆ measured", "56, 132, 196"),
    "modelled": ("◆ modelled", "56, 132, 196"),
}


@dataclass(frozen=True, repr=False)
class Verdict:
    """The result of a check, as plain text and as HTML.

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
        Name of the mistake, if there is one.
    """

    exercise: str
    status: str
    message: str
    details: tuple = ()
    mistake: str = ""

    @property
    def headline(self):
        """The status in words, after a mark that is readable without colour."""
        return _STATUSES[self.status][0]

    def __repr__(self):
        return "\n  ".join([f"{self.headline}: {self.exercise}", self.message, *self.details])

    def _repr_html_(self):
        # The text has the page's colour and the tint is translucent: readable on light and on dark pages.
        tint = _STATUSES[self.status][1]
        box = f"border-left: 4px solid rgb({tint}); background: rgba({tint}, 0.1); padding: 8px 14px"
        head = f"<b>{self.headline}</b>: <code>{html.escape(self.exercise)}</code>"
        lines = [head, *(_html(line) for line in (self.message, *self.details))]
        body = "".join(f'<div style="margin: 3px 0">{line}</div>' for line in lines)
        return f'<div style="{box}">{body}</div>'


@dataclass(frozen=True, repr=False)
class Exercise:
    """An exercise's check: calling it on an attempt returns a `Verdict`.

    Parameters
    ----------
    name : str
        The name of the function the learner writes.
    reference : callable
        The right answer. If it raises, the attempt must raise the same kind of exception.
    cases : callable
        Takes a seeded generator, returns the inputs: each a tuple of arguments, or a `case`. Begin with the
        smallest; avoid shapes that are square, equal or round.
    mistakes : dict of str to tuple
        By name: the text for an attempt that behaves like the mistake; one or more wrong functions with the
        arguments of `reference`; and the slips in the solution that lead to it: tests make wrong answers of
        them (see ``tests/course/wrong_answers.py``). In the text, ``{x}`` stands for the learner's name for
        the reference's argument `x`; literal braces are doubled.
    properties : tuple of callable
        Further requirements: each takes the attempt, and raises `Wrong` if it is not met.
    starts_as : callable, optional
        In an exercise to repair a function: the broken one.
    run : callable, optional
        Calls the attempt: ``run(attempt, *args, **kwargs)``. May raise `Wrong`.
    dtype : dtype, optional
        The dtype the result must have. Without it the kind must agree (floating-point, integer, ...).
    rtol : float
        Allowed error, relative to the largest magnitude in the expected result.

    Attributes
    ----------
    slips : dict of str to list
        The slips of each mistake; `mistakes` itself keeps only texts and functions.

    Raises
    ------
    CheckFailed
        If it is called in strict mode and the attempt is not a solution.

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
    """The judges of an attempt, in order: see `evidence`."""
    slips: dict = field(init=False, default_factory=dict)

    def __post_init__(self):
        mistakes = {name: (text, *filter(callable, parts)) for name, (text, *parts) in self.mistakes.items()}
        for name, (_, *parts) in self.mistakes.items():
            self.slips[name] = [part for part in parts if not callable(part)]
        object.__setattr__(self, "mistakes", mistakes)

    def __call__(self, attempt):
        """Check `attempt`, a function (not its result); store it if it is right; return the `Verdict`."""
        failure = cells.failure_of(self.name, attempt)
        with few_prints():
            verdict = self._failed(failure) if failure else self._verdict(attempt)
        if verdict.status == "solved":
            kept = workbook.keep(self, attempt)
            return replace(verdict, details=(*verdict.details, *filter(None, [kept])))
        if strict():
            raise CheckFailed(str(verdict))
        earlier = workbook.note_of_earlier(self, attempt) if verdict.status == "wrong" else ""
        return replace(verdict, details=(*verdict.details, *filter(None, [earlier])))

    def inputs(self):
        """Return the cases: random, but the same in every call and on every machine."""
        entries = self.cases(self.generator())
        return [entry if isinstance(entry, Case) else Case(tuple(entry), {}) for entry in entries]

    def generator(self):
        """Return the generator of the cases, the same every time."""
        return np.random.default_rng(zlib.crc32(self.name.encode()))

    def trials(self, attempt):
        """Run the attempt and the reference on every case; return a list of `Trial`."""
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

    def agrees(self, outcome, other):
        """Return whether two outcomes have the same result, or the same type of exception."""
        if outcome.error is not None or other.error is not None:
            return type(outcome.error) is type(other.error)
        return same(outcome.value, other.value, None, self.rtol)

    def is_right(self, got, expected, given):
        """Return whether an outcome is right."""
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
        except Wrong as raised:  # by the exercise's own `run`, or by `limited`
            found = raised
        if found is None:
            return Verdict(self.name, "solved", self._praise(trials))
        return Verdict(self.name, "wrong", found.message, found.details, found.mistake)

    def finding(self, evidence):
        """Return the judges' first finding, None if the attempt is right."""
        return first_finding(self.judges, evidence)

    def names_of(self, attempt, given):
        """Return the attempt's names for the reference's arguments, as far as they are known."""
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

    def unmet(self, attempt):
        """Return the finding about the first property that the attempt lacks, None if it has all."""
        try:
            for holds in self.properties:
                holds(attempt)
        except Wrong as finding:
            return finding
        return None

    def is_like(self, function, trial):
        """Return whether the attempt's outcome in this trial is that of `function`."""
        return self.agrees(trial.got, call(function, trial.case))


def strict() -> bool:
    """Return whether strict mode is on: ``CNN_NUMBA_STRICT`` set to anything but 0."""
    return os.environ.get("CNN_NUMBA_STRICT", "") not in ("", "0")


def avoids(*names) -> Callable:
    """Return a property: the attempt does not use these functions.

    Parameters
    ----------
    *names : str
        Functions, such as ``"sorted"``; keyword arguments, as ``"key="``; strings, as ``"'same'"``.

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
    """Escape a message for HTML; backticks become code, and stars outside of code become emphasis."""
    parts = re.split(r"`([^`]+)`", html.escape(text, quote=False))
    parts[::2] = (re.sub(r"\*(\w[^*]*)\*", r"<em>\1</em>", part) for part in parts[::2])
    parts[1::2] = (f"<code>{part}</code>" for part in parts[1::2])
    return "".join(parts)
