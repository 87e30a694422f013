"""The checks of notebook 09, ``09_mnist_cnn``: the exercises and their files.

1. `momentum_kernel`: momentum_kernel.py
2. `adam_step`: adam_step.py
3. `adam_kernel`: adam_kernel.py
"""

from cnn_course.chapters.mnist_cnn.exercises.adam_kernel import adam_kernel
from cnn_course.chapters.mnist_cnn.exercises.adam_step import adam_step
from cnn_course.chapters.mnist_cnn.exercises.momentum_kernel import momentum_kernel

__all__ = ["adam_kernel", "adam_step", "momentum_kernel"]
