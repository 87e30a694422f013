"""The recipes and data of measured training runs."""

from cnn_numba.beyond.text.data import TEXT
from cnn_numba.data import image_shape, load
from cnn_numba.nn.models import MODELS
from cnn_numba.train.recipes import DEFAULT, FAST, PLAIN

RECIPES = {"default": DEFAULT, "fast": FAST, "plain": PLAIN}


def dataset(model):
    """Return the data for one of `MODELS`; colour images are the made pictures."""
    shape = MODELS[model](batch_size=1).input_shape
    names = {image_shape("mnist"): "mnist", image_shape("cifar10"): "made-pictures"}
    return load(names.get(shape, TEXT), log=print)
