"""The sentences of all findings and notes, made from their fields."""

from gpuless.positions import describe_lanes
from gpuless.simulator import words as simulated
from gpuless.simulator.errors import Divergence

VERBS = {"read": "reads", "write": "writes", "update": "updates"}


def message(finding):
    """Return what happened, and what to do about it."""
    return seen(finding) + advice(finding)


def seen(finding):
    """Return what happened, with names and numbers."""
    return _SEEN[finding.kind](finding)


def advice(finding):
    """Return what may be missing, as the end of a sentence; empty if there is nothing to say."""
    make = _ADVICE.get(finding.kind)
    return make(finding) if make else ""


def who(finding):
    """Return thread and block as text."""
    return f"{thread(finding)} of {finding.launch.block_called(finding.block)}"


def other(finding):
    """Return the other thread, with its block."""
    return f"{other_thread(finding)} of {finding.launch.block_called(finding.other_block)}"


def thread(finding):
    """Return the thread alone."""
    return finding.launch.thread_called(finding.thread)


def other_thread(finding):
    """Return the other thread alone."""
    return finding.launch.thread_called(finding.other_thread)


def element(finding):
    """Return the element as in the source, with numbers: ``tile[3, 4]``."""
    index = f"[{', '.join(map(_part_of_index, finding.index))}]"
    if not finding.in_view:
        return finding.array + index
    is_element = len(finding.index) == len(finding.shape) and all(isinstance(i, int) for i in finding.index)
    return f"{'element' if is_element else 'part'} {index} of a view of {finding.array}"


def _part_of_index(part):
    if part is ...:
        return "..."
    if not isinstance(part, slice):
        return str(part)
    ends = (part.start, part.stop) if part.step is None else (part.start, part.stop, part.step)
    return ":".join("" if end is None else str(end) for end in ends)


def access(finding):
    """Return which thread does what to which element."""
    return f"{who(finding)} {VERBS[finding.operation]} {element(finding)}"


# --- Threads that wait -------------------------------------------------------------------------------------


def waiting(finding, sites=True):
    """Return which thread or lane waits for others, or which lanes of a mask never come.

    Without `sites`, lines are left out.
    """
    call = finding.detail
    if isinstance(call, Divergence):
        where = finding.launch.block_called(finding.block)
        return f"in {where}, {simulated.divergence(call, sites)}"
    return (
        f"{who(finding)} calls {call.operation} with mask {call.mask:#x}, which names "
        f"{describe_lanes(call.absent)} of its warp, and these never come: call it where they come too, or "
        "name only the lanes that do"
    )


def _absent_lane(finding):
    call, threads = finding.detail, finding.launch.threads
    (lane,) = call.absent
    why = {
        "beyond": f"does not exist: the block has {threads} threads",
        "unnamed": f"is not in the mask {call.mask:#x}",
        "finished": "has finished",
    }[call.why]
    return (
        f"{who(finding)} takes the value of lane {lane} by {call.operation}, and that lane {why}; the value "
        "is garbage, and the results depend on it"
    )


# --- Elements ----------------------------------------------------------------------------------------------


def _out_of_bounds(finding):
    shape = finding.shape
    size = f"shape {shape}" if len(shape) > 1 else f"{shape[0]} element{'s' * (shape[0] != 1)}"
    return f"{access(finding)}, and {'the view' if finding.in_view else finding.array} has {size}"


def _uninitialised(finding):
    kind = "" if finding.space == "global" else f"{finding.space} "
    return f"{access(finding)} before anyone has written it: a new {kind}array holds garbage"


def _never_written(finding):
    missing, total = finding.detail
    if missing == total:
        return f"no thread writes {finding.array}"
    verb = "is" if missing == 1 else "are"
    return (
        f"{missing} of the {total} elements of {finding.array} {verb} never written, the first is "
        f"{element(finding)}"
    )


def _how_to_write(finding):
    missing, total = finding.detail
    return "" if missing == total else ": does the grid cover it all?"


# --- Races -------------------------------------------------------------------------------------------------


def _both_write(finding):
    return (
        f"{thread(finding)} and {other_thread(finding)} of {finding.launch.block_called(finding.block)} "
        f"both write {element(finding)} in one barrier interval"
    )


def _one_write_too_many(finding):
    barrier = "" if finding.detail.at_once else "a barrier missing between the two, or "
    return f": which value stays is chance; is {barrier}an index wrong?"


def _missing_barrier(finding):
    return (
        f"{access(finding)} in the barrier interval in which {other_thread(finding)} "
        f"{VERBS[finding.other_operation]} it"
    )


def _remedy(finding):
    remedy = finding.detail
    if not remedy.barrier:
        return ": no barrier helps, as other blocks do the same"
    where = remedy.branch and (
        f"`if {remedy.branch.test}:` (line {remedy.branch.line}), which not every thread enters"
    )
    barrier = {
        "block": "cuda.syncthreads()",
        "warp": "cuda.syncwarp()",
        "either": "cuda.syncthreads() (or cuda.syncwarp(), as the block is one warp)",
    }[remedy.barrier]
    if remedy.each_round:
        text = f"{barrier} is missing in each round of the loop, outside of {where}"
    elif remedy.inside:
        text = f"{barrier} is missing between the two; cuda.syncthreads() must not stand inside of {where}"
    else:
        text = f"{barrier} is missing between the two" + (f", outside of {where}" if where else "")
    return f": {text}" + (", unless an index is wrong: both read and write it" if remedy.both_change else "")


def _two_blocks(finding):
    return f"{access(finding)}, and {other(finding)} {VERBS[finding.other_operation]} it"


_SEEN = {
    "missing barrier": _missing_barrier,
    "write-write race": _both_write,
    "lost update": lambda f: f"{who(f)} and {other(f)} both read {element(f)}, change it and write it back",
    "race between blocks": _two_blocks,
    "divergent barrier": waiting,
    "divergent warp": waiting,
    "absent lane": _absent_lane,
    "division by zero": lambda f: (
        f"{who(f)} divides by zero; a GPU goes on: `/` gives infinity, `//` and `%` give 0"
    ),
    "out of bounds": _out_of_bounds,
    "negative index": lambda f: f"{access(f)} by a negative index, which counts from the end",
    "uninitialised read": _uninitialised,
    "never written": _never_written,
    "NaN produced": lambda f: f"{who(f)} writes NaN to {element(f)}",
    "depends on order": lambda f: differs(f.array, f.detail),
}
_ADVICE = {
    "missing barrier": _remedy,
    "write-write race": _one_write_too_many,
    "lost update": lambda f: "; nothing keeps one from overwriting what the other wrote: use cuda.atomic",
    "race between blocks": lambda f: (
        "; blocks run in any order and no barrier holds between them: give each its own elements, or make it "
        "two launches"
    ),
    "negative index": lambda f: ": is a guard missing?",
    "never written": _how_to_write,
    "NaN produced": lambda f: ", computed from numbers that are not NaN",
}


# --- Notes -------------------------------------------------------------------------------------------------


def differs(array, order):
    """Return that an array's contents depend on the order of the threads."""
    return f"{array} differs when blocks and threads run {order}"


def stopped_note(error, order=""):
    """Return why a launch was stopped, and where; `order` is the order of a run after the first."""
    what = f"{order}, the launch did not end" if order else "the launch was stopped before its end"
    place = f" ({', '.join(error.place.lines())})" if error.place else ""
    return f"{what}: {error.reason}{place}"


def same_value_note(array, site):
    """Return that threads write one value into one element."""
    text = f": {site.text}" if site.text else ""
    return f"several threads write {array} at the same index, all the same value (line {site.line}{text})"


def rest_note(array, counts, first, garbage):
    """Return that only some elements of an array are written; `first` is the index of the first other one.

    `garbage` says that the others had not been written before the launch.
    """
    missing, total = counts
    index = ", ".join(map(str, first))
    what = "stay garbage" if garbage else "keep what they held"
    question = "is a guard wrong?" if garbage else "does the grid not cover it all?"
    return (
        f"{total - missing} of the {total} elements of {array} are written, the others {what}, the first is "
        f"{array}[{index}]: as meant, or {question}"
    )


def finished_note(places, lanes, warp, block):
    """Return that masks name lanes that have finished; `places` are operations with their lines."""
    where = " and ".join(f"{operation} in line {line}" for operation, line in places)
    return (
        f"the mask of {where} names lanes that have finished, {describe_lanes(lanes)} of warp {warp} of "
        f"{block} for one: a GPU leaves them out, and what a shuffle takes from them is garbage"
    )
