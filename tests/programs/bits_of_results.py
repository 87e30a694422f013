"""Print hashes of what kernels of the CPU compute."""

import hashlib

import numpy as np

from cnn_numba.beyond.attention.cpu import attention_forward
from cnn_numba.beyond.norm.cpu import layer_norm_backward

q, k, v = np.random.default_rng(0).standard_normal((3, 2, 2, 37, 24), np.float32)
x, g = np.random.default_rng(1).standard_normal((2, 13, 67), np.float32)
one = np.ones(67, np.float32)
for arrays in (attention_forward(q, k, v), layer_norm_backward(g, x, one, one[:13], one[:13])):
    print(*[hashlib.sha256(array).hexdigest() for array in arrays])
