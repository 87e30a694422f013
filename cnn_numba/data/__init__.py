"""The data sets as plain arrays, their original files, and pictures converted to MNIST's format."""

from cnn_numba.data.datasets import (
    DATASETS as DATASETS,
    Dataset as Dataset,
    batches as batches,
    classes as classes,
    image_shape as image_shape,
    load as load,
    normalisation as normalisation,
)
from cnn_numba.data.digits import prepare_digit as prepare_digit, prepare_photo as prepare_photo
from cnn_numba.data.sources import DataError as DataError
