"""The checks of notebook 05, ``05_pooling_and_softmax``: the exercises and their files.

1. `max_pool_kernel`: max_pool_kernel.py
2. `softmax_kernel`: softmax_kernel.py
"""

from cnn_course.chapters.pooling_and_softmax.exercises.max_pool_kernel import max_pool_kernel
from cnn_course.chapters.pooling_and_softmax.exercises.softmax_kernel import softmax_kernel

__all__ = ["max_pool_kernel", "softmax_kernel"]
