"""Photographs of handwritten digits, made of MNIST's: paper, pen, light and camera, by a seed."""

import io

import numpy as np
from PIL import Image
from scipy import ndimage

HEIGHT, WIDTH = 240, 320


def photograph(digit, kind, seed):
    """Return a photograph of a digit.

    Parameters
    ----------
    digit : ndarray, shape (28, 28), uint8
        As MNIST has it.
    kind : str
        The disturbance: one of `KINDS`.
    seed : int
        For the colours of paper and ink, the digit's size and place, the light and the noise.

    Returns
    -------
    PIL.Image.Image
    """
    rng = np.random.default_rng(seed)
    # The share of the light that each place reflects, by colour: ink and paper as they are.
    paper = rng.uniform(0.75, 1, (3, 1, 1))
    pen = paper * rng.uniform(0.05, 0.35, (3, 1, 1))
    ink = _placed(digit, rng)
    light, scene = KINDS[kind](rng, paper + (pen - paper) * ink)
    noisy = 235 * light * scene + rng.normal(0, rng.uniform(1, 5), (3, HEIGHT, WIDTH))
    taken = Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8).transpose(1, 2, 0))
    file = io.BytesIO()
    taken.save(file, "JPEG", quality=int(rng.integers(60, 95)))
    return Image.open(file)


def _placed(digit, rng):
    """Return the digit's strokes, 0 to 1, smoothly enlarged, near the middle of the picture."""
    side = int(rng.uniform(0.5, 0.75) * HEIGHT)
    strokes = np.asarray(Image.fromarray(digit).resize((side, side), Image.Resampling.BICUBIC)) / 255.0
    strokes = np.clip(ndimage.gaussian_filter(strokes, side / 90) * 3 - 1, 0, 1)  # a pen's edge is sharp
    ink = np.zeros((HEIGHT, WIDTH))
    middle = np.array(ink.shape) / 2 - side / 2
    top, left = (middle + rng.uniform(-0.08, 0.08, 2) * ink.shape).astype(int)
    ink[top : top + side, left : left + side] = strokes
    return ink


def _grid():
    """Return y and x of each pixel: 0 in the middle, 1 at the nearer edge."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return (y - HEIGHT / 2) / (HEIGHT / 2), (x - WIDTH / 2) / (HEIGHT / 2)


def even(rng, scene):
    """Even light, the whole picture paper."""
    return 1, scene


def vignette(rng, scene):
    """Dark corners."""
    y, x = _grid()
    return 1 - rng.uniform(0.55, 0.85) * (x**2 + y**2) / (x**2 + y**2).max(), scene


def lamp(rng, scene):
    """Light from one side."""
    y, x = _grid()
    angle = rng.uniform(0, 2 * np.pi)
    along = np.cos(angle) * x + np.sin(angle) * y
    return np.interp(along, (along.min(), along.max()), (rng.uniform(0.25, 0.45), 1)), scene


def shadow(rng, scene):
    """A person's shadow over a part of the paper."""
    y, x = _grid()
    angle, softness = rng.uniform(0, 2 * np.pi), rng.uniform(0.02, 0.2)
    along = np.cos(angle) * x + np.sin(angle) * y - rng.uniform(0.1, 0.7)
    return 1 - rng.uniform(0.35, 0.6) / (1 + np.exp(-along / softness)), scene


def table(rng, scene):
    """The paper lies, not quite straight, on a darker table that shows on all sides."""
    y, x = _grid()
    angle = np.radians(rng.uniform(-6, 6))
    u, v = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    on_paper = (abs(u) < rng.uniform(1, 1.15)) & (abs(v) < rng.uniform(0.78, 0.92))
    wood = rng.uniform(0.05, 0.4, (3, 1, 1)) * (1 + 0.1 * np.sin(40 * v + rng.uniform(0, 6)))
    return 1, np.where(on_paper, scene, wood)


def corner(rng, scene):
    """The table shows on one side."""
    y, x = _grid()
    angle = rng.choice(4) * np.pi / 2 + np.radians(rng.uniform(-8, 8))
    along = np.cos(angle) * x + np.sin(angle) * y
    wood = rng.uniform(0.05, 0.4, (3, 1, 1))
    return 1, np.where(along > rng.uniform(0.76, 0.9) * along.max(), wood, scene)


def ruled(rng, scene):
    """Lines above and below the digit."""
    y, _ = _grid()
    line = np.minimum(abs(y - rng.uniform(0.82, 0.9)), abs(y + rng.uniform(0.82, 0.9))) < 0.012
    return 1, np.where(line, scene * rng.uniform(0.3, 0.7, (3, 1, 1)), scene)


def blackboard(rng, scene):
    """Chalk on a board, with dark corners."""
    light, _ = vignette(rng, scene)
    return light, 1.05 - scene


def all_at_once(rng, scene):
    """A paper on a table with dark corners, a lamp and a shadow, each at half its strength."""
    light = vignette(rng, scene)[0] * lamp(rng, scene)[0] * shadow(rng, scene)[0]
    return np.sqrt(light), table(rng, scene)[1]


KINDS = {
    kind.__name__.replace("_", " "): kind
    for kind in (even, vignette, lamp, shadow, table, corner, ruled, blackboard, all_at_once)
}
