"""Judges of the writes of a kernel: which thread writes which elements of the outputs."""

import numpy as np

from cnn_course.engine.checks.evidence import Trial, Wrong, first_finding
from cnn_course.engine.checks.launches import Output, examine, is_result, result_names
from cnn_course.engine.checks.uninitialised import names_used
from cnn_course.engine.checks.wording import SAME_INDEX, line_of, name_of, two_at_one_element
from gpuless import access_map
from gpuless.access import ATOMIC, READ, WRITE


class Writes:
    """The writes of a launch into its outputs, and the threads that made them."""

    def __init__(self, attempt, trial):
        self.trace = trial.report.trace
        self.reads_thread_index = "threadIdx" in names_used(attempt)
        self.names = result_names(attempt, trial.case)
        arrays = [i for i, info in enumerate(self.trace.arrays) if info.name in self.names]
        changes = (self.trace.kind == WRITE) | (self.trace.kind == ATOMIC)
        self.rows = np.flatnonzero(changes & np.isin(self.trace.array, arrays))
        # If outputs have the same shape, a thread writes the same element of each.
        kinds = {(self.trace.arrays[i].space, self.trace.arrays[i].shape) for i in arrays}
        self.is_one_shape = len(kinds) == 1 and {space for space, _ in kinds} == {"global"}
        self.shape = self.trace.arrays[arrays[0]].shape if self.is_one_shape else ()
        self.elements = self.trace.element[self.rows]
        self.missing = int(np.prod(self.shape)) - len(np.unique(self.elements)) if self.is_one_shape else 0

    def positions(self, of="grid"):
        """Return each writer's x and y, in the grid or in its block."""
        trace = self.trace
        bx, by, _ = trace.block_shape
        thread, block = trace.thread[self.rows], trace.block[self.rows]
        x, y = thread % bx, thread // bx % by
        if of == "grid":
            gx, gy, _ = trace.grid
            x, y = x + block % gx * bx, y + block // gx % gy * by
        return x, y

    def depth(self):
        """Return each writer's z in the grid."""
        (bx, by, bz), (gx, gy, _) = self.trace.block_shape, self.trace.grid
        return self.trace.thread[self.rows] // (bx * by) + self.trace.block[self.rows] // (gx * gy) * bz

    def indices(self):
        """Return row and column of each element written."""
        width = self.shape[-1]
        return self.elements // width % self.shape[-2], self.elements % width

    @property
    def writers(self):
        """The number of each writer, counted block by block."""
        return (
            self.trace.block[self.rows] * int(np.prod(self.trace.block_shape)) + self.trace.thread[self.rows]
        )

    @property
    def is_flat(self):
        """Whether the launch is one-dimensional."""
        return self.trace.block_shape[1] == self.trace.grid[1] == 1


# --- How an index is computed ------------------------------------------------------------------------------


def written_pattern(evidence):
    """Find a wrong index by the pattern of the written elements."""
    patterns = PATTERNS
    if any(len(Writes(evidence.attempt, trial).rows) for trial in evidence.traced):
        patterns = patterns[1:]  # with a single element, a guard that is too strict may leave no write
    for trial in evidence.traced:
        if {"divergent barrier", "divergent warp", "division by zero"} & trial.report.kinds:
            continue  # the launch ended early
        found = first_finding(patterns, Writes(evidence.attempt, trial), trial)
        if found is not None:
            return Wrong(found.mistake, found.message, *found.details, evidence.where(trial))
    return None


def nothing_written(writes, trial):
    """Find that no thread writes into any output."""
    if len(writes.rows) or "writes past the edge" in map(name_of, trial.report.findings):
        return None
    names = " or ".join(f"`{name}`" for name in writes.names)
    return Wrong(
        "nothing written",
        f"No thread writes into {names}. A kernel returns nothing: its results have to be stored, by "
        f"`{writes.names[0]}[...] = ...`. Is there such a line, and does a thread get to it?",
    )


def _is_telling(writes, trial):
    """Return whether the pattern tells anything: numbers are wrong, and the outputs have one shape."""
    return len(writes.rows) and not trial.right and writes.is_one_shape


def _is_image(writes):
    return len(writes.shape) >= 2 and not writes.is_flat


def x_and_y_exchanged(writes, trial):
    """Find that the row comes from x, and the column from y."""
    if not (_is_telling(writes, trial) and _is_image(writes)):
        return None
    (x, y), (row, column) = writes.positions(), writes.indices()
    if (row == x).all() and (column == y).all() and (row != column).any():
        return Wrong(
            "x and y exchanged",
            f"Your row comes from x and your column from y. `{writes.names[0]}[row, column]` has the row "
            "first, and the grid has x first: x counts columns, y counts rows.",
        )
    return None


def x_and_z_exchanged(writes, trial):
    """Find that the first of three axes comes from x, and the last from z."""
    if not _has_depth(writes, trial):
        return None
    x, y = writes.positions()
    plane, row, column = np.unravel_index(writes.elements, writes.shape)
    if (plane == x).all() and (row == y).all() and (column == writes.depth()).all():
        return Wrong(
            "x and z exchanged",
            f"Your first index comes from x and your last from z. `cuda.grid(3)` has x first, and x belongs "
            f"to the last axis of `{writes.names[0]}`, z to its first.",
        )
    return None


def z_not_used(writes, trial):
    """Find that all threads write into the first plane."""
    if not _has_depth(writes, trial) or np.unravel_index(writes.elements, writes.shape)[0].any():
        return None
    return Wrong(
        "z not used",
        f"Threads with another z write into the first plane of `{writes.names[0]}` too, and the other "
        "planes stay empty: `cuda.grid(3)` gives x, y and z.",
    )


def _has_depth(writes, trial):
    """Return whether a volume has unwritten elements, although threads have a z."""
    return _is_telling(writes, trial) and writes.missing and len(writes.shape) == 3 and writes.depth().any()


def first_block_only(writes, trial):
    """Find that each block writes the elements of the first one."""
    # A guard that stops all other blocks makes the same pattern, but is another mistake.
    if not (_is_telling(writes, trial) and writes.missing and writes.reads_thread_index):
        return None
    x, y = writes.positions("block")
    if _is_image(writes):
        row, column = writes.indices()
        in_block = (row == y).all() and (column == x).all()
    else:
        in_block = (writes.elements == x).all()
    several = len(np.unique(writes.trace.block[writes.rows])) > 1 and len(np.unique(writes.elements)) > 1
    if in_block and several:
        axes = 1 if writes.is_flat else max(2, min(len(writes.shape), 3))
        return Wrong(
            "first block only",
            "Every block writes the elements of the first one. `cuda.threadIdx` counts within a block and "
            "starts at 0 in each. The place in the grid, along x, is `cuda.blockIdx.x * cuda.blockDim.x + "
            f"cuda.threadIdx.x`; `cuda.grid({axes})` is short for that{' on every axis' * (axes > 1)}.",
        )
    return None


def one_element_per_thread(writes, trial):
    """Find that there are fewer threads than elements, and each thread computes one."""
    if trial.right or not writes.is_flat:
        return None
    trace, (x, _) = writes.trace, writes.positions()
    threads = int(np.prod(trace.grid)) * int(np.prod(trace.block_shape))
    for number in np.unique(trace.array[writes.rows]):
        info, here = trace.arrays[number], trace.array[writes.rows] == number
        elements, written = int(np.prod(info.shape)), writes.elements[here]
        if elements > threads == len(np.unique(written)) and (written == x[here]).all():
            return Wrong(
                "one element per thread",
                f"The launch has fewer threads than `{info.name}` has elements: {threads} threads for "
                f"{elements} elements, and each thread computes one. Let it go on, in steps of the number of "
                "threads in the grid, until the array is done.",
            )
    return None


#: The judges of the writes of one launch, in order; each takes the writes and the trial.
PATTERNS = (
    nothing_written,
    x_and_y_exchanged,
    x_and_z_exchanged,
    z_not_used,
    first_block_only,
    one_element_per_thread,
)


# --- Missing and repeated writes ---------------------------------------------------------------------------


def unwritten(evidence):
    """Find elements of an output that are wrong because no thread writes them."""
    for trial in evidence.traced:
        for name, array, number in () if trial.right else _outputs(evidence, trial):
            trace = trial.report.trace
            changes = (trace.array == number) & (trace.kind != READ)
            missing = np.setdiff1d(np.arange(array.size), trace.element[changes])
            if len(missing):
                index = ", ".join(map(str, np.unravel_index(missing[0], array.shape)))
                pair = two_at_one_element(trial, trace.arrays[number])
                stay = "stays" if len(missing) == 1 else "stay"
                message = f"`{name}[{index}]` is never written. Does an `if` skip the store?"
                return Wrong(
                    "never written",
                    SAME_INDEX.format(array=f"`{name}`") if pair else message,
                    *([f"{pair}."] if pair else []),
                    f"{len(missing)} of the {array.size} elements of `{name}` {stay} as they were.",
                    evidence.where(trial),
                )
    return None


def _outputs(evidence, trial):
    """Yield the name, contents and number of each output that the trace has under its name."""
    trace, value = trial.report.trace, trial.got.value
    results = value if isinstance(value, tuple) else (value,)
    given = [value for value in trial.case.arguments if is_result(value)]
    names = result_names(evidence.attempt, trial.case)
    for name, array, kind in zip(names, results, given, strict=True):
        numbers = [number for number, info in enumerate(trace.arrays) if info.name == name]
        is_plain = len(numbers) == 1 and trace.arrays[numbers[0]].shape == array.shape
        if isinstance(kind, Output) and is_plain:
            yield name, array, numbers[0]


def done_twice(evidence):
    """Find that two threads write the same element of an output, in exercises that refuse it."""
    trials = evidence.traced if evidence.exercise.once else ()
    for trial in reversed(trials):  # the first may have only one element
        if found := _done_twice(evidence.attempt, trial):
            return Wrong(found.mistake, found.message, *found.details, evidence.where(trial))
    return None


def stored_once(attempt, case):
    """Raise `Wrong` if several threads write an element: a property, to put after other properties."""
    outcome, report = examine(attempt, case)
    if found := _done_twice(attempt, Trial(case, outcome, outcome, True, report)):
        raise found


def _done_twice(attempt, trial):
    writes = Writes(attempt, trial)
    trace, rows = writes.trace, writes.rows
    places, first = np.unique(
        [trace.array[rows], trace.element[rows], writes.writers], axis=1, return_index=True
    )
    _, counts = np.unique(places[:2], axis=1, return_counts=True)
    if counts.max() == 1:
        return None
    most = int(np.repeat(counts, counts).argmax())
    elements = np.prod(trace.arrays[places[0, most]].shape)
    one = "let each thread compute its own element, and no other"
    if elements <= np.prod(trace.grid):  # a block's, or a row's
        one = "put the store under an `if` that a single one of them passes"
    return Wrong(
        "done more than once",
        f"The numbers are right, but {counts.max()} threads compute the same element, each for itself. One "
        f"is enough: {one}.",
        line_of(attempt, trace.sites[trace.site[rows[first[most]]]]),
    )


def one_for_all(evidence):
    """Find that a single thread writes all elements of the outputs, in every launch."""
    most, site, largest = 0, None, None
    for trial in evidence.traced if evidence.exercise.once else ():
        writes = Writes(evidence.attempt, trial)
        trace, rows = writes.trace, writes.rows
        if len(np.unique(writes.writers)) != 1:
            return None
        elements = np.unique([trace.array[rows], trace.element[rows]], axis=1).shape[1]
        if elements > most:
            most, site, largest = elements, trace.sites[trace.site[rows[0]]], trial
    if not most > (len(result_names(evidence.attempt, largest.case)) if largest else 0):
        return None
    return Wrong(
        "one thread for all",
        f"The numbers are right, but one thread computes all {most} elements, one after the other, while "
        "the others do nothing. Let each thread compute its own: the grid takes the place of the loop.",
        line_of(evidence.attempt, site),
        evidence.where(largest),
    )


def from_tiles(inputs, of, loop, most=1):
    """Return a property: a block reads each element of some inputs only once from global memory.

    Parameters
    ----------
    inputs : dict of int to str
        The name of an element, by the input's index among the parameters.
    of : callable
        Takes a generator, returns a launch.
    loop : str
        Where to read the tile instead.
    most : int, optional
        How often a block may read an element.
    """

    def holds(attempt):
        case = of(np.random.default_rng(0))
        access = access_map(examine(attempt, case).report.trace)
        names = attempt.py_func.__code__.co_varnames
        for place, element in inputs.items():
            reads = max(int(access.reads(place, block=block).max()) for block in range(np.prod(case.grid)))
            if reads > most:
                raise Wrong(
                    "not from the tile",
                    f"The numbers are right, but a block reads {element} of `{names[place]}` {reads} times "
                    f"from global memory. Load it into the tile once, and read the tile in {loop}.",
                )

    return holds


def at_most(elements, of, own=None):
    """Return a property: a thread computes at most this number of elements of an output.

    Parameters
    ----------
    elements : int
    of : callable
        Takes a generator, returns a launch.
    own : str, optional
        What a thread should compute, in words; by default this number of elements.
    """

    def holds(attempt):
        case = of(np.random.default_rng(0))
        trace = examine(attempt, case).report.trace
        names = result_names(attempt, case)
        results = [number for number, info in enumerate(trace.arrays) if info.name in names]
        rows = (trace.kind == WRITE) & np.isin(trace.array, results)
        writers = trace.block[rows] * int(np.prod(trace.block_shape)) + trace.thread[rows]
        places = np.unique([writers, trace.array[rows], trace.element[rows]], axis=1)
        most = int(np.unique(places[:2], axis=1, return_counts=True)[1].max())
        if most > elements:
            each = own or ("one element" if elements == 1 else f"{elements} elements")
            raise Wrong(
                "too much for a thread",
                f"The numbers are right, but one thread computes {most} elements, and others have nothing to "
                f"do. Let each thread compute {each}: the grid takes the place of the loop.",
            )

    return holds
