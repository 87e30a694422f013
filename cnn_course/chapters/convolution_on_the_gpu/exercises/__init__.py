"""The checks of notebook 03, ``03_convolution_on_the_gpu``: the exercises and their files.

1. `conv_valid_kernel`: conv_valid_kernel.py
2. `conv_channels_kernel`: conv_channels_kernel.py
3. `conv2d_kernel`: conv2d_kernel.py
4. `shrink`: shrink.py
"""

from cnn_course.chapters.convolution_on_the_gpu.exercises.common import FLIPPED
from cnn_course.chapters.convolution_on_the_gpu.exercises.conv2d_kernel import conv2d_kernel
from cnn_course.chapters.convolution_on_the_gpu.exercises.conv_channels_kernel import conv_channels_kernel
from cnn_course.chapters.convolution_on_the_gpu.exercises.conv_valid_kernel import conv_valid_kernel
from cnn_course.chapters.convolution_on_the_gpu.exercises.shrink import shrink

__all__ = ["FLIPPED", "conv2d_kernel", "conv_channels_kernel", "conv_valid_kernel", "shrink"]
