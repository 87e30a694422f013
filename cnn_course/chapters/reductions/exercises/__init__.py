"""The checks of notebook 12, ``12_reductions``: the exercises and their files.

1. `block_sums_kernel`: sums.py
2. `row_max_kernel`: sums.py
3. `scan_kernel`: scan.py
4. `compact_kernel`: compaction.py
"""

from cnn_course.chapters.reductions.exercises.compaction import compact_kernel
from cnn_course.chapters.reductions.exercises.scan import scan_kernel
from cnn_course.chapters.reductions.exercises.sums import block_sums_kernel, row_max_kernel

__all__ = ["block_sums_kernel", "compact_kernel", "row_max_kernel", "scan_kernel"]
