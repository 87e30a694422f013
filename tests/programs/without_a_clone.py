"""Print where the installed packages are, and what they know without a clone."""

import os

import cnn_numba
import gpuless
from cnn_numba import extras
from cnn_numba.data.datasets import load, needs_download

print(os.path.dirname(cnn_numba.__file__), os.path.dirname(gpuless.__file__))
print(len(load("course-text").train_images), needs_download(), extras.install("cu13"))
