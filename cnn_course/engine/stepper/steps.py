"""The contents of each step of a warp: active lanes, registers, accesses and their cost, shared arrays."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from cnn_course.engine.stepper.schedule import WARP, layout_of, turns_of
from gpuless.access import ATOMIC, READ, WRITE, access_map

RUNS, WAITS, OFF, DONE, NOBODY = "runs", "waits", "off", "done", ""
KINDS = {READ: "reads", WRITE: "writes", ATOMIC: "updates"}
_BARRIERS = ("syncthreads", "grid.sync")


@dataclass(frozen=True)
class Access:
    """One request: the accesses of a step's lanes to one array by one instruction.

    Attributes
    ----------
    array, space, kind : str
        Name; "global" or "shared"; "reads", "writes" or "updates" (an atomic).
    expression : str
        In the source, such as ``tile[ty, tx]``.
    elements : dict of int to tuple of int
        By lane, the index of the element.
    places : dict of int to int
        By lane, the sector, or the bank of a shared array.
    sectors, bytes_asked : int
        0 if the array is not global.
    degree, serialised : int
        Bank conflicts, and lanes that wait at one word, as in `gpuless.access_map`; 0 if the array is not
        shared.
    """

    array: str
    space: str
    kind: str
    expression: str
    elements: dict
    places: dict
    sectors: int
    bytes_asked: int
    degree: int
    serialised: int


@dataclass(frozen=True)
class Shared:
    """A shared array after a step.

    Attributes
    ----------
    name : str
    values : ndarray of object
        None for unwritten elements.
    read, written : ndarray of bool
        The elements that this step reads and writes.
    """

    name: str
    values: np.ndarray
    read: np.ndarray
    written: np.ndarray


@dataclass(frozen=True)
class Step:
    """A line, executed by some lanes of a warp.

    Attributes
    ----------
    function : function
    line : int
        Its number in the function's file.
    text : str
        The line itself.
    back_from : str
        The device function that has just returned to this line; empty if none has.
    states : tuple of str
        Of each lane: "runs", "waits" (at a barrier, for warps that have not arrived), "off" (masked out while
        others run), "done", or "" if the block has no such thread.
    registers : dict of str to list
        For each variable, the values of the lanes after the line; None for a lane without a value.
    changed : dict of str to set of int
        For each variable, the lanes in which the line has changed it.
    accesses : tuple of Access
    shared : tuple of Shared
    next_lines : dict of int to (int or None)
        The next line of each running lane; None if it has finished.
    waits_for : str
        The operation in which lanes wait for each other, such as "syncthreads" or "shfl_sync"; empty if none.
    """

    function: object
    line: int
    text: str
    back_from: str
    states: tuple
    registers: dict
    changed: dict
    accesses: tuple
    shared: tuple
    next_lines: dict
    waits_for: str

    @property
    def at_barrier(self) -> bool:
        """Whether the line is a barrier of the block."""
        return self.waits_for.startswith(_BARRIERS)

    def lanes(self, *states) -> list[int]:
        """Return the lanes in some states."""
        return [lane for lane, state in enumerate(self.states) if state in states]


def steps_of(line_trace, warp) -> tuple[Step, ...]:
    """Return the steps of a warp."""
    turns, which = turns_of(line_trace, warp)
    if not turns:
        raise ValueError(f"kernel {line_trace.kernel.__name__} has no line to step through")
    rows, turn_of_row = _rows_of(line_trace, which, warp)
    accesses = _accesses(line_trace.trace, rows, turn_of_row, len(turns))
    memory = _SharedMemory(line_trace.trace, rows, turn_of_row)
    waits = {}
    for (thread, line), operation in line_trace.waits.items():
        if thread // WARP == warp:
            waits[which[thread % WARP][line]] = operation
    last_warp = (len(line_trace.threads) - 1) // WARP
    held: list[dict] = [{} for _ in which]
    steps = []
    for number, turn in enumerate(turns):
        waits_for = waits.get(number, "")
        layout = layout_of(turn.function)
        registers, changed = _registers(turn, held)
        steps.append(
            Step(
                turn.function,
                turn.line,
                layout.text(turn.line),
                turn.back_from,
                _states(turn, len(which), waits_for.startswith(_BARRIERS) and warp < last_warp),
                registers,
                changed,
                accesses[number],
                memory.after(number, turn.interval),
                {lane: moment.next_line for lane, moment in sorted(turn.lanes.items())},
                waits_for,
            )
        )
    return tuple(steps)


def _states(turn, lanes, waits):
    """Return the state of each lane."""
    states = [OFF] * lanes + [NOBODY] * (WARP - lanes)
    for lane in turn.lanes:
        states[lane] = WAITS if waits else RUNS
    for lane in turn.finished:
        states[lane] = DONE
    return tuple(states)


def _registers(turn, held):
    """Return the variables of a turn's function, lane by lane, and those that the turn has changed.

    `held` keeps the values of each lane and function, as masked lanes keep theirs.
    """
    changed: dict = {}
    for lane, moment in turn.lanes.items():
        if moment.back_from:
            held[lane].clear()
        held[lane][turn.function] = moment.after
        for name, value in moment.after.items():
            if name not in moment.before or not _same(moment.before[name], value):
                changed.setdefault(name, set()).add(lane)
    names = dict.fromkeys(name for each in held for name in each.get(turn.function, ()))
    registers = {
        name: [each.get(turn.function, {}).get(name) for each in held] + [None] * (WARP - len(held))
        for name in names
    }
    return registers, changed


def _same(one, other):
    return one == other or (one != one and other != other)


def _rows_of(line_trace, which, warp):
    """Return the rows of the trace that belong to a warp, and the turn of each."""
    trace = line_trace.trace
    rows = np.flatnonzero(trace.thread // WARP == warp)
    lanes, lines = trace.thread[rows] % WARP, line_trace.line[rows]
    turns = [which[lane][line] for lane, line in zip(lanes.tolist(), lines.tolist(), strict=True)]
    return rows, np.array(turns, np.int64)


def _accesses(trace, rows, turn_of_row, count):
    """Return the requests of each turn, as `access_map` counts them, with turns instead of intervals."""
    columns = {
        name: getattr(trace, name)[rows]
        for name in "kind array element address block thread epoch site negative turn".split()
    }
    values = tuple(trace.values[row] for row in rows.tolist())
    own = dataclasses.replace(trace, **columns, interval=turn_of_row, values=values)
    groups: dict = {}
    for row, key in enumerate(zip(*(getattr(own, name).tolist() for name in _REQUEST), strict=True)):
        groups.setdefault(key, []).append(row)
    found: list[list] = [[] for _ in range(count)]
    requests = access_map(own).requests
    keys = list(zip(*(getattr(requests, name).tolist() for name in _REQUEST), strict=True))
    # In the order of the code, which the first lane alone does not show.
    for number in sorted(range(len(keys)), key=lambda each: _order(own, keys[each])):
        found[keys[number][0]].append(_access(own, groups[keys[number]], requests, number))
    return [tuple(each) for each in found]


def _order(trace, key):
    turn, array, _, site, occurrence = key
    return turn, occurrence, trace.sites[site].offset, array


_REQUEST = ("interval", "array", "kind", "site", "occurrence")


def _access(trace, rows, requests, number):
    info = trace.arrays[requests.array[number]]
    is_global, kind = info.space == "global", int(requests.kind[number])
    lanes = (trace.thread[rows] % WARP).tolist()
    places = trace.address[rows] // 32 if is_global else trace.address[rows] // 4 % 32
    return Access(
        info.name,
        info.space,
        KINDS[kind],
        info.name if kind == ATOMIC else trace.sites[requests.site[number]].expression or info.name,
        {lane: trace.index(row) for lane, row in zip(lanes, rows, strict=True)},
        dict(zip(lanes, places.tolist(), strict=True)),
        int(requests.sectors[number]),
        int(requests.bytes_asked[number]),
        int(requests.degree[number]),
        int(requests.serialised[number]),
    )


class _SharedMemory:
    """The shared arrays of a block, as a warp sees them.

    Writes of other warps between two barriers appear after the second: before it, their order is undefined.
    """

    def __init__(self, trace, rows, turn_of_row):
        self._trace, self._turn = trace, np.full(len(trace), -1)
        self._turn[rows] = turn_of_row
        space = np.array([info.space == "shared" for info in trace.arrays] + [False])[trace.array]
        self._rows = np.flatnonzero(space)
        self._writes = self._rows[trace.kind[self._rows] != READ]
        self._arrays = np.unique(trace.array[self._rows]).tolist()
        self._done = np.zeros(len(self._writes), bool)
        self._memory: dict = {}

    def after(self, turn, interval):
        """Return the arrays after a turn; call it for all turns in order."""
        trace, writes = self._trace, self._writes
        mine = self._turn[writes]
        there = np.where(mine >= 0, mine <= turn, trace.interval[writes] < interval) & ~self._done
        for row in writes[there].tolist():
            info, value = trace.arrays[trace.array[row]], np.array(trace.values[row])
            # If a whole row is written at once, the log has no value for each element.
            stored = value.astype(info.dtype)[()] if value.ndim == 0 else None
            self._memory[info.allocation, int(trace.address[row])] = stored
        self._done |= there
        now = self._rows[self._turn[self._rows] == turn]
        return tuple(self._array(number, now[trace.array[now] == number]) for number in self._arrays)

    def _array(self, number, rows):
        info = self._trace.arrays[number]
        values = np.full(info.shape, None, object)
        for index in np.ndindex(info.shape):
            address = info.offset + sum(i * stride for i, stride in zip(index, info.strides, strict=True))
            values[index] = self._memory.get((info.allocation, address))
        marks = []
        for written in (False, True):
            touched = np.zeros(values.size, bool)
            touched[self._trace.element[rows][(self._trace.kind[rows] != READ) == written]] = True
            marks.append(touched.reshape(info.shape))
        return Shared(info.name, values, *marks)
