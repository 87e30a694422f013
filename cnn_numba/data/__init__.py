"""The data sets as plain arrays, their original files, and pictures made into what MNIST holds."""

from cnn_numba.data.datasets import DATASETS, Dataset, batches, classes, image_shape, load, normalisation
from cnn_numba.data.digits import prepare_digit, prepare_photo
from cnn_numba.data.sources import DataError

__all__ = [
    "DATASETS",
    "DataError",
    "Dataset",
    "batches",
    "classes",
    "image_shape",
    "load",
    "normalisation",
    "prepare_digit",
    "prepare_photo",
]
