"""Convolution by way of the Fourier transform."""

import numpy as np
from numpy import fft  # with SciPy's interface, so the check needs only NumPy

from cnn_course.chapters.convolution_on_the_cpu.exercises.common import images_and_kernels
from cnn_course.engine.checks.exercise import Exercise, avoids
from cnn_numba.ops.conv.reference import conv_cpu


def _corner(out, image, kernel, corner=(0, 0)):
    """Cut an array of the valid region's size out of a larger one."""
    row, column = (c * (k - 1) for c, k in zip(corner, kernel.shape, strict=True))
    height, width = (size - k + 1 for size, k in zip(image.shape, kernel.shape, strict=True))
    return out[row : row + height, column : column + width]


def _whole(image, kernel):
    return image.shape


def _by_fft(spectrum=np.conj, of_image=np.positive, size=_whole, crop=True, corner=(0, 0)):
    """Return an FFT convolution; the arguments make it wrong."""

    def conv(image, kernel):
        product = of_image(fft.rfft2(image)) * spectrum(fft.rfft2(kernel, s=image.shape))
        out = fft.irfft2(product, s=size(image, kernel))
        return _corner(out, image, kernel, corner) if crop else out

    return conv


def _cut_from_the_end(image, kernel):
    return _by_fft(crop=False)(image, kernel)[: 1 - kernel.shape[0], : 1 - kernel.shape[1]]


# The cut in the solution.
_HEIGHT, _WIDTH = "image.shape[0] - kernel.shape[0] + 1", "image.shape[1] - kernel.shape[1] + 1"
_CUT = f"wrapped[: {_HEIGHT}, : {_WIDTH}]"

conv_fft = Exercise(
    "conv_fft",
    reference=conv_cpu,
    cases=images_and_kernels,
    properties=(avoids("conv_cpu", "correlate2d", "convolve2d", "fftconvolve", "oaconvolve", "correlate"),),
    mistakes={
        "flipped": (
            "Your filter is flipped: take the complex conjugate of the kernel's spectrum.",
            _by_fft(np.positive, corner=(1, 1)),
            lambda image, kernel: _corner(conv_cpu(image, kernel, "full", flip=True), image, kernel),
            [
                (
                    "spectrum = fft.rfft2(image) * np.conj(fft.rfft2(kernel, s=image.shape))",
                    "full = np.add(image.shape, kernel.shape) - 1\n"
                    "spectrum = fft.rfft2(image, s=full) * fft.rfft2(kernel, s=full)",
                ),
                ("fft.irfft2(spectrum, s=image.shape)", "fft.irfft2(spectrum, s=full)"),
            ],
            [
                ("np.conj(fft.rfft2(kernel, s=image.shape))", "fft.rfft2(kernel, s=image.shape)"),
                (_CUT, "wrapped[kernel.shape[0] - 1 :, kernel.shape[1] - 1 :]"),
            ],
        ),
        "wrapped round": (
            "A plain product of spectra flips the kernel and wraps around the image's edge, so the first "
            "rows and columns are wrong too. Take the complex conjugate of the kernel's spectrum.",
            _by_fft(np.positive),
            ("np.conj(fft.rfft2(kernel, s=image.shape))", "fft.rfft2(kernel, s=image.shape)"),
        ),
        "not cropped": (
            "You return an output for every pixel. In the last `kh - 1` rows and `kw - 1` columns the kernel "
            "wraps around to the other side of the image: keep only the valid region.",
            _by_fft(crop=False),
            (_CUT, "wrapped"),
        ),
        "wrong corner": (
            "You cut out the wrong part: the first window is output (0, 0); the last outputs wrap around.",
            _by_fft(corner=(1, 1)),
            (_CUT, "wrapped[kernel.shape[0] - 1 :, kernel.shape[1] - 1 :]"),
        ),
        "size not given": (
            "Right for even widths only, which `irfft2` assumes. Give it `s={image}.shape`.",
            _by_fft(size=lambda image, kernel: None),
            ("fft.irfft2(spectrum, s=image.shape)", "fft.irfft2(spectrum)"),
        ),
        "size of the result": (
            "You give the inverse the size of the result. It needs that of the transform, `s={image}.shape`. "
            "Cut out the valid region afterwards.",
            _by_fft(size=lambda image, kernel: conv_cpu(image, kernel).shape),
            ("fft.irfft2(spectrum, s=image.shape)", f"fft.irfft2(spectrum, s=({_HEIGHT}, {_WIDTH}))"),
        ),
        "minus zero": (
            "Right, but not for a kernel of one row or column: then the slice ends at `-0`, which is 0, and "
            "nothing is left. Count from the start: `[: h - kh + 1]`.",
            _cut_from_the_end,
            [(_HEIGHT, "1 - kernel.shape[0]"), (_WIDTH, "1 - kernel.shape[1]")],
        ),
        "image conjugated": (
            "You conjugate the image's spectrum, which flips the image. Conjugate the kernel's.",
            _by_fft(np.positive, of_image=np.conj),
            (
                "fft.rfft2(image) * np.conj(fft.rfft2(kernel, s=image.shape))",
                "np.conj(fft.rfft2(image)) * fft.rfft2(kernel, s=image.shape)",
            ),
        ),
        "magnitude": (
            "You take the magnitude of the kernel's spectrum. Take its complex conjugate.",
            _by_fft(np.abs),
            ("np.conj", "np.abs"),
        ),
    },
)
