"""Going on with a training run from its checkpoint."""

from typing import Any

import numpy as np

from cnn_numba.device import threads
from cnn_numba.train.checkpoint import load_checkpoint, naming, restore
from cnn_numba.train.recipe import check_recipe
from cnn_numba.train.run import Run


def was_restarted(run: Run) -> bool:
    """Return whether torchrun has restarted the workers, and the checkpoint is theirs."""
    if not run.workers.restarted or run.out is None or not run.checkpoint_path.exists():
        return False
    return load_checkpoint(run.checkpoint_path).progress.get("run") == run.workers.run_id


def resume(run: Run) -> dict[str, Any]:
    """Restore a run from the checkpoint in its folder; return the checkpoint's progress."""
    if run.out is None or not run.checkpoint_path.exists():
        where = "no folder was given" if run.out is None else f"there is no {run.checkpoint_path}"
        raise ValueError(f"nothing to resume from: {where}")
    checkpoint = load_checkpoint(run.checkpoint_path)
    progress = checkpoint.progress
    with naming(run.checkpoint_path):
        _check_progress(run, progress)
        restore(checkpoint, run.model)
        run.optimizer.load_state(checkpoint.optimizer)
        run.scaler.load_state(checkpoint.scaler)
    run.epoch, run.step, run.history = progress["epoch"], progress["step"], progress["history"]
    run.stepper.totals, run.seconds = np.array(progress["totals"], np.float64), progress["seconds"]
    run.first_loss = progress.get("first_loss")
    run.generator.bit_generator.state = progress["generator"]
    run.resumed, run.saved = True, (run.epoch, run.step)
    return progress


def _check_progress(run, progress):
    """Refuse a checkpoint without a training run, of another one, or of one past the last epoch."""
    needed = "recipe", "epoch", "step", "totals", "seconds", "generator", "history", "threads"
    missing = [key for key in needed if key not in progress]
    if missing:
        raise ValueError(f"this is a model, but no training run to resume: it lacks {', '.join(missing)}")
    check_recipe(progress["recipe"], run.recipe)
    epoch, step = progress["epoch"], progress["step"]
    if step > run.steps_per_epoch:
        raise ValueError(f"it is at step {step} of an epoch that has {run.steps_per_epoch}")
    begun = epoch + (step > 0)
    if begun > run.epochs:
        raise ValueError(f"epoch {begun} has begun: epochs must be at least {begun}, got {run.epochs}")


def say_where(run: Run, progress: dict[str, Any]) -> None:
    """Log where training goes on, and whether the last digits will differ."""
    if run.epoch >= run.epochs:
        run.log(f"{run.checkpoint_path} is of a finished training run: there is nothing left to do")
        return
    run.log(f"Resuming {run.checkpoint_path} at epoch {run.epoch + 1}, step {run.step + 1}")
    # Sums over a batch are split among the threads, so their last digits depend on the number of threads.
    before = progress["recipe"].get("device"), progress["threads"]
    now = run.model.device, threads()
    workers, workers_now = progress.get("workers", 1), run.workers.size
    stays_on_device = run.model.backend.on_device and before[0] == now[0]
    if workers != workers_now:
        by = "1 worker" if workers == 1 else f"{workers} workers"
        run.log(f"It was trained by {by}, now by {workers_now}: the last digits will differ")
    elif before != now and not stays_on_device:
        run.log(
            f"It was trained on {before[0]} with {before[1]} threads, now on {now[0]} with {now[1]}: "
            "the last digits will differ"
        )
