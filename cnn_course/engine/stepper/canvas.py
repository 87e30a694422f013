"""Draws boxes and short texts with Pillow, a hundred times faster than Matplotlib."""

import functools
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from cnn_course.engine import plots

_SCALE = plots.DPI / 72


class Canvas:
    """An image whose size and coordinates are in points, from its upper left corner."""

    def __init__(self, width, height):
        self.image = Image.new("RGB", (round(width * _SCALE), round(height * _SCALE)), plots.PAPER)
        self._draw = ImageDraw.Draw(self.image)

    def box(self, x, y, width, height, colour=None, frame=None):
        """Fill a rectangle, or draw a frame around it."""
        left, top, right, bottom = (round(each * _SCALE) for each in (x, y, x + width, y + height))
        self._draw.rectangle((left, top, right - 1, bottom - 1), fill=colour, outline=frame, width=2)

    def text(self, x, y, text, size, colour=plots.INK, align="left", font="DejaVuSans"):
        """Write a line of text at `x`, vertically centred at `y`."""
        anchor = {"left": "lm", "center": "mm", "right": "rm"}[align]
        place = round(x * _SCALE), round(y * _SCALE)
        self._draw.text(place, str(text), font=_font(font, size), fill=colour, anchor=anchor)


def letters(width, size):
    """Return how many characters of code fit into a width."""
    return int(width * _SCALE / _font("DejaVuSansMono", size).getlength("0"))


@functools.cache
def _font(name, size):
    path = Path(matplotlib.get_data_path()) / f"fonts/ttf/{name}.ttf"
    # Pillow's own layout is the same everywhere.
    return ImageFont.truetype(str(path), round(size * _SCALE), layout_engine=ImageFont.Layout.BASIC)
