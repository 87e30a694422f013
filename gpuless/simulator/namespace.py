"""The namespace `cuda` inside a simulated kernel.

Each launch has one `Cuda`. Before the scheduler lets a thread run, it sets the thread in the namespace
(`thread`, `threadIdx`), so that reading ``cuda.threadIdx.x`` costs two attribute look-ups; nothing else runs
until the thread waits or ends.
"""

import inspect
import operator
import sys
import types

import numpy as np

from gpuless.limits import WARP, LaunchError
from gpuless.simulator import intrinsics
from gpuless.simulator.arithmetic import Unsigned, cast, typed
from gpuless.simulator.compilers import of_cuda
from gpuless.simulator.errors import UnsupportedPython
from gpuless.simulator.foreign import Cause
from gpuless.simulator.intrinsics import Dim3

FULL_MASK = 0xFFFFFFFF
#: The order in which threads wait before they store, and the name of that wait.
IN_STEP = "in step"
_VECTOR_TYPES = intrinsics.vector_types()
_GENERATOR = inspect.CO_GENERATOR


class Wait:
    """What a waiting operation returns: it is yielded to the scheduler, which sends the result.

    `answer` computes that from the values brought by all threads that wait together.
    """

    __slots__ = ("answer",)

    def __init__(self, answer):
        self.answer = answer

    def __iter__(self):
        return (yield self)


def is_waiting(value):
    """Return whether a call's result is to be waited for with `yield from`."""
    return type(value) is types.GeneratorType or type(value) is Wait


def missed(name, where=None):
    """Return the error of a thread that waits, at an operation or in a function, but whose caller cannot."""
    reason = "the simulator has to see the call in the source of a kernel or device function"
    return UnsupportedPython(f"cannot wait here: {reason}", name, where)


_votes, _mask = map(cast, map(np.dtype, ("int32", "uint32")))  # types of votes, and of other masks


def _lanes_that(lanes, brought):
    """Return the mask of the lanes that have brought this value."""
    return _votes(sum(1 << lane for lane, value in lanes.items() if value == brought))


# Waits whose answer needs only the values brought: a list of them in a block, a dict by lane in a warp.
_ARRIVED = Wait(lambda _: None)
_COUNT, _ALL, _ANY = Wait(sum), Wait(lambda votes: int(all(votes))), Wait(lambda votes: int(any(votes)))
_GRID_ARRIVED = Wait(lambda _: 1)
_ACTIVE = Wait(lambda lanes: _mask(sum(1 << lane for lane in lanes)))
_ALL_LANES, _ANY_LANE = (Wait(lambda lanes, of=of: of(lanes.values())) for of in (all, any))
_EQUAL_LANES = Wait(lambda lanes: len(set(lanes.values())) == 1)
_BALLOT = Wait(lambda lanes: _lanes_that(lanes, True))


class Shared:
    """`cuda.shared`."""

    def __init__(self, memory):
        self._memory = memory

    def array(self, shape, dtype, alignment=None):
        """Return the block's array for this call in the source."""
        return self._memory.shared(sys._getframe(1), shape, dtype)


class Local:
    """`cuda.local`."""

    def __init__(self, memory):
        self._memory = memory

    def array(self, shape, dtype, alignment=None):
        """Return a new array of the thread."""
        return self._memory.local(sys._getframe(1), shape, dtype)


class Constant:
    """`cuda.const`."""

    def __init__(self, memory):
        self._memory = memory

    def array_like(self, array):
        """Return the array as constant memory."""
        return self._memory.constant_like(sys._getframe(1), array)


# The dtypes of atomic operations: of most, of those on bits, and of inc and dec.
_NUMBERS, _INTEGERS, _COUNTERS = "iIlLqQfd", "iIlLqQ", "ILQ"
# For each atomic operation: the new element from the old one and a value, and the dtypes.
_ATOMIC = {
    "add": (operator.add, _NUMBERS),
    "sub": (operator.sub, _NUMBERS),
    "and_": (operator.and_, _INTEGERS),
    "or_": (operator.or_, _INTEGERS),
    "xor": (operator.xor, _INTEGERS),
    "inc": (lambda old, limit: 0 if old >= limit else old + 1, _COUNTERS),
    "dec": (lambda old, limit: limit if old == 0 or old > limit else old - 1, _COUNTERS),
    "exch": (lambda old, value: value, _INTEGERS),
    "max": (max, _NUMBERS),
    "min": (min, _NUMBERS),
    # For integers as max and min, as NumPy would make floats of some.
    "nanmax": (lambda old, value: max(old, value) if isinstance(old, int) else np.fmax(old, value), _NUMBERS),
    "nanmin": (lambda old, value: min(old, value) if isinstance(old, int) else np.fmin(old, value), _NUMBERS),
}


class Atomic:
    """`cuda.atomic`: only one thread runs at a time, so a read followed by a write is atomic.

    ``cuda.atomic.add(array, index, value)`` and the others of `_ATOMIC` return the old element.
    """

    def __init__(self, memory):
        self._update = memory.update

    def cas(self, array, index, old, value):
        """Set an element if it equals `old`; return the old element."""
        old, value = (_element("cas", array, each, _INTEGERS) for each in (old, value))
        return self._update(array, index, lambda found, new: new if found == old else found, value)

    def compare_and_swap(self, array, old, value):
        """Do `cas` for the first element."""
        old, value = (_element("compare_and_swap", array, each, _INTEGERS) for each in (old, value))
        return self._update(
            array, (0,) * array.ndim, lambda found, new: new if found == old else found, value
        )


def _atomic(name, new, chars):
    def operation(self, array, index, value):
        return self._update(array, index, new, _element(name, array, value, chars))

    operation.__qualname__ = f"Atomic.{name}"  # Python's name for it in errors about arguments
    return operation


for _name, _of in _ATOMIC.items():
    setattr(Atomic, _name, _atomic(_name, *_of))


def _element(operation, array, value, chars):
    """Return a value in the type of an array's elements, as atomic instructions take it."""
    name, dtype = f"cuda.atomic.{operation}", getattr(array, "dtype", None)
    if dtype is None or isinstance(array, np.generic):
        raise UnsupportedPython("takes an array first, then the index", name, cause=Cause("no array", name))
    if dtype.char not in chars:
        known = dict.fromkeys(np.dtype(char).name for char in chars)  # two letters may mean one type
        raise UnsupportedPython(f"takes {', '.join(known)}, not {dtype}", name)
    return value if type(value) is dtype.type else cast(dtype)(value)


class _Grid:
    """`cuda.cg.this_grid()`."""

    def __init__(self, cuda):
        self._cuda = cuda

    def sync(self):
        """Wait for all threads of the grid, which must have a single block here."""
        if self._cuda.gridDim.x * self._cuda.gridDim.y * self._cuda.gridDim.z > 1:
            raise LaunchError("the simulator runs one block after another: grid.sync() needs a grid of one")
        return self._cuda._wait("grid.sync", None, sys._getframe(1), _GRID_ARRIVED)


class CooperativeGroups:
    """`cuda.cg`."""

    def __init__(self, cuda):
        self._cuda = cuda

    def this_grid(self):
        """Return the group of all threads."""
        return _Grid(self._cuda)


_BOOLS = (bool, np.bool_)


def _checked(operation, value, kinds, refused):
    """Return a value if an operation takes its type, else raise."""
    if isinstance(value, refused):
        kind = "unsigned integers" if isinstance(value, Unsigned) else np.asarray(value).dtype
        raise UnsupportedPython(f"takes {kinds}, not {kind}: cast it", f"cuda.{operation}")
    return value


class Warp:
    """The operations of the 32 lanes of a warp; part of `Cuda`.

    Each waits until all lanes in the mask have come, each with a value. It returns a `Wait`, whose result is
    what the docstring says.
    """

    def _gather(self, name, mask, value, frame, wait):
        """Wait for the lanes in the mask; each brings a value."""
        return self._wait(name, (int(mask) & FULL_MASK, value), frame, wait)

    def _shuffle(self, name, mask, value, frame, source):
        """Wait for the lanes in the mask, and get the value of the lane `source`, which may be absent."""
        _checked(name, value, "int32, int64, float32 and float64", (*_BOOLS, Unsigned, np.float16))

        def answer(lanes):
            # On a GPU, reading from an absent lane is undefined.
            return lanes[source] if source in lanes else self._absent_lane(self.thread, source, value)

        return self._gather(name, mask, value, frame, Wait(answer))

    def _vote(self, name, mask, predicate, frame, wait):
        """Wait for the lanes in the mask; each brings a truth value."""
        predicate = bool(_checked(name, predicate, "integers and bool", np.floating))
        return self._gather(name, mask, predicate, frame, wait)

    def syncwarp(self, mask=FULL_MASK):
        """Wait for the other lanes; what they wrote before can be read afterwards."""
        return self._gather("syncwarp", mask, None, sys._getframe(1), _ARRIVED)

    def shfl_sync(self, mask, value, src_lane):
        """Return the value of one lane."""
        return self._shuffle("shfl_sync", mask, value, sys._getframe(1), int(src_lane) % WARP)

    def shfl_up_sync(self, mask, value, delta):
        """Return the value of the lane `delta` below; the first lanes keep their own."""
        lane, source = self.thread.lane, self.thread.lane - int(delta)
        return self._shuffle("shfl_up_sync", mask, value, sys._getframe(1), source if source >= 0 else lane)

    def shfl_down_sync(self, mask, value, delta):
        """Return the value of the lane `delta` above; the last lanes keep their own."""
        lane, source = self.thread.lane, self.thread.lane + int(delta)
        return self._shuffle(
            "shfl_down_sync", mask, value, sys._getframe(1), source if source < WARP else lane
        )

    def shfl_xor_sync(self, mask, value, lane_mask):
        """Return the value of the lane whose number differs in the bits of `lane_mask`."""
        return self._shuffle(
            "shfl_xor_sync", mask, value, sys._getframe(1), self.thread.lane ^ int(lane_mask)
        )

    def all_sync(self, mask, predicate):
        """Return whether the predicate holds in all lanes."""
        return self._vote("all_sync", mask, predicate, sys._getframe(1), _ALL_LANES)

    def any_sync(self, mask, predicate):
        """Return whether the predicate holds in any lane."""
        return self._vote("any_sync", mask, predicate, sys._getframe(1), _ANY_LANE)

    def eq_sync(self, mask, predicate):
        """Return whether the predicate is the same in all lanes."""
        return self._vote("eq_sync", mask, predicate, sys._getframe(1), _EQUAL_LANES)

    def ballot_sync(self, mask, predicate):
        """Return a mask of the lanes where the predicate holds."""
        return self._vote("ballot_sync", mask, predicate, sys._getframe(1), _BALLOT)

    def match_any_sync(self, mask, value):
        """Return a mask of the lanes with the same value."""
        wait = Wait(lambda lanes: _lanes_that(lanes, value))
        return self._gather("match_any_sync", mask, value, sys._getframe(1), wait)

    def match_all_sync(self, mask, value):
        """Return the mask and True if all lanes have the same value, else 0 and False."""

        def answer(lanes):
            same = all(other == value for other in lanes.values())
            return (_lanes_that(lanes, value) if same else 0), same

        return self._gather("match_all_sync", mask, value, sys._getframe(1), Wait(answer))

    def activemask(self):
        """Return a mask of the warp's active lanes."""
        return self._wait("activemask", (0, None), sys._getframe(1), _ACTIVE)

    def lanemask_lt(self):
        """Return a mask of the lanes below this one."""
        return _mask((1 << self.thread.lane) - 1)


_FENCES = ("threadfence", "threadfence_block", "threadfence_system")
# With a hint for the caches, which are not simulated.
_LOADS, _STORES = ("ldca", "ldcg", "ldcs", "ldlu", "ldcv"), ("stcg", "stcs", "stwb", "stwt")


class Cuda(Warp):
    """The namespace of one launch."""

    warpsize = WARP
    fp16 = intrinsics.Half

    popc, brev = staticmethod(intrinsics.popc), staticmethod(intrinsics.brev)
    clz, ffs = staticmethod(intrinsics.clz), staticmethod(intrinsics.ffs)
    fma, selp = staticmethod(intrinsics.fma), staticmethod(intrinsics.selp)
    cbrt = np.cbrt

    def __init__(self, grid, block, memory):
        self.gridDim = Dim3(*grid)
        self.blockDim = Dim3(*block)
        self.blockIdx = self.threadIdx = self.thread = None
        self.shared, self.local, self.const = Shared(memory), Local(memory), Constant(memory)
        self.atomic = Atomic(memory)
        self.cg = CooperativeGroups(self)
        self._absent_lane = memory.absent_lane
        for names, function in ((_FENCES, memory.fence), (_LOADS, memory.load), (_STORES, memory.store)):
            for name in names:
                setattr(self, name, function)  # not by vars(self): that makes every look-up slower

    def __getattr__(self, name):
        if name in _VECTOR_TYPES:
            return _VECTOR_TYPES[name]
        # Types such as cuda.int32, and other names that need no simulation.
        return typed(of_cuda(name))

    @property
    def laneid(self):
        """The thread's number in its warp."""
        return self.thread.lane

    def grid(self, ndim):
        """Return the thread's position in the grid: a number, or a tuple of two or three."""
        thread, block, size = self.threadIdx, self.blockIdx, self.blockDim
        x = block.x * size.x + thread.x
        if ndim == 1:
            return x
        y = block.y * size.y + thread.y
        if ndim == 2:
            return x, y
        if ndim == 3:
            return x, y, block.z * size.z + thread.z
        raise ValueError(f"a grid has 1, 2 or 3 dimensions, not {ndim}")

    def gridsize(self, ndim):
        """Return how many threads the grid has: a number, or a tuple of two or three."""
        sizes = tuple(blocks * threads for blocks, threads in zip(self.gridDim, self.blockDim, strict=True))
        if ndim not in (1, 2, 3):
            raise ValueError(f"a grid has 1, 2 or 3 dimensions, not {ndim}")
        return sizes[0] if ndim == 1 else sizes[:ndim]

    def _wait(self, operation, value, frame, wait):
        """Note what this thread waits for, and where; return what the kernel yields."""
        thread, code = self.thread, frame.f_code
        if thread.wait is not None:
            raise missed(thread.waits_for)
        thread.waits_for, thread.value, thread.wait = operation, value, wait
        thread.code, thread.offset = code, frame.f_lasti
        return wait if code.co_flags & _GENERATOR else thread.wait_outside()

    def in_step(self, value):
        """Wait for the lanes that store together; return the value to be stored."""
        return self._wait(IN_STEP, None, sys._getframe(1), Wait(lambda _: value))

    def syncthreads(self):
        """Wait for all threads of the block."""
        return self._wait("syncthreads", None, sys._getframe(1), _ARRIVED)

    def syncthreads_count(self, predicate):
        """Wait for all threads of the block; return in how many the predicate holds."""
        return self._wait_and_vote("syncthreads_count", predicate, sys._getframe(1), _COUNT)

    def syncthreads_and(self, predicate):
        """Wait for all threads of the block; return 1 if the predicate holds in all, else 0."""
        return self._wait_and_vote("syncthreads_and", predicate, sys._getframe(1), _ALL)

    def syncthreads_or(self, predicate):
        """Wait for all threads of the block; return 1 if the predicate holds in any, else 0."""
        return self._wait_and_vote("syncthreads_or", predicate, sys._getframe(1), _ANY)

    def _wait_and_vote(self, operation, predicate, frame, wait):
        """Wait with a predicate, which must be an integer at a barrier."""
        _checked(operation, predicate, "integers", (*_BOOLS, np.floating))
        return self._wait(operation, bool(predicate), frame, wait)

    def nanosleep(self, nanoseconds):
        """Do nothing: time is not simulated."""


# Names of `numba.cuda` with another meaning, or none, outside a kernel.
DEVICE_NAMES = (
    *(name for name in dir(Cuda) if not name.startswith("_")),
    *("threadIdx", "blockIdx", "blockDim", "gridDim", "shared", "local", "const", "atomic", "cg"),
    *(*_FENCES, *_LOADS, *_STORES),
)
