"""Run a kernel and log every access: `record`, and the memory that keeps the log.

Inside the kernel every array is a `TracedArray`, which appends to a log. Costly work, such as turning indices
into addresses, is done afterwards for the whole log at once (`columns`).
"""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from gpuless.access.arrays import BEYOND, TracedArray
from gpuless.access.columns import View, located, numbered_sites
from gpuless.access.indices import first_beyond, shape_of_part
from gpuless.access.trace import ATOMIC, FENCE, READ, WRITE, Trace, TracedArrayInfo
from gpuless.simulator.arithmetic import typed
from gpuless.simulator.arrays import typed_array
from gpuless.simulator.errors import LaunchStopped
from gpuless.simulator.kernel import Observed
from gpuless.simulator.memory import Memory, address_of, is_poison, owner_of, poison, poisoned
from gpuless.source.instructions import assigned_name, instruction_start, site

# The log is one flat list, which is faster to write and to split than a list of tuples. An entry is: view,
# kind, index, value, offset of the instruction, code object.
_WIDTH = 6


def record(kernel: Any) -> Observed[Trace]:
    """Return a kernel whose launch runs in the simulator and returns its accesses.

    Parameters
    ----------
    kernel : kernel or function

    Returns
    -------
    object
        Launched like the kernel: ``record(kernel)[grid, block](*arguments)`` returns a `Trace`.

    Examples
    --------
    >>> import gpuless
    >>> selection = gpuless.select()  # before numba.cuda is imported
    >>> from numba import cuda
    >>> @cuda.jit
    ... def shift(x, y):
    ...     i = cuda.threadIdx.x
    ...     y[i] = x[i + 1]
    >>> x, y = cuda.to_device(np.arange(4.0)), cuda.device_array(3)
    >>> trace = record(shift)[1, 3](x, y)
    >>> trace.thread.tolist(), trace.element.tolist()
    ([0, 0, 1, 1, 2, 2], [1, 0, 2, 1, 3, 2])
    >>> [trace.name(row) for row in range(2)], trace.address.tolist()[:2]
    (['x[1]', 'y[0]'], [8, 0])
    """
    return Observed(kernel, traced)


def traced(launch, arguments):
    """Return the trace of a launch on arguments in device memory."""
    memory = TracedMemory(launch.dynamic_bytes)
    run_traced(launch, arguments, memory)
    return memory.trace(launch)


def run_traced(launch, arguments, memory, order="forwards", seed=0, keep=False):
    """Run a launch in a `TracedMemory`, on arguments in device memory; `order` and `seed` as in `Scheduler`.

    If the launch is stopped, its log is dropped unless `keep` is set.
    """
    # The garbage collector runs after some number of new objects, and the log makes many: off meanwhile.
    collects = gc.isenabled()
    gc.disable()
    try:
        launch.run(arguments, memory, order, seed, memory.observe)
    except LaunchStopped:
        if not keep:
            memory.forget()
        raise
    finally:
        if collects:
            gc.enable()


class Miss(NamedTuple):
    """An access out of bounds, and the thread that made it."""

    block: int
    thread: int
    interval: int
    view: object
    kind: int
    index: tuple  # type: ignore[assignment]  # not what a tuple calls index
    """As in the source: numbers, or slices and the like for a part of an array."""
    site: object


class PartialWarp(NamedTuple):
    """An operation of a warp without some lanes that its mask names."""

    block: int
    thread: int
    """The first that took part."""
    interval: int
    operation: str
    mask: int
    site: object
    finished: tuple
    """Numbers of the threads in the mask that had finished."""
    code: object
    offset: int
    """The instruction in the kernel: the operation, or the call of the device function that contains it."""


class AbsentRead(NamedTuple):
    """A shuffle from a lane that did not take part."""

    block: int
    thread: int
    interval: int
    operation: str
    mask: int
    site: object
    lane: int
    """The lane to read from."""


class TracedMemory(Memory):
    """Memory that hands out traced arrays.

    If it is tolerant, an access out of bounds goes into `misses` and the kernel goes on, as on a GPU; else it
    raises IndexError.
    """

    def __init__(self, dynamic_bytes=0, tolerant=False):
        self.log, self.misses = [], []
        self.partial_warps, self.absent_reads = [], []
        self.arrays = []
        self._tolerant = tolerant
        self._segments, self._views, self._known, self._allocations = [], [], {}, {}
        self._turn = -2  # the first block is begun twice: here, and by the scheduler
        super().__init__(dynamic_bytes)

    def begin_block(self):
        """Forget the shared arrays."""
        super().begin_block()
        self._epochs = {}
        self._turn += 1

    def observe(self, block, thread, interval):
        """Note that another thread makes the accesses from here on."""
        epoch = self._epochs.get(thread.number, 0)
        self._segments.append((self.position, block, thread.number, interval, epoch, self._turn))

    def synchronise_warp(self, threads):
        """Count a `syncwarp` for each of its threads."""
        for thread in threads:
            self._epochs[thread.number] = self._epochs.get(thread.number, 0) + 1

    def lanes_missing(self, threads, finished):
        """Note an operation of a warp whose mask names lanes that have finished."""
        first = threads[0]
        frame = first.frames[-1]
        self.partial_warps.append(
            PartialWarp(
                self.running[0],
                first.number,
                self.running[2],
                first.waits_for,
                first.value[0],
                first.site,
                tuple(thread.number for thread in finished),
                frame.f_code,
                instruction_start(frame.f_code, frame.f_lasti),
            )
        )

    def absent_lane(self, thread, source, own):
        """Note a shuffle from a lane that does not take part."""
        block, number, interval = self.running
        read = AbsentRead(block, number, interval, thread.waits_for, thread.value[0], thread.site, source)
        self.absent_reads.append(read)
        return super().absent_lane(thread, source, own)

    def wrap(self, array, space, name=None, code=None, offset=None):
        """Return a traced array; an array wrapped before keeps its number."""
        if name is not None:
            key = space, name, address_of(array), array.shape, array.strides
        else:
            key = space, id(code), instruction_start(code, offset), array.shape, array.dtype
        view = self._known.get(key)
        if view is None:
            name = name or assigned_name(code, offset) or f"{space} array"
            view = self._known[key] = len(self._views)
            self._add_array(array, space, name, key)
            info = self.arrays[-1]
            self._views.append(View(len(self.arrays) - 1, info.offset, info.shape, info.strides))
        return TracedArray(self, typed_array(array), view)

    def _add_array(self, array, space, name, key):
        start, uninitialised = 0, None
        if space in ("global", "constant"):
            key = address_of(owner_of(array))
            start = address_of(array) - key
        elif space == "shared" and self._dynamic is not None and np.shares_memory(array, self._dynamic):
            key = "dynamic"
        if space == "global":
            uninitialised = _uninitialised(array)
        allocation = self._allocations.setdefault(key, len(self._allocations))
        self.arrays.append(
            TracedArrayInfo(
                name, space, array.shape, array.strides, array.dtype, allocation, start, uninitialised
            )
        )

    def view(self, parent, array):
        """Return a part of a traced array as a traced array."""
        above = self._views[parent._view]
        moved = address_of(array) - address_of(parent._array)
        new = View(above.array, above.offset + moved, array.shape, array.strides)
        return TracedArray(self, array, self._number_of(new))

    def field(self, records, name):
        """Return a field of traced records: an array of its own in the same memory."""
        above, array = self._views[records._view], typed_array(records._array[name])
        whole = self.arrays[above.array]
        dtype, offset = whole.dtype.fields[name][:2]
        number = self._known.get((above.array, name))
        if number is None:
            number = self._known[above.array, name] = len(self.arrays)
            self.arrays.append(
                dataclasses.replace(
                    whole,
                    name=f"{whole.name}.{name}",
                    shape=whole.shape + dtype.shape,
                    strides=whole.strides + np.empty(dtype.shape, dtype.base).strides,
                    dtype=dtype.base,
                    offset=whole.offset + offset,
                )
            )
        new = View(number, above.offset + offset, array.shape, array.strides)
        return TracedArray(self, array, self._number_of(new))

    def _number_of(self, view):
        number = self._known.get(view)
        if number is None:
            number = self._known[view] = len(self._views)
            self._views.append(view)
        return number

    def out_of_bounds(self, array, kind, index, frame):
        """Note an access out of bounds and return the garbage read there, or raise IndexError."""
        parts = index if isinstance(index, tuple) else (index,)
        beyond = first_beyond(parts, array.shape)
        if not beyond:  # the value does not fit, or there are too many indices
            raise  # re-raises the error being handled
        if not self._tolerant:
            raise IndexError("index {} is out of bounds for axis {} with size {}".format(*beyond)) from None
        view = self._views[array._view]
        self.misses.append(Miss(*self.running, view, kind, parts, site(frame.f_code, frame.f_lasti)))
        shape = shape_of_part(parts, array.shape)
        return self._nowhere(shape, array.dtype) if shape else typed(poison(array.dtype))

    def _nowhere(self, shape, dtype):
        """Return garbage for a part that is out of bounds, as an array whose accesses are not logged."""
        memory = TracedMemory(tolerant=True)
        memory.log, memory._segments = deque(maxlen=0), self._segments
        return memory.wrap(poisoned(shape, dtype), "local", "nowhere")

    def update(self, array, index, new, value):
        """Do and log an atomic operation of the kernel, which is two frames up."""
        frame = sys._getframe(2)
        try:
            old = array._array[index]
        except BEYOND:
            return self.out_of_bounds(array, ATOMIC, index, frame)
        array._array[index] = new(old, value)
        value = array._array[index]
        array._log((array._view, ATOMIC, index, value, frame.f_lasti, frame.f_code))
        return old

    def load(self, array, index, frame=None):
        """Read an element, for `cuda.ldcg` and its kind or for the frame given, and log that."""
        frame = frame or sys._getframe(1)
        try:
            value = array._array[index]
        except BEYOND:
            return self.out_of_bounds(array, READ, index, frame)
        array._log((array._view, READ, index, value, frame.f_lasti, frame.f_code))
        return value

    def store(self, array, index, value, frame=None):
        """Write an element, for `cuda.stcg` and its kind or for the frame given, and log that."""
        frame = frame or sys._getframe(1)
        try:
            array._array[index] = value
        except BEYOND:
            self.out_of_bounds(array, WRITE, index, frame)
            return
        array._log((array._view, WRITE, index, value, frame.f_lasti, frame.f_code))

    def fence(self):
        """Log a fence."""
        frame = sys._getframe(1)
        self.log.extend((-1, FENCE, 0, None, frame.f_lasti, frame.f_code))

    @property
    def position(self):
        """How many accesses have been logged."""
        return len(self.log) // _WIDTH

    @property
    def log_entries(self):
        """How many entries have been logged, of any kind: all take memory."""
        return self.position + sum(map(len, self._notes))

    @property
    def _notes(self):
        return self._segments, self.misses, self.partial_warps, self.absent_reads

    def forget(self):
        """Clear the log: references to this memory may live long."""
        for notes in (self.log, *self._notes):
            notes.clear()

    @property
    def running(self):
        """Block, thread and interval of the thread that runs, or ran last."""
        return self._segments[-1][1:4]

    def trace(self, launch):
        """Turn the log of a launch into the columns of a `Trace`."""
        views, kinds, indices, values, offsets, codes = (self.log[i::_WIDTH] for i in range(_WIDTH))
        rows, arrays, elements, addresses, negative = located(
            self._views, self.arrays, np.array(views, np.int64), indices
        )
        sites, site_of, self.site_codes = numbered_sites(codes, np.array(offsets, np.int64))
        starts = np.array(self._segments, np.intp).reshape(-1, 6)
        lengths = np.diff(starts[:, 0], append=self.position)
        block, thread, interval, epoch, turn = np.repeat(starts[:, 1:], lengths, axis=0)[rows].T
        if not np.array_equal(rows, np.arange(len(values))):
            values = [values[row] for row in rows.tolist()]
        return Trace(
            kernel=launch.name,
            grid=launch.grid,
            block_shape=launch.block,
            arrays=tuple(self.arrays),
            sites=sites,
            kind=np.array(kinds, np.int8)[rows],
            array=arrays,
            element=elements,
            address=addresses,
            block=block,
            thread=thread,
            interval=interval,
            epoch=epoch,
            site=site_of[rows],
            negative=negative,
            turn=turn,
            values=tuple(values),
        )


def _uninitialised(array):
    """Return which elements seem unwritten, judging by their values; None if there are none."""
    mask = is_poison(array)
    if array.dtype.kind == "f" and array.size > 1 and np.isnan(array).all():
        # The caller has filled it with NaN as poison: no input consists of NaN alone.
        mask = np.ones(array.shape, bool)
    return mask if mask.any() else None
