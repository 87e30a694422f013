"""A pad to draw a digit on, which a network reads while you draw: `DigitPad`.

Drawings and opened picture files go through `cnn_numba.prepare_digit`, as every picture for a network trained
on MNIST must. Where no widget can be shown, there is a still picture.
"""

import io
from pathlib import Path

import anywidget
import numpy as np
import traitlets
from PIL import Image, ImageDraw, UnidentifiedImageError

from cnn_course.engine import plots
from cnn_numba.data.digits import prepare_digit

# Pixels along an edge of the drawing, as in pad.js.
SIZE = 140
_EMPTY = "Draw a digit."
# A three, as two arcs: the box of an ellipse, and from which angle to which.
_THREE = [((45, 22, 93, 70), 205, 90), ((40, 62, 98, 118), 270, 155)]


def _bytes():
    return traitlets.Bytes(b"").tag(sync=True, from_json=lambda value, widget: bytes(value))


class DigitPad(anywidget.AnyWidget):
    """A drawing pad, the network's answers beside it, and the network's input.

    Parameters
    ----------
    read : callable
        Takes a digit of shape (1, 28, 28), uint8, ink 255 on paper 0; returns ten probabilities.

    Attributes
    ----------
    drawing : bytes
        The ink, `SIZE` x `SIZE` pixels; set by the browser after each move of the pen.
    upload : bytes
        The content of a picture file; set by the browser.
    seen : bytes
        The prepared digit's 784 pixels; none if there is no digit.
    chances : list of float
        What `read` returned for it.
    message : str

    Examples
    --------
    >>> pad = DigitPad(lambda digit: np.eye(10)[3])
    >>> pad.drawing = example_drawing().tobytes()
    >>> pad.message, len(pad.seen)
    ('This is a 3.', 784)
    """

    _esm = Path(__file__).with_name("pad.js")
    _css = Path(__file__).with_name("pad.css")

    drawing = _bytes()
    upload = _bytes()
    seen = _bytes()
    chances = traitlets.List(traitlets.Float()).tag(sync=True)
    message = traitlets.Unicode(_EMPTY).tag(sync=True)

    def __init__(self, read):
        self._read = read
        super().__init__()
        self.observe(self._drawn, "drawing")
        self.observe(self._uploaded, "upload")

    def _drawn(self, change):
        if change.new:
            self._show(np.frombuffer(change.new, np.uint8).reshape(SIZE, SIZE))

    def _uploaded(self, change):
        if change.new:
            self._show(io.BytesIO(change.new))
            # Empty, so that the same drawing or file counts as a change when it comes again.
            self.drawing = self.upload = b""

    def _show(self, picture):
        """Read a picture, an array or a file, and show the answer."""
        with self.hold_sync():
            try:
                digit, chances = self._answer(picture)
            except (ValueError, OSError) as error:
                why = "the file is no picture" if isinstance(error, UnidentifiedImageError) else error
                drawn = isinstance(picture, np.ndarray)
                self.seen, self.chances = b"", []
                self.message = _EMPTY if drawn else f"No digit could be read: {why}"
                return
            self.seen, self.chances = digit.tobytes(), chances.tolist()
            answer = chances.argmax()
            self.message = f"This is {'an' if answer == 8 else 'a'} {answer}."

    def _answer(self, picture):
        digit = prepare_digit(picture if isinstance(picture, np.ndarray) else Image.open(picture))
        return digit, np.asarray(self._read(digit), np.float64)

    def _repr_mimebundle_(self, **options):
        """Return the widget, and a picture for readers of the notebook without a kernel."""
        bundle, metadata = super()._repr_mimebundle_(**options)
        still = reading_picture(example_drawing(), *self._answer(example_drawing()))
        return bundle | {"text/plain": repr(still), "text/html": still._repr_html_()}, metadata


def example_drawing(share=1.0):
    """Return a three as a reader might draw it on the pad.

    Parameters
    ----------
    share : float
        How much of it is drawn already.

    Returns
    -------
    ndarray, shape (140, 140), uint8
        0 is paper, 255 is ink.
    """
    paper = Image.new("L", (SIZE, SIZE))
    pen = ImageDraw.Draw(paper)
    for number, (box, start, end) in enumerate(_THREE):
        drawn = min(max(share * len(_THREE) - number, 0.0), 1.0) * ((end - start) % 360)
        if drawn:
            pen.arc(box, start, start + drawn, fill=255, width=11)
    return np.asarray(paper)


def reading_picture(drawing, digit, chances) -> plots.Picture:
    """Draw a drawing, the network's input, and its answer.

    Parameters
    ----------
    drawing : ndarray, shape (H, W)
    digit : ndarray, shape (1, 28, 28)
    chances : ndarray, shape (10,)
    """
    fig, axes = plots.figure(1, 3, size=(7.2, 2.4), width_ratios=[1, 1, 1.3])
    plots.show_image(axes[0], drawing, "the picture", limits=(0, 255))
    plots.show_image(axes[1], digit[0], "what the network sees", limits=(0, 255))
    axes[2].barh(range(10), chances, color=plots.BLUE)
    axes[2].set_yticks(range(10))
    axes[2].invert_yaxis()
    axes[2].set_xlim(0, 1)
    axes[2].set_title("its answer", fontsize=10, color=plots.INK)
    return plots.picture(
        fig,
        "A picture of a digit, the same digit prepared as in MNIST, and the network's probability of each "
        "digit.",
        "On the left a large drawing of a digit. In the middle the same digit, 28 by 28 pixels, centred. On "
        "the right ten bars, one for each digit from 0 to 9.",
    )
