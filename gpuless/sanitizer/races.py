"""Find accesses that nothing orders, and the barrier that would order them."""

import ast
import dataclasses

import numpy as np

from gpuless.access.trace import READ, WRITE, combine, distinct
from gpuless.limits import WARP
from gpuless.sanitizer import words
from gpuless.sanitizer.consequences import Clue, lines
from gpuless.sanitizer.fields import Fields, is_nan
from gpuless.sanitizer.findings import Branch, Collision, Finding, Remedy
from gpuless.source.branches import LOOPS, common_path, conditions
from gpuless.source.dataflow import is_atomic_update, is_of_the_thread_alone, uniform_in


class Races(Fields):
    """The races between blocks and within them, among the conflicts that `History` finds."""

    def __init__(self, trace, memory, notes, history):
        super().__init__(trace, memory, notes)
        self.history = history

    def clues(self):
        """Return the mistakes as clues, one for each pair of lines."""
        between = self._racing(self.history.conflicts_between_blocks(), self._between_blocks)
        self._hopeless = {(clue.finding.array, lines(clue.finding)) for clue in between}
        return between + self._racing(self.history.conflicts_within_blocks(), self._within_block)

    def _racing(self, groups, finding_of):
        found = {}
        for rows, actors in groups:
            same_value = self._all_write_the_same(rows)
            pair = self.history.racing_pair(rows, actors, same_value)
            if pair is None:
                if same_value and self.history.racing_pair(rows, actors):
                    self._note_same_value(rows[self.trace.kind[rows] == WRITE][-1])
                continue
            finding = self._lost_update(rows, actors) or finding_of(rows, *pair)
            found.setdefault((finding.kind, finding.array, lines(finding)), []).append((finding, rows))
        return [self._one_race(same) for same in found.values()]

    def _one_race(self, same):
        """Merge findings about the same lines into one clue."""
        rows = np.concatenate([rows for _, rows in same])
        elements = len({(finding.array, finding.index) for finding, _ in same})
        finding = dataclasses.replace(same[0][0], count=elements, counted="elements")
        return Clue(finding, self.places(rows))

    def _all_write_the_same(self, rows):
        """Return whether all threads write one value: harmless, and often on purpose."""
        values = [self.trace.values[row] for row in rows[self.trace.kind[rows] == WRITE].tolist()]
        return all(_is_same(value, values[0]) for value in values)

    def _note_same_value(self, row):
        self.note("same value", words.same_value_note(self.array(row).name, self.site(row)))

    def _lost_update(self, rows, actors):
        """Return a finding if two threads change an element as an atomic operation could, else None."""
        changing = self._changing(rows)
        pair = self.history.racing_pair(rows[changing], actors[changing])
        sites = np.unique(self.trace.site[rows[changing & (self.trace.kind[rows] == WRITE)]])
        if pair is None or not all(is_atomic_update(*self.instruction(site)) for site in sites.tolist()):
            return None
        one, two = pair
        return Finding("lost update", **self.at(one), **self.other(two))

    def _changing(self, rows):
        """Return a mask of the rows of threads that read the element and then write it, from the read on."""
        trace, kinds = self.trace, self.trace.kind[rows]
        _, threads = np.unique(combine(trace.block[rows], trace.thread[rows]), return_inverse=True)
        reads, writes = kinds == READ, kinds == WRITE
        first_read, last_write = np.full(len(rows), len(trace)), np.full(len(rows), -1)
        np.minimum.at(first_read, threads[reads], rows[reads])
        np.maximum.at(last_write, threads[writes], rows[writes])
        since, until = first_read[threads], last_write[threads]
        return (since <= rows) & (since < until)

    def _within_block(self, rows, one, two):
        kinds = self.trace.kind
        both_change = self._changing(rows)[np.isin(rows, (one, two))].all()
        if both_change:
            one, two = self._clearest_pair(rows, one, two)
        if kinds[one] == kinds[two] == WRITE:
            collision = Collision(self._are_at_once(one, two))
            return Finding("write-write race", **self.at(one), **self.other(two), detail=collision)
        # The writer is the one that only writes; if there is none, the one that updates.
        second_writes = kinds[two] == WRITE or kinds[one] == READ
        reader, writer = (one, two) if second_writes else (two, one)
        finding = Finding("missing barrier", **self.at(reader), **self.other(writer))
        remedy = Remedy("")
        if (finding.array, lines(finding)) not in self._hopeless:
            remedy = self._remedy(reader, writer)._replace(both_change=bool(both_change))
        return dataclasses.replace(finding, detail=remedy)

    def _clearest_pair(self, rows, one, two):
        """Return the rows to report for two threads that both read and write an element.

        Two writes if they happen at once, which no barrier can change; else a write, and a read that a
        barrier would put before or after it.
        """
        trace = self.trace
        mine, theirs = (rows[trace.thread[rows] == trace.thread[row]] for row in (one, two))
        for first in mine[trace.kind[mine] == WRITE]:
            for second in theirs[trace.kind[theirs] == WRITE]:
                if self._are_at_once(first, second):
                    return first, second
        return mine[trace.kind[mine] == WRITE][0], theirs[trace.kind[theirs] == READ][0]

    def _are_at_once(self, one, two):
        """Return whether two rows are surely of one instruction in one round of its loops."""
        trace = self.trace
        inner = [node for node, _ in conditions(*self._instruction(one))]
        while inner and isinstance(inner[0], ast.If):
            inner = inner[1:]
        # Under a condition in a loop, the occurrence doesn't tell the round.
        is_countable = all(isinstance(node, LOOPS) for node in inner)
        same_round = trace.occurrence[one] == trace.occurrence[two]
        return bool(trace.site[one] == trace.site[two] and is_countable and same_round)

    def _remedy(self, one, two):
        """Return what would order two accesses of one block."""
        path = common_path(*(self._instruction(row) for row in (one, two)))
        if guard := self._guard_in_loop(path, one, two):
            return Remedy(self._barrier(), _entered(guard), each_round=True)
        branch = next((node for node in reversed(path) if isinstance(node, ast.If)), None)
        inside = self._threads_at(one, two)
        if branch is None or len(inside) == self.launch.threads:
            return Remedy(self._barrier())
        warp = self.trace.thread[one] // WARP
        # In blocks of another size, threads of other warps may come here.
        same_warp = warp == self.trace.thread[two] // WARP and is_of_the_thread_alone(path[0], branch.test)
        same_warp &= not self._warps_meet(one)
        whole_warp = (inside // WARP == warp).sum() == WARP
        return Remedy(
            "warp" if same_warp else "block", _entered(branch), inside=bool(same_warp and whole_warp)
        )

    def _barrier(self):
        """Return the barrier to suggest if every thread of the block may call it."""
        # A warp's barrier only for a block of one warp on one axis: in another launch, with more data, warps
        # may meet, and in a block of several axes which threads make a warp is incidental.
        return "either" if self.trace.block_shape == (WARP, 1, 1) else "block"

    def _warps_meet(self, one):
        """Return whether threads of several warps access one element that one of them writes."""
        trace = self.trace
        here = [column == column[one] for column in (trace.block, trace.array, trace.interval)]
        rows = np.flatnonzero(np.logical_and.reduce(here))
        written = trace.element[rows[trace.kind[rows] != READ]]
        rows = rows[np.isin(trace.element[rows], written)]
        elements, warps = distinct(trace.element[rows], trace.thread[rows] // WARP).columns
        return len(np.unique(elements)) < len(warps)

    def _guard_in_loop(self, path, one, two):
        """Return an `if`, around one of two accesses in one loop, that some threads may not enter, else None.

        How many threads enter may change from round to round, and with the size of the block.
        """
        loops = [node for node in path if isinstance(node, LOOPS)]
        uniform = uniform_in(path[0], self.site(one).function == self.trace.kernel) if loops else None
        for row in (one, two) if loops else ():
            around = [node for node, _ in conditions(*self._instruction(row))]
            for node in around[around.index(loops[-1]) :]:
                if isinstance(node, ast.If) and not uniform.is_so(node.test):
                    return node
        return None

    def _instruction(self, row):
        return self.instruction(self.trace.site[row])

    def _threads_at(self, one, two):
        """Return the threads of a block that make one of two accesses in their barrier interval."""
        trace = self.trace
        now = (trace.block == trace.block[one]) & (trace.interval == trace.interval[one])
        return np.unique(trace.thread[now & np.isin(trace.site, trace.site[[one, two]])])

    def _between_blocks(self, rows, one, two):
        if self.trace.kind[two] == READ:
            one, two = two, one
        return Finding("race between blocks", **self.at(one), **self.other(two))


def _is_same(value, other):
    """Return whether two values are the same number or record; False for whole arrays."""
    if isinstance(value, np.void) and isinstance(other, np.void):
        return value.tobytes() == other.tobytes()
    if np.ndim(value) or np.ndim(other):
        return False
    return value == other or (is_nan(value) and is_nan(other))


def _entered(branch):
    return Branch(ast.unparse(branch.test), branch.lineno)
