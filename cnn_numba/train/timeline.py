"""What a worker did when, in a few steps of a training: the phases of a step, and what ran beside them."""

import json
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from cnn_numba.train.checkpoint import written_whole

#: The first step that is recorded, counted from 1: everything is compiled by then.
FIRST_STEP = 20
STEPS = 3


class Timeline:
    """The events of a few steps; without a file it records nothing.

    Parameters
    ----------
    path : path, optional
        For the JSON that the first worker writes.
    """

    def __init__(self, path: str | PathLike | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.steps = range(0)
        self.events: list[tuple] = []
        self.step: int | None = None
        self.mark = 0.0

    @property
    def recording(self) -> bool:
        """Whether a step is being recorded."""
        return self.step is not None

    def plan(self, begun: int, total: int) -> None:
        """Choose the steps to record, of a training that has taken `begun` of its `total` steps."""
        if self.path is not None:
            first = max(begun + 1, min(begun + FIRST_STEP, total - STEPS + 1))
            self.steps = range(first, min(first + STEPS, total + 1))

    def begin(self, step: int) -> None:
        """Begin a step, counted from 1."""
        self.step = step if step in self.steps else None
        self.mark = time.monotonic()

    def note(self, what: str) -> None:
        """Note that a phase, begun when the one before it ended, is over."""
        if self.step is not None:
            now = time.monotonic()
            self.events.append((self.step, what, self.mark, now))
            self.mark = now

    def skip(self) -> None:
        """Let the next phase begin only now."""
        self.mark = time.monotonic()

    def spanning(self, what: str) -> Callable[[], None] | None:
        """Return what notes the end of something that begins now, beside the phases."""
        if self.step is None:
            return None
        step, begun = self.step, time.monotonic()
        return lambda: self.events.append((step, what, begun, time.monotonic()))

    def done(self, step: int) -> bool:
        """Whether the last step to be recorded was this one."""
        return bool(self.steps) and step == self.steps[-1]

    def write(self, everyone: list[list], about: dict[str, Any]) -> None:
        """Write the events of all workers, in seconds from the first one on."""
        assert self.path is not None  # nothing is recorded without
        begun = min(event[2] for events in everyone for event in events)
        events = [
            {"worker": worker, "step": step, "what": what, "start": start - begun, "end": end - begun}
            for worker, events in enumerate(everyone)
            for step, what, start, end in sorted(events, key=lambda event: event[2])
        ]
        with written_whole(self.path) as file:
            file.write((json.dumps(about | {"events": events}, indent=1) + "\n").encode())
