"""Translate a kernel to code that records, in order, the sectors that its warps request from global memory.

Basic blocks are counted as in `counting`. A request to global memory is recorded as a few 32-bit words in a
buffer of the worker thread. For a request to shared memory, the deliveries that it takes are counted for
every width that the machine code may finally use.
"""

import itertools
import re
from collections import Counter
from typing import NamedTuple

from gpuless.emulator.analysis.alignment import access_size
from gpuless.emulator.translate import counters, recorders
from gpuless.emulator.translate.counting import Counting, CountingModule, piece_of
from gpuless.emulator.translate.recorders import WIDTHS
from gpuless.emulator.translate.values import ALL
from gpuless.source.files import source_file


class RecordedSite(NamedTuple):
    """A memory access.

    `size`: bytes per lane; `file`, `line`: in the source, "" and 0 if unknown; `cached`: whether L1 may cache
    it; `parameters`: indices of the kernel parameters that the address is computed from. For shared memory:
    `number`: the index of the first counter (requests examined, then deliveries for each of `WIDTHS`), or -1;
    `always`: the deliveries of a request if known at compile time; `step`: the distance in bytes of most
    neighbouring lanes, 0 if unknown.
    """

    space: str
    operation: str
    size: int
    file: str
    line: int
    cached: bool
    parameters: list
    number: int = -1
    always: tuple = ()
    step: int = 0


class Listed(NamedTuple):
    """A PTX instruction, with what identifies it in machine code."""

    opcode: str
    file: str
    line: int
    size: int
    guarded: bool


_UNCACHED = {"volatile", "cg", "cv", "relaxed", "acquire"}
_LIBRARY = re.compile(r"[/\\]numba[/\\]cuda[/\\]|<unnamed-cu>|reshape_funcs|libdevice")


def place_of(module, location):
    """Return the file and line of the innermost function outside of libraries, ("", 0) if there is none."""
    while location is not None:
        file = module.files.get(location[0], "")
        if location[1] and not _LIBRARY.search(file):
            return source_file(file), location[1]
        location = location[2] if len(location) > 2 else None
    return "", 0


class _Recording(Counting):
    """Translates a function to code that records."""

    def _instruction(self, instruction):
        self.place = place_of(self.module.source, instruction.location)
        super()._instruction(instruction)

    def _end(self, block):
        self.module.nests.append(self._nest(block.index))
        instructions = [*block.body, *([block.last] if block.last is not None else [])]
        self.module.listings.append(
            [
                Listed(
                    ".".join(one.opcode),
                    *place_of(self.module.source, one.location),
                    access_size(one),
                    bool(one.guard),
                )
                for one in instructions
            ]
        )
        super()._end(block)

    def _wait(self, at, target, mask):
        """Let lanes go to another block; count how often a warp enters a loop."""
        for first, last in self.analysis.flow.loop_ends.items():
            if target is not None and first <= target <= last and not first <= at <= last:
                some = self.new(f"zext i1 {self.new(f'icmp ne i32 {mask}, 0')} to i64")
                self.add(self.counts(), self._loop(first), some)
        super()._wait(at, target, mask)

    def _loop(self, first):
        """Return the index of the counter of entries into a loop."""
        loops = self.module.loops
        if (self.name, first) not in loops:
            loops[self.name, first] = self.module.numbers(1)
        return loops[self.name, first]

    def _nest(self, at):
        """Return the counters of the loops around a block, the outermost first."""
        around = [
            (last - first, first)
            for first, last in self.analysis.flow.loop_ends.items()
            if first <= at <= last
        ]
        return [self._loop(first) for _, first in sorted(around, reverse=True)]

    def _site(self, space, operation, size, address, number=-1, always=(), step=0):
        """Note a site; return its index."""
        sites = self.module.recorded
        parameters = sorted(self._parameters(address))
        cached = _UNCACHED.isdisjoint(self.instruction.opcode)
        place = space, operation, size, *self.place
        sites.append(RecordedSite(*place, cached, parameters, number, always, step))
        return len(sites) - 1

    def _count(self, space, operation, size, address):
        if space == "global":
            self._record(self._site(space, operation, size, address), address)
        elif space == "shared":
            self._shared(operation, size, address)
        elif space == "generic":
            self._generic(operation, size, address)

    def _count_rows(self, instruction, address):
        self._shared("load" if instruction.opcode[0] == "ldmatrix" else "store", 16, address)

    # --- Global memory ---------------------------------------------------------------------------------

    def _record(self, site, address):
        known = self._known(address)
        piece = piece_of(known) if known else None

        def each():
            self._record_lanes(site, self._addresses(address), self.mask)

        def whole():
            low, span = piece
            self._define_recorder("record.piece", recorders.PIECE)
            lanes_ = self.new(f"trunc i64 {self._how_many(self.mask)} to i32")
            given = f"i64 {self._first(address, low)}, i64 {span}, i32 {site}, i32 {lanes_}"
            self.line(f"call void @record.piece(ptr %ctx, ptr {self.counts()}, i32 %warp, {given})")

        self._by_piece(piece, whole, each)

    def _record_lanes(self, site, vector, mask):
        self._define_recorder("record.lanes", recorders.LANES)
        given = f"{ALL.int(64)} {vector}, i32 {mask}, i32 {site}"
        self.line(f"call void @record.lanes(ptr %ctx, ptr {self.counts()}, i32 %warp, {given})")

    def _define_recorder(self, name, text):
        self._declare_lanes()
        self.module.declare("i32 @llvm.ctpop.i32(i32)")
        self.module.define("block.number", recorders.NUMBER)
        self.module.define(name, text.replace("{warps}", str(self.module.warps)))

    def _generic(self, operation, size, address):
        """Record an access to generic addresses: the lanes in global memory, then those in shared."""
        vector = self._addresses(address)
        global_, shared, _ = self._by_space(vector)
        self._record_lanes(self._site("global", operation, size, address), vector, global_)
        number = self.module.numbers(1 + len(WIDTHS))
        self._site("shared", operation, size, address, number)
        self._count_widths(operation, vector, shared, number)

    # --- Shared memory ---------------------------------------------------------------------------------

    def _shared(self, operation, size, address):
        known = self._known(address)
        step = step_of(known) if known else 0
        if known and not self.masked:
            always = tuple(deliveries(known, width) for width in WIDTHS)
            if operation == "atomic":
                always = always[0], turns(known, 4), turns(known, 8)
            self._site("shared", operation, size, address, always=always, step=step)
            return
        number = self.module.numbers(1 + len(WIDTHS))
        self._site("shared", operation, size, address, number, step=step)
        self._count_widths(operation, self._addresses(address), self.mask, number)

    def _count_widths(self, operation, vector, mask, number):
        name = "count.turns" if operation == "atomic" else "count.widths"
        self._define_recorder(
            name, recorders.TURNS_COUNTED if operation == "atomic" else recorders.WIDTHS_COUNTED
        )
        for width in WIDTHS:
            for function in ("deliveries", "turns"):
                self.module.define(f"{function}.{width}", recorders.deliveries_counted(width, function))
        given = f"{ALL.int(64)} {vector}, i32 {mask}, i64 {number}"
        self.line(f"call void @{name}(ptr %ctx, ptr {self.counts()}, {given})")


def deliveries(distances, width):
    """Return the deliveries of shared memory for lanes at these distances, each of `width` bytes.

    Lanes that want the same piece are served together, in whatever part of the warp they are.

    >>> deliveries([4 * lane for lane in range(32)], 4), deliveries([128 * lane for lane in range(32)], 4)
    (1, 32)
    >>> deliveries([16 * lane for lane in range(32)], 16), deliveries([0] * 32, 16)
    (4, 1)
    """
    pieces = {distance // width for distance in distances}
    groups = counters.BANKS * counters.WORD // width
    return max(Counter(piece % groups for piece in pieces).values())


def step_of(distances):
    """Return the distance of most neighbouring lanes with different addresses, 0 if there is no majority.

    >>> step_of([lane % 16 * 8 + lane // 16 * 132 for lane in range(32)]), step_of([0] * 32)
    (8, 0)
    """
    steps = Counter(abs(after - before) for before, after in itertools.pairwise(distances) if before != after)
    step, times = max(steps.items(), key=lambda each: each[1], default=(0, 0))
    return step if times > steps.total() / 2 else 0


def turns(distances, width):
    """Return the deliveries of shared memory if each bank serves one lane at a time.

    >>> turns([0] * 32, 4), turns([4 * lane for lane in range(32)], 4)
    (32, 1)
    """
    groups = counters.BANKS * counters.WORD // width
    return max(Counter(distance // width % groups for distance in distances).values())


class RecordingModule(CountingModule):
    """Translate a kernel to code that records; parameters as for `ModuleTranslator`."""

    translator = _Recording

    def __init__(self, source, kernel, block, alignments=None):
        super().__init__(source, kernel, block, alignments)
        self.recorded, self.listings, self.nests, self.loops = [], [], [], {}

    @property
    def facts(self):
        """Those of counting code, then the sites, the listings and the nests."""
        return [*super().facts, self.recorded, self.listings, self.nests]
