"""The trainings that are measured."""

from cnn_numba.beyond.text.data import TEXT
from cnn_numba.data import image_shape, load
from cnn_numba.nn.models import MODELS

DEFAULT_RECIPE = {"lr": 3e-3, "schedule": "one-cycle", "epochs": 3, "batch_size": 64}


#: The source articles': nothing but Adam's default learning rate.
PLAIN_RECIPE = {"lr": 1e-3, "schedule": "constant", "epochs": 5, "batch_size": 64}


def dataset(model):
    """Return the data that one of `MODELS` is measured with: the made pictures for colour."""
    shape = MODELS[model](batch_size=1).input_shape
    names = {image_shape("mnist"): "mnist", image_shape("cifar10"): "made-pictures"}
    return load(names.get(shape, TEXT), log=print)
