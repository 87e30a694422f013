"""Multiply two matrices; print the width of vectors and the product."""

import numpy as np

from cnn_numba.ops.dense.cpu import linear_forward
from cnn_numba.ops.shared.simd import WIDTH

rng = np.random.default_rng(0)
x, weight = rng.standard_normal((13, 70), np.float32), rng.standard_normal((37, 70), np.float32)
print(WIDTH, *linear_forward(x, weight).ravel())
