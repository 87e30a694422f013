"""The checks of notebook 26, ``26_frameworks_and_engines``: the exercises and their files.

1. `for_keras`: for_keras.py
2. `traffic`: traffic.py
3. `fold_batch_norm`: fold_batch_norm.py
4. `int8_dense`: int8_dense.py
"""

from cnn_course.chapters.frameworks_and_engines.exercises.fold_batch_norm import fold_batch_norm
from cnn_course.chapters.frameworks_and_engines.exercises.for_keras import for_keras
from cnn_course.chapters.frameworks_and_engines.exercises.int8_dense import int8_dense
from cnn_course.chapters.frameworks_and_engines.exercises.traffic import traffic

__all__ = ["fold_batch_norm", "for_keras", "int8_dense", "traffic"]
