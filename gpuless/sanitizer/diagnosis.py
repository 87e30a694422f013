"""Find the kernel's mistakes in the trace of one launch."""

import numpy as np

from gpuless.access.indices import plain
from gpuless.access.trace import ATOMIC, FENCE, READ, WRITE, combine
from gpuless.sanitizer import words
from gpuless.sanitizer.conflicts import History
from gpuless.sanitizer.consequences import Clue, nested
from gpuless.sanitizer.fields import OPERATIONS, Fields, is_nan
from gpuless.sanitizer.findings import Finding, Unwritten
from gpuless.sanitizer.races import Races
from gpuless.sanitizer.waiting import Waiting
from gpuless.source.dataflow import has_uneven_rounds, is_data_dependent
from gpuless.source.instructions import negative_literals


class Diagnosis(Fields):
    """The mistakes in one trace; parameters as for `Fields` and `Waiting`.

    `expects_nan` says that the kernel may write NaN on purpose.
    """

    def __init__(self, trace, memory, notes, error, absent_read, expects_nan):
        super().__init__(trace, memory, notes)
        self.error, self.absent_read, self.expects_nan = error, absent_read, expects_nan
        self.history = History(trace)

    def findings(self):
        """Return the mistakes."""
        trace, memory, notes = self.trace, self.memory, self.notes
        found = Waiting(trace, memory, notes, self.error, self.absent_read).clues()
        found += [*self._misses(), *self._negative_indices()]
        found += Races(trace, memory, notes, self.history).clues()
        found += [*self._uninitialised_reads(), *self._first_nan()]
        if self.error is None:
            found += self._never_written()
            self._note_partly_written()
        return nested(found)

    # --- Indices -----------------------------------------------------------------------------------------

    def _misses(self):
        """Find accesses out of bounds, one finding for each instruction."""
        seen = {}
        for miss in self.memory.misses:
            seen.setdefault((miss.view.array, miss.site), []).append(miss)
        for (number, _), misses in seen.items():
            first, info = misses[0], self.trace.arrays[number]
            finding = Finding(
                "out of bounds",
                info.name,
                tuple(map(plain, first.index)),
                OPERATIONS[first.kind],
                **self.who(first),
                shape=first.view.shape,
                in_view=not first.view.is_whole(info),
                space=info.space,
                count=len(misses),
            )
            # Only reads bring garbage in: a write out of bounds is dropped.
            read = [miss for miss in misses if miss.kind != WRITE]
            yield Clue(finding, frozenset((miss.block, miss.interval) for miss in read))

    def _negative_indices(self):
        for rows in self.grouped(np.flatnonzero(self.trace.negative)):
            row = rows[0]
            literals = negative_literals(self.site(row).expression)
            if self.trace.negative[row] & ~sum(1 << axis for axis in literals):
                finding = Finding("negative index", **self.at(row), count=len(rows))
                yield Clue(finding, self.places(rows))

    # --- What is in memory -------------------------------------------------------------------------------

    def _uninitialised_reads(self):
        for rows in self.grouped(self.history.first_reads()):
            if self.array(rows[0]).dtype.names:
                continue  # fields are not logged
            finding = Finding("uninitialised read", **self.at(rows[0]), count=len(rows))
            yield Clue(finding, self.places(rows))

    def _never_written(self):
        """Find outputs with unwritten elements; add a note if these seem to be left out on purpose."""
        trace = self.trace
        for number, info in enumerate(trace.arrays):
            is_read = ((trace.array == number) & (trace.kind == READ)).any()
            if info.uninitialised is None or is_read or info.dtype.names:
                continue
            missing = self.history.unwritten(number)
            if self._are_left_out(number, missing):
                self._note_rest(info, missing, garbage=True)
            elif len(missing):
                finding = Finding(
                    "never written",
                    info.name,
                    _index(info, missing),
                    shape=info.shape,
                    space=info.space,
                    detail=Unwritten(len(missing), info.uninitialised.size),
                )
                yield Clue(finding, frozenset())

    def _are_left_out(self, number, missing):
        """Return whether some elements of an array seem to be left out on purpose.

        They do if indices come from memory, as in a compaction; or if the written elements don't form a grid
        and the kernel keeps some threads out, or gives some more rounds of a loop, as for a triangle. With a
        wrong guard or too few threads, the written elements form a smaller grid.
        """
        trace, shape = self.trace, self.trace.arrays[number].shape
        rows = np.flatnonzero((trace.array == number) & (trace.kind == WRITE))
        if not (len(missing) and len(rows)):
            return False
        places = [self.instruction(site) for site in np.unique(trace.site[rows]).tolist()]
        if any(is_data_dependent(*place) for place in places):
            return True
        if _is_grid(np.setdiff1d(np.arange(np.prod(shape)), missing), shape):
            return False
        writers = len(np.unique(combine(trace.block[rows], trace.thread[rows])))
        return writers < np.prod((*trace.grid, *trace.block_shape)) or any(
            has_uneven_rounds(*place, place[0].co_name == trace.kernel) for place in places
        )

    def _note_partly_written(self):
        """Note arrays of which the launch writes only some elements."""
        trace = self.trace
        for number, info in enumerate(trace.arrays):
            is_written = ((trace.array == number) & (trace.kind == WRITE)).any()
            if info.space != "global" or not is_written or info.uninitialised is not None or info.dtype.names:
                continue
            kept = self.history.unwritten(number)
            if len(kept):
                self._note_rest(info, kept, garbage=False)

    def _note_rest(self, info, rest, garbage):
        counts = Unwritten(len(rest), int(np.prod(info.shape)))
        self.note("partly written", words.rest_note(info.name, counts, _index(info, rest), garbage))

    def _first_nan(self):
        """Find the first NaN computed from numbers: written by a block that had read none."""
        trace, seen = self.trace, set()
        if self.expects_nan:
            return
        floats = np.array([info.dtype.kind == "f" for info in trace.arrays] + [False])[trace.array]
        writes = np.flatnonzero(floats & ((trace.kind == WRITE) | (trace.kind == ATOMIC)))
        # An access out of bounds explains a NaN: look at blocks without one first.
        missed = {miss.block for miss in self.memory.misses}
        rows = (row for row in writes.tolist() if is_nan(trace.values[row]))
        for row in sorted(rows, key=lambda row: trace.block[row] in missed):
            if trace.block[row] not in seen and not self._had_read_nan(row):
                yield Clue(Finding("NaN produced", **self.at(row)), self.places([row]))
                return
            seen.add(trace.block[row])

    def _had_read_nan(self, row):
        """Return whether the row's block had read a NaN: its threads may have passed it on."""
        trace = self.trace
        if any(read.block == trace.block[row] for read in self.memory.absent_reads):
            return True
        earlier = np.flatnonzero((trace.block[:row] == trace.block[row]) & (trace.kind[:row] != FENCE))
        return any(is_nan(trace.values[i]) for i in earlier.tolist())


def _index(info, elements):
    """Return the index of the first of some elements."""
    return tuple(int(i) for i in np.unravel_index(elements[0], info.shape))


def _is_grid(elements, shape):
    """Return whether sorted elements are consecutive, or evenly spaced along each axis."""
    axes = [np.unique(axis) for axis in np.unravel_index(elements, shape)]
    even = all(len(np.unique(np.diff(axis))) < 2 for axis in axes)
    one_run = elements[-1] - elements[0] == len(elements) - 1
    return one_run or (even and np.prod([len(axis) for axis in axes]) == len(elements))
