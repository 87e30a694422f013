"""A timeline of a few steps of a training run: the phases of each step, and the sums beside them."""

import json
import socket
import time
from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path

from cnn_numba.beyond.workers.process_group import WorkersError
from cnn_numba.train.callbacks.base import Untimed
from cnn_numba.train.lock import created
from cnn_numba.train.phases import Phase
from cnn_numba.train.run import Run
from cnn_numba.whole_files import written_whole

#: The first recorded step, counted from 1: everything is compiled by then.
FIRST_STEP = 20
STEPS = 3


class Timeline(Untimed):
    """Records the phases of a few steps of a training run; the first worker writes them to a JSON file."""

    def __init__(self, path: str | PathLike) -> None:
        self.path = Path(path)
        self.steps = range(0)  # those to record, counted from 1 over all epochs
        self.events = []  # of each its step, its kind and layer or bucket, start and end
        self.step, self.mark = 0, 0.0

    def prepare(self, run: Run) -> None:
        """Raise an error before any work if the timeline would be wrong or can't be written."""
        hosts = sorted(set(run.workers.exchange(socket.gethostname())))
        if len(hosts) > 1:
            where = ", ".join(hosts)
            raise WorkersError(f"a timeline needs all workers on one machine, as clocks differ; got {where}")
        if run.workers.first:
            if self.path.is_dir():
                raise IsADirectoryError(f"the timeline can't be written to {self.path}: it's a folder")
            with created(self.path.parent, "the folder of timeline"):
                pass  # only to see that it can be

    def begin(self, run: Run) -> None:
        """Choose the steps to record."""
        total = run.epochs * run.steps_per_epoch
        first = max(run.steps_taken + 1, min(run.steps_taken + FIRST_STEP, total - STEPS + 1))
        self.steps = range(first, min(first + STEPS, total + 1))

    def step_begin(self, run: Run) -> None:
        """Begin a step."""
        self.step = run.steps_taken + 1
        self.recording = self.step in self.steps
        self.mark = time.monotonic()

    def epoch_end(self, run: Run) -> None:
        """Write the file when its steps have been taken."""
        if not self.events or run.steps_taken < self.steps[-1]:
            return
        everyone = run.workers.exchange(self.events)
        self.events = []
        if run.workers.first:
            about = {
                "workers": run.workers.size,
                "device": run.model.device,
                "model": run.model.name,
                "batch_size": run.batch_size,
                "steps": list(self.steps),
                "buckets": run.stepper.part.buckets,
            }
            self._write(everyone, about)

    def note(self, phase: Phase) -> None:
        """Record a phase, from the end of the one before it to now."""
        if self.recording:
            self._record(self.step, self.mark, **phase._asdict())
            self.skip()

    def skip(self) -> None:
        """Let the next phase begin now."""
        self.mark = time.monotonic()

    def summing(self, bucket: int) -> Callable[[], None] | None:
        """Return a function that records the sum of a bucket of gradients, from now to its call."""
        if not self.recording:
            return None
        return partial(self._record, self.step, time.monotonic(), kind="reduce", bucket=bucket)

    def _record(self, step, begun, **what):
        self.events.append({"step": step, **what, "start": begun, "end": time.monotonic()})

    def _write(self, everyone, about):
        """Write the events of all workers, in seconds since the first one."""
        begun = min(event["start"] for events in everyone for event in events)
        events = [
            {"worker": worker, **event, "start": event["start"] - begun, "end": event["end"] - begun}
            for worker, events in enumerate(everyone)
            for event in sorted(events, key=lambda event: event["start"])
        ]
        with written_whole(self.path) as file:
            file.write((json.dumps(about | {"events": events}, indent=1) + "\n").encode())
