"""The checks of notebook 15, ``15_launches_and_graphs``: a file for each exercise."""

from cnn_course.chapters.launches_and_graphs.exercises.add_in_streams import add_in_streams
from cnn_course.chapters.launches_and_graphs.exercises.blocks_per_sm import blocks_per_sm
from cnn_course.chapters.launches_and_graphs.exercises.bus_bytes import bus_bytes
from cnn_course.chapters.launches_and_graphs.exercises.capturable_step import capturable_step
from cnn_course.chapters.launches_and_graphs.exercises.scale_shift_relu_kernel import scale_shift_relu_kernel

__all__ = ["add_in_streams", "blocks_per_sm", "bus_bytes", "capturable_step", "scale_shift_relu_kernel"]
