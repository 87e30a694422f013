"""Turn the log of a launch into columns: views and indices into elements and addresses, all at once."""

from dataclasses import dataclass

import numpy as np

from gpuless.access.trace import combine
from gpuless.source.instructions import instruction_starts, site


@dataclass(frozen=True)
class View:
    """An array or a part of one, which the kernel indexes."""

    array: int
    offset: int
    shape: tuple
    strides: tuple

    def is_whole(self, info):
        """Return whether an index means the same in the whole array, described by `info`."""
        return (self.offset, self.shape, self.strides) == (info.offset, info.shape, info.strides)

    def locate(self, info, rows, indices):
        """Return the columns row, array, element, address, and which indices were negative."""
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
        """Return rows and indices with slices and the like replaced by their elements."""
        numbers = np.arange(int(np.prod(self.shape))).reshape(self.shape)
        chosen = [np.ravel(numbers[index]) for index in indices]
        rows = np.repeat(rows, [len(each) for each in chosen])
        return rows, np.stack(np.unravel_index(np.concatenate(chosen), self.shape), axis=1)


def _element(distance, info):
    """Return the elements of an array that lie these numbers of bytes from its first one."""
    index = [np.zeros_like(distance)] * len(info.shape)
    # Axes of negative stride are counted from their other end. The axis of the longest stride comes first.
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
    """Return the columns row, array, element, address and negative axes, with one entry for each element.

    Row is the entry's number in the log; a slice there makes several entries here.
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
    """Return the distinct instructions, the number of each row's instruction, and each instruction's code."""
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
