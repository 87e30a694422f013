"""Translate a PTX function into LLVM IR that runs a warp.

A register is a scalar where `Analysis` has found that all lanes hold the same, or a known distance apart,
else a vector of 32. Blocks where lanes are apart run under a mask, the lanes that are there; `flow` tells the
order of the blocks. What each instruction becomes stands in `integers`, `bitfields`, `floats`,
`small_floats`, `comparisons`, `conversions`, `access`, `atomics`, `asynchronous`, `warps` and `matrices`.
"""

import itertools

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.alignment import Multiples
from gpuless.emulator.analysis.flow import exits
from gpuless.emulator.analysis.lanes import UNIFORM, VARYING, WARP
from gpuless.emulator.analysis.uniformity import Analysis
from gpuless.emulator.ptx import BITS, PtxError, number
from gpuless.emulator.ptx.instructions import destinations
from gpuless.emulator.translate.values import ALL, INSTRUCTIONS, ONE, Shape, Value

_ROUNDS = 64  # of a loop that waits, before the next warp runs
# Where lanes may wait for each other: those that are in the region, and how often all have waited for all.
_INSIDE, _STILL = "%mask.inside", "%mask.still"


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
                check = wrapped = None
                if name in self.analysis.doubted:
                    check = self.new(f"load i1, ptr {self._note_slot(name, 'i1')}")
                if name in self.analysis.wrapping:
                    wrapped = self.new(f"load i32, ptr {self._note_slot(name, 'i32')}")
                found = Value(kind, scalar, vector, assumed, check, wrapped)
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
        self.values[name] = Value(VARYING, scalar, vector, assumed, value.check, value.wrapped)
        self._store(name, True, vector)
        if scalar is not None:
            self._store(name, False, scalar)
        if name in self.analysis.doubted & self.analysis.crossing:
            self.line(f"store i1 {value.check or 'true'}, ptr {self._note_slot(name, 'i1')}")
        if name in self.analysis.wrapping & self.analysis.crossing:
            self.line(f"store i32 {value.wrapped or 0}, ptr {self._note_slot(name, 'i32')}")

    def _note_slot(self, name, type_):
        key = f"%{name.replace('%', 'r.')}.{type_}"
        self.slots[key] = type_
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

    def alone(self):
        """Return whether no lanes but those that are on are where some may wait for each other."""
        if not (self.masked and self.rounds):
            return "true"
        return self.new(f"icmp eq i32 {self.new(f'load i32, ptr {_INSIDE}')}, {self.mask}")

    # --- The function ----------------------------------------------------------------------------------

    def translate(self):
        """Return the function's IR."""
        self.full = self.module.begin(self)
        flow = self.analysis.flow
        self._chains()
        for block in flow.blocks:
            self._block(block)
        for at in flow.waiting - self.analysis.masked:
            self.label(f"again{at}")
            self._back_to(at)
        for label, (pauses, out) in self.rounds.items():
            self._round(label, pauses, out)
        self.label("finish")
        self.module.end(self)
        if self.misaligned:
            self.label("misaligned")
            self.module.misaligned(self)
        return self.module.signature(self), self.lines

    def _chains(self):
        """Find for each masked block what comes after it in its region, as a label."""
        flow, masked = self.analysis.flow, self.analysis.masked
        self.after, self.loops_ending, self.gates, self.rounds = {}, {}, set(), {}
        # A region is left for the first block that all its lanes reach, and in which none waits for another.
        leave = {}
        for at in masked:
            leave[at] = flow.meeting(at)
            while leave[at] in masked:
                leave[at] = flow.meeting(leave[at])
        regions = {}
        for at in sorted(masked):
            regions.setdefault(leave[at], []).append(at)
        for end, region in regions.items():
            out = f"{'again' if end in flow.waiting else 'block'}{end}" if end != flow.exit else "finish"
            pauses = [] if flow.waiting.isdisjoint(region) else [at for at in region if at in flow.pauses]
            if pauses:
                self.rounds[f"round{end}"] = pauses, out
                self.gates.update(at for at in pauses if flow.gathered(at) is not None)
                out = f"round{end}"
            self.after |= {at: f"check{later}" for at, later in itertools.pairwise(region)} | {
                region[-1]: out
            }
            # Where a loop ends, lanes that go on with it do so before any go on behind it: but not where they
            # may stay until others have come further.
            for first in (at for at in region if at in flow.loop_ends and at not in pauses):
                last = max(at for at in range(first, flow.loop_ends[first] + 1) if leave.get(at) == end)
                self.loops_ending.setdefault(last, []).append(first)

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
        if at in self.gates:
            self._gather(at)
        else:
            self.line(f"store i32 0, ptr {slot}")

    def _gather(self, at):
        """Go on with lanes for which all that they are to come together with are there, or come no more."""
        here, slot = self.mask, self._mask_slot(at)
        away = self.new(f"xor i32 {self.new(f'load i32, ptr {_INSIDE}')}, {here}")
        members = self.operand(self.analysis.flow.gathered(at), "b32")
        if lanes.uniform(members.kind):
            missing = self.new(f"and i32 {away}, {members.scalar}")
            ready = self.new(f"select i1 {self.new(f'icmp eq i32 {missing}, 0')}, i32 {here}, i32 0")
        else:
            missing = self.new(f"and {ALL.int(32)} {self.splat(away, 'i32')}, {self.vector(members, 32)}")
            complete = self.mask_of(self.new(f"icmp eq {ALL.int(32)} {missing}, zeroinitializer"))
            ready = self.new(f"and i32 {complete}, {here}")
        # Where all wait for each other, some are not where the program names them.
        still = self.new(f"icmp ugt i32 {self.new(f'load i32, ptr {_STILL}')}, 1")
        self.mask = self.new(f"select i1 {still}, i32 {here}, i32 {ready}")
        none, opened = self.new(f"icmp eq i32 {self.mask}, 0"), self.fresh("opened")
        self.line(f"br i1 {none}, label %skip{at}, label %{opened}")
        self.label(opened)
        self.line(f"store i32 {self.new(f'xor i32 {here}, {self.mask}')}, ptr {slot}")
        self.line(f"store i32 0, ptr {_STILL}")

    def _round(self, label, pauses, out):
        """Go through a region again, as long as there are lanes in it: those that have waited may go on."""
        self.slots |= {_INSIDE: "i32", _STILL: "i32"}
        self.label(label)
        left, again = self.new(f"load i32, ptr {_INSIDE}"), self.fresh("again")
        self.line(f"br i1 {self.new(f'icmp eq i32 {left}, 0')}, label %{out}, label %{again}")
        self.label(again)
        moving = "0"
        for at in (at for at in pauses if at not in self.gates):
            moving = self.new(f"or i32 {moving}, {self.new(f'load i32, ptr {self._mask_slot(at)}')}")
        rounds = self.new(f"add i32 {self.new(f'load i32, ptr {_STILL}')}, 1")
        none = self.new(f"icmp eq i32 {moving}, 0")
        self.line(f"store i32 {self.new(f'select i1 {none}, i32 {rounds}, i32 0')}, ptr {_STILL}")
        self._let_others_run(f"check{pauses[0]}")

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

    def _wait(self, at, target, mask):
        """Let lanes of a block wait for another one."""
        if target in self.analysis.masked:
            self._add_lanes(self._mask_slot(target), mask)
        if self.rounds and (at in self.analysis.masked) != (target in self.analysis.masked):
            self._add_lanes(_INSIDE, mask, "or" if target in self.analysis.masked else "xor")

    def _add_lanes(self, slot, mask, word="or"):
        self.slots[slot] = "i32"
        before = self.new(f"load i32, ptr {slot}")
        self.line(f"store i32 {self.new(f'{word} i32 {before}, {mask}')}, ptr {slot}")

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
        self._wait(at, end.targets[0], there)
        self._wait(at, end.targets[1], rest)
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
            self._wait(at, targets[0] if targets else None, self.mask)
            self._go_on(at)
        elif not targets:
            self.line("br label %finish")
        else:
            self._wait(at, targets[0], self.mask)
            if targets[0] <= at:
                self._back_to(targets[0])
            else:
                self.line(f"br label %block{targets[0]}")

    def _back_to(self, first):
        """Go back to the first block of a loop."""
        if first in self.analysis.flow.waiting:
            self._let_others_run(f"block{first}")
        else:
            self.line(f"br label %block{first}")

    def _let_others_run(self, label):
        """Go on at a label; now and then let other warps run first, which lanes may wait for."""
        self.module.uses_barriers = self.module.spins = True
        self.slots["%rounds"] = "i32"
        rounds = self.new(f"add i32 {self.new('load i32, ptr %rounds')}, 1")
        self.line(f"store i32 {rounds}, ptr %rounds")
        few = self.new(f"icmp ne i32 {self.new(f'and i32 {rounds}, {_ROUNDS - 1}')}, 0")
        wait = self.fresh("wait")
        self.line(f"br i1 {few}, label %{label}, label %{wait}")
        self.label(wait)
        self.line("call void @yield(ptr %ctx, i32 %warp)")
        self.line(f"br label %{label}")

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
            self._wait(at, target, self.new(f"and i32 {self.mask}, {here}"))
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

    def set(self, make, *operands, check=None, wrapped=None):
        """Compute the instruction's result, once for all lanes or for each, and write it.

        Parameters
        ----------
        make : callable
            Takes a `Shape` and the operands' names, writes the IR, returns the result's name.
        *operands : (Value, int)
            With their widths.
        check : str, optional
            The condition under which the result is what is assumed of it.
        wrapped : str, optional
            The lanes, as 32 bits, of which it is not.
        """
        for name in destinations(self.instruction)[:1]:
            kind, assumed = next(iter(self.analysis.results(self.instruction)))
            bits = self.function.registers.get(name, 1)
            self.write(name, self.compute(make, operands, bits, kind, assumed, check, wrapped))

    def compute(self, make, operands, bits, kind, assumed=None, check=None, wrapped=None):
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
            wrapped = self.any_of(wrapped, *(value.wrapped for value, _ in operands))
        return Value(VARYING, scalar, vector, assumed, check, wrapped)

    def all_of(self, *checks):
        """Return the condition that all of some hold, None if there are none."""
        return self._joined("and i1", checks)

    def any_of(self, *lanes_):
        """Return the lanes, as 32 bits, that are among some, None if there are none."""
        return self._joined("or i32", lanes_)

    def _joined(self, word, names):
        found = None
        for name in names:
            if name is not None:
                found = name if found in (None, name) else self.new(f"{word} {found}, {name}")
        return found


def _ahead(value, bits):
    near = value.assumed if value.kind is VARYING else value.kind
    return max(lanes.nearest(lanes.relative(near)[0], bits)) if near is not VARYING else 0
