"""The checks of notebook 16, ``16_mixed_precision``: the exercises and their files.

1. `decode_float16`: formats.py
2. `stochastic_kernel`: rounding.py
3. `conv_half_kernel`: storage.py
4. `unscale_kernel`: scaling.py
"""

from cnn_course.chapters.mixed_precision.exercises.formats import decode_float16
from cnn_course.chapters.mixed_precision.exercises.rounding import stochastic_kernel
from cnn_course.chapters.mixed_precision.exercises.scaling import unscale_kernel
from cnn_course.chapters.mixed_precision.exercises.storage import conv_half_kernel

__all__ = ["conv_half_kernel", "decode_float16", "stochastic_kernel", "unscale_kernel"]
