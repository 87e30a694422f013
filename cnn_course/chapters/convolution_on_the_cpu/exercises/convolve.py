"""The mathematical convolution, by a flip of the kernel."""

import numpy as np

from cnn_course.chapters.convolution_on_the_cpu.exercises.common import images_and_kernels
from cnn_course.engine.checks.exercise import Exercise, avoids
from cnn_numba.ops.conv.reference import conv_cpu


def _with_kernel(change):
    return lambda image, kernel: conv_cpu(image, change(kernel))


convolve = Exercise(
    "convolve",
    reference=lambda image, kernel: conv_cpu(image, kernel, flip=True),
    cases=images_and_kernels,
    properties=(avoids("flip=", "convolve2d", "correlate2d", "fftconvolve", "convolve"),),
    mistakes={
        "not flipped": (
            "The flip is missing: this is still cross-correlation. Turn the kernel before it slides.",
            conv_cpu,
            ("kernel[::-1, ::-1]", "kernel"),
        ),
        "upside down only": (
            "You exchange top and bottom, but not left and right: a convolution reverses both axes.",
            _with_kernel(np.flipud),
            ("kernel[::-1, ::-1]", "kernel[::-1]"),
        ),
        "left to right only": (
            "You exchange left and right, but not top and bottom: a convolution reverses both axes.",
            _with_kernel(np.fliplr),
            ("kernel[::-1, ::-1]", "kernel[:, ::-1]"),
        ),
        "transposed": (
            "You transpose the kernel, which exchanges its axes. A convolution reverses each of them.",
            _with_kernel(np.transpose),
            ("kernel[::-1, ::-1]", "kernel.T"),
        ),
        "quarter turn": (
            "You turn the kernel by 90 degrees. Reversing both axes is half a turn, 180 degrees.",
            _with_kernel(np.rot90),
            ("kernel[::-1, ::-1]", "np.rot90(kernel)"),
        ),
        "image flipped": (
            "You flip the image, which reverses the order of the right numbers: flip the kernel.",
            lambda image, kernel: conv_cpu(image[::-1, ::-1], kernel),
            ("conv_cpu(image, kernel[::-1, ::-1])", "conv_cpu(np.flip(image), kernel)"),
        ),
        "result flipped": (
            "You flip the result, which only reverses its order: flip the kernel, before it slides.",
            lambda image, kernel: conv_cpu(image, kernel)[::-1, ::-1],
            ("conv_cpu(image, kernel[::-1, ::-1])", "conv_cpu(image, kernel)[::-1, ::-1]"),
        ),
        "full": (
            "The flip is right, but you return the full region: keep only windows completely on the image.",
            lambda image, kernel: conv_cpu(image, kernel, mode="full", flip=True),
            ("kernel[::-1, ::-1]", 'kernel[::-1, ::-1], mode="full"'),
        ),
    },
)
