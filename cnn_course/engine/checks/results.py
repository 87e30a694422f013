"""Judges of wrong results in any exercise, if none of its mistakes explains the result.

`RESULTS` has them in order. Each takes the `Evidence` of an attempt that has failed at least one trial.
"""

import itertools
import math

import numpy as np

from cnn_course.engine.checks import errors
from cnn_course.engine.checks.compare import close, same, same_bits, type_problem
from cnn_course.engine.checks.evidence import Wrong, call, first_finding, is_or_are
from cnn_course.engine.checks.launches import LaunchCase, result_names


def wrong_result(evidence):
    """Return the most telling finding about a failed attempt."""
    return first_finding(RESULTS, evidence) if evidence.failed else None


# --- Exceptions --------------------------------------------------------------------------------------------


def not_refused(evidence):
    """Find a missing or wrong exception, if the reference raises one."""
    trial = evidence.failed[0]
    wanted, error = trial.expected.error, trial.got.error
    if wanted is None:
        return None
    kind, where = type(wanted).__name__, _where(evidence)
    if error is None:
        message = f"A {kind} must be raised here, and your function returned."
        return Wrong("not refused", message, *where)
    return Wrong("wrong error", f"A {kind} must be raised here, and yours was {errors.text(error)}.", *where)


def raised(evidence):
    """Find an exception."""
    error = evidence.failed[0].got.error
    if error is None:
        return None
    message = errors.in_words(error) or f"Your {evidence.what} raised {errors.text(error)}."
    if evidence.what == "function" and errors.is_about_arguments(error):
        message = (
            "A kernel that your function launches does not compile with these arguments. Are they in the "
            "kernel's order, and has each as many axes as the kernel takes?"
        )
    if evidence.what == "kernel" and errors.is_unconfigured(error):
        message = f"`{evidence.exercise.name}` is an ordinary function: remove the `@cuda.jit` above it."
    where = *errors.line_of(error, evidence.attempt, evidence.what), *_where(evidence)
    return Wrong("raises", message, *where)


def returns_none(evidence):
    """Find that None is returned."""
    trial = evidence.failed[0]
    if trial.expected.error is None and trial.got.error is None and trial.got.value is None:
        return Wrong("returns None", "Your function returns None: is a `return` missing at its end?")
    return None


# --- Types -------------------------------------------------------------------------------------------------


def another_type(evidence):
    """Find a result that should be an array or a tuple, or has the wrong dtype."""
    trial = evidence.failed[0]
    got, expected = trial.got.value, trial.expected.value
    where = evidence.where(trial)
    if isinstance(expected, tuple) and (not isinstance(got, tuple) or len(got) != len(expected)):
        found = f"has {len(got)}" if isinstance(got, tuple) else f"is of type `{type(got).__name__}`"
        return Wrong("type", f"The result must be a tuple of {len(expected)}, and yours {found}.", where)
    parts = parts_of(trial)
    for place, part in enumerate(parts):
        if problem := type_problem(*part, evidence.exercise.dtype):
            return Wrong("type", problem, *_which(parts, place, trial.case, evidence.attempt), where)
    return None


def another_order(evidence):
    """Recognise a tuple of right results in the wrong order."""
    exercise, values = evidence.exercise, [(t.got.value, t.expected.value) for t in evidence.failed]
    if _has_errors(evidence) or not all(isinstance(each, tuple) for pair in values for each in pair):
        return None
    first = len(values[0][1])
    if not 2 <= first <= 5 or any(len(got) != first or len(expected) != first for got, expected in values):
        return None
    for order in itertools.permutations(range(first)):
        if all(
            same(tuple(got[place] for place in order), expected, exercise.dtype, exercise.rtol)
            for got, expected in values
        ):
            message = "The results are right, but in the wrong order."
            return Wrong("other order", message, evidence.where(evidence.failed[0]))
    return None


# --- Inputs ------------------------------------------------------------------------------------------------


def ignored_input(evidence):
    """Change one array at a time: if the right answer changes, the attempt's must change, too."""
    trials = (evidence.failed[0], evidence.trials[0], evidence.trials[-1])
    args = trials[0].case.args
    arrays = [i for i, arg in enumerate(args) if isinstance(arg, np.ndarray) and arg.dtype.kind in "fiu"]
    ignored = []
    for index in arrays:
        follows = {_follows(evidence, trial, index) for trial in trials}
        if follows - {None} == {False}:
            ignored.append(index)
    if not ignored:
        return None
    what = evidence.what
    if len(ignored) == len(arrays):
        return Wrong("constant", f"Your {what} gives the same result for all inputs.")
    name = list(evidence.named(trials[0].case))[ignored[0]]
    message = f"The result stays the same when `{name}` changes: does your {what} use it?"
    return Wrong("ignores input", message)


def _follows(evidence, trial, index):
    """Return whether the attempt's result changes with one argument; None if that is unknown.

    It is unknown if the right result does not change, or the attempt raises an exception.
    """
    exercise, value = evidence.exercise, trial.case.args[index]
    ramp = np.arange(value.size).reshape(value.shape)
    changed = trial.case.replaced(index, (np.flip(value) * 3 + ramp % 7).astype(value.dtype))
    if trial.got.error or exercise.agrees(call(exercise.reference, changed), trial.expected):
        return None
    got = exercise.attempted(evidence.attempt, changed)
    # Every bit counts: beside a huge number, other changes look like rounding errors.
    return None if got.error else not same_bits(got.value, trial.got.value)


# --- The right result in disguise --------------------------------------------------------------------------


_DISGUISES = (
    ("transposed", "Your result is the right one transposed: rows and columns are exchanged.", np.transpose),
    ("negated", "Your result is right except for its sign, which is wrong everywhere.", np.negative),
    ("reversed", "Your result is the right one in reverse order.", np.flip),
)


def disguised(evidence):
    """Recognise the right result transposed, negated, or reversed."""
    exercise = evidence.exercise
    values = [part for trial in evidence.failed for part in parts_of(trial)]
    # A truth value has no sign.
    if _has_errors(evidence) or any(np.asarray(expected).dtype.kind == "b" for _, expected in values):
        return None
    for mistake, message, transform in _DISGUISES:
        if all(same(got, transform(expected), exercise.dtype, exercise.rtol) for got, expected in values):
            return Wrong(mistake, message, evidence.where(evidence.failed[0]))
    return None


def multiplied(evidence):
    """Recognise the right result times a factor, which may be a size and differ between cases."""
    if _has_errors(evidence):
        return None
    factors = [_factor(trial, evidence.exercise.rtol) for trial in evidence.failed]
    # A single number is always a multiple of another.
    if not all(factors) or max(map(_numbers_in, evidence.failed)) < 2:
        return None
    first, *others = factors
    times, other = f"times {first:.6g}", next((each for each in others if not np.isclose(each, first)), None)
    if other is not None:
        another = f"{times} here, and times {other:.6g} in another case"
        times = _size_that_is(factors, evidence) or another
    where = evidence.where(evidence.failed[0])
    return Wrong("factor", f"Your result is the right one {times}.", where)


def _numbers_in(trial):
    return sum(np.size(expected) for _, expected in parts_of(trial))


def _factor(trial, rtol):
    """Return the factor between a trial's result and the right one; 0 if there is none."""
    parts = parts_of(trial)
    if not parts or any(
        type_problem(*part, None) or np.shape(part[0]) != np.shape(part[1]) or not np.isfinite(part[0]).all()
        for part in parts
    ):
        return 0
    got, expected = (np.concatenate([np.ravel(part) for part in side]) for side in zip(*parts, strict=True))
    if expected.dtype.kind != "f" or not expected.any():
        return 0
    with np.errstate(over="ignore", invalid="ignore"):
        factor = float(got @ expected / (expected @ expected))
    explains = all(
        close(np.asarray(got), factor * np.asarray(expected), rtol).all() for got, expected in parts
    )
    return factor if explains and abs(factor - 1) > rtol else 0


def _size_that_is(factors, evidence):
    """Return a factor in words, if it is a size of the inputs, or a product or quotient of two."""
    sizes = {}
    for trial in evidence.failed:
        for name, value in evidence.named(trial.case).items():
            for axis, size in enumerate(np.shape(value)):
                text = f"{name}.shape[{axis}]" if np.ndim(value) > 1 else f"{name}.size"
                sizes.setdefault(text, []).append(size)
    sizes = {text: np.array(each) for text, each in sizes.items() if len(each) == len(factors) and all(each)}
    words = {}
    for one, size in sizes.items():
        words |= {f"times `{one}`": size, f"divided by `{one}`": 1 / size}
    for (one, size), (other, second) in itertools.permutations(sizes.items(), 2):
        words[f"times `{one} / {other}`"] = size / second
        words[f"divided by `{one} * {other}`"] = 1 / (size * second)
    return next((text for text, expected in words.items() if np.allclose(factors, expected, rtol=1e-4)), "")


def rounded(evidence):
    """Recognise integers that were computed in float32, which rounds large ones."""
    parts = [part for trial in evidence.failed for part in parts_of(trial)]
    if _has_errors(evidence) or any(np.shape(got) != np.shape(expected) for got, expected in parts):
        return None
    whole = all(np.asarray(each).dtype.kind in "iu" for part in parts for each in part)
    if not (parts and whole and all(close(*map(np.float64, part), 1e-5).all() for part in parts)):
        return None
    if all(np.max(expected, initial=0) <= 2**24 for _, expected in parts):
        return None
    return Wrong(
        "rounded",
        "Your whole numbers are right except for their last digits: above 16,777,216 float32 has no odd "
        "numbers. Compute them as integers.",
        *wrong_numbers(evidence.failed[0], 0, evidence.attempt),
        evidence.where(evidence.failed[0]),
    )


def _has_errors(evidence):
    return any(trial.expected.error or trial.got.error for trial in evidence.failed)


# --- Shape and numbers -------------------------------------------------------------------------------------


def another_shape(evidence):
    """Find a result of the wrong shape."""
    parts = parts_of(evidence.failed[0])
    for place, (got, expected) in enumerate(parts):
        if np.shape(got) != np.shape(expected):
            message = f"The result has shape {np.shape(got)} where {np.shape(expected)} is right."
            if not np.shape(expected):
                single = "True or False" if np.asarray(expected).dtype.kind == "b" else "number"
                message = f"The result must be a single {single}, and yours has shape {np.shape(got)}."
            which = _which(parts, place, evidence.failed[0].case, evidence.attempt)
            return Wrong("shape", message, *which, *_where(evidence))
    return None


def numbers(evidence):
    """Report the first wrong entry, and what the wrong ones have in common."""
    rtol, first = evidence.exercise.rtol, evidence.failed[0]
    where, *pattern = _where(evidence)
    places = _places(evidence.failed, rtol)
    return Wrong("numbers", *wrong_numbers(first, rtol, evidence.attempt), where, *places, *pattern)


#: The judges of a wrong result, in order: an exception or None; the wrong order or type; a result that does
#: not depend on an input, which explains any numbers; a simple slip; then the entries themselves.
RESULTS = (
    not_refused,
    raised,
    returns_none,
    another_order,
    another_type,
    ignored_input,
    disguised,
    multiplied,
    rounded,
    another_shape,
    numbers,
)


# --- What the judges share ---------------------------------------------------------------------------------


def _where(evidence):
    """Return the arguments of the first failed trial, and what the right cases have in common."""
    return evidence.where(evidence.failed[0]), *_pattern(evidence)


def parts_of(trial):
    """Pair each part of the result with the expected one; only tuples have several parts."""
    got, expected = trial.got.value, trial.expected.value
    if not isinstance(expected, tuple):
        return [(got, expected)]
    fits = isinstance(got, tuple) and len(got) == len(expected)
    return list(zip(got, expected, strict=True)) if fits else []


def _which(parts, place, case, attempt):
    """Return which of several results is wrong, for a kernel by its name; nothing if there is only one."""
    if len(parts) < 2:
        return ()
    if isinstance(case, LaunchCase) and hasattr(attempt, "py_func"):
        return (f"That is in `{result_names(attempt, case)[place]}`.",)
    ordinals = ("first", "second", "third", "fourth", "fifth")
    return (f"That is the {ordinals[place]} of the {len(parts)} results.",)


def wrong_numbers(trial, rtol, attempt=None):
    """Report the first wrong entry, and the number of wrong ones."""
    parts = parts_of(trial)
    for place, (got, expected) in enumerate(parts):
        got, expected = np.asarray(got), np.asarray(expected)
        wrong, which = ~close(got, expected, rtol), _which(parts, place, trial.case, attempt)
        if wrong.any():
            break
    if not expected.ndim:
        return (f"The result is {_beside(got, expected)}.", *which)
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    entry = index[0] if len(index) == 1 else index
    lines = [f"Entry {entry} is {_beside(got[index], expected[index])}.", *which]
    unwritten = int((wrong & np.isnan(got)).sum()) if got.dtype.kind == "f" else 0
    if unwritten:
        nan = f"{unwritten} of {wrong.size} entries {is_or_are(unwritten)} NaN"
        lines.append(f"{nan}: never written, or computed as `0 / 0`?")
    count = int(wrong.sum())
    if wrong.size > 1:
        lines.append(f"{count} of {wrong.size} entries {is_or_are(count)} wrong.")
    return lines


def _places(failed, rtol):
    """Return where the wrong entries lie, if they lie at the same edge in every failed case."""
    wrong = []
    for got, expected in (part for trial in failed for part in parts_of(trial)):
        if isinstance(got, np.ndarray) and got.shape == np.shape(expected) and got.ndim in (1, 2):
            mask = ~close(got, expected, rtol)
            if mask.any() and mask.size == 1:
                return ()  # a single element has no edge
            wrong += [mask] if mask.any() else []
    places = {
        "at the end": [mask[:-1] for mask in wrong if mask.ndim == 1],
        "in the last row": [mask[:-1] for mask in wrong if mask.ndim == 2],
        "in the last column": [mask[:, :-1] for mask in wrong if mask.ndim == 2],
        "on the border": [mask[tuple(slice(1, -1) for _ in mask.shape)] for mask in wrong],
    }
    for place, elsewhere in places.items():
        # An edge must exist in all arrays.
        if (
            len(elsewhere) == len(wrong)
            and sum(mask.size for mask in elsewhere)
            and not any(mask.any() for mask in elsewhere)
            and (place != "on the border" or _is_no_accident(wrong))
        ):
            return (f"The wrong entries all lie {place}.",)
    return ()


def _is_no_accident(wrong):
    """Return whether the same number of random entries would rarely all lie on the border."""
    border = (1 - np.prod(np.subtract(mask.shape, 2).clip(0)) / mask.size for mask in wrong)
    return math.prod(part ** mask.sum() for part, mask in zip(border, wrong, strict=True)) < 0.05


def _pattern(evidence):
    """Return what only the right cases have in common."""
    trials = evidence.trials
    right = [trial.right for trial in trials]
    square = {"shapes": [True] * len(trials)}
    sides = [0] * len(trials)  # of the largest array; a single element does not count as square
    for place, trial in enumerate(trials):
        for name, value in evidence.named(trial.case).items():
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
    count = sum(right)
    return (f"{count} of {len(trials)} test cases {is_or_are(count)} right.",) if count else ()


def _beside(got, expected):
    """Return a wrong number and the right one in words, with enough digits to differ."""
    pairs = ((_number(got, digits), _number(expected, digits)) for digits in (6, 9, 17))
    one, other = next((pair for pair in pairs if pair[0] != pair[1]), (str(got), str(expected)))
    return f"{one} where {other} is right"


def _number(value, digits=6):
    if value.dtype == np.uint32 and value >= 2**16:
        return f"{value:#010x}"  # bits
    return f"{value:.{digits}g}" if value.dtype.kind == "f" and math.isfinite(value) else str(value)
