"""The evidence about an attempt, and findings.

A *judge* is a function that takes the `Evidence` and returns a finding, a `Wrong`, or None. An exercise has a
tuple of judges, in order: the learner reads the first finding.
"""

import copy
import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np


class Wrong(Exception):
    """A finding about an attempt: judges return it, and an exercise's functions may raise it.

    Parameters
    ----------
    mistake : str
        Its name, for the tests.
    message : str
        A sentence for the learner. Backticks mark code.
    *details : str
        Further lines.
    """

    def __init__(self, mistake, message, *details):
        super().__init__(message)
        self.mistake = mistake
        self.message = message
        self.details = details


class Case(NamedTuple):
    """The arguments of one call."""

    args: tuple
    kwargs: dict

    def named(self, function):
        """Return the arguments as a dict, by the names that `function` gives them."""
        return inspect.signature(function).bind(*self.args, **self.kwargs).arguments

    def replaced(self, index, value):
        """Return the case with one positional argument replaced."""
        return Case((*self.args[:index], value, *self.args[index + 1 :]), self.kwargs)

    @property
    def circumstances(self):
        """What else to say about the call, besides its arguments."""
        return ""


class Outcome(NamedTuple):
    """The outcome of a call: a value or an exception, and the arguments after it."""

    value: object
    error: Exception | None
    after: Case


class Trial(NamedTuple):
    """One case, with the expected outcome, the attempt's, and whether that is right."""

    case: Case
    expected: Outcome
    got: Outcome
    right: bool
    report: object = None
    """A kernel's sanitizer report; None if an exception ended the launch."""


def call(function, case, run=None) -> Outcome:
    """Call a function on copies of a case's arguments.

    Parameters
    ----------
    function : callable
    case : Case
    run : callable, optional
        How to call it: ``run(function, *args, **kwargs)``; None calls it directly.

    Raises
    ------
    Wrong
        If `run` itself finds something.

    Examples
    --------
    >>> call(np.negative, Case((np.float64(2.0),), {})).value
    np.float64(-2.0)
    """
    value = error = None
    after = copy.deepcopy(case)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            before = () if run is None else (function,)
            value = (run or function)(*before, *after.args, **after.kwargs)
        except Wrong:
            raise
        except Exception as raised:
            error = raised
    return Outcome(value, error, after)


def describe(named) -> str:
    """Describe a dict of arguments: the shapes of arrays, the values of everything else.

    Examples
    --------
    >>> describe({"image": np.ones((2, 3)), "delay": 1})
    '`image` of shape (2, 3), `delay` = 1'
    >>> describe({"batches": [np.ones(5), np.ones(5)]})
    '`batches` with 2 arrays of shape (5,)'
    """
    return ", ".join(f"`{name}` {_described(value)}" for name, value in named.items())


def _described(value):
    if isinstance(value, np.ndarray):
        return f"of shape {value.shape}"
    if isinstance(value, list) and value and all(isinstance(each, np.ndarray) for each in value):
        shapes = list(dict.fromkeys(str(each.shape) for each in value))
        kinds = f"shape {shapes[0]}" if len(shapes) == 1 else f"shapes {', '.join(shapes)}"
        return f"with {len(value)} arrays of {kinds}"
    if inspect.isfunction(value):
        return f"= `{value.__name__.strip('_')}`"
    return f"= {plain(repr(value))}"


def plain(text) -> str:
    """Return a text without the objects' addresses in memory, which differ from run to run.

    Examples
    --------
    >>> plain(repr([1, object()]))
    '[1, <object object>]'
    """
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", text)


def is_or_are(count) -> str:
    """Return the verb for a count.

    >>> f"1 of 5 {is_or_are(1)}, 2 of 5 {is_or_are(2)}"
    '1 of 5 is, 2 of 5 are'
    """
    return "is" if count == 1 else "are"


class StandIn(NamedTuple):
    """A function that replaces an attempt, and takes the reference's arguments."""

    function: Callable

    def __call__(self, *args, **kwargs):
        """Call the function."""
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class Evidence:
    """An attempt at an exercise, and its outcome of each case.

    Parameters
    ----------
    exercise : Exercise
    attempt : object
        Or a `StandIn`.
    trials : list of Trial
    """

    exercise: object
    attempt: object
    trials: list

    @cached_property
    def failed(self):
        """The trials that are not right."""
        return [trial for trial in self.trials if not trial.right]

    @cached_property
    def traced(self):
        """The trials with a report of the sanitizer."""
        return [trial for trial in self.trials if trial.report is not None]

    @property
    def is_stand_in(self):
        """Whether a stand-in replaces the attempt: it has no source and cannot be launched."""
        return isinstance(self.attempt, StandIn)

    @property
    def what(self):
        """The kind of attempt: "kernel" if it can be launched with a grid, else "function"."""
        return "kernel" if hasattr(type(self.attempt), "__getitem__") else "function"

    @cached_property
    def names(self):
        """The attempt's names for the reference's arguments, by the reference's names."""
        own = list(inspect.signature(self.exercise.reference).parameters)
        theirs = self.exercise.names_of(self.attempt, self.trials[0].case)[: len(own)] if self.trials else []
        names = [*theirs, *own[len(theirs) :]]
        return dict(zip(own, names if len(set(names)) == len(names) else own, strict=True))

    def named(self, case):
        """Return the arguments of a case by the attempt's names."""
        return {self.names[name]: value for name, value in case.named(self.exercise.reference).items()}

    def where(self, trial):
        """Return a sentence with the arguments of a trial."""
        return f"Seen with {describe(self.named(trial.case))}{trial.case.circumstances}."


def first_finding(judges, *evidence):
    """Return the first finding of some judges, None if there is none.

    >>> first_finding([lambda n: None, lambda n: n + 1, lambda n: n + 2], 1)
    2
    """
    return next((found for judge in judges if (found := judge(*evidence)) is not None), None)
