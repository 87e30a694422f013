"""Run a kernel and note every access: `record`, and the memory that does the noting.

Inside the kernel every array is a `TracedArray`, which looks like an ndarray and appends to a log. What is
costly, such as turning indices into addresses, is done afterwards for the whole log at once.
"""

from __future__ import annotations

import dataclasses
import gc
import sys
from typing import Any, NamedTuple

import numpy as np

from gpuless.access.trace import ATOMIC, FENCE, READ, WRITE, Trace, TracedArrayInfo, combine
from gpuless.simulator.arithmetic import check_ufunc, typed, typed_array
from gpuless.simulator.errors import LaunchStopped
from gpuless.simulator.flat import Flat
from gpuless.simulator.kernel import Observed
from gpuless.simulator.memory import Memory, is_poison, poison
from gpuless.source.instructions import (
    assigned_name,
    instruction_start,
    instruction_starts,
    kernel_frames,
    site,
)

# The log is one flat list, which is faster to write and to take apart than a list of tuples. An entry is:
# view, kind, index, value, offset of the instruction, code object.
_WIDTH = 6


def record(kernel: Any) -> Observed[Trace]:
    """Return a kernel that, launched, runs in the simulator and returns what it accessed.

    Parameters
    ----------
    kernel : kernel or function

    Returns
    -------
    object
        To be launched as the kernel is: ``record(kernel)[grid, block](*arguments)`` returns a `Trace`.

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
    """Run a launch in a `TracedMemory`, on arguments in device memory; the others are as in `Scheduler`.

    What was noted of a launch that is stopped is forgotten, unless `keep` says that it is wanted.
    """
    # Python looks for garbage after so many new objects, and the log is made of new objects: off meanwhile.
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


#: What NumPy raises for an index beyond an array; the second one if it has not so many bits.
_BEYOND = IndexError, OverflowError


class TracedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that logs every access to an element; to a kernel it looks like an ndarray.

    `view` is its number in the memory's list of views.
    """

    __slots__ = ("_array", "_log", "_memory", "_view", "dtype", "ndim", "shape", "size")

    def __init__(self, memory, array, view):
        self._memory, self._array, self._view = memory, array, view
        self._log = memory.log.extend
        self.shape, self.ndim, self.size, self.dtype = array.shape, array.ndim, array.size, array.dtype

    def __getitem__(self, index):
        try:
            value = self._array[index]
        except _BEYOND:
            if self.dtype.names:
                return TracedRecord(self, index)  # what is done to its fields will be told
            return self._memory.out_of_bounds(self, READ, index, sys._getframe(1))
        if isinstance(value, np.ndarray):
            return (
                self._memory.field(self, index) if isinstance(index, str) else self._memory.view(self, value)
            )
        if isinstance(value, np.void):
            return TracedRecord(self, index)
        frame = sys._getframe(1)
        self._log((self._view, READ, index, value, frame.f_lasti, frame.f_code))
        return value

    def __setitem__(self, index, value):
        frame = sys._getframe(1)
        if isinstance(value, TracedRecord):
            value = self._memory.load(value._array, value._index, frame).copy()
        if isinstance(value, TracedArray):
            self._log((value._view, READ, ..., value._array, frame.f_lasti, frame.f_code))
            value = value._array
        try:
            self._array[index] = value
        except _BEYOND:
            self._memory.out_of_bounds(self, WRITE, index, frame)
            return
        self._log((self._view, WRITE, index, value, frame.f_lasti, frame.f_code))

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        check_ufunc(ufunc, out)
        frame = sys._getframe(1)
        while frame.f_globals.get("__name__", "").startswith(("numpy", "gpuless")):  # that of the operator
            frame = frame.f_back
        for kind, arrays in ((READ, inputs), (WRITE, out)):
            for each in arrays:
                if isinstance(each, TracedArray):
                    self._log((each._view, kind, ..., None, frame.f_lasti, frame.f_code))
        inputs, outputs = (
            [each._array if isinstance(each, TracedArray) else each for each in arrays]
            for arrays in (inputs, out)
        )
        getattr(ufunc, method)(*inputs, out=tuple(outputs), **options)
        return out[0]

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        frame = sys._getframe(1)
        for i in range(len(self._array)):
            value = self._array[i]
            if isinstance(value, np.ndarray):
                yield self._memory.view(self, value)
            elif isinstance(value, np.void):
                yield TracedRecord(self, i)
            else:
                self._log((self._view, READ, i, value, frame.f_lasti, frame.f_code))
                yield value

    @property
    def flat(self):
        """All elements in a row."""
        return TracedFlat(self)

    def __getattr__(self, name):
        if name in (self.dtype.names or ()):
            return self._memory.field(self, name)
        attribute = getattr(self._array, name)
        if isinstance(attribute, np.ndarray):
            return self._memory.view(self, attribute)
        if not callable(attribute):
            return attribute

        def method(*arguments, **options):
            result = attribute(*arguments, **options)
            if isinstance(result, np.ndarray) and np.shares_memory(result, self._array):
                return self._memory.view(self, result)
            frame, kind = sys._getframe(1), WRITE if name == "fill" else READ
            self._log((self._view, kind, ..., arguments, frame.f_lasti, frame.f_code))
            return result

        return method


class TracedFlat(Flat):
    """The elements of a `TracedArray` in a row: an access is logged where the kernel makes it."""

    __slots__ = ()

    def __getitem__(self, index):
        return self._load(index, sys._getframe(1))

    def __setitem__(self, index, value):
        self._array._memory.store(self._array, self._place(index), value, sys._getframe(1))

    def __iter__(self):
        return (self._load(index, sys._getframe(1)) for index in range(len(self)))

    def _load(self, index, frame):
        array, place = self._array, self._place(index)
        return TracedRecord(array, place) if array.dtype.names else array._memory.load(array, place, frame)


class TracedRecord:
    """A record of a `TracedArray`, of which every access to a field is logged."""

    __slots__ = ("_array", "_index")

    def __init__(self, array, index):
        object.__setattr__(self, "_array", array)
        object.__setattr__(self, "_index", index)

    def __getitem__(self, name):
        array, memory = self._array, self._array._memory
        field = memory.field(array, name)
        if field.dtype.names or field.ndim > array.ndim:  # a record or an array itself
            return field[self._index]
        return memory.load(field, self._index, sys._getframe(1))

    def __setitem__(self, name, value):
        memory = self._array._memory
        memory.store(memory.field(self._array, name), self._index, value, sys._getframe(1))

    __getattr__, __setattr__ = __getitem__, __setitem__


class Miss(NamedTuple):
    """An access beyond an array, and who made it."""

    block: int
    thread: int
    interval: int
    view: object
    kind: int
    index: tuple  # type: ignore[assignment]  # not what a tuple calls index
    site: object


class Meeting(NamedTuple):
    """Lanes of a warp that did something together without others that their mask names."""

    block: int
    thread: int
    """The first of those that met."""
    interval: int
    operation: str
    mask: int
    site: object
    finished: tuple
    """Numbers of the threads that were not there any more."""
    code: object
    offset: int
    """Where the kernel was: the operation, or the call of the device function that it is in."""


class AbsentRead(NamedTuple):
    """A value that a shuffle took from a lane that did not take part."""

    block: int
    thread: int
    interval: int
    operation: str
    mask: int
    site: object
    lane: int
    """The one it was to come from."""


class TracedMemory(Memory):
    """Memory that hands out traced arrays.

    A tolerant one notes accesses out of bounds in `misses` and goes on, as a GPU does; else they raise
    IndexError.
    """

    def __init__(self, dynamic_bytes=0, tolerant=False):
        self.log, self.misses = [], []
        self.meetings, self.absent_reads = [], []
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
        """Note that what is logged from here on is the work of another thread."""
        epoch = self._epochs.get(thread.number, 0)
        self._segments.append((self.position, block, thread.number, interval, epoch, self._turn))

    def synchronise_warp(self, threads):
        """Count the passing of `syncwarp`."""
        for thread in threads:
            self._epochs[thread.number] = self._epochs.get(thread.number, 0) + 1

    def lanes_missing(self, threads, finished):
        """Note who met, and who was named and had finished."""
        first = threads[0]
        frame = kernel_frames(first.worker.gr_frame)[-1]
        self.meetings.append(
            Meeting(
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
        """Note who reads from a lane that is not there."""
        block, number, interval = self.running
        read = AbsentRead(block, number, interval, thread.waits_for, thread.value[0], thread.site, source)
        self.absent_reads.append(read)
        return super().absent_lane(thread, source, own)

    def wrap(self, array, space, name=None, code=None, offset=None):
        """Return a traced array; one that was wrapped already goes by the same number."""
        if name is not None:
            key = space, name, _start_of(array), array.shape, array.strides
        else:
            key = space, id(code), instruction_start(code, offset), array.shape, array.dtype
        view = self._known.get(key)
        if view is None:
            name = name or assigned_name(code, offset) or f"{space} array"
            view = self._known[key] = len(self._views)
            self._add_array(array, space, name, key)
            info = self.arrays[-1]
            self._views.append(_View(len(self.arrays) - 1, info.offset, info.shape, info.strides))
        return TracedArray(self, typed_array(array), view)

    def _add_array(self, array, space, name, key):
        start, uninitialised = 0, None
        if space in ("global", "constant"):
            root = array
            while isinstance(root.base, np.ndarray):
                root = root.base
            key = _start_of(root)
            start = _start_of(array) - key
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
        """Return a part of a traced array, traced as well."""
        above = self._views[parent._view]
        moved = _start_of(array) - _start_of(parent._array)
        new = _View(above.array, above.offset + moved, array.shape, array.strides)
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
        new = _View(number, above.offset + offset, array.shape, array.strides)
        return TracedArray(self, array, self._number_of(new))

    def _number_of(self, view):
        number = self._known.get(view)
        if number is None:
            number = self._known[view] = len(self._views)
            self._views.append(view)
        return number

    def out_of_bounds(self, array, kind, index, frame):
        """Note an access beyond an array, and return what is read there; or let it raise."""
        parts = index if isinstance(index, tuple) else (index,)
        are_numbers = all(isinstance(part, (int, np.integer)) for part in parts)
        if not (are_numbers and len(parts) == array.ndim):
            raise  # the error that is being handled
        beyond = [
            (part, axis, size)
            for axis, (part, size) in enumerate(zip(parts, array.shape, strict=True))
            if not -size <= part < size
        ]
        if not beyond:  # then it is the value that does not fit
            raise
        if not self._tolerant:
            raise IndexError(
                "index {} is out of bounds for axis {} with size {}".format(*beyond[0])
            ) from None
        view = self._views[array._view]
        self.misses.append(Miss(*self.running, view, kind, parts, site(frame.f_code, frame.f_lasti)))
        return typed(poison(array.dtype))

    def update(self, array, index, new, value):
        """Log an atomic operation of the kernel that is two frames up."""
        frame = sys._getframe(2)
        try:
            old = array._array[index]
        except _BEYOND:
            return self.out_of_bounds(array, ATOMIC, index, frame)
        array._array[index] = new(old, value)
        value = array._array[index]
        array._log((array._view, ATOMIC, index, value, frame.f_lasti, frame.f_code))
        return old

    def load(self, array, index, frame=None):
        """Log a read by `cuda.ldcg` and its kind, or by the frame given."""
        frame = frame or sys._getframe(1)
        try:
            value = array._array[index]
        except _BEYOND:
            return self.out_of_bounds(array, READ, index, frame)
        array._log((array._view, READ, index, value, frame.f_lasti, frame.f_code))
        return value

    def store(self, array, index, value, frame=None):
        """Log a write by `cuda.stcg` and its kind, or by the frame given."""
        frame = frame or sys._getframe(1)
        try:
            array._array[index] = value
        except _BEYOND:
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
        """How much has been noted of whatever kind: it all takes memory."""
        return self.position + sum(map(len, self._notes))

    @property
    def _notes(self):
        return self._segments, self.misses, self.meetings, self.absent_reads

    def forget(self):
        """Let go of all that was noted: what refers to this memory may stay for long."""
        for notes in (self.log, *self._notes):
            notes.clear()

    @property
    def running(self):
        """Who has control, or had it last: block, thread, interval."""
        return self._segments[-1][1:4]

    def trace(self, launch):
        """Turn the log of a launch into the columns of a `Trace`."""
        views, kinds, indices, values, offsets, codes = (self.log[i::_WIDTH] for i in range(_WIDTH))
        rows, arrays, elements, addresses, negative = self._located(np.array(views, np.int64), indices)
        sites, site_of, self.site_codes = _numbered_sites(codes, np.array(offsets, np.int64))
        starts = np.array(self._segments, np.int64).reshape(-1, 6)
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

    def _located(self, views, indices):
        """Turn indices into rows, arrays, elements, addresses and negative axes: an entry an element.

        The rows say which line of the log it is from: a slice makes several accesses.
        """
        order = np.argsort(views, kind="stable")
        parts = []
        for group in np.split(order, np.flatnonzero(np.diff(views[order])) + 1):
            if len(group) and views[group[0]] >= 0:
                view = self._views[views[group[0]]]
                parts.append(
                    view.locate(self.arrays[view.array], group, [indices[i] for i in group.tolist()])
                )
            elif len(group):
                nothing = np.zeros(len(group), np.int64)
                parts.append((group, nothing - 1, nothing, nothing, nothing))
        if not parts:
            return tuple(np.zeros(0, np.int64) for _ in range(5))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        in_order = np.argsort(columns[0], kind="stable")
        return tuple(column[in_order] for column in columns)


@dataclasses.dataclass(frozen=True)
class _View:
    """A part of an array: what an index in the kernel refers to."""

    array: int
    offset: int
    shape: tuple
    strides: tuple

    def locate(self, info, rows, indices):
        """Return rows, arrays, elements, addresses, and which indices were negative."""
        try:
            index = np.array(indices, np.int64).reshape(len(rows), -1)
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
    """Return which element of an array lies so many bytes from its first one."""
    index = [np.zeros_like(distance)] * len(info.shape)
    # Axes that go backwards are counted from their other end. The one with the longest stride tells first.
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


def _uninitialised(array):
    """Return which elements nobody has written, as far as their values tell; None if there are none."""
    mask = is_poison(array)
    if array.dtype.kind == "f" and array.size > 1 and np.isnan(array).all():
        # The caller's own poison: no input consists of NaN alone.
        mask = np.ones(array.shape, bool)
    return mask if mask.any() else None


def _start_of(array):
    """Return the address of an array's first element."""
    return array.__array_interface__["data"][0]


def _numbered_sites(codes, offsets):
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
