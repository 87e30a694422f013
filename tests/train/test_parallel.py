"""Data-parallel training: several workers reach the numbers of one, and end in one line where one is lost.

Whether the numbers are right is asked of workers that are threads: they add up in Python, and need no torch.
That torch carries the same numbers is asked of processes, and so is what becomes of lost ones.
"""

import threading

import numpy as np
import pytest

from cnn_numba import device
from cnn_numba.data import Dataset
from cnn_numba.nn.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import SGD
from cnn_numba.train.parallel import Workers

BATCH = 10
# Ten steps an epoch; the last batch has two images, so that of four workers two have none.
IMAGES = 92
STEPS = 100


class Hub:
    """Where threads that stand for workers add up; one of them runs at a time, until it has to wait."""

    def __init__(self, size):
        self.size, self.turn, self.news = size, threading.Lock(), threading.Condition()
        self.arrays, self.texts = {}, {}

    def wait(self, what, key):
        """Let the others run until all have brought something; return it by rank."""
        self.turn.release()
        with self.news:
            assert self.news.wait_for(lambda: len(what.get(key, ())) == self.size, 60), f"{key}: {what}"
        self.turn.acquire()
        return [what[key][rank] for rank in range(self.size)]

    def bring(self, what, key, rank, value):
        with self.news:
            what.setdefault(key, {})[rank] = value
            self.news.notify_all()


class ThreadLink:
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

    def broadcast(self, array):
        if self.rank:
            array.fill(0)
        self.start(array)()

    def exchange(self, text):
        self.spoken += 1
        self.hub.bring(self.hub.texts, self.spoken, self.rank, text)
        return self.hub.wait(self.hub.texts, self.spoken)


def together(size, work):
    """Return what `work(workers)` returns on each of so many workers; raise what the first of them raises."""
    hub, results, errors = Hub(size), [None] * size, []

    def run(rank):
        with hub.turn:
            try:
                results[rank] = work(Workers(rank, size, ThreadLink(hub, rank)))
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def toy_cnn(batch_size, room, seed=3, precision="float32"):
    layers = [Conv2d(1, 4, 3), MaxPool2d(2), Flatten(), Linear(64, 12), ReLU(), Linear(12, 4)]
    return Sequential(layers, (1, 10, 10), batch_size, room, seed, "toy_cnn", precision)


@pytest.fixture
def data(rng):
    def part(count):
        labels = rng.integers(0, 4, count).astype(np.int32)
        images = rng.integers(0, 128, (count, 1, 10, 10)) + 32 * labels[:, None, None, None]
        return images.astype(np.uint8), labels

    train, test = part(IMAGES), part(37)
    return Dataset("toy", *train, *test, classes=tuple("abcd"))


def training(data, workers=None, room="cpu", optimizer=SGD, network=toy_cnn, epochs=STEPS // 10, **options):
    """Train as one of the workers; return losses, parameters, optimiser's state and history."""
    workers = workers or Workers()
    # Other weights on every worker: they have to begin with the first one's.
    model = network(workers.count(BATCH), room, seed=3 + workers.rank)
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
    alone = training(data, room="reference", augment="crop-flip")
    for mine in together(size, lambda workers: training(data, workers, "reference", augment="crop-flip")):
        assert len(mine[0]) == STEPS
        assert (distance(mine, alone) < 1e-10).all()
        for ours, theirs in zip(mine[2], alone[2], strict=True):
            for key in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
                assert ours[key] == pytest.approx(theirs[key], abs=1e-10), key


@pytest.mark.parametrize("size", [2, 4])
def test_many_workers_round_as_one_does(data, size):
    exact, alone = training(data, room="reference"), training(data)
    rounding = distance(alone, exact)
    workers = together(size, lambda workers: training(data, workers))
    for mine in workers:
        # Sums of another order round differently, by as much: each is as far from the exact training.
        assert (distance(mine, exact) < 4 * rounding + 1e-6).all()
        for ours, theirs in zip(mine[1], workers[0][1], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_wrong_weight_is_seen(data, monkeypatch):
    exact, alone = training(data, room="reference"), training(data)
    # The mean of the workers' means, which a batch that does not divide makes another number.
    monkeypatch.setattr(
        "cnn_numba.train.steps.Common.weight", lambda common, count: np.full(1, 0.25, np.float32)
    )
    wrong = together(4, lambda workers: training(data, workers))[0]
    assert (distance(wrong, exact) > 100 * (4 * distance(alone, exact) + 1e-6)).all()
