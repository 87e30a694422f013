"""Pictures of small images as PNG files, without Matplotlib, which may not be installed."""

import base64
import html
import struct
import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, repr=False)
class Pixels:
    """Grey images side by side, each with its name below it.

    Parameters
    ----------
    images : dict of str to ndarray, shape (H, W), uint8
    scale : int
        The size at which a pixel is shown.

    Examples
    --------
    >>> Pixels({"a dot": np.zeros((2, 3), np.uint8)})
    [a dot: 2 x 3 pixels]
    """

    images: dict
    scale: int = 5

    def __repr__(self):
        return "\n".join(f"[{name}: {len(a)} x {a.shape[1]} pixels]" for name, a in self.images.items())

    def _repr_html_(self):
        return "".join(self._figure(name, image) for name, image in self.images.items())

    def _figure(self, name, image):
        address = f"data:image/png;base64,{base64.b64encode(png(image)).decode()}"
        style = f"width: {self.scale * image.shape[1]}px; image-rendering: pixelated"
        caption = html.escape(name)
        return (
            f'<figure style="display: inline-block; margin: 0.3em 1em 0.3em 0"><img src="{address}" '
            f'alt="{caption}" style="{style}"><figcaption>{caption}</figcaption></figure>'
        )


def png(image: np.ndarray) -> bytes:
    """Return a grey image of bytes as a PNG file."""
    height, width = image.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row begins with its filter, 0 for none
    rows[:, 1:] = image
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
