"""The trained networks that come with the package: what the commands answer with before you have trained one.

`train.checkpoint.load_model` reads `MNIST_CNN`, which ``cnn-numba train`` made with its default recipe; the
state of the optimiser is left out. `text_transformer` is the network of
``cnn-numba train --model text_transformer``.
"""

from pathlib import Path

import numpy as np

from cnn_numba.beyond import models
from cnn_numba.nn.models import Sequential

MNIST_CNN = Path(__file__).with_name("mnist_cnn.npz")
TEXT_TRANSFORMER = Path(__file__).with_name("text_transformer.npz")


def text_transformer(batch_size: int = 1) -> Sequential:
    """Return the trained `text_transformer`; its weights are stored as float16.

    Examples
    --------
    >>> text_transformer().name
    'text_transformer'
    """
    model = models.text_transformer(batch_size)
    with np.load(TEXT_TRANSFORMER) as file:
        model.parameters[:] = file["parameters"]
    return model
