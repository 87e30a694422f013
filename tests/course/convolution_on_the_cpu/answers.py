"""The wrong answers that stand beside no mistake of the exercises."""

import numpy as np
import scipy  # not its signal, which takes half a second: it is loaded where it is used first
from wrong_answers import wrong

from cnn_numba.ops.conv.reference import conv_cpu, correlate_cpu

WRONG = {
    "conv_by_hand": {
        "not initialised": [
            ("np.zeros", "np.empty"),
            [("def conv_by_hand", "@njit\ndef conv_by_hand"), ("np.zeros", "np.empty")],
        ],
        "constant": [("out[i, j] += image[i + m, j + n] * kernel[m, n]", "pass")],
        "type": [("image.shape[1] - kw + 1)", "image.shape[1] - kw + 1), int")],
        "raises": [("np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))", "np.zeros(image.shape)")],
        "returns None": [("return out", "")],
    },
    "convolve": {
        "shortcut": [("kernel[::-1, ::-1]", "kernel, flip=True")],
        "negated": [("kernel[::-1, ::-1]", "-kernel[::-1, ::-1]")],
    },
    "conv_same": {
        "shortcut": [("conv_cpu(np.pad(image, border), kernel)", 'conv_cpu(image, kernel, "same")')],
        "changes input": [("border = ", "image[0] = 0\nborder = ")],
    },
    "autocorrelation": {
        "wrong error": [("ValueError", "IndexError")],
        "delay not named": [(", got {delay}", ""), ("got {delay}", "got {abs(delay)}")],
    },
    "conv_fft": {
        "type": [[("rfft2", "fft2", 2), ("irfft2", "ifft2")]],
        "raises": [("fft.rfft2(kernel, s=image.shape)", "fft.rfft2(kernel)")],
    },
}


@wrong("conv_by_hand", "ignores input")
def conv_sums_windows(image, kernel):
    return np.lib.stride_tricks.sliding_window_view(image, kernel.shape).sum(axis=(2, 3))


@wrong("conv_by_hand", "changes input")
def conv_works_in_place(image, kernel):
    out = image[: image.shape[0] - kernel.shape[0] + 1, : image.shape[1] - kernel.shape[1] + 1]
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            window = image[i : i + kernel.shape[0], j : j + kernel.shape[1]]
            out[i, j] = (window * kernel).sum()
    return out


@wrong("conv_by_hand", "transposed")
def conv_exchanges_output_indices(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros((image.shape[1] - kw + 1, image.shape[0] - kh + 1))
    for i in range(image.shape[0] - kh + 1):
        for j in range(image.shape[1] - kw + 1):
            out[j, i] = (image[i : i + kh, j : j + kw] * kernel).sum()
    return out


@wrong("conv_by_hand", "shape")
def conv_of_square_images(image, kernel):
    side = image.shape[0] - kernel.shape[0] + 1
    out = np.zeros((side, side))
    for i in range(side):
        for j in range(side):
            window = image[i : i + kernel.shape[0], j : j + kernel.shape[1]]
            out[i, j] = sum(a * b for a, b in zip(window.ravel(), kernel.ravel(), strict=False))
    return out


@wrong("conv_by_hand", "shortcut")
def conv_asks_the_package(image, kernel):
    return conv_cpu(image, kernel)


@wrong("conv_same", "not initialised")
def same_pads_with_empty(image, kernel):
    kh, kw = kernel.shape
    padded = np.empty((image.shape[0] + kh - 1, image.shape[1] + kw - 1))
    top, left = (kh - 1) // 2, (kw - 1) // 2
    padded[top : top + image.shape[0], left : left + image.shape[1]] = image
    return conv_cpu(padded, kernel)


@wrong("autocorrelation", "not initialised")
def auto_adds_to_empty(signal, delay=None):
    n = len(signal)
    first = 0 if delay is None else int(delay)
    if not -n < first < n:
        raise ValueError(f"no such lag: {delay}")
    r = np.empty(n - first)
    for d in range(first, n):
        for k in range(max(0, -d), n - max(0, d)):
            r[d - first] += signal[k] * signal[k + d]
    return r


@wrong("autocorrelation", "shortcut")
def auto_asks_the_package(signal, delay=None):
    return correlate_cpu(signal, delay)


@wrong("conv_fft", "shortcut")
def fft_by_scipy(image, kernel):
    return scipy.signal.fftconvolve(image, kernel[::-1, ::-1], mode="valid")
