"""The trained networks that come with the package; the commands use them until you have trained your own.

``cnn-numba train`` made `MNIST_CNN`, without the optimiser's state; `train.checkpoint.load_model` reads it.
``cnn-numba train --model text_transformer`` made the other one.
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
