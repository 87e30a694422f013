"""The checks of notebook 19, ``19_repairing_a_program``: the exercises and their files.

1. `pool_maps_kernel`: pool_maps_kernel.py
2. `softmax_kernel`: softmax_kernel.py
3. `edge_maps`: edge_maps.py
4. `is_softmax`: is_softmax.py
"""

from cnn_course.chapters.repairing_a_program.exercises.edge_maps import edge_maps
from cnn_course.chapters.repairing_a_program.exercises.is_softmax import is_softmax
from cnn_course.chapters.repairing_a_program.exercises.pool_maps_kernel import pool_maps_kernel
from cnn_course.chapters.repairing_a_program.exercises.softmax_kernel import softmax_kernel

__all__ = ["edge_maps", "is_softmax", "pool_maps_kernel", "softmax_kernel"]
