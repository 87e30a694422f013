"""Convolution in four loops."""

import numpy as np

from cnn_course.chapters.convolution_on_the_cpu.exercises.common import FLIPPED, images_and_kernels, placed
from cnn_course.engine.checks.exercise import Exercise, avoids
from cnn_numba.ops.conv.reference import conv_cpu


def _mirrored_indices(image, kernel):
    """Return the result of loops that read ``kernel[n, m]``; only a square kernel allows that."""
    weights = np.empty(kernel.shape)
    for m, n in np.ndindex(kernel.shape):
        weights[m, n] = kernel[n, m]
    return conv_cpu(image, weights)


def _sides_exchanged(image, kernel, size_too=True):
    """Return the result of loops that exchange `kh` and `kw`, with `size_too` also in the output's size."""
    kw, kh = kernel.shape
    out_h, out_w = np.subtract(image.shape, (kh, kw) if size_too else (kw, kh)) + 1
    out = np.zeros((out_h, out_w))
    for i, j, m, n in np.ndindex(out_h, out_w, kh, kw):
        out[i, j] += image[i + m, j + n] * kernel[m, n]
    return out


def _summed_as_the_image(image, kernel):
    """Return the sum in the image's dtype, truncated after each product."""
    valid = conv_cpu(image, kernel).shape
    out = np.zeros(valid, image.dtype)
    for m, n in np.ndindex(kernel.shape):
        out[...] = out + image[m : m + valid[0], n : n + valid[1]] * kernel[m, n]
    return out


def _without(*missing):
    """Return a mistake's function: the loops end early, and these parts of the result stay zero."""

    def conv(image, kernel):
        out = conv_cpu(image, kernel)
        for part in missing:
            out[part] = 0
        return out

    return conv


def _only_last_product(image, kernel):
    out_h, out_w = (size - k + 1 for size, k in zip(image.shape, kernel.shape, strict=True))
    return image[-out_h:, -out_w:] * kernel[-1, -1]


_SIDES_EXCHANGED = (
    "You have exchanged `kh` and `kw`: `{kernel}.shape` is `(kh, kw)`, the height first; `m` runs to `kh` "
    "and `n` to `kw`. The exchange is right only for a square kernel."
)
_IMAGES_DTYPE = (
    "Your result has the image's dtype. If it's an integer type, as it often is for pixels, the fractions "
    "are lost: `np.zeros(shape)` without a dtype is floating-point."
)


conv_by_hand = Exercise(
    "conv_by_hand",
    reference=conv_cpu,
    cases=images_and_kernels,
    properties=(avoids("conv_cpu", "correlate2d", "convolve2d", "fftconvolve", "correlate", "convolve"),),
    mistakes={
        "flipped": (
            FLIPPED,
            lambda image, kernel: conv_cpu(image, kernel, flip=True),
            ("kernel[m, n]", "kernel[kh - 1 - m, kw - 1 - n]"),
            [("def", "@njit\ndef"), ("[i + m, j + n]", "[i + kh - 1 - m, j + kw - 1 - n]")],
        ),
        "same size": (
            "You return as many outputs as the image has pixels, as the article's docstring promises. But "
            "its loops compute only the valid region: the windows that lie completely on the image.",
            lambda image, kernel: conv_cpu(image, kernel, mode="same"),
            (
                "kh, kw = kernel.shape",
                "kh, kw = kernel.shape\n"
                "image = np.pad(image, [((kh - 1) // 2, kh // 2), ((kw - 1) // 2, kw // 2)])",
            ),
        ),
        "zeros left over": (
            "The numbers are right, but the array is too large: count the window's positions.",
            placed,
            [
                ("np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))", "np.zeros(image.shape)"),
                ("range(out.shape[0])", "range(image.shape[0] - kh + 1)"),
                ("range(out.shape[1])", "range(image.shape[1] - kw + 1)"),
            ],
        ),
        "full": (
            "You return the full region, with windows that overhang the image's edge.",
            lambda image, kernel: conv_cpu(image, kernel, mode="full"),
            """
            h, w = image.shape
            kh, kw = kernel.shape
            out = np.zeros((h + kh - 1, w + kw - 1))
            for m in range(kh):
                for n in range(kw):
                    out[kh - 1 - m : kh - 1 - m + h, kw - 1 - n : kw - 1 - n + w] += image * kernel[m, n]
            return out
            """,
        ),
        "one short": (
            "The last row and column are missing: a window of `kh` rows fits `h - kh + 1` times into `h`.",
            lambda image, kernel: conv_cpu(image, kernel)[:-1, :-1],
            (" + 1", "", 2),
        ),
        "returns too early": (
            "Only the first row of your result is computed, or only its first entry: `return` ends the "
            "function. Does it stand in a loop? Write it below all four.",
            _without(np.s_[1:]),
            _without(np.s_[1:, :], np.s_[:, 1:]),
            ("return out", "    return out"),
            ("return out", "        return out"),
        ),
        "last product only": (
            "Each output is its last product: do you use `=` instead of `+=`, or reset the sum to zero?",
            _only_last_product,
            ("out[i, j] +=", "out[i, j] ="),
        ),
        "kernel transposed": (
            "You read `{kernel}[n, m]` instead of `{kernel}[m, n]`: `m` counts rows, `n` columns.",
            _mirrored_indices,
            ("kernel[m, n]", "kernel[n, m]"),
        ),
        "sides exchanged": (
            _SIDES_EXCHANGED,
            _sides_exchanged,
            lambda image, kernel: _sides_exchanged(image, kernel, size_too=False),
            ("kh, kw = kernel.shape", "kw, kh = kernel.shape"),
            [("for m in range(kh)", "for m in range(kw)"), ("for n in range(kw)", "for n in range(kh)")],
        ),
        "image's dtype": (
            _IMAGES_DTYPE,
            _summed_as_the_image,
            lambda image, kernel: conv_cpu(image, kernel).astype(image.dtype),
            ("image.shape[1] - kw + 1)", "image.shape[1] - kw + 1), dtype=image.dtype"),
            [
                ("np.zeros(", "np.zeros_like(image, shape="),
                ("for m in range(kh):", "total = 0.0\nfor m in range(kh):"),
                ("out[i, j] +=", "out[i, j] = total = total +"),
            ],
        ),
        "averaged": (
            "You divide by the number of entries of the kernel. Sum the products; don't average them.",
            lambda image, kernel: conv_cpu(image, kernel) / kernel.size,
            ("kernel[m, n]", "kernel[m, n] / kernel.size"),
        ),
        "window not moved": (
            "Every output is that of the first window: use `i` and `j` in the index of `{image}`.",
            lambda image, kernel: np.full_like(conv_cpu(image, kernel), conv_cpu(image, kernel)[0, 0]),
            ("image[i + m, j + n]", "image[m, n]"),
        ),
    },
)
