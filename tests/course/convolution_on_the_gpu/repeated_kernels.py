import numpy as np

from benchmarks.rungs.conv_naive import conv2d_forward_naive_kernel
from cnn_course.engine.checks.kernels import launch, normal, output
from cnn_numba.ops.shapes import output_size


def convolutions(rng):
    cases = []
    for x_shape, weight_shape, stride, padding, has_bias, relu in [
        ((2, 3, 5, 7), (2, 3, 3, 2), (1, 1), (0, 0), True, False),
        ((1, 2, 6, 5), (3, 2, 3, 3), (2, 3), (1, 2), True, True),
        ((2, 1, 4, 6), (2, 1, 1, 4), (1, 2), (0, 1), False, True),
    ]:
        x, weight, bias = (normal(rng, shape) for shape in (x_shape, weight_shape, weight_shape[0]))
        x[0, 0, 2, 2] = np.nan
        size = map(output_size, x_shape[2:], weight_shape[2:], stride, padding)
        out = output((x_shape[0], weight_shape[0], *size))
        grid = int(np.prod(out.shape)) // 32 + 1
        cases.append(launch(grid, 32, x, weight, bias, has_bias, *stride, *padding, relu, out))
    return cases


KERNELS = [("package-kernel", "conv2d_package_kernel", conv2d_forward_naive_kernel, convolutions)]
