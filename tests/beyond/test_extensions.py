"""The parts of training in `beyond`, one by one: loss scales, timelines, and agreement of workers."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from test_callbacks import ENTRY, a_run, after_steps
from test_step import batch
from test_training import small_net
from test_workers import together, toy_norm

from cnn_numba import LossScaler
from cnn_numba.beyond.precision.scaling import ScaleWatch
from cnn_numba.beyond.workers.agreement import Agreement, what_is_saved
from cnn_numba.beyond.workers.process_group import WorkersError
from cnn_numba.beyond.workers.timeline import Timeline
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.train.callbacks.base import Untimed
from cnn_numba.train.callbacks.divergence import TrainingDiverged
from cnn_numba.train.extensions import EXTENSIONS
from cnn_numba.train.phases import Phase
from cnn_numba.train.scaler import Scaler, scaler_for
from cnn_numba.train.single_process import SingleProcess
from cnn_numba.train.step import phases_of


def test_it_registers_itself():
    assert (EXTENSIONS["scaler"], EXTENSIONS["timeline"]) == (LossScaler, Timeline)
    model = small_net(precision="float16")
    assert type(scaler_for(model, None)) is type(scaler_for(small_net(), True)) is LossScaler


# --- Loss scaling ------------------------------------------------------------------------------------------


def test_the_loss_scale_is_recorded_and_a_collapse_ends_the_training():
    run, scaler = after_steps(a_run(), 1), SimpleNamespace(collapsed=False, scale=8.0, skipped=3)
    run.history.append(ENTRY | {"skipped_steps": 2})
    run.entry, run.remarks = dict(ENTRY), []
    ScaleWatch(scaler).epoch_measured(run)
    assert (run.entry["loss_scale"], run.entry["skipped_steps"]) == (8.0, 1)
    assert run.remarks == ["loss scale 8, 1 step skipped"]
    scaler.collapsed = True
    with pytest.raises(TrainingDiverged, match="loss scale collapsed to 8 by epoch 1, step 1"):
        ScaleWatch(scaler).step_end(run)
    run.stepper.cheap_totals = False
    ScaleWatch(scaler).step_end(run)


# --- Timelines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taken", "epochs", "steps"), [(0, 10, [20, 21, 22]), (0, 1, [3, 4, 5]), (1, 1, [3, 4, 5]), (4, 1, [5])]
)
def test_three_late_steps_or_the_last_ones_are_chosen(tmp_path, taken, epochs, steps):
    run, timeline = a_run(epochs=epochs), Timeline(tmp_path / "timeline.json")
    run.step = taken
    timeline.begin(run)
    assert list(timeline.steps) == steps


def test_phases_of_the_chosen_steps_are_written_after_their_epoch(tmp_path):
    run, timeline = a_run(epochs=1), Timeline(tmp_path / "timeline.json")
    timeline.prepare(run)
    timeline.begin(run)
    for size in run.begin_epoch():
        timeline.step_begin(run)
        timeline.note(Phase("gather"))
        end = timeline.summing(0)
        timeline.skip()
        timeline.note(Phase("backward", "linear1"))
        assert (end is None) == (not timeline.recording) == (run.step < 2)
        if end is not None:
            end()
        run.take(size)
        timeline.epoch_end(run)
        assert timeline.path.exists() == (run.step == 5)
    record = json.loads(timeline.path.read_text())
    assert (record["workers"], record["steps"], record["buckets"]) == (1, [3, 4, 5], [])
    assert min(event["start"] for event in record["events"]) == 0
    what = [
        {"kind": "gather", "layer": ""},
        {"kind": "reduce", "bucket": 0},
        {"kind": "backward", "layer": "linear1"},
    ]
    around = "worker", "step", "start", "end"
    assert [{k: e[k] for k in e if k not in around} for e in record["events"]] == what * 3


def test_no_times_are_noted_without_a_timeline():
    timeline = Untimed()
    timeline.note(Phase("gather"))
    assert (timeline.recording, timeline.path, timeline.summing(0)) == (False, None, None)


# --- Workers -----------------------------------------------------------------------------------------------


def test_workers_begin_with_the_numbers_of_the_first():
    def begun(workers):
        run = a_run()
        run.workers = workers
        run.model.parameters[:] = workers.rank
        if workers.first:
            run.epoch, run.step, run.first_loss, run.saved = 1, 2, 0.5, (1, 2)
            run.stepper.totals[:] = 7, 8
            run.generator.random()
        Agreement(workers).begin(run)
        return run

    first, second = together(2, begun)
    assert (second.epoch, second.step, second.first_loss, tuple(second.saved)) == (1, 2, 0.5, (1, 2))
    np.testing.assert_array_equal(second.model.parameters, first.model.parameters)
    np.testing.assert_array_equal(second.stepper.totals, [7, 8])
    assert second.generator.random() == first.generator.random()


def test_workers_with_other_recipes_or_numbers_are_named():
    def prepared(workers):
        Agreement(workers).prepare(a_run(epochs=2 + workers.rank))

    def measured(workers):
        run = a_run()
        run.model.parameters[0] = workers.rank
        Agreement(workers).epoch_measured(run)

    for work, message in (
        (prepared, "worker 1 of 2 differs: it has epochs 3, but 2 on worker 0"),
        (measured, "worker 1 of 2 differs after epoch 1: they have computed different numbers"),
    ):
        with pytest.raises(WorkersError, match=message):
            together(2, work)


def test_errors_of_workers_name_the_last_checkpoint(tmp_path):
    run = a_run(out=tmp_path)
    assert what_is_saved(run) == "no checkpoint of this run has been written yet"
    run.saved = 1, 0
    assert what_is_saved(run) == f"the last checkpoint is {tmp_path / 'checkpoint.npz'}, after epoch 1"
    run.saved = 1, 2

    def lost(workers):
        with run.exits:
            Agreement(workers).prepare(run)
            raise WorkersError("worker 1 was killed", "its reason")

    with pytest.raises(WorkersError, match=r"1 was killed; the last .* after epoch 2, step 2") as caught:
        together(1, lost)
    assert (caught.value.reason, caught.value.saved) == ("its reason", True)
    run.saved = None
    with pytest.raises(WorkersError, match=r"1 was killed; no checkpoint") as caught:
        together(1, lost)
    assert not caught.value.saved


def test_a_share_scales_beside_the_loss_scale():
    def gradients(scaler, share=None):
        for _ in phases_of(model, CrossEntropyLoss(32, 2), x, labels, scaler, share=share):
            pass
        return model.gradients.copy()

    model, (x, labels) = small_net(), batch()
    plain, share = gradients(Scaler()), np.array([0.25], np.float32)
    scaler = LossScaler(model, scale=8.0)
    for given, factor in (((scaler,), 8), ((Scaler(), share), 0.25), ((scaler, share), 2)):
        np.testing.assert_allclose(gradients(*given), factor * plain, rtol=1e-5, atol=1e-6)


def test_a_part_knows_its_share_and_why_there_are_no_graphs():
    def shared(workers):
        model = toy_norm(workers.count(10), "cpu")
        part = workers.part(model, Scaler(), Untimed())
        assert part.share_of(3) is part.share_of(3)
        return part.share_of(3)[0], part.cuts, part.no_graphs

    (first, cuts, why), (second, *_) = together(2, shared)
    assert (first, second) == (np.float32(2 / 3), np.float32(1 / 3))
    assert cuts == [Phase("backward", "batch_norm1")]  # small enough for one bucket
    assert why.startswith("Batch normalisation of several workers")
    assert not SingleProcess().part(small_net(), Scaler(), Untimed()).no_graphs


def test_models_of_a_wrong_batch_size_raise():
    def sizes(workers):
        return workers.batch_size(SimpleNamespace(batch_size=4 + 2 * workers.rank))

    with pytest.raises(
        WorkersError, match=r"built for workers\.count\(batch_size\), got batches of \[4, 6\]"
    ):
        together(2, sizes)
    assert SingleProcess().batch_size(small_net()) == 32
