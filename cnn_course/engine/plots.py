"""Pictures for the notebooks: one style, small files, each with a caption and a description.

A PNG does not know the theme of its page, so every figure has its own background: dark ink on light paper,
readable in a light theme and in a dark one. The style is set on the figure, not by pyplot or ``rcParams``, so
any thread may draw. Only the functions that draw import Matplotlib and Pillow: checks import this module
where neither is installed.
"""

import base64
import html
import io
import itertools
import re
import threading
from dataclasses import dataclass

import numpy as np

from benchmarks.plots import COLOURS, FAINT, INK, PAPER, style  # noqa: F401  (FAINT is used by others)

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = COLOURS

DPI = 144
# Matplotlib is not thread-safe.
_DRAWING = threading.Lock()


@dataclass(frozen=True, repr=False)
class Picture:
    """A figure as notebooks show and store it.

    Parameters
    ----------
    png : bytes
    width : int
        Width on the page in CSS pixels.
    caption : str
        What to look at; shown below.
    alt : str
        A description for readers who cannot see the picture.
    """

    png: bytes
    width: int
    caption: str
    alt: str

    def __repr__(self):
        return f"Figure. {self.caption}\n[{self.alt}]"

    def _repr_html_(self):
        return f'<figure style="margin: 0.5em 0">{self._image()}{self._figcaption()}</figure>'

    def _image(self):
        data = base64.b64encode(self.png).decode()
        style = f"width: {self.width}px; max-width: 100%; border-radius: 6px"
        return f'<img src="data:image/png;base64,{data}" alt="{html.escape(self.alt)}" style="{style}">'

    def _figcaption(self):
        style = f"max-width: {self.width}px; font-style: italic; margin-top: 0.4em"
        return f'<figcaption style="{style}">{marked_up(self.caption)}</figcaption>'


@dataclass(frozen=True, repr=False)
class Film(Picture):
    """An animated picture, with a still one below it for print and a longer look.

    Parameters
    ----------
    still : Picture
        The last frame, or all steps.
    """

    still: Picture

    def _repr_html_(self):
        still = f"<details><summary>The same, standing still</summary>{self.still._image()}</details>"
        return f'<figure style="margin: 0.5em 0">{self._image()}{self._figcaption()}{still}</figure>'


def figure(rows=1, columns=1, size=(7.2, 2.6), **subplots):
    """Return a new figure in the course's style, and its axes: an array, if there are several.

    Parameters
    ----------
    rows, columns : int
    size : tuple of float
        Width and height in inches; 7.2 inches fill a notebook's column.
    **subplots
        Passed to `matplotlib.figure.Figure.subplots`.

    Examples
    --------
    >>> fig, axes = figure(1, 3)
    >>> axes.shape
    (3,)
    """
    fig = _new(size)
    axes = fig.subplots(rows, columns, **subplots)
    for ax in np.ravel(axes):
        style(ax, 10, labelsize=9, length=3)
        ax.set_prop_cycle(color=COLOURS)
    return fig, axes


def _new(size):
    from matplotlib.figure import Figure

    return Figure(figsize=size, facecolor=PAPER, layout="constrained")


def figure_in_two(size, heights):
    """Return a new figure with its upper and its lower part, whose axes need not line up.

    Examples
    --------
    >>> fig, top, bottom = figure_in_two((7.2, 5.0), (4.0, 1.0))
    >>> len(top.subplots(1, 2))
    2
    """
    fig = _new(size)
    parts = fig.subfigures(2, 1, height_ratios=heights)
    for part in parts:
        part.set_facecolor(PAPER)
    return fig, *parts


def picture(fig, caption, alt, colours=128) -> Picture:
    """Draw a figure as a small PNG with a caption and a description.

    Parameters
    ----------
    fig : matplotlib.figure.Figure or PIL.Image.Image
        An image is used unchanged.
    caption : str
        What to look at.
    alt : str
        A description for readers who cannot see the picture.
    colours : int
        Size of the PNG's palette: fewer colours make a smaller file. With 256 the palette follows frequent
        colours, which suits photographs; with fewer it keeps rare ones.

    Raises
    ------
    ValueError
        If the caption or the description is empty.

    Examples
    --------
    >>> fig, ax = figure()
    >>> picture(fig, caption="Nothing yet.", alt="Empty axes.")
    Figure. Nothing yet.
    [Empty axes.]
    """
    if not caption.strip() or not alt.strip():
        raise ValueError(f"a picture needs a caption and a description, got {caption!r} and {alt!r}")
    image, small = _with_palette(_drawn(fig), colours), io.BytesIO()
    image.save(small, format="png", optimize=True)
    return Picture(small.getvalue(), round(image.width * 96 / DPI), caption, alt)


def _drawn(fig):
    from PIL import Image

    if isinstance(fig, Image.Image):
        return fig
    full = io.BytesIO()
    with _DRAWING:
        # Images with square pixels get their size in a first layout; only then titles can be placed.
        fig.draw_without_rendering()
        fig.savefig(full, format="png", dpi=DPI, facecolor=fig.get_facecolor())
    return Image.open(full).convert("RGB")


def _with_palette(image, colours):
    from PIL.Image import Dither, Quantize

    # MAXCOVERAGE keeps a rare colour, such as a single marked point's.
    method = Quantize.MEDIANCUT if colours == 256 else Quantize.MAXCOVERAGE
    return image.quantize(colours, method=method, dither=Dither.NONE)


def film(frames, still, caption, alt, seconds=1.8, colours=64) -> Film:
    """Draw figures as an animated PNG, with a still picture.

    Parameters
    ----------
    frames : sequence of matplotlib.figure.Figure or PIL.Image.Image
        All of one size; shown in a loop, the last one for twice as long.
    still : matplotlib.figure.Figure or PIL.Image.Image
    caption, alt : str
        As for `picture`; they also apply to the still picture.
    seconds : float
        How long each frame stays.
    colours : int
        Size of the palette, which all frames share: at most 255.

    Examples
    --------
    >>> figures = [figure()[0] for _ in range(3)]
    >>> film(figures[:2], figures[2], caption="Nothing yet.", alt="Empty axes.").still.caption
    'Nothing yet.'
    """
    from PIL import Image, PngImagePlugin

    images = [_drawn(fig) for fig in frames]
    width, height = images[0].size
    strip = Image.new("RGB", (width, height * len(images)))
    for number, image in enumerate(images):
        strip.paste(image, (0, number * height))
    first, *others = _only_changes(_with_palette(strip, colours), height, clear=colours)
    stays = [round(1000 * seconds)] * len(others) + [round(2000 * seconds)]
    small, over = io.BytesIO(), {"transparency": colours, "blend": PngImagePlugin.Blend.OP_OVER}
    first.save(
        small,
        format="png",
        save_all=True,
        append_images=others,
        duration=stays,
        loop=0,
        optimize=True,
        **over,
    )
    return Film(
        small.getvalue(), round(width * 96 / DPI), caption, alt, picture(still, caption, alt, colours)
    )


def _only_changes(strip, height, clear):
    """Cut a strip into frames; pixels that do not change are transparent, which halves the bytes."""
    from PIL import Image

    rows = np.asarray(strip)
    frames = rows.reshape(-1, height, strip.width)
    changed = [frames[0], *(np.where(now == then, clear, now) for then, now in itertools.pairwise(frames))]
    palette = (strip.getpalette() + [0] * 768)[: 3 * clear + 3]
    images = [Image.fromarray(frame.astype(np.uint8)) for frame in changed]
    for image in images:
        image.putpalette(palette)
    return images


def busiest_maps(layers, count):
    """Return the maps of each layer that vary most, the busiest first.

    A layer with as many maps as the layer before, such as a pooling, has the same ones.

    Parameters
    ----------
    layers : list of ndarray, shape (C, H, W)
    count : int

    Returns
    -------
    list of ndarray
        Indices of channels, `count` for each layer.
    """
    found, before = [], None
    for maps in layers:
        if len(maps) != before:
            found.append(np.argsort(maps.std(axis=(1, 2)))[::-1][:count])
        else:
            found.append(found[-1])
        before = len(maps)
    return found


def show_image(ax, image, title="", numbers=False, cmap="gray", limits=None):
    """Draw a 2-D array as an image, each pixel a square, without ticks.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    image : array_like, shape (H, W)
        NaN leaves a pixel empty.
    title : str
    numbers : bool
        Write each value into its pixel.
    cmap : str or Colormap
        ``"gray"`` for pictures; ``"RdBu"`` for values of both signs, white at zero.
    limits : tuple of float, optional
        The values at both ends of the colour map. None takes the image's extremes, or with ``"RdBu"`` ends
        that are equally far from zero.

    Examples
    --------
    >>> fig, ax = figure()
    >>> show_image(ax, [[0, 1], [2, 3]], title="four pixels", numbers=True)
    """
    image = np.asarray(image, dtype=np.float64)
    if limits is None:
        largest = np.nanmax(np.abs(image)) or 1.0
        limits = (-largest, largest) if cmap == "RdBu" else (np.nanmin(image), np.nanmax(image))
    drawn = ax.imshow(image, cmap=cmap, vmin=limits[0], vmax=limits[1], interpolation="nearest")
    ax.set_title(title, fontsize=10, color=INK)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(True)
    if not numbers:
        return
    for (i, j), value in np.ndenumerate(image):
        if np.isfinite(value):
            # The pixel's Rec. 709 luminance decides between light and dark digits.
            light = np.dot(drawn.cmap(drawn.norm(value))[:3], (0.2126, 0.7152, 0.0722)) > 0.45
            ax.text(
                j, i, f"{value:.3g}", ha="center", va="center", fontsize=9, color=INK if light else "white"
            )


def images(panels, caption, alt, size=(7.2, 2.6), limits=None, missing=None) -> Picture:
    """Draw images side by side, each under its title.

    Parameters
    ----------
    panels : dict of str to array_like, shape (H, W)
    caption, alt : str
        As for `picture`.
    size : tuple of float
        Of the figure, in inches.
    limits : tuple of float, optional
        The values of black and white in all images; None takes each image's own.
    missing : str, optional
        Colour of NaN pixels.
    """
    fig, axes = figure(1, len(panels), size=size, squeeze=False)
    for ax, (title, image) in zip(axes[0], panels.items(), strict=True):
        show_image(ax, image, title, limits=limits)
        if missing is not None:
            ax.set_facecolor(missing)
    return picture(fig, caption, alt)


def outline(ax, row, column, height, width, colour=ORANGE):
    """Draw a frame around a block of an image's pixels.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    row, column : int
        The block's first pixel.
    height, width : int
        Its size in pixels.
    colour : str

    Examples
    --------
    >>> fig, ax = figure()
    >>> outline(ax, 0, 0, 3, 3)
    """
    from matplotlib.patches import Rectangle

    corner = (column - 0.5, row - 0.5)
    ax.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=colour, linewidth=2.5, clip_on=False))


def legend(ax, **where):
    """Draw a legend without a frame."""
    ax.legend(frameon=False, fontsize=9, labelcolor=INK, **where)


def box(ax, x, y, text, colour, width=0.62, height=0.48):
    """Draw a part of a diagram: white text in a box around (x, y)."""
    from matplotlib.patches import FancyBboxPatch

    corner, style = (x - width / 2, y - height / 2), "round,pad=0.04"
    ax.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=colour, edgecolor="none"))
    ax.text(x, y, text, ha="center", va="center", fontsize=10, color="white")


def arrow(ax, start, end, text="", offset=(0, 0.16)):
    """Draw an arrow of a diagram, with text at `offset` from its middle."""
    line = {"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=line)
    if text:
        place = [(a + b) / 2 + o for a, b, o in zip(start, end, offset, strict=True)]
        ax.text(*place, text, ha="center", va="center", fontsize=10, color=INK)


def marked_up(text: str) -> str:
    """Return a text as HTML; backticks mark code.

    >>> marked_up("`i < n` for all")
    '<code>i &lt; n</code> for all'
    """
    return re.sub("`(.*?)`", r"<code>\1</code>", html.escape(text, quote=False))


def in_widget(picture) -> str:
    """Return a picture as HTML for a widget, with the line height of a notebook's text.

    >>> in_widget(Picture(b"", 100, "One line.", "A line."))[:40]
    '<div style="line-height: var(--jp-conten'
    """
    style = "line-height: var(--jp-content-line-height, 1.5); font-size: var(--jp-content-font-size1, 14px)"
    return f'<div style="{style}">{picture._repr_html_()}</div>'


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 block, 2 blocks."""
    return f"{number} {noun}{'s' if number != 1 else ''}"
