"""Translate a PTX function into LLVM IR that runs a warp.

A register is a scalar where `Analysis` has found that all lanes hold the same, or a known distance apart,
else a vector of 32. Blocks where lanes are apart run under a mask, the lanes that are there; `flow` tells the
order of the blocks. What each instruction becomes stands in `integers`, `bitfields`, `floats`,
`small_floats`, `comparisons`, `conversions`, `access`, `asynchronous`, `warps` and `matrices`.
"""

from typing import NamedTuple

from gpuless.emulator import lanes
from gpuless.emulator.alignment import Multiples
from gpuless.emulator.analysis import Analysis
from gpuless.emulator.flow import exits
from gpuless.emulator.instructions import destinations
from gpuless.emulator.lanes import UNIFORM, VARYING, WARP
from gpuless.emulator.ptx import BITS, PtxError, number

_ROUNDS = 64  # of a loop that waits, before the next warp runs
FLOATS = {16: "half", 32: "float", 64: "double"}
INSTRUCTIONS = {}


def translates(*names):
    """Register a function that translates the instructions of these names."""

    def register(function):
        INSTRUCTIONS.update(dict.fromkeys(names, function))
        return function

    return register


class Value(NamedTuple):
    """What an operand is in the IR: lane 0's number if a kind says what follows from it, else a vector.

    Of a vector that makes up an address, lane 0's number may stand beside it, or those of the first lanes of
    a warp's rows, with the kind that is assumed, and the condition under which that is true, if it is one.
    """

    kind: object
    scalar: str | None
    vector: str | None = None
    assumed: object = None
    check: str | None = None


class Shape(NamedTuple):
    """Whether an instruction computes one number or those of all lanes, which tells how types are written.

    Where one number stands for lanes that are assumed to be near each other, `ahead` tells of each operand
    how far the foremost lane is before lane 0.
    """

    lanes: int
    ahead: tuple = ()

    def int(self, bits):
        """Return the type of integers."""
        return f"i{bits}" if self.lanes == 1 else f"<{self.lanes} x i{bits}>"

    def float(self, bits):
        """Return the type of floating point numbers."""
        name = FLOATS[bits]
        return name if self.lanes == 1 else f"<{self.lanes} x {name}>"

    def literal(self, value, type_):
        """Return a constant of a scalar type, in all lanes."""
        return f"{value}" if self.lanes == 1 else f"splat ({type_} {value})"

    def suffix(self, type_):
        """Return how an intrinsic function names its type."""
        short = {"half": "f16", "float": "f32", "double": "f64"}.get(type_, type_)
        return short if self.lanes == 1 else f"v{self.lanes}{short}"


ONE, ALL = Shape(1), Shape(WARP)


class Translator:
    """Translate one function.

    Parameters
    ----------
    module : ModuleTranslator
    function : Function
    name : str
        Its name in the IR.
    """

    def __init__(self, module, function, name):
        self.module, self.function, self.name = module, function, name
        self.frame = self._lay_out_frame()
        self._look_through()
        self.analysis = Analysis(function, module.block, self._space_of, self._local_kind, module.anew)
        known = {variable.name: min(variable.align, 16) for variable in self._variables()} | module.alignments
        self.multiples = Multiples(self.analysis, known)
        self.lines, self.slots, self.fixed, self.count = [], {}, [], 0
        self.values, self.instruction = {}, None
        self.mask, self.mask_vectors = None, {}
        self.misaligned = False  # whether an access may be to an address that is not aligned

    def _look_through(self):
        """Refuse an instruction that nobody translates before anything is made of it."""
        known = {*INSTRUCTIONS, "bra", "brx", "ret", "exit"}
        for item in self.function.body:
            if not isinstance(item, str) and item.opcode[0] not in known:
                self.instruction = item
                self.refuse()
        for item in [] if self.function.kernel else exits(self.function, self.module.source.functions):
            self.instruction = item
            self.refuse("the emulator can end threads in a kernel only, not in a function")

    # --- Where variables live --------------------------------------------------------------------------

    def _lay_out_frame(self):
        """Give each local variable its place in a lane's frame; return the frame's size."""
        at, self.places = 0, {}
        for variable in self.function.variables.values():
            if variable.space == "local":
                at = -(-at // variable.align) * variable.align
                self.places[variable.name] = at
                at += variable.size
        return -(-at // 16) * 16

    def _variables(self):
        return [*self.module.source.variables.values(), *self.function.variables.values()]

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
        """Write an instruction that gives a value; return its name."""
        self.count += 1
        self.lines.append(f"  %{self.count} = {text}")
        return f"%{self.count}"

    def label(self, name):
        """Begin a block of IR."""
        self.lines.append(f"{name}:")

    def fresh(self, name):
        """Return a label that is not in use."""
        self.count += 1
        return f"{name}.{self.count}"

    # --- Registers -------------------------------------------------------------------------------------

    def _type(self, name, vector):
        bits, near = self.function.registers.get(name, 1), self.analysis.assumed.get(name)
        return Shape(WARP if vector else near.rows if near else 1).int(bits)

    def _slot(self, name, vector):
        key = f"%{name.replace('%', 'r.')}.{'v' if vector else 's'}"
        if key not in self.slots:
            self.slots[key] = self._type(name, vector)
            if vector and name in self.analysis.restless:
                self.fixed.append(key)
        return key

    def read(self, name):
        """Return what a register holds."""
        found = self.values.get(name)
        if found is None:
            kind, assumed = self.analysis.kinds.get(name, UNIFORM), self.analysis.assumed.get(name)
            scalar = vector = None
            if kind is not VARYING and kind.constant:
                scalar = self._literal(kind.offsets[0], self.function.registers.get(name, 1))
            elif kind is not VARYING or assumed is not None:
                scalar = self.new(f"load {self._type(name, False)}, ptr {self._slot(name, False)}")
            if kind is VARYING:
                vector = self.new(f"load {self._type(name, True)}, ptr {self._slot(name, True)}")
                check = None
                if name in self.analysis.doubted:
                    check = self.new(f"load i1, ptr {self._check_slot(name)}")
                found = Value(kind, scalar, vector, assumed, check)
            else:
                found = Value(kind, scalar)
            self.values[name] = found
        return found

    def write(self, name, value):
        """Set a register, in the form that the analysis has chosen for it.

        Lanes that are off keep what they have, where anybody will ask.
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
        vector = self.vector(value, bits)
        if name in self.analysis.blended and self.masked:
            type_ = f"<{WARP} x i{bits}>"
            old = self.read(name).vector
            vector = self.new(f"select <{WARP} x i1> {self.mask_vector()}, {type_} {vector}, {type_} {old}")
        scalar = self.firsts(value, bits, assumed.rows) if assumed is not None else None
        self.values[name] = Value(VARYING, scalar, vector, assumed, value.check)
        self._store(name, True, vector)
        if scalar is not None:
            self._store(name, False, scalar)
        if name in self.analysis.doubted & self.analysis.crossing:
            self.line(f"store i1 {value.check or 'true'}, ptr {self._check_slot(name)}")

    def _check_slot(self, name):
        key = f"%{name.replace('%', 'r.')}.c"
        self.slots[key] = "i1"
        return key

    def _store(self, name, vector, value):
        if name in self.analysis.crossing:
            self.line(f"store {self._type(name, vector)} {value}, ptr {self._slot(name, vector)}")

    @staticmethod
    def _literal(value, bits):
        return str(value if bits > 1 else bool(value)).lower()

    # --- Operands --------------------------------------------------------------------------------------

    def operand(self, text, type_="u64"):
        """Return an operand's `Value`: a register's, an immediate's, a special register's."""
        if text in self.function.registers:
            return self.read(text)
        if text == "%cc":
            return self.read(text)
        if text.startswith("!"):
            value = self.read(text[1:])
            if value.kind is VARYING:
                return Value(VARYING, None, self.new(f"xor <{WARP} x i1> {value.vector}, splat (i1 true)"))
            return Value(UNIFORM, self.new(f"xor i1 {value.scalar}, true"))
        bits = BITS.get(type_, 64)
        if text[0].isdigit() or text[0] == "-":
            value = number(text, type_)
            return Value(lanes.constant(value), self._literal(value, bits))
        return self._named(text, bits)

    def _named(self, text, bits):
        """Return a special register, or the address of a variable."""
        kind = self.analysis.special.get(text, UNIFORM)
        if kind is not VARYING and kind.constant:
            return Value(kind, str(kind.offsets[0]))
        if text.startswith("%"):
            return self.module.special(self, text, kind, bits)
        return self.module.variable(self, text, bits)

    def vector(self, value, bits):
        """Return all lanes of a value."""
        if value.kind is VARYING:
            return value.vector
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
        """Return lane 0's number of a value near which all lanes are, or those of the first of each row."""
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
        """Return what a parameter of 64 bits of the kernel holds."""
        return self.module.parameter(self, address, 64, 1)[0].scalar

    def splat(self, scalar, type_, count=WARP):
        """Return a vector of the same number in all lanes."""
        if scalar[0] not in "%@":
            return f"splat ({type_} {scalar})"
        one = self.new(f"insertelement <{count} x {type_}> poison, {type_} {scalar}, i64 0")
        return self.shuffle(one, None, type_, count, [0] * count)

    def shuffle(self, first, second, type_, count, picks):
        """Return a vector of numbers picked from one vector of `count`, or from two, one behind the other."""
        vector = f"<{count} x {type_}>"
        places = ", ".join(f"i32 {pick}" for pick in picks)
        return self.new(
            f"shufflevector {vector} {first}, {vector} {second or 'poison'}, <{len(picks)} x i32> <{places}>"
        )

    # --- The mask --------------------------------------------------------------------------------------

    @property
    def masked(self):
        """Whether some of the warp's lanes may be off here."""
        return self.mask != "-1"

    def mask_vector(self, mask=None):
        """Return the lanes that are on as a vector."""
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
        """Return a vector of conditions as 32 bits; those of lanes that are off are anything."""
        frozen = self.new(f"freeze <{WARP} x i1> {vector}")
        return self.new(f"bitcast <{WARP} x i1> {frozen} to i32")

    # --- The function ----------------------------------------------------------------------------------

    def translate(self):
        """Return the function's IR."""
        self.full = self.module.begin(self)
        flow = self.analysis.flow
        self._chains()
        for block in flow.blocks:
            self._block(block)
        self.label("finish")
        self.module.end(self)
        if self.misaligned:
            self.label("misaligned")
            self.module.misaligned(self)
        return self.module.signature(self), self.lines

    def _chains(self):
        """Find for each masked block what comes after it in its region, as a label."""
        flow, masked = self.analysis.flow, self.analysis.masked
        self.after, self.loops_ending = {}, {}
        # A region is left for the first block that all its lanes reach, and in which none waits for another.
        leave = {}
        for at in masked:
            leave[at] = flow.meeting(at)
            while leave[at] in masked:
                leave[at] = flow.meeting(leave[at])
        for at in sorted(masked):
            later = next(
                (b for b in range(at + 1, len(flow.blocks)) if leave.get(b) == leave[at] and b in masked),
                None,
            )
            out = "finish" if leave[at] == flow.exit else f"block{leave[at]}"
            self.after[at] = out if later is None else f"check{later}"
        # Where a loop ends, lanes that go on with it do so before any go on behind it.
        for first, last in flow.loop_ends.items():
            if first in masked:
                inside = [at for at in range(first, last + 1) if at in masked and leave[at] == leave[first]]
                if first in self.analysis.spinning:  # but those that may wait for them do so last
                    inside = [at for at in masked if leave[at] == leave[first]]
                self.loops_ending.setdefault(max(inside), []).append(first)

    def _mask_slot(self, at):
        self.slots[f"%mask{at}"] = "i32"
        return f"%mask{at}"

    def _block(self, block):
        at = block.index
        self.values, self.mask_vectors = {}, {}
        if at in self.analysis.masked:
            self._check(at)
        else:
            self.label(f"block{at}")
            self.mask = self.full
        for instruction in block.body:
            self.instruction = instruction
            self._instruction(instruction)
        self._end(block)

    def _check(self, at):
        """Skip a block that no lane waits for, else run it with those that do."""
        slot = self._mask_slot(at)
        self.label(f"check{at}")
        waiting = self.new(f"load i32, ptr {slot}")
        none = self.new(f"icmp eq i32 {waiting}, 0")
        self.line(f"br i1 {none}, label %skip{at}, label %block{at}")
        self.label(f"skip{at}")
        self._go_on(at)
        self.label(f"block{at}")
        self.mask = self.new(f"load i32, ptr {slot}")
        self.line(f"store i32 0, ptr {slot}")

    def _go_on(self, at):
        """Go from a masked block, run or skipped, to what comes next in its region."""
        for first in sorted(self.loops_ending.get(at, ()), reverse=True):
            waiting = self.new(f"load i32, ptr {self._mask_slot(first)}")
            some = self.new(f"icmp ne i32 {waiting}, 0")
            again, out = self.fresh("again"), self.fresh("out")
            self.line(f"br i1 {some}, label %{again}, label %{out}")
            self.label(again)
            self._back_to(first)
            self.label(out)
        self.line(f"br label %{self.after[at]}")

    def _wait(self, target, mask):
        """Let lanes wait for a block."""
        if target in self.analysis.masked:
            slot = self._mask_slot(target)
            before = self.new(f"load i32, ptr {slot}")
            both = self.new(f"or i32 {before}, {mask}")
            self.line(f"store i32 {both}, ptr {slot}")

    def _end(self, block):
        at, end = block.index, block.end
        masked = at in self.analysis.masked
        if len(set(end.targets)) < 2:
            self._jump(at, end.targets)
            return
        condition = self.operand(
            end.condition, "pred" if len(end.targets) == 2 and not self._is_switch(end) else "u32"
        )
        if self._is_switch(end):
            self._switch(at, end, condition)
            return
        if lanes.uniform(condition.kind):
            self._uniform_branch(at, end, condition, masked)
            return
        there = self._taken(self.vector(condition, 1))
        rest = self.new(f"xor i32 {self.mask}, {there}")
        if end.negated:
            there, rest = rest, there
        self._wait(end.targets[0], there)
        self._wait(end.targets[1], rest)
        self._leave(at, end.targets)

    def _taken(self, vector):
        """Return the lanes that are on and for which a condition is true, as 32 bits."""
        if self.masked:
            # To freeze what the others hold would cost LLVM more time than all else.
            on, type_ = self.mask_vector(), f"<{WARP} x i1>"
            vector = self.new(f"select {type_} {on}, {type_} {vector}, {type_} zeroinitializer")
        return self.new(f"bitcast <{WARP} x i1> {vector} to i32")

    def _is_switch(self, end):
        return self.function.registers.get(end.condition, 1) > 1

    def _jump(self, at, targets):
        masked = at in self.analysis.masked
        if masked:
            for target in targets[:1]:
                self._wait(target, self.mask)
            self._go_on(at)
        elif not targets:
            self.line("br label %finish")
        else:
            self._wait(targets[0], self.mask)
            if targets[0] <= at:
                self._back_to(targets[0])
            else:
                self.line(f"br label %block{targets[0]}")

    def _back_to(self, first):
        """Go back to the first block of a loop; now and then let other warps run that it may wait for."""
        if first in self.analysis.spinning:
            self.module.uses_barriers = self.module.spins = True
            self.slots["%rounds"] = "i32"
            rounds = self.new(f"add i32 {self.new('load i32, ptr %rounds')}, 1")
            self.line(f"store i32 {rounds}, ptr %rounds")
            few = self.new(f"icmp ne i32 {self.new(f'and i32 {rounds}, {_ROUNDS - 1}')}, 0")
            wait = self.fresh("wait")
            self.line(f"br i1 {few}, label %block{first}, label %{wait}")
            self.label(wait)
            self.line("call void @yield(ptr %ctx, i32 %warp)")
        self.line(f"br label %block{first}")

    def _leave(self, at, targets):
        """Go on after lanes have parted: with the first block of the region that some may wait for."""
        if at in self.analysis.masked:
            self._go_on(at)
            return
        inside = sorted(target for target in targets if target in self.analysis.masked)
        self.line(f"br label %check{inside[0]}")

    def _uniform_branch(self, at, end, condition, masked):
        frozen = self.new(f"freeze i1 {condition.scalar}")
        yes, no = self.fresh("yes"), self.fresh("no")
        first, second = (no, yes) if end.negated else (yes, no)
        self.line(f"br i1 {frozen}, label %{first}, label %{second}")
        for label, target in ((yes, end.targets[0]), (no, end.targets[1])):
            self.label(label)
            self._jump(at, (target,))

    def _switch(self, at, end, condition):
        if lanes.uniform(condition.kind):
            chosen = self.new(f"freeze i32 {condition.scalar}")
            cases = [(i, target, self.fresh("case")) for i, target in enumerate(end.targets)]
            table = " ".join(f"i32 {i}, label %{label}" for i, _, label in cases)
            self.line(f"switch i32 {chosen}, label %{cases[-1][2]} [{table}]")
            for _, target, label in cases:
                self.label(label)
                self._jump(at, (target,))
            return
        chosen = self.vector(condition, 32)
        for i, target in enumerate(end.targets):
            here = self.mask_of(self.new(f"icmp eq <{WARP} x i32> {chosen}, splat (i32 {i})"))
            self._wait(target, self.new(f"and i32 {self.mask}, {here}"))
        self._leave(at, end.targets)

    def _instruction(self, instruction):
        try:
            INSTRUCTIONS[instruction.opcode[0]](self, instruction)
        except (AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
            if isinstance(error, PtxError):
                raise
            self.refuse(f"the emulator does not know this form of the instruction ({error!r})")

    def refuse(self, why="the emulator does not know this instruction"):
        """Raise an error that names the instruction and its line."""
        where = self.instruction.location
        file = self.module.source.files.get(where.file, "?") if where else None
        place = f" ({file}, line {where.line})" if where else ""
        raise PtxError(f"{self.instruction.text}: {why}{place}")

    # --- Results ---------------------------------------------------------------------------------------

    def set(self, make, *operands, check=None):
        """Compute the instruction's result, once for all lanes or for each, and write it.

        Parameters
        ----------
        make : callable
            Takes a `Shape` and the operands' names, writes the IR, returns the result's name.
        *operands : (Value, int)
            With their widths.
        check : str, optional
            The condition under which the result is what is assumed of it.
        """
        for name in destinations(self.instruction)[:1]:
            kind, assumed = next(iter(self.analysis.results(self.instruction)))
            bits = self.function.registers.get(name, 1)
            self.write(name, self.compute(make, operands, bits, kind, assumed, check))

    def compute(self, make, operands, bits, kind, assumed=None, check=None):
        """Return a result of a known kind."""
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
        return Value(VARYING, scalar, vector, assumed, check)

    def all_of(self, *checks):
        """Return the condition that all of some hold, None if there are none."""
        found = None
        for check in checks:
            if check is not None:
                found = check if found in (None, check) else self.new(f"and i1 {found}, {check}")
        return found


def _ahead(value, bits):
    near = value.assumed if value.kind is VARYING else value.kind
    return max(lanes.nearest(lanes.relative(near)[0], bits)) if near is not VARYING else 0
