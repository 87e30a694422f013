"""A convolution with an output for each pixel."""

import numpy as np

from cnn_course.chapters.convolution_on_the_cpu.exercises.common import FLIPPED, images_and_kernels, placed
from cnn_course.engine.checks.exercise import Exercise, avoids
from cnn_numba.ops.conv.reference import conv_cpu


def _centred(image, kernel):
    """Return the valid region in the middle of an array of the image's size."""
    before = [((k - 1) // 2, k // 2) for k in kernel.shape]
    return np.pad(conv_cpu(image, kernel), before)


def _padded(before_and_after, **how):
    """Return a mistake's function: it pads the image in a wrong way, then convolves."""

    def conv(image, kernel):
        return conv_cpu(np.pad(image, [before_and_after(k) for k in kernel.shape], **how), kernel)

    return conv


def _same_borders(kernel):
    return [((k - 1) // 2, k // 2) for k in kernel.shape]


conv_same = Exercise(
    "conv_same",
    reference=lambda image, kernel: conv_cpu(image, kernel, mode="same"),
    cases=images_and_kernels,
    properties=(
        avoids("'same'", "'full'", "correlate2d", "convolve2d", "fftconvolve", "correlate", "convolve"),
    ),
    mistakes={
        "not padded": (
            "You return the valid region: the image needs a border of zeros first.",
            conv_cpu,
            ("np.pad(image, border)", "image"),
        ),
        "output padded": (
            "The size is right, but you pad the result. Pad the image: outputs at the edge need its pixels.",
            _centred,
            ("conv_cpu(np.pad(image, border), kernel)", "np.pad(conv_cpu(image, kernel), border)"),
        ),
        "zeros left over": (
            "The size is right, but the valid region fills only a corner. Pad the image before you slide.",
            placed,
            (
                "return conv_cpu(np.pad(image, border), kernel)",
                "out, valid = np.zeros(image.shape), conv_cpu(image, kernel)\n"
                "out[: len(valid), : valid.shape[1]] = valid\n"
                "return out",
            ),
        ),
        "border too wide": (
            "`k - 1` zeros on each side give the full region. Put `k - 1` on both sides *together*.",
            _padded(lambda k: (k - 1, k - 1)),
            ("((k - 1) // 2, k // 2)", "(k - 1, k - 1)"),
        ),
        "on one side": (
            "You put all zeros on one side. Put half of the `k - 1` above and left, half below and right.",
            _padded(lambda k: (0, k - 1)),
            _padded(lambda k: (k - 1, 0)),
            ("((k - 1) // 2, k // 2)", "(0, k - 1)"),
            ("((k - 1) // 2, k // 2)", "(k - 1, 0)"),
        ),
        "one too many": (
            "Right for odd kernels. For even ones, `k // 2` zeros on both sides are one more than `k - 1`.",
            _padded(lambda k: (k // 2, k // 2)),
            ("((k - 1) // 2, k // 2)", "(k // 2, k // 2)"),
        ),
        "one too few": (
            "Right for odd kernels. For even ones, `(k - 1) // 2` zeros on both sides are one too few.",
            _padded(lambda k: ((k - 1) // 2, (k - 1) // 2)),
            ("((k - 1) // 2, k // 2)", "((k - 1) // 2, (k - 1) // 2)"),
        ),
        "even kernels off by one": (
            "Right for odd kernels. For even ones, put the extra zero after the image: below and right.",
            _padded(lambda k: (k // 2, (k - 1) // 2)),
            ("((k - 1) // 2, k // 2)", "(k // 2, (k - 1) // 2)"),
        ),
        "axes exchanged": (
            "Height and width are exchanged: the kernel's height decides the zeros above and below.",
            lambda image, kernel: conv_cpu(np.pad(image, _same_borders(kernel.T)), kernel),
            ("np.pad(image, border)", "np.pad(image, border[::-1])"),
        ),
        "edges repeated": (
            "You pad the image with its edge pixels. Pad it with zeros.",
            _padded(lambda k: ((k - 1) // 2, k // 2), mode="edge"),
            ("np.pad(image, border)", 'np.pad(image, border, mode="edge")'),
        ),
        "flipped": (
            FLIPPED,
            lambda image, kernel: conv_cpu(image, kernel, mode="same", flip=True),
            ("conv_cpu(np.pad(image, border), kernel)", 'signal.convolve2d(image, kernel, mode="same")'),
        ),
    },
)
