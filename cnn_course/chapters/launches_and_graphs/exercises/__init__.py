"""The checks of notebook 15, ``15_launches_and_graphs``: the exercises and their files.

1. `add_in_streams`: add_in_streams.py
2. `centre_kernel`: centre_kernel.py
3. `capturable_step`: capturable_step.py
4. `cause_of`: cause_of.py
5. `channel_sums`: channel_sums.py
"""

from cnn_course.chapters.launches_and_graphs.exercises.add_in_streams import add_in_streams
from cnn_course.chapters.launches_and_graphs.exercises.capturable_step import capturable_step
from cnn_course.chapters.launches_and_graphs.exercises.cause_of import cause_of
from cnn_course.chapters.launches_and_graphs.exercises.centre_kernel import centre_kernel
from cnn_course.chapters.launches_and_graphs.exercises.channel_sums import channel_sums

__all__ = ["add_in_streams", "capturable_step", "cause_of", "centre_kernel", "channel_sums"]
