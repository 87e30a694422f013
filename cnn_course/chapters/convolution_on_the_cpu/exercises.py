"""The checks of notebook 01, ``01_convolution_on_the_cpu``."""

import itertools
import re

import numpy as np
from numpy import fft  # with SciPy's interface, so the check needs only NumPy

from cnn_course.engine.checks.evidence import call
from cnn_course.engine.checks.exercise import Exercise, Wrong, avoids, case
from cnn_numba.ops.conv.reference import conv_cpu, correlate_cpu


def _images_and_kernels(rng):
    """Draw a small image first, then other shapes, a kernel that just fits, and integers."""
    shapes = [((3, 4), (2, 2)), ((4, 4), (3, 3)), ((5, 8), (3, 2)), ((9, 4), (2, 4)), ((6, 6), (2, 2))]
    shapes += [((7, 5), (4, 3)), ((6, 3), (1, 1)), ((4, 7), (1, 5)), ((5, 7), (5, 7))]
    cases = [(rng.normal(size=image), rng.normal(size=kernel)) for image, kernel in shapes]
    # Integer pixels and fractional weights: the sums aren't integers.
    return [*cases, (rng.integers(1, 100, (5, 6)), rng.normal(size=(2, 3)))]


def _placed(image, kernel):
    """Return the valid region in the corner of an array of the image's size."""
    valid, out = conv_cpu(image, kernel), np.zeros(image.shape)
    out[: valid.shape[0], : valid.shape[1]] = valid
    return out


def _centred(image, kernel):
    """Return the valid region in the middle of an array of the image's size."""
    before = [((k - 1) // 2, k // 2) for k in kernel.shape]
    return np.pad(conv_cpu(image, kernel), before)


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


def _only_last_product(image, kernel):
    out_h, out_w = (size - k + 1 for size, k in zip(image.shape, kernel.shape, strict=True))
    return image[-out_h:, -out_w:] * kernel[-1, -1]


_FLIPPED = (
    "Your filter is flipped: `{kernel}[0, 0]` meets the window's last pixel, not its first. That is the "
    "mathematical convolution. Don't flip the kernel here."
)

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
    cases=_images_and_kernels,
    properties=(avoids("conv_cpu", "correlate2d", "convolve2d", "fftconvolve", "correlate", "convolve"),),
    mistakes={
        "flipped": (
            _FLIPPED,
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
            _placed,
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


def _with_kernel(change):
    return lambda image, kernel: conv_cpu(image, change(kernel))


convolve = Exercise(
    "convolve",
    reference=lambda image, kernel: conv_cpu(image, kernel, flip=True),
    cases=_images_and_kernels,
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
    cases=_images_and_kernels,
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
            _placed,
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
            _FLIPPED,
            lambda image, kernel: conv_cpu(image, kernel, mode="same", flip=True),
            ("conv_cpu(np.pad(image, border), kernel)", 'signal.convolve2d(image, kernel, mode="same")'),
        ),
    },
)


# The mistakes: the repair that is missing, and the slip that puts the mistake into the solution.
_REPAIRS = {
    "reversed": (
        "the signal meets its reversed self: that is the convolution x * x",
        ('np.correlate(signal, signal, mode="full")', "np.convolve(signal, signal)"),
    ),
    "default slice": (
        "without a delay the result does not start at lag 0, the centre of `full`",
        ("delay = 0", "delay = n // 2 - (n - 1)"),
    ),
    "int only": (
        "a delay that is a NumPy integer is ignored",
        ("if delay is None:", "if not isinstance(delay, int):"),
    ),
    "unchecked": (
        "not every delay outside -(n - 1) to n - 1 is refused with a ValueError; n is one of them",
        ("if not -n < delay < n:", "if False:"),
    ),
}


def _article(left):
    """Return `correlate_cpu` with some of the article's mistakes left in it."""

    def correlate(signal, delay=None):
        n = len(signal)
        full = np.correlate(signal, signal[::-1] if "reversed" in left else signal, mode="full")
        given = isinstance(delay, int) if "int only" in left else delay is not None
        if not given:
            return full[n // 2 if "default slice" in left else n - 1 :]
        if "unchecked" not in left and not -n < delay < n:
            raise ValueError(f"delay {delay} for a signal of {n} samples")
        return full[n - 1 + delay :]

    return correlate


def _partly_repaired():
    """Return all answers that repair some of the four mistakes but not all."""
    mistakes = {}
    for count in range(1, len(_REPAIRS)):
        for left in itertools.combinations(_REPAIRS, count):
            texts, slips = zip(*map(_REPAIRS.get, left), strict=True)
            mistakes[" + ".join(left)] = f"Still to repair: {'; '.join(texts)}.", _article(left), list(slips)
    return mistakes


def _signals(rng):
    """Draw signals of odd and even length, with every kind of delay, right and wrong."""
    x = {n: rng.normal(size=n) for n in (1, 5, 8, 13)}
    cases = [case(x[5]), case(x[8]), case(x[13]), case(x[1])]
    cases += [case(x[8], 3), case(x[5], delay=0), case(x[13], 12), case(x[8], delay=-2), case(x[5], -4)]
    cases += [case(x[8], np.int64(2)), case(x[13], np.int32(-5)), case(x[5], delay=np.uint8(1))]
    return [*cases, case(x[5], 5), case(x[8], -8), case(x[13], np.int64(40)), case(x[5], -30)]


def _circular(signal, delay=None):
    n = len(signal)
    lags = range(0 if delay is None else delay, n)
    return np.array([signal @ np.roll(signal, -d) for d in lags])


def _names_the_delay(attempt):
    """Demand that the message of the ValueError contains the delay, as a separate number."""
    for delay in (40, -30):
        refusal = call(attempt, case(np.arange(5.0), delay))
        if not re.search(rf"(?<![\d.-]){delay}(?!\d)", str(refusal.error)):
            raise Wrong(
                "delay not named",
                "The numbers are right, and you raise the ValueError when you should. But its message "
                "doesn't name the delay: put `delay` into it.",
                f"Seen with `delay` = {delay}: the message is `{refusal.error}`.",
            )


autocorrelation = Exercise(
    "autocorrelation",
    reference=correlate_cpu,
    cases=_signals,
    starts_as=_article(tuple(_REPAIRS)),
    properties=(avoids("correlate_cpu"), _names_the_delay),
    mistakes={
        **_partly_repaired(),
        "normalised": (
            "You divide by the value at lag 0, a common convention. Here r[0] is the energy of the signal.",
            lambda signal, delay=None: correlate_cpu(signal, delay) / (signal @ signal),
            ("full[n - 1 + delay :]", "full[n - 1 + delay :] / np.sum(signal**2)"),
        ),
        "averaged": (
            "You divide by the number of samples. Just sum the products here.",
            lambda signal, delay=None: correlate_cpu(signal, delay) / len(signal),
            ("full[n - 1 + delay :]", "full[n - 1 + delay :] / signal.size"),
        ),
        "circular": (
            "Your signal wraps around. Treat it as zero outside its samples.",
            _circular,
            [
                (
                    'full = np.correlate(signal, signal, mode="full")',
                    "around = fft.irfft(np.abs(fft.rfft(signal)) ** 2, n)",
                ),
                ("full[n - 1 + delay :]", "np.array([around[d % n] for d in range(delay, n)])"),
            ],
        ),
        "all lags": (
            "Without a delay you return the negative lags too. Start the result at lag 0.",
            lambda signal, delay=None: correlate_cpu(signal, 1 - len(signal) if delay is None else delay),
            ("delay = 0", "delay = 1 - n"),
        ),
        "mean removed": (
            "You subtract the mean first, as in statistics. Use the signal itself here.",
            lambda signal, delay=None: correlate_cpu(signal - signal.mean(), delay),
            ("n = len(signal)", "n = len(signal)\nsignal = signal - np.mean(signal)"),
        ),
    },
)


def _by_fft(spectrum=np.conj, of_image=np.positive, size_given=True, crop=True, corner=(0, 0)):
    """Return an FFT convolution; the arguments make it wrong."""

    def conv(image, kernel):
        product = of_image(fft.rfft2(image)) * spectrum(fft.rfft2(kernel, s=image.shape))
        out = fft.irfft2(product, s=image.shape if size_given else None)
        if not crop:
            return out
        row, column = (c * (k - 1) for c, k in zip(corner, kernel.shape, strict=True))
        height, width = (size - k + 1 for size, k in zip(image.shape, kernel.shape, strict=True))
        return out[row : row + height, column : column + width]

    return conv


conv_fft = Exercise(
    "conv_fft",
    reference=conv_cpu,
    cases=_images_and_kernels,
    properties=(avoids("conv_cpu", "correlate2d", "convolve2d", "fftconvolve", "oaconvolve", "correlate"),),
    mistakes={
        "flipped": (
            "Your filter is flipped: take the complex conjugate of the kernel's spectrum.",
            _by_fft(np.positive, corner=(1, 1)),
            [
                ("np.conj(fft.rfft2(kernel, s=image.shape))", "fft.rfft2(kernel, s=image.shape)"),
                (
                    "wrapped[: image.shape[0] - kernel.shape[0] + 1, : image.shape[1] - kernel.shape[1] + 1]",
                    "wrapped[kernel.shape[0] - 1 :, kernel.shape[1] - 1 :]",
                ),
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
            ("[: image.shape[0] - kernel.shape[0] + 1, : image.shape[1] - kernel.shape[1] + 1]", ""),
        ),
        "wrong corner": (
            "You cut out the wrong part: the first window is output (0, 0); the last outputs wrap around.",
            _by_fft(corner=(1, 1)),
            (
                "wrapped[: image.shape[0] - kernel.shape[0] + 1, : image.shape[1] - kernel.shape[1] + 1]",
                "wrapped[kernel.shape[0] - 1 :, kernel.shape[1] - 1 :]",
            ),
        ),
        "size not given": (
            "Right for even widths only, which `irfft2` assumes. Give it `s={image}.shape`.",
            _by_fft(size_given=False),
            ("fft.irfft2(spectrum, s=image.shape)", "fft.irfft2(spectrum)"),
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
