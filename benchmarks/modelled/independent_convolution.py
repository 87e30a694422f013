"""The convolution of the independent check, whose loops are unrolled as those of the published one are.

Unrolled by hand, since Numba has no pragma for it: the text of the kernel is written and compiled.
"""

import linecache
from itertools import product
from pathlib import Path

import numpy as np
from numba import cuda, float32, int64, uint32

SIDE = 15  # of the filter
# Above zero: where the compiler knows a factor to be negative, it subtracts a product and fuses nothing.
WEIGHTS = 1 + np.random.default_rng(0).random((SIDE, SIDE), np.float32)

_BEGIN = """\
def convolve(output, image, size):
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    left, top = uint32(cuda.blockIdx.x) * uint32({width}), uint32(cuda.blockIdx.y) * uint32({rows})
    row = int64(size + uint32({border}))
    first = int64((top + ty) * (size + uint32({border})) + left + tx)
    tile = cuda.shared.array({tile_height} * {tile_width}, float32)
    at = int64(ty * uint32({tile_width}) + tx)
    weights = cuda.const.array_like(WEIGHTS)
"""


def convolution(width: int, height: int, per_thread: int, weights: np.ndarray = WEIGHTS):
    """Return a kernel with blocks of width x height whose threads compute outputs `height` rows apart."""
    side = len(weights)
    border = side - 1
    rows, tile_width = height * per_thread, width + border
    sizes = {"width": width, "rows": rows, "border": border}
    text = _BEGIN.format(**sizes, tile_width=tile_width, tile_height=rows + border)
    text += "".join(_loads(width, height, rows + border, tile_width))
    text += "    cuda.syncthreads()\n"
    text += "".join(f"    sum{k} = float32(0.0)\n" for k in range(per_thread))
    for i, j, k in product(range(side), range(side), range(per_thread)):
        place = (i + k * height) * tile_width + j
        text += f"    sum{k} += tile[at + {place}] * weights[{i * side + j}]\n"
    text += "    place = int64((top + ty) * size + left + tx)\n"
    for k in range(per_thread):
        text += f"    output[place + {k * height} * int64(size)] = sum{k}\n"
    # As if in a file beside this one: of a name in brackets the model would not find the lines.
    name = str(Path(__file__).with_name(f"convolution {width}x{height}, {per_thread} a thread"))
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    space = {"cuda": cuda, "uint32": uint32, "int64": int64, "float32": float32, "WEIGHTS": weights.ravel()}
    exec(compile(text, name, "exec"), space)
    return cuda.jit(space["convolve"])


def _loads(width, height, tile_height, tile_width):
    """Yield a statement for each element of the tile that a thread loads, with a test where some do not."""
    for i, j in product(range(0, tile_height, height), range(0, tile_width, width)):
        tests = [f"ty < {tile_height - i}"] * (i + height > tile_height)
        tests += [f"tx < {tile_width - j}"] * (j + width > tile_width)
        test = f"if {' and '.join(tests)}: " if tests else ""
        yield f"    {test}tile[at + {i * tile_width + j}] = image[first + {i} * row + {j}]\n"
