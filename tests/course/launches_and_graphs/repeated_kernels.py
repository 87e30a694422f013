import numpy as np

from cnn_course.engine.checks.kernels import launch, normal, output
from cnn_numba.ops.activation.gpu import bias_relu_forward_kernel


def feature_maps(rng):
    """Launch on several channels and samples, with a NaN among the elements and threads to spare."""
    cases = []
    for blocks, channels, pixels, samples in [(1, 1, 5, 1), (3, 3, 7, 2), (5, 4, 1, 9)]:
        x = normal(rng, samples * channels * pixels)
        x[x.size // 2] = np.nan
        cases.append(launch(blocks, 16, x, normal(rng, channels), np.int64(pixels), output(x.size)))
    return cases


KERNELS = [("fusion-kernels", "bias_relu_kernel", bias_relu_forward_kernel, feature_maps)]
