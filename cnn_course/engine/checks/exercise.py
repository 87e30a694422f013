"""Checking a learner's attempt, and saying in words what is wrong with it.

An `Exercise` is declared once: a reference, a generator of inputs, and the mistakes people make: by name,
what to say, and the wrong functions themselves. Calling it on an attempt runs all of them on the same inputs
and returns a `Verdict`: solved, not solved yet, or not right yet with a diagnosis. An attempt whose outputs
are those of a known mistake is told so by name; the rest is recognised for every exercise alike (`diagnose`).
Where the cell that was to define the attempt has failed, the check says that and judges nothing (`cells`).

With the environment variable ``CNN_NUMBA_STRICT=1`` whatever is not solved raises `CheckFailed`.
"""

import dis
import html
import inspect
import os
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cnn_course.engine import workbook
from cnn_course.engine.checks import cells
from cnn_course.engine.checks.extremes import narrowed
from cnn_course.engine.checks.mistakes import (
    Case,
    Trial,
    Wrong,
    call,
    diagnose,
    refuse_changed_inputs,
    refuse_uninitialised,
    same,
)
from cnn_course.engine.checks.uninitialised import code_of, names_in

# An exercise is imported before its cells are run.
cells.watch()

__all__ = ["CheckFailed", "Exercise", "Verdict", "Wrong", "avoids", "case", "fills", "strict"]


class CheckFailed(AssertionError):
    """An exercise is not solved, and strict mode is on."""


class StandIn(NamedTuple):
    """In the place of an attempt, however that is called: a function that has the reference's arguments."""

    function: Callable

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


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
_HEADLINES["measured"] = "◆ measured"  # an open problem is never solved: `cnn_course.engine.checks.contest`
_TINTS = {"solved": "46, 160, 67", "unsolved": "140, 140, 140", "wrong": "218, 54, 51"}
_TINTS["measured"] = "56, 132, 196"


@dataclass(frozen=True, repr=False)
class Verdict:
    """The answer to an attempt, readable as plain text and as HTML.

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
        For each mistake's name what to say of an attempt that behaves like it; one wrong function or more,
        with the arguments of `reference`; and the slips in the solution that lead to it, of which the tests
        make wrong answers (``tests/course/wrong_answers.py`` says how).
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
    ...     mistakes={"squared": ("You square `x`; doubling is meant.", lambda x: x * x)},
    ... )
    >>> double(lambda x: x + x).status
    'solved'
    >>> double(lambda x: x**2).message
    'You square `x`; doubling is meant.'
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
    slips: dict = field(init=False, default_factory=dict)

    def __post_init__(self):
        mistakes = {name: (text, *filter(callable, parts)) for name, (text, *parts) in self.mistakes.items()}
        for name, (_, *parts) in self.mistakes.items():
            self.slips[name] = [part for part in parts if not callable(part)]
        object.__setattr__(self, "mistakes", mistakes)

    def __call__(self, attempt):
        """Check `attempt`, a function (not what it returns); keep it if it is right; return the `Verdict`."""
        failure = cells.failure_of(self.name, attempt)
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
        entries = self.cases(self._generator())
        return [entry if isinstance(entry, Case) else Case(tuple(entry), {}) for entry in entries]

    def _generator(self):
        return np.random.default_rng(zlib.crc32(self.name.encode()))

    def trials(self, attempt):
        """Run the attempt on every case, beside the reference; return a list of `Trial`."""
        trials = []
        for given in self.inputs():
            expected = call(self.reference, given)
            got = self.attempted(attempt, given)
            trials.append(Trial(given, expected, got, self._right(got, expected)))
        return trials

    def attempted(self, attempt, given):
        """Run the attempt on one case; return the `Outcome`."""
        return call(attempt, given, None if isinstance(attempt, StandIn) else self.run)

    def behaving_like(self, function):
        """Return an attempt that comes to what a function with the reference's arguments comes to."""
        return StandIn(function)

    def agrees(self, outcome, other):
        """Tell whether two outcomes are alike: the same result, or the same type of exception."""
        if outcome.error is not None or other.error is not None:
            return type(outcome.error) is type(other.error)
        return same(outcome.value, other.value, None, self.rtol)

    def _right(self, got, expected):
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
            if self.starts_as and all(self._like(self.starts_as, trial) for trial in trials):
                return self._unsolved("The function still gives what it gave at the start.")
            self._in_the_names_of(attempt, trials[0].case)._judge(attempt, trials)
        except Wrong as finding:
            return Verdict(self.name, "wrong", finding.message, finding.details, finding.mistake)
        return Verdict(self.name, "solved", self._praise(trials))

    def _in_the_names_of(self, attempt, given):
        """Return the exercise with the attempt's names for the arguments in all that it says."""
        signature = inspect.signature(self.reference)
        names = dict(zip(signature.parameters, self._names(attempt, given), strict=False))
        names = {old: new for old, new in names.items() if old != new}
        if not names or set(names.values()) & set(signature.parameters):
            return self

        def reference(*args, **kwargs):
            return self.reference(*args, **kwargs)

        parameters = [one.replace(name=names.get(name, name)) for name, one in signature.parameters.items()]
        reference.__signature__ = signature.replace(parameters=parameters)
        mistakes = {
            mistake: (_renamed(text, names), *functions)
            for mistake, (text, *functions) in self.mistakes.items()
        }
        return replace(self, reference=reference, mistakes=mistakes)

    def _names(self, attempt, given):
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

    def _like(self, function, trial):
        """Tell whether the attempt did in this trial what `function` does."""
        return self.agrees(trial.got, call(function, trial.case))

    def _judge(self, attempt, trials):
        """Raise `Wrong` with the most telling finding, if there is any."""
        refuse_uninitialised(self, attempt, trials)
        refuse_changed_inputs(self, attempt, trials)
        failed = [trial for trial in trials if not trial.right]
        if failed:
            self._refuse_known_mistakes(trials, failed)
            diagnose(self, attempt, trials)
        self._refuse_wrapping(attempt)
        for holds in self.properties:
            holds(attempt)

    def _refuse_wrapping(self, attempt):
        """Raise `Wrong` about an attempt that is wrong for whole numbers of small types only."""
        for given in narrowed(self.inputs()):
            expected, got = call(self.reference, given), self.attempted(attempt, given)
            if not self._right(got, expected):
                types = (
                    f"`{name}` of {value.dtype}"
                    for name, value in given.named(self.reference).items()
                    if isinstance(value, np.ndarray)
                )
                raise Wrong(
                    "wraps",
                    "Right, until the whole numbers come in a small type: what NumPy computes of uint8 "
                    "numbers is a uint8, and 20 * 13 is 4 there. Convert the array first, by "
                    "`.astype(np.int64)`.",
                    f"Seen with {', '.join(types)}.",
                )

    def _refuse_known_mistakes(self, trials, failed):
        """Name the mistake that explains every failed case; of several, the one nearest in the others."""
        known = [(Wrong(name, text), f) for name, (text, *wrong) in self.mistakes.items() for f in wrong]
        explaining = [(mistake, f) for mistake, f in known if all(self._like(f, trial) for trial in failed)]
        if explaining:
            raise max(explaining, key=lambda pair: sum(self._like(pair[1], trial) for trial in trials))[0]


def strict() -> bool:
    """Tell whether strict mode is on: ``CNN_NUMBA_STRICT`` set to anything but 0."""
    return os.environ.get("CNN_NUMBA_STRICT", "") not in ("", "0")


def fills(shape, dtype=np.float32) -> Callable:
    """Return a `run` for attempts that write into an array instead of returning one.

    The array comes last in the call and is full of NaN, so that an element nobody writes shows.

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
    """Return a property: the attempt does not lean on somebody else's work.

    Parameters
    ----------
    *names : str
        Functions, such as ``"sorted"``; keyword arguments, ``"key="``; strings, ``"'same'"``.

    Examples
    --------
    >>> avoids("sorted")(lambda x: sorted(x))
    Traceback (most recent call last):
        ...
    cnn_course.engine.checks.mistakes.Wrong: ... `sorted` does the work. Do without it here.
    """

    def holds(attempt):
        used = names_in(code_of(attempt))
        for name in names:
            if name in used:
                message = f"The numbers are right, but `{name}` does the work. Do without it here."
                raise Wrong("shortcut", message)

    return holds


def is_blank(attempt: object) -> bool:
    """Tell whether a function's body is empty: a docstring, ``...`` or ``pass``, and nothing else.

    Examples
    --------
    >>> def stub(x):
    ...     "Double x."
    ...     ...
    >>> is_blank(stub), is_blank(lambda x: 2 * x)
    (True, False)
    """
    code = code_of(attempt)
    if code is None:
        return False
    ignored = {"RESUME", "NOP", "CACHE"}
    steps = [step for step in dis.get_instructions(code) if step.opname not in ignored]
    return len(steps) <= 2 and all(step.argval is None for step in steps)


def _renamed(text, names):
    """Return a text with other names in its code, which stands between backticks."""
    name = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, names))})(?!\w)")
    return re.sub(r"`[^`]+`", lambda code: name.sub(lambda old: names[old[0]], code[0]), text)


def _html(text):
    """Escape a message for HTML; backticks become code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
