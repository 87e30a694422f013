"""The checks of notebook 14, ``14_convolution_as_matmul``: the exercises and their files.

1. `matmul_1x4_kernel`: products.py
2. `split_kernel`: products.py
3. `im2col_kernel`: columns.py
4. `conv_implicit_kernel`: columns.py
"""

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
