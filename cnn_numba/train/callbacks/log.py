"""The lines that a training run logs: one for each epoch, slow compilation, and warnings."""

import math
import threading

from cnn_numba.train.callbacks.base import Callback
from cnn_numba.train.run import Run

#: With fewer steps a network learns little.
FEW_STEPS = 50
#: Seconds that the first step may take without a log line.
SLOW = 2.0


class Warned(str):
    """A line of the log which warns that little was learned."""


def figure(loss: float) -> str:
    """Return a loss as text: with four decimals, but a huge one in a few digits."""
    return f"{loss:.4f}" if loss < 1e6 else f"{loss:.4g}"


class Log(Callback):
    """Passes lines to ``run.log``."""

    compiling = ""  # what the seconds of the first epoch include

    def begin(self, run: Run) -> None:
        """Warn if training is too short; log that kernels compile if the first step takes long."""
        steps = run.epochs * run.steps_per_epoch
        if steps < FEW_STEPS and not run.resumed:
            batch_size = max(len(run.dataset.train_images) * run.epochs // FEW_STEPS, 1)
            epochs = math.ceil(FEW_STEPS / run.steps_per_epoch)
            how = f"choose a batch size of at most {batch_size}, or at least {epochs} epochs"
            run.log(Warned(f"warning: few steps to learn from, {steps} in all: {how}"))
        self.timer = threading.Timer(SLOW, self._say_what_takes_long, [run])
        self.timer.daemon = True
        self.timer.start()
        run.exits.callback(self.timer.cancel)

    def _say_what_takes_long(self, run):
        self.compiling = " with compilation"
        run.log("Compiling kernels (once) ...")

    def step_end(self, run: Run) -> None:
        """Keep the first loss, for comparison with the last one."""
        if run.steps_taken == 1:
            run.first_loss = run.stepper.last_loss()
        self.timer.cancel()

    def epoch_end(self, run: Run) -> None:
        """Log the figures of the epoch."""
        last = run.entry
        seconds = f"{last['seconds']:.1f} s{self.compiling}"
        run.log(
            f"epoch {run.epoch}/{run.epochs}: train loss {figure(last['train_loss'])}, "
            f"accuracy {last['train_accuracy']:.2%}; test loss {figure(last['test_loss'])}, "
            f"accuracy {last['test_accuracy']:.2%}; " + "; ".join([seconds, *run.remarks])
        )
        self.compiling = ""

    def end(self, run: Run) -> None:
        """Warn if the loss ended above where it began."""
        last = run.history[-1]["train_loss"]
        if run.first_loss is not None and last > run.first_loss:
            rise = f"from {run.first_loss:.4g} in the first step to {last:.4g} in the last epoch"
            run.log(Warned(f"warning: the loss rose {rise}: {run.optimizer.advice(diverged=False)}"))
