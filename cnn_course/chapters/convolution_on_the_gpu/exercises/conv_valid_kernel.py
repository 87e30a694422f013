"""A valid convolution of one image."""

import numpy as np

from cnn_course.chapters.convolution_on_the_gpu.exercises.common import FLIPPED, cover
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_numba.ops.conv.reference import conv_cpu


def _images(rng):
    for image, weight, block in [
        ((3, 4), (2, 2), (4, 2)),
        ((7, 12), (3, 3), (4, 4)),
        ((11, 6), (3, 2), (4, 2)),
        ((6, 13), (1, 4), (8, 2)),
        ((9, 9), (3, 3), (4, 4)),
    ]:
        shape = image[0] - weight[0] + 1, image[1] - weight[1] + 1
        grid = cover(shape, block)
        yield launch(grid, block, normal(rng, image), normal(rng, weight), output(shape))


def _last_product(image, weight):
    only = np.zeros_like(weight)
    only[-1, -1] = weight[-1, -1]
    return conv_cpu(image, only)


def _last_row(image, weight):
    only = np.zeros_like(weight)
    only[-1] = weight[-1]
    return conv_cpu(image, only)


def _short(weight, rows, columns):
    short = weight.copy()
    short[weight.shape[0] - rows :] = 0
    short[:, weight.shape[1] - columns :] = 0
    return short


conv_valid_kernel = KernelExercise(
    "conv_valid_kernel",
    reference=lambda image, weight: conv_cpu(image, weight),
    cases=_images,
    float32=True,
    once=True,
    mistakes={
        "flipped": (
            FLIPPED,
            lambda image, weight: conv_cpu(image, weight, flip=True),
            ("weight[i, j]", "weight[weight.shape[0] - 1 - i, weight.shape[1] - 1 - j]"),
        ),
        "last product only": (
            "Each output is its last product: do you use `=` instead of `+=`, or reset the sum to zero?",
            _last_product,
            ("total +=", "total ="),
            ("total +=", "total = float32(0) +"),
        ),
        "last row only": (
            "Only the last row of the weights counts: do you reset the sum to zero for each row?",
            _last_row,
            ("for i in range(weight.shape[0]):", "for i in range(weight.shape[0]):\n    total = float32(0)"),
        ),
        "window does not slide": (
            "All outputs equal the first one: use the thread's row and column in the image's index.",
            lambda image, weight: np.full_like(conv_cpu(image, weight), conv_cpu(image, weight)[0, 0]),
            ("image[row + i, column + j]", "image[i, j]"),
        ),
        "one pixel only": (
            "All weights meet the same pixel. Weight `[i, j]` meets the pixel `i` rows below and `j` columns "
            "right.",
            lambda image, weight: (
                weight.sum() * image[: 1 - weight.shape[0] or None, : 1 - weight.shape[1] or None]
            ),
            ("image[row + i, column + j]", "image[row, column]"),
        ),
        "one weight short": (
            "The last row and column of the weights are missing: `range(n)` already ends before `n`.",
            lambda image, weight: conv_cpu(image, _short(weight, 1, 1)),
            [("(weight.shape[0])", "(weight.shape[0] - 1)"), ("(weight.shape[1])", "(weight.shape[1] - 1)")],
        ),
        "averaged": (
            "You divide by the number of weights. Just sum the products here.",
            lambda image, weight: conv_cpu(image, weight) / weight.size,
            ("out[row, column] = total", "out[row, column] = total / float32(weight.size)"),
        ),
    },
)
