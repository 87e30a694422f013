"""Each callback alone, around a training run without steps."""

import errno
import json
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from test_training import small_net, stripes

from cnn_numba.train.callbacks.base import Untimed
from cnn_numba.train.callbacks.divergence import Divergence, TrainingDiverged, first_not_finite
from cnn_numba.train.callbacks.interrupts import Interrupted, Interrupts
from cnn_numba.train.callbacks.log import Log, Warned
from cnn_numba.train.callbacks.progress import OnStep, Progress
from cnn_numba.train.callbacks.saving import Saving
from cnn_numba.train.checkpoint import load_checkpoint
from cnn_numba.train.checkpoint_contents import HISTORY_KEYS
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import SCHEDULES, Adam
from cnn_numba.train.recipe import Plan
from cnn_numba.train.run import Run
from cnn_numba.train.single_process import SINGLE, SingleProcess

ENTRY = dict.fromkeys(HISTORY_KEYS, 0.5) | {"epoch": 1, "seconds": 2.0}


def a_run(lines=None, out=None, resume=False, epochs=3, workers=SINGLE):
    """Return a training run of five steps per epoch, before its first step."""
    model = small_net()
    plan = Plan(epochs, "constant", 0, "none", 0.0, True, out, resume)
    log = None if lines is None else lines.append
    return Run(model, stripes(), Adam(model, lr=1e-2), plan, workers, None, Untimed(), log)


def after_steps(run, count):
    """Take the first steps of an epoch."""
    for size in run.begin_epoch()[:count]:
        run.take(size)
    return run


# --- The run -----------------------------------------------------------------------------------------------


def test_each_step_left_of_an_epoch_gets_its_own_rate():
    run, given = a_run(), []
    run.plan = run.plan._replace(schedule="cosine")
    run.epoch, run.step = 1, 2
    run.stepper = SimpleNamespace(begin=lambda order, lrs, epoch: given.extend(lrs))
    run.begin_epoch()
    assert given == [SCHEDULES["cosine"](1e-2, step, 15) for step in (7, 8, 9)]


# --- Divergence --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["step_end", "epoch_trained"])
def test_a_nan_loss_is_a_divergence(event):
    run = after_steps(a_run(), 2)
    getattr(Divergence(), event)(run)
    run.stepper.totals[0] = np.nan
    with pytest.raises(
        TrainingDiverged, match=r"at epoch 1, step 2, learning rate 0\.01: the logits are .*such as 0\.001$"
    ):
        getattr(Divergence(), event)(run)


def test_steps_are_not_checked_if_totals_are_expensive():
    run = after_steps(a_run(), 1)
    run.stepper.cheap_totals, run.stepper.totals[0] = False, np.inf
    Divergence().step_end(run)
    with pytest.raises(
        TrainingDiverged,
        match=r"in epoch 1; on the GPU it is checked once per epoch: try a smaller .* begins$",
    ):
        Divergence().epoch_trained(run)


def test_a_nan_in_test_loss_or_parameters_is_a_divergence():
    run = after_steps(a_run(), 1)
    run.entry = dict(ENTRY)
    Divergence().epoch_measured(run)
    run.entry["test_loss"] = np.nan
    with pytest.raises(TrainingDiverged, match="the loss became NaN"):
        Divergence().epoch_measured(run)
    run.optimizer.state["exp_avg"][3] = np.inf
    with pytest.raises(
        TrainingDiverged, match=r"the parameters became NaN or infinite at .*, step 1: try a smaller "
    ):
        Divergence().interrupted(run)


def test_the_first_layer_with_a_nan_is_named():
    run = after_steps(a_run(), 1)
    assert first_not_finite(run.model) is None
    run.model.every_layer[3].output[0, 0] = np.nan
    assert first_not_finite(run.model) == 3


# --- Interrupts --------------------------------------------------------------------------------------------


def test_ctrl_c_is_handled_after_the_step():
    run, interrupts = after_steps(a_run(out="runs"), 2), Interrupts()
    with run.exits:
        interrupts.begin(run)
        interrupts.step_end(run)
        assert not run.stop
        os.kill(os.getpid(), signal.SIGINT)
        interrupts.step_end(run)
        assert run.stop
        with pytest.raises(KeyboardInterrupt):  # the second one is Python's
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    error = Interrupted(run)
    assert str(error) == "interrupted at epoch 1, step 2; saved in runs, resume to go on"
    assert error.history == []


def test_one_worker_asks_and_all_stop_after_the_same_step():
    class Two(SingleProcess):
        size = 2

    run, interrupts = a_run(), Interrupts()
    run.workers = Two()
    for asked, stop in ((False, False), (True, False), (True, True)):
        run.workers.asked_to_end, run.stepper.stop = asked, stop
        interrupts.step_begin(run)
        interrupts.step_end(run)
        assert (run.stop_asked, run.stop) == (asked, stop)


# --- What is shown and said --------------------------------------------------------------------------------


def test_the_bar_is_closed_whatever_ends_the_training(capsys):
    run, progress = a_run(), Progress()
    with run.exits:
        progress.begin(run)
        progress.epoch_begin(run)
        after_steps(run, 1)
        progress.step_end(run)
        bar = progress.bar
        assert (bar.n, bar.total, bar.disable) == (32, 150, False)
    assert bar.disable  # what closing does
    assert "epoch 1/3" in capsys.readouterr().err


def test_a_function_gets_step_and_loss():
    seen = []
    run = after_steps(a_run(), 3)
    run.epoch = 2
    OnStep(lambda *values: seen.append(values)).step_end(run)
    assert seen == [(13, run.stepper.last_loss())]


def test_the_log_warns_of_few_steps_and_gives_each_epoch_a_line():
    lines = []
    run, log = a_run(lines), Log()
    with run.exits:
        log.begin(run)
        after_steps(run, 1)
        log.step_end(run)
        assert run.first_loss == run.stepper.last_loss()
        run.entry, run.remarks = ENTRY, ["loss scale 2, 1 step skipped"]
        run.finish_epoch()
        log.epoch_end(run)
        log.end(run)
        run.first_loss = 0.4
        log.end(run)
    assert not log.timer.is_alive() or log.timer.finished.is_set()
    assert lines == [
        "warning: few steps to learn from, 15 in all: choose a batch size of at most 9, or at least 10 "
        "epochs",
        "epoch 1/3: train loss 0.5000, accuracy 50.00%; test loss 0.5000, accuracy 50.00%; 2.0 s; "
        "loss scale 2, 1 step skipped",
        "warning: the loss rose from 0.4 in the first step to 0.5 in the last epoch: try a smaller learning "
        "rate than 0.01, such as 0.001",
    ]
    assert [isinstance(line, Warned) for line in lines] == [True, False, True]


def test_a_huge_loss_is_logged_in_a_few_digits():
    lines = []
    run = a_run(lines)
    run.entry, run.remarks = ENTRY | {"train_loss": 2.87814130856847650848768e23, "test_loss": 1234.5}, []
    run.finish_epoch()
    Log().epoch_end(run)
    (line,) = lines
    assert "train loss 2.878e+23, accuracy 50.00%; test loss 1234.5000, " in line


@pytest.mark.parametrize(("resumed", "epochs"), [(True, 3), (False, 10)])
def test_resumed_and_long_trainings_give_no_warning(resumed, epochs):
    lines = []
    run = a_run(lines, epochs=epochs)
    run.resumed = resumed
    with run.exits:
        Log().begin(run)
    assert lines == []


def test_a_slow_first_step_says_that_kernels_compile_and_so_does_its_epoch(monkeypatch):
    lines = []
    monkeypatch.setattr("cnn_numba.train.callbacks.log.SLOW", 0.0)
    run, log = a_run(lines, epochs=10), Log()
    run.entry = ENTRY
    with run.exits:
        log.begin(run)
        log.timer.join(30)
        log.epoch_end(run)
        log.epoch_end(run)
    said, first, second = lines
    assert said == "Compiling kernels (once) ..."
    assert first.endswith("; 2.0 s with compilation")
    assert second.endswith("; 2.0 s")


# --- Saving ------------------------------------------------------------------------------------------------


def test_a_checkpoint_within_an_epoch_is_resumed(tmp_path):
    lines = []
    run = after_steps(a_run(lines, tmp_path), 2)
    Saving().interrupted(run)
    assert (run.saved, run.resumed) == ((0, 2), True)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.npz", "history.json", "history.csv"}
    again = a_run(lines, tmp_path, resume=True)
    with again.exits:
        Saving().prepare(again)
        assert (tmp_path / ".training").exists()
        Saving().begin(again)
    assert not (tmp_path / ".training").exists()
    assert (again.epoch, again.step, again.saved) == (0, 2, (0, 2))
    np.testing.assert_array_equal(again.model.parameters, run.model.parameters)
    np.testing.assert_array_equal(again.stepper.totals, run.stepper.totals)
    assert len(again.begin_epoch()) == 3
    assert lines == [f"Resuming {tmp_path / 'checkpoint.npz'} at epoch 1, step 3"]


def test_integer_totals_can_be_resumed(tmp_path):
    Saving().interrupted(after_steps(a_run([], tmp_path), 2))
    with np.load(tmp_path / "checkpoint.npz") as file:
        arrays = dict(file)
    about = json.loads(str(arrays["about"]))
    about["progress"]["totals"] = [3, 1]
    np.savez(tmp_path / "checkpoint.npz", **arrays | {"about": json.dumps(about)})
    again = a_run([], tmp_path, resume=True)
    with again.exits:
        Saving().prepare(again)
    after_steps(again, 1)
    assert again.stepper.totals[0] > 3


def test_the_curves_are_drawn_after_the_last_epoch(tmp_path):
    run = a_run(out=tmp_path, epochs=2)
    for epoch in (1, 2):
        run.entry = ENTRY | {"epoch": epoch}
        run.finish_epoch()
        Saving().epoch_end(run)
        assert (tmp_path / "curves.png").exists() == (epoch == 2)
        assert json.loads((tmp_path / "history.json").read_text()) == run.history
    assert load_checkpoint(run.checkpoint_path).progress["epoch"] == 2


def test_without_a_folder_nothing_is_saved_or_resumed():
    run = a_run()
    Saving().prepare(run)
    Saving().begin(run)
    Saving().epoch_end(run)
    assert run.saved is None
    with pytest.raises(ValueError, match="nothing to resume from: no folder was given"):
        Saving().begin(a_run(resume=True))


def test_after_a_restart_a_run_resumes_from_its_own_checkpoint(tmp_path):
    def begun(name):
        run = a_run(out=tmp_path, workers=SingleProcess())
        run.workers.run_id, run.workers.restarted = name, True
        Saving().begin(run)
        return run

    first = begun("monday")
    assert not first.resumed
    Saving().interrupted(after_steps(first, 1))
    assert not begun("tuesday").resumed
    assert begun("monday").step == 1


def test_only_the_first_worker_writes(tmp_path):
    class Second(SingleProcess):
        rank, size = 1, 2

        def from_first(self, function):
            return False

    run = a_run(out=tmp_path)
    run.workers = Second()
    run.stepper = SimpleNamespace(totals=np.zeros(2))
    for event in ("prepare", "begin", "epoch_end", "interrupted"):
        getattr(Saving(), event)(run)
    assert run.saved == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_fit_and_the_training_resumes_from_the_epoch_before(tmp_path, monkeypatch):
    def model_and_options():
        model = small_net()
        return (model, stripes(), Adam(model, lr=1e-2)), {
            "epochs": 3,
            "schedule": "constant",
            "progress": False,
        }

    arguments, options = model_and_options()
    whole = fit(*arguments, **options)
    parameters = arguments[0].parameters.copy()
    full = []

    def write(file):
        full.append(file)
        if len(full) > 3:  # the checkpoint, history.json and history.csv of the first epoch
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    arguments, options = model_and_options()
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", write)
        with pytest.raises(OSError, match=r"No space left on device: '.*checkpoint\.npz'"):
            fit(*arguments, out=tmp_path, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint.npz",
        "history.csv",
        "history.json",
    ]
    assert load_checkpoint(tmp_path / "checkpoint.npz").progress["epoch"] == 1
    arguments, options = model_and_options()
    history = fit(*arguments, out=tmp_path, resume=True, **options)
    assert [entry["train_loss"] for entry in history] == [entry["train_loss"] for entry in whole]
    np.testing.assert_array_equal(arguments[0].parameters, parameters)
