"""The checks of notebook 08, ``08_backward_kernels``: a file for each exercise."""

from cnn_course.chapters.backward_kernels.exercises.bias_gradient_kernel import bias_gradient_kernel
from cnn_course.chapters.backward_kernels.exercises.conv2d_backward_input_kernel import (
    conv2d_backward_input_kernel,
)
from cnn_course.chapters.backward_kernels.exercises.conv2d_backward_weight_kernel import (
    conv2d_backward_weight_kernel,
)
from cnn_course.chapters.backward_kernels.exercises.cross_entropy_kernel import cross_entropy_kernel
from cnn_course.chapters.backward_kernels.exercises.dense_backward_input_kernel import (
    dense_backward_input_kernel,
)
from cnn_course.chapters.backward_kernels.exercises.dense_backward_weight_kernel import (
    dense_backward_weight_kernel,
)
from cnn_course.chapters.backward_kernels.exercises.max_pool_backward_kernel import max_pool_backward_kernel
from cnn_course.chapters.backward_kernels.exercises.relu_backward_kernel import relu_backward_kernel

__all__ = [
    "bias_gradient_kernel",
    "conv2d_backward_input_kernel",
    "conv2d_backward_weight_kernel",
    "cross_entropy_kernel",
    "dense_backward_input_kernel",
    "dense_backward_weight_kernel",
    "max_pool_backward_kernel",
    "relu_backward_kernel",
]
