"""A launch and a roofline with the model of `gpuless.profile`: exercises of notebook 10."""

from functools import cache, partial

import numpy as np
from numba import cuda, float32

import gpuless
from cnn_course.chapters.the_machine.gpus import T4, placed
from cnn_course.engine.checks.exercise import Exercise, Wrong
from cnn_course.engine.modelled_ladders import CLEAR
from cnn_numba import device

# --- A launch by evidence ----------------------------------------------------------------------------------

WINDOW = 15
_MOST_THREADS, _WARP, _SECTOR = 1024, 32, 8


@cuda.jit
def window_kernel(image, size, out):
    """Write the mean of a square window; one output per thread."""
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(size):
            for j in range(size):
                total += image[row + i, column + j]
        out[row, column] = total / float32(size * size)


def _launch(attempt, height, width):
    """Return the grid and the block that an attempt chooses, as two pairs of Python's integers."""
    chosen = attempt(height, width)
    try:
        grid, block = ((_whole(x), _whole(y)) for x, y in chosen)
    except (TypeError, ValueError, OverflowError):
        raise Wrong(
            "not a launch",
            "Return two pairs of whole numbers, the grid and the block: `(blocks_x, blocks_y), "
            "(threads_x, threads_y)`.",
        ) from None
    return grid, block


def _whole(number):
    """Return a number as an integer; raise ValueError for one that has a fraction."""
    if int(number) != number:
        raise ValueError(f"{number} is not whole")
    return int(number)


def _covered(attempt, height, width):
    """Return for each output whether it has a thread; raise `Wrong` where the launch is impossible."""
    grid, block = _launch(attempt, height, width)
    seen = f"Seen with {height} x {width} pixels: grid {grid}, block {block}."
    if min(block) < 1:
        raise Wrong("empty launch", "A block needs at least one thread along each axis.", seen)
    if block[0] * block[1] > _MOST_THREADS:
        raise Wrong("too many threads", f"A block has at most {_MOST_THREADS} threads in all.", seen)
    (across, down), needed = (grid[0] * block[0], grid[1] * block[1]), device.blocks
    # In one small image other mistakes choose the same grid.
    if all(_exchanges_axes(*_launch(attempt, *size), *size) for size in ((height, width), JUDGED[1])):
        text = "x counts columns and y counts rows. You use the height for x and the width for y."
        raise Wrong("axes exchanged", text, seen)
    if across < width or down < height:
        if grid == (width // block[0], height // block[1]):
            raise Wrong("rounded down", "Some outputs have no thread. Round the number of blocks up.", seen)
        reaches = f"Your threads reach {across} columns and {down} rows, so some outputs have no thread."
        raise Wrong("not covered", reaches, seen)
    elif grid[0] > needed(width, block[0]) or grid[1] > needed(height, block[1]):
        if block == (needed(width, grid[0]), needed(height, grid[1])):
            raise Wrong("block first", "Grid and block are exchanged: return the grid first.", seen)
        raise Wrong("needless blocks", "There are whole blocks of threads outside the image.", seen)
    row, column = np.indices((height, width))
    return (row < down) & (column < across)


def _exchanges_axes(grid, block, height, width):
    """Return whether a grid takes the height for x and the width for y, with the block either way."""
    exchanged = [tuple(map(device.blocks, (height, width), sides)) for sides in (block, block[::-1])]
    return grid in exchanged and grid != tuple(map(device.blocks, (width, height), block))


def _threads(count):
    return "1 thread" if count == 1 else f"{count} threads"


def _reason(grid, block, height, width):
    """Return why a launch is slow, as a name and a sentence; two empty texts if there is no reason."""
    threads, blocks = block[0] * block[1], grid[0] * grid[1]
    if threads < _WARP:
        return "part of a warp", f"Your blocks have {_threads(threads)}, which leaves lanes of a warp empty."
    if block[0] < _SECTOR and width > block[0]:
        return (
            "narrow blocks",
            f"Your blocks are {_threads(block[0])} wide, so a warp reads {_WARP // min(block[0], _WARP)} "
            "short pieces of rows, and uses only a part of each sector.",
        )
    if threads % _WARP:
        return "part of a warp", f"Your blocks have {_threads(threads)}, which leaves lanes of a warp empty."
    if height * width < 0.5 * threads * blocks:
        return "threads outside", "Most of your threads are outside the image and have nothing to do."
    if blocks < T4.sms:
        return (
            "too few blocks",
            f"There are only {blocks} blocks, so some of the {T4.sms} multiprocessors get none.",
        )
    return "", ""


# A small image and a larger one.
JUDGED = (160, 160), (500, 700)


def _is_fast(attempt):
    """Demand a launch that is modelled to be about as fast as the best one."""
    for height, width in JUDGED:
        grid, block = _launch(attempt, height, width)
        name, why = _reason(grid, block, height, width)
        if device.simulated():  # nothing can be modelled
            if name:
                raise Wrong(name, f"The launch covers the image. {why}")
            continue
        time, bottleneck = _modelled(grid, block, height, width)
        best = _modelled(*_best(height, width), height, width)[0]
        if time > CLEAR * best:
            raise Wrong(
                name or "slow",
                f"The launch covers the image, but on a T4 it takes {time:.0f} us (modelled), and another "
                f"block takes {best:.0f} us. {why}".rstrip(),
                f"Seen with {height} x {width} pixels: grid {grid}, block {block}.",
                f"Limited by {bottleneck}.",
            )


@cache
def _modelled(grid, block, height, width):
    """Return the modelled microseconds of a launch on a T4, and its bottleneck."""
    image = cuda.to_device(np.ones((height + WINDOW - 1, width + WINDOW - 1), np.float32))
    out = cuda.device_array((height, width), np.float32)
    report = gpuless.profile(window_kernel[grid, block], "T4")(image, WINDOW, out)
    return report.microseconds, report.bottleneck


def _best(height, width):
    return (device.blocks(width, 32), device.blocks(height, 4)), (32, 4)


choose_launch = Exercise(
    "choose_launch",
    reference=lambda height, width: np.ones((height, width), bool),
    cases=lambda rng: [(1, 5), (33, 65), *JUDGED, (7, 1000), (1000, 7)],
    run=_covered,
    properties=(_is_fast,),
)


# --- A place under the roofline ----------------------------------------------------------------------------


def _kernels(rng):
    """Draw kernels on both sides of the bend, on GPUs such as a T4."""
    yield 64e6, 4e6, 100.0, 8100.0, 320.0  # 16 a byte, 5120 GFLOP/s, an eighth of it
    yield 285e6, 1.4e6, 1236.0, 8100.0, 320.0
    for intensity in (0.1, 2.0, 9.0, 40.0, 300.0):
        moved, peak = rng.uniform(1e6, 1e8), rng.uniform(4e3, 6e4)
        bandwidth = peak / rng.uniform(10, 20)
        at_best = intensity * moved / min(peak, intensity * bandwidth) / 1e3
        yield intensity * moved, moved, at_best * rng.uniform(1.1, 20), peak, bandwidth


def _upside_down(flops, bytes_moved, microseconds, peak, bandwidth):
    intensity = bytes_moved / flops
    roof = min(peak, intensity * bandwidth)
    return intensity, roof, flops / microseconds / 1e3 / roof


def _at_the_roof(roof):
    """Return a mistake with another roof, `roof(peak, memory)`."""
    return partial(placed, bound=roof)


def _speed_only(flops, bytes_moved, microseconds, peak, bandwidth):
    return *placed(flops, bytes_moved, 1, peak, bandwidth)[:2], flops / microseconds / 1e3


under_the_roof = Exercise(
    "under_the_roof",
    reference=placed,
    cases=_kernels,
    mistakes={
        "upside down": (
            "Your intensity is bytes for each operation. It must be operations for each byte.",
            _upside_down,
            ("flops / bytes_moved", "bytes_moved / flops"),
        ),
        "higher roof": (
            "You take the higher of the two limits. A kernel has to stay below both.",
            _at_the_roof(max),
            ("min(", "max("),
        ),
        "arithmetic only": (
            "Your roof is always `{peak}`. To the left of the bend, memory is the lower limit.",
            _at_the_roof(lambda peak, memory: peak),
            ("min(peak, intensity * bandwidth)", "peak"),
        ),
        "memory only": (
            "Your roof rises forever. To the right of the bend, arithmetic is the lower limit.",
            _at_the_roof(lambda peak, memory: memory),
            ("min(peak, intensity * bandwidth)", "intensity * bandwidth"),
        ),
        "bandwidth as it is": (
            "Your roof at low intensity is `{bandwidth}`, which counts bytes. Multiply it by the operations "
            "for each byte.",
            lambda *given: placed(*given, bound=lambda peak, _: min(peak, given[-1])),
            ("intensity * bandwidth", "bandwidth"),
        ),
        "millions": (
            "The part that you return is 1000 times too large: operations per microsecond are millions per "
            "second, and the roof is in GFLOP/s.",
            partial(placed, scale=1.0),
            (" / 1000", ""),
        ),
        "thousand too much": (
            "The part that you return has the wrong power of ten. Convert microseconds to seconds, and "
            "operations to units of 1e9.",
            partial(placed, scale=1e-3),
            partial(placed, scale=1e6),
            partial(placed, scale=1e9),
            partial(placed, scale=1e-6),
            (" / 1000", " * 1000"),
            (" / 1000", " / 1e9"),
            ("/ microseconds / 1000", "/ (microseconds / 1e6)"),
        ),
        "speed, not its part": (
            "The last number is the speed in GFLOP/s. Return which part of the roof that is.",
            _speed_only,
            (" / 1000 / roof", " / 1000"),
        ),
        "part of the peak": (
            "You compare the speed with `{peak}`. Compare it with the roof at this intensity.",
            lambda flops, bytes_moved, microseconds, peak, bandwidth: (
                *placed(flops, bytes_moved, 1, peak, bandwidth)[:2],
                flops / microseconds / 1e3 / peak,
            ),
            ("1000 / roof", "1000 / peak"),
        ),
        "part upside down": (
            "Your last number is how many times faster the roof is. Return its inverse, a part of 1.",
            lambda *given: (*placed(*given)[:2], 1 / placed(*given)[2]),
            ("flops / microseconds / 1000 / roof", "roof / (flops / microseconds / 1000)"),
        ),
        "percent": (
            "Your last number is in percent. Return the part itself, between 0 and 1.",
            lambda *given: (*placed(*given)[:2], 100 * placed(*given)[2]),
            ("flops / microseconds / 1000 / roof", "100 * flops / microseconds / 1000 / roof"),
        ),
        "part of the bandwidth": (
            "You compare the bytes with the bandwidth. Compare the operations with the roof.",
            lambda flops, moved, microseconds, peak, bandwidth: (
                *placed(flops, moved, 1, peak, bandwidth)[:2],
                moved / microseconds / 1e3 / bandwidth,
            ),
            ("flops / microseconds / 1000 / roof", "bytes_moved / microseconds / 1000 / bandwidth"),
        ),
        "other order": (
            "Return the three in this order: operations per byte, the roof, the part of it.",
            lambda *given: (placed(*given)[1], placed(*given)[0], placed(*given)[2]),
            ("return intensity, roof", "return roof, intensity"),
        ),
    },
)
