import numpy as np
from numba import njit
from scipy import fft, signal

from cnn_numba.ops.conv.reference import conv_cpu, correlate_cpu
from wrong_answers import wrong

# --- conv_by_hand ---


@wrong("conv_by_hand", "flipped")
def conv_flipped(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for m in range(kh):
                for n in range(kw):
                    out[i, j] += image[i + m, j + n] * kernel[kh - 1 - m, kw - 1 - n]
    return out


@wrong("conv_by_hand", "zeros left over")
def conv_with_the_docstrings_shape(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros(image.shape)
    for i in range(image.shape[0] - kh + 1):
        for j in range(image.shape[1] - kw + 1):
            out[i, j] = (image[i : i + kh, j : j + kw] * kernel).sum()
    return out


@wrong("conv_by_hand", "same size")
def conv_of_the_images_size(image, kernel):
    kh, kw = kernel.shape
    padded = np.pad(image, [((kh - 1) // 2, kh // 2), ((kw - 1) // 2, kw // 2)])
    out = np.zeros(image.shape)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = (padded[i : i + kh, j : j + kw] * kernel).sum()
    return out


@wrong("conv_by_hand", "full")
def conv_scatters(image, kernel):
    h, w = image.shape
    kh, kw = kernel.shape
    out = np.zeros((h + kh - 1, w + kw - 1))
    for m in range(kh):
        for n in range(kw):
            out[kh - 1 - m : kh - 1 - m + h, kw - 1 - n : kw - 1 - n + w] += image * kernel[m, n]
    return out


@wrong("conv_by_hand", "one short")
def conv_without_the_last_position(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros((image.shape[0] - kh, image.shape[1] - kw))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = np.sum(image[i : i + kh, j : j + kw] * kernel)
    return out


@wrong("conv_by_hand", "last product only")
def conv_overwrites(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for m in range(kh):
                for n in range(kw):
                    out[i, j] = image[i + m, j + n] * kernel[m, n]
    return out


@wrong("conv_by_hand", "kernel transposed")
def conv_swaps_kernel_indices(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for m in range(kh):
                for n in range(kw):
                    out[i, j] += image[i + m, j + n] * kernel[n, m]
    return out


@wrong("conv_by_hand", "sides exchanged")
def conv_exchanges_height_and_width(image, kernel):
    kw, kh = kernel.shape
    out = np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for m in range(kh):
                for n in range(kw):
                    out[i, j] += image[i + m, j + n] * kernel[m, n]
    return out


@wrong("conv_by_hand", "sides exchanged")
def conv_exchanges_the_inner_loops(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for m in range(kw):
                for n in range(kh):
                    out[i, j] += image[i + m, j + n] * kernel[m, n]
    return out


@wrong("conv_by_hand", "not initialised")
def conv_adds_to_empty(image, kernel):
    kh, kw = kernel.shape
    out = np.empty((image.shape[0] - kh + 1, image.shape[1] - kw + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for m in range(kh):
                for n in range(kw):
                    out[i, j] += image[i + m, j + n] * kernel[m, n]
    return out


@wrong("conv_by_hand", "not initialised")
@njit
def conv_compiled_adds_to_empty(image, kernel):
    kh, kw = kernel.shape
    out = np.empty((image.shape[0] - kh + 1, image.shape[1] - kw + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for m in range(kh):
                for n in range(kw):
                    out[i, j] += image[i + m, j + n] * kernel[m, n]
    return out


@wrong("conv_by_hand", "image's dtype")
def conv_sums_in_the_images_dtype(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1), dtype=image.dtype)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for m in range(kh):
                for n in range(kw):
                    out[i, j] += image[i + m, j + n] * kernel[m, n]
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


@wrong("conv_by_hand", "window not moved")
def conv_of_the_first_window(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = (image[:kh, :kw] * kernel).sum()
    return out


@wrong("conv_by_hand", "ignores input")
def conv_sums_windows(image, kernel):
    return np.lib.stride_tricks.sliding_window_view(image, kernel.shape).sum(axis=(2, 3))


@wrong("conv_by_hand", "constant")
def conv_of_zeros(image, kernel):
    return np.zeros((image.shape[0] - kernel.shape[0] + 1, image.shape[1] - kernel.shape[1] + 1))


@wrong("conv_by_hand", "type")
def conv_truncates(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1), int)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = (image[i : i + kh, j : j + kw] * kernel).sum()
    return out


@wrong("conv_by_hand", "changes input")
def conv_works_in_place(image, kernel):
    out = image[: image.shape[0] - kernel.shape[0] + 1, : image.shape[1] - kernel.shape[1] + 1]
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            window = image[i : i + kernel.shape[0], j : j + kernel.shape[1]]
            out[i, j] = (window * kernel).sum()
    return out


@wrong("conv_by_hand", "raises")
def conv_runs_over_the_edge(image, kernel):
    out = np.zeros(image.shape)
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            for m in range(kernel.shape[0]):
                for n in range(kernel.shape[1]):
                    out[i, j] += image[i + m, j + n] * kernel[m, n]
    return out


@wrong("conv_by_hand", "returns None")
def conv_forgets_to_return(image, kernel):
    out = conv_cpu(image, kernel)
    out[0, 0] += 0


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


@wrong("conv_by_hand", "flipped")
@njit
def conv_compiled_and_flipped(image, kernel):
    kh, kw = kernel.shape
    out = np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for m in range(kh):
                for n in range(kw):
                    out[i, j] += image[i + kh - 1 - m, j + kw - 1 - n] * kernel[m, n]
    return out


# --- convolve ---


@wrong("convolve", "not flipped")
def convolve_as_it_is(image, kernel):
    return conv_cpu(image, kernel)


@wrong("convolve", "upside down only")
def convolve_one_axis(image, kernel):
    return conv_cpu(image, kernel[::-1])


@wrong("convolve", "left to right only")
def convolve_other_axis(image, kernel):
    return conv_cpu(image, kernel[:, ::-1])


@wrong("convolve", "transposed")
def convolve_transposed(image, kernel):
    return conv_cpu(image, kernel.T)


@wrong("convolve", "quarter turn")
def convolve_rotated(image, kernel):
    return conv_cpu(image, np.rot90(kernel))


@wrong("convolve", "image flipped")
def convolve_flipped_image(image, kernel):
    return conv_cpu(np.flip(image), kernel)


@wrong("convolve", "result flipped")
def convolve_flipped_result(image, kernel):
    return conv_cpu(image, kernel)[::-1, ::-1]


@wrong("convolve", "full")
def convolve_full(image, kernel):
    return conv_cpu(image, kernel[::-1, ::-1], mode="full")


@wrong("convolve", "shortcut")
def convolve_by_option(image, kernel):
    return conv_cpu(image, kernel, flip=True)


@wrong("convolve", "negated")
def convolve_negated(image, kernel):
    return conv_cpu(image, -kernel[::-1, ::-1])


# --- conv_same ---


@wrong("conv_same", "not padded")
def same_unpadded(image, kernel):
    return conv_cpu(image, kernel)


@wrong("conv_same", "output padded")
def same_pads_the_result(image, kernel):
    kh, kw = kernel.shape
    return np.pad(conv_cpu(image, kernel), [((kh - 1) // 2, kh // 2), ((kw - 1) // 2, kw // 2)])


@wrong("conv_same", "zeros left over")
def same_in_the_corner(image, kernel):
    out, valid = np.zeros(image.shape), conv_cpu(image, kernel)
    out[: len(valid), : valid.shape[1]] = valid
    return out


@wrong("conv_same", "border too wide")
def same_padded_to_full(image, kernel):
    above, left = kernel.shape[0] - 1, kernel.shape[1] - 1
    return conv_cpu(np.pad(image, ((above, above), (left, left))), kernel)


@wrong("conv_same", "one too many")
def same_half_on_both_sides(image, kernel):
    return conv_cpu(np.pad(image, [(k // 2, k // 2) for k in kernel.shape]), kernel)


@wrong("conv_same", "one too few")
def same_half_of_one_less(image, kernel):
    return conv_cpu(np.pad(image, [((k - 1) // 2, (k - 1) // 2) for k in kernel.shape]), kernel)


@wrong("conv_same", "even kernels off by one")
def same_extra_zero_above(image, kernel):
    return conv_cpu(np.pad(image, [(k // 2, (k - 1) // 2) for k in kernel.shape]), kernel)


@wrong("conv_same", "axes exchanged")
def same_exchanges_axes(image, kernel):
    kw, kh = kernel.shape
    return conv_cpu(np.pad(image, [((kh - 1) // 2, kh // 2), ((kw - 1) // 2, kw // 2)]), kernel)


@wrong("conv_same", "edges repeated")
def same_repeats_edges(image, kernel):
    border = [((k - 1) // 2, k // 2) for k in kernel.shape]
    return conv_cpu(np.pad(image, border, mode="edge"), kernel)


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


@wrong("conv_same", "shortcut")
def same_by_option(image, kernel):
    return conv_cpu(image, kernel, "same")


@wrong("conv_same", "changes input")
def same_blackens_the_edge(image, kernel):
    image[0] = 0
    return conv_cpu(np.pad(image, [((k - 1) // 2, k // 2) for k in kernel.shape]), kernel)


# --- autocorrelation ---


@wrong("autocorrelation", "default slice + int only + unchecked")
def auto_unreversed(signal, delay=None):
    n = len(signal)
    full = np.correlate(signal, signal, mode="full")
    if isinstance(delay, int):
        return full[n - 1 + delay :]
    return full[n // 2 :]


@wrong("autocorrelation", "int only + unchecked")
def auto_right_centre(signal, delay=None):
    n = len(signal)
    full = np.correlate(signal, signal, mode="full")
    if isinstance(delay, int):
        return full[n - 1 + delay :]
    return full[n - 1 :]


@wrong("autocorrelation", "unchecked")
def auto_any_integer(signal, delay=None):
    n = len(signal)
    full = np.correlate(signal, signal, mode="full")
    return full[n - 1 + (0 if delay is None else int(delay)) :]


@wrong("autocorrelation", "reversed")
def auto_still_reversed(signal, delay=None):
    n = len(signal)
    delay = 0 if delay is None else delay
    if not -n < delay < n:
        raise ValueError(f"no such lag: {delay}")
    return np.convolve(signal, signal)[n - 1 + delay :]


@wrong("autocorrelation", "int only")
def auto_plain_integers(signal, delay=None):
    n = len(signal)
    start = delay if isinstance(delay, int) else 0
    if abs(start) >= n:
        raise ValueError(f"no such lag: {start}")
    return np.correlate(signal, signal, mode="full")[n - 1 + start :]


@wrong("autocorrelation", "default slice")
def auto_wrong_centre(signal, delay=None):
    n = len(signal)
    full = np.correlate(signal, signal, mode="full")
    if delay is None:
        return full[n // 2 :]
    if abs(int(delay)) >= n:
        raise ValueError(f"no such lag: {delay}")
    return full[n - 1 + delay :]


@wrong("autocorrelation", "normalised")
def auto_normalised(signal, delay=None):
    r = correlate_cpu(signal, delay)
    return r / np.sum(signal**2)


@wrong("autocorrelation", "averaged")
def auto_averaged(signal, delay=None):
    return correlate_cpu(signal, delay) / signal.size


@wrong("autocorrelation", "all lags")
def auto_from_the_most_negative(signal, delay=None):
    n = len(signal)
    start = -(n - 1) if delay is None else delay
    if not -n < start < n:
        raise ValueError(f"no such lag: {start}")
    return np.correlate(signal, signal, mode="full")[n - 1 + start :]


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


@wrong("autocorrelation", "wrong error")
def auto_refuses_with_the_wrong_error(signal, delay=None):
    if delay is not None and not -len(signal) < delay < len(signal):
        raise IndexError(f"no such lag: {delay}")
    return correlate_cpu(signal, delay)


@wrong("autocorrelation", "delay not told")
def auto_refuses_without_the_delay(signal, delay=None):
    if delay is not None and not -len(signal) < delay < len(signal):
        raise ValueError(f"the delay must lie within {len(signal)} samples")
    n = len(signal)
    return np.correlate(signal, signal, mode="full")[n - 1 + (delay or 0) :]


@wrong("autocorrelation", "delay not told")
def auto_tells_the_delay_without_its_sign(signal, delay=None):
    if delay is not None and abs(int(delay)) >= len(signal):
        raise ValueError(f"no such lag: {abs(int(delay))}")
    n = len(signal)
    return np.correlate(signal, signal, mode="full")[n - 1 + (delay or 0) :]


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


@wrong("conv_fft", "flipped")
def fft_convolves(image, kernel):
    kh, kw = kernel.shape
    out = fft.irfft2(fft.rfft2(image) * fft.rfft2(kernel, s=image.shape), s=image.shape)
    return out[kh - 1 :, kw - 1 :]


@wrong("conv_fft", "wrapped round")
def fft_without_conjugate(image, kernel):
    h, w = image.shape[0] - kernel.shape[0] + 1, image.shape[1] - kernel.shape[1] + 1
    return fft.irfft2(fft.rfft2(image) * fft.rfft2(kernel, s=image.shape), s=image.shape)[:h, :w]


@wrong("conv_fft", "not cropped")
def fft_uncropped(image, kernel):
    spectrum = fft.rfft2(image) * fft.rfft2(kernel, s=image.shape).conj()
    return fft.irfft2(spectrum, s=image.shape)


@wrong("conv_fft", "wrong corner")
def fft_wrong_corner(image, kernel):
    spectrum = fft.rfft2(image) * fft.rfft2(kernel, s=image.shape).conj()
    return fft.irfft2(spectrum, s=image.shape)[kernel.shape[0] - 1 :, kernel.shape[1] - 1 :]


@wrong("conv_fft", "size not given")
def fft_forgets_the_width(image, kernel):
    h, w = image.shape[0] - kernel.shape[0] + 1, image.shape[1] - kernel.shape[1] + 1
    return fft.irfft2(fft.rfft2(image) * fft.rfft2(kernel, s=image.shape).conj())[:h, :w]


@wrong("conv_fft", "image conjugated")
def fft_conjugates_the_image(image, kernel):
    h, w = image.shape[0] - kernel.shape[0] + 1, image.shape[1] - kernel.shape[1] + 1
    spectrum = fft.rfft2(image).conj() * fft.rfft2(kernel, s=image.shape)
    return fft.irfft2(spectrum, s=image.shape)[:h, :w]


@wrong("conv_fft", "magnitude")
def fft_takes_magnitude(image, kernel):
    h, w = image.shape[0] - kernel.shape[0] + 1, image.shape[1] - kernel.shape[1] + 1
    spectrum = fft.rfft2(image) * np.abs(fft.rfft2(kernel, s=image.shape))
    return fft.irfft2(spectrum, s=image.shape)[:h, :w]


@wrong("conv_fft", "type")
def fft_leaves_it_complex(image, kernel):
    h, w = image.shape[0] - kernel.shape[0] + 1, image.shape[1] - kernel.shape[1] + 1
    return fft.ifft2(fft.fft2(image) * fft.fft2(kernel, s=image.shape).conj())[:h, :w]


@wrong("conv_fft", "raises")
def fft_unfilled_kernel(image, kernel):
    return fft.irfft2(fft.rfft2(image) * np.conj(fft.rfft2(kernel)), s=image.shape)


@wrong("conv_fft", "shortcut")
def fft_by_scipy(image, kernel):
    return signal.fftconvolve(image, kernel[::-1, ::-1], mode="valid")
