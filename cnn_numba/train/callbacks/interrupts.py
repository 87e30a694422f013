"""Ctrl-C: training ends after the current step, and is saved."""

import signal
import threading
import time

from cnn_numba.train.callbacks.base import Callback
from cnn_numba.train.run import Run

#: Seconds within which the terminal and torchrun pass on the same Ctrl-C.
SAME_SIGNAL = 3.0


class Interrupted(KeyboardInterrupt):
    """Training was interrupted between two steps, and saved; `history` has the finished epochs."""

    def __init__(self, run: Run) -> None:
        kept = "" if run.out is None else f"; saved in {run.out}, resume to go on"
        super().__init__(f"interrupted at epoch {run.epoch + 1}, step {run.step}{kept}")
        self.history = run.history


class Interrupts(Callback):
    """Stops training after the current step at Ctrl-C, and at once at a second one.

    Each of several workers gets Ctrl-C from the terminal and from torchrun: two within `SAME_SIGNAL` are one.
    """

    def __init__(self) -> None:
        self.times: list[float] = []

    def begin(self, run: Run) -> None:
        """Handle Ctrl-C until training ends."""
        if threading.current_thread() is not threading.main_thread():
            return  # Python delivers signals to the main thread only

        def note(number, frame):
            self.times.append(time.monotonic())
            if self.times[-1] - self.times[0] > SAME_SIGNAL:
                raise KeyboardInterrupt
            if not run.workers.many:
                signal.signal(signal.SIGINT, before)

        before = signal.signal(signal.SIGINT, note)
        run.exits.callback(signal.signal, signal.SIGINT, before)

    def _noted(self, run):
        return bool(self.times) or run.workers.asked_to_end

    def step_begin(self, run: Run) -> None:
        """Ask the other workers to stop after the same step."""
        run.stop_asked = run.workers.many and self._noted(run)

    def step_end(self, run: Run) -> None:
        """Stop if this or another worker asked to."""
        run.stop = run.stepper.stop if run.workers.many else self._noted(run)
