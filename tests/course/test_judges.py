"""The judges of an attempt, one by one: fabricated evidence in, a finding out; and their order."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda, float32

from cnn_course.engine.checks import float64, kernel_judges, source
from cnn_course.engine.checks.evidence import Case, Evidence, Outcome, StandIn, Trial, Wrong, first_finding
from cnn_course.engine.checks.exercise import Exercise
from cnn_course.engine.checks.findings import most_telling
from cnn_course.engine.checks.judges import JUDGES
from cnn_course.engine.checks.kernel_judges import KERNEL_JUDGES
from cnn_course.engine.checks.kernels import KernelExercise
from cnn_course.engine.checks.launches import Examination, launch, output
from cnn_course.engine.checks.results import RESULTS
from cnn_course.engine.checks.writes import PATTERNS, Writes
from gpuless.access import WRITE
from gpuless.positions import Shape
from gpuless.sanitizer import Finding
from gpuless.simulator import Cause, LaunchStopped, Place, SourcePlace, UnsupportedPython
from gpuless.source.instructions import Site

ORDERS = {"functions": JUDGES, "results": RESULTS, "kernels": KERNEL_JUDGES, "patterns": PATTERNS}
TESTED = set()


def judge(order, name):
    """Return a judge by its name; record it as tested."""
    (found,) = (each for each in ORDERS[order] if each.__name__ == name)
    TESTED.add(found)
    return found


# --- Functions ---------------------------------------------------------------------------------------------

x = np.arange(6.0).reshape(2, 3)
double = Exercise(
    "double",
    reference=lambda x: 2 * x,
    cases=lambda rng: [(np.array([3, 200]),)],
    mistakes={"squared": ("You square.", np.square), "halved": ("You halve.", lambda x: x / 2)},
)


def doubling(x):
    return 2 * x


def trial(got, given=x, expected=None, error=None, wanted=None, after=None):
    """Return the wrong outcome of an attempt for one case."""
    case = Case((given,), {})
    expected = Outcome(2 * given if expected is None else expected, wanted, case)
    return Trial(case, expected, Outcome(got, error, Case((given if after is None else after,), {})), False)


def evidence(*trials, attempt=doubling, exercise=double):
    return Evidence(exercise, attempt, list(trials))


def finding_of(order, name, *given):
    """Return the mistake and all lines of a judge's finding, None without a finding."""
    found = judge(order, name)(*given)
    return found and (found.mistake, "\n".join([found.message, *found.details]))


def starts_from_garbage(x):
    out = np.empty_like(x)
    out += 2 * x
    return out


def keeps_the_result_of_a_launch(x):
    out = copy_kernel[1, 8](x, x)
    return out


def test_assigning_the_result_of_a_launch():
    given = evidence(trial(None), attempt=keeps_the_result_of_a_launch)
    mistake, text = finding_of("functions", "suspicious_source", given)
    assert mistake == "launch assigned"
    assert "A launch returns None: leave out `out =`." in text
    assert finding_of("functions", "suspicious_source", evidence(trial(x))) is None
    right = evidence(trial(x)._replace(right=True), attempt=keeps_the_result_of_a_launch)
    assert finding_of("functions", "suspicious_source", right) is None


def test_uninitialised_memory():
    mistake, text = finding_of("functions", "uninitialised", evidence(trial(x), attempt=starts_from_garbage))
    assert mistake == "not initialised"
    assert "Start from `np.zeros`." in text
    assert finding_of("functions", "uninitialised", evidence(trial(x))) is None


def test_a_changed_input_of_a_function():
    mistake, text = finding_of("functions", "changed_input", evidence(trial(2 * x, after=x + 1)))
    assert mistake == "changes input"
    assert "Your function changes `x`" in text
    assert finding_of("functions", "changed_input", evidence(trial(2 * x))) is None


def test_a_known_mistake_explains_all_that_failed():
    assert finding_of("functions", "known_mistake", evidence(trial(x * x))) == ("squared", "You square.")
    assert finding_of("functions", "known_mistake", evidence(trial(x * x), trial(x))) is None
    right = trial(x / 2)._replace(right=True)
    assert finding_of("functions", "known_mistake", evidence(right)) is None


def test_a_known_mistake_names_the_learners_arguments():
    def attempt(values):
        return values * values

    exercise = Exercise("d", double.reference, double.cases, {"squared": ("`{x}` {{once}}.", np.square)})
    given = evidence(trial(x * x), attempt=attempt, exercise=exercise)
    assert finding_of("functions", "known_mistake", given) == ("squared", "`values` {once}.")
    stands_in = evidence(trial(x * x), attempt=StandIn(np.square), exercise=exercise)
    assert finding_of("functions", "known_mistake", stands_in) == ("squared", "`x` {once}.")


@pytest.mark.parametrize(
    ("attempt", "names"),
    [
        (lambda b, a: a, ["b", "a"]),
        (lambda b: b, ["a", "b"]),  # two arguments of one name would be one
        (lambda c, *rest: c, ["c", "b"]),
        (lambda c, d, e=1: c, ["c", "d"]),
        (print, ["a", "b"]),
    ],
)
def test_the_learners_names_are_used_if_known(attempt, names):
    exercise = Exercise("two", lambda a, b: a + b, lambda rng: [(1, 2)])
    given = Evidence(exercise, attempt, exercise.trials(attempt))
    assert list(given.named(given.trials[0].case)) == names


def test_no_verdict_has_the_address_of_an_object():
    class Foreign:
        def __str__(self):
            return repr(self)

    def attempt(x):
        raise TypeError(Foreign())

    exercise = Exercise("d", lambda x: 2, lambda rng: [(Foreign(),)])
    text = str(exercise(attempt))
    assert "Foreign object>" in text
    assert "0x" not in text


def test_whole_numbers_of_small_types():
    wide = Exercise("d", lambda x: 2 * np.int64(x), double.cases)
    mistake, text = finding_of("functions", "wrapping", evidence(attempt=lambda x: x + x, exercise=wide))
    assert mistake == "wraps"
    assert "`x` of uint8" in text
    right = evidence(attempt=lambda x: x.astype(int) + x, exercise=wide)
    assert finding_of("functions", "wrapping", right) is None


def test_further_properties():
    def refuses(attempt):
        raise Wrong("shortcut", "Not so.")

    exercise = Exercise("d", double.reference, double.cases, properties=(lambda attempt: None, refuses))
    assert finding_of("functions", "properties", evidence(exercise=exercise)) == ("shortcut", "Not so.")
    assert finding_of("functions", "properties", evidence()) is None


def test_a_wrong_result_is_judged_only_after_a_failure():
    assert finding_of("functions", "wrong_result", evidence(trial(-2 * x)))[0] == "negated"
    assert finding_of("functions", "wrong_result", evidence(trial(x)._replace(right=True))) is None


y = np.arange(1.0, 13.0).reshape(4, 3)
RESULT_CASES = [
    ("not_refused", trial(x, wanted=ValueError()), "not refused", "A ValueError must be raised here"),
    ("not_refused", trial(None, wanted=ValueError(), error=KeyError(1)), "wrong error", "was KeyError: 1."),
    ("raised", trial(None, error=KeyError("size")), "raises", "Your function raised KeyError: 'size'."),
    ("returns_none", trial(None), "returns None", "is a `return` missing"),
    ("another_type", trial([1.0]), "type", "must be a NumPy array, and yours is of type `list`"),
    ("another_type", trial(x.astype(int)), "type", "must be floating-point, and yours is integer"),
    ("another_type", trial([x, x], expected=(x, x)), "type", "a tuple of 2, and yours is of type `list`."),
    ("another_type", trial((x,), expected=(x, x)), "type", "must be a tuple of 2, and yours has 1."),
    ("another_order", trial((x, y), expected=(y, x)), "other order", "but in the wrong order"),
    ("ignored_input", trial(x), "constant", "gives the same result for all inputs"),
    ("disguised", trial(2 * x.T), "transposed", "rows and columns are exchanged"),
    ("disguised", trial(-2 * x), "negated", "except for its sign"),
    ("multiplied", trial(3 * x), "factor", "the right one times 1.5"),
    (
        "rounded",
        trial(np.array([2**24, 5]), expected=np.array([2**24 + 1, 5])),
        "rounded",
        "Entry 0 is 16777216 where 16777217 is right.",
    ),
    ("another_shape", trial(x.ravel()), "shape", "has shape (6,) where (2, 3) is right"),
    ("numbers", trial(2 * x + (x > 4)), "numbers", "Entry (1, 2) is 11 where 10 is right."),
    (
        "numbers",
        trial(np.float64(0.1234567), expected=np.float64(0.1234568)),
        "numbers",
        "The result is 0.1234567 where 0.1234568 is right.",
    ),
    (
        "numbers",
        trial(np.uint32([0x3F810001]), expected=np.uint32([0x3F810000])),
        "numbers",
        "Entry 0 is 0x3f810001 where 0x3f810000 is right.",
    ),
]


@pytest.mark.parametrize(("name", "failed", "mistake", "words"), RESULT_CASES)
def test_a_wrong_result(name, failed, mistake, words):
    attempt = (lambda given: x) if mistake == "constant" else doubling
    found = finding_of("results", name, evidence(failed, attempt=attempt))
    assert found[0] == mistake
    assert words in found[1]


@pytest.mark.parametrize("name", [each.__name__ for each in RESULTS if each.__name__ != "numbers"])
def test_plain_wrong_numbers_are_left_to_the_last_judge(name):
    assert finding_of("results", name, evidence(trial(2 * x + (x > 4)))) is None


MULTIPLES = [
    ((trial(x), trial(y, y)), "times 0.5."),
    ((trial(x), trial(y / 4, y)), "times 0.5 here, and times 0.125 in another case."),
    ((trial(x), trial(y / 2, y)), "divided by `x.shape[0]`."),
    ((trial(x), trial(y / 2, y), trial(y[0] / 2, y[0])), "times 0.5 here, and times 0.25 in another case."),
    ((trial(4 * x), trial(8 * y, y)), "times `x.shape[0]`."),
    ((trial(2 * x / 3), trial(y[:, :2], y[:, :2])), "divided by `x.shape[1]`."),
    ((trial(2 * x * 2 / 3), trial(8 * y / 3, y)), "times `x.shape[0] / x.shape[1]`."),
    ((trial(2 * x / 6), trial(2 * y / 12, y)), "divided by `x.shape[0] * x.shape[1]`."),
]


@pytest.mark.parametrize(("failed", "words"), MULTIPLES)
def test_a_multiple_of_the_right_result(failed, words):
    mistake, text = finding_of("results", "multiplied", evidence(*failed))
    assert (mistake, text.splitlines()[0]) == ("factor", f"Your result is the right one {words}")


@pytest.mark.parametrize(
    "failed",
    [
        (trial(x), trial(y + 1, y)),
        (trial(np.array([4.0]), np.array([1.0])),),
        (trial((5e6 * x, np.array([0.12])), expected=(5e6 * x, np.array([0.125]))),),
        (trial(x), trial([1.0, [2.0]], y)),
    ],
    ids=["one case only", "a single number", "a rounded part", "no array"],
)
def test_results_that_are_no_multiple(failed):
    assert finding_of("results", "multiplied", evidence(*failed)) is None


def test_exceptions_and_huge_numbers_are_no_sign_of_an_ignored_input():
    def refuses(given):
        raise ValueError

    both = evidence(trial(None, error=ValueError()), attempt=refuses)
    assert finding_of("results", "ignored_input", both) is None
    huge = evidence(
        trial(np.append(2 * x, 1e30), expected=2 * x), attempt=lambda given: np.append(2 * given, 1e30)
    )
    assert finding_of("results", "ignored_input", huge) is None


def test_truth_values_have_no_sign():
    assert finding_of("results", "disguised", evidence(trial(x > 1, expected=x > 2))) is None


def test_wrong_entries_that_may_be_on_the_border_by_accident():
    scattered, around = np.zeros((3, 5)), np.ones((6, 7))
    scattered[0, 0] = scattered[2, 3] = 1
    around[1:-1, 1:-1] = 0
    texts = [
        finding_of("results", "numbers", evidence(trial(wrong, np.zeros(wrong.shape))))[1]
        for wrong in (scattered, around)
    ]
    assert ["on the border" in text for text in texts] == [False, True]


def test_common_features_of_wrong_entries():
    square = np.ones((2, 2))
    right = trial(2 * square, square)._replace(right=True)
    _, text = finding_of("results", "numbers", evidence(right, trial(2 * x + (x > 4))))
    assert "It is right for square `x`" in text or "right for square shapes" in text
    assert "The wrong entries all lie in the last row." in text


# --- Kernels -----------------------------------------------------------------------------------------------


@cuda.jit
def copy_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i]


copied = KernelExercise("copied", lambda x: x, lambda rng: [], once=True, float32=True)
SITE = Site("copy_kernel", copy_kernel.py_func.__code__.co_firstlineno + 4, "out[i] = x[i]", "out[i]", 0)


@cuda.jit
def of_its_block(x, out):
    i = cuda.threadIdx.x
    if i < out.size:
        out[i] = x[i]


@cuda.jit
def with_an_exchanged_guard(x, out):
    column, row = cuda.grid(2)
    if row < out.shape[1] and column < out.shape[0]:
        out[row, column] = x[row, column]


@cuda.jit
def of_three_rounds(x, out):
    if cuda.grid(1) == 0:
        for k in range(3):
            out[k] = x[k]


@cuda.jit
def that_breaks_off(x, out):
    for i in range(out.size):
        if i != cuda.grid(1):
            break
        out[i] = x[i]


@cuda.jit
def that_subtracts(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[0] * float32(0) - x[i]


@cuda.jit
def that_stops_early(x, out):
    i = cuda.grid(1)
    if i < out.size - 1:
        out[i] = x[i]


@cuda.jit
def along_another_axis(x, out):
    row = cuda.grid(1)
    if row < out.shape[0]:
        for column in range(out.shape[0]):
            out[row, column] = x[row, column]


@cuda.jit
def that_keeps_the_last(x, out):
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(x.size):
            total = x[k] * float32(k == i)
        out[i] = total


@cuda.jit
def that_starts_again(x, out):
    i = cuda.grid(1)
    if i < out.size:
        for k in range(x.size):
            total = float32(0)
            total += x[k] * float32(k == i)
        out[i] = total


def launched(writes, shape, grid=(1, 1, 1), block=(8, 1, 1), values=None, **more):
    """Return the trial of a launch with these writes (block, thread, element) to `out`."""
    columns = np.array(writes, int).reshape(-1, 3).T
    nothing = np.zeros(columns.shape[1], int)
    info = SimpleNamespace(name="out", space="global", shape=shape, dtype=np.dtype(np.float32))
    trace = SimpleNamespace(
        arrays=(info,),
        sites=(SITE,),
        kind=nothing + WRITE,
        array=nothing,
        site=nothing,
        block=columns[0],
        thread=columns[1],
        element=columns[2],
        values=values,
        grid=grid,
        block_shape=block,
        name=lambda row: f"out[{columns[2][row]}]",
    )
    findings = more.pop("findings", ())
    report = SimpleNamespace(trace=trace, findings=findings, kinds={each.kind for each in findings})
    given, result = np.ones(shape, np.float32), np.full(shape, np.nan, np.float32)
    case = launch(grid, block, given, output(shape))
    got = Outcome(result, more.get("error"), case)
    return Trial(case, Outcome(given, None, case), got, more.get("right", False), report)


def of_kernel(*trials, attempt=copy_kernel, exercise=copied):
    return Evidence(exercise, attempt, list(trials))


WIDE, DEEP = {"grid": (2, 1, 1), "block": (4, 2, 1)}, {"block": (2, 2, 2)}
PATTERN_CASES = [
    ("nothing_written", launched([], (5,)), "No thread writes into `out`"),
    ("x_and_y_exchanged", launched([(0, t, t % 4 * 3 + t // 4) for t in range(8)], (4, 3), **WIDE), "counts"),
    (
        "x_and_z_exchanged",
        launched([(0, t, t % 2 * 6 + t // 2 % 2 * 3 + t // 4) for t in range(8)], (2, 2, 3), **DEEP),
        "z",
    ),
    ("z_not_used", launched([(0, t, t % 4) for t in range(8)], (2, 2, 2), **DEEP), "first plane"),
    (
        "first_block_only",
        launched([(b, t, t) for b in (0, 1) for t in range(8)], (16,), grid=(2, 1, 1)),
        "`cuda.grid(1)`",
    ),
    ("one_element_per_thread", launched([(0, t, t) for t in range(8)], (20,)), "8 threads for 20 elements"),
]


@pytest.mark.parametrize(("name", "given", "words"), PATTERN_CASES, ids=[name for name, *_ in PATTERN_CASES])
def test_a_pattern_of_writes(name, given, words):
    mistake, text = finding_of("patterns", name, Writes(of_its_block, given), given)
    assert mistake.replace(" ", "_") == name
    assert words in text
    assert finding_of("kernels", "written_pattern", of_kernel(given, attempt=of_its_block))[0] == mistake
    complete = launched([(0, t, t) for t in range(8)], (8,))
    assert finding_of("patterns", name, Writes(of_its_block, complete), complete) is None


def test_without_thread_idx_in_the_kernel_no_message_names_it():
    given = next(given for name, given, _ in PATTERN_CASES if name == "first_block_only")
    assert finding_of("patterns", "first_block_only", Writes(copy_kernel, given), given) is None


def test_a_launch_that_ended_early_shows_no_pattern():
    ended = launched([], (5,), findings=(Finding("division by zero"),))
    assert finding_of("kernels", "written_pattern", of_kernel(ended)) is None


@pytest.mark.parametrize(
    ("name", "kernel", "shape", "words"),
    [
        (
            "exchanged_guard",
            with_an_exchanged_guard,
            (2, 3),
            "compare `row` with `out.shape[0]`,",
        ),
        ("fixed_loop", of_three_rounds, (5,), "Your loop has 3 rounds, whatever the size of `out`."),
        ("loop_over_another_axis", along_another_axis, (2, 3), "Write `range(out.shape[1])` instead."),
        ("other_sign", that_subtracts, (4,), "Write `x[0] * float32(0) + x[i]` instead."),
        ("break_for_continue", that_breaks_off, (4,), "`break`. Write `continue` instead."),
        ("one_too_few", that_stops_early, (4,), "`i < out.size - 1`. Write `i < out.size` instead."),
        ("overwritten_sum", that_keeps_the_last, (4,), "Write `total += x[k] * float32(k == i)` instead."),
        (
            "sum_set_back",
            that_starts_again,
            (4,),
            "`for k in range(x.size):`. Write `total = float32(0)` before",
        ),
    ],
)
def test_sizes_and_sums_in_the_source(name, kernel, shape, words):
    given = launched([], shape, block=(4, 4, 1))
    assert words in finding_of("kernels", name, of_kernel(given, attempt=kernel))[1]
    assert finding_of("kernels", name, of_kernel(given)) is None
    assert finding_of("kernels", name, of_kernel(given._replace(right=True), attempt=kernel)) is None
    assert finding_of("kernels", name, of_kernel(given, attempt=StandIn(copied.reference))) is None
    other = KernelExercise("copied", lambda x: x + 1, lambda rng: [])
    assert finding_of("kernels", name, of_kernel(given, attempt=kernel, exercise=other)) is None


def test_elements_that_are_never_written():
    gap = launched([(0, t, t) for t in range(8) if t != 3], (8,))
    mistake, text = finding_of("kernels", "unwritten", of_kernel(gap))
    assert mistake == "never written"
    assert "`out[3]` is never written. Does an `if` skip the store?" in text
    twice = launched([(0, 0, 0), (0, 1, 0)], (2,))
    assert (
        "Thread 0 of block 0 and thread 1 of block 0 write out[0]."
        in finding_of("kernels", "unwritten", of_kernel(twice))[1]
    )
    assert finding_of("kernels", "unwritten", of_kernel(gap._replace(right=True))) is None


def test_work_done_twice_and_work_done_by_one_thread():
    twice = of_kernel(launched([(0, t, e) for t in (0, 1) for e in range(4)], (4,)))
    assert "2 threads compute the same element" in finding_of("kernels", "done_twice", twice)[1]
    assert finding_of("kernels", "one_for_all", twice) is None
    alone = of_kernel(launched([(0, 0, e) for e in range(4)], (4,)))
    assert "one thread computes all 4 elements" in finding_of("kernels", "one_for_all", alone)[1]
    assert finding_of("kernels", "done_twice", alone) is None
    lenient = KernelExercise("copied", copied.reference, copied.cases)
    both = [judge("kernels", name) for name in ("done_twice", "one_for_all")]
    assert first_finding(both, Evidence(lenient, copy_kernel, twice.trials)) is None


def test_a_slip_in_the_smaller_of_two_results_has_no_factor_and_no_place():
    given = evidence(trial((2 * x, np.float64([1e-7])), expected=(2 * x, np.float64([3e-7]))))
    assert finding_of("results", "multiplied", given) is None
    assert not any("lie" in line for line in finding_of("results", "numbers", given)[1:])


def raises_by_a_caret(x):
    def double(value):
        return 2 ^ value

    return double(x)


def test_a_power_that_is_a_comparison_of_bits():
    error = Exercise("double", lambda x: 2 * x, lambda rng: [(1.5,)]).attempted(
        raises_by_a_caret, Case((1.5,), {})
    )
    given = evidence(trial(None, error=error.error), attempt=raises_by_a_caret)
    mistake, text = finding_of("functions", "suspicious_source", given)
    assert mistake == "^ for **"
    assert "Line 3 of your function: `return 2 ^ value`" in text
    assert (
        finding_of("functions", "suspicious_source", evidence(trial(None, error=TypeError("other")))) is None
    )


@cuda.jit
def bitwise_kernel(x, out):
    i = cuda.grid(1)
    if 0 <= i & i < out.size:
        out[i] = x[i]


@cuda.jit
def uncalled_kernel(x, out):
    cuda.syncthreads  # noqa: B018
    cuda.threadIdx.x  # noqa: B018
    out[0] = x[0]


@pytest.mark.parametrize(
    ("kernel", "mistake"), [(bitwise_kernel, "& for and"), (uncalled_kernel, "not called")]
)
def test_a_slip_in_the_source_counts_only_if_the_result_is_wrong(kernel, mistake):
    wrong = of_kernel(launched([], (5,)), attempt=kernel)
    assert finding_of("kernels", "suspicious_source", wrong)[0] == mistake
    right = of_kernel(launched([], (5,), right=True), attempt=kernel)
    assert finding_of("kernels", "suspicious_source", right) is None
    assert finding_of("kernels", "suspicious_source", of_kernel(launched([], (5,)))) is None
    assert source.uncalled(Evidence(copied, StandIn(copied.reference), wrong.trials)) is None


def at(error, site=SITE):
    """Return an exception of the simulator, with its place."""
    error.reason, error.cause = str(error), getattr(error, "cause", None)
    error.place = Place("copy_kernel", site, (2, 0, 0), (3, 0, 0), Shape((4, 1, 1), (8, 1, 1)))
    return error


def because(cause):
    error = TypeError("as Python says it")
    error.cause = cause
    return at(error)


WHERE = SourcePlace("copy_kernel", SITE.line, "sorted(x)")
ERRORS = [
    (
        at(NameError("name 'b' is not defined")),
        "raises",
        "Your kernel raised NameError: name 'b' is not defined.",
    ),
    (because(Cause("arguments", "Atomic.add")), "raises", "write `cuda.atomic.add(array, index, value)`."),
    (because(Cause("no attribute", "mean")), "raises", "Arrays have no `mean` in a kernel: write a loop"),
    (UnsupportedPython("is not supported", "sorted()", WHERE), "raises", "`sorted()` is not supported."),
    (
        UnsupportedPython(
            "x", where=WHERE, of_compiler=True, cause=Cause("no common type", "k", ("None", "array"))
        ),
        "raises",
        "`k` would be None in one place and an array in another.",
    ),
    (
        UnsupportedPython("no such thing", where=WHERE, of_compiler=True),
        "raises",
        "Numba refuses it: no such",
    ),
    (LaunchStopped("no end", at(KeyError(1)).place), "does not end", "A loop in your kernel does not end."),
]


@pytest.mark.parametrize(("error", "mistake", "words"), ERRORS, ids=range(len(ERRORS)))
def test_an_exception_ends_a_launch(error, mistake, words):
    found = finding_of("kernels", "raised", of_kernel(launched([], (5,), error=error)))
    assert found[0] == mistake
    assert words in found[1]
    assert "Line 5 of your kernel: `" in found[1]
    is_placed = getattr(error, "place", None) is not None
    assert ("That was in thread 3 of block 2." in found[1]) == is_placed


def test_an_exception_in_a_function_that_the_kernel_calls():
    inner = at(KeyError(1), Site("helper", 3, "y[0] = 1", "y[0]", 0))
    assert (
        "In `helper`: `y[0] = 1`"
        in finding_of("kernels", "raised", of_kernel(launched([], (5,), error=inner)))[1]
    )


def test_indices_that_are_missing():
    error = at(IndexError("shape mismatch"))
    flat = launched([], (5, 2), error=error)
    assert "`out` has 2 axes, and you give 1 index." in finding_of("kernels", "raised", of_kernel(flat))[1]
    assert finding_of("kernels", "raised", of_kernel(launched([], (5,)))) is None


def test_a_changed_input_of_a_kernel():
    given = launched([], (5,))
    changed = given._replace(got=given.got._replace(after=given.case.replaced(0, np.zeros(5, np.float32))))
    _, text = finding_of("kernels", "changed_input", of_kernel(changed))
    assert text == "Your kernel changes `x`, which is an input. Write into `out`."


MISSED = Finding(
    "out of bounds", "out", (9,), "write", SITE, (0, 0, 0), (7, 0, 0), shape=(8,), space="global"
)


def test_the_sanitizers_finding():
    exercise = KernelExercise("copied", copied.reference, lambda rng: [], properties=())
    given = launched([(0, 0, 0)], (8,), findings=(MISSED,))
    stand_in = Evidence(exercise, copy_kernel, [given])
    mistake, text = finding_of("kernels", "sanitizers_finding", stand_in)
    assert mistake == "writes past the edge"
    assert "Thread 7 of block 0 writes out[9], and out has 8 elements." in text
    assert "Line 5 of your kernel: `out[i] = x[i]`" in text
    assert finding_of("kernels", "sanitizers_finding", of_kernel(launched([], (5,)))) is None


def test_the_most_telling_finding_comes_first():
    race, negative = Finding("lost update", "out"), Finding("negative index", "x")
    read = Finding("out of bounds", "x", (9,), "read")
    garbage = Finding("out of bounds", "out", (1 << 30,), "write")
    assert most_telling([race, negative]) is negative
    assert most_telling([race, negative], {"negative index"}) is race
    # An index that was read past an edge is garbage.
    assert most_telling([garbage, read]) is read
    assert most_telling([garbage, race]) is garbage
    assert most_telling([]) is None


def test_float64_is_recognised_by_stored_values(monkeypatch):
    monkeypatch.setattr(float64, "_compiled", lambda *given: (None, None))
    monkeypatch.setattr(float64, "_signature", lambda *given: None)
    wide = of_kernel(launched([(0, 0, 0)], (5,), values=[np.float64(1)]))
    mistake, text = finding_of("kernels", "computes_in_float64", wide)
    assert mistake == "float64"
    assert "Line 5 of your kernel: `out[i] = x[i]`" in text
    narrow = of_kernel(launched([(0, 0, 0)], (5,), values=[np.float32(1)]))
    assert finding_of("kernels", "computes_in_float64", narrow) is None


@pytest.mark.parametrize(
    ("name", "mistake", "options"),
    [
        ("wrong_on_gpu", "numbers", {}),
        ("wrong_on_gpu", "wrong when large", {"large": lambda rng: [launch(9, 8, np.ones(70), output(70))]}),
        ("not_small_enough", "not small enough", {}),
        ("fixed_block", "fixed block", {}),
    ],
)
def test_further_launches(monkeypatch, name, mistake, options):
    """The kernel gives the right numbers only for the cases."""
    small = [launch(1, 8, np.arange(5, dtype=np.float32), output(5))]
    cases = [] if mistake == "wrong when large" else small
    exercise = KernelExercise("copied", lambda x: x, lambda rng: cases, **options)

    def run(kernel, case):
        return Examination(Outcome(np.zeros(len(case.args[0]), np.float32) + 7, None, case), None)

    monkeypatch.setattr(kernel_judges, "run", run)
    monkeypatch.setattr(kernel_judges.device, "simulated", lambda: False)
    given = of_kernel(launched([], (5,), right=True), exercise=exercise)
    assert finding_of("kernels", name, given)[0] == mistake
    stand_in = Evidence(exercise, StandIn(copied.reference), given.trials)
    assert finding_of("kernels", name, stand_in) is None


@pytest.mark.parametrize("name", ["known_mistake", "wrong_result", "properties"])
def test_judges_of_functions_that_judge_kernels_too(name):
    assert judge("kernels", name) is judge("functions", name)


# --- The order ---------------------------------------------------------------------------------------------


def test_the_first_judge_with_a_finding_decides():
    found, later = Wrong("one", "One."), Wrong("two", "Two.")
    judges = (lambda evidence: None, lambda evidence: found, lambda evidence: later)
    assert first_finding(judges, evidence()) is found
    assert first_finding(judges[:1], evidence()) is None


def test_each_judge_is_listed_once_and_has_a_test():
    for judges in ORDERS.values():
        assert len(set(judges)) == len(judges)
    if len(TESTED) > 20:  # not if only a few tests run
        assert set().union(*ORDERS.values()) == TESTED
