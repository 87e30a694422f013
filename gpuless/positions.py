"""How threads, blocks, lanes and launches are numbered, and how messages write them."""

import math
from typing import NamedTuple


def coordinates(number, shape):
    """Return the x, y, z of a thread in its block, or of a block in its grid; x varies fastest.

    >>> coordinates(7, (4, 2, 1))
    (3, 1, 0)
    """
    x, y, _ = shape
    return number % x, number // x % y, number // (x * y)


def describe_position(number, shape):
    """Return `coordinates` as text, with as many dimensions as the launch has.

    >>> describe_position(7, (4, 2, 1)), describe_position(7, (8, 1, 1))
    ('(3, 1)', '7')
    """
    return _without_ones(coordinates(int(number), shape), shape)


class Shape(NamedTuple):
    """Grid and block of a launch; positions are written with as many dimensions as they have."""

    grid: tuple = (1, 1, 1)
    block: tuple = (1, 1, 1)

    def block_called(self, position):
        """Return the block at x, y, z as text.

        >>> Shape(grid=(4, 2, 1)).block_called((3, 1, 0))
        'block (3, 1)'
        """
        return f"block {_without_ones(position, self.grid)}"

    @property
    def threads(self):
        """Threads of a block."""
        return math.prod(self.block)

    def thread_called(self, position):
        """Return the thread at x, y, z of its block as text."""
        return f"thread {_without_ones(position, self.block)}"


def describe_launch(kernel, grid, block):
    """Return a launch as it is written in Python.

    >>> describe_launch("blur", (4, 2, 1), (256, 1, 1))
    'blur[(4, 2), 256]'
    """
    return f"{kernel}[{_without_ones(grid, grid)}, {_without_ones(block, block)}]"


def _without_ones(numbers, shape):
    dimensions = 3 if shape[2] > 1 else 2 if shape[1] > 1 else 1
    return str(tuple(numbers[:dimensions])) if dimensions > 1 else str(numbers[0])


def describe_lanes(lanes):
    """Return lanes of a warp, given in ascending order, as text with ranges.

    >>> describe_lanes([3]), describe_lanes([8, 9, 10, 31])
    ('lane 3', 'lanes 8 to 10, 31')
    """
    runs = []
    for lane in lanes:
        if runs and runs[-1][1] == lane - 1:
            runs[-1][1] = lane
        else:
            runs.append([lane, lane])
    parts = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    single = len(runs) == 1 and runs[0][0] == runs[0][1]
    return f"lane{'' if single else 's'} {', '.join(parts)}"
