"""Comparisons and selections, in IR."""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import VARYING, WARP
from gpuless.emulator.ptx import BITS
from gpuless.emulator.ptx.instructions import listed
from gpuless.emulator.translate.typed import Integers, Typed, is_float, operands_of
from gpuless.emulator.translate.values import ALL, Shape, Value, translates

_INTEGER = {"eq": "eq", "ne": "ne", "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_ORDERED |= {"num": "ord", "nan": "uno"}
_ORDERED |= {"equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge"}


def _comparison(t, s, instruction, a, b):
    how, type_ = instruction.opcode[1], instruction.opcode[-1]
    if is_float(type_):
        f = Typed(t, s, type_)
        a, b = (f.to_float(f.flush(x)) for x in (a, b))
        return t.new(f"fcmp {_ORDERED[how]} {f.float} {a}, {b}")
    word = _INTEGER.get(how) or ("s" if type_[0] == "s" else "u") + how
    return Integers(t, s, BITS[type_])(f"icmp {word}", a, b)


@translates("setp")
def _setp(t, instruction):
    type_ = instruction.opcode[-1]
    if type_.endswith("x2"):
        _setp_packed(t, instruction)
        return
    first = instruction.operands[0]
    names = listed(first)
    combine = _combination(instruction)
    values = operands_of(t, instruction, type_, type_)
    kinds = list(t.analysis.results(instruction))
    found = t.compute(lambda s, a, b: _comparison(t, s, instruction, a, b), values, 1, kinds[0][0])
    for i, name in enumerate(names):
        value = found if i == 0 else _inverse(t, found)
        if combine:
            other = t.operand(instruction.operands[3], "pred")
            kind = lanes.UNIFORM if lanes.uniform(value.kind) and lanes.uniform(other.kind) else VARYING
            operands = (value, 1), (other, 1)
            value = t.compute(lambda s, a, b: Integers(t, s, 1)(combine, a, b), operands, 1, kind)
        t.write(name, value)


def _inverse(t, value):
    kind = lanes.UNIFORM if lanes.uniform(value.kind) else VARYING
    return t.compute(lambda s, a: Integers(t, s, 1)("xor", a, True), [(value, 1)], 1, kind)


def _setp_packed(t, instruction):
    type_ = instruction.opcode[-1]
    f = Typed(t, ALL, type_)
    a, b = (f.to_float(t.vector(value, 32)) for value, _ in operands_of(t, instruction, type_, type_))
    both = t.new(f"fcmp {_ORDERED[instruction.opcode[1]]} {f.float} {a}, {b}")
    for i, name in enumerate(instruction.operands[0]):
        one = t.shuffle(both, None, "i1", 2 * WARP, range(i, 2 * WARP, 2))
        combine = _combination(instruction)
        if combine:
            other = t.vector(t.operand(instruction.operands[3], "pred"), 1)
            one = Integers(t, ALL, 1)(combine, one, other)
        t.write(name, Value(VARYING, None, one))


def _combination(instruction):
    """Return the operation that combines a comparison with a predicate, or None."""
    return next((part for part in instruction.opcode[2:-1] if part in ("and", "or", "xor")), None)


@translates("set")
def _set(t, instruction):
    want, type_ = instruction.opcode[-2], instruction.opcode[-1]
    combine, packed = _combination(instruction), type_.endswith("x2")

    def make(s, a, b, other=None):
        flag = _comparison(t, s, instruction, a, b)
        width = 2 * s.lanes if packed else s.lanes
        flags = "i1" if width == 1 else f"<{width} x i1>"
        if combine:
            if packed:  # both halves are combined with it
                other = t.new(f"sext {s.int(1)} {other} to {s.int(2)}")
                other = t.new(f"bitcast {s.int(2)} {other} to {flags}")
            flag = t.new(f"{combine} {flags} {flag}, {other}")
        if is_float(want):
            f = Typed(t, s, want)
            return f.to_int(t.new(f"uitofp {flags} {flag} to {f.float}"))
        if packed:
            halves = t.new(f"sext {flags} {flag} to <{width} x i16>")
            return t.new(f"bitcast <{width} x i16> {halves} to {s.int(32)}")
        return t.new(f"sext {s.int(1)} {flag} to {s.int(BITS[want])}")

    values = operands_of(t, instruction, type_, type_)
    if combine:
        values.append((t.operand(instruction.operands[3], "pred"), 1))
    t.set(make, *values)


@translates("selp")
def _selp(t, instruction):
    type_ = instruction.opcode[-1]
    bits = BITS[type_]
    (a, _), (b, _) = operands_of(t, instruction, type_, type_)
    condition = t.operand(instruction.operands[3], "pred")
    kind, assumed = next(iter(t.analysis.results(instruction)))
    if lanes.uniform(condition.kind) and kind is VARYING:
        flag = condition.scalar
        x, y = t.vector(a, bits), t.vector(b, bits)
        vector = t.new(f"select i1 {flag}, {ALL.int(bits)} {x}, {ALL.int(bits)} {y}")
        scalar = None
        if assumed is not None:
            type_ = Shape(assumed.rows).int(bits)
            x, y = t.firsts(a, bits, assumed.rows), t.firsts(b, bits, assumed.rows)
            scalar = t.new(f"select i1 {flag}, {type_} {x}, {type_} {y}")
        check = t.all_of(a.check, b.check)
        wrapped = t.any_of(a.wrapped, b.wrapped)
        t.write(instruction.operands[0], Value(VARYING, scalar, vector, assumed, check, wrapped))
        return
    operands = (a, bits), (b, bits), (condition, 1)
    t.set(lambda s, x, y, flag: Integers(t, s, bits).select(flag, x, y), *operands)


@translates("slct")
def _slct(t, instruction):
    type_, by = instruction.opcode[-2], instruction.opcode[-1]
    bits = BITS[type_]

    def make(s, a, b, c):
        if by == "f32":
            f = Typed(t, s, by)
            flag = f("fcmp oge", f.to_float(c), 0.0)
        else:
            flag = Integers(t, s, 32)("icmp sge", c, 0)
        return Integers(t, s, bits).select(flag, a, b)

    t.set(make, *operands_of(t, instruction, type_, type_, by))
