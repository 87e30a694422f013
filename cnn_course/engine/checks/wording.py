"""The sentences of a verdict about a finding of the sanitizer."""

import ast
import dataclasses
import inspect
import re

import numpy as np

from cnn_course.engine.checks.changes import parts_of
from cnn_course.engine.checks.errors import numbered_line
from cnn_course.engine.checks.source import parsed
from cnn_course.engine.checks.uninitialised import code_of
from gpuless.access import READ, WRITE
from gpuless.sanitizer import words
from gpuless.sanitizer.findings import DIVERGENT

# In the order of reporting: the first is most probably the cause of the others. They say what was seen. A
# check says what is missing only if a repaired kernel proves it (`REPAIRED`).
WORDS = {
    "divergent barrier": "Every thread of a block has to reach `cuda.syncthreads()`, and here some do not: "
    "take it out of the branch or the loop that only some enter, and let no thread `return` before it.",
    "divergent warp": "The lanes in the mask of a warp operation are not the lanes that reach it.",
    "absent lane": "A thread takes the value of a lane that does not take part.",
    "division by zero": "An integer is divided by zero.",
    "writes past the edge": "The kernel writes past the edge of {array}. Does a guard let too many threads "
    "pass, or is an index not the one you mean?",
    "reads past the edge": "The kernel reads past the edge of {array}. Does a guard let too many threads "
    "pass, does a loop go one too far, or is an index not the one you mean?",
    "negative index": "An index of {array} is negative. It counts from the end, as in NumPy, so the kernel "
    "uses another element than you meant.",
    "missing barrier": "A thread reads {array} where another thread of its block writes it, and nothing "
    "makes one wait for the other. Is a barrier missing, is an index wrong, or does a thread write that "
    "should not?",
    "write-write race": "Two threads of a block write the same element of {array}, and the value of the "
    "later one stays. Should only one of them write, or is an index wrong? If they are meant to add to one "
    "element, use `cuda.atomic`.",
    "lost update": "Several threads read an element of {array}, change it and write it back. If two do it "
    "at the same time, one change is lost. Is the index wrong, so that threads share an element by mistake? "
    "If they are meant to add to one, use `cuda.atomic`.",
    "race between blocks": "A block uses an element of {array} that another block writes. Blocks run in any "
    "order, and no barrier holds between them. Should blocks have different elements? If they are "
    "meant to add to one, use `cuda.atomic`.",
    "uninitialised read": "The kernel reads {array} before anything is written there.",
    "never written": "Some elements of {array} are never written.",
    "NaN produced": "The kernel writes NaN into {array}, although it has read no NaN: it computes `0 / 0` or "
    "`inf - inf`, or the root or the logarithm of a negative number.",
    "depends on order": "The result depends on the order in which blocks and threads run.",
}

# If a repair makes the kernel right, these replace them, with the line to change.
REPAIRED = {
    "guard": "The kernel uses {array} past its edge: a guard is missing, or one lets too many pass.",
    "sizes": "The kernel uses {array} past its edge: a comparison has the size of another axis or array.",
    "comparison": "The kernel uses {array} past its edge: a comparison lets one number too many pass.",
    "comparisons": "The kernel uses {array} past its edge: comparisons let one number too many pass.",
    "loop": "Your loop goes one too far, past the edge of {array}.",
    "loops": "Your loops go one too far, past the edge of {array}.",
    "axes": "The indices of {array} are not in the order of its axes.",
    "barriers": "A barrier is missing: a thread reads {array} where another thread of its block writes it, "
    "and nothing makes one wait for the other.",
    "barriers of a warp": "A barrier is missing: a thread reads {array} where another thread of its warp "
    "writes it, and the threads of a warp need not run in step. Only threads of one warp share data here, so "
    "the barrier of a warp is enough.",
    "atomic": "Several threads read an element of {array}, change it and write it back. Two that do it at "
    "the same time lose one of the changes: use `cuda.atomic`.",
}

# Writes past the edge that a guard for the thread's number would not prevent: the array has an element for
# the thread, but the thread writes elsewhere; or it writes several elements, some inside.
_BEYOND = (
    "The kernel writes past the edge of {array}, in a thread whose number lies inside: the index that this "
    "thread computes is too large. Is it computed as you meant?"
)
# The array has enough elements; how indices are computed decides whether one is for this thread.
_EITHER = (
    "The kernel writes past the edge of {array}. Does a thread go on although its row or column lies "
    "outside? Or are the indices computed wrongly, such as from the shape of another array?"
)
_SEVERAL = (
    "The same thread writes into {array} and past its edge: every index that it uses must be inside, not "
    "only the first. Does a loop go one too far?"
)
_BLOCKS = (
    "{array} has an element for each block, and is written past its edge: your index counts the threads of "
    "the grid. A block's own number is `cuda.blockIdx.x`."
)
# For an image: some threads write nothing, so there seems to be a guard, but it lets others pass.
_WRONG_GUARD = (
    "The kernel writes past the edge of {array}. Does a guard ask for both axes, and compare the row with "
    "the first number of the shape, and the column with the second?"
)
# Some elements are missing, and several threads write others.
SAME_INDEX = (
    "Some elements of {array} are never written, and others by several threads: two threads compute the same "
    "index."
)
_AXES = " Are the indices in the order of its axes?"
_ONE_INDEX = (
    "The kernel reads past the edge of {array}: `{part}` is {value}, and axis {axis} has the size {size}. Is "
    "`{part}` the index that you mean there, or does a guard or a loop let it go too far?"
)
# For a shared or local array.
_TOO_SMALL = (
    "The kernel {verb} past the edge of {array}, its {space} array of shape {shape}. Is that too small for "
    "what is kept in it, or does an index go too far?"
)

# If the barrier is in a function that the kernel calls, such as `block_sum`.
_CALLED_BY_SOME = (
    "Every thread of a block has to reach the barrier in `{function}`, and here some do not: call it outside "
    "of any branch that only some threads take and of any loop that only some enter or leave early, and let "
    "no thread `return` before it."
)
# If it is an operation of a warp.
_CALLED_BY_SOME_LANES = (
    "Every lane of a warp has to reach `{function}`, and here some do not: call it outside of any branch "
    "that only some lanes take and of any loop that only some enter or leave early, and let no lane `return` "
    "before it."
)


def too_few_indices(array, axes, given):
    """Return a sentence about an array with more or fewer indices than axes."""
    indices = "1 index" if given == 1 else f"{given} indices"
    return f"`{array}` has {axes} {'axis' if axes == 1 else 'axes'}, and you give {indices}."


def name_of(finding):
    """Return a verdict's name for a finding of the sanitizer."""
    if finding.kind != "out of bounds":
        return finding.kind
    return f"{_verb(finding)} past the edge"


def _verb(finding):
    return "reads" if finding.operation == "read" else "writes"


def meaning(finding, kernel=""):
    """Return a finding's meaning, without the launch; `kernel` is the kernel's name, if known."""
    words = _of_a_function(finding, kernel) if kernel else ""
    return (words or WORDS[name_of(finding)]).format(array=f"`{finding.array}`")


def _of_a_function(finding, kernel, attempt=None):
    """Return a finding's meaning if threads diverge in a function that the kernel calls; else ""."""
    function = finding.site.function if finding.site else ""
    if finding.kind not in DIVERGENT or function in ("", kernel):
        return ""
    function, _ = _callee(attempt, function)
    called = code_of(attempt).co_names if attempt is not None else ()
    # `block_sum` calls `warp_sum` before its barrier, and threads diverge there.
    is_of_block = finding.kind == "divergent barrier" or "block_sum" in called
    function = "block_sum" if is_of_block and function == "warp_sum" else function
    return (_CALLED_BY_SOME if is_of_block else _CALLED_BY_SOME_LANES).format(function=function)


# --- Meaning -----------------------------------------------------------------------------------------------


def explained(attempt, finding, trace):
    """Return a finding's meaning, with `{array}` for the name of the array."""
    name, code = name_of(finding), code_of(attempt)
    if words := _of_a_function(finding, code.co_name, attempt):
        return words
    info = next((info for info in trace.arrays if info.name == finding.array), None)
    if finding.kind != "out of bounds" or info is None:
        return WORDS[name]
    if info.space != "global":
        return _TOO_SMALL.format(verb=_verb(finding), array="{array}", space=info.space, shape=info.shape)
    if name == "writes past the edge":
        return _of_a_write_past_the_edge(finding, info, trace)
    return _of_one_index(attempt, finding) or WORDS[name] + (_AXES if len(info.shape) > 1 else "")


def _of_one_index(attempt, finding):
    """Return a sentence if one of several indices is too large; nothing if the source does not show it."""
    line = own_line(attempt, finding.site) if finding.site else None
    if finding.in_view or line is None:
        return ""
    places = enumerate(zip(finding.index or (), finding.shape, strict=False))
    outside = [k for k, (one, size) in places if isinstance(one, int) and one >= size]
    tree = parsed(attempt)
    parts = {
        ast.unparse(parts_of(node)[outside[0]])
        for node in (ast.walk(tree) if tree and len(finding.shape) > 1 == len(outside) else ())
        if isinstance(node, ast.Subscript) and (node.lineno, ast.unparse(node.value)) == (line, finding.array)
        if len(parts_of(node)) == len(finding.shape)
    }
    if len(parts) != 1:
        return ""
    (part,), (axis,) = parts, outside
    return _ONE_INDEX.format(
        array="{array}", part=part, value=finding.index[axis], axis=axis, size=finding.shape[axis]
    )


def _of_a_write_past_the_edge(finding, info, trace):
    """Return its meaning, with `{array}` for the name of the array."""
    if finding.thread is None:
        return WORDS["writes past the edge"]
    is_of_blocks = _is_flat(trace) and info.shape == trace.grid[:1] != (1,)
    if is_of_blocks and finding.index == (_number_of(finding, trace),):
        return _BLOCKS
    number = next(i for i, other in enumerate(trace.arrays) if other is info)
    rows = (trace.kind != READ) & (trace.array == number)  # the trace has only writes inside
    threads = trace.block[rows] * int(np.prod(trace.block_shape)) + trace.thread[rows]
    writers = np.unique([threads, trace.element[rows]], axis=1)[0].tolist()
    axes = _AXES if len(info.shape) > 1 else ""
    if _number_of(finding, trace) in writers:
        return _SEVERAL + axes
    if len(set(writers)) == len(writers):  # one element per thread
        if _lies_inside(finding, info, trace):
            return _BEYOND + axes
        if _is_flat(trace) and _number_of(finding, trace) < np.prod(info.shape):
            return _EITHER
        threads = int(np.prod(trace.grid) * np.prod(trace.block_shape))
        some_are_kept_out = len(writers) + finding.count < threads
        if len(info.shape) == 2 and not _is_flat(trace) and some_are_kept_out:
            return _WRONG_GUARD
    return WORDS["writes past the edge"]


def _number_of(finding, trace):
    """Return the number of a finding's thread, counted block by block."""
    block = np.ravel_multi_index(finding.block[::-1], trace.grid[::-1])
    thread = np.ravel_multi_index(finding.thread[::-1], trace.block_shape[::-1])
    return int(block * np.prod(trace.block_shape) + thread)


def _lies_inside(finding, info, trace):
    """Return whether an array certainly has an element for a thread, so that a guard would let it pass."""
    number = _number_of(finding, trace)
    return not number or (_is_flat(trace) and len(info.shape) == 1 and number < info.shape[0])


def _is_flat(trace):
    """Return whether a launch is one-dimensional."""
    return trace.block_shape[1:] == trace.grid[1:] == (1, 1)


# --- What has been seen ------------------------------------------------------------------------------------


def seen(finding):
    """Return a sentence about what was seen, without the sanitizer's advice."""
    make = _SEEN.get(finding.kind, words.seen)
    return f"{_capital(make(finding))}."


def _missing_barrier(finding):
    writes = f"{words.other_thread(finding)} {words.VERBS[finding.other_operation]} it"
    return f"{words.access(finding)}, and {writes}, with no barrier between the two"


def _write_write_race(finding):
    block = finding.launch.block_called(finding.block)
    both = f"{words.thread(finding)} and {words.other_thread(finding)} of {block}"
    return f"{both} both write {words.element(finding)}, with no barrier between the two"


def _divergent_barrier(finding):
    # The message states the rule, and the lines of waiting threads are shown below.
    return words.waiting(finding, sites=False).removesuffix(f": {_RULE}")


_RULE = "every thread of a block must reach the same barriers"
_SEEN = {
    "missing barrier": _missing_barrier,
    "write-write race": _write_write_race,
    "divergent barrier": _divergent_barrier,
    "divergent warp": lambda finding: words.waiting(finding, sites=False),
    "depends on order": lambda finding: words.differs(_marked(finding.array), finding.detail),
}


def _marked(name):
    """Return the name of an array as code, other texts unchanged."""
    return f"`{name}`" if name.isidentifier() else name


def seen_unwritten(finding):
    """Return which elements are never written, and ask why."""
    if finding.detail.missing == finding.detail.total:
        return seen(finding)
    return f"{_capital(words.seen(finding))}: does the grid cover it all, or does an `if` skip the store?"


def two_at_one_element(trial, info):
    """Return which two threads write the same element of an array; "" if no two do."""
    trace = trial.report.trace
    number = next(i for i, other in enumerate(trace.arrays) if other is info)
    writers = {}
    for row in np.flatnonzero((trace.kind == WRITE) & (trace.array == number)).tolist():
        thread = int(trace.block[row]), int(trace.thread[row])
        first = writers.setdefault(int(trace.element[row]), thread)
        if thread != first:
            both = " and ".join(_called(*each, trace) for each in (first, thread))
            return f"{_capital(both)} write {trace.name(row)}"
    return ""


def _called(block, thread, trace):
    """Return a thread in words, from its number and its block's."""
    return f"thread {_position(thread, trace.block_shape)} of block {_position(block, trace.grid)}"


def _position(number, shape):
    """Return the position of a thread or a block, with as many coordinates as its launch has axes."""
    place = [int(each) for each in np.unravel_index(number, shape[::-1])][::-1]
    axes = max((axis + 1 for axis, size in enumerate(shape) if size > 1), default=1)
    return str(tuple(place[:axes])) if axes > 1 else str(number)


# --- Where -------------------------------------------------------------------------------------------------


def _callee(attempt, function):
    """Return the kernel's name of a function that it calls, and the function, None if unknown."""
    code, scope = code_of(attempt), getattr(getattr(attempt, "py_func", attempt), "__globals__", {})
    called = ((name, scope.get(name)) for name in (code.co_names if code else ()))
    known = (each for each in called if getattr(code_of(each[1]), "co_name", "") == function)
    return next(known, (function, None))


def as_called(attempt, finding):
    """Return a finding that names an instruction, not what its Python function calls."""
    name, function = _callee(attempt, finding.site.function if finding.site else "")
    is_instruction = getattr(getattr(function, "py_func", function), "stands_in", False)
    if is_instruction and finding.kind == "divergent warp":
        return dataclasses.replace(finding, detail=finding.detail._replace(operation=name))
    return finding


def own_line(attempt, site):
    """Return the line of a site, counted from the kernel's first; None if it is in another function."""
    code = code_of(attempt)
    return site.line - code.co_firstlineno + 1 if site.function == code.co_name else None


def line_of(attempt, site):
    """Return a line of the kernel, counted from its first, or of a function that it calls."""
    line = own_line(attempt, site)
    if line is not None:
        return numbered_line(line, site.text)
    name, lines = _called_in(attempt, site.function)
    return f"In `{name}`{lines}: `{site.text}`"


def _called_in(attempt, function):
    """Return the kernel's name of a function, and the lines in which it calls it, if it does."""
    function, _ = _callee(attempt, function)
    try:
        lines = inspect.getsourcelines(code_of(attempt))[0]
    except OSError:
        lines = []
    # `to_tf32` has the `__name__` `_to_tf32`.
    called = re.compile(rf"\b_?{function.removeprefix('_')}(?=\()")
    names = {str(k): found[0] for k, line in enumerate(lines, 1) if (found := called.search(line))}
    if not names:
        return function, ""
    *others, last = names
    number = f"lines {', '.join(others)} and {last}" if others else f"line {last}"
    return names[last], f", called in {number} of your kernel"


def advised(repair):
    """Return what to write, and where."""
    place = f"Line {repair.line} of your kernel: `{repair.old}`."
    return f"{place} Write `{repair.new}` {repair.where}."


def _capital(text):
    return text[0].upper() + text[1:]
