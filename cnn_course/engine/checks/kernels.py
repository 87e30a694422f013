"""Checks kernels that learners write: `KernelExercise`.

It is an `Exercise` (see `cnn_course.engine.checks.exercise`) whose attempt is a ``@cuda.jit`` kernel. A case
is a `launch`: grid, block, and the kernel's arguments in the kernel's order. Arrays to fill are marked
`output`, arrays to change `inout`; all others are inputs and must stay unchanged::

    relu_kernel = KernelExercise(
        "relu_kernel",
        reference=lambda x: np.maximum(x, 0),
        cases=lambda rng: [
            launch(3, 32, normal(rng, 70), output(70)),  # relu_kernel[3, 32](x, out)
            launch((2, 3), (8, 4), normal(rng, (9, 13)), output((9, 13))),  # x comes first, as in CUDA
        ],
        mistakes={"absolute value": ("You drop the sign instead.", lambda x: np.abs(x))},
    )

- `reference` takes the arguments without the outputs (numbers and `inout` arrays included) and returns the
  expected outputs: one array, or a tuple in their order. It may compute in float64; the default tolerance,
  1e-5 of the largest magnitude, is float32's. Functions of the reference backends can be used unchanged.
- `cases`: at least five (a test counts), small first, not square, no multiples of the block; several blocks,
  and grids with more threads than elements, or a missing guard goes unnoticed. A simulated thread takes about
  20 us: keep the launches of a check below some 5000 threads in all. Give numbers as ``np.float32(2)``: a
  Python float would make the kernel compute in float64.
- `mistakes`, by name: the text, with ``{x}`` for an argument's name; NumPy functions with the reference's
  arguments; and the slips in the solution that make the mistake, as in any `Exercise`. NaN means not written.
  Mistakes come before all other judges, so they may name what the sanitizer would call an index error.
- ``float32=True`` refuses a kernel that computes in float64, by its compiled code
  (`cnn_course.engine.checks.float64`). ``once=True`` refuses a kernel in which several threads do the same
  work, such as a loop over all elements in every thread, or one thread does all of it.
- A negative index is refused: it is nearly always an accident, such as a halo that wraps around to the other
  end of the image. ``from_the_end=True`` accepts it if all numbers are right, for exercises in which
  ``image[y, -1 - x]`` is as good as ``image[y, width - 1 - x]``.
- `properties` take the kernel; `avoids` from `checks` works, and `uses` here is its opposite. `examine` runs
  a kernel on one launch and returns outputs and the sanitizer's report with its trace of all accesses.
- A kernel with shared memory finds its constants (``TILE``) in its cell or test module; the case has a block
  that fits them.
- The stub: ``@cuda.jit``, ``def``, a docstring, and ``...`` wherever the learner writes; while a line ``...``
  (or ``name = ...``) is left, the verdict is *not solved yet*.
- ``large=`` makes further launches for compiled kernels, on a real or emulated GPU: sizes that expose an
  index in 16 bits, or a fixed number of rounds.
- An exercise that does not depend on where zero lies, such as a maximum, a copy or a softmax, automatically
  gets launches with all numbers around -1e30, and minus infinity (`cnn_course.engine.checks.extremes`).
- Every exercise gets a launch with another block. If the text prescribes the block, as for a tile in shared
  memory, write ``other_blocks=False``, or a function that returns launches with blocks that the text allows.
- If the learner repairs a kernel, ``broken=`` is the one in the stub: the same code, with any comments and
  line breaks, is *not solved yet*.

The tuple `kernel_judges.KERNEL_JUDGES` lists the judges in order: each takes the evidence and returns its
finding, or None. `wording` puts the sanitizer's findings into words, and `errors` exceptions. A verdict says
what is missing only if `repairs` has found a change that makes the kernel right.

Each launch runs under `gpuless.sanitize`, whatever kernels run on. On a real or emulated GPU the compiled
kernel runs as well, once all else is right. Besides its own mistakes and those of `results`, every exercise
may answer with these names (`Verdict.mistake`, which the tests' wrong answers give):

========================  ====================================================================================
not a kernel              ``@cuda.jit`` is missing, or it has ``device=True``
nothing written           no thread writes into any output
first block only          the index lacks ``blockIdx * blockDim``
x and y exchanged         row and column of the output come from ``x`` and ``y``
x and z exchanged         the first axis of a 3-D output comes from ``x``, the last from ``z``
z not used                a 3-D output is written at its first plane only
one element per thread    there are fewer threads than elements, and each computes only one
writes past the edge      out of bounds, also in shared memory
reads past the edge       the same, reading
negative index            it counts from the end; with ``from_the_end=True`` only if numbers are wrong
missing barrier           and: write-write race, lost update, race between blocks, divergent barrier,
                          divergent warp, absent lane, uninitialised read, never written, NaN produced,
                          division by zero, depends on order (`gpuless.sanitizer.findings.KINDS`)
changes input             an input has changed
guard exchanges axes      it compares indices with the sizes of the wrong axes
fixed loop                a loop has a fixed number of rounds instead of the size of an axis
loop over another axis    a loop counts along another axis than the one it indexes
break for continue        a loop ends where it should go on with the next round
other sign                ``+`` where ``-`` is right, or the other way round
one too few               a comparison or a loop leaves out the last element, by a ``- 1``
overwritten sum           ``=`` in a loop where ``+=`` is right
sum set back              a loop resets a sum that belongs to all of its rounds
atomic assigned           the result of an atomic operation is stored into its own array
does not end              a launch does not end
& for and                 ``a < b & c < d`` in a condition
^ for **                  ``n^2``, and the kernel is right with ``n**2``
not called                ``cuda.syncthreads`` without its brackets
raises                    an exception, Python that a GPU cannot run, too much shared memory
float64                   only with ``float32=True``
done more than once       only with ``once=True``
one thread for all        only with ``once=True``; one thread computes all elements, in every launch
without                   a function that `uses` asks for is not used
wrong when large          only with ``large=``
not small enough          a search for the largest starts from a number, such as -1e9
fixed block               not with ``other_blocks=False``
========================  ====================================================================================

Wrong answers are slips in the solution, or other kernels, marked above ``@cuda.jit``:
``@wrong("relu_kernel", "writes past the edge")`` (see tests/course/wrong_answers.py).
A cell that builds up a kernel of the package has the tag ``same-as-package``, and an entry in
tests/course/TOPIC/repeated_kernels.py (see tests/course/test_notebooks.py).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import cuda

from cnn_course.engine.checks.compare import same
from cnn_course.engine.checks.evidence import StandIn, Trial, Wrong, call
from cnn_course.engine.checks.exercise import Exercise, Verdict
from cnn_course.engine.checks.extremes import rounding
from cnn_course.engine.checks.kernel_judges import KERNEL_JUDGES
from cnn_course.engine.checks.launches import (
    Examination,
    LaunchCase,
    Output,
    examine,
    inout,
    launch,
    normal,
    output,
)
from cnn_course.engine.checks.source import has_dots_left, is_blank, is_same_code
from cnn_course.engine.checks.uninitialised import code_of, names_used
from gpuless.access import ATOMIC
from gpuless.simulator import LaunchStopped

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


@dataclass(frozen=True, repr=False)
class KernelExercise(Exercise):
    """The check of a kernel; the module's docstring explains it.

    Parameters
    ----------
    name, reference, cases, mistakes, properties, starts_as, dtype, rtol
        As in `Exercise`; `cases` returns launches, and `starts_as` has the reference's arguments.
    float32 : bool
        Refuse a kernel that computes in float64 what it stores as float32.
    once : bool
        Refuse a kernel in which several threads compute the same element.
    from_the_end : bool
        Accept right numbers from indices that count from the end.
    broken : kernel, optional
        In an exercise to repair a kernel: the broken one.
    large : callable, optional
        Takes a generator, returns large launches for compiled kernels; the cases are small, as they run in
        the simulator.
    other_blocks : bool or callable
        Launches with other block sizes. True makes one from the case with most blocks, for exercises whose
        text leaves the block open; a callable takes a generator and returns launches.

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
    judges: ClassVar[tuple] = KERNEL_JUDGES

    def inputs(self):
        """Return the launches: random, but the same in every call and on every machine."""
        return list(self.cases(self.generator()))

    def trials(self, attempt):
        """Run the attempt under the sanitizer, and the reference, on every launch."""
        trials = []
        for given in self.inputs():
            expected = call(self.reference, given)
            got, report = self._examined(attempt, given)
            trials.append(Trial(given, expected, got, self.is_right(got, expected, given), report))
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
        if is_unfinished(attempt):
            return self._unsolved("Write your kernel into the cell above, run it, then run this check again.")
        if self.broken is not None and is_same_code(attempt, self.broken):
            return self._unsolved("The kernel is unchanged: find the mistake and fix it.")
        problem = "" if isinstance(attempt, StandIn) else _kernel_problem(attempt, self.name)
        if problem:
            return Verdict(self.name, "wrong", problem, mistake="not a kernel")
        return super()._verdict(attempt)

    def names_of(self, attempt, given):
        """Return a kernel's names for the reference's arguments: all but the outputs."""
        code = code_of(attempt)
        names = code.co_varnames[: code.co_argcount] if code else ()
        if len(names) != len(given.arguments):
            return []
        pairs = zip(names, given.arguments, strict=True)
        return [name for name, value in pairs if not isinstance(value, Output)]

    def _praise(self, trials):
        return f"Right in all {len(trials)} launches, and the sanitizer found nothing."

    def is_right(self, got, expected, given):
        """Return whether an outcome is right, up to the rounding of the inputs."""
        return super().is_right(got, expected, given) or (
            got.error is expected.error is None
            and same(got.value, expected.value, self.dtype, self.rtol, rounding(given, self.reference))
        )

    def is_flawless(self, kernel, case):
        """Return whether a launch gives the right numbers without a finding of the sanitizer."""
        found = examine(kernel, case)
        right = found.report is not None and self.is_right(found.outcome, call(self.reference, case), case)
        return right and found.report.ok


def _kernel_problem(attempt, name):
    """Return why this is not a kernel that can be launched; an empty string if it is one."""
    if not hasattr(attempt, "py_func") or not hasattr(type(attempt), "__getitem__"):
        if not callable(attempt):
            given = f"a value of type `{type(attempt).__name__}`"
            return f"The check takes the kernel itself, `{name}`, and was given {given}."
        return "This is a plain Python function, not a kernel: write `@cuda.jit` on the line above its `def`."
    is_device = getattr(attempt, "_device", False) or attempt.targetoptions.get("device")
    if is_device:
        return "With `device=True` it is a function for other kernels to call: write `@cuda.jit` alone."
    return ""


def is_unfinished(attempt: object) -> bool:
    """Return whether an attempt is still a stub, or has a line ``...`` left.

    Examples
    --------
    >>> from numba import cuda
    >>> @cuda.jit
    ... def kernel(x, out):
    ...     ...
    >>> is_unfinished(kernel)
    True
    """
    return attempt is ... or is_blank(attempt) or has_dots_left(attempt)


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
    """Return a property: the kernel uses certain functions.

    Parameters
    ----------
    *names : str
        Functions or attributes, such as ``"shared"`` or ``"syncthreads"``; a device function that the kernel
        calls may use them instead.

    Examples
    --------
    >>> uses("shared")(lambda x: x)
    Traceback (most recent call last):
        ...
    cnn_course.engine.checks.evidence.Wrong: The numbers are right, but this exercise asks for `cuda.shared`.
    """

    def holds(attempt):
        found = names_used(attempt)
        for name in names:
            if name not in found:
                full = f"cuda.{name}" if hasattr(cuda, name) else name
                message = f"The numbers are right, but this exercise asks for `{full}`."
                raise Wrong("without", message, f"Your kernel does not use `{full}`: write it with that.")

    return holds
