"""Launch kernels: find or make the machine code, distribute the blocks of the grid to threads, wait."""

import atexit
import contextlib
import ctypes
import math
import threading
import time
from functools import partial

from gpuless.emulator.analysis.alignment import needed_alignments
from gpuless.emulator.analysis.assembler import local_size
from gpuless.emulator.analysis.variables import lay_out, parameter_places, visible_variables
from gpuless.emulator.run import counting, explanations, faults, host, machine, settings, trace
from gpuless.emulator.run.record import Record, put
from gpuless.emulator.run.threads import Pool, all_done
from gpuless.emulator.run.usual import Usual
from gpuless.emulator.run.workspace import Workspace, done_alone
from gpuless.emulator.translate import layout
from gpuless.emulator.translate.module import ModuleTranslator
from gpuless.limits import RUNNING, SHARED_LIMIT, WARP

_WIDE = ("params", "globals", "blocks", "chunk", "next")  # fields of a launch that have 64 bits
_SMALL = 1 << 14  # up to this many threads a grid gets a single worker
_RESIDENT = 256  # blocks that may wait for each other
_WITH_STACKS = 32  # at least this many workers keep the stacks of their warps while idle
_PERIOD = 0.25  # seconds between checks whether a launch makes progress
_FAILED, _STOPPED = 30, 0.5  # seconds for running a block again, to trace a failure or where it hangs


class Kernel:
    """A kernel of a module, and its machine code for each shape of block that it is launched with.

    `globals_address`: the address of the module's variables.
    """

    def __init__(self, source, name, globals_address=0):
        self.source, self.name, self.globals_address = source, name, globals_address
        self.function = source.functions[name]
        self.places, self.parameter_size = parameter_places(self.function)
        self._codes, self._lock = {}, threading.Lock()
        self._usual = Usual(source, name, self.places)
        self.alignments = needed_alignments(self.function)
        self.static_shared = lay_out(visible_variables(source, self.function), ("shared",))[1]
        self.dynamic_limit = SHARED_LIMIT - self.static_shared  # until the program asks for more
        self.local_size = local_size(source, self.function)
        self.attributes = {}  # those that the program has set, by number
        self.with_lines = None  # the same kernel, compiled with line numbers

    def again(self, module):
        """Return the same kernel in another module that it has been compiled to."""
        name = next(function.name for function in module.functions.values() if function.kernel)
        return Kernel(module, name, self.globals_address)

    def code(self, block, arguments, compiler=None):
        """Return the `Compiled` for a shape of block, or the result of another compiler.

        The usual code relies on the arguments: arrays are aligned, so addresses need no checks, and their
        strides are those of `usual`. Other arguments get other code.
        """
        with self._lock:
            usual = not compiler and self._usual.passed(arguments)
            needed = self._usual.alignments if usual else self.alignments
            aligned = all(arguments[self.places[name]] % size == 0 for name, size in needed.items())
            key = block, aligned, usual, compiler
            if key not in self._codes:
                alignments = needed if aligned else {}
                if compiler:
                    self._codes[key] = compiler(self.source, self.name, block, alignments)
                else:
                    source = self._usual.source if usual else self.source
                    given = source, self.name, block, alignments
                    self._codes[key], _ = machine.compiled(ModuleTranslator, *given)
            return self._codes[key]


class Workers:
    """Threads that run blocks, each with memory for one block; `settings` has the default of `count`."""

    def __init__(self, arena, count=None):
        self.arena = arena
        self.count = min(count or settings.threads(), layout.WORKERS // 2)
        self.lane_stack = 0  # minimum bytes of local memory for a lane
        self._pool, self._more = Pool(self.count), Pool(1 << 16)
        atexit.register(self._close)
        self._idle, self._records, self._lock = [], [], threading.Lock()
        self._together, self._workspace = threading.Lock(), Workspace(arena)

    def launch(self, kernel, grid, block, arguments, shared=0, together=False, counted=None):
        """Run a kernel to its end; return the messages of failed assertions. Raises Fault.

        `arguments`: the bytes of the parameter buffer; `shared`: bytes of dynamic shared memory; `together`:
        whether all blocks run at once, so that they can wait for each other; `counted`: a list that gets a
        `counting.Tally` of the launch, or a `recording.Recording`, whose blocks alone are run.
        """
        shared_size = -(-kernel.static_shared // 16) * 16 + shared
        launched = explanations.Launched(kernel, grid, block, bytes(arguments), shared_size, self.arena)
        compiled, tally, (first, end) = _tallying(launched, counted)
        work = partial(self._work, tally=tally)
        blocks = end - first
        buffer = ctypes.create_string_buffer(bytes(arguments) + bytes(64))
        launch = ctypes.create_string_buffer(layout.LAUNCH_SIZE)
        launch.buffer = buffer  # must live as long as a worker uses the launch
        launch.shared_size = shared_size
        wanted = 1 if blocks * compiled.threads <= _SMALL else min(self.count, blocks)
        if together:
            wanted = blocks
        fields = {"params": ctypes.addressof(buffer), "globals": kernel.globals_address, "next": first}
        fields |= {"nctaid.x": grid[0], "nctaid.y": grid[1], "nctaid.z": grid[2], "dynamic_smem_size": shared}
        fields |= {"chunk": 1 if compiled.spins else max(1, min(64, blocks // (8 * wanted))), "blocks": end}
        for name, value in fields.items():
            put(launch, layout.LAUNCH[name], value, name in _WIDE)
        parameters = ctypes.addressof(buffer)
        with self._one_at_a_time(together), host.heard(parameters) as asserted:
            if together:
                self._workspace.begin(launch, kernel)
            more = partial(self._more.submit, work, compiled, launch) if compiled.spins else None
            with self._threads(together, parameters, blocks) as pool:
                start = partial(pool.submit, work, compiled, launch)
                wait = partial(self._wait, launch=launch, blocks=blocks, more=more)
                workers, stopped = self._watched(launch, start, wanted, wait)
        if asserted:
            return asserted
        failures = sorted(filter(None, map(_failure, workers)), key=_order)
        if stopped is None and not failures:
            if tally:
                tally.finish()
            return []
        if stopped is not None:
            absent = [failed for failed in failures if failed.record not in stopped.waiting]
            failed = self._trace(absent[0], launched, launch, together) if absent else None
            raise explanations.explain_stop(stopped, failed, launched)
        raise explanations.explain(self._trace(failures[0], launched, launch, together), launched)

    def _watched(self, launch, start, wanted, wait):
        """Start the workers and wait for them; return them, and what `wait` returned.

        If anything is raised meanwhile, all workers are stopped.
        """
        workers = []
        try:
            for _ in range(wanted):
                workers.append(start())
            return workers, wait(workers)
        except BaseException:  # Ctrl-C, or a worker got no memory and others may wait for its block
            try:
                self._stop(launch, workers)
            except KeyboardInterrupt:  # it may have come before `_stop` began
                self._stop(launch, workers)
                raise
            raise

    def _wait(self, workers, launch, blocks, more):
        """Wait until a launch is over; return an `explanations.Stopped` if it was stopped, else None.

        If blocks may wait for others that have not started, `more` starts another worker.
        """
        ended, idle, added = 0, 0.0, set()
        while not all_done(workers, _PERIOD):
            if any(worker.done and _failure(worker) for worker in workers):
                # The others may wait for what the block that has failed would write.
                self._stop(launch, workers)
                break
            finished = [worker for worker in workers if worker.done]  # before `running`: none counts twice
            running = self._running(launch)
            now = sum(map(faults.ended, running)) + sum(worker.result()[0] for worker in finished)
            # Time is counted in periods, as the clock also runs while the process is suspended or waits for
            # another launch.
            still = now == ended
            ended, idle = now, idle + _PERIOD if running and still else 0.0
            if more and still:
                # A worker that was added counts before it runs; otherwise each turn would add more.
                busy = sum(not worker.done and (worker.begun or worker in added) for worker in workers)
                left = layout.WORKERS - len(self._records) + len(self._idle) - (busy - len(running))
                for _ in range(min(min(blocks - now, _RESIDENT) - busy, left)):
                    workers.append(more())
                    added.add(workers[-1])
            gathering, waiting = host.gathering(_parameters(launch)), host.waiting(running)
            alone = gathering and gathering + now == blocks
            if alone or idle >= RUNNING.kernel_seconds:
                self._stop(launch, workers)
                return explanations.Stopped(blocks, waiting, alone, now, len(running))
        return None

    def _running(self, launch):
        """Return the addresses of the records that a launch uses."""
        address = ctypes.addressof(launch)
        return [record.address for record in self._records if record.launch == address]

    def _trace(self, failed, launched, launch, together):
        """Run the failed block again with tracing code; return its new `Failure`.

        If the block does not fail in the same way again, return `failed` itself.
        """
        x, y, z = failed.place
        number = x + launched.grid[0] * (y + launched.grid[1] * z)
        again = ctypes.create_string_buffer(launch.raw)
        again.buffer, again.shared_size = launch.buffer, launch.shared_size
        for name, value in (("next", number), ("blocks", number + 1), ("chunk", 1)):
            put(again, layout.LAUNCH[name], value, True)
        put(again, layout.LAUNCH["stop"], 0, False)
        with contextlib.suppress(Exception):  # only the error message depends on it
            traced = trace.Traced(launched.kernel, launched.block)
            seconds = _STOPPED if failed.outcome == faults.STOP else _FAILED

            def wait(workers):
                done = all_done if failed.outcome == faults.STOP else partial(done_alone, again)
                if not done(workers, seconds):
                    self._stop(again, workers)

            with self._one_at_a_time(together), self._threads(together, _parameters(again), 1) as pool:
                start = partial(pool.submit, self._work, traced.compiled, again, traced)
                (worker,), _ = self._watched(again, start, 1, wait)
            found = worker.result()[1]
            return found if found and found.outcome == failed.outcome else failed
        return failed

    def _one_at_a_time(self, together):
        """Return a lock for launches whose blocks run together: two would need too many threads."""
        # Return the lock itself: an interrupt in Python code that takes it could leave it held.
        return self._together if together else contextlib.nullcontext()

    @contextlib.contextmanager
    def _threads(self, together, parameters, blocks):
        """Give the pool of threads for a launch: the shared one, or one with a thread for each block."""
        if not together:
            yield self._pool
            return
        with host.gathered(parameters, blocks):
            self._prepare(blocks)
            yield self._more

    def _stop(self, launch, workers):
        """Stop the running blocks of a launch, and start no others.

        An interrupt takes effect only after that: no block must run on without its launch.
        """
        interrupted = None
        while True:
            try:
                ctypes.c_uint32.from_buffer(launch, layout.LAUNCH["stop"]).value = 1
                host.give_up(_parameters(launch))
                for record in self._running(launch):
                    faults.stop(record)
                # Workers that have not begun may be waiting for another launch.
                workers[:] = [worker for worker in workers if not worker.withdraw()]
                # A worker may be missing from the list, if an interrupt came right after its start.
                if all_done(workers, 0.05) and not self._running(launch):
                    break
            except KeyboardInterrupt as error:
                interrupted = error
        if interrupted:
            raise interrupted

    def _close(self):
        """Stop all launches when the process ends."""
        self._pool.closed = self._more.closed = True
        end = time.monotonic() + 1
        while (running := [(r, at) for r in self._records if (at := r.launch)]) and time.monotonic() < end:
            for record, address in running:
                ctypes.c_uint32.from_address(address + layout.LAUNCH["stop"]).value = 1
                faults.stop(record.address)
            time.sleep(0.01)

    def _work(self, compiled, launch, traced=None, tally=None):
        """Run blocks of a launch until none is left; return how many ended, and a `Failure` or None."""
        with self._lock:
            record = self._idle.pop() if self._idle else self._new_record()
        try:
            size = WARP * max(compiled.lane_stack, self.lane_stack)
            put(record.buffer, layout.OFFSET["local.size"], size, True)
            record.reserve_local(size * compiled.warps)
            record.have_shared(launch.shared_size)
            record.have_stacks(compiled.warps)
            faults.prepare_thread()
            host.begin(record.address)
            put(record.buffer, layout.OFFSET["misaligned"], 0, False)
            if traced:
                traced.clear(record.address)
            if tally:
                put(record.buffer, layout.OFFSET["counts"], tally.numbers(), True)
            put(record.buffer, layout.OFFSET["ended"], 0, True)  # forget those of the previous launch
            record.launch = ctypes.addressof(launch)
            if ctypes.c_uint32.from_buffer(launch, layout.LAUNCH["stop"]).value:
                return 0, None
            outcome = compiled.code.run(record.launch, record.address)
            ended = faults.ended(record.address)
            if not outcome:
                return ended, None
            ctypes.c_uint32.from_buffer(launch, layout.LAUNCH["stop"]).value = 1
            host.give_up(_parameters(launch))  # the others would wait for this block
            steps = traced.look(record.address, self.arena) if traced else []
            return ended, faults.failure(outcome, record.address, steps)
        finally:
            record.launch = None
            if not record.keeps_stacks:
                record.give_stacks_back()
            with self._lock:
                self._put_back(record)

    def _prepare(self, count):
        """Make records for blocks that wait for each other, before one of them runs."""
        with self._lock:
            while len(self._idle) < count:
                self._put_back(self._new_record())

    def _put_back(self, record):
        """Put a record among the idle ones: last, to be reused first, if it keeps its stacks."""
        self._idle.insert(len(self._idle) if record.keeps_stacks else 0, record)

    def _new_record(self):
        record = Record(self.arena, keeps_stacks=len(self._records) < max(_WITH_STACKS, self.count))
        self._records.append(record)
        return record


def _tallying(launched, counted):
    """Return the `Compiled` of a launch, its `Tally` or `Recording` or None, and the range of its blocks."""
    kernel, block, arguments = launched.kernel, launched.block, launched.arguments
    every = 0, math.prod(launched.grid)
    if counted is None:
        return kernel.code(block, arguments), None, every
    if not isinstance(counted, list):
        return counted.code.compiled, counted, counted.window
    code = kernel.code(block, arguments, counting.compiled)
    return code.compiled, counting.Tally(code, launched, counted), every


def _failure(worker):
    """Return the `Failure` of a worker that has ended, or None."""
    return worker.result()[1]


def _order(failed):
    """Return a sort key of failures: blocks that were only stopped come last."""
    return failed.outcome == faults.STOP, failed.place[::-1]


def _parameters(launch):
    """Return the address of a launch's parameters, which identifies it."""
    return ctypes.c_uint64.from_buffer(launch, layout.LAUNCH["params"]).value
