import numpy as np

from cnn_course.engine.checks.kernels import launch, normal, output
from cnn_numba.ops.activation.gpu import relu_forward_naive_kernel


def with_nan(rng, size):
    x = normal(rng, size)
    x[size // 2] = np.nan
    return x


def one_per_thread(rng):
    return [launch(3, 8, with_nan(rng, size), output(size)) for size in (3, 16, 21)]


KERNELS = [
    ("relu-kernel", "relu_kernel", relu_forward_naive_kernel, one_per_thread),
]
