"""The judges of kernels, in order."""

import numpy as np

from cnn_course.engine.checks import errors
from cnn_course.engine.checks.evidence import Evidence, Trial, Wrong, call, first_finding, plain
from cnn_course.engine.checks.extremes import far_below, in_other_blocks
from cnn_course.engine.checks.findings import sanitizers_finding
from cnn_course.engine.checks.float64 import computes_in_float64
from cnn_course.engine.checks.judges import find_changed_input, known_mistake, properties
from cnn_course.engine.checks.launches import result_names, run
from cnn_course.engine.checks.raising import explained_by_source
from cnn_course.engine.checks.results import wrong_numbers, wrong_result
from cnn_course.engine.checks.sizes import (
    caret_for_power,
    exchanged_guard,
    fixed_loop,
    loop_over_another_axis,
    one_too_few,
)
from cnn_course.engine.checks.slips import break_for_continue, other_sign
from cnn_course.engine.checks.source import atomic_assigned, bitwise_condition, uncalled
from cnn_course.engine.checks.sums import overwritten_sum, sum_set_back
from cnn_course.engine.checks.uninitialised import code_of
from cnn_course.engine.checks.writes import done_twice, one_for_all, unwritten, written_pattern
from cnn_numba import device
from gpuless.simulator import LaunchStopped, UnsupportedPython


def suspicious_source(evidence):
    """Find mistakes in the source, if the attempt is wrong."""
    if evidence.failed or any(trial.report.findings for trial in evidence.traced):
        return first_finding((bitwise_condition, uncalled, atomic_assigned, caret_for_power), evidence)
    return None


# --- Exceptions --------------------------------------------------------------------------------------------


def raised(evidence):
    """Find the exception that ended a launch, and its place."""
    trial = next((trial for trial in evidence.trials if trial.got.error is not None), None)
    if trial is None:
        return None
    error, attempt = trial.got.error, evidence.attempt
    mistake, message, details = why_it_raised(error, attempt)
    if explanation := explained_by_source(evidence, trial):
        mistake, message = "raises", explanation
        details = details[isinstance(error, UnsupportedPython) :]
    return Wrong(mistake, message, *details, evidence.where(trial))


def why_it_raised(error, kernel):
    """Return the name of the mistake behind an exception, the message, and details."""
    reason, *further = plain(getattr(error, "reason", str(error))).splitlines() or [""]
    places = [*map(str.strip, further), *errors.places_in(error, code_of(kernel))]
    if isinstance(error, UnsupportedPython):
        message = "Your kernel contains Python that a GPU cannot run."
        return "raises", message, [errors.unsupported(error), *places]
    if isinstance(error, LaunchStopped):
        message = "A loop in your kernel does not end. Does each round change what its condition tests?"
        return "does not end", message, places
    text = ": ".join(filter(None, (type(error).__name__, reason.rstrip("."))))
    return "raises", errors.in_words(error) or f"Your kernel raised {text}.", places


# --- If all cases are right --------------------------------------------------------------------------------

_NOT_SMALL_ENOUGH = (
    "Right, until all numbers are far below 0, around -1e30, or minus infinity. Does a search for the "
    "largest start from a number? Let it start from the first element, or from `float32(-math.inf)`."
)
_FIXED_BLOCK = (
    "Right for blocks of this size, wrong for others. Is the size a fixed number in your kernel? A block has "
    "`cuda.blockDim.x` threads along x, and `cuda.grid` gives a thread's place in the grid."
)
_WRONG_WHEN_LARGE = (
    "Right in all small launches, wrong in a large one. Is a size a fixed number in your kernel, or is an "
    "index of a type that is too small for it?"
)


def changed_input(evidence):
    """Find a changed input."""
    if evidence.is_stand_in:
        return find_changed_input(evidence, "Write into the array of the results.")
    names = result_names(evidence.attempt, evidence.trials[0].case)
    return find_changed_input(evidence, f"Write into {' and '.join(f'`{name}`' for name in names)}.")


def wrong_on_gpu(evidence):
    """Run the compiled kernel: its types, for instance, may make it wrong where the simulator is right."""
    if evidence.is_stand_in or device.simulated():
        return None
    exercise = evidence.exercise
    trials = [_launched(evidence, given) for given in exercise.inputs()]
    if found := wrong_result(Evidence(exercise, evidence.attempt, trials)):
        return found
    large = exercise.large(exercise.generator()) if exercise.large else ()
    return _wrong_in(evidence, large, "wrong when large", _WRONG_WHEN_LARGE)


def not_small_enough(evidence):
    """Run the kernel on numbers far below zero, to find a search that starts from a number."""
    exercise = evidence.exercise
    launches = () if evidence.is_stand_in else far_below(exercise.inputs(), exercise.reference)
    return _wrong_in(evidence, launches, "not small enough", _NOT_SMALL_ENOUGH)


def fixed_block(evidence):
    """Run the kernel with blocks of another size."""
    exercise, others = evidence.exercise, ()
    if not evidence.is_stand_in and exercise.other_blocks is True:
        others = [in_other_blocks(max(exercise.inputs(), key=lambda case: np.prod(case.grid)))]
    elif not evidence.is_stand_in and exercise.other_blocks:
        others = exercise.other_blocks(exercise.generator())
    return _wrong_in(evidence, others, "fixed block", _FIXED_BLOCK)


def _launched(evidence, given):
    """Return the trial of a launch without the sanitizer."""
    expected, got = call(evidence.exercise.reference, given), run(evidence.attempt, given).outcome
    return Trial(given, expected, got, evidence.exercise.is_right(got, expected, given))


def _wrong_in(evidence, launches, mistake, message):
    """Find a wrong launch among launches that are not the exercise's cases."""
    for trial in (_launched(evidence, given) for given in launches):
        if not trial.right:
            error = trial.got.error
            details = (
                wrong_numbers(trial, evidence.exercise.rtol, evidence.attempt)
                if error is None
                else (f"{errors.text(error)}.",)
            )
            return Wrong(mistake, message, *details, evidence.where(trial))
    return None


#: The exercise's own mistakes come first: they may name what the sanitizer would only call an index error.
#: Then come causes of other findings: a slip in the source, an exception, a changed input, sizes of wrong
#: axes or written as numbers, a lost sum, a pattern of indices. Then come the sanitizer's findings, and
#: numbers. If the kernel is right so far, the rest look for repeated work, other launches, float64, and
#: missing properties.
KERNEL_JUDGES = (
    known_mistake,
    suspicious_source,
    raised,
    changed_input,
    exchanged_guard,
    fixed_loop,
    loop_over_another_axis,
    one_too_few,
    overwritten_sum,
    sum_set_back,
    written_pattern,
    sanitizers_finding,
    unwritten,
    break_for_continue,
    other_sign,
    wrong_result,
    done_twice,
    one_for_all,
    wrong_on_gpu,
    not_small_enough,
    fixed_block,
    computes_in_float64,
    properties,
)
