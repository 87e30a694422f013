"""Loads and stores row by row, in IR, for thread blocks whose rows are shorter than a warp.

The lanes of a row usually access neighbours. The distance to the next row is known only when the kernel runs:
it is the length of the array's rows.
"""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import VARYING, WARP, ZERO
from gpuless.emulator.translate.doubts import or_nowhere
from gpuless.emulator.translate.layout import ARENA_SPAN, SHARED_SPAN
from gpuless.emulator.translate.masked import gather, load_next, store_next
from gpuless.emulator.translate.typed import joined, resize
from gpuless.emulator.translate.values import Shape


def rows_of(t, address, bits):
    """Return the number of rows if the lanes of each access neighbours or the same number, else 0."""
    near = t.operand(address.base).assumed
    if near is VARYING or near.rows == 1 or near.unit:
        return 0
    width = WARP // near.rows
    distances = lanes.nearest(near.offsets, t.function.registers.get(address.base, 64))[:width]
    return near.rows if distances in (ZERO[:width], tuple(bits // 8 * lane for lane in range(width))) else 0


def heads_of(t, address, space):
    """Return the addresses of the first lane of each row, as a vector."""
    value = t.operand(address.base)
    bits, s = t.function.registers.get(address.base, 64), Shape(value.assumed.rows)
    root, span = ("%shared", SHARED_SPAN) if space == "shared" else ("%arena", ARENA_SPAN)
    first = resize(t, s, value.scalar, bits, 64)
    if address.offset:
        first = t.new(f"add {s.int(64)} {first}, {s.literal(address.offset, 'i64')}")
    if space != "shared" and value.wrapped:
        first = or_nowhere(t, value, first, s)
    inside = t.new(f"and {s.int(64)} {first}, {s.literal(span - 1, 'i64')}")
    return t.new(f"getelementptr i8, ptr {root}, {s.int(64)} {inside}")


def head(t, pointers, row, rows):
    """Return the address of the first lane of a row."""
    return t.new(f"extractelement <{rows} x ptr> {pointers}, i64 {row}") if rows > 1 else pointers


def on_in_row(t, on, row, rows):
    """Return the part of the mask `on` that belongs to a row."""
    width = WARP // rows
    return t.shuffle(on, None, "i1", WARP, range(row * width, (row + 1) * width))


def load_rows(t, address, space, bits):
    """Load a row at a time: neighbouring numbers, or one for all its lanes."""
    near = t.operand(address.base).assumed
    rows, pointers = near.rows, heads_of(t, address, space)
    if near.uniform:
        return _load_heads(t, pointers, rows, bits)
    found = []
    for row in range(rows):
        pointer = head(t, pointers, row, rows)
        found.append(load_next(t, pointer, bits, on_in_row(t, t.mask_vector(), row, rows), WARP // rows))
    return joined(t, found, f"i{bits}")


def _load_heads(t, pointers, rows, bits):
    """Load one number for each row in which any lane is on."""
    width = WARP // rows
    mask = t.new(f"bitcast <{WARP} x i1> {t.mask_vector()} to <{rows} x i{width}>")
    on = t.new(f"icmp ne <{rows} x i{width}> {mask}, zeroinitializer")
    heads = gather(t, pointers, bits, on, width=rows)
    return t.shuffle(heads, None, f"i{bits}", rows, [lane // width for lane in range(WARP)])


def store_rows(t, address, space, bits, vector):
    """Store a row of neighbouring numbers at a time."""
    rows, pointers = t.operand(address.base).assumed.rows, heads_of(t, address, space)
    width = WARP // rows
    for row in range(rows):
        pointer = t.new(f"extractelement <{rows} x ptr> {pointers}, i64 {row}")
        part = t.shuffle(vector, None, f"i{bits}", WARP, range(row * width, (row + 1) * width))
        on = on_in_row(t, t.mask_vector(), row, rows)
        store_next(t, pointer, bits, part, on, width)
