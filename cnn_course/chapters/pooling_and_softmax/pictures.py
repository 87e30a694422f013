"""What notebook 05 draws of pooling: a digit made smaller, and how often each pixel is in a window."""

from cnn_course.engine import plots


def pooled_picture(digit, average, maximum) -> plots.Picture:
    """Draw a digit and what average and max pooling make of it."""
    return plots.images(
        {"28 x 28 pixels": digit, "average of 2 x 2": average, "maximum of 2 x 2": maximum},
        "A digit, and two versions of it with a quarter of the pixels. The maximum keeps strokes bright.",
        "Three pictures of a handwritten seven: the original, a coarse one that is blurred and greyer, and a "
        "coarse one in which the strokes are as bright as before and thicker.",
        size=(7.2, 2.5),
        limits=(0, 255),
    )


def windows_picture(reads, kernel, stride) -> plots.Picture:
    """Draw how often each pixel is read, which is the number of windows that contain it.

    Parameters
    ----------
    reads : ndarray of int, shape (H, W)
    kernel, stride : int
        Of the windows.
    """
    height, width = reads.shape
    rows, columns = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    fig, ax = plots.figure(size=(3.6, 3.4))
    plots.show_image(ax, reads, numbers=True, cmap="Blues", limits=(0, 20))
    return plots.picture(
        fig,
        f"Windows of {kernel} x {kernel}, stride {stride}, on {height} x {width} pixels: {rows} x {columns} "
        f"outputs. A pixel lies in {reads.min()} to {reads.max()} windows.",
        f"{height} by {width} pixels, each with the number of windows that hold it; the more, the darker.",
    )
