"""The checks of notebook 11, ``11_shared_memory_and_tiling``: the exercises and their files.

1. `smooth_kernel`: signals.py
2. `smooth_any_kernel`: signals.py
3. `conv_channels_kernel`: channels.py
4. `conv_strided_kernel`: strided.py
5. `turn_kernel`: turn.py
6. `conv_spread_kernel`: strided.py
"""

from cnn_course.chapters.shared_memory_and_tiling.exercises.channels import conv_channels_kernel
from cnn_course.chapters.shared_memory_and_tiling.exercises.signals import smooth_any_kernel, smooth_kernel
from cnn_course.chapters.shared_memory_and_tiling.exercises.strided import (
    conv_spread_kernel,
    conv_strided_kernel,
)
from cnn_course.chapters.shared_memory_and_tiling.exercises.turn import turn_kernel

__all__ = [
    "conv_channels_kernel",
    "conv_spread_kernel",
    "conv_strided_kernel",
    "smooth_any_kernel",
    "smooth_kernel",
    "turn_kernel",
]
