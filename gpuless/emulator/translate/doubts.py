"""Checks, while the kernel runs, of assumptions about addresses, in IR.

When a 32-bit index is widened to a 64-bit address, lanes that are near each other stay near, unless one wraps
around. That usually happens below zero, in a lane that is off, such as the left neighbour of a row's first
pixel. The lanes that have wrapped are noted with the register. If such a lane is on, the warp accesses an
address without memory: the lane's true address is 4 GB away or more, so it is a fault as well.
"""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import VARYING, WARP
from gpuless.emulator.ptx.instructions import destinations
from gpuless.emulator.translate.layout import PRIVATE_MARGIN
from gpuless.emulator.translate.typed import in_all, resize, widen
from gpuless.emulator.translate.values import ALL, Shape

#: At this offset in the arena, and near it, there is never any memory.
_NOWHERE = PRIVATE_MARGIN // 2


def either(t, condition, pieces, type_, count):
    """Run one of two pieces of code, the second if the condition holds; return its results."""
    label = t.fresh("either")
    t.line(f"br i1 {condition}, label %{label}.1, label %{label}.0")
    results = []
    for i, piece in enumerate(pieces):
        t.label(f"{label}.{i}")
        found = piece()
        last = t.fresh("from")
        t.line(f"br label %{last}")
        t.label(last)
        t.line(f"br label %{label}.end")
        results.append((last, found))
    t.label(f"{label}.end")
    joined = []
    for i in range(count):
        ways = ", ".join(f"[ {found[i]}, %{last} ]" for last, found in results)
        joined.append(t.new(f"phi {type_} {ways}"))
    return joined


def right(t, value):
    """Return the condition that the assumption holds for all lanes that are on, None if it is certain."""
    if value.wrapped is None:
        return value.check
    here = value.wrapped if not t.masked else t.new(f"and i32 {value.wrapped}, {t.mask}")
    return t.all_of(value.check, t.new(f"icmp eq i32 {here}, 0"))


def or_nowhere(t, value, address, s):
    """Return an address, or one without memory if a lane that is on has wrapped.

    `s`: the shape of the address, a number or one for each row.
    """
    return t.new(
        f"select i1 {right(t, value)}, {s.int(64)} {address}, {s.int(64)} {s.literal(_NOWHERE, 'i64')}"
    )


def wrapped(t, value, have, bits, signed):
    """Return a mask of the lanes that have wrapped around before a widening; None if there can be none.

    `value`: a register of `have` bits, whose lowest `bits` are the number to be widened.
    """
    near = value.kind if value.kind is not VARYING else value.assumed
    _, assumed = next(iter(t.analysis.results(t.instruction)))
    (name,) = destinations(t.instruction)
    if not assumed or name not in t.analysis.wrapping or near is VARYING:
        return None
    if near.constant or near.uniform or near.unit:
        return None
    distances, s = lanes.nearest(near.offsets, bits), Shape(assumed.rows)
    int_ = s.int(bits)
    first = resize(t, s, t.firsts(value, have, s.lanes), have, bits)
    low, high = (t.new(f"add {int_} {first}, {s.literal(end(distances), f'i{bits}')}") for end in (min, max))
    fine = t.new(f"icmp {'sge' if signed else 'uge'} {int_} {high}, {low}")
    fine = in_all(t, s, fine)
    inside = lanes.nearest(lanes.in_rows(near, s.lanes).offsets, bits)
    pieces = [lambda: [_found(t, s, first, bits, signed, inside, max(distances))], lambda: ["0"]]
    return either(t, fine, pieces, "i32", 1)[0]


def _found(t, s, first, bits, signed, distances, ahead):
    """Return a mask of the lanes that have wrapped, given the number in the first lane of each row."""
    if s.lanes == 1:
        firsts = t.splat(first, f"i{bits}")
    else:
        rows = [lane * s.lanes // WARP for lane in range(WARP)]
        firsts = t.shuffle(first, None, f"i{bits}", s.lanes, rows)
    meant = widen(t, Shape(WARP, (ahead,)), firsts, bits, 2 * bits, signed)
    numbers, meant = (
        t.new(f"add {ALL.int(size)} {which}, <{', '.join(f'i{size} {distance}' for distance in distances)}>")
        for which, size in ((firsts, bits), (meant, 2 * bits))
    )
    wide = resize(t, ALL, numbers, bits, 2 * bits, signed)
    return t.mask_of(t.new(f"icmp ne {ALL.int(2 * bits)} {wide}, {meant}"))
