"""One greenlet per CUDA thread, and who runs when.

A greenlet is a call stack of its own that gives up control only where it says so. A simulated thread does
that at barriers and at operations of its warp; between two of them it runs undisturbed. The scheduler takes
one block after another and sweeps over its threads: each runs to its next barrier (or to its end), and when
all have arrived the next sweep begins. One sweep is one *barrier interval*.

Starting a greenlet takes 9 us, switching to one and back 0.3 us. So greenlets are not thrown away: a pool
keeps them, and each runs one thread after another.

The order of blocks and of the threads within a sweep is free, as on a GPU: forwards, reversed or shuffled.
A correct kernel computes the same in every order.
"""

import contextvars
import reprlib
import threading

import numpy as np
from greenlet import getcurrent, greenlet

from gpuless.limits import WARP
from gpuless.positions import Shape, coordinates
from gpuless.simulator.errors import Divergence, DivergenceError, LaunchStopped, Place, located
from gpuless.simulator.intrinsics import Dim3
from gpuless.simulator.watchdog import Stop, Watch
from gpuless.source.dataflow import round_variables
from gpuless.source.instructions import instruction_start, is_in_loop, kernel_frames, place, site

ORDERS = ("forwards", "reversed", "shuffled")

_BARRIERS = {"syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or", "grid.sync"}
_FINISHED = None

# By identity of the code, which is kept, as in `source`.
_round_names: dict = {}


class Thread:
    """One thread of a block, and what it is waiting for."""

    __slots__ = ("code", "lane", "number", "offset", "threadIdx", "value", "waits_for", "warp", "worker")

    def __init__(self, number, block, worker):
        self.number = number
        self.threadIdx = Dim3(*coordinates(number, block))
        self.warp, self.lane = divmod(number, WARP)
        self.worker = worker
        self.waits_for = _FINISHED
        self.value = self.code = self.offset = None

    @property
    def place(self):
        """Which instruction it waits at, as something to compare."""
        return id(self.code), instruction_start(self.code, self.offset)

    @property
    def site(self):
        """The line it waits at; None if it has finished."""
        return None if self.waits_for is _FINISHED else site(self.code, self.offset)


def _work(scheduler):
    """Run one thread after another, for ever: the whole life of a pooled greenlet."""
    error = None
    while True:
        # Hand control back; what comes with it next is a thread to run.
        scheduler, thread, function, arguments = scheduler.switch(error)
        error = None
        try:
            function(*arguments)
        except Exception as raised:
            error = raised
        thread.waits_for = _FINISHED
        thread = function = arguments = None  # or the pool would keep the last kernel's arrays alive


class _Pool(threading.local):
    """The greenlets of one thread of the operating system: they cannot change it."""

    def __init__(self):
        self.clear()

    def clear(self):
        """Let go of all greenlets; those in the middle of a kernel end where they are."""
        self.workers = []

    def take(self, count):
        """Return so many greenlets, in the context of the caller."""
        for _ in range(count - len(self.workers)):
            self.workers.append(greenlet(_work))
            # Started with nothing to run: a greenlet keeps the arguments of its start while it lives.
            self.workers[-1].switch(getcurrent())
        # A greenlet has its own context variables. NumPy 2 keeps its error state there (a GPU computes NaN
        # and infinity without a word), and a notebook the cell that what is printed belongs to.
        with np.errstate(all="ignore"):
            context = contextvars.copy_context()
        taken = self.workers[:count]
        for worker in taken:
            worker.gr_context = context
        return taken


_pool = _Pool()


class Scheduler:
    """Runs a function as the threads of a grid.

    Parameters
    ----------
    name : str
        Of the kernel, for messages.
    grid, block : tuple of (int, int, int)
    cuda : Cuda
        The namespace to write the running thread into.
    memory : Memory
        Told when a block begins.
    order : {"forwards", "reversed", "shuffled"}
        Of the blocks, and of the threads within each barrier interval.
    seed : int
        For "shuffled".
    observe : callable, optional
        Called with the block's number, the thread and the barrier interval before a thread goes on.

    Examples
    --------
    >>> from gpuless.simulator.memory import Memory
    >>> from gpuless.simulator.namespace import Cuda
    >>> grid, block, memory = (2, 1, 1), (2, 1, 1), Memory()
    >>> cuda = Cuda(grid, block, memory)
    >>> def kernel():
    ...     print(cuda.blockIdx.x, cuda.threadIdx.x, "before")
    ...     cuda.syncthreads()
    ...     print(cuda.blockIdx.x, cuda.threadIdx.x, "after")
    >>> Scheduler("kernel", (1, 1, 1), block, cuda, memory).run(kernel, ())
    0 0 before
    0 1 before
    0 0 after
    0 1 after
    """

    def __init__(self, name, grid, block, cuda, memory, order="forwards", seed=0, observe=None):
        if order not in ORDERS:
            raise ValueError(f"order must be one of {ORDERS}, got {reprlib.repr(order)}")
        self.name, self.grid, self.block = name, grid, block
        self.cuda, self.memory, self.observe = cuda, memory, observe
        self._order, self._random = order, np.random.default_rng(seed)

    def run(self, function, arguments):
        """Run the whole grid. What a thread raises gets the place added to its message.

        Raises `DivergenceError` if threads wait for others who never come, and `LaunchStopped` if no thread
        finishes for long, or the memory has logged too much.
        """
        cuda, scheduler = self.cuda, getcurrent()
        cuda._switch = scheduler.switch
        self._job = scheduler, function, arguments
        self._threads = [
            Thread(number, self.block, worker)
            for number, worker in enumerate(_pool.take(int(np.prod(self.block))))
        ]
        self._number, cuda.thread = 0, self._threads[0]
        watch = Watch(self)
        try:
            with watch, np.errstate(all="ignore"):
                for number in self._ordered(range(int(np.prod(self.grid)))):
                    self._run_block(number)
        except BaseException as error:
            _pool.clear()
            if not isinstance(error, Stop):
                raise
            raise LaunchStopped(watch.reason, self._where(cuda.thread, error.__traceback__)) from None

    @property
    def progress(self):
        """What is another one whenever a thread has finished; read by the watchdog, so that it costs nothing.

        A thread counts as finished until it comes to its first barrier. While it runs, its name is shown.
        """
        running = self.cuda.thread
        finished = sum(thread.waits_for is _FINISHED for thread in self._threads)
        return self._number, finished, running.waits_for is _FINISHED and running.number

    def _ordered(self, items):
        if self._order == "reversed":
            return items[::-1]
        if self._order == "shuffled":
            return [items[i] for i in self._random.permutation(len(items))]
        return items

    def _run_block(self, number):
        """Run the threads of one block from barrier to barrier until all have finished."""
        self.memory.begin_block()
        self.cuda.blockIdx = Dim3(*coordinates(number, self.grid))
        self._number, self._interval = number, 0
        scheduler, function, arguments = self._job
        running = self._threads
        answers = [(scheduler, thread, function, arguments) for thread in running]
        while running:
            self._sweep(running, answers)
            running = self._complete_warps(running)
            answers = self._complete_barrier(running)
            self._interval += 1

    def _sweep(self, threads, answers):
        """Let each thread run until it waits or has finished, beginning with what it was waiting for."""
        cuda, observe = self.cuda, self.observe
        pairs = zip(threads, answers, strict=True)
        for thread, answer in pairs if self._order == "forwards" else self._ordered(list(pairs)):
            cuda.thread, cuda.threadIdx = thread, thread.threadIdx
            if observe is not None:
                observe(self._number, thread, self._interval)
            error = thread.worker.switch(*answer)
            if error is not None and error != ():
                raise located(error, self._where(thread, error.__traceback__)) from None

    def _where(self, thread, traceback=None):
        launch = Shape(self.grid, self.block)
        block, position = coordinates(self._number, self.grid), coordinates(thread.number, self.block)
        return Place(self.name, place(traceback) or thread.site, block, position, launch)

    def _complete_barrier(self, waiting):
        """Check that the whole block waits at one barrier; return what each thread gets from it."""
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
        if first.waits_for == "syncthreads":
            return [(None,)] * len(waiting)
        return [([thread.value for thread in waiting],)] * len(waiting)

    def _check_rounds(self, waiting):
        """Check that threads that wait at one barrier in a loop do so in the same round of it."""
        first = waiting[0]
        names = [self._round_names(frame) for frame in kernel_frames(first.worker.gr_frame)]
        if not any(names):
            return
        rounds = _rounds(first, names)
        for thread in waiting:
            if (others := _rounds(thread, names)) != rounds:
                name, mine = next((k, v) for k, v in rounds.items() if others.get(k) != v)
                self._diverge("divergent barrier", first, thread, rounds=(name, mine, others.get(name)))

    def _round_names(self, frame):
        """Return the variables that tell in which round a frame is; looked up once for each instruction."""
        code, offset = frame.f_code, instruction_start(frame.f_code, frame.f_lasti)
        known = _round_names.get((id(code), offset))
        if known is None:
            in_kernel = code is self._job[1].__code__
            # Parsing takes time, and most barriers are in no loop.
            names = round_variables(code, offset, in_kernel) if is_in_loop(code, offset) else ()
            known = _round_names[id(code), offset] = code, names
        return known[1]

    def _diverge(self, kind, thread, other, **more):
        """Report a thread that waits for another one in vain; `more` are further fields of `Divergence`."""
        launch, block = Shape(self.grid, self.block), coordinates(self._number, self.grid)
        numbers, sites = (thread.number, other.number), (thread.site, other.site)
        raise DivergenceError(Divergence(kind, numbers, sites, launch, block, **more), self.name)

    def _complete_warps(self, threads):
        """Let warps finish what their lanes do together; return the threads that wait at a barrier."""
        while True:
            waiting = [thread for thread in threads if thread.waits_for is not _FINISHED]
            in_warps = [thread for thread in waiting if thread.waits_for not in _BARRIERS]
            if not in_warps:
                return waiting
            ready, answers = [], []
            for group in self._warp_groups(in_warps):
                lanes = {thread.lane: thread.value[1] for thread in group}
                ready += group
                answers += [(lanes,)] * len(group)
            if not ready:
                self._diverge_in_warp(in_warps[0])
            self._sweep(ready, answers)

    def _warp_groups(self, threads):
        """Return the groups of lanes that wait at the same operation with nobody of their mask missing."""
        groups = {}
        for thread in threads:
            groups.setdefault(_meeting(thread), []).append(thread)
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
        """Report a lane that waits for others of its warp in vain."""
        _, operation, mask, _ = _meeting(thread)
        missing = [
            other
            for other in self._warp(thread.warp)
            if mask >> other.lane & 1
            and other.waits_for is not _FINISHED
            and _meeting(other) != _meeting(thread)
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


def _rounds(thread, names):
    """Return the variables that tell in which round of its loops a thread is."""
    frames = kernel_frames(thread.worker.gr_frame)
    return {
        name: frame.f_locals.get(name) for frame, mine in zip(frames, names, strict=False) for name in mine
    }


def _meeting(thread):
    """Return what lanes must have in common to meet: warp, operation, mask and place."""
    mask = None if thread.waits_for in _BARRIERS else thread.value[0]
    return thread.warp, thread.waits_for, mask, thread.place
