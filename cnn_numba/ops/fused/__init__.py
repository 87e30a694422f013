"""Layers computed together: chains of convolutions, each with its ReLU and max pooling, and heads.

A head is the last dense layer of a classifier with its loss. `cnn_numba.nn.chains` and `cnn_numba.nn.heads`
choose the layers. On the GPU the first convolution can also gather its batch (`gpu_forward`), and Adam can
add up the gradients of convolutions (`gpu_update`).
"""

from typing import Any, NamedTuple


class Fusions(NamedTuple):
    """What a backend computes together.

    In its ``FUSIONS``: of each the modules of the operations that a fused function stands for, None if it
    can't. From `Operations.fuses`: whether it can, and its operations are these modules.
    """

    chain: Any = None  # convolutions, each with its ReLU and max pooling
    gather: Any = None  # gathering a batch with the first of them
    update: Any = None  # Adam's update with their last sums
    head: Any = None  # the last dense layers with the loss
