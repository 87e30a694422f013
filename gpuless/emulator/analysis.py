"""What the registers of a function hold, and where the lanes of a warp are apart.

The two depend on each other: a branch parts the lanes if its condition is not the same in all of them, and a
register that is written where lanes are apart, and read where they meet, is not the same in all of them. So
both are found together, beginning with the belief that all is uniform, until nothing changes.
"""

import functools
from collections import Counter

from gpuless.emulator import lanes
from gpuless.emulator.definitions import separate
from gpuless.emulator.flow import Flow, spinning_loops
from gpuless.emulator.instructions import WITH_CARRY, destinations, sources
from gpuless.emulator.lanes import UNIFORM, VARYING, WARP, constant
from gpuless.emulator.ptx import BITS, Address, PtxError, number

_SHIFTS = {"shl", "shr"}
_COMPARISONS_OF_EQUALITY = {"eq", "ne"}


class Analysis:
    """What is known of a function before it is translated.

    Parameters
    ----------
    function : Function
    block : (int, int, int)
        The shape of a block of threads.
    space_of : callable
        Tells where a variable of the module or the function lives.
    local_kind : callable
        Tells the `Lanes` of the address of a local variable.
    anew : set of str, optional
        The functions that may read what other threads have just written, of which a loop may wait for one.

    Attributes
    ----------
    flow : Flow
    kinds, assumed : dict
        Of each register the `Lanes`, proved, and such as addresses may be taken to be.
    masked : set of int
        Blocks that may run with some of the warp's lanes only.
    blended : set of str
        Registers of which lanes that are off keep what they have.
    doubted : set of str
        Registers of which what is assumed follows from a sign, and is to be checked when the kernel runs.
    wrapping : set of str
        Registers of which what is assumed follows from a number that is made wider, of which lanes may wrap.
    crossing : set of str
        Registers that live longer than a block.
    """

    def __init__(self, function, block, space_of, local_kind, anew=frozenset()):
        self.function, self.block, self.space_of, self.local_kind = function, block, space_of, local_kind
        self.flow = Flow(function, anew)
        separate(self.flow, function.registers)
        if spinning_loops(self.flow):
            self.flow = Flow(function, anew, True)
            separate(self.flow, function.registers)
            self.flow.await_others()
        self.kinds, self.assumed, self.masked, self.blended = {"%cc": VARYING}, {}, set(), set()
        self.special = special_registers(block)
        # Of so many rows of a block is a warp, where it has whole ones.
        self.rows = WARP // block[0] if block[0] in (4, 8, 16) else 1
        self._depth = Counter()
        self.instructions = [
            (instruction, destinations(instruction)) for part in self.flow.blocks for instruction in part.body
        ]
        self.parameters = self._parameters()
        self._liveness()
        parted = set()
        while True:
            self._propagate()
            new = {at for at in range(len(self.flow.blocks)) if at not in parted and self.parts(at)}
            if not new:
                break
            parted |= new
            for at in new:
                self._part(at)
        self.doubted = self._assumed_from(is_sign)
        self.wrapping = self._assumed_from(is_widened) & self._leading_to_memory()

    def _parameters(self):
        """Return the parameters of 64 bits that registers hold, and nothing else ever, by the registers."""
        if not self.function.kernel:
            return {}
        names = {variable.name for variable in self.function.parameters}
        writes = Counter(name for _, written in self.instructions for name in written)
        return {
            written[0]: instruction.operands[1]
            for instruction, written in self.instructions
            if instruction.opcode[:2] == ("ld", "param") and len(written) == 1 and writes[written[0]] == 1
            if BITS[instruction.opcode[-1]] == 64 and instruction.operands[1].base in names
        }

    # --- Registers that live from block to block -------------------------------------------------------

    def _liveness(self):
        names = {name: i for i, name in enumerate(self.function.registers)}
        names["%cc"] = len(names)
        self._bit, used, self._written = names, [], []
        for part in self.flow.blocks:
            reads = writes = 0
            for instruction in part.body:
                for name in sources(instruction):
                    if name in names:
                        reads |= (1 << names[name]) & ~writes
                for name in destinations(instruction):
                    if name not in names:
                        raise PtxError(f"{instruction.text}: the emulator does not know the register {name}")
                    writes |= 1 << names[name]
            if part.end.condition in names:
                reads |= (1 << names[part.end.condition]) & ~writes
            used.append(reads)
            self._written.append(writes)
        self.live = list(used)
        changed = True
        while changed:
            changed = False
            for at in reversed(range(len(self.flow.blocks))):
                after = 0
                for follower in self.flow.successors[at]:
                    after |= self.live[follower]
                live = used[at] | (after & ~self._written[at])
                if live != self.live[at]:
                    self.live[at], changed = live, True
        self.live.append(0)  # at the end nothing lives
        crossing = 0
        for live in self.live:
            crossing |= live
        self.crossing = {name for name, bit in names.items() if crossing >> bit & 1}

    # --- Where lanes are apart -------------------------------------------------------------------------

    def parts(self, at):
        """Return whether lanes part at the end of a block."""
        end = self.flow.blocks[at].end
        return (
            end.condition is not None
            and len(set(end.targets)) > 1
            and not lanes.uniform(self.kind(end.condition))
        )

    def _part(self, at):
        """Note what follows from lanes parting at the end of a block."""
        flow = self.flow
        ways, meeting = flow.region(at), flow.parted_until(at)
        targets = flow.blocks[at].end.targets
        apart = set().union(*ways)
        self.masked |= apart
        self._depth.update(apart)
        written = [self._written_in(way) for way in ways]
        everywhere = self._written_in(apart)
        differing = everywhere & self.live[meeting]
        for i, way in enumerate(ways):
            for j in range(len(ways)):
                if i != j:
                    differing |= written[i] & self.live[targets[j]]
                    for block in way & ways[j]:
                        differing |= everywhere & self.live[block]
        for block in apart & flow.pauses:
            differing |= everywhere & self.live[block]
        for name, bit in self._bit.items():
            if differing >> bit & 1:
                self.blended.add(name)
                self.kinds[name] = VARYING

    def _written_in(self, blocks):
        written = 0
        for block in blocks:
            written |= self._written[block]
        return written

    @functools.cached_property
    def restless(self):
        """The registers that are written where lanes part again and again, within a loop they go round apart.

        Blocks are entered there from many others. Were such a register a value, and not memory, it would be
        copied on most of these ways. Where lanes wait for each other all that is masked is such a loop.
        """
        loops = [
            range(first, last + 1) for first, last in self.flow.loop_ends.items() if first in self.masked
        ]
        if not self.flow.waiting.isdisjoint(self.masked):
            loops = [range(len(self.flow.blocks))]
        blocks = [at for at in self.masked if self._depth[at] > 1 and any(at in loop for loop in loops)]
        written = self._written_in(blocks)
        return {name for name, bit in self._bit.items() if written >> bit & 1}

    # --- What registers hold ---------------------------------------------------------------------------

    def _propagate(self):
        changed = True
        while changed:
            changed = False
            unknown = []
            for instruction, written in self.instructions:
                if not written:
                    continue
                if not self._known(instruction):
                    unknown.append(instruction)
                    continue  # comes with the next turn, when the loop that it is in has been passed once
                for name, (kind, assumed) in zip(written, self.results(instruction), strict=False):
                    changed |= self._weaken(name, kind, assumed)
            if unknown and not changed:
                # What is read here nobody has set before; so it may be anything, and the same in all lanes.
                for name in sources(unknown[0]):
                    if name in self.function.registers or name == "%cc":
                        self.kinds.setdefault(name, UNIFORM)
                changed = True

    def _known(self, instruction):
        registers = self.function.registers
        return all(name in self.kinds for name in sources(instruction) if name in registers or name == "%cc")

    def _weaken(self, name, kind, assumed):
        old = self.kinds.get(name, kind)
        new = VARYING if old is VARYING or kind is VARYING else lanes.join(old, kind)
        changed = name not in self.kinds or new != old
        self.kinds[name] = new
        if new is VARYING:
            # A register that is proved on one way may be assumed on another.
            known = kind if kind is not VARYING else assumed
            had = self.assumed.get(name, known)
            if name in self.blended or had is None or known is None:
                weaker = None
            else:
                weaker = lanes.join(had, known)
                # Lanes that are the same, or constants, would rather be written as a vector.
                weaker = (
                    weaker if weaker is None or not weaker.constant else lanes.Lanes(*lanes.relative(weaker))
                )
            changed |= name not in self.assumed or weaker != self.assumed[name]
            self.assumed[name] = weaker
        return changed

    def _assumed_from(self, begins):
        """Return the registers whose assumed kind follows from what some instructions assume."""
        found, before = set(), None
        while len(found) != before:
            before = len(found)
            for instruction, read, names in self._assuming:
                if begins(instruction) or not found.isdisjoint(read):
                    found |= names
        return found

    @functools.cached_property
    def _assuming(self):
        """The instructions of whose results something is assumed, with what they read, and these results."""
        found = []
        for instruction, written in self.instructions:
            names = {name for name in written if self.assumed.get(name)}
            if names:
                found.append((instruction, set(sources(instruction)), names))
        return found

    def _leading_to_memory(self):
        """Return the registers that addresses are made of, but for those of shared memory."""
        found = {
            operand.base
            for instruction, _ in self.instructions
            if not any(part.startswith(("shared", "param")) for part in instruction.opcode[1:2])
            for operand in instruction.operands
            if isinstance(operand, Address)
        }
        before = None
        while len(found) != before:
            before = len(found)
            for _, read, names in reversed(self._assuming):
                if not found.isdisjoint(names):
                    found |= read
        return found

    def kind(self, operand, type_="u64"):
        """Return the kind of an operand: a register's, a special register's, or an immediate's."""
        if operand in self.function.registers or operand == "%cc":
            return self.kinds.get(operand, UNIFORM)  # one that is never written may hold anything
        if operand in self.special:
            return self.special[operand]
        if operand[0].isdigit() or operand[0] == "-":
            return constant(number(operand, type_ if type_ in BITS else "u64"))
        if operand.startswith("!"):
            return self.kind(operand[1:])
        if self.space_of(operand) == "local":
            return VARYING
        return UNIFORM

    def assumption(self, operand, type_="u64"):
        """Return the kind of an operand that makes up an address."""
        kind = self.kind(operand, type_)
        return self.assumed.get(operand) if kind is VARYING else kind

    def results(self, instruction):
        """Return (kind, what may be assumed of an address) for each register that an instruction writes."""
        operands = instruction.operands[1:]

        def kinds(types):
            return [self.kind(operand, type_) for operand, type_ in zip(operands, types, strict=False)]

        def assumptions(types):
            return [self.assumption(operand, type_) for operand, type_ in zip(operands, types, strict=False)]

        return transfer(instruction, kinds, assumptions, self)


def special_registers(block):
    """Return the kinds of the special registers that depend on the lane, and of the shape of a block."""
    x, y, z = block
    threads = x * y * z

    def thread(i):
        # Behind the last thread of a block go on as before: nobody asks there.
        return i % x if y * z > 1 else i, i // x % y if z > 1 else i // x * (y > 1), i // (x * y) * (z > 1)

    found = {
        "%ntid.x": constant(x),
        "%ntid.y": constant(y),
        "%ntid.z": constant(z),
        "WARP_SZ": constant(WARP),
    }
    found["%laneid"] = constant(*range(WARP))
    for i, mask in (("eq", lambda i: 1 << i), ("lt", lambda i: (1 << i) - 1), ("le", lambda i: (2 << i) - 1)):
        found[f"%lanemask_{i}"] = constant(*map(mask, range(WARP)))
    found["%lanemask_ge"] = constant(*(0xFFFFFFFF ^ ((1 << i) - 1) for i in range(WARP)))
    found["%lanemask_gt"] = constant(*(0xFFFFFFFF ^ ((2 << i) - 1) for i in range(WARP)))
    warps = -(-threads // WARP)
    for axis, name in enumerate("xyz"):
        first = [thread(warp * WARP)[axis] for warp in range(warps)]
        shapes = {
            tuple(thread(warp * WARP + i)[axis] - first[warp] for i in range(WARP)) for warp in range(warps)
        }
        if len(shapes) > 1:
            kind = VARYING
        elif len(set(first)) == 1:
            kind = constant(*(first[0] + offset for offset in next(iter(shapes))))
        else:
            shape = next(iter(shapes))
            align = min(map(lanes.trailing_zeros, first))
            kind = lanes.Lanes(lanes.ZERO if shape == lanes.ZERO else shape, min(align, 31))
        found[f"%tid.{name}"] = kind
    return found


# --- What instructions make of kinds ------------------------------------------------------------------------


def _same_address(instruction, analysis):
    address = next(operand for operand in instruction.operands[1:] if isinstance(operand, Address))
    return lanes.uniform(analysis.kind(address.base))


def transfer(instruction, kinds, assumptions, analysis):
    """Return (kind, assumption) of each register that an instruction writes, from those of its operands.

    Parameters
    ----------
    instruction : Instruction
    kinds, assumptions : callable
        Give those of the operands after the first, which are of the types given.
    analysis : Analysis

    Returns
    -------
    iterable of (Lanes or None, Lanes or None)
    """
    opcode = instruction.opcode
    name, type_ = opcode[0], opcode[-1]
    if "cc" in opcode or name in ("addc", "subc", "madc"):
        return [(VARYING, None)]  # the carry is kept for each lane
    rule = _TRANSFERS.get(name)
    if "cc" in opcode or name in WITH_CARRY:
        return _varying(instruction)
    if rule is not None:
        return rule(instruction, kinds, assumptions, analysis)
    if any(isinstance(operand, Address) for operand in instruction.operands[1:]):
        return _varying(instruction)
    if isinstance(instruction.operands[0], tuple):
        return _all_alike(instruction, kinds, type_)
    kind = lanes.combine(name, BITS.get(type_, 64), *kinds([type_] * 8))
    return [(_plain(kind), None)]


_NOT_PLAIN = {"sat", "hi", "relu"}


def _plain(kind):
    return kind if kind is VARYING or kind.constant or kind.uniform else VARYING


def _all_alike(instruction, kinds, type_):
    count = len(instruction.operands[0])
    same = all(lanes.uniform(kind) for kind in kinds([type_] * 8))
    return [(UNIFORM if same else VARYING, None)] * count


def _arithmetic(rule_name):
    """Return the transfer of an integer operation that has a rule of its own."""

    def rule(instruction, kinds, assumptions, analysis):
        opcode = instruction.opcode
        type_ = opcode[-1]
        if type_.startswith(("f", "bf")) or type_.endswith("x2") or _NOT_PLAIN.intersection(opcode):
            found = kinds([type_] * 4)
            return [(UNIFORM if all(map(lanes.uniform, found)) else VARYING, None)]
        bits = BITS[type_]
        name = rule_name
        if name == "shr":
            name = "shr.s" if type_[0] == "s" else "shr.u"
        elif name in ("min", "max", "div", "rem"):
            name += ".s" if type_[0] == "s" else ".u"
        types_ = [type_, "u32"] if rule_name in _SHIFTS else [type_] * 3
        exact = lanes.combine(name, bits, *kinds(types_))
        assumed = None
        if exact is VARYING and name in lanes.ADDRESSING:
            assumed = lanes.near(name, bits, analysis.rows, *assumptions(types_))
            if assumed is VARYING and name == "mul" and bits == 64:
                assumed = _stepped(instruction, assumptions(types_), analysis)
        elif exact is VARYING and is_sign(instruction):
            assumed = _alike(assumptions(types_)[:1])
        elif exact is VARYING and name == "and":
            assumed = _assumed_bits(instruction, bits, assumptions)
        elif exact is VARYING and name == "shr.u":
            found = assumptions(types_)
            assumed = _alike(found) if all(map(lanes.uniform, found)) else None
        return [(exact, assumed)]

    return rule


def _stepped(instruction, factors, analysis):
    """Return what may be assumed of a product with a parameter: so many of it from lane to lane."""
    for operand, other in zip(instruction.operands[1:3], factors[1::-1], strict=True):
        if operand in analysis.parameters:
            return lanes.times(other, analysis.parameters[operand])
    return VARYING


def is_sign(instruction):
    """Return whether an instruction takes a number's sign, on all bits or alone, as for negative indices."""
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    if name == "and":
        return instruction.operands[2] == str(-(1 << (BITS[type_] - 1)))
    return name == "shr" and type_[0] == "s" and instruction.operands[2] == str(BITS[type_] - 1)


def is_widened(instruction):
    """Return whether an instruction makes more bits of a number, as of an index for an address."""
    opcode = instruction.opcode
    if opcode[0] == "cvt":
        return BITS.get(opcode[-2], 0) > BITS.get(opcode[-1], 0)
    return "wide" in opcode or (opcode[0] == "and" and opcode[-1] == "b64")


def _alike(found):
    """Return what may be assumed of numbers' signs, or of alike numbers: the same in all lanes of a row."""
    if any(kind is VARYING or kind.unit for kind in found):
        return VARYING
    return UNIFORM._replace(rows=max(kind.rows for kind in found))


def _assumed_bits(instruction, bits, assumptions):
    """Return what may be assumed of a number of which some bits are taken."""
    x, mask = assumptions([instruction.opcode[-1]] * 2)
    if VARYING in (x, mask):
        return None
    if bits == 64 and mask.constant and mask.offsets[0] == 0xFFFFFFFF:
        return lanes.widen(32, 64, False, x, True) if not x.constant else None
    return _alike((x, mask)) if x.uniform and mask.uniform else None


def _mul(instruction, kinds, assumptions, analysis):
    opcode = instruction.opcode
    if "wide" not in opcode:
        return _arithmetic("mul")(instruction, kinds, assumptions, analysis)
    return [_wide(opcode[-1], kinds([opcode[-1]] * 2), assumptions([opcode[-1]] * 2), analysis)]


def _wide(type_, exact, assumed, analysis):
    bits, signed = BITS[type_], type_[0] == "s"

    def product(factors, assume):
        if VARYING in factors:
            return VARYING
        wide = [lanes.widen(bits, 2 * bits, signed, factor, assume and bits >= 32) for factor in factors]
        return lanes.near("mul", 2 * bits, analysis.rows if assume else 1, *wide)

    kind = product(exact, False)
    return kind, (product(assumed, True) if kind is VARYING else None)


def _mad(instruction, kinds, assumptions, analysis):
    opcode = instruction.opcode
    type_ = opcode[-1]
    if "lo" not in opcode and "wide" not in opcode:
        found = kinds([type_] * 3)
        return [(UNIFORM if all(map(lanes.uniform, found)) else VARYING, None)]
    wide = "wide" in opcode
    bits = BITS[type_] * (2 if wide else 1)
    types = [type_, type_, f"u{bits}"]
    *factors, added = kinds(types)
    *near, near_added = assumptions(types)
    if wide:
        product, assumed = _wide(type_, factors, near, analysis)
    else:
        product = lanes.combine("mul", bits, *factors)
        assumed = lanes.near("mul", bits, analysis.rows, *near) if product is VARYING else product
        if assumed is VARYING and bits == 64:
            assumed = _stepped(instruction, near, analysis)
    exact = lanes.combine("add", bits, product, added)
    if exact is not VARYING:
        return [(exact, None)]
    assumed = product if product is not VARYING else assumed
    return [(VARYING, lanes.near("add", bits, analysis.rows, assumed, near_added))]


def _convert(instruction, kinds, assumptions, _):
    want, have = instruction.opcode[-2:]
    (kind,), (near,) = kinds([have]), assumptions([have])
    if want[0] in "us" and have[0] in "usb" and "sat" not in instruction.opcode:
        if kind is not VARYING:
            kind = lanes.widen(BITS[have], BITS[want], have[0] == "s", kind)
        if kind is VARYING and near is not VARYING and not near.constant and BITS[have] >= 32:
            return [(VARYING, lanes.widen(BITS[have], BITS[want], have[0] == "s", near, True))]
        return [(kind, None)]
    return [(UNIFORM if lanes.uniform(kind) else VARYING, None)]


def _move(instruction, kinds, assumptions, analysis):
    first, second = instruction.operands
    type_ = instruction.opcode[-1]
    if isinstance(first, tuple) or isinstance(second, tuple):
        read = second if isinstance(second, tuple) else (second,)
        same = all(lanes.uniform(analysis.kind(name)) for name in read)
        return [(UNIFORM if same else VARYING, None)] * (len(first) if isinstance(first, tuple) else 1)
    if analysis.space_of(second) == "local":
        return [(analysis.local_kind(second), None)]
    return [(kinds([type_])[0], assumptions([type_])[0])]


def _select(instruction, kinds, assumptions, analysis):
    type_ = instruction.opcode[-1]
    condition = analysis.kind(instruction.operands[3])
    (x, y), (near_x, near_y) = kinds([type_] * 2), assumptions([type_] * 2)
    bits = BITS[type_]
    exact = VARYING
    if VARYING not in (condition, x, y):
        exact = lanes.select(bits, condition, x, y)
    assumed = None
    if exact is VARYING and lanes.uniform(condition) and VARYING not in (near_x, near_y):
        assumed = lanes.join(near_x, near_y)
        assumed = None if assumed is VARYING or assumed.constant else assumed
    return [(exact, assumed)]


def _compare(instruction, kinds, _, analysis):
    opcode = instruction.opcode
    found = kinds([opcode[-1]] * 2)
    if opcode[-1] in ("f16x2", "bf16x2"):
        return _varying(instruction)
    kind = VARYING
    if VARYING not in found:
        kind = lanes.compare(opcode[1] in _COMPARISONS_OF_EQUALITY, *found)
    if (
        len(instruction.operands) > 3
        and kind is not VARYING
        and not lanes.uniform(analysis.kind(instruction.operands[3]))
    ):
        kind = VARYING
    return [(kind, None)] * 2


def _load(instruction, _, __, analysis):
    count = len(instruction.operands[0]) if isinstance(instruction.operands[0], tuple) else 1
    space = next((part for part in instruction.opcode if part in _SPACES), "generic")
    if space == "param":
        base = instruction.operands[1].base
        kernel = analysis.function.kernel and any(base == v.name for v in analysis.function.parameters)
        return [(UNIFORM if kernel else VARYING, None)] * count
    return [(UNIFORM if _same_address(instruction, analysis) else VARYING, None)] * count


_SPACES = {"global", "shared", "local", "const", "param"}


def _varying(instruction, *_):
    return [(VARYING, None)] * 8


def _uniform(instruction, *_):
    return [(UNIFORM, None)] * 2


def _of_members(instruction, kinds, _, __):
    """Lanes that take part in the same get the same."""
    members = kinds(["pred", "b32"])[1:]
    return [(UNIFORM if all(map(lanes.uniform, members)) else VARYING, None)]


def _cvta(instruction, kinds, assumptions, analysis):
    return [(kinds(["u64"])[0], assumptions(["u64"])[0])]


_TRANSFERS = {
    name: _arithmetic(name) for name in ("add", "sub", "and", "or", "xor", "not", "neg", "shl", "shr")
}
_TRANSFERS |= {name: _arithmetic(name) for name in ("min", "max", "div", "rem")}
_TRANSFERS |= {"mul": _mul, "mad": _mad, "cvt": _convert, "mov": _move, "selp": _select, "setp": _compare}
_TRANSFERS |= {"ld": _load, "ldu": _load, "cvta": _cvta, "vote": _of_members, "activemask": _uniform}
_TRANSFERS |= {
    name: _varying
    for name in ("shfl", "atom", "match", "mma", "wmma", "ldmatrix", "movmatrix", "elect", "call", "fns")
}
_TRANSFERS |= {"bar": _uniform, "barrier": _uniform, "redux": _of_members}
