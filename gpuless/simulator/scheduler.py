"""Run the threads of a launch, each as a generator.

A kernel that waits is a generator (see `rewriting`): it gives up control at barriers and at operations of its
warp, and runs undisturbed between them. The scheduler takes one block after another and sweeps over its
threads: each runs to its next barrier, or to its end, and when all have arrived the next sweep begins. One
sweep is one *barrier interval*. A kernel that never waits is called once for each thread.

The order of blocks, and of threads within a sweep, is free, as on a GPU: forwards, reversed or shuffled. The
order "in step" is forwards too, but the lanes of a warp store together: each waits before it stores, so that
all read before any of them stores, as on a GPU. A correct kernel computes the same in any order.
"""

import itertools
import os
import reprlib
import sys
from types import GeneratorType

import numpy as np

from gpuless.limits import WARP
from gpuless.positions import Shape, coordinates
from gpuless.simulator.coroutines import Coroutine, suspended_frames
from gpuless.simulator.errors import Divergence, DivergenceError, LaunchStopped, Place, located
from gpuless.simulator.intrinsics import Dim3
from gpuless.simulator.namespace import IN_STEP, missed
from gpuless.simulator.watchdog import Stop, Watch
from gpuless.source.dataflow import round_variables
from gpuless.source.instructions import PACKAGE, instruction_start, is_in_loop, place, site

ORDERS = ("forwards", "reversed", "shuffled")
_AS_NUMBERED = (ORDERS[0], IN_STEP)

_BARRIERS = {"syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or", "grid.sync"}
_FINISHED = None
# What a call of a function that waits returns.
_WORKERS = (GeneratorType, Coroutine)

# By the id of the code, which is kept, as in `gpuless.source.instructions`.
_round_names: dict = {}


def order_of_launches():
    """Return the default order of launches: ``GPULESS_ORDER`` in the environment, or forwards."""
    order = os.environ.get("GPULESS_ORDER", "").strip() or ORDERS[0]
    _check_order("GPULESS_ORDER", order)
    return order


def _check_order(name, order):
    if order not in (*ORDERS, IN_STEP):
        words = f"{', '.join(map(repr, ORDERS))} or {IN_STEP!r}"
        raise ValueError(f"{name} must be {words}, got {reprlib.repr(order)}")


class Thread:
    """One thread of a block, and what it waits for."""

    __slots__ = (
        *("code", "lane", "number", "offset", "threadIdx"),
        *("value", "wait", "waits_for", "warp", "worker"),
    )

    def __init__(self, number, block):
        self.number = number
        self.threadIdx = Dim3(*coordinates(number, block))
        self.warp, self.lane = divmod(number, WARP)
        self.waits_for = _FINISHED
        self.worker = self.wait = self.value = self.code = self.offset = None

    @property
    def place(self):
        """The instruction it waits at, to be compared."""
        return id(self.code), instruction_start(self.code, self.offset)

    @property
    def site(self):
        """The line it waits at; None if it has finished."""
        return None if self.waits_for is _FINISHED else site(self.code, self.offset)

    @property
    def frames(self):
        """The frames of the kernel and its device functions while it waits; the kernel's is last."""
        worker = self.worker
        frames = worker.frames if isinstance(worker, Coroutine) else suspended_frames(worker)
        return [frame for frame in frames if not frame.f_code.co_filename.startswith(PACKAGE)]

    def wait_outside(self):
        """Wait in a function that is not a generator; return the result."""
        if not isinstance(self.worker, Coroutine):
            raise missed(self.waits_for)
        return self.worker.wait(self.wait)

    def run_outside(self, generator):
        """Run a device function that waits, for a caller that is not a generator; return its result."""
        if not isinstance(self.worker, Coroutine):
            raise missed(generator.__name__)
        return self.worker.run(generator)


class Scheduler:
    """Runs a function as the threads of a grid.

    Parameters
    ----------
    name : str
        Of the kernel, for messages.
    grid, block : tuple of (int, int, int)
    cuda : Cuda
        The kernel's namespace, in which the running thread is set.
    memory : Memory
    order : {"forwards", "reversed", "shuffled", "in step"}
        Of the blocks, and of the threads within each barrier interval.
    seed : int
        For "shuffled".
    observe : callable, optional
        Called with the block's number, the thread and the barrier interval before a thread goes on.

    Attributes
    ----------
    watch : Watch
        Stops a launch that reaches a limit.

    Examples
    --------
    >>> from gpuless.simulator.memory import Memory
    >>> from gpuless.simulator.namespace import Cuda
    >>> grid, block, memory = (2, 1, 1), (2, 1, 1), Memory()
    >>> cuda = Cuda(grid, block, memory)
    >>> def kernel():
    ...     print(cuda.blockIdx.x, cuda.threadIdx.x, "before")
    ...     yield cuda.syncthreads()
    ...     print(cuda.blockIdx.x, cuda.threadIdx.x, "after")
    >>> Scheduler("kernel", (1, 1, 1), block, cuda, memory).run(kernel, ())
    0 0 before
    0 1 before
    0 0 after
    0 1 after
    """

    def __init__(self, name, grid, block, cuda, memory, order="forwards", seed=0, observe=None):
        _check_order("order", order)
        self.name, self.grid, self.block = name, grid, block
        self.cuda, self.memory, self.observe = cuda, memory, observe
        self._order, self._random = order, np.random.default_rng(seed)
        self.watch = Watch(memory, order == IN_STEP)

    def run(self, function, arguments):
        """Run the whole grid; an exception in a thread gets the place added to its message.

        The function is called once for each thread; it waits if it returns a generator or a `Coroutine`.
        Raises `DivergenceError` if threads wait for others that never come, and `LaunchStopped` if no thread
        finishes for a long time, or the memory has logged too much.
        """
        self._job = function, arguments
        self._threads = [Thread(number, self.block) for number in range(int(np.prod(self.block)))]
        self._number, self.cuda.thread = 0, self._threads[0]
        self.watch.begin()
        try:
            # A GPU doesn't warn of NaN and infinity.
            with np.errstate(all="ignore"):
                for number in self._ordered(range(int(np.prod(self.grid)))):
                    self._run_block(number)
        except BaseException as error:
            self._end()
            if not isinstance(error, Stop):
                raise
            where = self._where(self.cuda.thread, error.__traceback__)
            raise LaunchStopped(self.watch.reason, where) from None

    def _end(self):
        """End the threads that wait, with tracing off."""
        tracer = sys.gettrace()
        sys.settrace(None)
        for worker in (thread.worker for thread in self._threads if thread.worker is not None):
            worker.close()
        sys.settrace(tracer)

    def _ordered(self, items):
        if self._order == "reversed":
            return items[::-1]
        if self._order == "shuffled":
            return [items[i] for i in self._random.permutation(len(items))]
        return items

    def _run_block(self, number):
        """Run the threads of one block from barrier to barrier until all have finished."""
        self.watch.look()  # the log of a kernel without loops grows, too
        self.memory.begin_block()
        self.cuda.blockIdx = Dim3(*coordinates(number, self.grid))
        self._number, self._interval = number, 0
        running = self._threads
        answers = [None] * len(running)
        while running:
            self._go_on(running, answers)
            running = self._complete_warps(running)
            answers = self._complete_barrier(running)
            self._interval += 1

    def _go_on(self, threads, brought):
        """Sweep over threads; in step, over one warp after the other, whose lanes wait before they store."""
        if self._order != IN_STEP:
            self._sweep(threads, brought)
            return
        pairs = zip(threads, brought, strict=True)
        for _, found in itertools.groupby(pairs, lambda pair: pair[0].warp):
            lanes, values = zip(*found, strict=True)
            while lanes:
                self._sweep(lanes, values)
                lanes = [thread for thread in lanes if thread.waits_for == IN_STEP]
                values = [None] * len(lanes)

    def _sweep(self, threads, brought):
        """Let each thread get the result it waits for, and run until it waits again or has finished.

        `brought` has, for each thread, the values brought by all threads that waited with it.
        """
        cuda, observe, (function, arguments) = self.cuda, self.observe, self._job
        pairs = zip(threads, brought, strict=True)
        for thread, values in pairs if self._order in _AS_NUMBERED else self._ordered(list(pairs)):
            cuda.thread, cuda.threadIdx = thread, thread.threadIdx
            if observe is not None:
                observe(self._number, thread, self._interval)
            wait, result = thread.wait, None
            try:
                if wait is None:
                    worker = function(*arguments)
                    if type(worker) not in _WORKERS:  # it has run to its end
                        self.watch.finished += 1
                        continue
                    thread.worker = worker
                else:
                    result, thread.wait = wait.answer(values), None
                if thread.worker.send(result) is not thread.wait:
                    raise missed(thread.waits_for)
            except Exception as error:
                is_end = isinstance(error, StopIteration) and thread.worker is not None
                if thread.wait is not None or not is_end:
                    raise self._located(error, thread) from None
                thread.waits_for = _FINISHED
                self.watch.finished += 1

    def _located(self, error, thread):
        """Return a thread's exception with its place; another one if the thread waited where it can't."""
        if thread.wait is not None:
            error = missed(thread.waits_for)
        return located(error, self._where(thread, error.__traceback__))

    def _where(self, thread, traceback=None):
        launch = Shape(self.grid, self.block)
        block, position = coordinates(self._number, self.grid), coordinates(thread.number, self.block)
        return Place(self.name, place(traceback) or thread.site, block, position, launch)

    def _complete_barrier(self, waiting):
        """Check that the whole block waits at one barrier; return for each thread all values brought."""
        if not waiting:
            return []
        if len(waiting) < len(self._threads):
            finished = next(thread for thread in self._threads if thread.waits_for is _FINISHED)
            self._diverge("divergent barrier", waiting[0], finished)
        first = waiting[0]
        for thread in waiting:
            same = thread.offset == first.offset and thread.code is first.code
            # One instruction has two offsets, before and after Python specialised it.
            if not same and thread.place != first.place:
                self._diverge("divergent barrier", first, thread)
        self._check_rounds(waiting)
        values = None if first.waits_for == "syncthreads" else [thread.value for thread in waiting]
        return [values] * len(waiting)

    def _check_rounds(self, waiting):
        """Check that all threads wait at a barrier in a loop in the same round."""
        first, frames = waiting[0], waiting[0].frames
        names = [_round_variables(frame, frame.f_code is frames[-1].f_code) for frame in frames]
        if not any(names):
            return
        rounds = _rounds(first, names)
        for thread in waiting:
            if (others := _rounds(thread, names)) != rounds:
                name, mine = next((k, v) for k, v in rounds.items() if others.get(k) != v)
                self._diverge("divergent barrier", first, thread, rounds=(name, mine, others.get(name)))

    def _diverge(self, kind, thread, other, **more):
        """Raise for a thread that waits in vain for another; `more` are further fields of `Divergence`."""
        launch, block = Shape(self.grid, self.block), coordinates(self._number, self.grid)
        numbers, sites = (thread.number, other.number), (thread.site, other.site)
        raise DivergenceError(Divergence(kind, numbers, sites, launch, block, **more), self.name)

    def _complete_warps(self, threads):
        """Complete the operations of warps; return the threads that then wait at a barrier."""
        while True:
            waiting = [thread for thread in threads if thread.waits_for is not _FINISHED]
            in_warps = [thread for thread in waiting if thread.waits_for not in _BARRIERS]
            if not in_warps:
                return waiting
            ready, answers = [], []
            for group in self._warp_groups(in_warps):
                lanes = {thread.lane: thread.value[1] for thread in group}
                ready += group
                answers += [lanes] * len(group)
            if not ready:
                self._diverge_in_warp(in_warps[0])
            self._go_on(ready, answers)

    def _warp_groups(self, threads):
        """Return the groups of lanes that wait at the same operation with no lane of their mask missing."""
        groups = {}
        for thread in threads:
            groups.setdefault(_wait_key(thread), []).append(thread)
        complete = []
        for (warp, operation, mask, _), group in groups.items():
            if operation == "activemask":
                complete.append(group)
                continue
            self._check_mask(operation, mask, group)
            there = sum(1 << thread.lane for thread in group)
            if there == mask & self._lanes_left(warp):
                complete.append(group)
                finished = [thread for thread in self._warp(warp) if (mask & ~there) >> thread.lane & 1]
                if finished:
                    self.memory.lanes_missing(group, finished)
                if operation == "syncwarp":
                    self.memory.synchronise_warp(group)
        return complete

    def _check_mask(self, operation, mask, group):
        for thread in group:
            if not mask >> thread.lane & 1:
                self._diverge("divergent warp", thread, thread, operation=operation, mask=mask)

    def _warp(self, number):
        return self._threads[number * WARP : (number + 1) * WARP]

    def _lanes_left(self, warp):
        """Return a mask of the lanes of a warp that have not finished."""
        return sum(1 << thread.lane for thread in self._warp(warp) if thread.waits_for is not _FINISHED)

    def _diverge_in_warp(self, thread):
        """Raise for a lane that waits in vain for others of its warp."""
        _, operation, mask, _ = _wait_key(thread)
        missing = [
            other
            for other in self._warp(thread.warp)
            if mask >> other.lane & 1
            and other.waits_for is not _FINISHED
            and _wait_key(other) != _wait_key(thread)
        ]
        other = missing[0]
        self._diverge(
            "divergent warp",
            thread,
            other,
            operation=operation,
            mask=mask,
            lanes=tuple(each.lane for each in missing),
            other_mask=None if other.waits_for in _BARRIERS else other.value[0],
        )


def _round_variables(frame, in_kernel):
    """Return the variables that identify the round of a frame's loops; found once for each instruction."""
    code, offset = frame.f_code, instruction_start(frame.f_code, frame.f_lasti)
    known = _round_names.get((id(code), offset))
    if known is None:
        # Parsing takes time, and most barriers are not in a loop.
        names = round_variables(code, offset, in_kernel) if is_in_loop(code, offset) else ()
        known = _round_names[id(code), offset] = code, names
    return known[1]


def _rounds(thread, names):
    """Return the values of the variables that identify the round of a thread's loops."""
    pairs = zip(thread.frames, names, strict=False)
    return {name: frame.f_locals.get(name) for frame, mine in pairs for name in mine}


def _wait_key(thread):
    """Return what lanes that wait together have in common: warp, operation, mask and instruction."""
    mask = None if thread.waits_for in _BARRIERS else thread.value[0]
    return thread.warp, thread.waits_for, mask, thread.place
