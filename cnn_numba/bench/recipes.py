"""The trainings that are measured."""

from cnn_numba.data import load
from cnn_numba.data.text import TEXT

DEFAULT_RECIPE = {"lr": 3e-3, "schedule": "one-cycle", "epochs": 3, "batch_size": 64}


#: The source articles': nothing but Adam's default learning rate.
PLAIN_RECIPE = {"lr": 1e-3, "schedule": "constant", "epochs": 5, "batch_size": 64}


def dataset(model):
    """Return the data that one of `MODELS` is trained on."""
    return load({"cifar_convnet": "cifar10", "text_transformer": TEXT}.get(model, "mnist"), log=print)
