"""Find out where a block failed: run it again with code that notes each instruction before it is executed.

Normal machine code doesn't keep track of lines and threads, as that would slow it down. Tracing code is
compiled only after a failure.
"""

import ctypes
from typing import NamedTuple

from gpuless.emulator.analysis.alignment import access_size
from gpuless.emulator.ptx import Address, Instruction
from gpuless.emulator.ptx.instructions import parameters_behind, written_by
from gpuless.emulator.run import lines, machine
from gpuless.emulator.translate import layout
from gpuless.emulator.translate.addresses import space_of
from gpuless.emulator.translate.module import ModuleTranslator
from gpuless.emulator.translate.translator import Translator
from gpuless.emulator.translate.typed import resize
from gpuless.emulator.translate.values import ALL
from gpuless.limits import WARP

_NOTED = {"trap", "call", "bar", "barrier", "div", "rem", "nanosleep"}


class Site(NamedTuple):
    """An instruction that a trace notes, or the end of a basic block."""

    function: str
    instruction: Instruction | None
    location: object

    @property
    def size(self):
        """Bytes that each lane accesses."""
        return access_size(self.instruction) if self.instruction is not None else 0

    @property
    def verb(self):
        """The kind of access, for messages."""
        return {"ld": "reading", "ldu": "reading", "st": "writing"}.get(
            self.instruction.opcode[0], "updating"
        )


class _Tracer(Translator):
    """Translates a function so that it notes what it is about to do."""

    def _block(self, block):
        self.noted = None
        super()._block(block)

    def _instruction(self, instruction):
        name, location = instruction.opcode[0], instruction.location
        accesses = access_size(instruction) > 0
        if accesses or name in _NOTED or location != self.noted:
            self.noted = location
            if accesses:
                self._note_addresses(instruction)
            self._note(Site(self.function.name, instruction, location))
        super()._instruction(instruction)

    def _end(self, block):
        self._note(Site(self.function.name, None, block.location or self.noted))
        super()._end(block)

    def _note(self, site):
        self.module.sites.append(site)
        for field, value in (("at", len(self.module.sites)), ("mask", self.mask)):
            base = self.new(f"getelementptr i8, ptr %ctx, i64 {layout.OFFSET[field]}")
            place = self.new(f"getelementptr i32, ptr %{base[1:]}, i32 %warp")
            self.line(f"store volatile i32 {value}, ptr {place}")
        self.line('call void asm sideeffect "", "~{memory}"()')  # LLVM must not move accesses across it

    def _note_addresses(self, instruction):
        address = next(operand for operand in instruction.operands if isinstance(operand, Address))
        bits = self.function.registers.get(address.base, 64)
        vector = resize(self, ALL, self.vector(self.operand(address.base), bits), bits, 64)
        if address.offset:
            vector = self.new(f"add {ALL.int(64)} {vector}, splat (i64 {address.offset})")
        place = self.new(f"getelementptr i8, ptr %ctx, i64 {layout.OFFSET['addresses']}")
        self.line(f"store volatile {ALL.int(64)} {vector}, ptr {place}, align 4")


class _TracedModule(ModuleTranslator):
    translator = _Tracer

    def __init__(self, source, kernel, block):
        super().__init__(source, kernel, block)
        self.sites = []


class Traced:
    """A kernel compiled with tracing code."""

    def __init__(self, kernel, block):
        self.origin = lines.Origin(kernel.source)
        module = self.origin.module
        name = kernel.name
        if module is not kernel.source:
            name = next(function.name for function in module.functions.values() if function.kernel)
        self.translator = _TracedModule(module, name, block)
        code = machine.Code(machine.compile_object(self.translator.translate()))
        self.compiled = machine.Compiled(code, block, self.translator.lane_stack, self.translator.spins)

    @staticmethod
    def clear(record):
        """Clear earlier notes in a record."""
        ctypes.memset(record + layout.OFFSET["at"], 0, 4 * layout.MAX_WARPS)

    def look(self, record, arena):
        """Return the last noted `Step` of each warp of a block; `record`: the address of its record."""
        numbers, masks = (
            (ctypes.c_uint32 * layout.MAX_WARPS).from_address(record + layout.OFFSET[name])
            for name in ("at", "mask")
        )
        addresses = (ctypes.c_uint64 * WARP).from_address(record + layout.OFFSET["addresses"])
        shared, room = (
            ctypes.c_uint64.from_address(record + layout.OFFSET[name]).value
            for name in ("shared", "shared.room")
        )
        sites = [None, *self.translator.sites]
        return [
            Step(self, warp, sites[number], mask, tuple(addresses), (arena.base, shared, room))
            for warp, (number, mask) in enumerate(zip(numbers, masks, strict=True))
            if number
        ]


class Step(NamedTuple):
    """What a warp was about to do: an instruction, the mask of its lanes, their addresses."""

    traced: Traced
    warp: int
    site: Site
    mask: int
    addresses: tuple
    bases: tuple

    @property
    def lanes(self):
        """The lanes that are on."""
        return [lane for lane in range(WARP) if self.mask >> lane & 1]

    @property
    def line(self):
        """A description of the source line, "" if unknown."""
        return lines.describe(self.traced.origin.module, self.site.location)

    def parameters(self):
        """Return the indices of the kernel parameters that the address is computed from."""
        function = self.traced.origin.module.functions[self.site.function]
        addresses = [a.base for a in self.site.instruction.operands if isinstance(a, Address)]
        written = written_by(item for item in function.body if isinstance(item, Instruction))
        return parameters_behind(function, written, addresses)

    def real(self, lane):
        """Return a lane's address as an address of this process."""
        arena, shared, _ = self.bases
        if space_of(self.site.instruction) == "shared":
            return shared + (self.addresses[lane] & (layout.SHARED_SPAN - 1))
        return arena + (self.addresses[lane] & (layout.ARENA_SPAN - 1))

    def misaligned_lane(self):
        """Return the first lane with a misaligned address, or None."""
        return next((lane for lane in self.lanes if self.addresses[lane] % self.site.size), None)

    def lane_at(self, address, arena):
        """Return the first lane with an invalid access, else the first that accesses the address, or None."""
        size, lanes = self.site.size, self.lanes
        wrong = [lane for lane in lanes if not self._usable(self.real(lane), arena)]
        return next(iter(wrong or [lane for lane in lanes if 0 <= address - self.real(lane) < size]), None)

    def _usable(self, address, arena):
        _, shared, room = self.bases
        if 0 <= address - shared < layout.SHARED_SPAN:
            return address - shared + self.site.size <= room
        return arena.usable(address)
