"""Data-parallel training: several workers reach the numbers of one, and end with one line if one is lost.

The numbers are tested with threads as workers: they add up in Python, and need no torch.
Processes test that torch carries the same numbers, and what happens when one is lost.
"""

import dataclasses
import itertools
import json
import re
import socket
import sys
import threading
import types
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import pytest
import typer

from cnn_numba import cli, device
from cnn_numba.beyond.norm.layers import BatchNorm2d
from cnn_numba.beyond.precision.scaling import LossScaler
from cnn_numba.beyond.workers import joining, process_group, shared_part
from cnn_numba.beyond.workers.joining import environment
from cnn_numba.beyond.workers.process_group import ProcessGroup, WorkersError
from cnn_numba.beyond.workers.shared_part import SharedPart
from cnn_numba.beyond.workers.workers import Workers
from cnn_numba.data import Dataset
from cnn_numba.extras import MissingPackage
from cnn_numba.nn.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential
from cnn_numba.train.callbacks.base import Untimed
from cnn_numba.train.checkpoint import save_checkpoint
from cnn_numba.train.loop import Interrupted, TrainingDiverged, evaluate, fit
from cnn_numba.train.optim import SGD, Adam
from cnn_numba.train.phases import Phase
from cnn_numba.train.scaler import Scaler
from cnn_numba.train.single_process import SingleProcess

BATCH = 10
# Ten steps per epoch; the last batch has two images, so two of four workers have none.
IMAGES = 92
STEPS = 100


class Hub:
    """The sums of threads that stand for workers; one runs at a time, until it has to wait."""

    def __init__(self, size):
        self.size, self.turn, self.news = size, threading.Lock(), threading.Condition()
        self.arrays, self.texts, self.errors = {}, {}, []

    def wait(self, what, key):
        """Let the others run until all have brought something; return it by rank."""

        def is_over():
            return self.errors or len(what.get(key, ())) == self.size

        self.turn.release()
        try:
            with self.news:
                assert self.news.wait_for(is_over, 60), f"{key}: {what}"
        finally:
            self.turn.acquire()
        assert len(what.get(key, ())) == self.size, "another worker has failed"
        return [what[key][rank] for rank in range(self.size)]

    def bring(self, what, key, rank, value):
        with self.news:
            what.setdefault(key, {})[rank] = value
            self.news.notify_all()


class ThreadGroup:
    def __init__(self, hub, rank):
        self.hub, self.rank, self.sums, self.spoken = hub, rank, 0, 0

    def start(self, array, done=None):
        self.sums += 1
        key = self.sums
        self.hub.bring(self.hub.arrays, key, self.rank, array.copy())
        array.fill(np.nan if array.dtype.kind == "f" else 0)  # nobody's until the sum is there

        def wait():
            array[...] = sum(self.hub.wait(self.hub.arrays, key))
            if done is not None:
                done()

        return wait

    def start_on_device(self, array):
        here = device.to_host(array)
        wait = self.start(here)

        def fetch():
            wait()
            device.copy(array, here)

        return fetch

    def broadcast(self, array):
        if self.rank:
            array.fill(0)
        self.start(array)()

    def exchange(self, text):
        self.spoken += 1
        self.hub.bring(self.hub.texts, self.spoken, self.rank, text)
        return self.hub.wait(self.hub.texts, self.spoken)


def together(size, work, group=None):
    """Return the results of `work(workers)` on this many workers; raise the first error."""
    hub, results = Hub(size), [None] * size

    def run(rank):
        with hub.turn:
            try:
                results[rank] = work(Workers(rank, size, (group or ThreadGroup)(hub, rank)))
            except Exception as error:
                with hub.news:
                    hub.errors.append(error)
                    hub.news.notify_all()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in filter(None, hub.errors):
        raise error
    return results


def toy_cnn(batch_size, backend, seed=3, precision="float32"):
    layers = [Conv2d(1, 4, 3), MaxPool2d(2), Flatten(), Linear(64, 12), ReLU(), Linear(12, 4)]
    return Sequential(layers, (1, 10, 10), batch_size, backend, seed, "toy_cnn", precision)


def toy_norm(batch_size, backend, seed=3):
    """Build a network of two normalisations; the first layer of the second model is one itself."""
    layers = [BatchNorm2d(1), Conv2d(1, 4, 3), BatchNorm2d(4), ReLU(), MaxPool2d(2), Flatten(), Linear(64, 4)]
    return Sequential(layers, (1, 10, 10), batch_size, backend, seed, "toy_norm")


@pytest.fixture(autouse=True)
def several_buckets(monkeypatch):
    """Give the toy models more than one bucket."""
    monkeypatch.setattr(shared_part, "BUCKET_BYTES", 400)


@pytest.fixture
def data(rng):
    def part(count):
        labels = rng.integers(0, 4, count).astype(np.int32)
        images = rng.integers(0, 128, (count, 1, 10, 10)) + 32 * labels[:, None, None, None]
        return images.astype(np.uint8), labels

    train, test = part(IMAGES), part(37)
    return Dataset("toy", *train, *test, classes=tuple("abcd"))


def training(
    data, workers=None, backend="cpu", optimizer=SGD, network=toy_cnn, epochs=STEPS // 10, **options
):
    """Train as one of the workers; return losses, parameters, optimiser's state and history."""
    workers = workers or SingleProcess()
    # Different weights on every worker: all must start with the first one's.
    model = network(workers.count(BATCH), backend, seed=3 + workers.rank)
    settings = {"momentum": 0.9} if optimizer is SGD else {}
    optimiser, losses = optimizer(model, lr=0.02, **settings), []
    history = fit(
        *(model, data, optimiser),
        epochs=epochs,
        progress=False,
        on_step=lambda step, loss: losses.append(loss),
        workers=workers,
        **options,
    )
    arrays = model.parameters, model.buffers, *optimiser.state.values()
    return np.array(losses), [np.array(device.to_host(array), np.float64) for array in arrays], history


def distance(one, other):
    """Return the largest difference between the losses, and that between the parameters."""
    return np.array([np.abs(one[0] - other[0]).max(), np.abs(one[1][0] - other[1][0]).max()])


@pytest.mark.parametrize("size", [2, 4])
def test_many_workers_reach_the_numbers_of_one_in_float64(data, size):
    # In float64 a step rounds by 1e-16 of its numbers. A hundred steps with momentum multiply that by no more
    # than a million: the training of float32 below shows a factor of a thousand.
    how = {"backend": "reference", "augment": "crop-flip", "label_smoothing": 0.1}
    alone = training(data, **how)
    for mine in together(size, lambda workers: training(data, workers, **how)):
        assert len(mine[0]) == STEPS
        assert (distance(mine, alone) < 1e-10).all()
        for ours, theirs in zip(mine[2], alone[2], strict=True):
            for key in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
                assert ours[key] == pytest.approx(theirs[key], abs=1e-10), key


def test_normalisation_is_by_the_statistics_of_all_workers(data):
    alone = training(data, backend="reference", network=toy_norm, epochs=3)
    for mine in together(4, lambda workers: training(data, workers, "reference", network=toy_norm, epochs=3)):
        assert (distance(mine, alone) < 1e-10).all()
        np.testing.assert_allclose(mine[1][1], alone[1][1], rtol=0, atol=1e-10)  # the running statistics


@pytest.mark.parametrize("size", [2, 4])
def test_many_workers_round_as_one_does(data, size):
    exact, alone = training(data, backend="reference"), training(data)
    rounding = distance(alone, exact)
    workers = together(size, lambda workers: training(data, workers))
    for mine in workers:
        # Sums of another order round differently, by as much: each is as far from the exact training.
        assert (distance(mine, exact) < 4 * rounding + 1e-6).all()
        for ours, theirs in zip(mine[1], workers[0][1], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_wrong_weight_is_seen(data, monkeypatch):
    exact, alone = training(data, backend="reference"), training(data)
    # The mean of the workers' means, which a batch that does not divide makes another number.
    monkeypatch.setattr(SharedPart, "share_of", lambda part, count: np.array([0.25], np.float32))
    wrong = together(4, lambda workers: training(data, workers))[0]
    assert (distance(wrong, exact) > 100 * (4 * distance(alone, exact) + 1e-6)).all()


@pytest.mark.parametrize("count", [1, 3, 37])
def test_evaluation_counts_every_image_once(data, count):
    def measure(workers):
        part = data.test_images[:count], data.test_labels[:count], data.mean, data.std
        return evaluate(toy_cnn(2, "reference"), *part, workers=workers)

    expected = measure(SingleProcess())
    for measured in together(5, measure):
        assert measured == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 6, 7, 50])
def test_shares_cover_everything_and_differ_by_at_most_one(size, count):
    shares = [Workers(rank, size).share(count) for rank in range(size)]
    assert [i for share in shares for i in range(count)[share]] == list(range(count))
    counts = [Workers(rank, size).count(count) for rank in range(size)]
    assert counts == sorted(counts, reverse=True)
    assert max(counts) - min(counts) <= 1


def test_buckets_hold_all_layers_from_last_to_first(monkeypatch):
    model = toy_cnn(4, "cpu")
    monkeypatch.setattr(shared_part, "BUCKET_BYTES", 400)
    part = SharedPart(model, Workers(0, 2), Scaler(), Untimed())
    # 12 * 4 + 4, 64 * 12 + 12 and 9 * 4 + 4 parameters
    assert part.buckets == [
        {"layers": ["linear2", "linear1"], "bytes": 832 * 4},
        {"layers": ["conv1"], "bytes": 160},
    ]
    assert part.slices == [slice(40, 872), slice(0, 40)]
    assert part.cuts == [Phase("backward", "linear1"), Phase("backward", "conv1")]
    monkeypatch.setattr(shared_part, "BUCKET_BYTES", 4)
    part = SharedPart(model, Workers(0, 2), Scaler(), Untimed())
    assert [bucket["layers"] for bucket in part.buckets] == [["linear2"], ["linear1"], ["conv1"]]


def test_a_bucket_is_reduced_during_the_backward_pass_of_earlier_layers(data):
    def trained(workers):
        begun = []

        class Noting(ThreadGroup):
            def start(self, array, done=None):
                begun.append(("start", array.size))
                return super().start(array, done)

        workers.group.__class__ = Noting
        model = toy_cnn(workers.count(BATCH), "cpu")
        for layer in model.layers:
            noted(layer, begun)
        fit(model, data, SGD(model), epochs=1, progress=False, workers=workers)
        return begun

    def noted(layer, begun):
        backward = layer.backward

        def noting(gradient):
            begun.append(layer.name)
            return backward(gradient)

        layer.backward = noting

    events = together(2, trained)[0]
    first = events.index("linear2")
    layers = "linear2", "relu1", "linear1", ("start", 832), "flatten1", "pool1", "conv1", ("start", 40)
    assert tuple(events[first : first + 8]) == layers


@pytest.mark.gpu
@pytest.mark.parametrize(("network", "optimizer"), [(toy_cnn, Adam), (toy_norm, SGD)])
def test_workers_on_the_gpu_follow_those_on_the_cpu(data, network, optimizer):
    # Not Adam for toy_norm: a bias before a normalisation has a gradient of nothing but rounding, which Adam
    # makes as large as any other.
    def trained(workers=None, backend="gpu"):
        return training(data, workers, backend, network=network, epochs=2, optimizer=optimizer)

    alone = trained(backend="cpu")
    for mine in together(2, trained):
        assert (distance(mine, alone) < 1e-4).all()


def test_a_step_that_one_worker_skips_is_skipped_by_all(data):
    def trained(workers):
        model = toy_cnn(workers.count(BATCH), "cpu")
        scaler = LossScaler(model, 2.0**16)
        if workers.rank == 1:
            poison(model, step=3)
        fit(model, data, SGD(model), epochs=1, progress=False, workers=workers, scaler=scaler)
        return scaler.skipped, scaler.scale, model.parameters.copy()

    def poison(model, step):
        backward, steps = model.backward_by_layer, itertools.count(1)

        def poisoned(gradient):
            if next(steps) == step:
                gradient[0, 0] = np.inf
            return backward(gradient)

        model.backward_by_layer = poisoned

    first, second = together(2, trained)
    assert first[:2] == second[:2] == (1, 2.0**15)
    np.testing.assert_array_equal(first[2], second[2])


def test_a_diverging_training_ends_on_all_workers_in_the_same_step(data):
    def trained(workers):
        model = toy_cnn(workers.count(BATCH), "cpu")
        with pytest.raises(TrainingDiverged) as caught:
            fit(model, data, SGD(model, lr=1e30), schedule="constant", progress=False, workers=workers)
        return str(caught.value).partition(":")[0]

    first, second = together(2, trained)
    assert first == second
    assert "became NaN or infinite at epoch 1, step 2" in first


def test_parameters_that_differ_are_named(data):
    def trained(workers):
        model = toy_cnn(workers.count(BATCH), "cpu")

        class Straying(SGD):
            def step(self, lr=None):
                super().step(lr)
                self.parameters[5] += 1e-7 * (workers.rank == 2)

        fit(model, data, Straying(model), epochs=1, progress=False, workers=workers)

    message = "worker 2 of 3 differs after epoch 1: they have computed different numbers: it has the checksum"
    with pytest.raises(WorkersError, match=message):
        together(3, trained)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": Adam}, "worker 1 of 2 differs: it has optimizer 'Adam', but 'SGD' on worker 0"),
        ({"augment": "crop"}, "it has augment 'crop', but 'none' on worker 0"),
        ({"label_smoothing": 0.1}, r"it has label_smoothing 0\.1, but 0\.0 on worker 0"),
        ({"epochs": 3}, "it has epochs 3, but 2 on worker 0"),
        ({"data": 1}, r"it has train_crc32 \d+, but \d+ on worker 0"),
    ],
)
def test_unequal_trainings_are_named(data, change, message):
    other = dataclasses.replace(data, train_images=data.train_images ^ 1)

    def trained(workers):
        options = {"epochs": 2, **(change if workers.rank else {})}
        return training(other if options.pop("data", 0) else data, workers, **options)

    with pytest.raises(WorkersError, match=message):
        together(2, trained)


def together_in_fit(data, out, epochs=2, resume=False, **options):
    """Train as two workers, one of which ends; return the message of each, by rank."""
    lines = {}

    def trained(workers):
        try:
            training(data, workers, epochs=epochs, schedule="constant", out=out, resume=resume, **options)
        except (WorkersError, OSError) as error:
            lines[workers.rank] = str(error)
        finally:
            workers.group.end()

    together(2, trained, LosingGroup)
    return lines


class LosingGroup(ThreadGroup):
    """A group that reports, like the real one, when another worker has ended."""

    def exchange(self, text):
        try:
            return super().exchange(text)
        except AssertionError:
            raise WorkersError("the other one has ended") from None

    def end(self):
        with self.hub.news:
            self.hub.errors.append(None)
            self.hub.news.notify_all()


@pytest.mark.parametrize(("before", "place"), [(0, "no checkpoint of this run"), (1, "after epoch 1")])
def test_no_worker_names_a_checkpoint_that_was_not_written(data, tmp_path, monkeypatch, before, place):
    saves = itertools.count()

    def save(*arguments):
        if next(saves) == before:
            raise OSError("File too large")
        save_checkpoint(*arguments)

    monkeypatch.setattr("cnn_numba.train.callbacks.saving.save_checkpoint", save)
    lines = together_in_fit(data, tmp_path)
    assert lines[0] == "File too large"
    assert lines[1].startswith("the other one has ended; ")
    assert place in lines[1]
    assert (tmp_path / "checkpoint.npz").exists() == (before > 0)


def test_the_error_of_a_lost_worker_names_the_step_of_the_checkpoint(data, tmp_path):
    def trained(workers, on_step, resume=False):
        model = toy_cnn(workers.count(BATCH), "cpu")
        options = {"epochs": 3, "progress": False, "out": tmp_path, "resume": resume, "on_step": on_step}
        fit(model, data, SGD(model), workers=workers, **options)

    def interrupted_and_lost(workers):
        def stop(step, loss):
            workers.asked_to_end = step == 13

        with pytest.raises(Interrupted):
            trained(workers, stop)

    def resumed_and_lost(workers):
        def fail(step, loss):
            raise WorkersError("the other one was killed")

        with pytest.raises(WorkersError) as caught:
            trained(workers, fail, resume=True)
        return str(caught.value)

    together(2, interrupted_and_lost)
    for line in together(2, resumed_and_lost):
        assert line.endswith(f"the last checkpoint is {tmp_path}/checkpoint.npz, after epoch 2, step 4")


class StalledWatch:
    """What a worker sees if the other one has been silent for five seconds; each look takes two."""

    def __init__(self):
        self.left, self.seconds = {}, 0

    def ask(self):
        pass

    def refresh(self):
        self.seconds += 2

    def silence(self, rank=None):
        return 0 if rank is None else 5


@pytest.mark.parametrize(("ends_after", "said"), [(5, "was killed"), (60, "has sent no heartbeat for 5 s")])
def test_a_worker_that_ends_slowly_is_not_reported_as_silent(monkeypatch, ends_after, said):
    """It closes its connections first, and on a stalled machine its process ends seconds after that."""
    group = ProcessGroup.__new__(ProcessGroup)
    group.rank, group.size, group.watch = 0, 2, StalledWatch()
    group.peers = {1: {"visible": True, "pid": 7, "host": "here"}}
    monkeypatch.setattr(process_group, "_runs", lambda pid: group.watch.seconds < ends_after)
    clock = types.SimpleNamespace(monotonic=lambda: group.watch.seconds, sleep=lambda seconds: None)
    monkeypatch.setattr(process_group, "time", clock)
    assert str(group._lost()).startswith(f"worker 1 of 2 {said}")


@pytest.fixture
def command_line(monkeypatch, tmp_path):
    """Return a function for `together` that runs `train` as one of the workers."""
    me = threading.local()

    @contextmanager
    def join(timeout):
        yield me.workers

    def train(workers, *options):
        me.workers = workers
        cli.app(["train", "--out", str(tmp_path / "run"), *options], standalone_mode=False)

    monkeypatch.setattr(joining, "join", join)
    return train


@pytest.mark.parametrize(
    ("rank", "option", "message"),
    [
        (0, ["--resume"], "worker 1 of 2 differs: it has resume False, but True on worker 0"),
        (1, ["--resume"], "worker 1 of 2 differs: it has resume True, but False on worker 0"),
        (1, ["--batch-size", "32"], "worker 1 of 2 differs: it has batch_size 32, but 64 on worker 0"),
    ],
)
def test_unequal_options_are_named_before_anything_else(command_line, rank, option, message):
    with pytest.raises(cli.CliError, match=message):
        together(2, lambda workers: command_line(workers, *(option if workers.rank == rank else [])))


def test_fewer_images_than_workers_raise(command_line):
    with pytest.raises(typer.BadParameter, match=r"2 workers cannot share 1 image per step\."):
        together(2, lambda workers: command_line(workers, "--batch-size", "1"))


@pytest.mark.parametrize(
    ("here", "how"),
    [
        ("2", "torchrun --nproc-per-node 2 -m cnn_numba train --resume --out OUT$"),
        (
            "1",
            r"torchrun \.\.\. -m cnn_numba train --resume --out OUT \(on each machine, with torchrun's",
        ),
    ],
)
def test_interrupted_workers_say_once_how_to_resume_and_end_at_once(
    command_line, monkeypatch, tmp_path, here, how
):
    def fit(*arguments, **options):
        raise Interrupted(types.SimpleNamespace(epoch=0, step=7, out=None, history=[]))

    def trained(workers):
        with pytest.raises(cli.CliError) as caught:
            command_line(workers)
        return caught.value

    monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
    monkeypatch.setattr("cnn_numba.train.loop.fit", fit)
    first, second = together(2, trained)
    # At once: torch aborts where a thread of its own still waits.
    assert (first.status, first.at_once, second.status, second.at_once) == (130, True, 130, True)
    assert re.match(
        "interrupted at epoch 1, step 7: " + how.replace("OUT", re.escape(str(tmp_path / "run"))), str(first)
    )
    assert str(second) == ""


def test_one_worker_under_torchrun_knows_that_it_was_restarted(monkeypatch, tmp_path):
    values = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "1"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    given = {}

    def fit(*arguments, **options):
        given.update(options)
        return [{"test_accuracy": 1.0}]

    monkeypatch.setattr("cnn_numba.train.loop.fit", fit)
    cli.app(["train", "--out", str(tmp_path)], standalone_mode=False)
    assert given["workers"].restarted
    assert given["workers"].run_id


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_workers_of_one_torchrun_report_a_wrong_argument_once(monkeypatch, capsys, rank, lines):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("LOCAL_RANK", rank)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["train", "--epochs", "0"])
    assert capsys.readouterr().err.count("\n") == lines


def test_a_training_resumes_with_another_number_of_workers(data, tmp_path):
    whole = training(data, backend="reference", epochs=4, optimizer=Adam, schedule="constant")
    lines = []
    for epochs, size in ((1, 2), (3, 3), (4, 1)):

        def trained(workers, epochs=epochs, size=size):
            options = {"epochs": epochs, "resume": size != 2, "log": lines.append}
            folder = tmp_path / f"worker{workers.rank}"
            return training(
                data, workers, "reference", optimizer=Adam, schedule="constant", out=folder, **options
            )

        results = together(size, trained) if size > 1 else [trained(SingleProcess())]
        assert not [path for path in tmp_path.iterdir() if path.name != "worker0"]
    for mine in results:
        np.testing.assert_allclose(mine[1][0], whole[1][0], rtol=0, atol=1e-10)
        assert [entry["epoch"] for entry in mine[2]] == [1, 2, 3, 4]
        assert mine[2][-1]["train_loss"] == pytest.approx(whole[2][-1]["train_loss"], abs=1e-10)
    changed = [line for line in lines if "last digits" in line]
    assert changed == [
        "It was trained by 2 workers, now by 3: the last digits will differ",
        "It was trained by 3 workers, now by 1: the last digits will differ",
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE must be a whole number, got 'two'"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK must be a whole number, got '-1'"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK must be below WORLD_SIZE, got RANK=2, WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "got RANK=0, WORLD_SIZE=0"),
        ({"WORLD_SIZE": "2"}, "RANK is not set"),
        ({"RANK": "1"}, "WORLD_SIZE is not set"),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "2"},
            "got LOCAL_RANK=3, LOCAL_WORLD_SIZE=2",
        ),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "MASTER_ADDR, .* is not set: start with"),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "here"}, "MASTER_PORT is not set"),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "70000"},
            "MASTER_PORT must lie in 1..65535, got 70000",
        ),
    ],
)
def test_a_wrong_environment_is_named_with_its_values(values, message):
    with pytest.raises(WorkersError, match=message):
        environment(values)


def test_a_worker_on_its_own_needs_no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for values in ({}, {"RANK": "0", "WORLD_SIZE": "1"}):
        with monkeypatch.context() as patch:
            for name, value in values.items():
                patch.setenv(name, value)
            with joining.join() as workers:
                assert (workers.rank, workers.size, workers.many) == (0, 1, False)
                array = np.arange(3.0)
                assert workers.all_reduce(array) is array


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    for name, value in (
        ("RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "localhost"),
        ("MASTER_PORT", "1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("cnn_numba.extras.find_spec", lambda package: None)
    with pytest.raises(MissingPackage, match="Training with 2 workers needs torch, which is not installed"):
        with joining.join():
            pass


def place(monkeypatch, rank, size, port):
    """Make this process a worker; give later tests all cores again."""
    monkeypatch.setattr(device, "share_threads", lambda processes: None)
    values = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


@pytest.fixture
def port():
    """Return a port at which nobody listens, and its socket."""
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        yield taken.getsockname()[1], taken


def test_missing_workers_are_named(monkeypatch, port):
    pytest.importorskip("torch")
    monkeypatch.setattr(process_group, "ARRIVAL", 0.5)
    port[1].close()
    place(monkeypatch, 0, 3, port[0])
    message = r"1 of 3 workers \(WORLD_SIZE=3\) arrived within 0\.5 s: missing 1, 2"
    with pytest.raises(WorkersError, match=message), joining.join(timeout=0.5):
        pass


def test_a_port_in_use_is_named_when_torch_listens(monkeypatch, port):
    """As it does for workers on several machines."""
    pytest.importorskip("torch")
    monkeypatch.setattr(process_group, "ARRIVAL", 0.5)
    monkeypatch.setattr(ProcessGroup, "_listening", lambda group: None)
    port[1].listen()
    place(monkeypatch, 0, 2, port[0])
    with pytest.raises(WorkersError, match=r"MASTER_PORT\) is in use: choose"), joining.join(timeout=0.5):
        pass


def test_a_port_in_use_and_a_silent_port_are_named(monkeypatch, port):
    pytest.importorskip("torch")
    monkeypatch.setattr(process_group, "ARRIVAL", 0.5)
    number, taken = port
    taken.listen()
    place(monkeypatch, 0, 2, number)
    message = rf"the port of localhost:{number} \(MASTER_PORT\) is in use"
    with pytest.raises(WorkersError, match=message), joining.join(timeout=0.5):
        pass
    taken.close()
    place(monkeypatch, 1, 2, number)
    with (
        pytest.raises(WorkersError, match=f"nobody answers at localhost:{number}"),
        joining.join(timeout=0.5),
    ):
        pass


def test_an_unknown_host_name_is_reported_in_time_and_only_by_us(monkeypatch, capfd):
    pytest.importorskip("torch")

    def unknown(*details):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(process_group, "ARRIVAL", 0.5)
    monkeypatch.setattr("socket.getaddrinfo", unknown)
    place(monkeypatch, 1, 2, 29500)
    monkeypatch.setenv("MASTER_ADDR", "nosuchhost.invalid")
    message = (
        "nobody answers at nosuchhost.invalid:29500, where worker 0 should be: Name or service not known$"
    )
    with pytest.raises(WorkersError, match=message), joining.join(timeout=0.5):
        pass
    assert capfd.readouterr().err == ""  # torch writes there


def test_workers_with_different_world_sizes_both_report_it(port):
    pytest.importorskip("torch")
    port[1].close()
    where = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port[0])}
    lines = {}

    def arrive(rank, size):
        try:
            ProcessGroup(environment({"RANK": str(rank), "WORLD_SIZE": str(size), **where}), 5.0)
        except WorkersError as error:
            lines[rank] = str(error)

    threads = [threading.Thread(target=arrive, args=pair, daemon=True) for pair in ((0, 2), (1, 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    message = "the workers differ: WORLD_SIZE is 2 on worker 0, but 3 on worker 1"
    assert lines == {0: message, 1: message}


def test_a_worker_that_ends_during_start_up_is_named_by_the_others(monkeypatch, port):
    torch = pytest.importorskip("torch")
    port[1].close()
    place(monkeypatch, 0, 2, port[0])

    def arrive():
        """Arrive as worker 1, and end before the group has been started."""
        store = torch.distributed.TCPStore("localhost", port[0], None, False, timedelta(seconds=60))
        store = torch.distributed.PrefixStore("cnn-numba/0", store)
        store.set("about/1", json.dumps({"host": "elsewhere", "pid": 1, "size": 2}))
        store.set("left/1", "worker 1 of 2 has ended: no GPU")

    over = threading.Event()
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *where, **how: over.wait(20))
    other = threading.Thread(target=arrive, daemon=True)
    other.start()
    with pytest.raises(WorkersError, match="worker 1 of 2 has ended: no GPU"), joining.join(timeout=30):
        pass
    over.set()
    other.join()


def test_an_error_during_start_up_reaches_the_other_workers(monkeypatch, port):
    torch = pytest.importorskip("torch")
    port[1].close()
    place(monkeypatch, 0, 2, port[0])
    notes = []

    def arrive():
        store = torch.distributed.TCPStore("localhost", port[0], None, False, timedelta(seconds=60))
        store = torch.distributed.PrefixStore("cnn-numba/0", store)
        store.set("about/1", json.dumps({"host": "elsewhere", "pid": 1, "size": 2}))
        notes.append(store.get("left/0").decode())
        store.set("left/1", "")

    def fail(group, store):
        raise OSError("no such device")

    monkeypatch.setattr(ProcessGroup, "_start_group", fail)
    other = threading.Thread(target=arrive, daemon=True)
    other.start()
    with pytest.raises(OSError, match="no such device"), joining.join(timeout=30):
        pass
    other.join(60)
    assert notes == ["worker 0 of 2 has ended: no such device"]


def test_unequal_versions_are_named(monkeypatch):
    me = threading.local()

    class NamedGroup(ThreadGroup):
        run = "monday"

        def versions(self):
            return {"Python": "3.11.9", "numba": "0.65.1" if self.rank else "0.66.0"}

        def leave(self, why):
            pass

    def joined(workers):
        me.workers = workers
        with joining.join():
            pass

    def environment_of_mine():
        values = {"RANK": str(me.workers.rank), "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
        return joining.Environment(values)

    monkeypatch.setattr(joining, "environment", environment_of_mine)
    monkeypatch.setattr(joining, "need", lambda *details: None)
    monkeypatch.setattr(joining, "ProcessGroup", lambda env, timeout: me.workers.group)
    monkeypatch.setattr(device, "share_threads", lambda processes: None)
    message = "worker 1 of 2 differs: it has numba '0.65.1', but '0.66.0' on worker 0"
    with pytest.raises(WorkersError, match=message):
        together(2, joined, NamedGroup)


def test_a_restarted_training_resumes_only_from_its_own_checkpoint(data, tmp_path):
    def trained(run, restarted, epochs=2):
        workers, lines = SingleProcess(), []
        workers.run_id, workers.restarted = run, restarted
        training(data, workers, epochs=epochs, schedule="constant", out=tmp_path, log=lines.append)
        return " ".join(lines)

    trained("monday", restarted=False)
    assert "Resuming" in trained("monday", restarted=True, epochs=3)
    assert not (tmp_path / "earlier-1").exists()
    for run, restarted in (("monday", False), ("tuesday", True)):
        lines = trained(run, restarted)
        assert "Resuming" not in lines
        assert "Moved the earlier run" in lines


@pytest.mark.gpu
@pytest.mark.parametrize(("backend", "size"), [("cpu", 1), ("gpu", 1), ("gpu", 2)])
def test_a_timeline_has_the_phases_of_three_steps(data, tmp_path, backend, size):
    file = tmp_path / "timeline.json"

    def trained(workers):
        return training(data, workers, backend, epochs=3, timeline=file)

    together(size, trained) if size > 1 else trained(SingleProcess())
    record = json.loads(file.read_text())
    assert (record["workers"], record["device"], record["model"]) == (size, backend, "toy_cnn")
    assert (record["batch_size"], record["steps"]) == (BATCH, [20, 21, 22])
    layers = ("linear2", "relu1", "linear1", "flatten1", "pool1", "conv1")
    before, after = ("gather", "forward", "loss"), ("wait", "update") if size > 1 else ("update",)
    expected = [*map(Phase, before), *(Phase("backward", layer) for layer in layers), *map(Phase, after)]
    # On a GPU the stream waits for a sum: the host does not see when it ends.
    sums = 0 if backend == "gpu" and size > 1 and device.hardware() else len(record["buckets"])
    for worker in range(size):
        for step in (20, 21, 22):
            mine = [e for e in record["events"] if (e["worker"], e["step"]) == (worker, step)]
            phases = [event for event in mine if event["kind"] != "reduce"]
            assert [Phase(event["kind"], event["layer"]) for event in phases] == expected
            assert all(a["end"] <= b["start"] for a, b in itertools.pairwise(phases))
            assert len(mine) - len(phases) == sums


def test_a_timeline_of_several_machines_raises(data, tmp_path, monkeypatch):
    names = itertools.cycle(["ada", "bob"])
    monkeypatch.setattr("socket.gethostname", lambda: next(names))
    message = "all workers on one machine, as clocks differ; got ada, bob"
    with pytest.raises(WorkersError, match=message):
        together(2, lambda workers: training(data, workers, timeline=tmp_path / "timeline.json"))


@pytest.mark.parametrize("name", ["folder", "file/timeline.json"])
def test_a_timeline_that_cannot_be_written_raises_before_training(data, tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")

    def step(*details):
        raise AssertionError("trained")

    model = toy_cnn(BATCH, "cpu")
    with pytest.raises(OSError, match=name.partition("/")[0]):
        fit(model, data, SGD(model), progress=False, on_step=step, timeline=tmp_path / name)


@pytest.mark.gpu
def test_workers_on_the_gpu_say_why_they_use_no_graphs(data):
    lines = []

    def trained(workers):
        return training(data, workers, "gpu", network=toy_norm, epochs=1, log=lines.append)

    together(2, trained)
    assert len([line for line in lines if "Batch normalisation of several workers" in line]) == 1
