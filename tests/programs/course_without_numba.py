"""Use the course, the package and a trained network where Numba is not installed."""

import numpy as np

# First: they select the simulator.
import cnn_course  # noqa: F401
import cnn_numba

# isort: split
from numba import cuda

from cnn_course.chapters.first_cuda_kernels import exercises  # noqa: F401
from cnn_numba import gather_batch
from cnn_numba.ops.activation import gpu
from cnn_numba.ops.conv.reference import conv_cpu
from cnn_numba.pretrained import MNIST_CNN

print(cnn_numba.device.SELECTION.gpu)
x, out = cuda.to_device(np.float32([-1, 2])), cuda.device_array(2, np.float32)
gpu.relu_forward(x, out)
print(out.copy_to_host().tolist(), conv_cpu(np.eye(3), np.ones((2, 2))).shape)
model = cnn_numba.load_model(MNIST_CNN, batch_size=8)
mnist = cnn_numba.load("mnist")
print((model.predict(mnist.test_images[:8] / np.float32(255)).argmax(axis=1) == mnist.test_labels[:8]).all())
try:
    gather_batch(mnist.train_images, np.arange(4), 0, 1)
except RuntimeError as error:
    print(type(error).__name__, error)
