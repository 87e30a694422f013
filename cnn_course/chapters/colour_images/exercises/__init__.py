"""The checks of notebook 21, ``21_colour_images``: the exercises and their files.

1. `decayed_step_kernel`: decayed_step_kernel.py
2. `crop_and_flip_kernel`: crop_and_flip_kernel.py
3. `folded_convolution_kernel`: folded_convolution_kernel.py
4. `new_last_layer`: new_last_layer.py
"""

from cnn_course.chapters.colour_images.exercises.crop_and_flip_kernel import crop_and_flip_kernel
from cnn_course.chapters.colour_images.exercises.decayed_step_kernel import decayed_step_kernel
from cnn_course.chapters.colour_images.exercises.folded_convolution_kernel import (
    folded_convolution,
    folded_convolution_kernel,
)
from cnn_course.chapters.colour_images.exercises.new_last_layer import new_last_layer, your_new_last_layer

__all__ = [
    "crop_and_flip_kernel",
    "decayed_step_kernel",
    "folded_convolution",
    "folded_convolution_kernel",
    "new_last_layer",
    "your_new_last_layer",
]
