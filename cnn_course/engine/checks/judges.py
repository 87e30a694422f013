"""The judges of functions, in order."""

import numpy as np

from cnn_course.engine.checks import errors
from cnn_course.engine.checks.compare import identical, repeats
from cnn_course.engine.checks.evidence import Wrong, call
from cnn_course.engine.checks.extremes import narrowed
from cnn_course.engine.checks.results import wrong_result
from cnn_course.engine.checks.source import launch_assigned
from cnn_course.engine.checks.uninitialised import twins


def uninitialised(evidence):
    """Find a result that depends on the initial contents of ``np.empty``."""
    exercise, both = evidence.exercise, twins(evidence.attempt)
    for trial in evidence.trials if both else ():
        zeroed, poisoned = (call(twin, trial.case, exercise.run) for twin in both)
        if not repeats(zeroed, poisoned, exercise.rtol):
            # If the result is wrong with zeros, too, the start is not the only mistake.
            helps = exercise.agrees(zeroed, trial.expected)
            advice = "Start from `np.zeros`." if helps else "Is each element written before it is read?"
            return Wrong(
                "not initialised",
                "Your result has numbers that your function never wrote: an array of `np.empty` holds what "
                f"is in memory, often zeros, but not always. {advice}",
                evidence.where(trial),
            )
    return None


def changed_input(evidence):
    """Find a changed input."""
    return find_changed_input(evidence, "Work on a copy, or write into a new array.")


def find_changed_input(evidence, advice):
    """Find a changed input; `advice` says where to write instead."""
    for trial in evidence.trials:
        after = evidence.named(trial.got.after)
        for name, value in evidence.named(trial.case).items():
            if isinstance(value, np.ndarray) and not identical(value, after[name]):
                message = f"Your {evidence.what} changes `{name}`, which is an input. {advice}"
                return Wrong("changes input", message)
    return None


def suspicious_source(evidence):
    """Find mistakes in the source, if the attempt is wrong."""
    return (caret_of_floats(evidence) or launch_assigned(evidence)) if evidence.failed else None


def caret_of_floats(evidence):
    """Find ``2.0 ^ n`` instead of ``2.0**n``."""
    error = evidence.failed[0].got.error
    lines = errors.line_of(error, evidence.attempt, evidence.what) if isinstance(error, TypeError) else ()
    if not any("^" in line for line in lines):
        return None
    return Wrong("^ for **", "In Python `^` is not a power, it compares bits: write `**`.", *lines)


def known_mistake(evidence):
    """Name the mistake that explains every failed case, and most of the other cases.

    Truth values may agree by chance, so a mistake must explain the right cases, too.
    """
    exercise, failed = evidence.exercise, evidence.failed
    telling = evidence.trials if all(_is_truth(trial.expected) for trial in evidence.trials) else failed
    explaining = [
        (name, text, function)
        for name, (text, *functions) in exercise.mistakes.items()
        for function in functions
        if failed and all(exercise.is_like(function, trial) for trial in telling)
    ]
    if not explaining:
        return None
    alike = [sum(exercise.is_like(function, t) for t in evidence.trials) for *_, function in explaining]
    name, text, _ = explaining[alike.index(max(alike))]
    return Wrong(name, text.format(**evidence.names))


def _is_truth(outcome):
    return isinstance(outcome.value, (bool, np.bool_))


def wrapping(evidence):
    """Find an attempt that is wrong only for integers of small types."""
    exercise = evidence.exercise
    for given in narrowed(exercise.inputs()):
        expected, got = call(exercise.reference, given), exercise.attempted(evidence.attempt, given)
        if not exercise.is_right(got, expected, given):
            types = (
                f"`{name}` of {value.dtype}"
                for name, value in evidence.named(given).items()
                if isinstance(value, np.ndarray)
            )
            return Wrong(
                "wraps",
                "Right, until the whole numbers come in a small type. NumPy computes with uint8 numbers in "
                "uint8, where 20 * 13 is 4. Convert the array first, by `.astype(np.int64)`.",
                f"Seen with {', '.join(types)}.",
            )
    return None


def properties(evidence):
    """Find a property that the exercise asks for and the attempt lacks."""
    return evidence.exercise.unmet(evidence.attempt)


#: First what makes all numbers doubtful; then the exercise's own mistakes, mistakes in the source, and wrong
#: results in general; if the numbers are right, properties and other types.
JUDGES = (uninitialised, changed_input, known_mistake, suspicious_source, wrong_result, properties, wrapping)
