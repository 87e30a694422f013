"""The trained networks of the package; tests/course/attention/test_notebook.py measures the one for text."""

import numpy as np

from cnn_numba import evaluate, load, load_model
from cnn_numba.pretrained import MNIST_CNN, TEXT_TRANSFORMER, text_transformer


def test_the_network_for_digits_reads_the_test_set():
    mnist, network = load(), load_model(MNIST_CNN, batch_size=100)
    _, accuracy = evaluate(network, mnist.test_images[:500], mnist.test_labels[:500], mnist.mean, mnist.std)
    assert accuracy > 0.98


def test_the_network_for_text_has_the_weights_of_its_file():
    with np.load(TEXT_TRANSFORMER) as file:
        np.testing.assert_array_equal(text_transformer().parameters, file["parameters"].astype(np.float32))
