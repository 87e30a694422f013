"""The transfer functions of the analysis: the kinds of an instruction's results from those of its operands.

A kind (`lanes`) is what is proved of a register. An assumption is a kind that registers in addresses may be
taken to have; the translation checks it where necessary.
"""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import UNIFORM, VARYING, WARP, constant
from gpuless.emulator.ptx.instructions import WITH_CARRY
from gpuless.emulator.ptx.model import BITS, Address

_SHIFTS = {"shl", "shr"}
_COMPARISONS_OF_EQUALITY = {"eq", "ne"}


def special_registers(block):
    """Return the kinds of the special registers that depend on the lane, and of the shape of a block."""
    x, y, z = block
    threads = x * y * z

    def thread(i):
        # Lanes beyond the block's last thread are off: any number will do.
        return i % x if y * z > 1 else i, i // x % y if z > 1 else i // x * (y > 1), i // (x * y) * (z > 1)

    found = {f"%ntid.{axis}": constant(size) for axis, size in zip("xyz", block, strict=True)}
    found |= {"WARP_SZ": constant(WARP), "%laneid": constant(*range(WARP))}
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
            size = (max(first) + max(shape)).bit_length()
            kind = lanes.Lanes(lanes.ZERO if shape == lanes.ZERO else shape, min(align, 31), size=size)
        found[f"%tid.{name}"] = kind
    return found


def _same_address(instruction, analysis):
    address = next(operand for operand in instruction.operands[1:] if isinstance(operand, Address))
    return lanes.uniform(analysis.kind(address.base))


def transfer(instruction, kinds, assumptions, analysis):
    """Return (kind, assumption) of each register that an instruction writes.

    `kinds`, `assumptions`: functions from a list of types to those of the operands after the first.
    """
    opcode = instruction.opcode
    name, type_ = opcode[0], opcode[-1]
    if "cc" in opcode or name in WITH_CARRY:
        return [(VARYING, None)]  # each lane has its own carry
    rule = _TRANSFERS.get(name)
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
    """Return the transfer function of an integer operation with a rule in `lanes.RULES`."""

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
    """Return the assumption for a product with a parameter: distances are multiples of the parameter."""
    for operand, other in zip(instruction.operands[1:3], factors[1::-1], strict=True):
        if operand in analysis.parameters:
            return lanes.times(other, analysis.parameters[operand])
    return VARYING


def is_sign(instruction):
    """Return whether an instruction takes a number's sign, in one bit or in all, as for negative indices."""
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    if name == "and":
        return instruction.operands[2] == str(-(1 << (BITS[type_] - 1)))
    return name == "shr" and type_[0] == "s" and instruction.operands[2] == str(BITS[type_] - 1)


def is_widened(instruction):
    """Return whether an instruction widens a number, as an index is widened for an address."""
    opcode = instruction.opcode
    if opcode[0] == "cvt":
        return BITS.get(opcode[-2], 0) > BITS.get(opcode[-1], 0)
    return "wide" in opcode or (opcode[0] == "and" and opcode[-1] == "b64")


def _alike(found):
    """Return the assumption for signs, or for uniform numbers: the same in all lanes of a row."""
    if any(kind is VARYING or kind.unit for kind in found):
        return VARYING
    return UNIFORM._replace(rows=max(kind.rows for kind in found))


def _assumed_bits(instruction, bits, assumptions):
    """Return the assumption for an `and` with a mask."""
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
    exact = VARYING
    if VARYING not in (condition, x, y):
        exact = lanes.select(condition, x, y)
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
        if opcode[1] == "lt" and opcode[-1][0] == "s" and found[1] == constant(0):
            # A number with fewer bits is never negative: this is mostly for thread ids.
            kind = constant(0) if lanes.size_of(found[0]) < BITS[opcode[-1]] else kind
    joined = instruction.operands[3:4]
    if kind is not VARYING and not all(lanes.uniform(analysis.kind(name)) for name in joined):
        kind = VARYING
    return [(kind, None)] * 2


def _insert(instruction, kinds, _, __):
    """`bfi`: a bit field of one number, the bits of the other around it."""
    type_, bits = instruction.opcode[-1], BITS[instruction.opcode[-1]]
    field, around, at, length = kinds([type_, type_, "u32", "u32"])
    if VARYING in (field, around) or not all(kind.constant and kind.uniform for kind in (at, length)):
        return [(UNIFORM if all(map(lanes.uniform, (field, around, at, length))) else VARYING, None)]
    at, length = (min(kind.offsets[0] & 255, bits) for kind in (at, length))
    hole = ((1 << length) - 1 << at) & (1 << bits) - 1
    moved = lanes.combine("shl", bits, field, constant(at))
    pieces = [(moved, hole), (around, hole ^ (1 << bits) - 1)]
    pieces = (lanes.combine("and", bits, kind, constant(mask)) for kind, mask in pieces)
    return [(lanes.combine("or", bits, *pieces), None)]


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
    """Return a uniform result if the operands and the mask of members are uniform."""
    members = kinds(["pred", "b32"])[1:]
    return [(UNIFORM if all(map(lanes.uniform, members)) else VARYING, None)]


def _cvta(instruction, kinds, assumptions, analysis):
    return [(kinds(["u64"])[0], assumptions(["u64"])[0])]


_TRANSFERS = {
    name: _arithmetic(name) for name in ("add", "sub", "and", "or", "xor", "not", "neg", "shl", "shr")
}
_TRANSFERS |= {name: _arithmetic(name) for name in ("min", "max", "div", "rem")}
_TRANSFERS |= {"mul": _mul, "mad": _mad, "cvt": _convert, "mov": _move, "selp": _select, "setp": _compare}
_TRANSFERS |= {"ld": _load, "ldu": _load, "cvta": _cvta, "bfi": _insert}
_TRANSFERS |= {"vote": _of_members, "activemask": _uniform}
_TRANSFERS |= dict.fromkeys("shfl atom match mma wmma ldmatrix movmatrix elect call fns".split(), _varying)
_TRANSFERS |= {"bar": _uniform, "barrier": _uniform, "redux": _of_members}
