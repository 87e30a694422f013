"""The checks of notebook 08, ``08_backward_kernels``: the exercises and their files.

1. `cross_entropy_kernel`: cross_entropy_kernel.py
2. `dense_backward_weight_kernel`: dense_backward_weight_kernel.py
3. `dense_backward_input_kernel`: dense_backward_input_kernel.py
4. `relu_backward_kernel`: relu_backward_kernel.py
5. `bias_gradient_kernel`: bias_gradient_kernel.py
6. `max_pool_backward_kernel`: max_pool_backward_kernel.py
7. `conv2d_backward_weight_kernel`: conv2d_backward_weight_kernel.py
8. `conv2d_backward_input_kernel`: conv2d_backward_input_kernel.py
"""

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
