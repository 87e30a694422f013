"""The checks of notebook 01, ``01_convolution_on_the_cpu``: the exercises and their files.

1. `conv_by_hand`: conv_by_hand.py
2. `convolve`: convolve.py
3. `conv_same`: conv_same.py
4. `autocorrelation`: autocorrelation.py
5. `conv_fft`: conv_fft.py
"""

from cnn_course.chapters.convolution_on_the_cpu.exercises.autocorrelation import autocorrelation
from cnn_course.chapters.convolution_on_the_cpu.exercises.conv_by_hand import conv_by_hand
from cnn_course.chapters.convolution_on_the_cpu.exercises.conv_fft import conv_fft
from cnn_course.chapters.convolution_on_the_cpu.exercises.conv_same import conv_same
from cnn_course.chapters.convolution_on_the_cpu.exercises.convolve import convolve

__all__ = ["autocorrelation", "conv_by_hand", "conv_fft", "conv_same", "convolve"]
