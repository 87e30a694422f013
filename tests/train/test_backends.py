"""Training on the gpu backend, its kernels compiled, against the cpu backend, with and without a graph."""

import numpy as np
import pytest

from cnn_numba.beyond.models import mnist_rows
from cnn_numba.data import load
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import mnist_cnn
from cnn_numba.train.optim import Adam
from cnn_numba.train.step import steps_of


def losses_of(network, batch_size, count, place, graph=False):
    """Return the losses of the first training steps."""
    model = network(batch_size=batch_size, device=place)
    loss = CrossEntropyLoss(batch_size, 10, place)
    steps = steps_of(model, loss, Adam(model), load("mnist"), pytest.fail, graph)
    steps.begin(np.arange(count * batch_size, dtype=np.int64), np.full(count, 1e-3))
    losses = []
    for _ in range(count):
        steps.take(batch_size)
        losses.append(float(steps.last_loss()))
    return losses


@pytest.mark.exhaustive_unless(
    lambda network, count: network is mnist_cnn and count == 40, "the first steps of the course's network"
)
@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "batch_size", "count"), [(mnist_cnn, 32, 40), (mnist_cnn, 32, 100), (mnist_rows, 32, 100)]
)
def test_training_follows_the_cpu_backend_and_its_graph_gives_the_same_bits(network, batch_size, count):
    launched, replayed = (losses_of(network, batch_size, count, "gpu", graph) for graph in (False, True))
    expected = losses_of(network, batch_size, count, "cpu")
    assert replayed == launched
    np.testing.assert_allclose(launched, expected, rtol=0, atol=1e-3)
    assert np.mean(launched[-10:]) < launched[0] / 2
