"""The data sets as plain arrays, their original files, and pictures converted to MNIST's format."""

from typing import TYPE_CHECKING

from cnn_numba.data.datasets import (
    DATASETS as DATASETS,
    Dataset as Dataset,
    batches as batches,
    classes as classes,
    image_shape as image_shape,
    load as load,
)
from cnn_numba.data.sources import DataError as DataError

if TYPE_CHECKING:
    from cnn_numba.data.digits import prepare_digit as prepare_digit, prepare_photo as prepare_photo


def __getattr__(name):
    """Import `digits` at first use: only it needs Pillow and SciPy, which the book's pages lack."""
    if name in ("prepare_digit", "prepare_photo"):
        from cnn_numba.data import digits

        return getattr(digits, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
