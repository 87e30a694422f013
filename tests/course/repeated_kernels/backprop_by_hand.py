import numpy as np

from cnn_numba.course.checks.kernels import launch, normal, output
from cnn_numba.ops.conv.gpu_naive import conv2d_backward_input_naive_kernel
from cnn_numba.ops.pool.gpu import max_pool2d_backward_naive_kernel


def convolutions(rng):
    """Launch on uneven images, with strides and paddings of either axis, over several blocks."""
    settings = [
        ((1, 1, 4, 5), 1, (2, 3), (1, 1), (0, 0)),
        ((2, 2, 5, 7), 3, (3, 2), (2, 1), (1, 0)),
        ((1, 3, 7, 6), 2, (3, 3), (3, 2), (1, 2)),
    ]
    cases = []
    for shape, filters, kernel, stride, padding in settings:
        sizes = zip(shape[2:], kernel, stride, padding, strict=True)
        size = [(n + 2 * pad - k) // step + 1 for n, k, step, pad in sizes]
        grad_output = normal(rng, (shape[0], filters, *size))
        weight = normal(rng, (filters, shape[1], *kernel))
        grid = -(-int(np.prod(shape)) // 32)
        cases.append(launch(grid, 32, grad_output, weight, *stride, *padding, output(shape)))
    return cases


def pools(rng):
    """Launch on planes whose windows share maxima, and with a position that lies outside."""
    cases = []
    for planes, outputs, pixels in [(1, 4, 9), (5, 12, 20), (3, 6, 30)]:
        argmax = rng.integers(0, pixels, (planes, outputs)).astype(np.int32)
        argmax[0, -1] = pixels
        cases.append(launch(2, 4, normal(rng, (planes, outputs)), argmax, output((planes, pixels))))
    return cases


KERNELS = [
    ("conv-gather", "gather_kernel", conv2d_backward_input_naive_kernel, convolutions),
    ("pool-plane", "pool_backward_kernel", max_pool2d_backward_naive_kernel, pools),
]
