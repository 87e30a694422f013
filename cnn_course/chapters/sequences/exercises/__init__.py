"""The checks of notebook 22, ``22_sequences``: the exercises and their files.

1. `lstm_cell_kernel`: lstm_cell_kernel.py
2. `last_states`: last_states.py
3. `lstm_cell_backward_kernel`: lstm_cell_backward_kernel.py
4. `backward_through_time`: backward_through_time.py
"""

from cnn_course.chapters.sequences.exercises.backward_through_time import backward_through_time
from cnn_course.chapters.sequences.exercises.last_states import last_states
from cnn_course.chapters.sequences.exercises.lstm_cell_backward_kernel import lstm_cell_backward_kernel
from cnn_course.chapters.sequences.exercises.lstm_cell_kernel import lstm_cell_kernel

__all__ = ["backward_through_time", "last_states", "lstm_cell_backward_kernel", "lstm_cell_kernel"]
