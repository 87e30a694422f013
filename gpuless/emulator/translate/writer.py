"""Write the IR of a function: registers, operands, masks, results.

A register is a scalar if `Analysis` has found that its lanes are the same or known distances apart, otherwise
a vector of 32.
"""

import contextlib

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.alignment import Multiples
from gpuless.emulator.analysis.lanes import UNIFORM, VARYING, WARP
from gpuless.emulator.analysis.uniformity import Analysis
from gpuless.emulator.analysis.variables import lay_out
from gpuless.emulator.analysis.waits import exits
from gpuless.emulator.ptx import BITS, PtxError, number
from gpuless.emulator.ptx.instructions import destinations
from gpuless.emulator.translate.sums import Sum, read_sum, store_sum, sum_of
from gpuless.emulator.translate.values import ALL, INSTRUCTIONS, ONE, Shape, Value


class Writer:
    """Writes one function, under a name in the IR; `Translator` goes through its blocks."""

    def __init__(self, module, function, name):
        self.module, self.function, self.name = module, function, name
        self.frame = self._lay_out_frame()
        self._look_through()
        self.analysis = Analysis(function, module.block, self._space_of, self._local_kind, module.anew)
        variables = [*module.source.variables.values(), *function.variables.values()]
        known = {variable.name: min(variable.align, 16) for variable in variables} | module.alignments
        self.multiples = Multiples(self.analysis, known)
        self.lines, self.slots, self.fixed, self.count = [], {}, [], 0
        self.values, self.instruction, self.given = {}, None, {}
        self.at, self.lines_ahead, self._names_ahead, self._loaded = 0, [], 0, {}
        self.mask, self.mask_vectors = None, {}
        self.misaligned = False  # whether any access has a check of its alignment

    def _look_through(self):
        """Refuse unknown instructions before the translation begins."""
        known = {*INSTRUCTIONS, "bra", "brx", "ret", "exit"}
        for item in self.function.body:
            if not isinstance(item, str) and item.opcode[0] not in known:
                self.instruction = item
                self.refuse()
        for item in [] if self.function.kernel else exits(self.function, self.module.source.functions):
            self.instruction = item
            self.refuse("the emulator can end threads in a kernel only, not in a function")

    # --- Variables -------------------------------------------------------------------------------------

    def _lay_out_frame(self):
        """Set the offset of each local variable in a lane's frame; return the frame's size."""
        self.places, size = lay_out(self.function.variables.values(), ("local",))
        return -(-size // 16) * 16

    def _space_of(self, name):
        variable = self.function.variables.get(name) or self.module.source.variables.get(name)
        return variable.space if variable else None

    def _local_kind(self, name):
        return lanes.Lanes(tuple(self.frame * lane for lane in range(WARP)) if self.frame else lanes.ZERO, 3)

    # --- Lines -----------------------------------------------------------------------------------------

    def line(self, text):
        """Write a line of IR."""
        self.lines.append("  " + text)

    def new(self, text):
        """Write an instruction with a result; return the result's name."""
        if self.lines is self.lines_ahead:  # LLVM wants numbered names in order
            return self._new_ahead(text)
        self.count += 1
        self.lines.append(f"  %{self.count} = {text}")
        return f"%{self.count}"

    def _new_ahead(self, text):
        self._names_ahead += 1
        name = f"%early{self._names_ahead}"
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, name):
        """Begin a basic block of the IR."""
        self.lines.append(f"{name}:")

    def fresh(self, name):
        """Return an unused label."""
        self.count += 1
        return f"{name}.{self.count}"

    # --- Registers -------------------------------------------------------------------------------------

    def _type(self, name, vector):
        bits, near = self.function.registers.get(name, 1), self.analysis.assumed.get(name)
        return Shape(WARP if vector else near.rows if near else 1).int(bits)

    def slot(self, name, vector):
        """Return the stack slot of a register, as a vector or as one number."""
        key = f"%{name.replace('%', 'r.')}.{'v' if vector else 's'}"
        if key not in self.slots:
            self.slots[key] = self._type(name, vector)
            if vector and name in self.analysis.restless:
                self.fixed.append(key)
        return key

    def read(self, name):
        """Return the `Value` of a register."""
        found = self.values.get(name)
        if found is None:
            kind, assumed = self.analysis.kinds.get(name, UNIFORM), self.analysis.assumed.get(name)
            scalar = vector = None
            if kind is not VARYING and kind.constant:
                scalar = self._literal(kind.offsets[0], self.function.registers.get(name, 1))
            elif self._is_sum(name):
                self.values[name] = Value(kind, None, sum=read_sum(self, name))
                return self.values[name]
            elif kind is not VARYING or assumed is not None:
                scalar = self.load(self._type(name, False), self.slot(name, False))
            if kind is VARYING:
                vector = self.load(self._type(name, True), self.slot(name, True))
                check = wrapped = None
                if name in self.analysis.doubted:
                    check = self.new(f"load i1, ptr {self.note_slot(name, 'i1')}")
                if name in self.analysis.wrapping:
                    wrapped = self.new(f"load i32, ptr {self.note_slot(name, 'i32')}")
                found = Value(kind, scalar, vector, assumed, check, wrapped)
            else:
                found = Value(kind, scalar)
            self.values[name] = found
        return found

    def write(self, name, value):
        """Set a register, in the form that the analysis has chosen for it.

        Lanes that are off keep their old value if it is read later.
        """
        if name == "_":
            return
        kind, assumed = self.analysis.kinds[name], self.analysis.assumed.get(name)
        bits = self.function.registers.get(name, 1)
        if kind is not VARYING:
            if not kind.constant:
                self.values[name] = Value(kind, value.scalar)
                self._store(name, False, value.scalar)
            return
        if self._is_sum(name) or (value.sum is not None and self._keeps_sum(name)):
            self._write_sum(name, value)
            return
        vector = self.vector(value, bits)
        if name in self.analysis.blended and self.masked:
            type_ = f"<{WARP} x i{bits}>"
            old = self.vector(self.read(name), bits)
            vector = self.new(f"select <{WARP} x i1> {self.mask_vector()}, {type_} {vector}, {type_} {old}")
        scalar = self.firsts(value, bits, assumed.rows) if assumed is not None else None
        self.values[name] = Value(VARYING, scalar, vector, assumed, value.check, value.wrapped)
        self._store(name, True, vector)
        if scalar is not None:
            self._store(name, False, scalar)
        self._keep_notes(name, value)

    def _keep_notes(self, name, value):
        if name in self.analysis.doubted & self.analysis.crossing:
            self.line(f"store i1 {value.check or 'true'}, ptr {self.note_slot(name, 'i1')}")
        if name in self.analysis.wrapping & self.analysis.crossing:
            self.line(f"store i32 {value.wrapped or 0}, ptr {self.note_slot(name, 'i32')}")

    # --- Sums ------------------------------------------------------------------------------------------

    def _is_sum(self, name):
        """Return whether a register is live across blocks and kept as a sum."""
        return name in self.analysis.sums.names and name in self.analysis.crossing

    def _write_sum(self, name, value):
        found = value.sum or Sum("0", self.vector(value, 64))
        self.values[name] = Value(VARYING, None, sum=found)
        if self._is_sum(name):
            store_sum(self, name, found)
        elif name in self.analysis.crossing:
            self._store(name, True, found.whole(self))

    def _keeps_sum(self, name):
        blended = name in self.analysis.blended and self.masked
        return not blended and not self.analysis.assumed.get(name)

    def early(self, name):
        """Return the name of the same value in the part ahead of a block, None if it is only known later."""
        if name[0] != "%" or name.startswith(("%given.", "%early")):
            return name
        if name not in self._loaded:
            return None
        if isinstance(self._loaded[name], tuple):
            with self.ahead():
                self._loaded[name] = self.new("load {}, ptr {}".format(*self._loaded[name]))
        return self._loaded[name]

    @contextlib.contextmanager
    def ahead(self):
        """Write code that runs even if no lane waits for the block, so LLVM can move it out of a loop."""
        outside, self.lines = self.lines, self.lines_ahead
        yield
        self.lines = outside

    def begin_block(self, at):
        """Begin a basic block: nothing has been read in it."""
        self.at, self.values, self.mask_vectors = at, {}, {}
        self.lines_ahead, self._loaded = [], {}

    def note_slot(self, name, type_):
        """Return the stack slot for a note about a register, of an LLVM type."""
        key = f"%{name.replace('%', 'r.')}.{type_}"
        self.slots[key] = type_
        return key

    def _store(self, name, vector, value):
        if name in self.analysis.crossing:
            self.line(f"store {self._type(name, vector)} {value}, ptr {self.slot(name, vector)}")

    def load(self, type_, slot):
        """Load the value that a register had when the block began."""
        found = self.new(f"load {type_}, ptr {slot}")
        self._loaded[found] = type_, slot
        return found

    @staticmethod
    def _literal(value, bits):
        return str(value if bits > 1 else bool(value)).lower()

    # --- Operands --------------------------------------------------------------------------------------

    def operand(self, text, type_="u64"):
        """Return the `Value` of an operand: a register, an immediate, a special register or a variable."""
        if text in self.function.registers or text == "%cc":
            return self.read(text)
        if text.startswith("!"):
            value = self.read(text[1:])
            if value.kind is VARYING:
                return Value(VARYING, None, self.new(f"xor <{WARP} x i1> {value.vector}, splat (i1 true)"))
            return Value(UNIFORM, self.new(f"xor i1 {value.scalar}, true"))
        if text[0].isdigit() or text[0] == "-":
            value = number(text, type_)
            return Value(lanes.constant(value), self._literal(value, BITS[type_]))
        return self._named(text)

    def _named(self, text):
        """Return a special register, or the address of a variable."""
        kind = self.analysis.special.get(text, UNIFORM)
        if kind is not VARYING and kind.constant:
            return Value(kind, str(kind.offsets[0]))
        if text.startswith("%"):
            return self.module.special(self, text, kind)
        return self.module.variable(self, text)

    def vector(self, value, bits):
        """Return a value as a vector."""
        if value.kind is VARYING:
            return value.vector if value.sum is None else value.sum.whole(self)
        if value.kind.constant:
            if value.kind.uniform:
                return f"splat (i{bits} {self._literal(value.kind.offsets[0] & ((1 << bits) - 1), bits)})"
            mask = (1 << bits) - 1
            items = (f"i{bits} {self._literal(offset & mask, bits)}" for offset in value.kind.offsets)
            return f"<{', '.join(items)}>"
        vector = self.splat(value.scalar, f"i{bits}")
        if value.kind.uniform:
            return vector
        distances = ", ".join(f"i{bits} {offset % (1 << bits)}" for offset in value.kind.offsets)
        return self.new(f"add <{WARP} x i{bits}> {vector}, <{distances}>")

    def firsts(self, value, bits, rows):
        """Return the number of lane 0, or of the first lane of each row, of a value with known distances."""
        near = value.kind if value.kind is not VARYING else value.assumed
        if near.rows == rows:
            return value.scalar
        starts = ", ".join(f"i{bits} {offset % (1 << bits)}" for offset in near.offsets[:: WARP // rows])
        if near.constant:
            return f"<{starts}>"
        if near.unit:
            unit = self.splat(self.parameter(near.unit), f"i{bits}", rows)
            starts = self.new(f"mul <{rows} x i{bits}> {unit}, <{starts}>")
            return self.new(f"add <{rows} x i{bits}> {self.splat(value.scalar, f'i{bits}', rows)}, {starts}")
        return self.new(f"add <{rows} x i{bits}> {self.splat(value.scalar, f'i{bits}', rows)}, <{starts}>")

    def parameter(self, address):
        """Return the value of a 64-bit parameter of the kernel."""
        return self.module.parameter(self, address, 64, 1)[0].scalar

    def splat(self, scalar, type_, count=WARP):
        """Return a vector with the same number in all lanes."""
        if scalar[0] not in "%@":
            return f"splat ({type_} {scalar})"
        one = self.new(f"insertelement <{count} x {type_}> poison, {type_} {scalar}, i64 0")
        return self.shuffle(one, None, type_, count, [0] * count)

    def shuffle(self, first, second, type_, count, picks):
        """Return a vector of elements picked from one vector of `count`, or from two concatenated ones."""
        vector = f"<{count} x {type_}>"
        places = ", ".join(f"i32 {pick}" for pick in picks)
        return self.new(
            f"shufflevector {vector} {first}, {vector} {second or 'poison'}, <{len(picks)} x i32> <{places}>"
        )

    # --- The mask --------------------------------------------------------------------------------------

    @property
    def masked(self):
        """Whether some lanes of the warp may be off here."""
        return self.mask != "-1"

    def mask_vector(self, mask=None):
        """Return a mask as a vector; by default the lanes that are on."""
        mask = self.mask if mask is None else mask
        if mask == "-1":
            return "splat (i1 true)"
        if mask not in self.mask_vectors:
            if mask[0] != "%":
                bits = ", ".join(f"i1 {str(bool(int(mask) >> lane & 1)).lower()}" for lane in range(WARP))
                return f"<{bits}>"
            self.mask_vectors[mask] = self.new(f"bitcast i32 {mask} to <{WARP} x i1>")
        return self.mask_vectors[mask]

    def mask_of(self, vector):
        """Return a vector of conditions as a 32-bit mask; bits of lanes that are off are arbitrary."""
        frozen = self.new(f"freeze <{WARP} x i1> {vector}")
        return self.new(f"bitcast <{WARP} x i1> {frozen} to i32")

    # --- Results ---------------------------------------------------------------------------------------

    def set(self, make, *operands, check=None, wrapped=None):
        """Compute the instruction's result, once for all lanes or for each, and write it.

        `make`: takes a `Shape` and the operands' names, writes the IR, returns the result's name; `operands`:
        with their widths; `check`: the condition under which the assumption about the result is true;
        `wrapped`: a mask of the lanes that have wrapped around.
        """
        for name in destinations(self.instruction)[:1]:
            kind, assumed = next(iter(self.analysis.results(self.instruction)))
            bits = self.function.registers.get(name, 1)
            if kind is VARYING and not assumed and bits == 64:
                found = sum_of(self, self.instruction, [value for value, _ in operands])
                if found is not None:
                    self.write(name, Value(VARYING, None, sum=found))
                    continue
            self.write(name, self.compute(make, operands, bits, kind, assumed, check, wrapped))

    def compute(self, make, operands, bits, kind, assumed=None, check=None, wrapped=None):
        """Return a result, given its kind and assumption."""
        if kind is not VARYING:
            if kind.constant:
                return Value(kind, self._literal(kind.offsets[0], bits))
            return Value(kind, make(ONE, *(value.scalar for value, _ in operands)))
        vector = make(ALL, *(self.vector(value, bits) for value, bits in operands))
        scalar = None
        if assumed is not None:
            ahead = tuple(_ahead(value, bits) for value, bits in operands)
            firsts = (self.firsts(value, width, assumed.rows) for value, width in operands)
            scalar = make(Shape(assumed.rows, ahead), *firsts)
            check = self.all_of(check, *(value.check for value, _ in operands))
            wrapped = self.any_of(wrapped, *(value.wrapped for value, _ in operands))
        return Value(VARYING, scalar, vector, assumed, check, wrapped)

    def all_of(self, *checks):
        """Return the conjunction of the conditions that are not None, None if there are none."""
        return self._joined("and i1", checks)

    def any_of(self, *lanes_):
        """Return the union of the masks that are not None, None if there are none."""
        return self._joined("or i32", lanes_)

    def _joined(self, word, names):
        found = None
        for name in names:
            if name is not None:
                found = name if found in (None, name) else self.new(f"{word} {found}, {name}")
        return found

    def refuse(self, why="the emulator does not know this instruction"):
        """Raise an error that names the instruction and its line."""
        where = self.instruction.location
        file = self.module.source.files.get(where.file, "?") if where else None
        place = f" ({file}, line {where.line})" if where else ""
        raise PtxError(f"{self.instruction.text}: {why}{place}")


def _ahead(value, bits):
    near = value.assumed if value.kind is VARYING else value.kind
    return max(lanes.nearest(lanes.relative(near)[0], bits)) if near is not VARYING else 0
