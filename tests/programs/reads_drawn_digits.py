"""Read digits that are drawn on the pad: a cell of a notebook."""

import numpy as np

from cnn_course.chapters.mnist_cnn.pad import DigitPad
from cnn_numba import load_model
from cnn_numba.pretrained import MNIST_CNN

model = load_model(MNIST_CNN, batch_size=1)
DigitPad(lambda digit: model.predict(digit[None].astype(np.float32) / 255)[0])
