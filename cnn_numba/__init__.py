"""A CNN from looped convolution to trained network, on kernels written by hand in Numba.

Importing the package selects Numba's GPU simulator where there is no GPU; `cnn_numba.device.describe()`
tells. The names stand in the order the course introduces them.
"""

# First of all: this decides what numba.cuda will be, and everything below imports numba.
from cnn_numba import device

# isort: split
from cnn_numba.data import DATASETS, DataError, Dataset, batches, gather_batch, gather_labels, load
from cnn_numba.digits import prepare_digit
from cnn_numba.ops.conv.reference import conv_cpu, correlate_cpu

__all__ = [  # noqa: RUF022 (in the order of the course)
    "device",
    "conv_cpu",
    "correlate_cpu",
    "DATASETS",
    "DataError",
    "Dataset",
    "load",
    "batches",
    "gather_batch",
    "gather_labels",
    "prepare_digit",
]
