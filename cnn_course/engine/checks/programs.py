"""Checks programs that learners write: a host function, with the kernels that it launches.

A `ProgramExercise` is an `Exercise` whose attempt takes NumPy arrays and returns one. The learner decides how
many kernels there are, and how to launch them. The check judges the result, and rules for every design:

- Every launch of the cases runs under the sanitizer, whichever function makes it.
- Kernels do the arithmetic: NumPy must not compute with the arrays of a case, or with arrays copied from the
  device. Anything else is allowed.
- All arrays that kernels get are on the device, the kernels are the learner's, and the returned array is on
  the host.
- Once all cases are right, the compiled program runs them and the `large` cases; in these, some launch must
  have more than one block. (If kernels are simulated, only the launches of the large cases are checked.)

Besides the exercise's own mistakes and those of `results`, a verdict may have these names: "nothing
launched", "computes on the host", "host array", "left on the device", "package's kernel", "nothing computed",
"never written", "too many launches", "one block", "wrong when large", and those of the sanitizer (`kernels`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cnn_course.engine.checks import errors, wording
from cnn_course.engine.checks.endless import limited
from cnn_course.engine.checks.evidence import Evidence, Trial, Wrong, call, is_or_are
from cnn_course.engine.checks.exercise import Case, Exercise, StandIn
from cnn_course.engine.checks.findings import most_telling
from cnn_course.engine.checks.judges import changed_input, known_mistake, properties, suspicious_source
from cnn_course.engine.checks.kernel_judges import why_it_raised
from cnn_course.engine.checks.results import another_shape, wrong_numbers, wrong_result
from cnn_course.engine.checks.source import has_dots_left
from cnn_course.engine.checks.surroundings import (
    compiled,
    launches_taken_over,
    left_out,
    run_guarded,
    sanitized,
)
from cnn_numba import device
from gpuless.simulator import LaunchStopped

__all__ = ["ProgramExercise"]


# --- The judges --------------------------------------------------------------------------------------------


def left_on_the_device(evidence):
    """Find a returned array that is on the device."""
    if any(device.is_device_array(trial.got.value) for trial in evidence.trials):
        return Wrong(
            "left on the device",
            "You return an array that is still in the device's memory: NumPy cannot use it. Copy it back "
            "with `.copy_to_host()`.",
        )
    return None


def launch_raised(evidence):
    """Find the exception that ended a launch, and its place in the kernel."""
    for trial in evidence.failed:
        for launched in trial.report:
            if launched.error is not None and launched.error is trial.got.error:
                kernel = launched.launch.kernel
                mistake, message, details = why_it_raised(launched.error, kernel)
                return Wrong(mistake, message, *details, f"Launched as {launched}.", evidence.where(trial))
    return None


_ANOTHER_ARRAY = (
    "The simplest repair: let the kernel read one array and write into another. A launch begins when the one "
    "before it has finished, so the next kernel finds the whole array."
)


def sanitizers_finding(evidence):
    """Report the sanitizer's finding in a launch.

    Unwritten elements are ignored, as another launch may write them.
    """
    for trial in evidence.trials:
        for launched in trial.report:
            findings = [each for each in launched.report.findings if each.kind != "never written"]
            finding = most_telling(findings) if launched.report else None
            if finding is None:
                continue
            kernel, trace = launched.launch.kernel, launched.report.trace
            message = wording.explained(kernel, finding, trace).format(array=f"`{finding.array}`")
            sites = [site for site in (finding.site, finding.other_site) if site]
            lines = dict.fromkeys(wording.line_of(kernel, site) for site in sites)
            name = wording.name_of(finding)
            advice = [_ANOTHER_ARRAY] if name in ("missing barrier", "race between blocks") else []
            where = f"Launched as {launched}.", evidence.where(trial)
            return Wrong(name, message, wording.seen(finding), *lines, *advice, *where)
    return None


def never_written(evidence):
    """Find wrong results that were never written, if there are no others."""
    for trial in evidence.failed[:1]:
        got, expected = trial.got.value, trial.expected.value
        if not isinstance(got, np.ndarray) or got.shape != expected.shape or got.dtype.kind != "f":
            return None
        missing = np.isnan(got)
        if missing.all():
            message = (
                "The array that you return was never written. Is a kernel launched, and does it write into "
                "this array?"
            )
            return Wrong("nothing computed", message, evidence.where(trial))
        others = evidence.exercise.agrees(
            trial.got._replace(value=np.where(missing, 0, got)),
            trial.expected._replace(value=np.where(missing, 0, expected)),
        )
        if missing.any() and others:
            first = tuple(int(i) for i in np.argwhere(missing)[0])
            message = (
                "Some results were never written. Does the grid cover all of them, rounded up to whole "
                "blocks? Does an `if` skip some?"
            )
            verb = is_or_are(missing.sum())
            seen = f"{missing.sum()} of {missing.size} entries {verb} NaN; the first is entry {first}."
            return Wrong("never written", message, seen, evidence.where(trial))
    return None


def nothing_launched(evidence):
    """Find right numbers without a launch."""
    if evidence.is_stand_in or any(trial.report for trial in evidence.trials):
        return None
    return Wrong(
        "nothing launched",
        "The numbers are right, but no kernel was launched: they were computed on the host. Let your own "
        "kernels do the work.",
    )


def wrong_when_compiled(evidence):
    """Run the compiled program, once it is right in the simulator."""
    if evidence.is_stand_in or device.simulated():
        return None
    exercise, attempt = evidence.exercise, evidence.attempt
    return wrong_result(Evidence(exercise, attempt, exercise.plainly(attempt, exercise.inputs()[-3:])))


def wrong_when_large(evidence):
    """Run the program on large arrays; if kernels are simulated, check only the launches."""
    exercise, attempt = evidence.exercise, evidence.attempt
    if evidence.is_stand_in or exercise.large is None:
        return None
    cases = [Case(tuple(args), {}) for args in exercise.large(exercise.generator())]
    trials = exercise.plainly(attempt, cases)
    for trial in trials:
        if trial.got.error or not (trial.right or device.simulated()):
            return _wrong_for_a_large(Evidence(exercise, attempt, [trial]), trial)
    if all(launched.blocks == 1 for trial in trials for launched in trial.report):
        return Wrong(
            "one block",
            "Right, but each of your launches has one block, however large the arrays are. A block runs in "
            "one small part of the GPU, and the rest has nothing to do. Let larger arrays have more blocks.",
            evidence.where(trials[0]),
        )
    return None


def _wrong_for_a_large(evidence, trial):
    if found := never_written(evidence):
        return found
    if error := trial.got.error:
        said = f"{errors.in_words(error) or errors.text(error)}."
        details = said, *errors.line_of(error, evidence.attempt, "function")
    elif found := another_shape(evidence):
        details = (found.message,)
    else:
        details = wrong_numbers(trial, evidence.exercise.rtol)
    message = (
        "Right for all small arrays, and wrong for a large one. Is a grid too small for it, or too large "
        "along an axis? Is a size written as a number?"
    )
    return Wrong("wrong when large", message, *details, evidence.where(trial))


#: First results of an impossible kind; then, as in other exercises, the sanitizer before the numbers. If the
#: numbers are right, the last judges ask who computed them, and run the compiled program.
PROGRAM_JUDGES = (
    left_on_the_device,
    changed_input,
    known_mistake,
    suspicious_source,
    launch_raised,
    sanitizers_finding,
    never_written,
    wrong_result,
    nothing_launched,
    wrong_when_compiled,
    wrong_when_large,
    properties,
)


# --- The exercise ------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class ProgramExercise(Exercise):
    """The check of a function and its kernels; the module's docstring explains it.

    Parameters
    ----------
    name, reference, cases, mistakes, properties, dtype, rtol
        As in `Exercise`. The cases are small, as they run in the simulator.
    large : callable, optional
        Takes a generator, returns large cases for compiled kernels.
    launches : int
        How many launches a compiled case may have.

    Examples
    --------
    >>> double = ProgramExercise(
    ...     "double",
    ...     reference=lambda x: 2 * x,
    ...     cases=lambda rng: [(np.float32([1, 2]),), (np.float32([3]),)],
    ... )
    >>> double(lambda x: 2 * x).mistake
    'computes on the host'
    """

    rtol: float = 1e-5
    large: Callable | None = None
    launches: int = 100
    judges: ClassVar[tuple] = PROGRAM_JUDGES

    def trials(self, attempt):
        """Run the attempt, its launches under the sanitizer, and the reference on every case."""
        with limited(attempt):
            return list(self._trials(attempt, self.inputs(), sanitized))

    def _trials(self, attempt, cases, take, most=None):
        for given in cases:
            expected = call(self.reference, given)
            got, launched = self._attempted(attempt, given, take, most)
            yield Trial(given, expected, got, self.is_right(got, expected, given), launched)
            if isinstance(got.error, LaunchStopped):
                return  # the others would take as long

    def attempted(self, attempt, given):
        """Run the attempt on one case; return the `Outcome`."""
        return self._attempted(attempt, given, sanitized)[0]

    def _attempted(self, attempt, given, take, most=None):
        if isinstance(attempt, StandIn):
            return call(attempt, given), []
        with launches_taken_over(take, most) as launched:
            return call(attempt, given, run_guarded), launched

    def plainly(self, attempt, cases):
        """Run the attempt without the sanitizer; if kernels are simulated, skip its launches."""
        take = left_out if device.simulated() else compiled
        return list(self._trials(attempt, cases, take, self.launches))

    def _verdict(self, attempt):
        if has_dots_left(attempt):
            return self._unsolved("Write your answer into the cell above, run it, then run this check again.")
        return super()._verdict(attempt)

    def _praise(self, trials):
        return f"Right on all {len(trials)} test cases, and the sanitizer found nothing in any launch."
