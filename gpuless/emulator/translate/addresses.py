"""Addresses, in IR: the places that the lanes of a warp access; `cvta` and `isspacep`.

All memory of the emulated GPU is in one range of addresses, the arena, and any address that a kernel computes
is in it, as the upper bits are cut off. Memory that is not allocated is protected, so a wild address is a
fault and never touches other memory of the process.
"""

from typing import NamedTuple

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import UNIFORM, VARYING, WARP
from gpuless.emulator.translate.doubts import or_nowhere
from gpuless.emulator.translate.layout import ARENA_SPAN, SHARED_SPAN
from gpuless.emulator.translate.typed import resize
from gpuless.emulator.translate.values import ALL, ONE, translates

SPACES = ("global", "shared", "local", "const", "param")
NEAR = 1 << 20  # lanes further apart are accessed one by one; the arena has that much room at its ends


class Place(NamedTuple):
    """The addresses of a warp: a pointer and distances in bytes, or a vector of pointers."""

    pointer: str | None
    distances: tuple | None
    pointers: str | None
    safe: bool  # whether it is in shared memory, which may be read even for lanes that are off
    sum: object = None  # the addresses as a `Sum`, outside of shared memory
    steady: bool = False  # whether the sum's vector is invariant in the loop


def space_of(instruction):
    """Return the state space of an instruction that accesses memory."""
    for part in instruction.opcode[1:]:
        if part.startswith("shared"):
            return "shared"
        if part in SPACES:
            return part
    return "generic"


def place(t, address, space, size=1, checked=False):
    """Return the `Place` of a memory operand.

    `size`: the bytes that each lane accesses; `checked`: whether the assumption about the address has been
    checked.
    """
    value = t.operand(address.base)
    bits = t.function.registers.get(address.base, 64)
    check_alignment(t, value, bits, address, size)
    root, span = ("%shared", SHARED_SPAN) if space == "shared" else ("%arena", ARENA_SPAN)
    near = near_of(value, checked)
    if near is not VARYING:
        distances = lanes.nearest(lanes.relative(near)[0], bits)
        if max(distances) - min(distances) < NEAR:
            scalar = wide(t, value.scalar, bits)
            if address.offset:
                scalar = t.new(f"add i64 {scalar}, {address.offset}")
            # Addresses in shared memory wrap around anyway: no difference.
            if space != "shared" and not checked and value.wrapped:
                scalar = or_nowhere(t, value, scalar, ONE)
            inside = _inside(t, scalar, span, max(distances) if space == "shared" else 0)
            pointer = t.new(f"getelementptr i8, ptr {root}, i64 {inside}")
            return Place(pointer, distances, None, space == "shared")
    pointers = _anywhere(t, value, bits, f"splat (i64 {address.offset})", root, span)
    if value.sum is None or space == "shared":
        return Place(None, None, pointers, False)
    number = value.sum.number
    if address.offset:
        number = t.new(f"add i64 {number}, {address.offset}")
    steady = t.analysis.sums.steady(address.base, t.at)
    return Place(None, None, pointers, False, value.sum._replace(number=number), steady)


def spread(t, address, space, offsets):
    """Return a vector of pointers at a distance in bytes from an address, one for each lane."""
    root, span = ("%shared", SHARED_SPAN) if space == "shared" else ("%arena", ARENA_SPAN)
    if address.offset:
        offsets = t.new(f"add {ALL.int(64)} {offsets}, splat (i64 {address.offset})")
    bits = t.function.registers.get(address.base, 64)
    return _anywhere(t, t.operand(address.base), bits, offsets, root, span)


def _anywhere(t, value, bits, offsets, root, span):
    """Return a vector of pointers into a state space."""
    vector = resize(t, ALL, t.vector(value, bits), bits, 64)
    if offsets != "splat (i64 0)":
        vector = t.new(f"add {ALL.int(64)} {vector}, {offsets}")
    inside = t.new(f"and {ALL.int(64)} {vector}, splat (i64 {span - 1})")
    return t.new(f"getelementptr i8, ptr {root}, {ALL.int(64)} {inside}")


def near_of(value, checked=False):
    """Return the kind with the distances of an address's lanes from the first if certain, else VARYING."""
    near = value.kind if value.kind is not VARYING else value.assumed
    known = near is not VARYING and near.rows == 1 and not near.unit and (checked or value.check is None)
    return near if known else VARYING


def check_alignment(t, value, bits, address, size):
    """Write a check that ends the kernel at a misaligned address, as a GPU does; none if that is excluded."""
    powers = t.multiples.power(address.base), lanes.trailing_zeros(address.offset)
    if 1 << min(powers) >= size:
        return
    near, wanted = near_of(value), -address.offset % size
    if near is not VARYING and all(distance % size == 0 for distance in lanes.relative(near)[0]):
        low = t.new(f"and i{bits} {value.scalar}, {size - 1}")
        _misaligned_if(t, t.new(f"icmp ne i{bits} {low}, {wanted}"))
        return
    low = t.new(f"and {ALL.int(bits)} {t.vector(value, bits)}, splat (i{bits} {size - 1})")
    wrong = t.mask_of(t.new(f"icmp ne {ALL.int(bits)} {low}, splat (i{bits} {wanted})"))
    here = t.new(f"and i32 {wrong}, {t.mask}")
    _misaligned_if(t, t.new(f"icmp ne i32 {here}, 0"))


def _misaligned_if(t, wrong):
    right = t.fresh("aligned")
    t.misaligned = True
    t.line(f"br i1 {wrong}, label %misaligned, label %{right}, !prof !1")
    t.label(right)


def _inside(t, scalar, span, ahead):
    """Return an address within a space; lane 0 may be off and outside if the foremost lane is inside."""
    if not ahead:
        return t.new(f"and i64 {scalar}, {span - 1}")
    foremost = t.new(f"and i64 {t.new(f'add i64 {scalar}, {ahead}')}, {span - 1}")
    return t.new(f"sub i64 {foremost}, {ahead}")


def wide(t, scalar, bits):
    """Return the number of lane 0 in 64 bits."""
    return scalar if bits == 64 or scalar[0] != "%" else t.new(f"zext i{bits} {scalar} to i64")


def pointers_of(t, where, offset=0):
    """Return a vector of pointers."""
    if where.pointers is not None:
        if not offset:
            return where.pointers
        return t.new(f"getelementptr i8, <{WARP} x ptr> {where.pointers}, {ALL.int(64)} splat (i64 {offset})")
    distances = ", ".join(f"i64 {distance + offset}" for distance in where.distances)
    return t.new(f"getelementptr i8, ptr {where.pointer}, {ALL.int(64)} <{distances}>")


@translates("cvta")
def _cvta(t, instruction):
    if "param" in instruction.opcode:
        t.refuse("the emulator gives this parameter no generic address")
    target, source = instruction.operands
    bits = t.function.registers.get(target, 64)
    if "shared" not in "".join(instruction.opcode):
        t.write(target, t.operand(source))
        return
    base = t.new("ptrtoint ptr %shared to i64")
    word = "sub" if "to" in instruction.opcode else "add"
    value = t.operand(source)
    kind, assumed = next(iter(t.analysis.results(instruction)))

    def make(s, x):
        root = base if s.lanes == 1 else t.splat(base, "i64")
        return t.new(f"{word} {s.int(bits)} {x}, {root}")

    if kind is not VARYING and kind.constant:
        kind = UNIFORM if kind.uniform else VARYING
    t.write(target, t.compute(make, [(value, bits)], bits, kind, assumed))


@translates("isspacep")
def _isspacep(t, instruction):
    space = instruction.opcode[1]
    target, source = instruction.operands

    def bits(s, operation, a, b):
        return t.new(f"{operation} {s.int(1)} {a}, {b}")

    def within(s, x, base, size):
        distance = t.new(f"sub {s.int(64)} {x}, {base if s.lanes == 1 else t.splat(base, 'i64')}")
        return t.new(f"icmp ult {s.int(64)} {distance}, {s.literal(size, 'i64')}")

    def is_shared(s, x):
        return within(s, x, t.new("ptrtoint ptr %shared to i64"), SHARED_SPAN)

    def is_const(s, x):
        found = s.literal("false", "i1")
        for name, variable in t.module.source.variables.items():
            if variable.space == "const":
                base = t.new(f"add i64 %globals, {t.module.globals[name]}")
                found = bits(s, "or", found, within(s, x, base, variable.size))
        return found

    def is_private(s, x):
        low = t.new(f"and {s.int(64)} {x}, {s.literal(ARENA_SPAN - 1, 'i64')}")
        found = t.new(f"icmp ult {s.int(64)} {low}, {s.literal(t.module.private_span, 'i64')}")
        return bits(s, "and", found, bits(s, "xor", is_shared(s, x), s.literal("true", "i1")))

    def is_global(s, x):  # none of the others
        others = bits(s, "or", bits(s, "or", is_shared(s, x), is_private(s, x)), is_const(s, x))
        return bits(s, "xor", others, s.literal("true", "i1"))

    def is_param(s, x):  # parameters with addresses are in local memory
        return s.literal("false", "i1")

    tests = {"shared": is_shared, "local": is_private, "const": is_const, "global": is_global}
    value = t.operand(source)
    kind = UNIFORM if lanes.uniform(value.kind) else VARYING
    make = (tests | {"param": is_param})[space.partition("_")[0]]
    t.write(target, t.compute(make, [(value, 64)], 1, kind))
