"""Threads, blocks, lanes and launches: how they are numbered and what messages call them; source files."""

import math
import os
import posixpath
from typing import NamedTuple


def source_file(path):
    """Return a source file as Python knows it: compilers give a folder to "<stdin>" and the like.

    >>> source_file("/home/me/<stdin>")
    '<stdin>'
    """
    name = posixpath.basename(path)
    return name if name.startswith("<") else os.path.normpath(path)


def coordinates(number, shape):
    """Return the x, y, z of a thread in its block, or of a block in its grid; x varies fastest.

    >>> coordinates(7, (4, 2, 1))
    (3, 1, 0)
    """
    x, y, _ = shape
    return number % x, number // x % y, number // (x * y)


def describe_position(number, shape):
    """Return the same as text, in one, two or three dimensions as the launch has them.

    >>> describe_position(7, (4, 2, 1)), describe_position(7, (8, 1, 1))
    ('(3, 1)', '7')
    """
    return _without_ones(coordinates(int(number), shape), shape)


class Shape(NamedTuple):
    """Grid and block of a launch, which say by how many numbers its blocks and threads are called."""

    grid: tuple = (1, 1, 1)
    block: tuple = (1, 1, 1)

    def block_called(self, position):
        """Return a block, given by its x, y, z, as text.

        >>> Shape(grid=(4, 2, 1)).block_called((3, 1, 0))
        'block (3, 1)'
        """
        return f"block {_without_ones(position, self.grid)}"

    @property
    def threads(self):
        """Threads of a block."""
        return math.prod(self.block)

    def thread_called(self, position):
        """Return a thread, given by its x, y, z in its block, as text."""
        return f"thread {_without_ones(position, self.block)}"


def describe_launch(kernel, grid, block):
    """Return a launch as its author writes it.

    >>> describe_launch("blur", (4, 2, 1), (256, 1, 1))
    'blur[(4, 2), 256]'
    """
    return f"{kernel}[{_without_ones(grid, grid)}, {_without_ones(block, block)}]"


def _without_ones(numbers, shape):
    dimensions = 3 if shape[2] > 1 else 2 if shape[1] > 1 else 1
    return str(tuple(numbers[:dimensions])) if dimensions > 1 else str(numbers[0])


def describe_lanes(lanes):
    """Return lanes of a warp, in ascending order, as text with neighbours as a range.

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
