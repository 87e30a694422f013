"""From the log of a launch to columns: of views and indices to elements and addresses, for all at once."""

from dataclasses import dataclass

import numpy as np

from gpuless.access.trace import combine
from gpuless.source.instructions import instruction_starts, site


@dataclass(frozen=True)
class View:
    """A part of an array: what an index in the kernel refers to."""

    array: int
    offset: int
    shape: tuple
    strides: tuple

    def is_whole(self, info):
        """Return whether an index means the same in the whole array, of which this is known."""
        return (self.offset, self.shape, self.strides) == (info.offset, info.shape, info.strides)

    def locate(self, info, rows, indices):
        """Return rows, arrays, elements, addresses, and which indices were negative."""
        try:
            index = np.array(indices, np.intp).reshape(len(rows), -1)
        except (TypeError, ValueError):
            index = None
        if index is None or index.shape[1] != len(self.shape):
            rows, index = self._expanded(rows, indices)
        negative = index < 0
        index = np.where(negative, index + self.shape, index)
        address = self.offset + index @ np.array(self.strides, np.int64)
        if self.shape == info.shape and self.strides == info.strides:
            element = np.ravel_multi_index(tuple(index.T), self.shape)
        else:
            element = _element(address - info.offset, info)
        axes = negative @ (1 << np.arange(len(self.shape)))
        return rows, np.full(len(rows), self.array), element, address, axes

    def _expanded(self, rows, indices):
        """Return the single elements that slices, rows and the like stand for."""
        numbers = np.arange(int(np.prod(self.shape))).reshape(self.shape)
        chosen = [np.ravel(numbers[index]) for index in indices]
        rows = np.repeat(rows, [len(each) for each in chosen])
        return rows, np.stack(np.unravel_index(np.concatenate(chosen), self.shape), axis=1)


def _element(distance, info):
    """Return which element of an array lies the given number of bytes from its first one."""
    index = [np.zeros_like(distance)] * len(info.shape)
    # Axes that go backwards are counted from their other end. The one with the longest stride comes first.
    backwards = ((n - 1) * stride for n, stride in zip(info.shape, info.strides, strict=True) if stride < 0)
    distance = distance - sum(backwards)
    for axis in np.argsort([-abs(stride) for stride in info.strides], kind="stable"):
        stride = abs(info.strides[axis])
        if info.shape[axis] > 1 and stride:
            index[axis] = np.minimum(distance // stride, info.shape[axis] - 1)
            distance = distance - index[axis] * stride
            if info.strides[axis] < 0:
                index[axis] = info.shape[axis] - 1 - index[axis]
    return np.ravel_multi_index(tuple(index), info.shape)


def located(known, arrays, views, indices):
    """Turn indices into rows, arrays, elements, addresses and negative axes: an entry an element.

    The rows say which line of the log it is from: a slice makes several accesses.
    """
    order = np.argsort(views, kind="stable")
    parts = []
    for group in np.split(order, np.flatnonzero(np.diff(views[order])) + 1):
        if len(group) and views[group[0]] >= 0:
            view = known[views[group[0]]]
            parts.append(view.locate(arrays[view.array], group, [indices[i] for i in group.tolist()]))
        elif len(group):
            nothing = np.zeros(len(group), np.intp)
            parts.append((group, nothing - 1, nothing, nothing, nothing))
    if not parts:
        return tuple(np.zeros(0, np.intp) for _ in range(5))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    in_order = np.argsort(columns[0], kind="stable")
    return tuple(column[in_order] for column in columns)


def numbered_sites(codes, offsets):
    """Return the distinct instructions, for each row the number of its own, and the code each is in."""
    if not codes:
        return (), np.zeros(0, np.int64), ()
    identities = np.fromiter(map(id, codes), np.int64, len(codes))
    known, first, number = np.unique(identities, return_index=True, return_inverse=True)
    starts = np.empty(len(codes), np.int64)
    for i in range(len(known)):
        table = np.array(instruction_starts(codes[first[i]]))
        mine = number == i
        starts[mine] = table[offsets[mine] // 2]
    _, example, site_of = np.unique(combine(number, starts), return_index=True, return_inverse=True)
    sites = tuple(site(codes[row], int(starts[row])) for row in example)
    return sites, site_of, tuple(codes[row] for row in example)
