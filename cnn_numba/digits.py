"""A picture of a handwritten digit, made into what MNIST holds."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

# As the makers of MNIST did: the digit fits a box of 20 pixels, its centre of mass is the centre of 28.
_BOX, _FIELD, _CENTRE = 20, 28, 14.0
# Below a hundredth of the range the camera or the compression speaks, not the pen.
_FAINTEST = 0.01
_RIM = 0.1
# Pictures larger than this are shrunk first; 20 pixels are what counts in the end.
_LARGEST = 800


def prepare_digit(image):
    """Turn a picture of one handwritten digit into an image as MNIST has them.

    Ink and paper are told apart by the picture's edge, which is taken for paper: dark on light and light on
    dark are both right. The ink is stretched to the full range, cut out, scaled to fit a box of 20 x 20
    pixels and placed with its centre of mass in the centre of 28 x 28, as described at
    http://yann.lecun.com/exdb/mnist/.

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
    ValueError
        If there is nothing in the picture, or the array is no picture.
    OSError
        If a path names a file that is not there, or that Pillow cannot read.

    Examples
    --------
    >>> stroke = np.full((90, 60), 255, np.uint8)
    >>> stroke[20:70, 25:35] = 0
    >>> digit = prepare_digit(stroke)
    >>> digit.shape, [int(length) for length in np.ptp(np.nonzero(digit[0]), axis=1) + 1]
    ((1, 28, 28), [20, 4])
    """
    ink = _ink(_grey(_open(image)))
    # The faint rim that an earlier resizing left around a stroke does not count for its box.
    rows, columns = (np.flatnonzero((ink > _RIM).any(axis=axis)) for axis in (1, 0))
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return _centred(_fitted(ink))[np.newaxis]


def prepare_photo(image, shape):
    """Turn any picture into an image of the shape a network takes: its middle, scaled.

    A grey one on light paper is inverted, as Fashion-MNIST has its garments on black.

    Parameters
    ----------
    image : PIL.Image.Image, ndarray or path
        As for `prepare_digit`.
    shape : tuple (C, H, W)
        C is 1 or 3.

    Returns
    -------
    ndarray, shape (C, H, W), uint8

    Raises
    ------
    ValueError, OSError
        If the array or the file is no picture.

    Examples
    --------
    >>> prepare_photo(np.zeros((100, 80, 3), np.uint8), (3, 32, 32)).shape
    (3, 32, 32)
    """
    image = _open(image)
    if shape[0] == 3:
        picture = ImageOps.fit(image.convert("RGB"), (shape[2], shape[1]))
        return np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))
    grey = _grey(image)
    lowest, highest = float(grey.min()), float(grey.max())
    grey = (grey - lowest) * (255 / max(highest - lowest, 1e-30))
    if np.median(_edge(grey)) > 127:
        grey = 255 - grey
    picture = ImageOps.fit(Image.fromarray(grey.astype(np.uint8)), (shape[2], shape[1]))
    return np.asarray(picture)[np.newaxis].copy()


def _open(image):
    """Return `image` as a PIL image that is upright and not needlessly large."""
    if isinstance(image, np.ndarray):
        image = _from_array(image)
    elif not isinstance(image, Image.Image):
        image = Image.open(Path(image))
    image = ImageOps.exif_transpose(image)
    factor = max(image.size) // _LARGEST
    # Palettes and 16-bit modes cannot be averaged as they are; they are rare among large pictures.
    if factor > 1 and image.mode in ("L", "LA", "RGB", "RGBA", "CMYK", "F"):
        image = image.reduce(factor)
    return image


def _from_array(array):
    if array.ndim == 2 and array.size and array.dtype.kind in "buif":
        return Image.fromarray(array.astype(np.float32))
    if array.ndim == 3 and array.size and array.shape[2] in (3, 4) and array.dtype == np.uint8:
        return Image.fromarray(array)
    raise ValueError(
        f"a picture must have shape (H, W), or (H, W, 3 or 4) and dtype uint8; "
        f"got shape {array.shape} and dtype {array.dtype}"
    )


def _grey(image):
    """Return the brightness of each pixel as float32; what is transparent becomes paper."""
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        # More than 8 bits: a conversion to "L" would cut them off.
        return np.nan_to_num(np.asarray(image).astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        grey, alpha = (
            np.asarray(image.convert("RGB").convert("L"), np.float32),
            np.asarray(image, np.float32)[..., 3],
        )
        if alpha.max() == alpha.min():
            return grey
        # Behind dark ink the paper is white, behind light ink black.
        paper = 255.0 if np.average(grey, weights=alpha) < 128 else 0.0
        return paper + (grey - paper) * (alpha / 255)
    return np.asarray(image.convert("RGB").convert("L"), np.float32)


def _ink(grey):
    """Return how much ink each pixel holds, 0 to 1, with the noise of the paper taken off."""
    lightest, darkest = float(grey.max()), float(grey.min())
    scale = max(abs(lightest), abs(darkest), 1e-30)
    edge = _edge(grey)
    paper = float(np.median(edge))
    ink = paper - grey if paper - darkest >= lightest - paper else grey - paper
    strongest = float(ink.max())
    if not strongest > _FAINTEST * scale:
        raise ValueError("there is no digit in the picture: it is blank")
    # Clean pictures have no noise at the edge, and nothing is cut. A digit that runs over the edge is no
    # noise: hence the limit.
    noise = min(2 * float(np.percentile(np.abs(edge - paper), 90)), 0.4 * strongest)
    ink = np.maximum(ink - noise, 0)
    # Pens are seldom as even as MNIST's strokes; most of a stroke is to be full ink.
    return np.minimum(ink / np.percentile(ink[ink > 0], 90), 1)


def _edge(grey):
    return np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])


def _fitted(ink):
    """Scale `ink` to fit the box, with its aspect ratio kept and its strongest pixel full."""
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
