"""Find the accesses of a trace that conflict.

Two accesses of the same memory *conflict* if different threads make them, at least one writes, and not both
are atomic. They are a race unless something orders them: a barrier, for threads of one block; `syncwarp`, for
lanes of one warp; or a flag, that is an atomic operation on the same memory by both sides, with a fence
before the first, as in "the last block sums up".

All accesses are sorted once by place in memory, then by time. Only groups of accesses that do conflict are
examined one by one.
"""

import functools

import numpy as np

from gpuless.access.trace import ATOMIC, FENCE, READ, WRITE, combine
from gpuless.limits import WARP

# How many groups of one kind are examined one by one: enough to find the mistake.
_MOST = 3000


class History:
    """The rows of a trace by place in memory: all that happened to one element, in order.

    Attributes
    ----------
    rows : ndarray of int
        Rows of the trace, sorted by place and time, without constants and global elements that were
        initialised and never written. An element that two arrays see as different types can have several
        places.
    place : ndarray of int
        For each of `rows`, a number of its memory; another block's shared array or another thread's local
        array is other memory.
    """

    def __init__(self, trace):
        self.trace = trace
        spaces = np.array([info.space for info in trace.arrays] + ["constant"])[trace.array]
        rows, cells = self._cells(np.flatnonzero(spaces != "constant"))
        changed = np.zeros(int(cells.max(initial=-1)) + 1, bool)
        changed[cells[trace.kind[rows] != READ]] = True
        self.written = changed
        matters = changed[cells] | (spaces[rows] != "global") | self._uninitialised(rows)
        rows, cells, spaces = rows[matters], cells[matters], spaces[rows][matters]
        threads = int(trace.thread.max(initial=0)) + 1
        owner = np.select(
            [spaces == "shared", spaces == "local"],
            [trace.turn[rows] + 1, trace.turn[rows] * threads + trace.thread[rows] + 1],
            0,
        )
        place = combine(cells, owner)
        order = np.argsort(combine(place, trace.turn[rows], trace.interval[rows]), kind="stable")
        self.rows, self.place, self.spaces = rows[order], place[order], spaces[order]

    @functools.cached_property
    def _units(self):
        """For each allocation, the bytes of a cell, of which all its elements consist, and its first cell."""
        arrays = self.trace.arrays
        count = max((info.allocation for info in arrays), default=-1) + 1
        units = np.zeros(count, np.int64)
        for info in arrays:
            sizes = units[info.allocation], info.dtype.itemsize, info.offset, *info.strides
            units[info.allocation] = np.gcd.reduce(sizes)
        ends = np.zeros(count, np.int64)
        allocation = self._allocation
        used = self.trace.array >= 0
        np.maximum.at(ends, allocation[used], self.trace.address[used] + self.trace.itemsize[used])
        return units, np.cumsum(-(-ends // units)) - -(-ends // units)

    @functools.cached_property
    def _allocation(self):
        return np.array([info.allocation for info in self.trace.arrays] + [-1])[self.trace.array]

    def _cells(self, rows):
        """Return rows and the cells that they touch: an element, or a part of one where elements overlap."""
        units, starts = self._units
        allocation = self._allocation[rows]
        unit = units[allocation]
        cells = starts[allocation] + self.trace.address[rows] // unit
        # NumPy takes counts as intp, which has 32 bits in a browser.
        parts = np.maximum(self.trace.itemsize[rows] // unit, 1).astype(np.intp)
        if (parts == 1).all():
            return rows, cells
        first = np.repeat(np.cumsum(parts) - parts, parts)
        return np.repeat(rows, parts), np.repeat(cells, parts) + np.arange(parts.sum()) - first

    def _uninitialised(self, rows):
        """Return a mask of the rows whose element was not written before the launch."""
        result = np.zeros(len(rows), bool)
        for number, info in enumerate(self.trace.arrays):
            if info.uninitialised is not None:
                mine = self.trace.array[rows] == number
                result[mine] = info.uninitialised.ravel()[self.trace.element[rows[mine]]]
        return result

    def unwritten(self, number):
        """Return the flat indices of the elements of an array that the launch doesn't write.

        If the array had uninitialised elements, only of these.
        """
        info = self.trace.arrays[number]
        units, starts = self._units
        steps = (np.arange(size) * stride for size, stride in zip(info.shape, info.strides, strict=True))
        address = info.offset + functools.reduce(np.add.outer, steps)
        cells = starts[info.allocation] + address.ravel() // units[info.allocation]
        inside = cells < len(self.written)
        written = np.zeros(len(cells), bool)
        # Cells beyond the allocation's last access belong to the next allocation, or to none.
        last = starts[info.allocation + 1] if info.allocation + 1 < len(starts) else len(self.written)
        inside &= cells < last
        written[inside] = self.written[cells[inside]]
        wanted = True if info.uninitialised is None else info.uninitialised.ravel()
        return np.flatnonzero(wanted & ~written)

    def first_reads(self):
        """Return the rows of the trace that read an unwritten element.

        Elements that another thread writes in the same barrier interval are left out: that is a race.
        """
        trace, rows = self.trace, self.rows
        if not len(rows):
            return rows
        starts = np.flatnonzero(np.diff(self.place, prepend=-1))
        interval = combine(self.place, trace.turn[rows], trace.interval[rows])
        begins = np.flatnonzero(np.diff(interval, prepend=-1))
        first_thread = np.repeat(trace.thread[rows[begins]], np.diff(begins, append=len(rows)))
        by_another = (trace.kind[rows] == WRITE) & (trace.thread[rows] != first_thread)
        raced = np.repeat(np.logical_or.reduceat(by_another, begins), np.diff(begins, append=len(rows)))
        firsts = rows[starts]
        unknown = (self.spaces[starts] != "global") | self._uninitialised(firsts)
        return np.sort(firsts[(trace.kind[firsts] != WRITE) & unknown & ~raced[starts]])

    def conflicts_within_blocks(self):
        """Return groups of conflicting rows of one element and one barrier interval.

        Each is a pair: the rows in order of time, and each row's warp, or its thread if the lanes of one warp
        conflict.
        """
        trace = self.trace
        group = combine(self.place, trace.turn[self.rows], trace.interval[self.rows])
        suspects, group = self._conflicting(self.rows, group, trace.thread[self.rows])
        if not len(suspects):
            return []
        warp = trace.thread[suspects] // WARP
        found = _split(*self._conflicting(suspects, group, warp), trace.thread // WARP)
        group = combine(group, warp, trace.epoch[suspects])
        order = np.argsort(group, kind="stable")
        suspects, group = suspects[order], group[order]
        return found + _split(*self._conflicting(suspects, group, trace.thread[suspects]), trace.thread)

    def conflicts_between_blocks(self):
        """Return groups of conflicting rows of one global element, each with the block of each row."""
        mine = self.spaces == "global"
        rows = self.rows[mine]
        conflicting = self._conflicting(rows, self.place[mine], self.trace.block[rows])
        return _split(*conflicting, self.trace.block)

    def _conflicting(self, rows, group, actor):
        """Keep the groups in which different actors conflict; the rows of a group are adjacent."""
        if not len(rows):
            return rows, group
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        kind = self.trace.kind[rows]
        several = np.minimum.reduceat(actor, starts) != np.maximum.reduceat(actor, starts)
        has = {k: np.logical_or.reduceat(kind == k, starts) for k in (READ, WRITE, ATOMIC)}
        conflict = several & (has[WRITE] | (has[READ] & has[ATOMIC]))
        keep = np.repeat(conflict, np.diff(starts, append=len(rows)))
        return rows[keep], group[keep]

    @functools.cached_property
    def _has_flags(self):
        return (self.trace.kind == FENCE).any() and (self.trace.kind == ATOMIC).any()

    def racing_pair(self, rows, actors, same_value=False):
        """Return two conflicting rows that nothing orders, in order of time; None if there are none.

        With `same_value`, all writes are of one value, and two of them are no race.
        """
        kinds = self.trace.kind[rows]
        for writer in np.flatnonzero(kinds != READ)[:64]:
            others = (actors != actors[writer]) & ~((kinds == ATOMIC) & (kinds[writer] == ATOMIC))
            if same_value and kinds[writer] == WRITE:
                others &= kinds != WRITE
            for other in np.flatnonzero(others)[:64]:
                first, second = sorted((int(rows[writer]), int(rows[other])))
                if not (self._has_flags and self._flagged(first, second)):
                    return first, second
        return None

    def _flagged(self, first, second):
        """Return whether a flag orders two accesses: a fence, and an atomic operation by each side."""
        trace = self.trace
        level = trace.block if trace.block[first] != trace.block[second] else trace.thread
        by_first = (level == level[first]) & (trace.block == trace.block[first])
        by_second = (level == level[second]) & (trace.block == trace.block[second])
        rows = np.arange(len(trace))
        fences = rows[by_first & (trace.kind == FENCE) & (rows > first) & (rows < second)]
        if not len(fences):
            return False
        atomic = trace.kind == ATOMIC
        raised = rows[by_first & atomic & (rows > fences[0]) & (rows < second)]
        seen = rows[by_second & atomic & (rows < second)]
        for flag in raised:
            same = (self._allocation[seen] == self._allocation[flag]) & (
                trace.address[seen] == trace.address[flag]
            )
            if (seen[same] > flag).any():
                return True
        return False


def _split(rows, group, actor):
    """Return each group's rows, with their actors."""
    if not len(rows):
        return []
    groups = np.split(rows, np.flatnonzero(np.diff(group)) + 1)[:_MOST]
    return [(each, actor[each]) for each in groups]
