"""Copies of arrays in the memory of a real GPU, for kernels that run in the simulator."""

from types import SimpleNamespace

import numpy as np

from gpuless.simulator.compilers import of_cuda


class Copies:
    """Copies on the host of device arrays: arrays that share memory on the device share it here."""

    def __init__(self, arrays):
        self._pieces = [(start, *_copied(start, stop)) for start, stop in _merged(map(_span, arrays))]

    def here(self, array):
        """Return the copy of one of the arrays."""
        start, _ = _span(array)
        own = next((piece for piece in reversed(self._pieces) if piece[0] <= start), None)
        if own is None or array.size == 0:
            return np.empty(array.shape, array.dtype)
        first, _, content = own
        address = array.__cuda_array_interface__["data"][0]
        return np.ndarray(array.shape, array.dtype, content, address - first, array.strides)

    def copy_back(self):
        """Copy the present contents back to the device."""
        for _, there, content in self._pieces:
            there.copy_to_device(content)


def _span(array):
    """Return the address of an array's first byte, and the address after its last."""
    address = array.__cuda_array_interface__["data"][0]
    if array.size == 0:
        return address, address
    ends = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    below, above = (sum(pick(end, 0) for end in ends) for pick in (min, max))
    return address + below, address + above + array.dtype.itemsize


def _merged(spans):
    """Merge spans that overlap, in order; empty ones are left out."""
    merged = []
    for start, stop in sorted(span for span in spans if span[0] < span[1]):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return merged


def _copied(start, stop):
    """Return the bytes between two addresses of the device, as an array there and as a copy on the host."""
    described = {"data": (start, False), "shape": (stop - start,), "typestr": "|u1", "version": 3}
    there = of_cuda("as_cuda_array")(SimpleNamespace(__cuda_array_interface__=described))
    return there, there.copy_to_host()
