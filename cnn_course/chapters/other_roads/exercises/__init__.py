"""The checks of notebook 25, ``25_other_roads``: the exercises and their files.

1. `block_sums_source`: block_sums_source.py
2. `standardise_rows`: standardise_rows.py
3. `pooling_program`: pooling_program.py
4. `tune`: tune.py
"""

from cnn_course.chapters.other_roads.exercises.block_sums_source import block_sums_source
from cnn_course.chapters.other_roads.exercises.pooling_program import pooling_program
from cnn_course.chapters.other_roads.exercises.standardise_rows import standardise_rows
from cnn_course.chapters.other_roads.exercises.tune import tune

__all__ = ["block_sums_source", "pooling_program", "standardise_rows", "tune"]
