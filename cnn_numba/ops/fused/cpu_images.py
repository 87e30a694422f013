"""Copies of images to the blocks of channels of a chain, and back; see `cpu_stage`."""

from cnn_numba.ops.shared.blocks import load_square, store_square
from cnn_numba.ops.shared.jit import inline_jit, inner_jit
from cnn_numba.ops.shared.simd import WIDTH, load, store, vectors


@inner_jit
def _pack_rows(x, start, step, floats, to, count, channels):
    """Copy and transpose `count` pixels from ``x[start]`` on, of up to WIDTH channels, `step` apart."""
    square = vectors(WIDTH)
    load_square(x, start, step, channels, count, square)
    for i in range(WIDTH):
        if i < count:
            store(floats, to + i * WIDTH, square[i])


@inner_jit
def _unpack_rows(x, start, step, floats, to, count, channels):
    """Copy the same back."""
    square = vectors(WIDTH)
    for i in range(WIDTH):
        square[i] = load(floats, to + min(i, count - 1) * WIDTH)
    store_square(x, start, step, channels, count, square)


@inline_jit
def _rows_of(x, pitch, block_channels):
    """Return height and width of an image; a single row if the rows have no gaps."""
    height, width = x.shape[2:]
    return (1, height * width) if pitch == width * block_channels else (height, width)


@inner_jit
def pack_image(x, n, floats, first, pitch, block_channels, block):
    """Copy image n to blocks of channels from ``floats[first]`` on; rows lie `pitch` apart."""
    channels, step, flat = x.shape[1], x.shape[2] * x.shape[3], x.reshape(x.size)
    height, width = _rows_of(x, pitch, block_channels)
    for c in range(0, channels, block_channels):
        for h in range(height):
            start, to = (n * channels + c) * step + h * width, first + c // block_channels * block + h * pitch
            if block_channels == WIDTH:
                for w in range(0, width, WIDTH):
                    count = min(WIDTH, width - w)
                    _pack_rows(flat, start + w, step, floats, to + w * WIDTH, count, channels - c)
            else:
                for i in range(block_channels):
                    for w in range(width):
                        floats[to + w * block_channels + i] = flat[start + i * step + w]


@inner_jit
def unpack_image(x, n, floats, first, pitch, block):
    """Copy blocks of WIDTH channels, laid out as by `pack_image`, to image n."""
    channels, step, flat = x.shape[1], x.shape[2] * x.shape[3], x.reshape(x.size)
    height, width = _rows_of(x, pitch, WIDTH)
    for c in range(0, channels, WIDTH):
        for h in range(height):
            start, to = (n * channels + c) * step + h * width, first + c // WIDTH * block + h * pitch
            for w in range(0, width, WIDTH):
                count = min(WIDTH, width - w)
                _unpack_rows(flat, start + w, step, floats, to + w * WIDTH, count, channels - c)
