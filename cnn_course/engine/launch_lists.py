"""Lists of what some code does on the GPU: its launches, by kernel, and its copies over the bus."""

from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import numpy as np

from benchmarks.records import text_table
from cnn_numba import device
from gpuless import access_map


class Row(NamedTuple):
    """All launches of one kernel: how many, with how many threads, and the bytes they need."""

    kernel: str
    launches: int
    threads: int
    bytes: int


class LaunchList:
    """The launches of some code, a row for each kernel; made by `listed`.

    Parameters
    ----------
    rows : list of Row
        In the order of the kernels' first launches.
    counted : bool
        Whether bytes were counted.
    """

    def __init__(self, rows, counted):
        self.rows, self.counted = rows, counted

    @property
    def launches(self):
        """The number of all launches."""
        return sum(row.launches for row in self.rows)

    @property
    def bytes(self):
        """The bytes that all launches need, None if they were not counted."""
        return sum(row.bytes for row in self.rows) if self.counted else None

    def __repr__(self):
        columns = 4 if self.counted else 3
        table = [("kernel", "launches", "threads", "bytes")]
        table += [(row.kernel, *(f"{value:,}" for value in row[1:])) for row in self.rows]
        threads = sum(row.threads for row in self.rows)
        table.append(("in all", f"{self.launches:,}", f"{threads:,}", f"{self.bytes or 0:,}"))
        return text_table([line[:columns] for line in table])


def listed(work, run=True) -> LaunchList:
    """List the launches of some code.

    Parameters
    ----------
    work : callable
        Without arguments; launches with `device.launch`, as the whole package does.
    run : bool
        Whether to run the kernels, traced, and count their bytes: once for each element that a launch reads,
        and once for each that it writes. Otherwise launches are only noted.

    Examples
    --------
    >>> from cnn_numba.ops.activation.gpu import relu_forward_naive
    >>> listed(lambda: relu_forward_naive(device.zeros(300)))
    kernel                     launches  threads  bytes
    relu_forward_naive_kernel         1      512  2,400
    in all                            1      512  2,400
    """
    rows = {}

    def note(launch):
        name = launch.kernel.py_func.__name__
        needed = _bytes(launch.examine(access_map)) if run else 0
        old = rows.get(name, Row(name, 0, 0, 0))
        threads = old.threads + int(np.prod(launch.grid)) * launch.threads
        rows[name] = Row(name, old.launches + 1, threads, old.bytes + needed)

    with device.observe_launches(note):
        work()
    return LaunchList(list(rows.values()), counted=run)


def _bytes(access):
    return sum(traffic.minimum for traffic in access.arrays if traffic.space == "global")


def access_of(work):
    """Return the `gpuless.AccessMap` of code that launches one kernel.

    Parameters
    ----------
    work : callable
        As for `listed`.

    Raises
    ------
    ValueError
        If it launches no kernel, or more than one.

    Examples
    --------
    >>> from cnn_numba.ops.pool import gpu as pool
    >>> x = device.zeros((1, 1, 4, 16))
    >>> access_of(lambda: pool.max_pool2d_forward(x, 2)).reads("x").sum()
    np.int64(64)
    """
    found = []
    with device.observe_launches(lambda launch: found.append(launch.examine(access_map))):
        work()
    if len(found) != 1:
        raise ValueError(f"an access map needs one launch, and this function makes {len(found)}")
    return found[0]


class Crossing(NamedTuple):
    """A copy between host and device."""

    direction: str
    shape: tuple
    dtype: str
    bytes: int


class Crossings(list):
    """The copies that `bus_traffic` noted."""

    @property
    def bytes(self):
        """The bytes of all copies."""
        return sum(crossing.bytes for crossing in self)

    def __repr__(self):
        if not self:
            return "no copies"
        table = [("direction", "shape", "dtype", "bytes")]
        table += [(c.direction, str(c.shape), c.dtype, f"{c.bytes:,}") for c in self]
        table.append(("in all", "", "", f"{self.bytes:,}"))
        return text_table(table, left=3)


@contextmanager
def bus_traffic():
    """Note every copy between host and device by the functions of `cnn_numba.device`.

    Yields
    ------
    Crossings
        Filled while the block runs.

    Examples
    --------
    >>> with bus_traffic() as bus:
    ...     values = device.to_host(device.to_device(np.zeros((2, 3), np.float32)))
    >>> bus
    direction       shape   dtype    bytes
    host to device  (2, 3)  float32     24
    device to host  (2, 3)  float32     24
    in all                              48
    """
    crossings = Crossings()
    to_device, to_host, copy = device.to_device, device.to_host, device.copy

    def note(direction, array):
        crossings.append(Crossing(direction, array.shape, str(array.dtype), array.nbytes))

    def noted_to_device(array):
        note("host to device", np.asarray(array))
        return to_device(array)

    def noted_to_host(array):
        if device.is_device_array(array):
            note("device to host", array)
        return to_host(array)

    def noted_copy(target, source):
        if device.is_device_array(target) and not device.is_device_array(source):
            note("host to device", target)
        copy(target, source)

    noted = {"to_device": noted_to_device, "to_host": noted_to_host, "copy": noted_copy}
    with ExitStack() as stack:
        for owner in (device, device.arrays):  # where operations and `arrays` look them up
            for name, function in noted.items():
                stack.enter_context(replaced(owner, name, function))
        yield crossings


@contextmanager
def replaced(owner: object, name: str, value: object):
    """Replace an attribute while the block runs."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
