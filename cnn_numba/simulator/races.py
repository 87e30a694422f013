"""Accesses that nothing orders, and what would."""

import ast
import dataclasses

import numpy as np

from cnn_numba.simulator.branches import common_branch
from cnn_numba.simulator.consequences import Clue, lines
from cnn_numba.simulator.findings import Finding
from cnn_numba.simulator.trace import READ, WRITE
from cnn_numba.simulator.words import WARP, Words, is_nan


class Races(Words):
    """Tells conflicts between blocks and within them.

    Parameters
    ----------
    trace, memory, notes
        As for `Words`.
    history : History
    """

    def __init__(self, trace, memory, notes, history):
        super().__init__(trace, memory, notes)
        self.history = history

    def clues(self):
        """Return the mistakes, one for each pair of lines.

        Returns
        -------
        list of Clue
        """
        between = self._racing(self.history.conflicts_between_blocks(), self._between_blocks)
        self._hopeless = {(clue.finding.array, lines(clue.finding)) for clue in between}
        return between + self._racing(self.history.conflicts_within_blocks(), self._within_block)

    def _racing(self, groups, tell):
        found = {}
        for rows, actors in groups:
            pair = self.history.racing_pair(rows, actors)
            if pair is None:
                continue
            if self._all_write_the_same(rows):
                self._note_same_value(pair[1])
                continue
            finding = tell(rows, *pair)
            found.setdefault((finding.kind, finding.array, lines(finding)), []).append((finding, rows))
        return [self._one_race(same) for same in found.values()]

    def _one_race(self, same):
        """Return several findings about the same lines as one."""
        rows = np.concatenate([rows for _, rows in same])
        elements = len({(finding.array, finding.index) for finding, _ in same})
        finding = dataclasses.replace(same[0][0], count=elements, counted="elements")
        return Clue(finding, self.places(rows))

    def _all_write_the_same(self, rows):
        """Return whether all threads write one value: harmless, and often meant."""
        values = [self.trace.values[row] for row in rows.tolist()]
        if (self.trace.kind[rows] != WRITE).any() or any(np.ndim(value) for value in values):
            return False
        return all(value == values[0] or (is_nan(value) and is_nan(values[0])) for value in values)

    def _note_same_value(self, row):
        site = self.site(row)
        text = f": {site.text}" if site.text else ""
        self.note(
            f"several threads write {self.array(row).name} at the same index, all the same value "
            f"(line {site.line}{text})"
        )

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
            f"{self.thread(one)} of {self.block(one)} and {self.thread(two)} of {self.block(two)} both "
            f"read {self.trace.name(one)}, change it and write it back; nothing keeps one from overwriting "
            "what the other wrote: use cuda.atomic"
        )
        return Finding("lost update", message, **self.at(one), **self.other(two))

    def _within_block(self, rows, one, two):
        kinds, block, name = self.trace.kind, self.block(one), self.trace.name(one)
        if self._loses_updates(rows, one, two):
            return self._lost_update(one, two)
        if kinds[one] == kinds[two] == WRITE:
            message = (
                f"{self.thread(one)} and {self.thread(two)} of {block} both write {name} in one barrier "
                "interval: which value stays is chance"
            )
            return Finding("write-write race", message, **self.at(one), **self.other(two))
        # The writer is the one that only writes; if there is none, the one that updates.
        second_writes = kinds[two] == WRITE or kinds[one] == READ
        reader, writer = (one, two) if second_writes else (two, one)
        message = (
            f"{self.thread(reader)} of {block} {self.verb(reader)} {name} in the barrier interval in which "
            f"{self.thread(writer)} {self.verb(writer)} it"
        )
        finding = Finding("missing barrier", message, **self.at(reader), **self.other(writer))
        return dataclasses.replace(finding, message=f"{message}: {self._remedy(finding, reader, writer)}")

    def _remedy(self, finding, one, two):
        """Return what would order two accesses of one block."""
        if (finding.array, lines(finding)) in self._hopeless:
            return "no barrier helps, as other blocks do the same"
        branch = common_branch(*(self._instruction(row) for row in (one, two)))
        inside = self._threads_at(one, two)
        if branch is None or len(inside) == np.prod(self.trace.block_shape):
            return "cuda.syncthreads() is missing between the two"
        warp = self.trace.thread[one] // WARP
        same_warp = warp == self.trace.thread[two] // WARP
        where = f"`if {ast.unparse(branch.test)}:` (line {branch.lineno}), which not every thread enters"
        if same_warp and (inside // WARP == warp).sum() == WARP:
            return (
                "cuda.syncwarp() is missing between the two; cuda.syncthreads() must not stand inside of "
                f"{where}"
            )
        barrier = "cuda.syncwarp()" if same_warp else "cuda.syncthreads()"
        return f"{barrier} is missing between the two, outside of {where}"

    def _instruction(self, row):
        return self.memory.site_codes[self.trace.site[row]], self.site(row).offset

    def _threads_at(self, one, two):
        """Return the threads of a block that come to one of two accesses in their barrier interval."""
        trace = self.trace
        now = (trace.block == trace.block[one]) & (trace.interval == trace.interval[one])
        return np.unique(trace.thread[now & np.isin(trace.site, trace.site[[one, two]])])

    def _between_blocks(self, rows, one, two):
        if self._loses_updates(rows, one, two):
            return self._lost_update(one, two)
        if self.trace.kind[two] == READ:
            one, two = two, one
        message = (
            f"{self.thread(one)} of {self.block(one)} {self.verb(one)} {self.trace.name(one)}, and "
            f"{self.thread(two)} of {self.block(two)} {self.verb(two)} it; blocks run in any order and no "
            "barrier holds between them: give each its own elements, or make it two launches"
        )
        return Finding("race between blocks", message, **self.at(one), **self.other(two))
