"""What can be said about a wrong result, whatever the exercise.

An exception, a missing return, a changed or ignored input, a wrong type or shape, the right numbers in
disguise, the first wrong entry. `cnn_course.engine.checks.exercise` calls `diagnose` when none of an
exercise's own mistakes explains the result.
"""

import copy
import inspect
import linecache
import math
import traceback
import warnings
from typing import NamedTuple

import numpy as np

from cnn_course.engine.checks import errors
from cnn_course.engine.checks.uninitialised import twins


class Wrong(Exception):
    """A finding about an attempt, raised by whoever finds it and shown to the learner.

    Parameters
    ----------
    mistake : str
        The finding in a word or two, for the tests.
    message : str
        The finding in a sentence, for the learner. Backticks mark code.
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
        """Return the case with another positional argument in the place of one."""
        return Case((*self.args[:index], value, *self.args[index + 1 :]), self.kwargs)

    @property
    def circumstances(self):
        """What else there is to say of the call besides its arguments, in words."""
        return ""


class Outcome(NamedTuple):
    """What a call came to: a value or the exception it raised, and the arguments as it left them."""

    value: object
    error: Exception | None
    after: Case


class Trial(NamedTuple):
    """One case, with what was expected, what the attempt made of it, and whether that is right."""

    case: Case
    expected: Outcome
    got: Outcome
    right: bool


def call(function, case, run=None) -> Outcome:
    """Call a function on copies of a case's arguments, so that nobody sees what another one wrote.

    Parameters
    ----------
    function : callable
    case : Case
    run : callable, optional
        How to call it, ``run(function, *args, **kwargs)``; None calls it plainly.

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


def describe(case, function) -> str:
    """Say in words what a case is: the shapes of arrays, the values of everything else.

    Parameters
    ----------
    case : Case
    function : callable
        Its signature gives the names.

    Examples
    --------
    >>> describe(Case((np.ones((2, 3)),), {"delay": 1}), lambda image, delay=None: None)
    '`image` of shape (2, 3), `delay` = 1'
    """
    arguments = ", ".join(
        f"`{name}` of shape {value.shape}" if isinstance(value, np.ndarray) else f"`{name}` = {value!r}"
        for name, value in case.named(function).items()
    )
    return arguments + case.circumstances


def close(got, expected, rtol, slack=0.0):
    """Compare two arrays entry by entry, with the error measured against the largest magnitude.

    Parameters
    ----------
    got, expected : ndarray, same shape
    rtol : float
    slack : float
        What is allowed besides.

    Returns
    -------
    ndarray of bool
        A NaN agrees with a NaN only, an infinity with the same infinity only.

    Examples
    --------
    >>> close(np.array([1.0, np.nan, 3.0]), np.array([1.0, np.nan, np.nan]), rtol=1e-6)
    array([ True,  True, False])
    """
    if expected.dtype.kind not in "fc":
        return np.asarray(got == expected)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = finite.max() if finite.size else 0.0
    return np.isclose(got, expected, rtol=0, atol=rtol * scale + slack, equal_nan=True)


def same(got, expected, dtype, rtol, slack=0.0) -> bool:
    """Tell whether a result is the expected one: type, shape and numbers, tuples part by part.

    Parameters
    ----------
    got, expected : object
    dtype : dtype or None
        The dtype `got` must have; None asks for the kind of `expected` only.
    rtol : float
    slack : float or list of float
        As `close` takes it; of a tuple one for each part.

    Examples
    --------
    >>> same(3, 3.0, None, 1e-6), same(np.ones(2), np.ones(2), None, 1e-6)
    (False, True)
    """
    if isinstance(expected, tuple):
        alike = isinstance(got, tuple) and len(got) == len(expected)
        slack = slack or [0.0] * len(expected)
        parts = zip(got, expected, slack, strict=True) if alike else ()
        return alike and all(same(g, e, dtype, rtol, s) for g, e, s in parts)
    if _type_problem(got, expected, dtype) or np.shape(got) != np.shape(expected):
        return False
    return bool(close(np.asarray(got), np.asarray(expected), rtol, slack).all())


def refuse_uninitialised(exercise, attempt, trials):
    """Raise `Wrong` if the result depends on what the memory of ``np.empty`` happens to hold."""
    both = twins(attempt)
    for trial in trials if both else ():
        zeroed, poisoned = (call(twin, trial.case, exercise.run) for twin in both)
        if not _repeats(zeroed, poisoned, exercise.rtol):
            # With zeros the result may be right, or not: then more than the start is wrong.
            helps = exercise.agrees(zeroed, trial.expected)
            advice = "Start from `np.zeros`." if helps else "Is each element written before it is read?"
            raise Wrong(
                "not initialised",
                "Your result has numbers in it that nobody has written: an array of `np.empty` holds what is "
                f"in memory, often zeros, but not always. {advice}",
                f"Seen with {describe(trial.case, exercise.reference)}.",
            )


def refuse_changed_inputs(exercise, attempt, trials, advice="Work on a copy, or write into a new array."):
    """Raise `Wrong` if the attempt wrote into an array of the caller's; `advice` says where else to."""
    for trial in trials:
        after = trial.got.after.named(exercise.reference)
        for name, value in trial.case.named(exercise.reference).items():
            if isinstance(value, np.ndarray) and not _identical(value, after[name]):
                raise Wrong(
                    "changes input",
                    f"Your {_what(attempt)} changes `{name}`, which is an input. {advice}",
                )


def diagnose(exercise, attempt, trials):
    """Raise `Wrong` with the most telling thing that can be said of an attempt that failed."""
    failed = [trial for trial in trials if not trial.right]
    first = failed[0]
    where = f"Seen with {describe(first.case, exercise.reference)}."
    _refuse_error(first, attempt, where, *_pattern(exercise, trials))
    _refuse_type(first, exercise.dtype, where)
    _refuse_ignored_inputs(exercise, attempt, (first, trials[0], trials[-1]))
    _refuse_disguise(exercise, failed, where)
    _refuse_shape(first, where, *_pattern(exercise, trials))
    places = _places(failed, exercise.rtol)
    raise Wrong("numbers", *wrong_numbers(first, exercise.rtol), where, *places, *_pattern(exercise, trials))


_KINDS = {"f": "floating-point", "i": "integer", "u": "integer", "b": "Boolean", "c": "complex"}


def _type_problem(got, expected, dtype):
    """Say what is wrong with the type of a result; an empty string if nothing is."""
    if isinstance(expected, np.ndarray) and expected.ndim and not isinstance(got, np.ndarray):
        found = "a single number" if np.isscalar(got) else f"of type `{type(got).__name__}`"
        return f"The result must be a NumPy array, and yours is {found}."
    try:
        found = np.asarray(got).dtype
    except ValueError:  # a ragged list
        return f"The result must be an array or a number, and yours is of type `{type(got).__name__}`."
    wanted = np.asarray(expected).dtype
    if _KINDS.get(found.kind) != _KINDS[wanted.kind]:
        kind = _KINDS.get(found.kind, "not numeric")
        return f"The result must be {_KINDS[wanted.kind]}, and yours is {kind} (dtype {found})."
    if dtype is not None and found != dtype:
        return f"The result must have dtype {np.dtype(dtype)}, and yours has {found}."
    return ""


def _repeats(outcome, other, rtol):
    """Tell whether two calls of the same code came to the same."""

    def alike(value, second):
        if isinstance(value, tuple) and isinstance(second, tuple):
            return len(value) == len(second) and all(map(alike, value, second))
        if not isinstance(value, (np.ndarray, np.number, float)):
            return True  # not a number: judged elsewhere
        value, second = np.asarray(value), np.asarray(second)
        return value.shape == second.shape and bool(close(value, second, rtol).all())

    if outcome.error is not None or other.error is not None:
        return type(outcome.error) is type(other.error)
    return alike(outcome.value, other.value)


def _identical(array, other):
    return np.array_equal(array, other, equal_nan=array.dtype.kind in "fc")


def _refuse_error(trial, attempt, *where):
    wanted, error = trial.expected.error, trial.got.error
    if wanted is not None:
        kind = type(wanted).__name__
        if error is None:
            raise Wrong("not refused", f"A {kind} must be raised here, and your function returned.", *where)
        message = f"A {kind} must be raised here, and yours was {_error_text(error)}."
        raise Wrong("wrong error", message, *where)
    if error is not None:
        message = errors.in_words(error) or f"Your {_what(attempt)} raised {_error_text(error)}."
        place = _error_line(error, attempt) or errors.line_in(error, attempt, _what(attempt))
        raise Wrong("raises", message, *place, *where)
    if trial.got.value is None:
        raise Wrong("returns None", "Your function returns None: is a `return` missing at its end?")


def _what(attempt):
    """Return what an attempt is called: a kernel is what is launched with a grid."""
    return "kernel" if hasattr(type(attempt), "__getitem__") else "function"


def _error_text(error):
    """Return the exception's type and the start of its message."""
    text = " ".join(str(error).split()).rstrip(".")
    text = text if len(text) <= 240 else text[:240] + " ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _error_line(error, attempt):
    """Return the line of the learner's own function that the exception passed through, if any."""
    code = getattr(getattr(attempt, "py_func", attempt), "__code__", None)
    frames = traceback.extract_tb(error.__traceback__) if code else []
    frames = [frame for frame in frames if (frame.filename, frame.name) == (code.co_filename, code.co_name)]
    if not frames:
        return ()
    number = frames[-1].lineno
    line = f"Line {number - code.co_firstlineno + 1} of your function"
    text = linecache.getline(code.co_filename, number).strip()
    return (f"{line}: `{text}`" if text else f"{line}.",)


def _parts(trial):
    """Pair each part of the result with the expected one; all but tuples have a single part."""
    got, expected = trial.got.value, trial.expected.value
    if not isinstance(expected, tuple):
        return [(got, expected)]
    fits = isinstance(got, tuple) and len(got) == len(expected)
    return list(zip(got, expected, strict=True)) if fits else []


def _which(parts, place):
    """Say which of several results is meant; nothing where there is only one."""
    ordinals = ("first", "second", "third", "fourth", "fifth")
    return (f"That is the {ordinals[place]} of the {len(parts)} results.",) if len(parts) > 1 else ()


def _refuse_type(trial, dtype, where):
    got, expected = trial.got.value, trial.expected.value
    if isinstance(expected, tuple) and (not isinstance(got, tuple) or len(got) != len(expected)):
        raise Wrong("type", f"The result must be a tuple of {len(expected)}.", where)
    parts = _parts(trial)
    for place, part in enumerate(parts):
        problem = _type_problem(*part, dtype)
        if problem:
            raise Wrong("type", problem, *_which(parts, place), where)


def _refuse_ignored_inputs(exercise, attempt, trials):
    """Change one array at a time: where the right answer moves, the attempt's must move too."""
    arrays = [
        index
        for index, value in enumerate(trials[0].case.args)
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiu"
    ]
    ignored = []
    for index in arrays:
        follows = {_follows(exercise, attempt, trial, index) for trial in trials}
        if follows - {None} == {False}:
            ignored.append(index)
    if ignored and len(ignored) == len(arrays):
        raise Wrong("constant", f"Your {_what(attempt)} gives the same result whatever it is given.")
    if ignored:
        name = list(trials[0].case.named(exercise.reference))[ignored[0]]
        what = _what(attempt)
        raise Wrong(
            "ignores input", f"The result stays the same when `{name}` changes: does your {what} use it?"
        )


def _follows(exercise, attempt, trial, index):
    """Tell whether the attempt's result changes with one argument; None where even the right one does not."""
    value = trial.case.args[index]
    ramp = np.arange(value.size).reshape(value.shape)
    changed = trial.case.replaced(index, (np.flip(value) * 3 + ramp % 7).astype(value.dtype))
    if exercise.agrees(call(exercise.reference, changed), trial.expected):
        return None
    return not exercise.agrees(exercise.attempted(attempt, changed), trial.got)


def _refuse_shape(trial, *details):
    parts = _parts(trial)
    for place, (got, expected) in enumerate(parts):
        if np.shape(got) != np.shape(expected):
            message = f"The result has shape {np.shape(got)} where {np.shape(expected)} is right."
            raise Wrong("shape", message, *_which(parts, place), *details)


_DISGUISES = (
    ("transposed", "Your result is the right one transposed: rows and columns are exchanged.", np.transpose),
    ("negated", "Your result is right but for its sign, which is wrong throughout.", np.negative),
    ("reversed", "Your result is the right one in reverse order.", np.flip),
)


def _refuse_disguise(exercise, failed, where):
    """Recognise the right result transposed, negated, reversed, or times a number."""
    values = [part for trial in failed for part in _parts(trial)]
    if any(trial.expected.error or trial.got.error for trial in failed):
        return
    for mistake, message, transform in _DISGUISES:
        if all(same(got, transform(expected), exercise.dtype, exercise.rtol) for got, expected in values):
            raise Wrong(mistake, message, where)
    parts = _parts(failed[0])
    if any(np.shape(got) != np.shape(expected) for got, expected in parts):
        return
    got, expected = (np.concatenate([np.ravel(part) for part in side]) for side in zip(*parts, strict=True))
    if expected.dtype.kind != "f" or not np.isfinite(got).all():
        return
    if expected.size < 2 or not expected.any():
        return
    factor = float(got @ expected / (expected @ expected))
    if factor and close(got, factor * expected, exercise.rtol).all():
        raise Wrong("factor", f"Your result is the right one times {factor:.6g}.", where)


def wrong_numbers(trial, rtol):
    """Point at the first wrong entry, how many there are, and where they lie."""
    parts = _parts(trial)
    for place, (got, expected) in enumerate(parts):
        got, expected = np.asarray(got), np.asarray(expected)
        wrong, which = ~close(got, expected, rtol), _which(parts, place)
        if wrong.any():
            break
    if not expected.ndim:
        return (f"The result is {_number(got)} where {_number(expected)} is right.", *which)
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    entry = index[0] if len(index) == 1 else index
    lines = [f"Entry {entry} is {_number(got[index])} where {_number(expected[index])} is right.", *which]
    unwritten = int((wrong & np.isnan(got)).sum()) if got.dtype.kind == "f" else 0
    if unwritten:
        lines.append(f"{unwritten} of {wrong.size} entries are NaN: never written, or computed as `0 / 0`?")
    count = int(wrong.sum())
    if wrong.size > 1:
        lines.append(f"{count} of {wrong.size} entries {'is' if count == 1 else 'are'} wrong.")
    return lines


def _places(failed, rtol):
    """Say where the wrong entries lie, if in every failed case that is at an edge of the array."""
    wrong = []
    for got, expected in (part for trial in failed for part in _parts(trial)):
        if isinstance(got, np.ndarray) and got.shape == np.shape(expected) and got.ndim in (1, 2):
            wrong.append(~close(got, expected, rtol))
    places = {
        "at the end": [mask[:-1] for mask in wrong if mask.ndim == 1],
        "in the last row": [mask[:-1] for mask in wrong if mask.ndim == 2],
        "in the last column": [mask[:, :-1] for mask in wrong if mask.ndim == 2],
        "on the border": [mask[tuple(slice(1, -1) for _ in mask.shape)] for mask in wrong],
    }
    for place, elsewhere in places.items():
        # Of arrays with other axes such a place says nothing, and neither does it of them.
        if (
            len(elsewhere) == len(wrong)
            and sum(mask.size for mask in elsewhere)
            and not any(mask.any() for mask in elsewhere)
        ):
            return (f"The wrong entries all lie {place}.",)
    return ()


def _pattern(exercise, trials):
    """Say what the right cases have in common that the wrong ones have not."""
    right = [trial.right for trial in trials]
    square = {"shapes": [True] * len(trials)}
    sides = [0] * len(trials)  # of the largest array: of one element, it says nothing
    for place, trial in enumerate(trials):
        for name, value in trial.case.named(exercise.reference).items():
            if isinstance(value, np.ndarray) and value.ndim > 1:
                alone = square.setdefault(f"`{name}`", [True] * len(trials))
                alone[place] = len(set(value.shape)) == 1
                square["shapes"][place] &= alone[place]
                sides[place] = max(sides[place], *value.shape)
    for name, where in square.items():
        telling = any(is_right and side > 1 for is_right, side in zip(right, sides, strict=True))
        if telling and not all(right) and where == right:
            return (
                f"It is right for square {name} and wrong for all others: are height and width exchanged?",
            )
    return (f"{sum(right)} of {len(trials)} test cases are right.",) if any(right) else ()


def _number(value):
    return f"{value:.6g}" if value.dtype.kind == "f" and math.isfinite(value) else str(value)
