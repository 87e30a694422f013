"""Translate a kernel such that it records the sectors that its warps ask global memory for, in order.

What `counting` counts of blocks of code is counted here too. A request of global memory becomes a few words
of 32 bits in a buffer of the thread that runs the block, and one of shared memory is counted by what it takes
to deliver it, whichever width the machine code gives it in the end.
"""

import re
from collections import Counter
from typing import NamedTuple

from gpuless.emulator.analysis.alignment import access_size
from gpuless.emulator.analysis.lanes import WARP
from gpuless.emulator.translate import counters
from gpuless.emulator.translate.counters import PASSED
from gpuless.emulator.translate.counting import Counting, CountingModule, piece_of
from gpuless.emulator.translate.layout import ARENA_SPAN, OFFSET, PRIVATE_SPAN, SHARED_SPAN
from gpuless.emulator.translate.typed import Integers
from gpuless.emulator.translate.values import ALL

#: What stands before the numbers of a thread: its buffer, how many words that has, how many are in use, and
#: of how many blocks one has its shared memory looked at. `PASSED` follows.
BUFFER, ROOM, USED, STRIDE = range(PASSED)
#: Words that a request may take.
LONGEST = 2 + WARP
#: The first word of a request: the number of its site, of its sectors and of its lanes, and whether the
#: sectors follow each other, such that the first is enough. The second: the warp, numbered through all
#: blocks.
SECTORS_AT, LANES_AT, RUN = 16, 24, 1 << 31
#: The widths for which it is counted what shared memory takes to deliver a request.
WIDTHS = (4, 8, 16)


class RecordedSite(NamedTuple):
    """An access to memory: what it does, in how many bytes of a lane, and where in the source.

    `file`, `line`: of the source, "" and 0 if unknown; `cached`: whether L1 may have it; `parameters`: those
    of the kernel that the address is computed from; `number`: of shared memory the first of the numbers:
    requests that were looked at and what delivering them takes for each of `WIDTHS`, or -1; `always`: that,
    where it is known beforehand.
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


class Listed(NamedTuple):
    """An instruction of PTX, as it is looked for in machine code."""

    opcode: str
    file: str
    line: int
    size: int
    guarded: bool


_UNCACHED = {"volatile", "cg", "cv", "relaxed", "acquire"}
_LIBRARY = re.compile(r"[/\\]numba[/\\]cuda[/\\]|<unnamed-cu>|reshape_funcs|libdevice")


def place_of(module, location):
    """Return file and line of the innermost function that is the author's, ("", 0) if there is none."""
    while location is not None:
        file = module.files.get(location[0], "")
        if location[1] and not _LIBRARY.search(file):
            return file, location[1]
        location = location[2] if len(location) > 2 else None
    return "", 0


class _Recording(Counting):
    """Translates a function such that it records."""

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
        """Go from block to block; count how often a warp comes into a loop."""
        for first, last in self.analysis.flow.loop_ends.items():
            if target is not None and first <= target <= last and not first <= at <= last:
                some = self.new(f"zext i1 {self.new(f'icmp ne i32 {mask}, 0')} to i64")
                self.add(self.counts(), self._loop(first), some)
        super()._wait(at, target, mask)

    def _loop(self, first):
        """Return the number that says how often warps came into a loop."""
        loops = self.module.loops
        if (self.name, first) not in loops:
            loops[self.name, first] = self.module.numbers(1)
        return loops[self.name, first]

    def _nest(self, at):
        """Return the numbers of the loops that a block is in, the outermost first."""
        around = [
            (last - first, first)
            for first, last in self.analysis.flow.loop_ends.items()
            if first <= at <= last
        ]
        return [self._loop(first) for _, first in sorted(around, reverse=True)]

    def _site(self, space, operation, size, address, number=-1, always=()):
        """Note a site; return its number."""
        sites = self.module.recorded
        parameters = sorted(self._parameters(address))
        cached = _UNCACHED.isdisjoint(self.instruction.opcode)
        sites.append(RecordedSite(space, operation, size, *self.place, cached, parameters, number, always))
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

    # --- Global memory -------------------------------------------------------------------------------------

    def _record(self, site, address):
        known = self._known(address)
        piece = piece_of(known) if known else None

        def each():
            self._record_lanes(site, self._addresses(address), self.mask)

        def whole():
            low, span = piece
            self._define_recorder("record.piece", _PIECE)
            lanes_ = self.new(f"trunc i64 {self._how_many(self.mask)} to i32")
            given = f"i64 {self._first(address, low)}, i64 {span}, i32 {site}, i32 {lanes_}"
            self.line(f"call void @record.piece(ptr %ctx, ptr {self.counts()}, i32 %warp, {given})")

        if piece is None:
            each()
        elif not self.masked or piece[1] == 0:
            whole()
        else:
            self._where_all_are_on(whole, each)

    def _record_lanes(self, site, vector, mask):
        self._define_recorder("record.lanes", _LANES)
        given = f"{ALL.int(64)} {vector}, i32 {mask}, i32 {site}"
        self.line(f"call void @record.lanes(ptr %ctx, ptr {self.counts()}, i32 %warp, {given})")

    def _define_recorder(self, name, text):
        self._declare_lanes()
        self.module.declare("i32 @llvm.ctpop.i32(i32)")
        self.module.define("block.number", _NUMBER)
        self.module.define(name, text.replace("{warps}", str(self.module.warps)))

    def _generic(self, operation, size, address):
        """Record what turns out to be global memory, and count what turns out to be shared."""
        vector = self._addresses(address)
        shared = self.splat(self.new("ptrtoint ptr %shared to i64"), "i64")
        i = Integers(self, ALL, 64)
        in_shared = i("icmp ult", i("sub", vector, shared), SHARED_SPAN)
        private = i("icmp ult", i("and", vector, ARENA_SPAN - 1), PRIVATE_SPAN)
        there = self.new(f"and i32 {self.mask_of(in_shared)}, {self.mask}")
        private = self.new(f"and i32 {self.mask_of(private)}, {self.mask}")
        elsewhere = self.new(f"xor i32 {private}, {self.mask}")
        self._record_lanes(self._site("global", operation, size, address), vector, elsewhere)
        number = self.module.numbers(1 + len(WIDTHS))
        self._site("shared", operation, size, address, number)
        self._count_widths(vector, there, number)

    # --- Shared memory -------------------------------------------------------------------------------------

    def _shared(self, operation, size, address):
        known = self._known(address)
        if known and not self.masked:
            always = tuple(deliveries(known, width) for width in WIDTHS)
            self._site("shared", operation, size, address, always=always)
            return
        number = self.module.numbers(1 + len(WIDTHS))
        self._site("shared", operation, size, address, number)
        self._count_widths(self._addresses(address), self.mask, number)

    def _count_widths(self, vector, mask, number):
        self._define_recorder("count.widths", _WIDTHS_TEXT)
        for width in WIDTHS:
            self.module.define(f"deliveries.{width}", _deliveries_text(width))
        given = f"{ALL.int(64)} {vector}, i32 {mask}, i64 {number}"
        self.line(f"call void @count.widths(ptr %ctx, ptr {self.counts()}, {given})")


def deliveries(distances, width):
    """Return how often shared memory delivers for lanes so far apart, each of which takes so many bytes.

    Two lanes that ask for the same are served together, whichever part of the warp they are in.

    >>> deliveries([4 * lane for lane in range(32)], 4), deliveries([128 * lane for lane in range(32)], 4)
    (1, 32)
    >>> deliveries([16 * lane for lane in range(32)], 16), deliveries([0] * 32, 16)
    (4, 1)
    """
    pieces = {distance // width for distance in distances}
    groups = counters.BANKS * counters.WORD // width
    return max(Counter(piece % groups for piece in pieces).values())


class RecordingModule(CountingModule):
    """Translate a kernel such that it records; parameters as for any."""

    translator = _Recording

    def __init__(self, source, kernel, block, alignments=None):
        super().__init__(source, kernel, block, alignments)
        self.recorded, self.listings, self.nests, self.loops = [], [], [], {}


# --- Functions that record, in IR ---------------------------------------------------------------------------

_NUMBER = f"""define internal i64 @block.number(ptr %ctx) #0 {{
  %at.x = getelementptr i8, ptr %ctx, i64 {OFFSET["ctaid.x"]}
  %at.y = getelementptr i8, ptr %ctx, i64 {OFFSET["ctaid.y"]}
  %at.z = getelementptr i8, ptr %ctx, i64 {OFFSET["ctaid.z"]}
  %at.nx = getelementptr i8, ptr %ctx, i64 {OFFSET["nctaid.x"]}
  %at.ny = getelementptr i8, ptr %ctx, i64 {OFFSET["nctaid.y"]}
  %x32 = load i32, ptr %at.x
  %y32 = load i32, ptr %at.y
  %z32 = load i32, ptr %at.z
  %nx32 = load i32, ptr %at.nx
  %ny32 = load i32, ptr %at.ny
  %x = zext i32 %x32 to i64
  %y = zext i32 %y32 to i64
  %z = zext i32 %z32 to i64
  %nx = zext i32 %nx32 to i64
  %ny = zext i32 %ny32 to i64
  %planes = mul i64 %z, %ny
  %rows = add i64 %planes, %y
  %before = mul i64 %rows, %nx
  %number = add i64 %before, %x
  ret i64 %number
}}
"""
_SPACE = f"""  %at.buffer = getelementptr i64, ptr %counts, i64 {BUFFER}
  %buffer = load ptr, ptr %at.buffer
  %at.used = getelementptr i64, ptr %counts, i64 {USED}
  %used = load i64, ptr %at.used
  %at.room = getelementptr i64, ptr %counts, i64 {ROOM}
  %room = load i64, ptr %at.room
  %needed = add i64 %used, {LONGEST}
  %full = icmp ugt i64 %needed, %room
  %record = getelementptr i32, ptr %buffer, i64 %used
  %second = getelementptr i32, ptr %record, i64 1
  %third = getelementptr i32, ptr %record, i64 2
"""
_HEAD = """  %block = call i64 @block.number(ptr %ctx)
  %block32 = trunc i64 %block to i32
  %first.warp = mul i32 %block32, {warps}
  %stream = add i32 %first.warp, %warp
  store i32 %stream, ptr %second
"""
_FULL = "no.room:\n  store i64 %room, ptr %at.used\n  br label %out\nout:\n  ret void\n}\n"
_PIECE = (
    """define internal void @record.piece(ptr %ctx, ptr %counts, i32 %warp, i64 %address, i64 %span, """
    "i32 %site, i32 %lanes) #1 {\n"
    + _SPACE
    + "  br i1 %full, label %no.room, label %write\nwrite:\n"
    + _HEAD
    + f"""  %low = and i64 %address, {ARENA_SPAN - 1}
  %high = add i64 %low, %span
  %begin = lshr i64 %low, 5
  %end = lshr i64 %high, 5
  %less = sub i64 %end, %begin
  %n = add i64 %less, 1
  %n32 = trunc i64 %n to i32
  %sectors = shl i32 %n32, {SECTORS_AT}
  %lanes.there = shl i32 %lanes, {LANES_AT}
  %some = or i32 %sectors, %lanes.there
  %more = or i32 %some, %site
  %all = or i32 %more, {RUN - (1 << 32)}
  store i32 %all, ptr %record
  %begin32 = trunc i64 %begin to i32
  store i32 %begin32, ptr %third
  %after = add i64 %used, 3
  store i64 %after, ptr %at.used
  br label %out
"""
    + _FULL
)
_LANES = (
    f"define internal void @record.lanes(ptr %ctx, ptr %counts, i32 %warp, {ALL.int(64)} %addresses, "
    "i32 %mask, i32 %site) #1 {\nentry:\n"
    f"  %places = alloca {ALL.int(32)}, align 64\n"
    + _SPACE
    + """  %none = icmp eq i32 %mask, 0
  br i1 %none, label %out, label %some
some:
  br i1 %full, label %no.room, label %write
write:
"""
    + _HEAD
    + f"""  %low = and {ALL.int(64)} %addresses, splat (i64 {ARENA_SPAN - 1})
  %wide = lshr {ALL.int(64)} %low, splat (i64 5)
  %sectors = trunc {ALL.int(64)} %wide to {ALL.int(32)}
  store {ALL.int(32)} %sectors, ptr %places
  br label %next
next:
  %rest = phi i32 [ %mask, %write ], [ %less, %next ]
  %done = phi i32 [ 0, %write ], [ %n, %next ]
  %lane = call i32 @llvm.cttz.i32(i32 %rest, i1 true)
  %place = getelementptr i32, ptr %places, i32 %lane
  %sector = load i32, ptr %place
  %target = getelementptr i32, ptr %third, i32 %done
  store i32 %sector, ptr %target
  %one = insertelement {ALL.int(32)} poison, i32 %sector, i64 0
  %every = shufflevector {ALL.int(32)} %one, {ALL.int(32)} poison, <{WARP} x i32> zeroinitializer
  %same = icmp eq {ALL.int(32)} %sectors, %every
  %bits = bitcast <{WARP} x i1> %same to i32
  %others = xor i32 %bits, -1
  %less = and i32 %rest, %others
  %n = add i32 %done, 1
  %last = icmp eq i32 %less, 0
  br i1 %last, label %end, label %next
end:
  %lanes = call i32 @llvm.ctpop.i32(i32 %mask)
  %lanes.there = shl i32 %lanes, {LANES_AT}
  %counted = shl i32 %n, {SECTORS_AT}
  %head = or i32 %lanes.there, %counted
  %whole = or i32 %head, %site
  store i32 %whole, ptr %record
  %n64 = zext i32 %n to i64
  %behind = add i64 %used, 2
  %after = add i64 %behind, %n64
  store i64 %after, ptr %at.used
  br label %out
"""
    + _FULL
)


def _deliveries_text(width):
    """Return the function that counts as `deliveries` does, for lanes that are anywhere.

    Each time round every bank delivers to all that want the same: lanes write what they want into a table, by
    banks, and those go that find theirs there.
    """
    vector, flags = ALL.int(32), f"<{WARP} x i1>"
    groups, where = counters.BANKS * counters.WORD // width, f"<{WARP} x ptr> align 4 %pointers, {flags} %on"
    return f"""define internal i64 @deliveries.{width}({ALL.int(64)} %addresses, i32 %mask) #1 {{
entry:
  %table = alloca {vector}, align 64
  %short = trunc {ALL.int(64)} %addresses to {vector}
  %pieces = lshr {vector} %short, splat (i32 {width.bit_length() - 1})
  %banks = and {vector} %pieces, splat (i32 {groups - 1})
  %pointers = getelementptr i32, ptr %table, {vector} %banks
  br label %next
next:
  %rest = phi i32 [ %mask, %entry ], [ %less, %next ]
  %done = phi i64 [ 0, %entry ], [ %n, %next ]
  %on = bitcast i32 %rest to {flags}
  call void @{counters.SCATTER}({vector} %pieces, {where})
  %there = call {vector} @{counters.GATHER}({where}, {vector} zeroinitializer)
  %same = icmp eq {vector} %there, %pieces
  %bits = bitcast {flags} %same to i32
  %others = xor i32 %bits, -1
  %less = and i32 %rest, %others
  %n = add i64 %done, 1
  %last = icmp eq i32 %less, 0
  br i1 %last, label %end, label %next
end:
  ret i64 %n
}}
"""


def _add(number, amount):
    return f"""  %at.{number} = getelementptr i64, ptr %first, i64 {number}
  %before.{number} = load i64, ptr %at.{number}
  %sum.{number} = add i64 %before.{number}, {amount}
  store i64 %sum.{number}, ptr %at.{number}
"""


_WIDTHS_TEXT = (
    f"define internal void @count.widths(ptr %ctx, ptr %counts, {ALL.int(64)} %addresses, i32 %mask, "
    "i64 %number) #1 {\n"
    f"""  %block = call i64 @block.number(ptr %ctx)
  %at.stride = getelementptr i64, ptr %counts, i64 {STRIDE}
  %stride = load i64, ptr %at.stride
  %left = urem i64 %block, %stride
  %passed.over = icmp ne i64 %left, 0
  %none = icmp eq i32 %mask, 0
  %nothing = or i1 %passed.over, %none
  br i1 %nothing, label %out, label %look
look:
  %first = getelementptr i64, ptr %counts, i64 %number
"""
    + _add(0, "1")
    + "".join(
        f"  %n.{width} = call i64 @deliveries.{width}({ALL.int(64)} %addresses, i32 %mask)\n"
        + _add(i + 1, f"%n.{width}")
        for i, width in enumerate(WIDTHS)
    )
    + "  br label %out\nout:\n  ret void\n}\n"
)
