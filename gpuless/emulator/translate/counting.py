"""Translate a kernel to code that counts what its warps execute and request from memory.

A basic block counts how often warps run it and with how many lanes, which gives the executions of each of its
instructions. A memory access counts what depends on its addresses.
"""

import itertools
from collections import Counter
from typing import NamedTuple

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.alignment import access_size
from gpuless.emulator.analysis.classes import class_of, flops_of
from gpuless.emulator.analysis.lanes import VARYING, WARP
from gpuless.emulator.ptx import Address
from gpuless.emulator.ptx.instructions import parameters_behind, written_by
from gpuless.emulator.translate import counters
from gpuless.emulator.translate.addresses import near_of, space_of, wide
from gpuless.emulator.translate.counters import BANKS, HEADER, PASSED, READ_MAP, WORD, WRITTEN_MAP
from gpuless.emulator.translate.layout import ARENA_SPAN, OFFSET, PRIVATE_SPAN, SHARED_SPAN
from gpuless.emulator.translate.module import ModuleTranslator
from gpuless.emulator.translate.translator import Translator
from gpuless.emulator.translate.typed import Integers, call_int, resize
from gpuless.emulator.translate.values import ALL, ONE
from gpuless.limits import SECTOR

_MAPS = {"load": (READ_MAP,), "store": (WRITTEN_MAP,), "atomic": (READ_MAP, WRITTEN_MAP)}
_OPERATIONS = {"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"}


class Site(NamedTuple):
    """A memory access in a basic block, and its counters.

    `size`: bytes per lane; `number`: the index of the first counter, -1 if there is none: of sectors for
    global memory, of wavefronts with and without conflicts for shared memory, those of `GENERIC` for generic
    addresses; `always`: wavefronts with and without conflicts if they are known at compile time;
    `parameters`: indices of the kernel parameters that the address is computed from.
    """

    space: str
    operation: str
    size: int
    number: int = -1
    always: tuple = (0, 0)
    parameters: list = ()


class Part(NamedTuple):
    """A basic block, and its counters.

    `warps`, `lanes`: the indices of the counters of executions by warps and by lanes, -1 if all lanes are
    always on; `classes`: instructions by class; `uncounted`: by name, those whose memory accesses are not
    counted; `flops`: (type, operations per lane, operations per warp); `branch`: the index of the counter of
    divergent branches at its end, -1 if it cannot diverge, -2 if it doesn't branch.
    """

    warps: int
    lanes: int
    classes: dict
    uncounted: dict
    flops: list
    barriers: int
    shuffles: int
    branch: int
    sites: list


#: The counters of an access to a generic address: for global, then shared, then local memory.
GENERIC = ("requests", "lanes", "sectors", "requests", "lanes", "wavefronts", "least", "requests", "lanes")


class Counting(Translator):
    """Translates a function to code that counts."""

    def __init__(self, module, function, name):
        super().__init__(module, function, name)
        self._written = written_by(instruction for instruction, _ in self.analysis.instructions)
        self._behind = {}

    def _block(self, block):
        self.sites, self.uncounted = [], Counter()
        super()._block(block)

    def _instruction(self, instruction):
        self._count_accesses(instruction)
        super()._instruction(instruction)

    def _end(self, block):
        last, warps = block.last, self.module.numbers(1)
        counts = self.counts()
        self.add(counts, warps, "1")
        lanes_ = -1
        if self.masked:
            lanes_ = self.module.numbers(1)
            self.add(counts, lanes_, self._how_many(self.mask))
        branch = -2
        if last is not None and last.opcode[0] in ("bra", "brx") and len(set(block.end.targets)) > 1:
            branch = self._count_parting(counts, block)
        instructions = [*block.body, *([last] if last is not None else [])]
        self.module.parts.append(
            Part(
                warps,
                lanes_,
                dict(Counter(map(class_of, instructions))),
                dict(self.uncounted),
                [found for found in map(flops_of, instructions) if found],
                sum(map(_is_barrier, instructions)),
                sum(one.opcode[0] == "shfl" for one in instructions),
                branch,
                self.sites,
            )
        )
        super()._end(block)

    def _count_parting(self, counts, block):
        """Count divergence at the end of a block; return the counter's index, or -1 if it is impossible."""
        condition = self.operand(block.end.condition, "u32" if self._is_switch(block.end) else "pred")
        if lanes.uniform(condition.kind):
            return -1
        number = self.module.numbers(1)
        if self._is_switch(block.end):
            vector = self.new(f"freeze {ALL.int(32)} {self.vector(condition, 32)}")
            self.module.define("count.parting", counters.PARTING)
            some = self.new(f"call i64 @count.parting({ALL.int(32)} {vector}, i32 {self.mask})")
        else:
            taken = self.new(f"and i32 {self.mask_of(self.vector(condition, 1))}, {self.mask}")
            some, all_ = self.new(f"icmp ne i32 {taken}, 0"), self.new(f"icmp ne i32 {taken}, {self.mask}")
            some = self.new(f"zext i1 {self.new(f'and i1 {some}, {all_}')} to i64")
        self.add(counts, number, some)
        return number

    # --- Numbers ---------------------------------------------------------------------------------------

    def counts(self):
        """Return a pointer to the thread's counters."""
        at = self.new(f"getelementptr i8, ptr %ctx, i64 {OFFSET['counts']}")
        return self.new(f"load ptr, ptr {at}, !invariant.load !0")

    def add(self, counts, number, amount):
        """Add to a counter."""
        at = self.new(f"getelementptr i64, ptr {counts}, i64 {number}")
        more = self.new(f"add i64 {self.new(f'load i64, ptr {at}')}, {amount}")
        self.line(f"store i64 {more}, ptr {at}")

    def _how_many(self, mask):
        """Return the number of lanes in a mask."""
        return self.new(f"zext i32 {call_int(self, ONE, 'ctpop', 32, mask)} to i64")

    # --- Accesses --------------------------------------------------------------------------------------

    def _count_accesses(self, instruction):
        opcode, operands = instruction.opcode, instruction.operands
        addresses = [operand for operand in operands if isinstance(operand, Address)]
        if size := access_size(instruction):
            self._count(space_of(instruction), _OPERATIONS[opcode[0]], size, addresses[0])
        elif opcode[:2] == ("cp", "async") and opcode[2] in ("ca", "cg"):
            self._count("shared", "store", int(operands[2], 0), addresses[0])
            self._count("global", "load", int(operands[2], 0), addresses[1])
        elif opcode[0] in ("ldmatrix", "stmatrix"):
            self._count_rows(instruction, addresses[0])
        elif addresses and "param" not in opcode and opcode[0] not in ("prefetch", "prefetchu", "discard"):
            self.uncounted[".".join(opcode[:2])] += 1

    def _count(self, space, operation, size, address):
        if space == "const":
            return
        known = self._known(address)
        if space == "local":
            self.sites.append(Site(space, operation, size))
        elif space == "generic":
            self._count_generic(operation, size, address)
        elif space == "global":
            number = self.module.numbers(1)
            self.sites.append(Site(space, operation, size, number, parameters=self._parameters(address)))
            self._count_sectors(operation, address, known, number)
        else:
            self._count_wavefronts(operation, size, address, known)

    def _parameters(self, address):
        if address.base not in self._behind:
            self._behind[address.base] = parameters_behind(self.function, self._written, [address.base])
        return self._behind[address.base]

    def _known(self, address):
        """Return the distances of lanes from lane 0, None if unknown."""
        near = near_of(self.operand(address.base))
        bits = self.function.registers.get(address.base, 64)
        return None if near is VARYING else lanes.nearest(lanes.relative(near)[0], bits)

    def _first(self, address, ahead):
        """Return lane 0's address plus `ahead` bytes."""
        scalar, bits = self.operand(address.base).scalar, self.function.registers.get(address.base, 64)
        return self.new(f"add i64 {wide(self, scalar, bits)}, {address.offset + ahead}")

    def _addresses(self, address):
        """Return the addresses of all lanes."""
        bits = self.function.registers.get(address.base, 64)
        vector = resize(self, ALL, self.vector(self.operand(address.base), bits), bits, 64)
        vector = self.new(f"add {ALL.int(64)} {vector}, splat (i64 {address.offset})")
        return self.new(f"freeze {ALL.int(64)} {vector}")

    def _count_sectors(self, operation, address, known, number):
        counts, maps = self.counts(), _MAPS[operation]
        piece = piece_of(known) if known else None

        def each():
            name = self._define("count.sectors", maps, counters.sectors)
            given = f"{ALL.int(64)} {self._addresses(address)}, i32 {self.mask}, i64 {number}"
            self.line(f"call void @{name}(ptr {counts}, {given})")

        def whole():
            low, span = piece
            name = self._define("count.piece", maps, counters.sectors_of_piece, span // SECTOR + 1)
            given = f"i64 {self._first(address, low)}, i64 {span}, i64 {number}"
            self.line(f"call void @{name}(ptr {counts}, {given})")

        self._by_piece(piece, whole, each)

    def _by_piece(self, piece, whole, each):
        """Call `whole` for a request that is one contiguous piece of memory, else `each`."""
        if piece is None:
            each()
        elif not self.masked or piece[1] == 0:
            whole()
        else:
            self._where_all_are_on(whole, each)

    def _where_all_are_on(self, then, otherwise):
        all_, some, end = (self.fresh(name) for name in ("all", "some", "counted"))
        self.line(f"br i1 {self.new(f'icmp eq i32 {self.mask}, -1')}, label %{all_}, label %{some}")
        for label, write in ((all_, then), (some, otherwise)):
            self.label(label)
            write()
            self.line(f"br label %{end}")
        self.label(end)

    def _count_wavefronts(self, operation, size, address, known):
        unit, apart = max(WORD, size), operation == "atomic"
        if known and not self.masked and (unit == size or known == lanes.ZERO):
            self.sites.append(Site("shared", operation, size, -1, wavefronts(known, unit, apart)))
            return
        number = self.module.numbers(2)
        self.sites.append(Site("shared", operation, size, number))
        self._call_wavefronts(unit, apart, self._addresses(address), self.mask, number)

    def _call_wavefronts(self, unit, apart, vector, mask, number):
        name = f"count.wavefronts.{unit}.{int(apart)}"
        self._declare_lanes()
        self.module.define(name, counters.wavefronts(name, unit, apart))
        self.line(f"call void @{name}(ptr {self.counts()}, {ALL.int(64)} {vector}, i32 {mask}, i64 {number})")

    def _count_rows(self, instruction, address):
        """Count the 16-byte rows of matrices, whose addresses are in the first lanes."""
        space = space_of(instruction)
        if space == "generic":
            space = "shared"
        matrices = next((int(part[1:]) for part in instruction.opcode if part in ("x1", "x2", "x4")), 1)
        number = self.module.numbers(2)
        mask = self.new(f"and i32 {self.mask}, {(1 << 8 * matrices) - 1}")
        operation = "load" if instruction.opcode[0] == "ldmatrix" else "store"
        self.sites.append(Site(space, operation, 4 * matrices, number))
        self._call_wavefronts(16, False, self._addresses(address), mask, number)

    def _count_generic(self, operation, size, address):
        """Count an access to generic addresses, by the state space of each lane."""
        first = self.module.numbers(len(GENERIC))
        self.sites.append(Site("generic", operation, size, first, parameters=self._parameters(address)))
        unit, apart, counts = max(WORD, size), operation == "atomic", self.counts()
        vector = self._addresses(address)
        global_, shared, private = self._by_space(vector)
        local = self.new(f"xor i32 {private}, {shared}")
        for mask, at in ((global_, 0), (shared, 3), (local, 7)):
            some = self.new(f"zext i1 {self.new(f'icmp ne i32 {mask}, 0')} to i64")
            self.add(counts, first + at, some)
            self.add(counts, first + at + 1, self._how_many(mask))
        name = self._define("count.sectors", _MAPS[operation], counters.sectors)
        given = f"{ALL.int(64)} {vector}, i32 {global_}, i64 {first + 2}"
        self.line(f"call void @{name}(ptr {counts}, {given})")
        self._call_wavefronts(unit, apart, vector, shared, first + 5)

    def _by_space(self, vector):
        """Return masks of the lanes whose addresses are in global, in shared, in shared or local memory."""
        base = self.splat(self.new("ptrtoint ptr %shared to i64"), "i64")
        i = Integers(self, ALL, 64)
        shared = i("icmp ult", i("sub", vector, base), SHARED_SPAN)
        private = i("icmp ult", i("and", vector, ARENA_SPAN - 1), PRIVATE_SPAN)
        shared = self.new(f"and i32 {self.mask_of(shared)}, {self.mask}")
        private = self.new(f"and i32 {self.mask_of(private)}, {self.mask}")
        return self.new(f"xor i32 {private}, {self.mask}"), shared, private

    def _define(self, name, maps, make, *given):
        """Define a function that marks sectors in maps; return its name."""
        name = ".".join(map(str, (name, *maps, *given)))
        self._declare_lanes()
        self.module.declare("i64 @llvm.umin.i64(i64, i64)")
        self.module.define(name, make(name, maps, *given))
        return name

    def _declare_lanes(self):
        self.module.declare("i32 @llvm.cttz.i32(i32, i1)")
        vector, where = ALL.int(32), f"<{WARP} x ptr>, <{WARP} x i1>"
        self.module.declare(f"{vector} @{counters.GATHER}({where}, {vector})")
        self.module.declare(f"void @{counters.SCATTER}({vector}, {where})")


def _is_barrier(instruction):
    """Return whether an instruction is a barrier at which the warps of a block wait for each other."""
    return instruction.opcode[0] in ("bar", "barrier") and not {"warp", "arrive", "cluster"} & {
        *instruction.opcode
    }


def piece_of(distances):
    """Return the first distance and the span to the last one, None if lanes skip a sector."""
    places = sorted(set(distances))
    near = all(after - before <= SECTOR for before, after in itertools.pairwise(places))
    return (places[0], places[-1] - places[0]) if near else None


def wavefronts(distances, unit, apart=False):
    """Return the wavefronts of shared memory for lanes at these distances, and the minimum without conflicts.

    `distances`: of all lanes of a warp from one of them, multiples of the unit; `unit`: bytes per lane; if
    they are more than a word, half or a quarter of the warp is served at once; `apart`: whether lanes at the
    same address are served one after the other, as by atomic operations.

    >>> wavefronts([8 * lane for lane in range(32)], 4), wavefronts([8 * lane for lane in range(32)], 8)
    ((2, 1), (2, 2))
    """
    parts = unit // WORD
    size = WARP // parts
    found = 0
    for first in range(0, WARP, size):
        wanted = {
            (distance // unit, lane if apart else 0)
            for lane, distance in enumerate(distances[first : first + size])
        }
        found += max(Counter(place % (BANKS // parts) for place, _ in wanted).values())
    return found, parts


class CountingModule(ModuleTranslator):
    """Translate a kernel to code that counts; parameters as for `ModuleTranslator`."""

    translator = Counting
    prepared = staticmethod(lambda function: function)  # count the compiler's own instructions
    passed = f"""
  %at.counts = getelementptr i8, ptr %ctx, i64 {OFFSET["counts"]}
  %counts = load ptr, ptr %at.counts
  %at.passed = getelementptr i64, ptr %counts, i64 {PASSED}
  %passed = load i64, ptr %at.passed
  %passed.more = add i64 %passed, 1
  store i64 %passed.more, ptr %at.passed"""

    def __init__(self, source, kernel, block, alignments=None):
        super().__init__(source, kernel, block, alignments)
        self.parts, self.size = [], HEADER

    @property
    def facts(self):
        """Those of any kernel, then the number of counters and the parts."""
        return [*super().facts, self.size, self.parts]

    def numbers(self, count):
        """Return the index of the first of `count` new counters."""
        self.size += count
        return self.size - count
