"""The data sets as plain arrays, their original files, and pictures made into what MNIST holds."""

from typing import TYPE_CHECKING

from cnn_numba.data.datasets import (
    DATASETS as DATASETS,
    Dataset as Dataset,
    batches as batches,
    classes as classes,
    image_shape as image_shape,
    load as load,
    normalisation as normalisation,
)
from cnn_numba.data.sources import DataError as DataError

if TYPE_CHECKING:
    from cnn_numba.data.digits import prepare_digit as prepare_digit, prepare_photo as prepare_photo


def __getattr__(name):
    """Import what needs Pillow and SciPy when it is asked for: nothing else here needs them."""
    if name in ("prepare_digit", "prepare_photo"):
        from cnn_numba.data import digits

        return getattr(digits, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
