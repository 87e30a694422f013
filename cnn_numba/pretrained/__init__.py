"""The trained networks that come with the package; the commands use them until you have trained your own.

They are checkpoints without the state of an optimiser; `train.checkpoint.load_model` reads them. The command
``cnn-numba train`` made `MNIST_CNN`, and ``cnn-numba train --model text_transformer`` the other one.
"""

from pathlib import Path

from cnn_numba.nn.models import Sequential
from cnn_numba.train.checkpoint import load_model

MNIST_CNN = Path(__file__).with_name("mnist_cnn.npz")
TEXT_TRANSFORMER = Path(__file__).with_name("text_transformer.npz")


def text_transformer(batch_size: int = 1) -> Sequential:
    """Return the trained `text_transformer`; its file has the weights in float16.

    Examples
    --------
    >>> text_transformer().name
    'text_transformer'
    """
    return load_model(TEXT_TRANSFORMER, batch_size)
