"""Training in the gpu room, its kernels compiled: what the cpu room computes, with and without a graph."""

import numpy as np
import pytest

from cnn_numba.data import load
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import mnist_cnn
from cnn_numba.train.optim import Adam
from cnn_numba.train.steps import steps_of

STEPS, BATCH_SIZE = 100, 32


def losses_of(place, graph=False):
    """Return the losses of the first steps of a training."""
    model = mnist_cnn(batch_size=BATCH_SIZE, device=place)
    loss = CrossEntropyLoss(BATCH_SIZE, 10, place)
    steps = steps_of(model, loss, Adam(model), load("mnist"), pytest.fail, graph)
    steps.begin(np.arange(STEPS * BATCH_SIZE, dtype=np.int64), np.full(STEPS, 1e-3))
    losses = []
    for _ in range(STEPS):
        steps.take(BATCH_SIZE)
        losses.append(float(steps.last_loss()))
    return losses


@pytest.mark.gpu
@pytest.mark.slow
def test_a_training_follows_that_of_the_cpu_room_and_its_graph_replays_the_same_bits():
    launched, replayed, expected = losses_of("gpu"), losses_of("gpu", graph=True), losses_of("cpu")
    assert replayed == launched
    np.testing.assert_allclose(launched, expected, rtol=0, atol=1e-3)
    assert np.mean(launched[-10:]) < launched[0] / 3
