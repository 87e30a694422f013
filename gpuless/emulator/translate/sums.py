"""64-bit vectors as sums of a uniform number and a vector, in IR; see `analysis.sums`.

The rules are exact modulo 2**64: (number + vector) * factor is number * factor + vector * factor.
"""

from typing import NamedTuple

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import VARYING
from gpuless.emulator.analysis.sums import is_word
from gpuless.emulator.translate.values import ALL

_LARGEST_SHIFT = 3  # processors can shift an index by so many bits in an address


class Sum(NamedTuple):
    """A uniform `number` plus a `vector`, or instead of the vector `narrow` numbers of 32 bits.

    `signed`: how these are widened to 64 bits; `shift`: by how many bits they are then shifted left.
    """

    number: str
    vector: str | None
    narrow: str | None = None
    signed: bool = False
    shift: int = 0

    def spread(self, t):
        """Return the 64-bit vector without the number."""
        if self.narrow is None:
            return self.vector
        word = "sext" if self.signed else "zext"
        wide = t.new(f"{word} {ALL.int(32)} {self.narrow} to {ALL.int(64)}")
        return t.new(f"shl {ALL.int(64)} {wide}, splat (i64 {self.shift})") if self.shift else wide

    def whole(self, t):
        """Return the sum as a vector."""
        vector = self.spread(t)
        if self.number == "0":
            return vector
        return t.new(f"add {ALL.int(64)} {vector}, {t.splat(self.number, 'i64')}")


def read_sum(t, name):
    """Return the `Sum` that a register is kept as."""
    vector = t.load(ALL.int(64), t.slot(name, True))
    return Sum(t.new(f"load i64, ptr {t.note_slot(name, 'i64')}"), t.early(vector))


def store_sum(t, name, given):
    """Store a `Sum` in a register."""
    vector, slot = given.spread(t), t.slot(name, True)
    if vector == t.early(vector) and t.analysis.sums.is_early(name):
        with t.ahead():
            t.line(f"store {ALL.int(64)} {vector}, ptr {slot}")
    else:
        t.line(f"store {ALL.int(64)} {vector}, ptr {slot}")
    t.line(f"store i64 {given.number}, ptr {t.note_slot(name, 'i64')}")


def sum_of(t, instruction, values):
    """Return the result of an instruction as a `Sum`, None if a vector is better."""
    opcode = instruction.opcode
    name = opcode[0]
    if name in ("cvt", "mul", "and") and (found := _widened(t, instruction, values)):
        return found
    if not is_word(opcode):
        return None
    steady = t.analysis.sums.steady(instruction.operands[0], t.at)
    if name in ("add", "sub") and any(map(_shares, values)):
        return _added(t, steady, name, *map(_as_sum, values))
    if name == "shl" and instruction.operands[2][0].isdigit() and values[0].sum:
        return _shifted(t, steady, values[0].sum, int(instruction.operands[2], 0))
    if name in ("mul", "mad"):
        return _multiplied(t, steady, values)
    return None


def _combined(t, steady, make, *names):
    """Write a vector operation by `make`; ahead of the block if it is invariant in the loop."""
    early = [t.early(name) for name in names] if steady else [None]
    if None in early:
        return make(*names)
    with t.ahead():
        return make(*early)


def _of_two(t, word):
    return lambda a, b: t.new(f"{word} {ALL.int(64)} {a}, {b}")


def _shares(value):
    return value.sum is not None or value.kind is not VARYING


def _as_sum(value):
    """Return any value as a `Sum`, whose vector is None if the value is uniform."""
    if value.sum is not None:
        return value.sum
    if value.kind is VARYING:
        return Sum("0", value.vector)
    distances, _ = lanes.relative(value.kind)
    vector = None if value.kind.uniform else f"<{', '.join(f'i64 {distance}' for distance in distances)}>"
    return Sum(value.scalar, vector)


def _numbers(t, word, a, b):
    """Return the sum or difference of the numbers of two sums."""
    if b == "0":
        return a
    return b if a == "0" and word == "add" else t.new(f"{word} i64 {a}, {b}")


def _added(t, steady, word, a, b):
    number = _numbers(t, word, a.number, b.number)
    if b.vector is None and b.narrow is None:
        return a._replace(number=number)
    if a.vector is None and a.narrow is None:
        if word == "add":
            return b._replace(number=number)
        return Sum(number, _combined(t, steady, _of_two(t, word), "zeroinitializer", b.spread(t)))
    return Sum(number, _combined(t, steady, _of_two(t, word), a.spread(t), b.spread(t)))


def _shifted(t, steady, given, by):
    if by >= 64:
        return None
    number = "0" if given.number == "0" else t.new(f"shl i64 {given.number}, {by}")
    if given.narrow is not None and given.shift + by <= _LARGEST_SHIFT:
        return given._replace(number=number, shift=given.shift + by)
    return Sum(number, _combined(t, steady, _of_two(t, "shl"), given.spread(t), f"splat (i64 {by})"))


def _multiplied(t, steady, values):
    """Return the `Sum` of `mul` or `mad`: a sum times a uniform number, or a summand that has one."""
    a, b, *added = values
    if not lanes.uniform(b.kind):
        a, b = b, a
    found = None
    if added and lanes.uniform(a.kind) and lanes.uniform(b.kind):
        found = Sum(t.new(f"mul i64 {a.scalar}, {b.scalar}"), None)
    elif lanes.uniform(b.kind) and a.sum is not None:
        number = "0" if a.sum.number == "0" else t.new(f"mul i64 {a.sum.number}, {b.scalar}")

        def product(vector, factor):
            return t.new(f"mul {ALL.int(64)} {vector}, {t.splat(factor, 'i64')}")

        found = Sum(number, _combined(t, steady, product, a.sum.spread(t), b.scalar))
    if not added:
        return found
    if found is None:
        if not _shares(added[0]):
            return None
        found = Sum("0", t.new(f"mul {ALL.int(64)} {t.vector(a, 64)}, {t.vector(b, 64)}"))
    return _added(t, steady, "add", found, _as_sum(added[0]))


def _widened(t, instruction, values):
    """Return a `Sum` of narrow numbers for 32-bit numbers widened and times 1, 2, 4 or 8; None otherwise."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode[0] == "and":
        known = [value.kind for value in values]
        cut = [kind is not VARYING and kind.constant and set(kind.offsets) == {0xFFFFFFFF} for kind in known]
        if opcode[-1] != "b64" or not any(cut):
            return None
        vector = t.vector(values[cut.index(False)], 64)
        return Sum("0", None, t.new(f"trunc {ALL.int(64)} {vector} to {ALL.int(32)}"))
    if opcode[-1] not in ("u32", "s32") or t.function.registers.get(operands[1]) != 32:
        return None
    signed, factor = opcode[-1] == "s32", 1
    if opcode[0] == "mul":
        kind = values[1].kind
        if "wide" not in opcode or kind is VARYING or not (kind.constant and kind.uniform):
            return None
        factor = kind.offsets[0]
    elif len(opcode) != 3:
        return None
    if values[0].kind is not VARYING or factor not in (1, 2, 4, 8):
        return None
    return Sum("0", None, t.vector(values[0], 32), signed, factor.bit_length() - 1)
