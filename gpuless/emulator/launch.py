"""Launch kernels: choose their machine code, share the blocks of a grid out among threads."""

import contextlib
import ctypes
import math
import os
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import NamedTuple

from gpuless.emulator import cache, faults, host, layout, machine
from gpuless.emulator.lanes import WARP
from gpuless.emulator.module import ModuleTranslator, lay_out, parameter_places

_SMALL = 1 << 14  # threads of a grid that one worker is enough for


class Compiled(NamedTuple):
    """Machine code of a kernel for one shape of a block, and the bytes of local memory of a lane."""

    code: machine.Code
    block: tuple
    lane_stack: int

    @property
    def threads(self):
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def warps(self):
        """Warps of a block."""
        return -(-self.threads // WARP)


class Kernel:
    """A kernel of a module: machine code for each shape of a block that it is launched with.

    Parameters
    ----------
    source : Module
    name : str
    globals_address : int
        Where the variables of the module lie.
    """

    def __init__(self, source, name, globals_address=0):
        self.source, self.name, self.globals_address = source, name, globals_address
        self.function = source.functions[name]
        self.places, self.parameter_size = parameter_places(self.function)
        self._codes, self._lock = {}, threading.Lock()
        variables = [*source.variables.values(), *self.function.variables.values()]
        self.static_shared = lay_out(variables, ("shared",))[1]
        self.local_size = lay_out(variables, ("local",))[1]

    def code(self, block):
        """Return the `Compiled` for a shape of a block."""
        with self._lock:
            if block not in self._codes:
                self._codes[block] = self._compiled(block)
            return self._codes[block]

    def _compiled(self, block):
        name = cache.key(self.source.text, self.name, block, *machine.processor())
        kept = cache.read(name)
        if kept is None:
            translator = ModuleTranslator(self.source, self.name, block)
            object_file = machine.compile_object(translator.translate())
            kept = translator.lane_stack.to_bytes(8, "little") + object_file
            cache.write(name, kept)
        return Compiled(machine.Code(kept[8:]), block, int.from_bytes(kept[:8], "little"))


class Workers:
    """Threads that run blocks, each with memory of its own for what a block needs.

    Parameters
    ----------
    arena : Arena
    count : int, optional
        As many as the process may use processors by default.
    """

    def __init__(self, arena, count=None):
        self.arena = arena
        self.count = count or len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self.count, "gpuless")
        self._idle, self._records, self._lock = [], [], threading.Lock()

    def launch(self, kernel, grid, block, arguments, shared=0, together=False):
        """Run a kernel to its end.

        Parameters
        ----------
        kernel : Kernel
        grid, block : (int, int, int)
        arguments : bytes
            As they lie in a kernel's parameter buffer.
        shared : int
            Bytes of dynamic shared memory.
        together : bool
            Whether all blocks run at once, so that they can wait for each other.

        Raises
        ------
        Fault
        """
        compiled = kernel.code(block)
        blocks = grid[0] * grid[1] * grid[2]
        buffer = ctypes.create_string_buffer(bytes(arguments) + bytes(64))
        launch = ctypes.create_string_buffer(layout.LAUNCH_SIZE)
        wanted = 1 if blocks * compiled.threads <= _SMALL else min(self.count, blocks)
        if together:
            wanted = blocks
        fields = {"params": ctypes.addressof(buffer), "globals": kernel.globals_address, "blocks": blocks}
        fields |= {"nctaid.x": grid[0], "nctaid.y": grid[1], "nctaid.z": grid[2], "dynamic_smem_size": shared}
        fields |= {"chunk": max(1, min(64, blocks // (8 * wanted)))}
        for name, value in fields.items():
            _put(launch, layout.LAUNCH[name], value, name in ("params", "globals", "blocks", "chunk"))
        with self._threads(together, ctypes.addressof(buffer), blocks) as pool:
            workers = [pool.submit(self._work, kernel, compiled, launch) for _ in range(wanted)]
            try:
                # Where a block has failed, the others would wait for it at the barrier of the grid.
                wait(workers, return_when=FIRST_EXCEPTION)
                host.give_up(ctypes.addressof(buffer))
                wait(workers)
            except KeyboardInterrupt:
                host.give_up(ctypes.addressof(buffer))
                while wait(workers, timeout=0.1).not_done:
                    self._stop(launch)
                raise
        for worker in workers:
            worker.result()

    @contextlib.contextmanager
    def _threads(self, together, parameters, blocks):
        """Give the threads for a launch: those that all share, or one for each block."""
        if not together:
            yield self._pool
            return
        with host.gathered(parameters, blocks), ThreadPoolExecutor(blocks, "gpuless-block") as pool:
            yield pool

    def _stop(self, launch):
        """Stop a launch: those of its blocks that run, and the others before they do."""
        address = ctypes.addressof(launch)
        ctypes.c_uint32.from_buffer(launch, layout.LAUNCH["stop"]).value = 1
        for record in self._records:
            if record.launch == address:
                faults.stop(record.address)

    def _work(self, kernel, compiled, launch):
        with self._lock:
            record = self._idle.pop() if self._idle else self._new_record()
        size = WARP * compiled.lane_stack
        _put(record.buffer, layout.OFFSET["local.size"], size, True)
        record.reserve_local(size * compiled.warps)
        faults.prepare_thread()
        try:
            record.launch = ctypes.addressof(launch)
            outcome = compiled.code.run(record.launch, record.address)
            if outcome:
                ctypes.c_uint32.from_buffer(launch, layout.LAUNCH["stop"]).value = 1
                raise faults.explain(outcome, record.address, kernel.name, compiled.block, self.arena)
        finally:
            record.launch = None
            with self._lock:
                self._idle.append(record)

    def _new_record(self):
        record = _Record(self.arena)
        self._records.append(record)
        return record


class _Record:
    """The record of the block that a worker runs, and its memory."""

    def __init__(self, arena):
        self.arena, self.buffer = arena, ctypes.create_string_buffer(layout.BLOCK_SIZE)
        _put(self.buffer, layout.OFFSET["host"], host.address(), True)
        shared = arena.private(layout.SHARED_SPAN)
        stacks = arena.private(layout.STACK * layout.MAX_WARPS)
        for name, value in (("arena", arena.base), ("shared", shared), ("stack.area", stacks)):
            _put(self.buffer, layout.OFFSET[name], value, True)
        self.local, self.launch, self.address = 0, None, ctypes.addressof(self.buffer)
        for i in range(layout.MAX_WARPS):  # a stack that is too full is seen
            arena.forbid(stacks + i * layout.STACK)
        faults.watch(self.address)

    def reserve_local(self, size):
        """Have so much local memory."""
        if size > self.local:
            self.local = size
            _put(self.buffer, layout.OFFSET["local"], self.arena.private(size), True)


def _put(buffer, offset, value, wide):
    kind = ctypes.c_uint64 if wide else ctypes.c_uint32
    kind.from_buffer(buffer, offset).value = value
