"""Checking a kernel that a learner wrote: `KernelExercise`, for notebooks 02 to 11.

It is an `Exercise` (see `cnn_course.engine.checks.exercise`) whose attempt is a ``@cuda.jit`` kernel. A case
is a `launch`: grid, block, and the kernel's arguments in the kernel's order. What the kernel has to fill is
marked `output`, what it has to change `inout`; all else is an input and must come out as it went in::

    relu_kernel = KernelExercise(
        "relu_kernel",
        reference=lambda x: np.maximum(x, 0),
        cases=lambda rng: [
            launch(3, 32, normal(rng, 70), output(70)),  # relu_kernel[3, 32](x, out)
            launch((2, 3), (8, 4), normal(rng, (9, 13)), output((9, 13))),  # x comes first, as in CUDA
        ],
        mistakes={"absolute value": ("You drop the sign instead.", lambda x: np.abs(x))},
    )

- `reference` takes the arguments without the outputs (numbers and `inout` arrays included) and returns what
  they are to hold: one array, or a tuple in the order of the outputs. It may compute in float64; the default
  tolerance, 1e-5 of the largest magnitude, is float32's. Functions of the reference backends fit as they are.
- `cases`: at least five (a test counts), small first, not square, no multiples of the block; several blocks,
  and grids that cover the output with threads to spare, or a missing guard goes unseen. About 20 us a
  simulated thread: keep all launches of a check together below some 5000 threads. Give numbers as
  ``np.float32(2)``: a Python float would make the kernel compute in float64.
- `mistakes`, by name: what to say, NumPy functions with the reference's arguments, and the slips in the
  solution that make the mistake, as in any `Exercise`; NaN stands for what is not written. They are asked
  before anything else, so they may also name what the sanitizer would call a mere index error.
- ``float32=True`` refuses a kernel that computes in float64, by the code that it is compiled to
  (`cnn_course.engine.checks.float64`), and ``once=True`` one of which several threads do the same, such as a
  loop over all elements in every thread, or of which one thread does all.
- A negative index is refused, as it is nearly always an accident: a halo that meets the other end of the
  image. ``from_the_end=True`` lets it pass where all numbers are right, for exercises in which
  ``image[y, -1 - x]`` is as good as ``image[y, width - 1 - x]``.
- `properties` take the kernel; `avoids` from `checks` works, and `uses` here is its opposite. `examine` runs
  a kernel on one launch and returns outputs and the sanitizer's report with its trace of all accesses.
- A kernel with shared memory finds its constants (``TILE``) in the cell or the test module it is written in;
  the block that fits to them is said in the case.
- The stub: ``@cuda.jit``, ``def``, a docstring, and ``...`` wherever the learner is to write; as long as a
  line ``...`` (or ``name = ...``) is left the verdict is *not solved yet*.
- ``large=`` makes further launches for where kernels are compiled, on a GPU or the emulated one: sizes for
  which an index in 16 bits or a number of rounds in the source no longer do.
- Where zero lies does not matter to a maximum, a copy or a softmax: such an exercise gets launches with all
  numbers around -1e30, and minus infinity, by itself (`cnn_course.engine.checks.extremes`). So does an
  exercise of any block get a launch in another one: where the text says what a block is, as for a tile in
  shared memory, write ``other_blocks=False``, or let it make launches in blocks that the text allows.
- Where a kernel is to be repaired, ``broken=`` is the one that the stub holds: the same code, whatever its
  comments and line breaks, is *not solved yet*.

What the sanitizer finds is put into words by `findings`, exceptions by `errors`. What is missing
is said only where `repairs` has found a change of the kernel that makes it right.

Each launch runs under `gpuless.sanitize`, whatever kernels run on; on a GPU, be it emulated, the kernel is
also run compiled once all else is right. Every exercise can answer, besides its own mistakes and what
`diagnosis` says of wrong numbers, with these names (`Verdict.mistake`, what the tests' wrong answers ask
for):

========================  ====================================================================================
not a kernel              ``@cuda.jit`` is missing, or it has ``device=True``
nothing written           no thread writes into any output
first block only          the index lacks ``blockIdx * blockDim``
x and y exchanged         row and column of the output come from ``x`` and ``y``
x and z exchanged         the first axis of a 3-D output comes from ``x``, the last from ``z``
z not used                a 3-D output is written at its first plane only
one element a thread      there are fewer threads than elements, and each does only one
writes past the edge      out of bounds, also in shared memory
reads past the edge       the same, reading
negative index            it counts from the end; with ``from_the_end=True`` only where numbers are wrong
missing barrier           and: write-write race, lost update, race between blocks, divergent barrier,
                          divergent warp, absent lane, uninitialised read, never written, NaN produced,
                          division by zero, depends on order (`gpuless.sanitizer.findings.KINDS`)
changes input             an input is not what it was
does not end              a launch goes on without end
& for and                 ``a < b & c < d`` in a condition
not called                ``cuda.syncthreads`` without its brackets
raises                    an exception, Python that a GPU cannot run, too much shared memory
float64                   only with ``float32=True``
done more than once       only with ``once=True``
one thread for all        only with ``once=True``; one thread computes all elements, in every launch
without                   what `uses` asks for does not occur
wrong when large          only with ``large=``
not small enough          a search for the largest starts from a number, as -1e9
fixed block               not with ``other_blocks=False``
========================  ====================================================================================

Wrong answers are slips in the solution, or other kernels, marked above ``@cuda.jit``:
``@wrong("relu_kernel", "writes past the edge")`` (tests/course/wrong_answers.py says how).
A cell that builds up a kernel of the package has the tag ``same-as-package``, and an entry in
tests/course/TOPIC/repeated_kernels.py (tests/course/test_notebooks.py says how).
"""

import ast
import contextlib
import copy
import inspect
import io
import re
import textwrap
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numba import cuda

from cnn_course.engine.checks import errors
from cnn_course.engine.checks.exercise import Exercise, StandIn, Verdict, is_blank
from cnn_course.engine.checks.extremes import far_below, in_other_blocks, rounding
from cnn_course.engine.checks.findings import (
    SAME_INDEX,
    line_of,
    name_of,
    refuse_findings,
    sentence,
    two_at_one_element,
)
from cnn_course.engine.checks.float64 import refuse_float64
from cnn_course.engine.checks.mistakes import (
    Outcome,
    Trial,
    Wrong,
    call,
    describe,
    diagnose,
    refuse_changed_inputs,
    same,
    wrong_numbers,
)
from cnn_course.engine.checks.uninitialised import code_of, names_in
from cnn_numba import device
from gpuless import sanitize, set_limits
from gpuless.access import ATOMIC, READ, WRITE
from gpuless.simulator import LaunchStopped, UnsupportedPython, argument_names, poisoned

__all__ = [
    "Examination",
    "KernelExercise",
    "LaunchCase",
    "examine",
    "global_updates",
    "inout",
    "is_unfinished",
    "launch",
    "normal",
    "output",
    "uses",
]


class _Output(NamedTuple):
    """An array that the kernel is to fill."""

    shape: tuple
    dtype: object


class _InOut(NamedTuple):
    """An array that the kernel is to change."""

    array: np.ndarray


def output(shape, dtype=np.float32):
    """Mark an argument that the kernel is to fill; it gets an array of poison, NaN for floats."""
    return _Output(shape if isinstance(shape, tuple) else (shape,), dtype)


def inout(array):
    """Mark an argument that the kernel is to change; the reference returns what it is to hold after."""
    return _InOut(array)


def normal(rng: np.random.Generator, shape: int | tuple) -> np.ndarray:
    """Draw a float32 array of normally distributed numbers."""
    return rng.normal(size=shape).astype(np.float32)


@dataclass(frozen=True)
class LaunchCase:
    """One launch of a kernel, as a case of a `KernelExercise`; made by `launch`.

    Attributes
    ----------
    grid, block : int or tuple of int
    arguments : tuple
        In the kernel's order, outputs marked.
    """

    grid: object
    block: object
    arguments: tuple
    kwargs: ClassVar = {}

    @property
    def args(self):
        """What the reference gets: all but the outputs."""
        given = (value for value in self.arguments if not isinstance(value, _Output))
        return tuple(value.array if isinstance(value, _InOut) else value for value in given)

    @property
    def circumstances(self):
        """Grid and block, in words."""
        return f", launched as `[{self.grid}, {self.block}]`"

    def named(self, function):
        """Return what the reference gets as a dict, by the names that `function` gives them."""
        return inspect.signature(function).bind(*map(_as_typed, self.args)).arguments

    def replaced(self, index, value):
        """Return the launch with another argument in the place of the reference's one."""
        places = [place for place, old in enumerate(self.arguments) if not isinstance(old, _Output)]
        arguments = list(self.arguments)
        old = arguments[places[index]]
        arguments[places[index]] = _InOut(value) if isinstance(old, _InOut) else value
        return replace(self, arguments=tuple(arguments))

    def arrays(self):
        """Return fresh arguments for the kernel: copies, and poison for the outputs."""
        return [_fresh(value) for value in self.arguments]

    def outcome(self, arrays, error=None):
        """Return what a launch with these arguments came to."""
        results = [a for a, given in zip(arrays, self.arguments, strict=True) if _is_result(given)]
        after = tuple(g if _is_result(g) else a for a, g in zip(arrays, self.arguments, strict=True))
        value = results[0] if len(results) == 1 else tuple(results)
        return Outcome(value, error, replace(self, arguments=after))


def _is_result(given):
    return isinstance(given, (_Output, _InOut))


def _as_typed(value):
    """Return a NumPy number as Python's, 0.1 for ``np.float32(0.1)``, and all else as it is."""
    if isinstance(value, np.floating):
        return float(str(value))
    return int(value) if isinstance(value, np.integer) else value


def _fresh(value):
    if isinstance(value, _Output):
        return poisoned(value.shape, value.dtype)
    return copy.deepcopy(value.array if isinstance(value, _InOut) else value)


def launch(grid, block, *arguments) -> LaunchCase:
    """Return a case: ``kernel[grid, block](*arguments)``.

    Parameters
    ----------
    grid, block : int or tuple of int
        As in the launch, x first.
    *arguments
        Arrays and numbers, `output` and `inout`, in the kernel's order.

    Examples
    --------
    >>> case = launch(3, 32, np.ones(70, np.float32), np.float32(2), output(70))
    >>> describe(case, lambda x, scale: x * scale)
    '`x` of shape (70,), `scale` = 2.0, launched as `[3, 32]`'
    """
    if not any(map(_is_result, arguments)):
        raise ValueError("a launch needs an `output` or an `inout` among its arguments")
    return LaunchCase(grid, block, arguments)


class Examination(NamedTuple):
    """A launch under scrutiny: what it came to, and the sanitizer's report, None if an exception ended it."""

    outcome: Outcome
    report: object


def examine(kernel, case: LaunchCase):
    """Run a kernel on one launch, under the sanitizer.

    Returns
    -------
    Examination
        ``.outcome.value`` has the outputs, ``.report.trace`` every access (`gpuless.access.trace`).

    Examples
    --------
    >>> import cnn_numba
    >>> from numba import cuda
    >>> @cuda.jit
    ... def count(out):
    ...     out[cuda.grid(1)] = cuda.grid(1)
    >>> found = examine(count, launch(2, 3, output(5)))
    >>> found.outcome.value, found.report.kinds
    (array([0., 1., 2., 3., 4.], dtype=float32), {'out of bounds'})
    """
    with _short_launches():
        return _run(sanitize(kernel), case)


# What the launches of a check need at most is far below: more is a loop without end.
_LIMITS = {"seconds": 5, "log_entries": 200_000}


@contextlib.contextmanager
def _short_launches():
    before = set_limits(**_LIMITS)
    try:
        yield
    finally:
        set_limits(**before)


def _run(kernel, case):
    """Launch a kernel on copies of a case's arguments."""
    arrays = case.arrays()
    report = error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about host arrays, which have to be copied, and small grids
        try:
            report = kernel[case.grid, case.block](*arrays)
        except Exception as raised:
            error = raised
    if getattr(report, "stopped", None):  # that it does not end comes first: of the rest little is known
        report, error = None, LaunchStopped(report.stopped)
    return Examination(case.outcome(arrays, error), report)


_PRINTED = 20  # lines


@contextlib.contextmanager
def _few_prints():
    """Print the first lines only of what kernels print: a check has thousands of threads, many times."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        lines = printed.getvalue().splitlines()
        if len(lines) > _PRINTED:
            lines[_PRINTED:] = [f"... and {len(lines) - _PRINTED} more lines, of all launches of the check"]
        if lines:
            print(*lines, sep="\n")


class _KernelTrial(NamedTuple):
    """A `Trial` with the sanitizer's report."""

    case: LaunchCase
    expected: Outcome
    got: Outcome
    right: bool
    report: object


@dataclass(frozen=True, repr=False)
class KernelExercise(Exercise):
    """The check of an exercise in which a kernel is written; the module explains it.

    Parameters
    ----------
    name, reference, cases, mistakes, properties, starts_as, dtype, rtol
        As in `Exercise`; `cases` returns launches, and `starts_as` is a function like a mistake's.
    float32 : bool
        Refuse a kernel that computes in float64 what it stores as float32.
    once : bool
        Refuse a kernel of which several threads compute the same element.
    from_the_end : bool
        Let right numbers come from indices that count from the end.
    broken : kernel, optional
        Where a kernel is to be repaired: the one that the learner is given.
    large : callable, optional
        Takes a generator, returns large launches, for where kernels are compiled; the cases are small, as the
        simulator steps them.
    other_blocks : bool or callable
        Launches in blocks of other sizes than the mistakes reckon with. True makes one of the case with most
        blocks, for exercises whose text leaves the block open; a callable takes a generator and returns some.

    Examples
    --------
    >>> from numba import cuda
    >>> double = KernelExercise(
    ...     "double",
    ...     reference=lambda x: 2 * x,
    ...     cases=lambda rng: [launch(2, 4, normal(rng, 7), output(7))],
    ... )
    >>> @cuda.jit
    ... def attempt(x, out):
    ...     i = cuda.grid(1)
    ...     out[i] = x[i] + x[i]
    >>> double(attempt).mistake
    'writes past the edge'
    """

    rtol: float = 1e-5
    float32: bool = False
    once: bool = False
    from_the_end: bool = False
    broken: object = None
    large: object = None
    other_blocks: object = True

    def inputs(self):
        """Return the list of launches: random, but the same on every call and every machine."""
        return list(self.cases(self._generator()))

    def trials(self, attempt):
        """Run the attempt under the sanitizer on every launch, beside the reference."""
        trials = []
        for given in self.inputs():
            expected = call(self.reference, given)
            got, report = self._examined(attempt, given)
            trials.append(_KernelTrial(given, expected, got, self._right(got, expected, given), report))
            if isinstance(got.error, LaunchStopped):
                break  # the others would take as long
        return trials

    def attempted(self, attempt, given):
        """Run the attempt on one launch; return the `Outcome`."""
        return self._examined(attempt, given).outcome

    def _examined(self, attempt, given):
        if isinstance(attempt, StandIn):
            return Examination(call(attempt, given), None)
        return examine(attempt, given)

    def _verdict(self, attempt):
        if attempt is ... or is_blank(attempt) or _is_unfinished(attempt):
            return self._unsolved("Write your kernel into the cell above, run it, then run this check again.")
        if self.broken is not None and _is_same_code(attempt, self.broken):
            return self._unsolved("The kernel is still the broken one: find its mistakes, and mend them.")
        problem = "" if isinstance(attempt, StandIn) else _kernel_problem(attempt, self.name)
        if problem:
            return Verdict(self.name, "wrong", problem, mistake="not a kernel")
        with _few_prints():
            return super()._verdict(attempt)

    def _names(self, attempt, given):
        """Return a kernel's names for what the reference gets: all arguments but the outputs."""
        code = code_of(attempt)
        names = code.co_varnames[: code.co_argcount] if code else ()
        if len(names) != len(given.arguments):
            return []
        pairs = zip(names, given.arguments, strict=True)
        return [name for name, value in pairs if not isinstance(value, _Output)]

    def _praise(self, trials):
        return f"Right in all {len(trials)} launches, and the sanitizer found nothing."

    def _judge(self, attempt, trials):
        """Raise `Wrong` with the most telling finding, if there is any."""
        failed = [trial for trial in trials if not trial.right]
        if failed:
            self._refuse_known_mistakes(trials, failed)
        traced = [trial for trial in trials if trial.report is not None]
        if failed or any(trial.report.findings for trial in traced):
            _refuse_bitwise_condition(attempt)
            _refuse_uncalled(attempt)
        for trial in trials:
            if trial.got.error is not None:
                _refuse_error(self, attempt, trial)
        refuse_changed_inputs(self, attempt, trials, _where_to_write(attempt, trials[0].case))
        for trial in traced:
            _refuse_patterns(self, attempt, trial)
        allowed = {"negative index"} if self.from_the_end and not failed else ()
        for trial in traced:
            refuse_findings(self, attempt, trial, traced, allowed, self._is_flawless)
        for trial in traced:
            if not trial.right:
                _refuse_unwritten(self, attempt, trial)
        if failed:
            diagnose(self, attempt, trials)
        if self.once and traced:
            for trial in traced:
                _refuse_repetition(self, attempt, trial)
            _refuse_one_for_all(self, attempt, traced)
        if not isinstance(attempt, StandIn):
            if not device.simulated():
                self._refuse_on_gpu(attempt)
            self._refuse_elsewhere(attempt)
        if self.float32 and traced:
            refuse_float64(attempt, traced)
        for holds in self.properties:
            holds(attempt)

    def _right(self, got, expected, given):
        """Tell whether an outcome is right, or as near as the rounding of the inputs lets a program come."""
        return super()._right(got, expected) or (
            got.error is expected.error is None
            and same(got.value, expected.value, self.dtype, self.rtol, rounding(given, self.reference))
        )

    def _refuse_elsewhere(self, attempt):
        """Run what is right in all cases on what no mistake has to explain: extreme numbers, other blocks."""
        others = self.other_blocks
        if others is True:
            others = [in_other_blocks(max(self.inputs(), key=lambda case: np.prod(case.grid)))]
        elif others:
            others = others(self._generator())
        for further, *finding in (
            (far_below(self.inputs(), self.reference), "not small enough", _NOT_SMALL_ENOUGH),
            (others or (), "fixed block", _FIXED_BLOCK),
        ):
            for given in further:
                expected, got = call(self.reference, given), _run(attempt, given).outcome
                if not self._right(got, expected, given):
                    _refuse_further(self, Trial(given, expected, got, False), *finding)

    def allows(self, kernel):
        """Tell whether a kernel with the right numbers does nothing that the exercise rules out."""
        try:
            for holds in self.properties:
                holds(kernel)
        except Wrong:
            return False
        return True

    def _is_flawless(self, kernel, case):
        """Tell whether a launch gives the right numbers, and the sanitizer finds nothing."""
        found = examine(kernel, case)
        right = found.report is not None and self._right(found.outcome, call(self.reference, case), case)
        return right and found.report.ok

    def _refuse_on_gpu(self, attempt):
        """Run for real what the simulator has found right: types, say, are the compiler's matter."""
        trials = []
        for given in self.inputs():
            expected, got = call(self.reference, given), _run(attempt, given).outcome
            trials.append(Trial(given, expected, got, self._right(got, expected, given)))
        if not all(trial.right for trial in trials):
            diagnose(self, attempt, trials)
        for given in self.large(self._generator()) if self.large else ():
            expected, got = call(self.reference, given), _run(attempt, given).outcome
            if not self._right(got, expected, given):
                trial = Trial(given, expected, got, False)
                _refuse_further(self, trial, "wrong when large", _WRONG_WHEN_LARGE)


_NOT_SMALL_ENOUGH = (
    "Right, until all numbers lie far below 0, around -1e30, or are minus infinity. Does a search for the "
    "largest start from a number? Let it start from the first element, or from `float32(-math.inf)`."
)
_FIXED_BLOCK = (
    "Right, until blocks have another size. Is it written down as a number? A block has `cuda.blockDim.x` "
    "threads along x, and a thread's place in the grid is what `cuda.grid` says."
)
_WRONG_WHEN_LARGE = (
    "Right in all small launches, and wrong in a large one. Is a size written down as a number, or an index "
    "kept in a type too small for it?"
)


def _refuse_further(exercise, trial, mistake, message):
    """Raise `Wrong` about a launch besides the cases, which are all right."""
    error = trial.got.error
    details = wrong_numbers(trial, exercise.rtol) if error is None else (f"{type(error).__name__}: {error}",)
    raise Wrong(mistake, message, *details, f"Seen with {describe(trial.case, exercise.reference)}.")


def _kernel_problem(attempt, name):
    """Say why this is no kernel that can be launched; an empty string if it is one."""
    if not hasattr(attempt, "py_func") or not hasattr(type(attempt), "__getitem__"):
        if not callable(attempt):
            given = f"a value of type `{type(attempt).__name__}`"
            return f"The check takes the kernel itself, `{name}`, and was given {given}."
        return "This is a plain Python function and no kernel: write `@cuda.jit` on the line above its `def`."
    is_device = getattr(attempt, "_device", False) or attempt.targetoptions.get("device")
    if is_device:
        return "With `device=True` it is a function for other kernels to call: write `@cuda.jit` alone."
    return ""


def _is_unfinished(attempt):
    """Tell whether an ``...`` is left in an attempt where a statement or a value is to be."""
    tree = _parsed(attempt)
    if tree is None:
        return False
    values = (node.value for node in ast.walk(tree) if isinstance(node, (ast.Expr, ast.Assign)))
    return any(isinstance(value, ast.Constant) and value.value is ... for value in values)


def _parsed(attempt):
    """Return the syntax tree of a kernel's source, None if there is none."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(getattr(attempt, "py_func", attempt))))
    except (OSError, TypeError, SyntaxError):  # no function, no source, or a lambda within an expression
        return None


def _is_same_code(attempt, kernel):
    """Tell whether two kernels have the same arguments and statements, comments and docstrings aside."""
    # Not their byte code: that depends on what else is in the cell or the module.
    texts = [_text_of(tree) for tree in map(_parsed, (attempt, kernel))]
    return None not in texts and texts[0] == texts[1]


def _text_of(tree):
    """Return a function's arguments and statements in one form, None if there is no function."""
    function = (
        next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), None) if tree else None
    )
    if function is None:
        return None
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return [ast.unparse(part) for part in (function.args, *body)]


def _where_to_write(attempt, case):
    """Say which arrays the results belong in."""
    if isinstance(attempt, StandIn):
        return "Write into the array of the results."
    return f"Write into {' and '.join(f'`{name}`' for name in _results(attempt, case))}."


def _results(attempt, case):
    """Return the names of a kernel's arguments that it has to fill or to change."""
    names = argument_names(attempt.py_func, len(case.arguments))
    return [name for name, given in zip(names, case.arguments, strict=True) if _is_result(given)]


def _refuse_bitwise_condition(attempt):
    """Raise `Wrong` if a condition has ``a < b & c < d``, which is ``a < (b & c) < d``."""
    tree = None if isinstance(attempt, StandIn) else _parsed(attempt)
    comparisons = (node for node in ast.walk(tree) if isinstance(node, ast.Compare)) if tree else ()
    for node in comparisons:
        for part in (node.left, *node.comparators):
            bitwise = isinstance(part, ast.BinOp) and isinstance(part.op, (ast.BitAnd, ast.BitOr))
            if bitwise and len(node.ops) > 1:
                sign, word = ("&", "and") if isinstance(part.op, ast.BitAnd) else ("|", "or")
                raise Wrong(
                    "& for and",
                    f"Write `{word}` between two comparisons: `{sign}` binds tighter than `<`, so that "
                    f"`{ast.unparse(part)}` is computed first.",
                    f"Line {node.lineno} of your kernel: `{ast.unparse(node)}`",
                )


def _refuse_uncalled(attempt):
    """Raise `Wrong` if a statement is no more than the name of a barrier or a fence."""
    tree = None if isinstance(attempt, StandIn) else _parsed(attempt)
    for node in ast.walk(tree) if tree else ():
        is_name = isinstance(node, ast.Expr) and isinstance(node.value, ast.Attribute)
        # Not of `cuda.threadIdx.x`: it does nothing either, but there is nothing to call.
        if is_name and re.fullmatch(r"cuda\.(sync|threadfence)\w*", name := ast.unparse(node.value)):
            raise Wrong(
                "not called",
                f"You name `{name}`, and do not call it: write `{name}()`.",
                f"Line {node.lineno} of your kernel: `{name}`",
            )


def _missing_indices(attempt, case, error):
    """Say which array has more axes than indices on the line where an exception was raised."""
    tree, line = _parsed(attempt), re.search(r", line (\d+)", str(error))
    if tree is None or line is None:
        return ""
    line = int(line[1]) - code_of(attempt).co_firstlineno + 1
    arrays = dict(zip(argument_names(attempt.py_func, len(case.arguments)), case.arrays(), strict=True))
    is_of_a_value = isinstance(error, UnsupportedPython)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.lineno == line):
            continue
        if is_of_a_value and not isinstance(node.ctx, ast.Load):
            continue
        axes = np.ndim(arrays.get(node.value.id, 0))
        given = len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 1
        has_slices = any(isinstance(part, ast.Slice) for part in ast.walk(node.slice))
        if given < axes and not has_slices and "..." not in ast.unparse(node.slice):
            indices = "1 index" if given == 1 else f"{given} indices"
            return f"`{node.value.id}` has {axes} axes, and you give {indices}."
    return ""


def _refuse_error(exercise, attempt, trial):
    """Raise `Wrong` with the exception that ended a launch, and the place that the simulator names."""
    error, code = trial.got.error, code_of(attempt)
    where = f"Seen with {describe(trial.case, exercise.reference)}."
    first, *place = str(error).splitlines() or [""]
    if isinstance(error, UnsupportedPython):
        place, first = _unsupported(first, place, code)
    in_words = errors.endless if isinstance(error, LaunchStopped) else errors.simulated
    place = [in_words(line, code) for line in place]
    is_of_an_index = isinstance(error, IndexError) or re.search("with a sequence|of a whole array", first)
    if is_of_an_index and (missing := _missing_indices(attempt, trial.case, error)):
        raise Wrong("raises", missing, *place, where)
    if isinstance(error, UnsupportedPython):
        details = (sentence(first) if first.endswith(("?", ".")) else f"{sentence(first)}.", *place)
        raise Wrong("raises", "There is Python in your kernel that a GPU cannot run.", *details, where)
    if isinstance(error, LaunchStopped):
        raise Wrong(
            "does not end",
            "A loop in your kernel does not end. Does each round change what its condition asks for?",
            *place,
            where,
        )
    told = ": ".join(filter(None, (type(error).__name__, first.rstrip("."))))
    raise Wrong("raises", errors.in_words(error) or f"Your kernel raised {told}.", *place, where)


def _unsupported(first, place, code):
    """Return where Python is that a GPU cannot run, as the simulator says it, and what it is."""
    found = re.match(r"(in (?:kernel|device function) \w+, line \d+): (.*)", first)
    if not found:
        return place, first
    reason, source = found[2], place[0].strip() if place else ""
    if refused := re.fullmatch(r"the compiler refuses this: (.*)", reason):
        words = errors.in_words(AttributeError(refused[1])) or errors.of_the_compiler(refused[1])
        reason = words or f"Numba refuses it: {refused[1]}"
    return [f"{found[1]}: {source}"], reason


# --- What the accesses show --------------------------------------------------------------------------------


class _Writes:
    """The writes of a launch into its outputs, and the threads that made them."""

    def __init__(self, attempt, trial):
        self.trace = trial.report.trace
        self.names = _results(attempt, trial.case)
        arrays = [i for i, info in enumerate(self.trace.arrays) if info.name in self.names]
        changes = (self.trace.kind == WRITE) | (self.trace.kind == ATOMIC)
        self.rows = np.flatnonzero(changes & np.isin(self.trace.array, arrays))
        # Outputs of one shape are written alike: a thread has one element of each.
        kinds = {(self.trace.arrays[i].space, self.trace.arrays[i].shape) for i in arrays}
        self.is_one_shape = len(kinds) == 1 and {space for space, _ in kinds} == {"global"}
        self.shape = self.trace.arrays[arrays[0]].shape if self.is_one_shape else ()
        self.elements = self.trace.element[self.rows]
        self.missing = int(np.prod(self.shape)) - len(np.unique(self.elements)) if self.is_one_shape else 0

    def positions(self, of="grid"):
        """Return each writer's x and y, in the whole grid or in its block."""
        trace = self.trace
        bx, by, _ = trace.block_shape
        thread, block = trace.thread[self.rows], trace.block[self.rows]
        x, y = thread % bx, thread // bx % by
        if of == "grid":
            gx, gy, _ = trace.grid
            x, y = x + block % gx * bx, y + block // gx % gy * by
        return x, y

    def depth(self):
        """Return each writer's z in the whole grid."""
        (bx, by, bz), (gx, gy, _) = self.trace.block_shape, self.trace.grid
        return self.trace.thread[self.rows] // (bx * by) + self.trace.block[self.rows] // (gx * gy) * bz

    def indices(self):
        """Return row and column of each element written."""
        width = self.shape[-1]
        return self.elements // width % self.shape[-2], self.elements % width

    @property
    def is_flat(self):
        """Whether the launch is one-dimensional."""
        return self.trace.block_shape[1] == self.trace.grid[1] == 1


def _refuse_patterns(exercise, attempt, trial):
    """Raise `Wrong` if the elements that are written show at a glance how their index was computed."""
    if {"divergent barrier", "divergent warp", "division by zero"} & trial.report.kinds:
        return  # it ended before its end
    writes = _Writes(attempt, trial)
    where = f"Seen with {describe(trial.case, exercise.reference)}."
    if not len(writes.rows):
        if "writes past the edge" not in map(name_of, trial.report.findings):
            names = " or ".join(f"`{name}`" for name in writes.names)
            raise Wrong(
                "nothing written",
                f"No thread writes into {names}. A kernel returns nothing: its results have to be stored, by "
                f"`{writes.names[0]}[...] = ...`. Is there such a line, and does a thread get to it?",
                where,
            )
        return
    if trial.right or not writes.is_one_shape:
        return
    blocks = int(np.prod(trial.report.trace.grid))
    (lx, ly), (x, y) = writes.positions("block"), writes.positions()
    if len(writes.shape) >= 2 and not writes.is_flat:
        row, column = writes.indices()
        if (row == x).all() and (column == y).all() and (row != column).any():
            raise Wrong(
                "x and y exchanged",
                f"Your row comes from x and your column from y. `{writes.names[0]}[row, column]` has the row "
                "first, and the grid has x first: x counts columns, y counts rows.",
                where,
            )
        in_block = (row == ly).all() and (column == lx).all()
    else:
        in_block = (writes.elements == lx).all()
    if writes.missing and len(writes.shape) == 3 and writes.depth().any():
        _refuse_third_axis(writes, where)
    several = len(np.unique(writes.trace.block[writes.rows])) > 1 and len(np.unique(writes.elements)) > 1
    if writes.missing and in_block and several:
        raise Wrong(
            "first block only",
            "Every block writes the elements of the first one. `cuda.threadIdx` counts within a block and "
            "starts at 0 in each; the place in the grid is `cuda.blockIdx.x * cuda.blockDim.x + "
            "cuda.threadIdx.x`, or `cuda.grid(1)` for short.",
            where,
        )
    threads = blocks * int(np.prod(trial.report.trace.block_shape))
    short = int(np.prod(writes.shape)) - threads
    if writes.is_flat and writes.missing == short > 0 and (writes.elements == x).all():
        raise Wrong(
            "one element a thread",
            f"There are {threads} threads for {int(np.prod(writes.shape))} elements, and each of yours does "
            "one. Let it go on, in steps of the number of threads in the grid, until the array is done.",
            where,
        )


def _refuse_unwritten(exercise, attempt, trial):
    """Raise `Wrong` if elements of an output are wrong because no thread writes them."""
    trace, value = trial.report.trace, trial.got.value
    results = value if isinstance(value, tuple) else (value,)
    given = [value for value in trial.case.arguments if _is_result(value)]
    for name, array, kind in zip(_results(attempt, trial.case), results, given, strict=True):
        numbers = [number for number, info in enumerate(trace.arrays) if info.name == name]
        if (
            not isinstance(kind, _Output)
            or len(numbers) != 1
            or trace.arrays[numbers[0]].shape != array.shape
        ):
            continue
        changes = (trace.array == numbers[0]) & (trace.kind != READ)
        missing = np.setdiff1d(np.arange(array.size), trace.element[changes])
        if len(missing):
            index = ", ".join(map(str, np.unravel_index(missing[0], array.shape)))
            pair = two_at_one_element(trial, trace.arrays[numbers[0]])
            message = f"`{name}[{index}]` is never written. Does an `if` skip the store?"
            raise Wrong(
                "never written",
                SAME_INDEX.format(array=f"`{name}`") if pair else message,
                *([pair] if pair else []),
                f"{len(missing)} of the {array.size} elements of `{name}` stay as they were.",
                f"Seen with {describe(trial.case, exercise.reference)}.",
            )


def _refuse_repetition(exercise, attempt, trial):
    """Raise `Wrong` if two threads write the same element of an output: one of them was not needed."""
    writes = _Writes(attempt, trial)
    trace, rows = writes.trace, writes.rows
    threads = trace.block[rows] * int(np.prod(trace.block_shape)) + trace.thread[rows]
    places, first = np.unique([trace.array[rows], trace.element[rows], threads], axis=1, return_index=True)
    _, counts = np.unique(places[:2], axis=1, return_counts=True)
    if counts.max() > 1:
        most = int(np.repeat(counts, counts).argmax())
        raise Wrong(
            "done more than once",
            f"The numbers are right, but {counts.max()} threads compute the same element, each for itself. "
            "One is enough: let each thread compute its own element, and no other.",
            line_of(attempt, trace.sites[trace.site[rows[first[most]]]]),
            f"Seen with {describe(trial.case, exercise.reference)}.",
        )


def _refuse_one_for_all(exercise, attempt, trials):
    """Raise `Wrong` if one thread writes all elements of the outputs, whatever the launch."""
    most, line, case = 0, "", None
    for trial in trials:
        writes = _Writes(attempt, trial)
        trace, rows = writes.trace, writes.rows
        writers = np.unique([trace.block[rows], trace.thread[rows]], axis=1).shape[1]
        elements = np.unique([trace.array[rows], trace.element[rows]], axis=1).shape[1]
        if writers != 1:
            return
        if elements > most:
            most, line, case = elements, line_of(attempt, trace.sites[trace.site[rows[0]]]), trial.case
    if most > len(writes.names):
        raise Wrong(
            "one thread for all",
            f"The numbers are right, but one thread computes all {most} elements, one after the other, while "
            "the others do nothing. Let each thread compute its own: the grid takes the place of the loop.",
            line,
            f"Seen with {describe(case, exercise.reference)}.",
        )


def _refuse_third_axis(writes, where):
    """Raise `Wrong` if the first axis of an output is not that of the grid's z."""
    x, y = writes.positions()
    plane, row, column = np.unravel_index(writes.elements, writes.shape)
    if (plane == x).all() and (row == y).all() and (column == writes.depth()).all():
        raise Wrong(
            "x and z exchanged",
            f"Your first index comes from x and your last from z. `cuda.grid(3)` has x first, and x belongs "
            f"to the last axis of `{writes.names[0]}`, z to its first.",
            where,
        )
    if not plane.any():
        raise Wrong(
            "z not used",
            f"Threads with another z write into the first plane of `{writes.names[0]}` too, and the other "
            "planes stay empty: `cuda.grid(3)` gives x, y and z.",
            where,
        )


def is_unfinished(attempt: object) -> bool:
    """Tell whether an exercise has not been worked on: its stub, or an answer with a line ``...`` left in it.

    Examples
    --------
    >>> from numba import cuda
    >>> @cuda.jit
    ... def kernel(x, out):
    ...     ...
    >>> is_unfinished(kernel)
    True
    """
    return attempt is ... or is_blank(attempt) or _is_unfinished(attempt)


def global_updates(kernel, case: LaunchCase) -> int:
    """Count the atomic updates that a kernel makes in global memory.

    Examples
    --------
    >>> from numba import cuda
    >>> @cuda.jit
    ... def count(total):
    ...     cuda.atomic.add(total, 0, 1)
    >>> global_updates(count, launch(2, 3, inout(np.zeros(1, np.int32))))
    6
    """
    trace = examine(kernel, case).report.trace
    is_global = np.array([info.space == "global" for info in trace.arrays] + [False])[trace.array]
    return int((is_global & (trace.kind == ATOMIC)).sum())


def uses(*names):
    """Return a property: what the exercise is about occurs in the kernel.

    Parameters
    ----------
    *names : str
        Functions or attributes, such as ``"shared"`` or ``"syncthreads"``.

    Returns
    -------
    callable

    Examples
    --------
    >>> uses("shared")(lambda x: x)
    Traceback (most recent call last):
        ...
    cnn_course.engine.checks.mistakes.Wrong: The numbers are right, but this exercise asks for `cuda.shared`.
    """

    def holds(attempt):
        found = names_in(code_of(attempt))
        for name in names:
            if name not in found:
                full = f"cuda.{name}" if hasattr(cuda, name) else name
                message = f"The numbers are right, but this exercise asks for `{full}`."
                raise Wrong("without", message, f"Your kernel does not use `{full}`: write it with that.")

    return holds
