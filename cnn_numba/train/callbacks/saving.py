"""Checkpoint, history and curves in the folder of a training run, after each epoch and at an interrupt."""

from typing import Any

from cnn_numba.device import threads
from cnn_numba.train.callbacks.base import Callback
from cnn_numba.train.checkpoint import save_checkpoint
from cnn_numba.train.lock import locked
from cnn_numba.train.records import move_earlier_run, plot_history, write_history
from cnn_numba.train.resume import resume, say_where, was_restarted
from cnn_numba.train.run import Run


class Saving(Callback):
    """Resumes from a checkpoint if asked to, and writes one after each epoch and at an interrupt.

    Only the first worker reads and writes; the others wait. Without a folder nothing is written.
    """

    def prepare(self, run: Run) -> None:
        """Keep other training runs out of the folder, which must be writable, before any work is lost."""
        if run.out is not None and run.workers.first:
            run.exits.enter_context(locked(run.out))

    def begin(self, run: Run) -> None:
        """Resume from the checkpoint, if asked to."""
        resumes = run.workers.from_first(lambda: run.plan.resume or was_restarted(run))
        if resumes and run.workers.first:
            progress = resume(run)
            assert run.out is not None  # the folder of the checkpoint
            # If the process was killed right after it wrote the checkpoint, the records lack the last epoch.
            write_history(run.history, run.out)
            self._plot(run)
            say_where(run, progress)

    def interrupted(self, run: Run) -> None:
        """Save in the middle of an epoch."""
        self._save(run)
        self._plot(run)

    def epoch_end(self, run: Run) -> None:
        """Save after each epoch, and draw the curves after the last."""
        self._save(run)
        if run.epoch == run.epochs:
            self._plot(run)

    def _save(self, run):
        totals = run.stepper.totals.tolist()  # a sum over the workers, so all must take part
        if run.out is None:
            return
        if run.workers.first:
            if not run.resumed:
                move_earlier_run(run.out, run.log)
                run.resumed = True
            progress = progress_of(run, totals)
            save_checkpoint(run.checkpoint_path, run.model, run.optimizer, progress, run.scaler)
        # The other workers may refer to the checkpoint only once it is known to be saved.
        run.workers.exchange("saved")
        run.saved = run.epoch, run.step
        if run.workers.first:
            write_history(run.history, run.out)

    def _plot(self, run):
        if run.out is not None and run.history and run.workers.first:
            plot_history(run.history, run.out / "curves.png")


def progress_of(run: Run, totals: list[float]) -> dict[str, Any]:
    """Return the progress of a training run for a checkpoint, with these totals of all workers."""
    progress = {
        "run": run.workers.run_id,
        "workers": run.workers.size,
        "recipe": run.recipe,
        "epoch": run.epoch,
        "step": run.step,
        "totals": totals,
        "seconds": run.seconds,
        "generator": run.order_state,
        "history": run.history,
        "threads": threads(),
    }
    if run.first_loss is not None:
        progress["first_loss"] = run.first_loss
    return progress
