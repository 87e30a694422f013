"""Progress of training step by step: a bar, and the caller's function."""

from collections.abc import Callable

from cnn_numba.train.callbacks.base import Callback
from cnn_numba.train.callbacks.log import figure
from cnn_numba.train.run import Run


class Progress(Callback):
    """A bar for each epoch, with the mean loss and the accuracy so far."""

    def epoch_begin(self, run: Run) -> None:
        """Open the bar."""
        from tqdm.auto import tqdm  # slow to import

        self.bar = tqdm(
            desc=f"epoch {run.epoch + 1}/{run.epochs}",
            total=len(run.dataset.train_images),
            initial=run.step * run.batch_size,
            unit=" images",
        )
        run.exits.callback(self.bar.close)  # if training ends within the epoch

    def step_end(self, run: Run) -> None:
        """Move the bar; format the figures only when it was redrawn."""
        if self.bar.update(run.count) and run.stepper.cheap_totals:
            seen = min(run.step * run.batch_size, len(run.dataset.train_images))
            loss, accuracy = run.stepper.totals / (seen * run.model.predictions)
            self.bar.set_postfix_str(f"loss {figure(loss)}, accuracy {accuracy:.2%}", refresh=False)

    def epoch_trained(self, run: Run) -> None:
        """Close the bar."""
        self.bar.close()


class OnStep(Callback):
    """Calls ``function(step, loss)`` after each step, counted from 1 over all epochs.

    On the GPU each call waits for the loss.
    """

    def __init__(self, function: Callable[[int, float], object]) -> None:
        self.function = function

    def step_end(self, run: Run) -> None:
        """Call the function with the loss of the step."""
        self.function(run.steps_taken, run.stepper.last_loss())
