"""Pictures of notebooks 01 to 03: sliding windows, filtered images, signals and their correlations."""

import io

import numpy as np
from PIL import Image

from cnn_course.engine import plots

# Milliseconds that a step of an animation stays visible, and those of the last step.
_STEP, _LAST = 700, 2500


# --- images ------------------------------------------------------------------------------------------------


def filters_picture(digit, seen) -> plots.Picture:
    """Draw a digit, and the results of filters on it.

    Parameters
    ----------
    digit : ndarray
    seen : dict of str to ndarray
        Results by the filters' names: a blur, then five filters whose results have both signs.
    """
    fig, axes = plots.figure(2, 3, size=(7.2, 4.9))
    plots.show_image(axes[0, 0], digit, "the digit")
    for ax, (name, result) in zip(axes.ravel()[1:], seen.items(), strict=True):
        plots.show_image(ax, result, name, cmap="gray" if name == "blur" else "RdBu")
    return plots.picture(
        fig,
        "One digit, five filters. Blue is positive, red negative, white zero.",
        "A handwritten five and the results of five filters: a blurred five; its left and right edges; its "
        "upper and lower edges; a thin outline; and the strokes that run along the falling diagonal.",
    )


def flip_picture(kernel, pixel, correlated, convolved) -> plots.Picture:
    """Draw a kernel in the shape of an F, a single pixel, and their correlation and convolution."""
    images = {"kernel": kernel, "the image": pixel, "cross-correlation": correlated, "convolution": convolved}
    return plots.picture(
        _row(images),
        "A single bright pixel draws the kernel: turned by 180 degrees, or, with the flip, upright.",
        "A kernel in the shape of the letter F, an image with one bright pixel, and two results: "
        "cross-correlation draws the F rotated by 180 degrees, convolution draws it upright.",
    )


def mirror_picture(images, mirrored) -> plots.Picture:
    """Draw images above the results of the reader's kernel."""
    fig, axes = plots.figure(2, len(images), size=(7.2, 0.5 + 14.4 / len(images)))
    for column, image, mine in zip(axes.T, images, mirrored, strict=True):
        plots.show_image(column[0], image, limits=(0, 255))
        _yours_or_pale(column[1], mine, image[:, ::-1], limits=(0, 255))
    axes[0, 0].set_ylabel("images")
    axes[1, 0].set_ylabel("yours")
    return plots.picture(
        fig,
        "Above: images. Below: the results of your kernel. Pale: the right results.",
        f"A row of {len(images)} handwritten digits. Below each the digit as a mirror shows it: pale until "
        "the exercise is solved.",
    )


def _yours_or_pale(ax, yours, right, title="", **how):
    """Draw the result of the reader's kernel, or, if it's all zeros, the right result in pale."""
    plots.show_image(ax, yours if yours.any() else right, title, **how)
    if not yours.any():
        ax.images[0].set_alpha(0.25)


def edges_picture(digit, right, yours) -> plots.Picture:
    """Draw a digit, its vertical edges, and those that the reader's kernel finds."""
    fig, axes = plots.figure(1, 3, size=(7.2, 0.4 + 7.0 / 3))
    signed = {"cmap": "RdBu", "limits": (-np.abs(right).max(), np.abs(right).max())}
    plots.show_image(axes[0], digit, "the digit")
    plots.show_image(axes[1], right, "conv_cpu", **signed)
    _yours_or_pale(axes[2], yours, right, "your kernel", **signed)
    return plots.picture(
        fig,
        "Left edges blue, right edges red. Pale: the right result of your kernel.",
        "A handwritten digit; its left edges in blue and its right edges in red, as notebook 01's loops "
        "compute them; and the same from the exercise's kernel, pale until it is solved.",
    )


def maps_picture(digits, filters, maps) -> plots.Picture:
    """Draw filters in a row, and below it a row for each digit with the results of the filters.

    Parameters
    ----------
    digits : ndarray, shape (digits, H, W)
    filters : ndarray, shape (filters, K_h, K_w)
    maps : ndarray, shape (digits, filters, H_out, W_out)
    """
    rows, columns = 1 + len(digits), 1 + len(filters)
    fig, axes = plots.figure(rows, columns, size=(7.2, 0.4 + 7.0 * rows / columns))
    axes[0, 0].set_visible(False)
    for k, weights in enumerate(filters):
        plots.show_image(axes[0, k + 1], weights, f"filter {k}", cmap="RdBu")
    for row, (digit, of_digit) in enumerate(zip(digits, maps, strict=True), start=1):
        plots.show_image(axes[row, 0], digit)
        for ax, feature_map in zip(axes[row, 1:], of_digit, strict=True):
            plots.show_image(ax, feature_map, cmap="RdBu")
    return plots.picture(
        fig,
        f"{plots.counted(len(filters), 'learned filter')}, and the result of each on a digit. Blue is "
        "positive, red negative.",
        f"A row of 3 by 3 filters, squares of red and blue. Below it {plots.counted(len(digits), 'row')}: a "
        "handwritten digit, then the digit convolved with each filter; several answer to edges in one "
        "direction or another.",
    )


def _row(images, signed=None):
    """Return a figure of images side by side; `signed` has the limits of those with both signs."""
    signed = signed or {}
    fig, axes = plots.figure(1, len(images), size=(7.2, 0.4 + 7.0 / len(images)))
    for ax, (name, image) in zip(axes, images.items(), strict=True):
        most = signed.get(name)
        if most is None:
            plots.show_image(ax, image, name)
        else:
            plots.show_image(ax, image, name, cmap="RdBu", limits=(-most, most))
    return fig


# --- windows -----------------------------------------------------------------------------------------------


def sliding_window(image, kernel, result) -> plots.Picture:
    """Draw a kernel that slides over a small image, output after output, as an animation.

    On paper, or where animations don't run, the last step is shown.

    Parameters
    ----------
    image, kernel, result : ndarray
        Small: their numbers are shown. `result` is the valid convolution.
    """
    frames = [_window_frame(image, kernel, result, step) for step in range(result.size)]
    caption = (
        f"The window at its {result.size} positions, and the outputs so far. Blue: brighter on the right; "
        "red: on the left."
    )
    alt = (
        f"A {kernel.shape[0]} by {kernel.shape[1]} window moves over a small picture of a one, row by row. "
        f"Beside it the outputs appear one by one: a {result.shape[0]} by {result.shape[1]} result that is "
        "positive left of the stroke and negative right of it."
    )
    return _animation(frames, caption, alt)


def _window_frame(image, kernel, result, step):
    row, column = divmod(step, result.shape[1])
    so_far = np.where(np.arange(result.size) <= step, result.ravel(), np.nan).reshape(result.shape)
    most = np.abs(result).max()
    fig, axes = plots.figure(1, 3, size=(7.2, 3.1), width_ratios=[3, 5, 3])
    plots.show_image(axes[0], kernel, "the kernel", numbers=True, cmap="RdBu")
    plots.show_image(axes[1], image, f"step {step + 1} of {result.size}", numbers=True)
    plots.show_image(axes[2], so_far, "outputs so far", numbers=True, cmap="RdBu", limits=(-most, most))
    plots.outline(axes[1], row, column, *kernel.shape)
    plots.outline(axes[2], row, column, 1, 1)
    return fig


def _animation(figures, caption, alt):
    """Draw figures as the frames of an animated PNG; without animation it shows the last frame."""
    stills = [plots.picture(fig, caption, alt) for fig in figures]
    frames = [np.array(Image.open(io.BytesIO(still.png)).convert("RGB")) for still in stills]
    # One palette for all frames.
    strip = Image.fromarray(np.concatenate([frames[-1], *frames]))
    strip = strip.quantize(128, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    height = len(frames[0])
    still, *moving = (
        strip.crop((0, top, strip.width, top + height)) for top in range(0, strip.height, height)
    )
    file = io.BytesIO()
    still.save(
        file,
        format="png",
        save_all=True,
        default_image=True,
        append_images=moving,
        duration=[_STEP] * (len(moving) - 1) + [_LAST],
        loop=0,
    )
    return plots.Picture(file.getvalue(), stills[-1].width, caption, alt)


def modes_picture(image_size, kernel_size, sizes) -> plots.Picture:
    """Draw the first and the last position of a window in each mode.

    Parameters
    ----------
    image_size : tuple of int
    kernel_size : int
        Of a square window.
    sizes : dict of str to tuple of int
        The size of the result for the modes valid, same and full, in this order.
    """
    height, width = image_size
    most = kernel_size - 1
    borders = (0, most // 2, most)
    fig, axes = plots.figure(1, len(sizes), size=(7.2, 2.5))
    for ax, border, (mode, size) in zip(axes, borders, sizes.items(), strict=True):
        canvas = np.pad(np.full(image_size, 0.75), most)
        canvas += 0.1 * (np.indices(canvas.shape).sum(axis=0) % 2)
        plots.show_image(ax, canvas, f"{mode}: {size[0]} x {size[1]} outputs", limits=(-1.5, 1))
        first = most - border
        for name, place, colour in (
            ("first", (first, first), plots.ORANGE),
            ("last", (first + size[0] - 1, first + size[1] - 1), plots.BLUE),
        ):
            plots.outline(ax, *place, kernel_size, kernel_size, colour)
            middle = place[1] + most / 2, place[0] + most / 2
            ax.text(*middle, name, ha="center", va="center", fontsize=9, color=plots.INK)
    return plots.picture(
        fig,
        f"The first and the last position of a {kernel_size} x {kernel_size} window on an image of {height} "
        f"x {width} pixels, within its border of zeros.",
        f"Three copies of a light {height} by {width} image within a darker border of zeros. In valid mode "
        "both windows lie inside the image, in same mode they overhang by one pixel, in full mode they touch "
        "a corner.",
    )


# --- signals -----------------------------------------------------------------------------------------------


def echo_picture(received, scores, pulse=None, hidden=None, first=0) -> plots.Picture:
    """Draw a noisy signal above its correlation with a pulse, the peak marked.

    Parameters
    ----------
    received, scores : ndarray
        The received signal, and the correlation at each position of the window.
    pulse : ndarray, optional
        The pulse that was sent; drawn in its own row.
    hidden : int, optional
        Where the pulse begins in `received`; it's shaded.
    first : int
        The number of the first sample, in a part of a longer signal.
    """
    rows, best = 2 + (pulse is not None), int(scores.argmax())
    fig, axes = plots.figure(rows, 1, size=(7.2, 0.2 + 1.45 * rows), sharex=True)
    if pulse is not None:
        axes[0].plot(pulse)
        axes[0].set_ylabel("sent")
    axes[-2].plot(first + np.arange(len(received)), received, linewidth=0.8)
    axes[-2].set_ylabel("received")
    if hidden is not None:
        axes[-2].axvspan(hidden, hidden + len(pulse), color=plots.ORANGE, alpha=0.3, linewidth=0)
    ax = axes[-1]
    ax.plot(first + np.arange(len(scores)), scores, linewidth=0.8)
    ax.plot(first + best, scores[best], "o", color=plots.ORANGE)
    ax.annotate(f"  {first + best}", (first + best, scores[best]), va="center", fontsize=9)
    ax.ticklabel_format(axis="x", useOffset=False)
    ax.set(ylabel="correlation", xlabel="sample, or place of the window")
    caption = "The eye doesn't find the pulse in the received signal (shaded), but the correlation does."
    if pulse is None:
        caption = "One thread computes each point of the lower curve. One of them has found the pulse."
    return plots.picture(
        fig,
        caption,
        f"{'A short chirp; a' if pulse is not None else 'A'} noisy signal of {len(received)} samples; and "
        "its correlation with a pulse that is hidden in it, low and ragged but for one sharp peak at "
        f"{first + best}.",
    )


def noise_picture(levels, found) -> plots.Picture:
    """Draw how many of the delays were found (in per cent) at each strength of the noise."""
    fig, ax = plots.figure(size=(7.2, 2.4))
    ax.plot(levels, found, "o-")
    ax.set(xlabel="strength of the noise (the pulse's height is 1)", ylabel="delays found, %", ylim=(0, 105))
    return plots.picture(
        fig,
        "The share of 200 noisy signals, at each strength, whose exact delay was found.",
        "A curve that stays at 100 percent up to noise as strong as the pulse, falls below one half near "
        "twice the pulse, and slowly approaches zero beyond four times.",
    )


def fft_picture(sizes, race) -> plots.Picture:
    """Draw the times of a ledger's rungs over the size of the kernel.

    Parameters
    ----------
    sizes : sequence of int
    race : cnn_course.engine.ledger.Ledger
        Its rungs are "direct" and "FFT", each timed once per size, in this order.
    """
    fig, ax = plots.figure(size=(7.2, 3.0))
    for name, marker in (("direct", "o"), ("FFT", "s")):
        milliseconds = [1e3 * rung.seconds for rung in race.rungs if rung.name == name]
        ax.plot(sizes, milliseconds, marker=marker, label=name)
    ax.set(yscale="log", xlabel="side of the kernel", ylabel="milliseconds")
    ax.legend(frameon=False, fontsize=9)
    return plots.picture(
        fig,
        "On a 512 x 512 image: the time of direct summation grows with the kernel's area, that of the FFT "
        "stays the same.",
        f"Time against kernel size from {sizes[0]} to {sizes[-1]}, logarithmic. The direct loops start far "
        "below the FFT and rise steeply; the FFT's line is nearly level, and the two cross at a medium "
        "kernel size.",
    )


def lags_picture(right, yours, period, signal=None, whose="the package's", xlabel="lag") -> plots.Picture:
    """Draw an autocorrelation, and over it the result of the reader's function.

    Parameters
    ----------
    right, yours : ndarray
        The right one, and the result of the reader's function.
    period : int
        The number of samples after which the signal repeats.
    signal : ndarray, optional
        Drawn above.
    whose : str
        Who computed the right one.
    xlabel : str
    """
    rows = 1 + (signal is not None)
    fig, axes = plots.figure(rows, 1, size=(7.2, 0.6 + 1.6 * rows), squeeze=False)
    if signal is not None:
        axes[0, 0].plot(signal, linewidth=0.9)
        axes[0, 0].set(xlabel="sample", ylabel="signal")
    ax = axes[-1, 0]
    ax.plot(right, color=plots.FAINT, linewidth=6, label=whose)
    ax.plot(yours[: len(right)], color=plots.RED, linewidth=1.2, label="yours")
    ax.set(xticks=range(0, len(right), period), xlabel=xlabel, ylabel="autocorrelation")
    ax.legend(frameon=False, fontsize=9)
    alt = (
        f"The autocorrelation of a noisy wave, a broad grey curve with peaks at lags 0, {period}, "
        f"{2 * period} and so on; over it the thin curve of the exercise's function, which agrees once the "
        "function is right."
    )
    if signal is not None:
        alt = f"Above, a noisy wave of {len(signal)} samples. Below: {alt[0].lower()}{alt[1:]}"
    return plots.picture(
        fig,
        f"Broad and grey: the autocorrelation, with a peak at lag 0 and at each multiple of {period}. Thin: "
        "yours.",
        alt,
    )
