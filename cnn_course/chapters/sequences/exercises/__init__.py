"""The checks of notebook 22, ``22_sequences``: a file for each exercise."""

from cnn_course.chapters.sequences.exercises.backward_through_time import backward_through_time
from cnn_course.chapters.sequences.exercises.last_states import last_states
from cnn_course.chapters.sequences.exercises.lstm_cell_backward_kernel import lstm_cell_backward_kernel
from cnn_course.chapters.sequences.exercises.lstm_cell_kernel import lstm_cell_kernel

__all__ = ["backward_through_time", "last_states", "lstm_cell_backward_kernel", "lstm_cell_kernel"]
