"""The checks of notebook 12, ``12_reductions``."""

from cnn_course.chapters.reductions.exercises.counting import histogram_kernel
from cnn_course.chapters.reductions.exercises.repair import block_max_kernel
from cnn_course.chapters.reductions.exercises.softmax import warp_softmax_kernel
from cnn_course.chapters.reductions.exercises.sums import block_sums_kernel, row_max_kernel

__all__ = [
    "block_max_kernel",
    "block_sums_kernel",
    "histogram_kernel",
    "row_max_kernel",
    "warp_softmax_kernel",
]
