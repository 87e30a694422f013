"""The checks of notebook 24, ``24_many_gpus``: the exercises and their files.

1. `share_of`: share_of.py
2. `combined_gradient`: combined_gradient.py
3. `ring_all_reduce`: ring_all_reduce.py
4. `ring_seconds`: ring_seconds.py
"""

from cnn_course.chapters.many_gpus.exercises.combined_gradient import combined_gradient
from cnn_course.chapters.many_gpus.exercises.ring_all_reduce import ring_all_reduce
from cnn_course.chapters.many_gpus.exercises.ring_seconds import ring_seconds
from cnn_course.chapters.many_gpus.exercises.share_of import share_of

__all__ = ["combined_gradient", "ring_all_reduce", "ring_seconds", "share_of"]
