"""Record the memory requests of some blocks of a launch, instead of running the launch.

The caller's function receives each launch. It may run any of its blocks, any number of times: memory is
restored after each recording.
"""

import contextlib
import ctypes
import functools
import threading
from typing import NamedTuple

import numpy as np

from gpuless.emulator.ptx.instructions import readable
from gpuless.emulator.run import counting, explanations, lines, machine
from gpuless.emulator.run.cache import LINES
from gpuless.emulator.translate.recorders import BUFFER, LONGEST, ROOM, STRIDE, USED, WIDTHS
from gpuless.emulator.translate.recording import Listed, RecordedSite, RecordingModule
from gpuless.limits import WARP

_ROOM = 1 << 29  # words of a thread's buffer; only pages that are written to take memory
_LOOKED_AT = 32  # about as many blocks have their shared memory examined


class RecordingCode(NamedTuple):
    """Machine code that records, and the meaning of its counters and sites.

    `size`: how many counters there are; `listings`: the instructions of each part; `nests`: the counters of
    the loops around each part, the outermost first.
    """

    compiled: object
    parts: list
    size: int
    sites: list
    listings: list
    nests: list


def compiled(source, name, block, alignments):
    """Return the `RecordingCode` of a kernel for one shape of block, from the cache if possible."""
    source_lines = LINES.findall(source.text)
    code, facts = machine.compiled(RecordingModule, source, name, block, alignments, source_lines)
    size, parts, sites, listings, nests = facts
    sites = [RecordedSite(*site) for site in sites]
    listings = [[Listed(*one) for one in part] for part in listings]
    return RecordingCode(code, counting.parts_of(parts), size, sites, listings, nests)


# --- Launches -----------------------------------------------------------------------------------------------

_asked = threading.local()


@contextlib.contextmanager
def taken_launches(take):
    """Pass each launch of this thread to a function as a `TakenLaunch`, instead of running it.

    Its arguments live until the function returns, which must not raise.
    """
    before, _asked.take = getattr(_asked, "take", None), take
    try:
        yield
    finally:
        _asked.take = before


def asked():
    """Return the function that takes the launches of this thread, or None."""
    return getattr(_asked, "take", None)


class NoLines(RuntimeError):
    """The source lines of a kernel's instructions are unknown."""


class TakenLaunch:
    """A launch that is recorded instead of run.

    `source`: the `lines.Source` of the kernel; `together`: whether all blocks run at once, so that they can
    wait for each other: such a launch can be recorded only as a whole.
    """

    def __init__(self, workers, kernel, grid, block, arguments, shared, together=False):
        self.workers, self.plain, self.together = workers, kernel, together
        self.grid, self.block, self.arguments, self.shared = grid, block, arguments, shared
        self.source, self._kept = lines.source_of(kernel.source), None
        self.blocks = grid[0] * grid[1] * grid[2]
        self.warps = -(-(block[0] * block[1] * block[2]) // WARP)
        self.launched = explanations.Launched(
            kernel, grid, block, arguments, kernel.static_shared + shared, workers.arena
        )

    @functools.cached_property
    def kernel(self):
        """The kernel compiled with source lines; raises `NoLines` if that is impossible."""
        return _with_lines(self.plain)

    @contextlib.contextmanager
    def memory_kept(self):
        """Keep one copy of the memory that the kernel may write to, for all recordings in the block."""
        if self._kept is not None:
            yield
            return
        written = self._written(self.kernel.code(self.block, self.arguments, compiled))
        self._kept = [(array, ctypes.string_at(array.address, array.size)) for array in written]
        try:
            yield
        finally:
            self._kept = None

    def record(self, *stretches):
        """Run `count` blocks from `first` on for each stretch (first, count); return a `Recording` of each.

        Memory is restored afterwards.
        """
        code, buffers = self.kernel.code(self.block, self.arguments, compiled), []
        recordings = [Recording(code, self, *stretch, buffers) for stretch in stretches]
        arguments = self.kernel, self.grid, self.block, self.arguments, self.shared, self.together
        with self.memory_kept():
            try:
                for recording in recordings:
                    self.workers.launch(*arguments, counted=recording)
            finally:
                for array, content in self._kept:
                    self.workers.arena.prepare(array.address, array.size)
                    ctypes.memmove(array.address, content, array.size)
        return recordings

    def _written(self, code):
        """Return the allocations that the kernel may write to."""
        given = self.launched.given()
        writers = [site for site in code.sites if site.operation != "load" and site.space == "global"]
        if all(set(site.parameters) & given.keys() for site in writers):
            given = {i: given[i] for site in writers for i in site.parameters if i in given}
        return set(given.values())


def _with_lines(kernel):
    if kernel.with_lines is None:
        module = lines.Origin(kernel.source).module
        if not module.files:
            raise _no_lines(kernel)
        kernel.with_lines = kernel if module is kernel.source else kernel.again(module)
    return kernel.with_lines


def _no_lines(kernel):
    """Return a `NoLines` that says why and, if possible, what to do."""
    try:
        source = lines.source_of(kernel.source)
        source and source.with_lines()
        remedy = "compile it with @cuda.jit(lineinfo=True)"
    except Exception as error:  # from Numba or NVIDIA's linker, for example with float16
        remedy = f"Numba cannot compile it with them ({' '.join(str(error).split())[:200]})"
    return NoLines(
        f"the lines of {readable(kernel.name)} are not known, and without them its machine code cannot be "
        f"counted: {remedy}"
    )


class Sums:
    """The sums of what some blocks of a launch did: how often each part of the code ran, and shared accesses.

    `code`: the `RecordingCode`; `totals`: its counters; `executed`: how often warps ran each part; `entered`:
    how often they entered the loops around it, the outermost first; `lanes`: with how many lanes in total;
    `parted`: how often lanes diverged at its end; `sites`, `listings`: those of the code; `delivered`: for
    each site of shared memory, the mean wavefronts of a request for each of `WIDTHS`, None for other sites.
    Atomic operations have it for 4 bytes, then with lanes at the same address serialised, for 4 bytes and 8.
    """

    def __init__(self, code, totals):
        self.code, self.totals = code, totals
        self.sites, self.listings = code.sites, code.listings
        self.executed = [totals[part.warps] for part in code.parts]
        self.entered = [[totals[number] for number in nest] for nest in code.nests]
        parts = list(zip(code.parts, self.executed, strict=True))
        self.lanes = [WARP * warps if part.lanes < 0 else totals[part.lanes] for part, warps in parts]
        self.parted = [totals[part.branch] if part.branch >= 0 else 0 for part, _ in parts]
        self.delivered = [_delivered(site, totals) for site in code.sites]


class Recording(Sums):
    """The recording of consecutive blocks of a launch: their sums and the requests of each warp.

    `words`: the encoded requests; `window`: the first block and the one after the last.
    """

    def __init__(self, code, taken, first, count, buffers):
        self.code, self.first, self.count, self.warps = code, first, count, taken.warps
        self.window = first, first + count
        self.blocks, self.arrays = taken.blocks, taken.launched.given()
        self.base = taken.workers.arena.base
        self._numbers, self._used, self._lock = [], [], threading.Lock()
        self._buffers = buffers  # (buffer, words in use), shared by the recordings of one `record`
        self._room = _ROOM // count if taken.together else _ROOM  # each block has a thread

    def numbers(self):
        """Return the address of new counters for a worker thread."""
        own = np.zeros(self.code.size, np.int64)
        with self._lock:
            buffer, begin = self._buffers.pop() if self._buffers else (np.empty(self._room, np.uint32), 0)
            self._numbers.append(own)
            self._used.append((buffer, begin))
        own[[BUFFER, ROOM, USED]] = buffer.ctypes.data, buffer.size, begin
        own[STRIDE] = max(1, self.count // _LOOKED_AT)
        return own.ctypes.data

    def finish(self):
        """Add up the counters and join the requests, when the blocks have been run."""
        pieces = []
        for own, (buffer, begin) in zip(self._numbers, self._used, strict=True):
            if (end := int(own[USED])) > buffer.size - LONGEST:
                raise MemoryError(f"{self.count} blocks make more requests than can be recorded")
            pieces.append(buffer[begin:end])
            self._buffers.append((buffer, end))
        self.words = np.concatenate(pieces)
        super().__init__(self.code, np.sum(self._numbers, axis=0, dtype=np.int64).tolist())
        self._numbers = self._used = self._buffers = None


def _delivered(site, totals):
    if site.space != "shared":
        return None
    if site.always:
        return tuple(map(float, site.always))
    requests, *sums = totals[site.number : site.number + 1 + len(WIDTHS)]
    return tuple(total / requests for total in sums) if requests else (1.0,) * len(WIDTHS)
