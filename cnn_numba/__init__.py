"""A CNN from looped convolution to trained network, on kernels written by hand in Numba.

Importing the package selects what kernels run on: a GPU, else the emulated one, else the simulator;
`cnn_numba.device.describe()` says which. Names are in the order the course introduces them.
"""

from typing import TYPE_CHECKING

# First: from now on Ctrl-C ends the command line without a traceback.
from cnn_numba import starting as starting

# isort: split
# Before all others: this decides what numba.cuda is, and everything below imports numba.
from cnn_numba import device

# isort: split
from cnn_numba import data
from cnn_numba.data import DATASETS, DataError, Dataset, batches, load
from cnn_numba.nn.gradcheck import compare_gradients, gradcheck, numerical_gradient
from cnn_numba.nn.layers import (
    GELU,
    AvgPool2d,
    Conv2d,
    CrossEntropyLoss,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Sigmoid,
    Tanh,
)
from cnn_numba.nn.models import MODELS, Sequential, cifar_convnet, mnist_cnn, mnist_cnn_deep
from cnn_numba.ops.conv.reference import conv_cpu, correlate_cpu
from cnn_numba.ops.gather.cpu import gather_batch, gather_labels
from cnn_numba.train.checkpoint import load_checkpoint, load_model, save_checkpoint
from cnn_numba.train.loop import evaluate, fit
from cnn_numba.train.optim import SGD, Adam
from cnn_numba.train.records import plot_history
from cnn_numba.train.step import train_step

# The core works without `beyond`.
try:
    from cnn_numba.beyond.models import cifar_convnet_bn, mnist_rows, text_transformer
    from cnn_numba.beyond.norm.layers import BatchNorm2d, LayerNorm
    from cnn_numba.beyond.precision.scaling import LossScaler
    from cnn_numba.beyond.recurrent.layers import LSTM, Rows
except ModuleNotFoundError as error:
    if error.name != "cnn_numba.beyond":
        raise

if TYPE_CHECKING:
    from cnn_numba.data.digits import prepare_digit


def __getattr__(name):
    """Import `prepare_digit` at first use: only it needs Pillow and SciPy, which the book's pages lack."""
    if name == "prepare_digit":
        return data.prepare_digit
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


__all__ = [  # noqa: RUF022 (in the order of the course)
    "device",
    # Convolution by hand, and the data
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
    # Layers and their gradients
    "Conv2d",
    "MaxPool2d",
    "AvgPool2d",
    "Flatten",
    "Linear",
    "ReLU",
    "Sigmoid",
    "Tanh",
    "GELU",
    "BatchNorm2d",
    "LayerNorm",
    "Rows",
    "LSTM",
    "CrossEntropyLoss",
    "numerical_gradient",
    "compare_gradients",
    "gradcheck",
    # Networks and their training
    "Sequential",
    "MODELS",
    "mnist_cnn",
    "mnist_cnn_deep",
    "cifar_convnet",
    "cifar_convnet_bn",
    "mnist_rows",
    "text_transformer",
    "SGD",
    "Adam",
    "LossScaler",
    "train_step",
    "fit",
    "evaluate",
    "plot_history",
    "save_checkpoint",
    "load_checkpoint",
    "load_model",
]
