"""The checks of notebook 20, ``20_other_parts``: the exercises and their files, and the open problem.

1. `sigmoid_backward_kernel`: sigmoid_backward_kernel.py
2. `squared_error_backward_kernel`: squared_error_backward_kernel.py
3. `channel_statistics_kernel`: channel_statistics_kernel.py
4. `norm_backward_kernel`: norm_backward_kernel.py
"""

from cnn_course.chapters.other_parts.exercises.channel_statistics_kernel import channel_statistics_kernel
from cnn_course.chapters.other_parts.exercises.norm_backward_kernel import norm_backward_kernel
from cnn_course.chapters.other_parts.exercises.sigmoid_backward_kernel import sigmoid_backward_kernel
from cnn_course.chapters.other_parts.exercises.squared_error_backward_kernel import (
    squared_error_backward_kernel,
)
from cnn_course.chapters.other_parts.stuck_training import StuckTraining

__all__ = [
    "channel_statistics_kernel",
    "norm_backward_kernel",
    "sigmoid_backward_kernel",
    "squared_error_backward_kernel",
    "stuck_training",
]

stuck_training = StuckTraining()
