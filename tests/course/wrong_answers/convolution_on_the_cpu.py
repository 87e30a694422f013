import numpy as np
from scipy import fft, signal

from cnn_numba.ops.conv.reference import conv_cpu, correlate_cpu
from wrong_answers import derive, wrong

# --- conv_by_hand ---

conv_by_hand = derive(
    "conv_by_hand",
    conv_flipped=("flipped", ("kernel[m, n]", "kernel[kh - 1 - m, kw - 1 - n]")),
    conv_with_the_docstrings_shape=(
        "zeros left over",
        ("np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))", "np.zeros(image.shape)"),
        ("range(out.shape[0])", "range(image.shape[0] - kh + 1)"),
        ("range(out.shape[1])", "range(image.shape[1] - kw + 1)"),
    ),
    conv_of_the_images_size=(
        "same size",
        (
            "kh, kw = kernel.shape",
            "kh, kw = kernel.shape\n"
            "image = np.pad(image, [((kh - 1) // 2, kh // 2), ((kw - 1) // 2, kw // 2)])",
        ),
    ),
    conv_without_the_last_position=("one short", (" + 1", "", 2)),
    conv_overwrites=("last product only", ("out[i, j] +=", "out[i, j] =")),
    conv_swaps_kernel_indices=("kernel transposed", ("kernel[m, n]", "kernel[n, m]")),
    conv_exchanges_height_and_width=("sides exchanged", ("kh, kw = kernel.shape", "kw, kh = kernel.shape")),
    conv_exchanges_the_inner_loops=(
        "sides exchanged",
        ("for m in range(kh)", "for m in range(kw)"),
        ("for n in range(kw)", "for n in range(kh)"),
    ),
    conv_adds_to_empty=("not initialised", ("np.zeros", "np.empty")),
    conv_compiled_adds_to_empty=(
        "not initialised",
        ("def conv_by_hand", "@njit\ndef conv_by_hand"),
        ("np.zeros", "np.empty"),
    ),
    conv_sums_in_the_images_dtype=(
        "image's dtype",
        ("image.shape[1] - kw + 1)", "image.shape[1] - kw + 1), dtype=image.dtype"),
    ),
    conv_of_the_first_window=("window not moved", ("image[i + m, j + n]", "image[m, n]")),
    conv_of_zeros=("constant", ("out[i, j] += image[i + m, j + n] * kernel[m, n]", "pass")),
    conv_truncates=("type", ("image.shape[1] - kw + 1)", "image.shape[1] - kw + 1), int")),
    conv_runs_over_the_edge=(
        "raises",
        ("np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))", "np.zeros(image.shape)"),
    ),
    conv_forgets_to_return=("returns None", ("return out", "")),
    conv_compiled_and_flipped=(
        "flipped",
        ("def conv_by_hand", "@njit\ndef conv_by_hand"),
        ("image[i + m, j + n]", "image[i + kh - 1 - m, j + kw - 1 - n]"),
    ),
)


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


# --- convolve ---

convolve = derive(
    "convolve",
    convolve_as_it_is=("not flipped", ("kernel[::-1, ::-1]", "kernel")),
    convolve_one_axis=("upside down only", ("kernel[::-1, ::-1]", "kernel[::-1]")),
    convolve_other_axis=("left to right only", ("kernel[::-1, ::-1]", "kernel[:, ::-1]")),
    convolve_transposed=("transposed", ("kernel[::-1, ::-1]", "kernel.T")),
    convolve_rotated=("quarter turn", ("kernel[::-1, ::-1]", "np.rot90(kernel)")),
    convolve_flipped_image=(
        "image flipped",
        ("conv_cpu(image, kernel[::-1, ::-1])", "conv_cpu(np.flip(image), kernel)"),
    ),
    convolve_flipped_result=(
        "result flipped",
        ("conv_cpu(image, kernel[::-1, ::-1])", "conv_cpu(image, kernel)[::-1, ::-1]"),
    ),
    convolve_full=("full", ("kernel[::-1, ::-1]", 'kernel[::-1, ::-1], mode="full"')),
    convolve_by_option=("shortcut", ("kernel[::-1, ::-1]", "kernel, flip=True")),
    convolve_negated=("negated", ("kernel[::-1, ::-1]", "-kernel[::-1, ::-1]")),
)

# --- conv_same ---

conv_same = derive(
    "conv_same",
    same_unpadded=("not padded", ("np.pad(image, border)", "image")),
    same_pads_the_result=(
        "output padded",
        ("conv_cpu(np.pad(image, border), kernel)", "np.pad(conv_cpu(image, kernel), border)"),
    ),
    same_padded_to_full=("border too wide", ("((k - 1) // 2, k // 2)", "(k - 1, k - 1)")),
    same_half_on_both_sides=("one too many", ("((k - 1) // 2, k // 2)", "(k // 2, k // 2)")),
    same_half_of_one_less=("one too few", ("((k - 1) // 2, k // 2)", "((k - 1) // 2, (k - 1) // 2)")),
    same_extra_zero_above=("even kernels off by one", ("((k - 1) // 2, k // 2)", "(k // 2, (k - 1) // 2)")),
    same_exchanges_axes=("axes exchanged", ("np.pad(image, border)", "np.pad(image, border[::-1])")),
    same_repeats_edges=("edges repeated", ("np.pad(image, border)", 'np.pad(image, border, mode="edge")')),
    same_by_option=(
        "shortcut",
        ("conv_cpu(np.pad(image, border), kernel)", 'conv_cpu(image, kernel, "same")'),
    ),
    same_blackens_the_edge=("changes input", ("border = ", "image[0] = 0\nborder = ")),
)


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


# --- autocorrelation ---

autocorrelation = derive(
    "autocorrelation",
    auto_unreversed=(
        "default slice + int only + unchecked",
        (
            "if delay is None:\n    delay = 0",
            'if not isinstance(delay, int):\n    return np.correlate(signal, signal, mode="full")[n // 2 :]',
        ),
        ("if not -n < delay < n:", "if False:"),
    ),
    auto_right_centre=(
        "int only + unchecked",
        ("if delay is None:", "if not isinstance(delay, int):"),
        ("if not -n < delay < n:", "if False:"),
    ),
    auto_any_integer=("unchecked", ("if not -n < delay < n:", "if False:")),
    auto_still_reversed=(
        "reversed",
        ('np.correlate(signal, signal, mode="full")', "np.convolve(signal, signal)"),
    ),
    auto_plain_integers=("int only", ("if delay is None:", "if not isinstance(delay, int):")),
    auto_wrong_centre=(
        "default slice",
        ("    delay = 0", '    return np.correlate(signal, signal, mode="full")[n // 2 :]'),
    ),
    auto_from_the_most_negative=("all lags", ("delay = 0", "delay = 1 - n")),
    auto_refuses_with_the_wrong_error=("wrong error", ("ValueError", "IndexError")),
    auto_refuses_without_the_delay=("delay not told", (", got {delay}", "")),
    auto_tells_the_delay_without_its_sign=("delay not told", ("got {delay}", "got {abs(delay)}")),
)


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


# --- conv_fft ---

conv_fft = derive(
    "conv_fft",
    fft_convolves=(
        "flipped",
        ("np.conj(fft.rfft2(kernel, s=image.shape))", "fft.rfft2(kernel, s=image.shape)"),
        (
            "wrapped[: image.shape[0] - kernel.shape[0] + 1, : image.shape[1] - kernel.shape[1] + 1]",
            "wrapped[kernel.shape[0] - 1 :, kernel.shape[1] - 1 :]",
        ),
    ),
    fft_without_conjugate=(
        "wrapped round",
        ("np.conj(fft.rfft2(kernel, s=image.shape))", "fft.rfft2(kernel, s=image.shape)"),
    ),
    fft_uncropped=(
        "not cropped",
        (
            "wrapped[: image.shape[0] - kernel.shape[0] + 1, : image.shape[1] - kernel.shape[1] + 1]",
            "wrapped",
        ),
    ),
    fft_wrong_corner=(
        "wrong corner",
        (
            "wrapped[: image.shape[0] - kernel.shape[0] + 1, : image.shape[1] - kernel.shape[1] + 1]",
            "wrapped[kernel.shape[0] - 1 :, kernel.shape[1] - 1 :]",
        ),
    ),
    fft_forgets_the_width=("size not given", ("fft.irfft2(spectrum, s=image.shape)", "fft.irfft2(spectrum)")),
    fft_conjugates_the_image=(
        "image conjugated",
        (
            "fft.rfft2(image) * np.conj(fft.rfft2(kernel, s=image.shape))",
            "np.conj(fft.rfft2(image)) * fft.rfft2(kernel, s=image.shape)",
        ),
    ),
    fft_takes_magnitude=("magnitude", ("np.conj", "np.abs")),
    fft_leaves_it_complex=("type", ("rfft2", "fft2", 2), ("irfft2", "ifft2")),
    fft_unfilled_kernel=("raises", ("fft.rfft2(kernel, s=image.shape)", "fft.rfft2(kernel)")),
)


@wrong("conv_fft", "shortcut")
def fft_by_scipy(image, kernel):
    return signal.fftconvolve(image, kernel[::-1, ::-1], mode="valid")
