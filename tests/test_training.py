import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from cnn_numba import device
from cnn_numba.bench import pytorch_twin
from cnn_numba.checkpoint import load_checkpoint, load_model, restore, save_checkpoint
from cnn_numba.data import Dataset, load
from cnn_numba.layers import Conv2d, CrossEntropyLoss, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.models import Sequential, mnist_cnn
from cnn_numba.ops.gather.cpu import gather_batch
from cnn_numba.optim import SGD, Adam
from cnn_numba.training import (
    HISTORY_KEYS,
    Interrupted,
    TrainingDiverged,
    evaluate,
    fit,
    plot_history,
    train_step,
)


def stripes(train=150, test=40, seed=0):
    """Dim noise of 8 x 8 with a bright row or a bright column: two classes, easily told apart."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 30, (train + test, 1, 8, 8), np.uint8)
    labels = rng.integers(0, 2, train + test).astype(np.int32)
    for image, label, line in zip(images, labels, rng.integers(0, 8, train + test), strict=True):
        image[0, line if label else slice(None), slice(None) if label else line] = 255
    return Dataset(
        "stripes", images[:train], labels[:train], images[train:], labels[train:], classes=("column", "row")
    )


def small_net(seed=0, device="cpu"):
    layers = [Conv2d(1, 8, 3), MaxPool2d(2), Flatten(), Linear(72, 16), ReLU(), Linear(16, 2)]
    return Sequential(layers, (1, 8, 8), batch_size=32, device=device, seed=seed, name="stripes_net")


def run(out=None, resume=False, epochs=3, model=None, optimizer=None, schedule="one-cycle", **options):
    model = model or small_net()
    optimizer = optimizer or Adam(model, lr=1e-2)
    options = {"progress": False, **options}
    history = fit(
        model, stripes(), optimizer, epochs=epochs, schedule=schedule, out=out, resume=resume, **options
    )
    return model, history


def without_seconds(history):
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in history]


def test_training_learns_and_records(tmp_path):
    lines, model = [], small_net()
    _, history = run(tmp_path, epochs=5, model=model, optimizer=Adam(model, lr=2e-2), log=lines.append)
    assert [entry["epoch"] for entry in history] == [1, 2, 3, 4, 5]
    assert history[-1]["test_accuracy"] > 0.95 > history[0]["train_accuracy"]
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert all(tuple(entry) == HISTORY_KEYS and entry["seconds"] > 0 for entry in history)
    assert json.loads((tmp_path / "history.json").read_text()) == history
    with open(tmp_path / "history.csv") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["test_loss"]) for row in rows] == [entry["test_loss"] for entry in history]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("checkpoint.npz", "curves.png", "history.csv", "history.json")
    ]
    assert sum(line.startswith("epoch ") for line in lines) == 5
    assert model.name == load_checkpoint(tmp_path / "checkpoint.npz").model


def test_training_repeats_bit_for_bit_and_depends_on_the_seed():
    (first, _), (again, _), (other, _) = run(seed=1), run(seed=1), run(seed=2)
    np.testing.assert_array_equal(first.parameters, again.parameters)
    assert (first.parameters != other.parameters).any()


def test_the_reference_trains_alike():
    model, history = run(epochs=1)
    reference = small_net(device="reference")
    reference.parameters[:] = small_net().parameters
    _, expected = run(epochs=1, model=reference, optimizer=Adam(reference, lr=1e-2))
    assert history[0]["train_loss"] == pytest.approx(expected[0]["train_loss"], rel=1e-4)
    np.testing.assert_allclose(model.parameters, reference.parameters, rtol=1e-2, atol=1e-4)


def test_means_over_an_epoch_count_every_image_once():
    # With a learning rate this small the model stands still: the epoch's means are those of `evaluate`.
    model = small_net()
    _, history = run(model=model, optimizer=SGD(model, lr=1e-12), epochs=1)
    data = stripes()
    loss, accuracy = evaluate(small_net(), data.train_images, data.train_labels)
    assert history[0]["train_loss"] == pytest.approx(loss, rel=1e-6)
    assert history[0]["train_accuracy"] == pytest.approx(accuracy, rel=1e-12)


def test_evaluate_equals_counting_by_hand():
    model, data = small_net(), stripes()
    images, labels = data.test_images, data.test_labels
    logits = pytorch_twin(model)(torch.from_numpy(images.astype(np.float32) / 255)).detach()
    loss, accuracy = evaluate(model, images, labels)
    assert loss == pytest.approx(
        torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels).long()).item(), rel=1e-5
    )
    assert accuracy == np.mean(logits.argmax(1).numpy() == labels)
    with pytest.raises(ValueError, match="got 0 images, 0 labels"):
        evaluate(model, images[:0], labels[:0])
    with pytest.raises(ValueError, match="got 40 images, 39 labels"):
        evaluate(model, images, labels[:39])


class Stop(Exception):
    pass


def stop_at(number, error=Stop):
    def on_step(step, loss):
        if step == number:
            raise error

    return on_step


@pytest.mark.parametrize("optimizer", [Adam, lambda model, lr: SGD(model, lr, momentum=0.9)])
def test_resuming_after_a_crash_gives_the_uninterrupted_numbers(tmp_path, optimizer):
    model = small_net()
    whole, history = run(tmp_path / "whole", model=model, optimizer=optimizer(model, 1e-2))
    model = small_net()
    with pytest.raises(Stop):
        # 150 images make 5 steps an epoch: this is in the middle of the second.
        run(tmp_path / "part", model=model, optimizer=optimizer(model, 1e-2), on_step=stop_at(8))
    model = small_net(seed=9)  # whatever the weights were, the checkpoint's count
    resumed, again = run(tmp_path / "part", resume=True, model=model, optimizer=optimizer(model, 1e-2))
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert without_seconds(again) == without_seconds(history)


@pytest.mark.parametrize("number", [2, 5, 7, 15])
def test_an_interrupt_saves_between_steps_and_resumes_exactly(tmp_path, number):
    whole, history = run()
    on_step = lambda step, loss: step == number and os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
    with pytest.raises(Interrupted, match="resume to go on") as caught:
        run(tmp_path, on_step=on_step)
    assert f"epoch {(number - 1) // 5 + 1}, step {(number - 1) % 5 + 1}" in str(caught.value)
    assert caught.value.history == history_of(tmp_path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    steps = []
    resumed, again = run(tmp_path, resume=True, on_step=lambda step, loss: steps.append(step))
    assert steps == list(range(number + 1, 16))
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert without_seconds(again) == without_seconds(history)


def history_of(folder):
    return json.loads((folder / "history.json").read_text())


def test_resuming_a_finished_training_changes_nothing(tmp_path):
    model, history = run(tmp_path)
    before = (tmp_path / "checkpoint.npz").read_bytes()
    resumed, again = run(tmp_path, resume=True, model=small_net(seed=5))
    assert again == history
    np.testing.assert_array_equal(resumed.parameters, model.parameters)
    assert (tmp_path / "checkpoint.npz").read_bytes() == before


def test_a_constant_schedule_may_be_prolonged(tmp_path):
    whole, history = run(epochs=3, schedule="constant")
    run(tmp_path, epochs=2, schedule="constant")
    resumed, again = run(tmp_path, resume=True, epochs=3, schedule="constant")
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert without_seconds(again) == without_seconds(history)


def test_another_recipe_is_refused(tmp_path):
    run(tmp_path, epochs=1)
    model = small_net()
    with pytest.raises(ValueError, match=r"lr 0\.01, now 0\.02"):
        run(tmp_path, resume=True, epochs=1, model=model, optimizer=Adam(model, lr=2e-2))
    with pytest.raises(ValueError, match="epochs 1, now 2"):
        run(tmp_path, resume=True, epochs=2)
    with pytest.raises(ValueError, match=r"nothing to resume from.*nowhere"):
        run(tmp_path / "nowhere", resume=True)
    with pytest.raises(ValueError, match="no folder was given"):
        run(resume=True)
    save_checkpoint(tmp_path / "checkpoint.npz", small_net())
    with pytest.raises(ValueError, match="no training to resume"):
        run(tmp_path, resume=True, epochs=1)


@pytest.mark.parametrize("progress", [False, True])
def test_a_diverging_loss_stops_with_step_rate_and_layer(tmp_path, progress, capsys):
    model = small_net()
    model.layers[3].weight[0, 0] = np.inf
    with pytest.raises(TrainingDiverged, match=r"epoch 1, step 1, learning rate 0\.0004.*output of linear1"):
        run(tmp_path, model=model, progress=progress)
    assert list(tmp_path.iterdir()) == []
    model = small_net()
    with pytest.raises(TrainingDiverged, match=r"learning rate 1e\+30.*output of linear1"):
        run(tmp_path, model=model, optimizer=SGD(model, lr=1e30), schedule="constant", progress=progress)


def test_the_last_good_checkpoint_outlives_a_divergence(tmp_path):
    good = small_net()

    def poison(step, loss):
        if step == 7:
            good.layers[0].weight[:] = np.nan

    with pytest.raises(TrainingDiverged, match=r"epoch 2, step 3.*output of conv1"):
        run(tmp_path, model=good, on_step=poison)
    checkpoint = load_checkpoint(tmp_path / "checkpoint.npz")
    assert checkpoint.progress["epoch"] == 1
    assert np.isfinite(checkpoint.parameters).all()


def test_a_model_ruined_by_the_last_step_of_an_epoch_is_not_saved(tmp_path):
    model = small_net()

    def poison(step, loss):
        if step == 10:  # the last of the second epoch
            model.layers[3].weight[:] = np.inf

    with pytest.raises(TrainingDiverged, match=r"epoch 2, step 5, learning rate .*output of linear1"):
        run(tmp_path, model=model, on_step=poison)
    checkpoint = load_checkpoint(tmp_path / "checkpoint.npz")
    assert checkpoint.progress["epoch"] == len(history_of(tmp_path)) == 1
    assert np.isfinite(checkpoint.parameters).all()


def test_a_kill_while_saving_leaves_the_last_good_checkpoint(tmp_path):
    script = textwrap.dedent("""
        import sys
        from cnn_numba.checkpoint import save_checkpoint
        from cnn_numba.models import mnist_cnn
        model = mnist_cnn()
        number = 0
        while True:
            model.parameters[:] = number
            save_checkpoint(sys.argv[1], model, progress={"number": number})
            number += 1
            if number == 1:
                print("go", flush=True)
    """)
    path = tmp_path / "net.npz"
    for pause in (0.0, 0.003, 0.011, 0.05):
        with subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            try:
                process.wait(pause)
            except subprocess.TimeoutExpired:
                process.kill()
            process.kill()
        checkpoint = load_checkpoint(path)
        assert (checkpoint.parameters == checkpoint.progress["number"]).all()


def test_checkpoints_bring_a_model_back(tmp_path, rng):
    model = mnist_cnn(seed=4)
    save_checkpoint(tmp_path / "deep" / "net.npz", model, Adam(model), {"note": [1, 2]})
    again = load_model(tmp_path / "deep" / "net.npz", batch_size=3)
    np.testing.assert_array_equal(again.parameters, model.parameters)
    assert again.batch_size == 3
    assert load_checkpoint(tmp_path / "deep" / "net.npz").progress == {"note": [1, 2]}
    assert load_checkpoint(tmp_path / "deep" / "net.npz").optimizer["exp_avg"].shape == (225034,)


def test_files_that_are_no_checkpoints_are_named(tmp_path):
    path = tmp_path / "net.npz"
    with pytest.raises(FileNotFoundError, match=r"net\.npz"):
        load_checkpoint(path)
    path.write_text("not a checkpoint")
    with pytest.raises(ValueError, match=r"net\.npz is damaged or no checkpoint"):
        load_checkpoint(path)
    np.savez(path, something=np.zeros(3))
    with pytest.raises(ValueError, match=r"net\.npz is damaged or no checkpoint"):
        load_checkpoint(path)
    save_checkpoint(path, small_net())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"net\.npz is damaged or no checkpoint"):
        load_checkpoint(path)
    path.write_bytes(whole.replace(b'"format_version": 1', b'"format_version": 7'))
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="'stripes_net'; known are mnist_cnn"):
        load_model(path)
    with pytest.raises(ValueError, match=r"of stripes_net with .* not of mnist_cnn with 225034"):
        restore(load_checkpoint(path), mnist_cnn())


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("cnn_numba.checkpoint.FORMAT_VERSION", 2)
    save_checkpoint(tmp_path / "net.npz", small_net())
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format version 2; this version reads 1"):
        load_checkpoint(tmp_path / "net.npz")


def test_pickled_arrays_are_never_loaded(tmp_path):
    np.savez(tmp_path / "net.npz", about=np.array({"a": 1}, object), parameters=np.zeros(1))
    with pytest.raises(ValueError, match="allow_pickle"):
        load_checkpoint(tmp_path / "net.npz")


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="epochs must be at least 1, got 0"):
        run(epochs=0)
    with pytest.raises(ValueError, match=r"schedule must be one of .*, got 'linear'"):
        run(schedule="linear")
    model = mnist_cnn()
    with pytest.raises(ValueError, match=r"stripes has images of shape \(1, 8, 8\), but mnist_cnn"):
        run(model=model, optimizer=Adam(model))


def test_an_optimizer_of_another_model_is_refused():
    with pytest.raises(ValueError, match="made for another model"):
        run(optimizer=Adam(small_net()))


@pytest.mark.parametrize(("images", "labels"), [(0, 0), (150, 149), (149, 150)])
def test_images_and_labels_must_be_as_many(images, labels):
    data, model = stripes(), small_net()
    data = dataclasses.replace(
        data, train_images=data.train_images[:images], train_labels=data.train_labels[:labels]
    )
    with pytest.raises(ValueError, match=f"got {images} images, {labels} labels"):
        fit(model, data, Adam(model))


def test_counts_must_be_whole_numbers():
    with pytest.raises(TypeError, match="float"):
        run(epochs=1.5)
    with pytest.raises(TypeError, match="float"):
        run(seed=0.5)


def test_settings_may_be_numpys(tmp_path):
    model = small_net()
    optimizer = Adam(model, lr=np.float32(0.01))
    run(tmp_path, epochs=np.int64(1), seed=np.int32(3), model=model, optimizer=optimizer)
    assert load_checkpoint(tmp_path / "checkpoint.npz").progress["recipe"]["seed"] == 3


def test_a_folder_that_cannot_be_written_to_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("in the way")
    steps = []
    with pytest.raises(OSError, match="file"):
        run(tmp_path / "file", on_step=lambda step, loss: steps.append(step))
    assert steps == []


def test_resuming_elsewhere_is_refused_or_told(tmp_path, monkeypatch):
    with pytest.raises(Stop):
        run(tmp_path, on_step=stop_at(8))
    reference = small_net(device="reference")
    with pytest.raises(ValueError, match="device 'cpu', now 'reference'"):
        run(tmp_path, resume=True, model=reference, optimizer=Adam(reference, lr=1e-2))
    lines = []
    monkeypatch.setattr("cnn_numba.training.threads", lambda: 77)
    run(tmp_path, resume=True, log=lines.append)
    assert any("now on cpu with 77" in line for line in lines)
    run(tmp_path, resume=True, log=lines.append)
    assert "nothing is left to do" in lines[-1]


def test_files_are_as_readable_as_the_user_wants(tmp_path):
    before = os.umask(0o022)
    try:
        run(tmp_path, epochs=1)
    finally:
        os.umask(before)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("checkpoint.npz", "curves.png", "history.csv", "history.json"), "0o644"
    )


def test_the_progress_bar_shows_loss_and_accuracy(capsys):
    # The bar is redrawn at most every 0.1 s: slow the steps down so that it is.
    import time

    run(progress=True, epochs=1, on_step=lambda step, loss: time.sleep(0.06))
    shown = capsys.readouterr().err
    assert "epoch 1/1" in shown
    assert "images/s" in shown
    assert "loss 0." in shown
    assert "accuracy" in shown


def test_curves_are_drawn_for_a_single_epoch(tmp_path):
    history = [dict.fromkeys(HISTORY_KEYS, 0.5) | {"epoch": 1}]
    figure = plot_history(history, tmp_path / "curves.png")
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "accuracy"]
    assert (tmp_path / "curves.png").stat().st_size > 5000


@pytest.mark.parametrize("place", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_the_first_hundred_losses_on_mnist_equal_pytorchs(place):
    data = load("mnist")
    model, loss = mnist_cnn(batch_size=64, device=place, seed=0), CrossEntropyLoss(64, 10, place)
    twin, optimizer = pytorch_twin(model), Adam(model, lr=1e-3)
    twin_optimizer = torch.optim.Adam(twin.parameters(), lr=1e-3)
    order = np.random.default_rng(0).permutation(60_000)[:6400].reshape(100, 64)
    for indices in order:
        x, labels = gather_batch(data.train_images, indices, data.mean, data.std), data.train_labels[indices]
        moved = (device.to_device(x), device.to_device(labels)) if place == "gpu" else (x, labels)
        losses, _ = train_step(model, loss, optimizer, *moved)
        twin_optimizer.zero_grad()
        expected = torch.nn.functional.cross_entropy(
            twin(torch.from_numpy(x)), torch.from_numpy(labels).long()
        )
        expected.backward()
        twin_optimizer.step()
        assert device.to_host(losses).mean() == pytest.approx(expected.item(), rel=1e-4)
    assert expected.item() < 0.5
