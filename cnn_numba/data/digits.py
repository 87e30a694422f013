"""Conversion of pictures of handwritten digits to MNIST's format."""

import contextlib
import math
import warnings
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import numpy as np
import scipy  # not scipy.ndimage, which takes a sixth of a second: SciPy loads it at first use
from PIL import Image, ImageOps, UnidentifiedImageError

from cnn_numba.arguments import instance

#: A file, or the picture itself.
Picture = str | PathLike | np.ndarray | Image.Image

# As the makers of MNIST did: the digit fits a box of 20 pixels, its centre of mass is the centre of 28.
_BOX, _FIELD, _CENTRE = 20, 28, 14.0
# Differences below a hundredth of the range come from the camera or the compression, not from the pen.
_FAINTEST = 0.01
_RIM = 0.1
# Larger pictures are shrunk first: the result has only 20 pixels.
_LARGEST = 800
# A file with more pixels would take hundreds of megabytes: it is read in a smaller size, or refused.
_MOST_PIXELS = 25_000_000
#: The formats that are read. Pillow passes some of the others to other programs, such as EPS to Ghostscript.
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "JPEG2000", "PPM", "TGA", "ICO")
# If the brightness varies less than this share of the colours, the colours separate ink from paper.
_DULL = 0.2

# The digit is located on a coarse copy of at most this many pixels per side, which is less noisy.
_COARSE = 160
# As shares of the picture's side: strokes are narrower, digits longer.
_WIDEST_STROKE, _SHORTEST_DIGIT = 0.4, 0.15
# The largest distance of a detached piece, such as the bar of a 5, as a share of the digit's length.
_DETACHED = 0.25
_DIAGONALS_TOO = np.ones((3, 3))
_BLANK = "there is no digit in the picture: it is blank"

# The brightness of the upper and lower half of each character.
_BLOCKS = {shade: (level / 4,) * 2 for level, shade in enumerate(" ░▒▓█")} | {"▀": (1, 0), "▄": (0, 1)}
_ASCII = {shade: (level / 9,) * 2 for level, shade in enumerate(" .:-=+*#%@")}


def prepare_digit(image: Picture) -> np.ndarray:
    """Convert a picture of one handwritten digit to an image like MNIST's.

    The ink may be darker or lighter than the paper, the light even or not. Things that touch the picture's
    edge or surround the digit, such as the table, a frame or a ruled line, are removed if the digit does not
    touch them. The ink is stretched to the full range, cut out, scaled to fit a box of 20 x 20 pixels and
    placed with its centre of mass in the centre of 28 x 28, as described at http://yann.lecun.com/exdb/mnist/.

    Parameters
    ----------
    image : PIL.Image.Image, ndarray or path
        Of any size and mode; an array has shape (H, W), or (H, W, 3 or 4) and dtype uint8.

    Returns
    -------
    ndarray, shape (1, 28, 28), uint8
        0 is paper, 255 is ink.

    Raises
    ------
    ValueError, OSError
        If the picture is blank, the array is not a picture, or the file, which is named, cannot be read.

    Examples
    --------
    >>> stroke = np.full((90, 60), 255, np.uint8)
    >>> stroke[20:70, 25:35] = 0
    >>> digit = prepare_digit(stroke)
    >>> digit.shape, [int(length) for length in np.ptp(np.nonzero(digit[0]), axis=1) + 1]
    ((1, 28, 28), [20, 4])
    """
    return find_digit(image)[0]


def find_digit(image: Picture) -> tuple[np.ndarray, list[str]]:
    """Like `prepare_digit`; return the digit, and reasons for doubt.

    Examples
    --------
    >>> stroke = np.full((90, 60), 255, np.uint8)
    >>> stroke[20:, 25:35] = 0
    >>> find_digit(stroke)[1]
    ["the digit touches the picture's edge"]
    """
    with _naming(image):
        ink = _ink(_grey(_open(image)))
        strokes, doubts = _strokes(ink)
    ink = _pressed(ink, strokes)
    # Earlier resizing leaves a faint rim around a stroke, which does not count for its box.
    rows, columns = (np.flatnonzero((ink > _RIM).any(axis=axis)) for axis in (1, 0))
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return _centred(_fitted(ink))[np.newaxis], doubts


def prepare_photo(image: Picture, shape: tuple[int, int, int]) -> np.ndarray:
    """Scale the middle of any picture to an image of a network's input shape.

    A grey one on light paper is inverted, since Fashion-MNIST shows garments on black.

    Parameters
    ----------
    image
        As for `prepare_digit`, with the same errors.
    shape : tuple (C, H, W)
        C is 1 or 3.

    Returns
    -------
    ndarray, shape (C, H, W), uint8

    Examples
    --------
    >>> prepare_photo(np.zeros((100, 80, 3), np.uint8), (3, 32, 32)).shape
    (3, 32, 32)
    """
    with _naming(image):
        opened = _open(image)
    channels, height, width = shape
    if channels == 1 or _is_deep(opened):
        grey = _stretched(_grey(opened))
        if channels == 1 and np.median(_edge(grey)) > 127:
            grey = 255 - grey
        opened = Image.fromarray(grey.astype(np.uint8))
    picture = ImageOps.fit(opened.convert("RGB" if channels == 3 else "L"), (width, height))
    return np.asarray(picture).reshape(height, width, channels).transpose(2, 0, 1).copy()


def as_text(picture: np.ndarray, encoding: str = "utf-8") -> str:
    """Draw a picture in characters, each of which shows two pixels, one above the other.

    Parameters
    ----------
    picture : ndarray, shape (C, H, W), uint8
        H is even. The mean of the C colours is drawn.
    encoding : str
        Without block characters in it, ASCII characters are used.

    Examples
    --------
    >>> ramp = np.array([[[0, 64, 128, 255, 255], [0, 64, 128, 255, 0]]], np.uint8)
    >>> as_text(ramp), as_text(ramp, "ascii")
    (' ░▒█▀', ' :+@=')
    """
    try:
        "".join(_BLOCKS).encode(encoding)
        characters = _BLOCKS
    except UnicodeEncodeError:
        characters = _ASCII
    brightness = picture.mean(0) / 255
    pairs = np.stack([brightness[::2], brightness[1::2]], -1)
    distance = np.square(pairs[..., np.newaxis, :] - list(characters.values())).sum(-1)
    return "\n".join("".join(row) for row in np.array(list(characters))[distance.argmin(-1)])


def _open(image: Picture) -> Image.Image:
    """Return `image` as a PIL image, upright and not needlessly large."""
    instance(image, "image", str, PathLike, np.ndarray, Image.Image)
    if isinstance(image, np.ndarray):
        picture = _from_array(image)
    elif isinstance(image, Image.Image):
        picture = ImageOps.exif_transpose(image)
    else:
        picture = _from_file(Path(image))
    factor = max(picture.size) // _LARGEST
    # Palettes and 16-bit modes cannot be averaged; they are rare among large pictures.
    if factor > 1 and picture.mode in ("L", "LA", "RGB", "RGBA", "CMYK", "F"):
        picture = picture.reduce(factor)
    return picture


@contextlib.contextmanager
def _naming(image: Picture) -> Iterator[None]:
    """Put the name of a file before a ValueError's message."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{image}: {error}" if isinstance(image, (str, PathLike)) else error) from None


def _from_file(path: Path) -> Image.Image:
    """Return the picture in a file, upright."""
    try:
        with _opened(path) as image:
            image.load()
            return ImageOps.exif_transpose(image)
    except UnidentifiedImageError:
        raise ValueError(f"not a picture in a format that is read: {', '.join(FORMATS)}") from None
    except MemoryError:
        raise
    except Exception as error:  # for damaged files Pillow raises anything
        if isinstance(error, OSError) and error.errno:  # of the operating system, which may not name the file
            error.filename = error.filename or str(path)
            raise
        raise ValueError(error) from None


def _opened(path: Path) -> Image.Image:
    """Return the picture in a file before its pixels are read: the header says how large it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit follows
        Image.init()  # older versions of Pillow lack some of the formats
        image = Image.open(path, formats=[name for name in FORMATS if name in Image.OPEN])
    size = image.size
    if math.prod(size) > _MOST_PIXELS:
        image.draft(None, (_LARGEST, _LARGEST))  # a JPEG can be read in a half, a quarter, an eighth
    if math.prod(image.size) > _MOST_PIXELS:
        image.close()
        raise ValueError(
            f"the picture has {size[0]} x {size[1]} pixels, more than {_MOST_PIXELS // 10**6} million: "
            "make it smaller"
        )
    return image


def _from_array(array: np.ndarray) -> Image.Image:
    if array.ndim == 2 and array.size and array.dtype.kind in "buif":
        return Image.fromarray(array.astype(np.float32))
    if array.ndim == 3 and array.size and array.shape[2] in (3, 4) and array.dtype == np.uint8:
        return Image.fromarray(array)
    raise ValueError(
        f"a picture must have shape (H, W), or (H, W, 3 or 4) and dtype uint8; "
        f"got shape {array.shape} and dtype {array.dtype}"
    )


def _is_deep(image):
    """Return whether a pixel has more than 8 bits, which a conversion to "L" or "RGB" would cut off."""
    return image.mode in ("I", "F") or image.mode.startswith("I;")


def _stretched(grey):
    """Stretch the range so that the darkest pixel is 0 and the lightest 255."""
    lowest, highest = float(grey.min()), float(grey.max())
    return (grey - lowest) * (255 / max(highest - lowest, 1e-30))


def _grey(image):
    """Return the brightness of each pixel as float32; transparent pixels become paper."""
    if _is_deep(image):
        return np.nan_to_num(np.asarray(image).astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        grey = np.asarray(image.convert("RGB").convert("L"), np.float32)
        alpha = np.asarray(image, np.float32)[..., 3]
        if alpha.max() != alpha.min():
            # Behind dark ink the paper is white, behind light ink black.
            paper = 255.0 if np.average(grey, weights=alpha) < 128 else 0.0
            return paper + (grey - paper) * (alpha / 255)
    return _brightness(image.convert("RGB"))


def _brightness(image):
    """Return the brightness of each pixel, or the colour if that hardly varies, as with red on green."""
    coarse = np.asarray(image.reduce(_block(image.size)), np.float32).reshape(-1, 3)
    colour = coarse.mean(0)
    # The colours vary most along the axis with the largest eigenvalue, their variance along it.
    values, axes = np.linalg.eigh((coarse - colour).T @ (coarse - colour) / len(coarse))
    grey = np.asarray(image.convert("L"), np.float32)
    if _coarse(grey).std() >= _DULL * math.sqrt(max(values[-1], 0)):
        return grey
    return 128 + (np.asarray(image, np.float32) - colour) @ axes[:, -1]


def _ink(grey):
    """Return how much darker each pixel is than the paper around it: 0 is paper, 1 is black ink.

    Light ink on dark paper is inverted first.
    """
    darkest, lightest = float(grey.min()), float(grey.max())
    if not lightest - darkest > _FAINTEST * max(abs(lightest), abs(darkest), 1e-30):
        raise ValueError(_BLANK)
    bright = grey - darkest if _paper_is_light(grey) else lightest - grey
    # A closing fills the strokes, which are narrower than its window, and keeps the light across the paper.
    coarse = _coarse(bright)
    paper = scipy.ndimage.grey_closing(coarse, (round(_WIDEST_STROKE * max(coarse.shape)) | 1,) * 2)
    paper = np.asarray(Image.fromarray(paper).resize(grey.shape[::-1], Image.Resampling.BILINEAR))
    # The limit: deep shadows contain only noise.
    return 1 - bright / np.maximum(paper, 0.15 * (lightest - darkest))


def _paper_is_light(grey):
    coarse = _coarse(grey)  # without single pixels as darkest or lightest
    light = coarse > 0.6 * coarse.min() + 0.4 * coarse.max()
    whole, edge = light.mean(), _edge(light).mean()
    # Paper fills most of a picture, or most of the edge of one that is cut out closely around a bold digit.
    # An edge of only one kind proves nothing: it may be the table.
    return 2 * whole + edge > 1.5 if 0.05 < edge < 0.95 else whole > 0.5


def _strokes(ink):
    """Return a mask of the digit with a small margin, and reasons for doubt."""
    coarse = _coarse(ink)
    if not coarse.max() > _FAINTEST:
        raise ValueError(_BLANK)
    marked = coarse > 0.5 * coarse.max()
    edge = np.ones_like(marked)
    edge[1:-1, 1:-1] = False
    inner = marked & ~scipy.ndimage.binary_propagation(marked & edge, _DIAGONALS_TOO, marked)
    if _length(_largest(inner)) < _SHORTEST_DIGIT * min(marked.shape):
        inner = marked
    # A box around the digit is not part of it, and no digit has a hole with that much in it.
    largest = _largest(inner)
    boxed = inner & scipy.ndimage.binary_fill_holes(largest) & ~largest
    if _length(_largest(boxed)) > 0.3 * _length(largest):
        inner, largest = boxed, _largest(boxed)
    # A 5 may have lost its bar, a 9 may be in pieces.
    reach = _DETACHED * _length(largest)
    groups, _ = scipy.ndimage.label(scipy.ndimage.distance_transform_edt(~inner) <= reach / 2, _DIAGONALS_TOO)
    digit = inner & (groups == groups[largest][0])
    coarse_strokes = scipy.ndimage.binary_dilation(digit, _DIAGONALS_TOO, 2)
    strokes = coarse_strokes.repeat(block := _block(ink.shape), 0).repeat(block, 1)
    return strokes[: ink.shape[0], : ink.shape[1]], _doubts(coarse, marked, digit, inner & ~digit)


def _doubts(coarse, marked, digit, others):
    """Return reasons to doubt `digit`, a part of the `marked` pixels of the coarse copy."""
    height, width = (np.ptp(positions) + 1 for positions in np.nonzero(digit))
    doubts = []
    # In a closely cut picture the digit touches all sides, but not their whole length as a frame does.
    closely = height > 0.85 * digit.shape[0] and width > 0.85 * digit.shape[1] and _edge(digit).mean() < 0.5
    if _edge(digit).any() and not closely:
        doubts.append("the digit touches the picture's edge")
    if _length(_largest(others)) > 0.5 * max(height, width):
        doubts.append("something else stands beside the digit")
    if width > 1.4 * height:
        doubts.append("it is wider than digits are")
    if not marked.all() and np.median(coarse[digit]) < 1.6 * np.percentile(abs(coarse[~marked]), 90):
        doubts.append("the ink hardly stands out from the paper")
    return doubts


def _largest(marked):
    """Return the connected part with the largest bounding box."""
    labels, _ = scipy.ndimage.label(marked, _DIAGONALS_TOO)
    sizes = [labels[box].size for box in scipy.ndimage.find_objects(labels)]
    return marked & (labels == 1 + np.argmax(sizes)) if sizes else marked


def _length(part):
    """Return the longer side of the bounding box of all marked pixels."""
    return max((np.ptp(positions) + 1 for positions in np.nonzero(part) if positions.size), default=0)


def _pressed(ink, strokes):
    """Return the ink of the strokes, 0 to 1, minus the noise of the paper."""
    paper = ink[~strokes]
    # Clean pictures have no noise, so nothing is subtracted.
    noise = min(2 * np.percentile(abs(paper), 75), 0.4 * ink[strokes].max()) if paper.size else 0.0
    ink = np.where(strokes, np.maximum(ink - noise, 0), 0)
    # Pen strokes are rarely as even as MNIST's: make most of a stroke full ink.
    return np.minimum(ink / np.percentile(ink[ink > 0], 90), 1)


def _coarse(picture):
    """Return the means of square blocks, so that at most `_COARSE` fit a side."""
    return np.asarray(Image.fromarray(picture.astype(np.float32)).reduce(_block(picture.shape)))


def _block(shape):
    return -(-max(shape) // _COARSE)


def _edge(grey):
    return np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])


def _fitted(ink):
    """Scale `ink` to fit the box, keeping its aspect ratio, with full ink in the strongest pixel."""
    height, width = ink.shape
    scale = _BOX / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    if size != (width, height):
        picture = Image.fromarray(ink.astype(np.float32))
        ink = np.asarray(picture.resize(size, Image.Resampling.HAMMING))
    return ink / ink.max()


def _centred(ink):
    """Place `ink` with its centre of mass in the centre of the field; return it as uint8."""
    height, width = ink.shape
    total = ink.sum()
    row, column = ink.sum(1) @ np.arange(height) / total, ink.sum(0) @ np.arange(width) / total
    top = min(max(round(_CENTRE - row), 0), _FIELD - height)
    left = min(max(round(_CENTRE - column), 0), _FIELD - width)
    field = np.zeros((_FIELD, _FIELD), np.uint8)
    field[top : top + height, left : left + width] = np.round(255 * ink)
    return field
