"""Wrong answers beside those that `mistakes` of the exercises hold."""

import numpy as np
from scipy import fft, signal
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
        "default slice + int only + unchecked": [
            [
                (
                    "if delay is None:\n    delay = 0",
                    "if not isinstance(delay, int):\n"
                    '    return np.correlate(signal, signal, mode="full")[n // 2 :]',
                ),
                ("if not -n < delay < n:", "if False:"),
            ]
        ],
        "int only + unchecked": [
            [("if delay is None:", "if not isinstance(delay, int):"), ("if not -n < delay < n:", "if False:")]
        ],
        "unchecked": [("if not -n < delay < n:", "if False:")],
        "reversed": [('np.correlate(signal, signal, mode="full")', "np.convolve(signal, signal)")],
        "int only": [("if delay is None:", "if not isinstance(delay, int):")],
        "default slice": [
            ("    delay = 0", '    return np.correlate(signal, signal, mode="full")[n // 2 :]')
        ],
        "wrong error": [("ValueError", "IndexError")],
        "delay not told": [(", got {delay}", ""), ("got {delay}", "got {abs(delay)}")],
    },
    "conv_fft": {
        "type": [[("rfft2", "fft2", 2), ("irfft2", "ifft2")]],
        "raises": [("fft.rfft2(kernel, s=image.shape)", "fft.rfft2(kernel)")],
    },
}


@wrong("conv_by_hand", "full")
def conv_scatters(image, kernel):
    h, w = image.shape
    kh, kw = kernel.shape
    out = np.zeros((h + kh - 1, w + kw - 1))
    for m in range(kh):
        for n in range(kw):
            out[kh - 1 - m : kh - 1 - m + h, kw - 1 - n : kw - 1 - n + w] += image * kernel[m, n]
    return out


@wrong("conv_by_hand", "image's dtype")
def conv_stores_in_the_images_dtype(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros_like(image, shape=(image.shape[0] - kh + 1, image.shape[1] - kw + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = 0.0
            for m in range(kh):
                for n in range(kw):
                    total += image[i + m, j + n] * kernel[m, n]
            out[i, j] = total
    return out


@wrong("conv_by_hand", "averaged")
def conv_averages(image, kernel):
    windows = np.lib.stride_tricks.sliding_window_view(image, kernel.shape)
    return (windows * kernel).mean(axis=(2, 3))


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


@wrong("conv_same", "zeros left over")
def same_in_the_corner(image, kernel):
    out, valid = np.zeros(image.shape), conv_cpu(image, kernel)
    out[: len(valid), : valid.shape[1]] = valid
    return out


@wrong("conv_same", "flipped")
def same_but_convolved(image, kernel):
    full = signal.convolve2d(image, kernel, mode="full")
    top, left = (kernel.shape[0] - 1) // 2, (kernel.shape[1] - 1) // 2
    return full[top : top + image.shape[0], left : left + image.shape[1]]


@wrong("conv_same", "not initialised")
def same_pads_with_empty(image, kernel):
    kh, kw = kernel.shape
    padded = np.empty((image.shape[0] + kh - 1, image.shape[1] + kw - 1))
    top, left = (kh - 1) // 2, (kw - 1) // 2
    padded[top : top + image.shape[0], left : left + image.shape[1]] = image
    return conv_cpu(padded, kernel)


@wrong("autocorrelation", "normalised")
def auto_normalised(signal, delay=None):
    r = correlate_cpu(signal, delay)
    return r / np.sum(signal**2)


@wrong("autocorrelation", "averaged")
def auto_averaged(signal, delay=None):
    return correlate_cpu(signal, delay) / signal.size


@wrong("autocorrelation", "mean removed")
def auto_centred(signal, delay=None):
    return correlate_cpu(signal - np.mean(signal), delay)


@wrong("autocorrelation", "circular")
def auto_by_fft_without_padding(signal, delay=None):
    n = len(signal)
    start = 0 if delay is None else int(delay)
    if not -n < start < n:
        raise ValueError(f"no such lag: {start}")
    around = fft.irfft(np.abs(fft.rfft(signal)) ** 2, n)
    return np.array([around[d % n] for d in range(start, n)])


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
    return signal.fftconvolve(image, kernel[::-1, ::-1], mode="valid")
