"""Every access of a launch to memory, as columns of numbers.

`gpuless.record` runs a kernel and returns a `Trace`. A row is one access of one element by one thread; rows
are in the order of the accesses. The columns are arrays of equal length:

==========  ===========================================================================================
kind        READ, WRITE, ATOMIC (a read and a write in one) or FENCE (`cuda.threadfence`; no array).
            ``x[i] += 1`` is a READ and then a WRITE.
array       Number of the array in `Trace.arrays`, which has its name, space ("global", "shared", "local",
            "constant"), shape, dtype and strides; -1 for a fence.
element     Flat index of the element in C order, whatever the layout (``np.unravel_index`` splits it).
address     First byte of the element, counted from the start of the array's allocation, which a GPU aligns to
            256 bytes. Arrays that share memory (views of one arena) share the allocation. In shared and local
            memory: counted from the start of the array, or of the dynamic shared memory.
block       Number of the block; x varies fastest. `Trace.grid` splits it.
thread      Number of the thread in its block; x varies fastest. Its warp is ``thread // 32``, its lane
            ``thread % 32``.
interval    How many barriers the block had passed.
epoch       How many times the thread had passed `syncwarp` in this block.
site        Number of the instruction in `Trace.sites`: function, line, source text and expression. Two
            accesses on one line are two sites.
occurrence  How often this thread had executed this site in this interval, counted from 0.
negative    Which indices were negative (counted from the end): bit k for axis k, 0 if none.
==========  ===========================================================================================

The rows with equal (block, thread // 32, interval, site, occurrence) are the lanes of a warp that run an
instruction together: one request on a GPU. `Trace.itemsize` has the bytes of each row. From these follow
coalescing (distinct ``address // 32`` in a request), bank conflicts (distinct addresses with equal
``address // 4 % 32``) and reuse (rows per element).
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

READ, WRITE, ATOMIC, FENCE = range(4)


@dataclass(frozen=True)
class TracedArrayInfo:
    """An array that a kernel used.

    Attributes
    ----------
    name : str
        Name of the argument, the global or the variable.
    space : str
        "global", "shared", "local" or "constant".
    shape, strides : tuple of int
        Strides in bytes.
    dtype : dtype
    allocation : int
        Arrays with the same number share memory.
    offset : int
        Where it begins in the allocation, in bytes.
    uninitialised : ndarray of bool, same shape, or None
        The elements of a global array that were not written before the launch, as far as is known: those
        that `device_array` left, or all of an array that holds only NaN. None if there are none.
    """

    name: str
    space: str
    shape: tuple
    strides: tuple
    dtype: np.dtype
    allocation: int
    offset: int
    uninitialised: np.ndarray | None


@dataclass(frozen=True)
class Trace:
    """The accesses of one launch; the module explains the columns."""

    kernel: str
    grid: tuple
    block_shape: tuple
    arrays: tuple
    sites: tuple
    kind: np.ndarray
    array: np.ndarray
    element: np.ndarray
    address: np.ndarray
    block: np.ndarray
    thread: np.ndarray
    interval: np.ndarray
    epoch: np.ndarray
    site: np.ndarray
    negative: np.ndarray
    turn: np.ndarray
    """How many blocks had run before: the block's number, unless blocks ran in another order."""
    values: tuple
    """The value read or written, one object per row; for an ATOMIC the value written."""

    def __len__(self):
        return len(self.kind)

    @functools.cached_property
    def itemsize(self) -> np.ndarray:
        """Bytes of each row's element; 0 for a fence."""
        return np.array([info.dtype.itemsize for info in self.arrays] + [0])[self.array]

    @functools.cached_property
    def occurrence(self) -> np.ndarray:
        """How often the row's thread had executed the row's site in the row's barrier interval."""
        key = combine(self.turn, self.thread, self.interval, self.site)
        order = np.argsort(key, kind="stable")
        rows = np.arange(len(key))
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        first = np.repeat(starts, np.diff(starts, append=len(key)))
        occurrence = np.empty(len(key), np.int64)
        occurrence[order] = rows - first
        return occurrence

    def index(self, row: int) -> tuple[int, ...]:
        """Return the index of a row's element in its array."""
        shape = self.arrays[self.array[row]].shape
        return tuple(int(i) for i in np.unravel_index(self.element[row], shape))

    def name(self, row: int) -> str:
        """Return a row's element as in the source, with numbers: ``tile[3, 4]``."""
        return f"{self.arrays[self.array[row]].name}[{', '.join(map(str, self.index(row)))}]"


def combine(*columns):
    """Return an int64 key for each row of non-negative columns; keys sort as the rows do.

    >>> combine(np.array([1, 0, 0]), np.array([0, 2, 1]))
    array([3, 2, 1])
    """
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        size = int(column.max(initial=0)) + 1
        if (int(key.max(initial=0)) + 1) * size > 2**62:
            key = np.unique(key, return_inverse=True)[1]
        key = key * size + column
    return key


class Distinct(NamedTuple):
    """The distinct rows of columns, in order."""

    columns: tuple
    first: np.ndarray
    """The first row equal to each."""
    which: np.ndarray
    """For each row, the number of the distinct row that equals it."""
    counts: np.ndarray


def distinct(*columns):
    """Return the distinct rows of non-negative columns: a quicker ``np.unique(..., axis=1)``.

    >>> rows = distinct(np.array([1, 0, 1]), np.array([5, 7, 5]))
    >>> np.array(rows.columns).tolist(), rows.first.tolist(), rows.which.tolist(), rows.counts.tolist()
    ([[0, 1], [7, 5]], [1, 0], [1, 0, 1], [1, 2])
    """
    key = combine(*columns)
    _, first, which, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    return Distinct(tuple(column[first] for column in columns), first, which, counts)
