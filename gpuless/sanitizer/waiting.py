"""Find threads that wait in vain, operations of a warp without some lanes, and divisions by zero."""

import numpy as np

from gpuless.limits import WARP
from gpuless.sanitizer import words
from gpuless.sanitizer.consequences import Clue
from gpuless.sanitizer.fields import Fields
from gpuless.sanitizer.findings import Finding, WarpCall
from gpuless.simulator.errors import DivergenceError
from gpuless.source.branches import conditions, returns_before
from gpuless.source.instructions import place


class Waiting(Fields):
    """The mistakes at barriers and in operations of a warp.

    `error` is the DivergenceError or ZeroDivisionError that ended the launch early; `absent_read` is a read
    of an absent lane that the results depend on. Either may be None.
    """

    def __init__(self, trace, memory, notes, error, absent_read):
        super().__init__(trace, memory, notes)
        self.error, self.absent_read = error, absent_read

    def clues(self):
        """Return the mistakes as clues."""
        return [*self._divergence(), *self._missing_lanes(), *self._absent_lane(), *self._division()]

    def _divergence(self):
        """Find the threads that wait in vain, if that ended the launch."""
        error = self.error
        if not isinstance(error, DivergenceError):
            return
        block, _, interval = self.memory.running
        thread, other = map(self.thread_position, error.threads)
        finding = Finding(
            error.kind,
            site=error.site,
            other_site=error.other_site,
            block=self.block_position(block),
            thread=thread,
            other_thread=other,
            launch=self.launch,
            detail=error.found,
        )
        yield Clue(finding, frozenset({(block, interval)}))

    def _division(self):
        """Find the division by zero, if Python's exception for it ended the launch."""
        if not isinstance(self.error, ZeroDivisionError):
            return
        block, thread, interval = self.memory.running
        finding = Finding(
            "division by zero",
            site=place(self.error.__traceback__),
            block=self.block_position(block),
            thread=self.thread_position(thread),
            launch=self.launch,
        )
        yield Clue(finding, frozenset({(block, interval)}))

    def _missing_lanes(self):
        """Find operations of a warp whose mask names lanes that never come, one finding for each."""
        by_site, returned = {}, []
        for call in self.memory.partial_warps:
            by_site.setdefault((call.site, call.operation), []).append(call)
        for calls in by_site.values():
            bypassed = [call for call in calls if self._is_bypassed(call)]
            if not bypassed:
                returned.append(calls[0])
                continue
            first, warps = bypassed[0], {(each.block, each.thread // WARP) for each in bypassed}
            finding = Finding(
                "divergent warp",
                **self.who(first),
                other_thread=self.thread_position(first.finished[0]),
                detail=WarpCall(first.operation, first.mask, _lanes(first.finished)),
                count=len(warps),
                counted="warps",
            )
            yield Clue(finding, frozenset((each.block, each.interval) for each in bypassed))
        if returned:
            self._note_returned(returned)

    def _is_bypassed(self, call):
        """Return whether threads bypassed an operation, rather than returned before it."""
        returns = returns_before(call.code, call.offset)
        if not returns:
            return returns is not None
        around = conditions(call.code, call.offset)
        if not around or any(
            node.lineno <= line <= node.end_lineno for node, _ in around for line in returns
        ):
            return False
        # Both are possible. A thread with an access below the last `return` has not returned.
        mine = (self.trace.block == call.block) & np.isin(self.trace.thread, call.finished)
        sites = (self.trace.sites[number] for number in np.unique(self.trace.site[mine]))
        return any(site.function == call.code.co_name and site.line > returns[-1] for site in sites)

    def _note_returned(self, calls):
        """Note masks that name finished lanes: a GPU does not wait for them."""
        first = calls[0]
        places = [(each.operation, each.site.line) for each in calls]
        block = self.launch.block_called(self.block_position(first.block))
        text = words.finished_note(places, _lanes(first.finished), first.thread // WARP, block)
        self.note("finished lanes", text)

    def _absent_lane(self):
        """Find the shuffle from a lane that does not take part."""
        read = self.absent_read
        if read is None:
            return
        if read.thread // WARP * WARP + read.lane >= self.launch.threads:
            why = "beyond"
        else:
            why = "finished" if read.mask >> read.lane & 1 else "unnamed"
        call = WarpCall(read.operation, read.mask, (read.lane,), why)
        finding = Finding("absent lane", **self.who(read), detail=call)
        yield Clue(finding, frozenset({(read.block, read.interval)}))


def _lanes(threads):
    return tuple(thread % WARP for thread in threads)
