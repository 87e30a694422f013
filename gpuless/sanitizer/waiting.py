"""Threads that wait in vain, warps of which a part is missing, and what else ends a launch early."""

import numpy as np

from gpuless.limits import WARP
from gpuless.positions import describe_lanes
from gpuless.sanitizer.consequences import Clue
from gpuless.sanitizer.findings import Finding
from gpuless.sanitizer.words import Words
from gpuless.simulator.errors import DivergenceError
from gpuless.source.branches import conditions, returns_before
from gpuless.source.instructions import place


class Waiting(Words):
    """Tells mistakes at barriers and in operations of a warp.

    `error` is the DivergenceError or ZeroDivisionError that ended the launch early; `absent_read` a value
    from a lane that is not there, on which the results depend. Either may be None.
    """

    def __init__(self, trace, memory, notes, error, absent_read):
        super().__init__(trace, memory, notes)
        self.error, self.absent_read = error, absent_read

    def clues(self):
        """Return the mistakes as clues."""
        return [*self._divergence(), *self._missing_lanes(), *self._absent_lane(), *self._division()]

    def _divergence(self):
        """Tell threads that wait in vain, which ended the launch."""
        error = self.error
        if not isinstance(error, DivergenceError):
            return
        block, _, interval = self.memory.running
        reason = str(error).partition("\n")[0]
        finding = Finding(
            error.kind,
            f"in {self.block_called(block)}, {reason}",
            site=error.site,
            other_site=error.other_site,
            block=self.block_position(block),
            thread=self.thread_position(error.threads[0]),
            other_thread=self.thread_position(error.threads[1]),
        )
        yield Clue(finding, frozenset({(block, interval)}))

    def _division(self):
        """Tell a division by zero for which Python raises, which ended the launch."""
        if not isinstance(self.error, ZeroDivisionError):
            return
        block, thread, interval = self.memory.running
        message = (
            f"{self.thread_called(thread)} of {self.block_called(block)} divides by zero; a GPU goes on: "
            "`/` gives infinity, `//` and `%` give 0"
        )
        finding = Finding(
            "division by zero",
            message,
            site=place(self.error.__traceback__),
            block=self.block_position(block),
            thread=self.thread_position(thread),
        )
        yield Clue(finding, frozenset({(block, interval)}))

    def _missing_lanes(self):
        """Tell operations of a warp whose mask names lanes that never come, one finding for each."""
        by_site, returned = {}, []
        for meeting in self.memory.meetings:
            by_site.setdefault((meeting.site, meeting.operation), []).append(meeting)
        for meetings in by_site.values():
            passed = [meeting for meeting in meetings if self._was_passed_by(meeting)]
            if not passed:
                returned.append(meetings[0])
                continue
            first, warps = passed[0], {(each.block, each.thread // WARP) for each in passed}
            message = (
                f"{self.thread_called(first.thread)} of {self.block_called(first.block)} calls "
                f"{first.operation} with mask {first.mask:#x}, which names {_lanes(first.finished)} of its "
                "warp, and these never come: call it where they come too, or name only the lanes that do"
            )
            other = self.thread_position(first.finished[0])
            finding = Finding(
                "divergent warp",
                message,
                **self.who(first),
                other_thread=other,
                count=len(warps),
                counted="warps",
            )
            yield Clue(finding, frozenset((each.block, each.interval) for each in passed))
        if returned:
            self._note_returned(returned)

    def _was_passed_by(self, meeting):
        """Return whether threads went around an operation, rather than having returned before it."""
        returns = returns_before(meeting.code, meeting.offset)
        if not returns:
            return returns is not None
        around = conditions(meeting.code, meeting.offset)
        if not around or any(
            node.lineno <= line <= node.end_lineno for node, _ in around for line in returns
        ):
            return False
        # Both can be. Who did something below the last `return` has not taken it.
        mine = (self.trace.block == meeting.block) & np.isin(self.trace.thread, meeting.finished)
        sites = (self.trace.sites[number] for number in np.unique(self.trace.site[mine]))
        return any(site.function == meeting.code.co_name and site.line > returns[-1] for site in sites)

    def _note_returned(self, meetings):
        """Note lanes that are named and have left: a GPU does not wait for them."""
        first = meetings[0]
        where = " and ".join(f"{each.operation} in line {each.site.line}" for each in meetings)
        self.note(
            f"the mask of {where} names lanes that have finished, {_lanes(first.finished)} of warp "
            f"{first.thread // WARP} of {self.block_called(first.block)} for one: a GPU leaves them out, "
            "and what a shuffle takes from them is garbage"
        )

    def _absent_lane(self):
        """Tell a shuffle from a lane that does not take part."""
        read = self.absent_read
        if read is None:
            return
        number = read.thread // WARP * WARP + read.lane
        threads = int(np.prod(self.trace.block_shape))
        if number >= threads:
            why = f"does not exist: the block has {threads} threads"
        elif not read.mask >> read.lane & 1:
            why = f"is not in the mask {read.mask:#x}"
        else:
            why = "has finished"
        message = (
            f"{self.thread_called(read.thread)} of {self.block_called(read.block)} takes the value of lane "
            f"{read.lane} by {read.operation}, and that lane {why}; the value is garbage, and the results "
            "depend on it"
        )
        yield Clue(
            Finding("absent lane", message, **self.who(read)), frozenset({(read.block, read.interval)})
        )


def _lanes(threads):
    return describe_lanes(thread % WARP for thread in threads)
