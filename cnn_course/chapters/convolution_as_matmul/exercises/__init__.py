"""The checks of notebook 14, ``14_convolution_as_matmul``."""

from cnn_course.chapters.convolution_as_matmul.exercises.columns import (
    columns_of,
    conv_implicit_kernel,
    im2col_kernel,
)
from cnn_course.chapters.convolution_as_matmul.exercises.products import matmul_1x4_kernel, split_kernel
from cnn_course.chapters.convolution_as_matmul.open_problem import beat_conv2d_forward

__all__ = [
    "beat_conv2d_forward",
    "columns_of",
    "conv_implicit_kernel",
    "im2col_kernel",
    "matmul_1x4_kernel",
    "split_kernel",
]
