"""Everything that the trace of one launch tells about the kernel's mistakes."""

import dataclasses

import numpy as np

from cnn_numba.simulator.conflicts import History
from cnn_numba.simulator.findings import Finding
from cnn_numba.simulator.source import coordinates, describe_position, negative_literals
from cnn_numba.simulator.trace import ATOMIC, FENCE, READ, WRITE

_VERBS = {READ: "reads", WRITE: "writes", ATOMIC: "updates"}


class Diagnosis:
    """Looks through one trace.

    Parameters
    ----------
    trace : Trace
    memory : TracedMemory
        That the trace is from; it knows the accesses beyond arrays.
    divergence : DivergenceError or None
        Why the launch ended early, if it did.
    notes : list of str
        To add what is worth knowing and no mistake.
    expects_nan : bool
        Whether the kernel means to write NaN.
    """

    def __init__(self, trace, memory, divergence, notes, expects_nan=False):
        self.trace, self.memory, self.divergence, self.notes = trace, memory, divergence, notes
        self.expects_nan = expects_nan
        self.history = History(trace)

    def findings(self):
        """Return the mistakes.

        Returns
        -------
        list of Finding
        """
        found = [*self._divergence(), *self._misses(), *self._negative_indices(), *self._races()]
        found += [*self._uninitialised_reads(), *self._first_nan()]
        if self.divergence is None:
            found += self._never_written()
        return found

    # --- Words -------------------------------------------------------------------------------------------

    def _thread(self, row):
        return f"thread {describe_position(self.trace.thread[row], self.trace.block_shape)}"

    def _block(self, row):
        return f"block {describe_position(self.trace.block[row], self.trace.grid)}"

    def _verb(self, row):
        return _VERBS[self.trace.kind[row]]

    def _site(self, row):
        return self.trace.sites[self.trace.site[row]]

    def _array(self, row):
        return self.trace.arrays[self.trace.array[row]]

    def _at(self, row):
        """Return where a row's access happened, as fields of a finding."""
        return {
            "array": self._array(row).name,
            "index": self.trace.index(row),
            "site": self._site(row),
            "block": _position(self.trace.block[row], self.trace.grid),
            "thread": _position(self.trace.thread[row], self.trace.block_shape),
        }

    def _other(self, row):
        """Return the same for the second of two accesses."""
        at = self._at(row)
        return {"other_site": at["site"], "other_block": at["block"], "other_thread": at["thread"]}

    def _grouped(self, rows):
        """Yield the first row of each array and site, and how many there are."""
        if len(rows):
            key = self.trace.array[rows] * len(self.trace.sites) + self.trace.site[rows]
            _, first, counts = np.unique(key, return_index=True, return_counts=True)
            for i in np.argsort(first):
                yield int(rows[first[i]]), int(counts[i])

    # --- Divergence and indices --------------------------------------------------------------------------

    def _divergence(self):
        if self.divergence is None:
            return
        error, shape = self.divergence, self.trace.block_shape
        yield Finding(
            error.kind,
            str(error).partition("\n")[0],
            site=error.site,
            other_site=error.other_site,
            block=_position(self.memory.running[0], self.trace.grid),
            thread=_position(error.threads[0], shape),
            other_thread=_position(error.threads[1], shape),
        )

    def _misses(self):
        """Tell accesses beyond an array, one finding for each instruction."""
        seen = {}
        for miss in self.memory.misses:
            seen.setdefault((miss.view.array, miss.site), []).append(miss)
        for (number, place), misses in seen.items():
            first, name = misses[0], self.trace.arrays[number].name
            index, shape = tuple(map(int, first.index)), first.view.shape
            thread = describe_position(first.thread, self.trace.block_shape)
            block = describe_position(first.block, self.trace.grid)
            size = f"shape {shape}" if len(shape) > 1 else f"{shape[0]} elements"
            yield Finding(
                "out of bounds",
                f"thread {thread} of block {block} {_VERBS[first.kind]} {name}[{_commas(index)}], "
                f"and {name} has {size}",
                name,
                index,
                place,
                block=_position(first.block, self.trace.grid),
                thread=_position(first.thread, self.trace.block_shape),
                count=len(misses),
            )

    def _negative_indices(self):
        for row, count in self._grouped(np.flatnonzero(self.trace.negative)):
            literals = negative_literals(self._site(row).expression)
            if self.trace.negative[row] & ~sum(1 << axis for axis in literals):
                message = (
                    f"{self._thread(row)} of {self._block(row)} {self._verb(row)} {self.trace.name(row)} "
                    "by a negative index, which counts from the end: is a guard missing?"
                )
                yield Finding("negative index", message, **self._at(row), count=count)

    # --- Races -------------------------------------------------------------------------------------------

    def _races(self):
        """Tell conflicts within blocks and between them, one finding for each pair of lines."""
        within = [(group, self._within_block) for group in self.history.conflicts_within_blocks()]
        between = [(group, self._between_blocks) for group in self.history.conflicts_between_blocks()]
        found = {}
        for (rows, actors), tell in within + between:
            pair = self.history.racing_pair(rows, actors)
            if pair is None:
                continue
            if self._all_write_the_same(rows):
                self._note_same_value(pair[1])
                continue
            finding = tell(rows, *pair)
            lines = frozenset((site.function, site.line) for site in (finding.site, finding.other_site))
            key = finding.kind, finding.array, lines
            found.setdefault(key, []).append(finding)
        for same in found.values():
            yield dataclasses.replace(same[0], count=len(same))

    def _all_write_the_same(self, rows):
        """Return whether all threads write one value: harmless, and often meant."""
        values = [self.trace.values[row] for row in rows.tolist()]
        if (self.trace.kind[rows] != WRITE).any() or any(np.ndim(value) for value in values):
            return False
        return all(value == values[0] or (_is_nan(value) and _is_nan(values[0])) for value in values)

    def _note_same_value(self, row):
        site = self._site(row)
        note = (
            f"several threads write {self._array(row).name} at the same index, all the same value "
            f"(line {site.line}: {site.text})"
        )
        if note not in self.notes:
            self.notes.append(note)

    def _loses_updates(self, rows, *pair):
        """Return whether both threads read the element before they write it."""
        trace, kinds = self.trace, self.trace.kind[rows]
        for row in pair:
            mine = (trace.block[rows] == trace.block[row]) & (trace.thread[rows] == trace.thread[row])
            reads, writes = rows[mine & (kinds == READ)], rows[mine & (kinds == WRITE)]
            if not (len(reads) and len(writes) and reads[0] < writes[-1]):
                return False
        return True

    def _lost_update(self, one, two):
        message = (
            f"{self._thread(one)} of {self._block(one)} and {self._thread(two)} of {self._block(two)} both "
            f"read {self.trace.name(one)}, change it and write it back; nothing keeps one from overwriting "
            "what the other wrote: use cuda.atomic"
        )
        return Finding("lost update", message, **self._at(one), **self._other(two))

    def _within_block(self, rows, one, two):
        kinds, block, name = self.trace.kind, self._block(one), self.trace.name(one)
        if self._loses_updates(rows, one, two):
            return self._lost_update(one, two)
        if kinds[one] == kinds[two] == WRITE:
            message = (
                f"{self._thread(one)} and {self._thread(two)} of {block} both write {name} in one barrier "
                "interval: which value stays is chance"
            )
            return Finding("write-write race", message, **self._at(one), **self._other(two))
        # The writer is the one that only writes; if there is none, the one that updates.
        second_writes = kinds[two] == WRITE or kinds[one] == READ
        reader, writer = (one, two) if second_writes else (two, one)
        message = (
            f"{self._thread(reader)} of {block} {self._verb(reader)} {name} in the barrier interval in which "
            f"{self._thread(writer)} {self._verb(writer)} it: cuda.syncthreads() is missing between the two"
        )
        return Finding("missing barrier", message, **self._at(reader), **self._other(writer))

    def _between_blocks(self, rows, one, two):
        if self._loses_updates(rows, one, two):
            return self._lost_update(one, two)
        if self.trace.kind[two] == READ:
            one, two = two, one
        message = (
            f"{self._thread(one)} of {self._block(one)} {self._verb(one)} {self.trace.name(one)}, and "
            f"{self._thread(two)} of {self._block(two)} {self._verb(two)} it; blocks run in any order and no "
            "barrier holds between them: give each its own elements, or make it two launches"
        )
        return Finding("race between blocks", message, **self._at(one), **self._other(two))

    # --- What is in memory -------------------------------------------------------------------------------

    def _uninitialised_reads(self):
        for row, count in self._grouped(self.history.first_reads()):
            info = self._array(row)
            if info.dtype.names:
                continue  # fields are not logged
            kind = "" if info.space == "global" else f"{info.space} "
            message = (
                f"{self._thread(row)} of {self._block(row)} {self._verb(row)} {self.trace.name(row)} before "
                f"anyone has written it: a new {kind}array holds garbage"
            )
            yield Finding("uninitialised read", message, **self._at(row), count=count)

    def _never_written(self):
        trace = self.trace
        for number, info in enumerate(trace.arrays):
            is_read = ((trace.array == number) & (trace.kind == READ)).any()
            if info.uninitialised is None or is_read or info.dtype.names:
                continue
            missing = self.history.unwritten(number)
            if len(missing):
                index = tuple(int(i) for i in np.unravel_index(missing[0], info.shape))
                total = info.uninitialised.size
                some = (
                    f"{len(missing)} of the {total} elements of {info.name} "
                    f"{'is' if len(missing) == 1 else 'are'} never written, the first is "
                    f"{info.name}[{_commas(index)}]: does the grid cover it all?"
                )
                message = f"no thread writes {info.name}" if len(missing) == total else some
                yield Finding("never written", message, info.name, index)

    def _first_nan(self):
        """Tell the first NaN that comes from numbers: written in a block that had read none."""
        trace, seen = self.trace, set()
        if self.expects_nan:
            return
        floats = np.array([info.dtype.kind == "f" for info in trace.arrays] + [False])[trace.array]
        writes = np.flatnonzero(floats & ((trace.kind == WRITE) | (trace.kind == ATOMIC)))
        for row in (row for row in writes.tolist() if _is_nan(trace.values[row])):
            if trace.block[row] not in seen and not self._had_read_nan(row):
                message = (
                    f"{self._thread(row)} of {self._block(row)} writes NaN to {trace.name(row)}, computed "
                    "from values that are none"
                )
                yield Finding("NaN produced", message, **self._at(row))
                return
            seen.add(trace.block[row])

    def _had_read_nan(self, row):
        """Return whether the row's block had read a NaN: its threads may have passed it on."""
        trace = self.trace
        earlier = np.flatnonzero((trace.block[:row] == trace.block[row]) & (trace.kind[:row] != FENCE))
        return any(_is_nan(trace.values[i]) for i in earlier.tolist())


def _is_nan(value):
    return isinstance(value, (float, np.floating)) and value != value


def _position(number, shape):
    return tuple(int(i) for i in coordinates(int(number), shape))


def _commas(index):
    return ", ".join(map(str, index))
