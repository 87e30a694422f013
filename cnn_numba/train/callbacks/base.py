"""Callbacks: what `fit` itself does around the steps of a training run. Callers can't add their own."""

from collections.abc import Callable
from typing import Any

from cnn_numba.train.phases import Phase


class Callback:
    """Work of `fit` around its steps, which can't be given from outside; a subclass overrides some events.

    Each method gets the training run, a `train.run.Run`. What must be undone when the run ends, for whatever
    reason, goes onto ``run.exits``.
    """

    def prepare(self, run: Any) -> None:
        """Before anything is read: check, and lock."""

    def begin(self, run: Any) -> None:
        """Before the first step of this process; the first callbacks read the checkpoint here."""

    def epoch_begin(self, run: Any) -> None:
        """Before the first step of an epoch, or of the rest of a resumed one."""

    def step_begin(self, run: Any) -> None:
        """Before a step."""

    def step_end(self, run: Any) -> None:
        """After a step of ``run.count`` samples; setting ``run.stop`` interrupts training here."""

    def interrupted(self, run: Any) -> None:
        """After the last step of an interrupted training run."""

    def epoch_trained(self, run: Any) -> None:
        """After the steps of an epoch, before the test."""

    def epoch_measured(self, run: Any) -> None:
        """After the test, whose figures are in ``run.entry``; an error here prevents saving."""

    def epoch_end(self, run: Any) -> None:
        """After the epoch was added to the history."""

    def end(self, run: Any) -> None:
        """After the last epoch."""


class Untimed(Callback):
    """Records no times; `beyond.workers.timeline.Timeline` does."""

    path = None  #: The file they are written to
    recording = False  #: Whether the phases of this step are recorded, which waits for the GPU after each

    def note(self, phase: Phase) -> None:
        """Record that a phase is over, which began at the end of the previous one."""

    def skip(self) -> None:
        """Let the next phase begin now."""

    def summing(self, bucket: int) -> Callable[[], None] | None:
        """Record the sum of a bucket of gradients from now on; return what ends it, None for none."""
        return None
