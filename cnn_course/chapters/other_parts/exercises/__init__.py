"""The checks of notebook 20, ``20_other_parts``: a file for each exercise, and the open problem."""

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
