"""Callbacks: what may be done around the steps of a training run, and when."""

from collections.abc import Callable, Sequence
from typing import Any


class Callback:
    """Something to do around the steps of a training run; a class overrides the moments that concern it.

    Each method gets the training run, a `train.run.Run`. What has to be undone, whatever ends the run, is
    put on ``run.exits``.
    """

    def prepare(self, run: Any) -> None:
        """Before anything is read: check, and lock."""

    def begin(self, run: Any) -> None:
        """Before the first step of this process; the first callbacks have read what was saved."""

    def epoch_begin(self, run: Any) -> None:
        """Before the first step of an epoch, or of what is left of it."""

    def step_begin(self, run: Any) -> None:
        """Before a step."""

    def step_end(self, run: Any) -> None:
        """After a step, of ``run.count`` samples. Setting ``run.stop`` interrupts training here."""

    def interrupted(self, run: Any) -> None:
        """After the last step of a training run that was interrupted."""

    def epoch_trained(self, run: Any) -> None:
        """After the steps of an epoch, before the model is measured."""

    def epoch_measured(self, run: Any) -> None:
        """When the epoch's line of the history is in ``run.entry``; what is raised here keeps it unsaved."""

    def epoch_end(self, run: Any) -> None:
        """When the epoch is in the history, and the run stands at the beginning of the next."""

    def end(self, run: Any) -> None:
        """After the last epoch."""


EVENTS = tuple(name for name in vars(Callback) if not name.startswith("_"))


class Callbacks:
    """Calls the callbacks of a training run, in their order: ``callbacks("step_end")``."""

    def __init__(self, run: Any, callbacks: Sequence[Callback]) -> None:
        self.run = run
        # Only what is overridden: a step on a GPU takes less time than twenty calls of nothing may.
        self.methods = {
            event: [
                getattr(each, event)
                for each in callbacks
                if getattr(type(each), event) is not getattr(Callback, event)
            ]
            for event in EVENTS
        }

    def __call__(self, event: str) -> None:
        """Call the method of this name of each callback."""
        for method in self.methods[event]:
            method(self.run)


class Untimed(Callback):
    """Notes no times. `beyond.workers.timeline.Timeline` notes them."""

    path = None  #: Where they are written
    recording = False  #: Whether the phases of this step are noted; on the GPU each is waited for then

    def note(self, what: str) -> None:
        """Note that a phase of a step, begun when the one before it ended, is over."""

    def skip(self) -> None:
        """Let the next phase begin only now."""

    def spanning(self, what: str) -> Callable[[], None] | None:
        """Return what notes the end of something beside the phases that begins now; None notes nothing."""
        return None
