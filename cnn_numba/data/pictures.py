"""Ten kinds of small colour pictures, drawn by a seeded generator: a data set in place of CIFAR-10.

A picture shows one shape on a patterned background, with scraps of other colours and noise; its label is the
kind of shape. Position, size, slant and colours are random, so no single pixel reveals the kind, and a
mirrored picture is as likely as the picture. The files are in CIFAR-10's binary format.

All arithmetic is on integers, from the raw words of a PCG64, so the bytes are the same on every machine.
"""

from os import PathLike
from pathlib import Path

import numpy as np

KINDS = tuple("disc ring square frame diamond triangle plus cross stripes checks".split())
#: Pictures in each file, and the files; the last one is the test set.
BATCH = 2_000
FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
SIDE = 32

_SUB = 16  # positions and sizes are in sixteenths of a pixel
_RADIUS = 256  # of every shape, in its own coordinates


def write(folder: str | PathLike) -> None:
    """Draw the set into six files of a folder, created if necessary."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(FILES):
        images, labels = draw(BATCH, seed=number)
        records = np.concatenate([labels[:, np.newaxis].astype(np.uint8), images.reshape(BATCH, -1)], axis=1)
        (folder / name).write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("".join(f"{kind}\n" for kind in KINDS))


def draw(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw pictures of all kinds, in turn.

    Returns
    -------
    images : ndarray, shape (count, 3, 32, 32), uint8
    labels : ndarray, shape (count,), int32

    Examples
    --------
    >>> images, labels = draw(20, seed=0)
    >>> images.shape, labels[:12].tolist()
    ((20, 3, 32, 32), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1])
    """
    draws = _draws(seed)
    labels = np.arange(count, dtype=np.int32) % len(KINDS)
    canvas, ground = _ground(draws, count)
    _add_scraps(draws, canvas)
    shape = _shapes(draws, labels)
    lighter = draws(0, 3, count, 3, 1, 1) > 0  # than the background, in most channels
    colour = ground + draws(25, 80, count, 3, 1, 1) * np.where(lighter, 1, -1)
    canvas = np.where(shape[:, np.newaxis], colour, canvas)
    noise = draws(-16, 16, *canvas.shape) + draws(-16, 16, *canvas.shape)
    return np.clip(canvas + noise, 0, 255).astype(np.uint8), labels


def _draws(seed):
    """Return a function that draws integers from `low` to `high`, both included, as an array of a shape."""
    source = np.random.PCG64(seed)  # NumPy promises not to change its raw words

    def draws(low, high, *shape):
        words = source.random_raw(int(np.prod(shape))) >> np.uint64(32)
        numbers = (words * np.uint64(high - low + 1)) >> np.uint64(32)
        return numbers.astype(np.int32).reshape(shape) + np.int32(low)

    return draws


def _ground(draws, count):
    """Return a patterned background for each picture, and its main colour."""
    colour = draws(60, 195, count, 3, 1, 1)
    slopes = draws(-2, 2, 2, count, 3, 1, 1)
    rows, columns = np.arange(SIDE).reshape(SIDE, 1) - SIDE // 2, np.arange(SIDE) - SIDE // 2
    blotches = draws(-18, 18, count, 3, SIDE // 4, SIDE // 4).repeat(4, axis=2).repeat(4, axis=3)
    return colour + slopes[0] * rows + slopes[1] * columns + blotches, colour


def _add_scraps(draws, canvas):
    """Draw three small slanted pieces of any colour on the background."""
    count = len(canvas)
    for _ in range(3):
        u, v = _coordinates(draws, count, centres=(0, SIDE), radii=(1, 5))
        piece = np.maximum(abs(u), abs(v)) < _RADIUS
        np.copyto(canvas, draws(20, 235, count, 3, 1, 1), where=piece[:, np.newaxis])


def _coordinates(draws, count, centres, radii):
    """Return each pixel's coordinates in the frame of a shape, across and down, `_RADIUS` at its edge."""
    centre = draws(centres[0] * _SUB, centres[1] * _SUB, 2, count, 1, 1)
    radius = draws(radii[0] * _SUB, radii[1] * _SUB, 2, count, 1, 1)
    slant = draws(-_SUB // 3, _SUB // 3, count, 1, 1)
    pixels = np.arange(SIDE, dtype=np.int32) * _SUB + _SUB // 2
    down = pixels.reshape(SIDE, 1) - centre[0]
    across = pixels - centre[1] + slant * down // _SUB
    return across * _RADIUS // radius[0], down * _RADIUS // radius[1]


def _shapes(draws, labels):
    """Return which pixels belong to the shape of each picture, shape (count, 32, 32), bool."""
    across, down = _coordinates(draws, len(labels), centres=(10, SIDE - 10), radii=(6, 12))
    turned = draws(0, 1, len(labels), 1, 1) == 1
    u, v = np.where(turned, down, across), np.where(turned, across, down)
    far, near, apart, square = np.maximum(abs(u), abs(v)), np.minimum(abs(u), abs(v)), u * u + v * v, 220
    upright = down * (2 * draws(0, 1, len(labels), 1, 1) - 1)
    masks = {
        "disc": apart < 250 * 250,
        "ring": (apart < 256 * 256) & (apart > 140 * 140),
        "square": far < square,
        "frame": (far < 230) & (far > 120),
        "diamond": abs(u) + abs(v) < 290,
        "triangle": (abs(upright) < square) & (2 * abs(across) < upright + square + 30),
        "plus": (near < 75) & (far < 250),
        "cross": (abs(abs(u) - abs(v)) < 105) & (far < square),
        "stripes": (far < square) & (v // 74 % 2 == 0),
        "checks": (far < square) & ((u // 110 + v // 110) % 2 == 0),
    }
    return np.choose(labels.reshape(-1, 1, 1), [masks[kind] for kind in KINDS])
