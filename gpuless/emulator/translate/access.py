"""Loads and stores, in IR.

The addresses of most warps are known distances apart. Then a load reads neighbouring bytes, once or a few
times, and shuffles them; otherwise it gathers.
"""

import functools

from gpuless.emulator.analysis.lanes import UNIFORM, VARYING, WARP, ZERO
from gpuless.emulator.ptx import BITS
from gpuless.emulator.ptx.instructions import listed
from gpuless.emulator.translate.addresses import NEAR, check_alignment, place, pointers_of, space_of
from gpuless.emulator.translate.doubts import either, right
from gpuless.emulator.translate.gathers import gather_sum, scatter_sum
from gpuless.emulator.translate.masked import load_next, store_next
from gpuless.emulator.translate.rows import load_rows, rows_of, store_rows
from gpuless.emulator.translate.strides import has_strides, strides, ways
from gpuless.emulator.translate.typed import joined, resize
from gpuless.emulator.translate.values import ALL, ONE, Value, translates

WINDOW = 4 * WARP  # at most so many numbers are loaded at once and shuffled


def _shifted(t, pointer, offset):
    return t.new(f"getelementptr i8, ptr {pointer}, i64 {offset}") if offset else pointer


# --- Loads --------------------------------------------------------------------------------------------------


def load(t, where, bits, count, note=""):
    """Load `count` neighbouring numbers for each lane; return them as values."""
    size = bits // 8
    if where.pointers is None:
        if where.distances == ZERO:
            return [
                Value(
                    UNIFORM,
                    t.new(f"load {note}i{bits}, ptr {_shifted(t, where.pointer, i * size)}, align {size}"),
                )
                for i in range(count)
            ]
        if count == 1 and where.distances == tuple(size * lane for lane in range(WARP)):
            return [Value(VARYING, None, _load_next(t, where.pointer, bits))]
        found = _load_window(t, where, bits, count)
        if found:
            return [Value(VARYING, None, vector) for vector in found]
    return [Value(VARYING, None, _gather(t, where, bits, i * size, count == 1)) for i in range(count)]


def _load_checked(t, address, space, bits, count, note):
    """Load; if an assumption about the address must be checked, in one of two ways."""
    value = t.operand(address.base)
    if count == 1 and not note and has_strides(t, address, space):
        return _load_in_strides(t, address, space, bits, note)
    rows, size = count == 1 and rows_of(t, address, bits), count * bits // 8
    if value.check is None and not rows:
        return load(t, place(t, address, space, size), bits, count, note)
    t.mask_vector()
    check_alignment(t, value, t.function.registers.get(address.base, 64), address, size)

    def piece(checked):
        if checked and rows:
            return [load_rows(t, address, space, bits)]
        found = load(t, place(t, address, space, checked=checked), bits, count, note)
        return [t.vector(value, bits) for value in found]

    if value.check is None:
        return [Value(VARYING, None, vector) for vector in piece(True)]
    pieces = [lambda: piece(False), lambda: piece(True)]
    found = either(t, right(t, value), pieces, ALL.int(bits), count)
    return [Value(VARYING, None, vector) for vector in found]


def _load_in_strides(t, address, space, bits, note):
    """Load from addresses that are a stride apart, in the fastest way for the actual stride.

    If the assumption is false, or an address is misaligned, load lane by lane.
    """
    value, size = t.operand(address.base), bits // 8
    t.mask_vector()
    found = strides(t, address, bits, NEAR)
    safe = t.all_of(right(t, value), found.even)

    def one_by_one():
        check_alignment(t, value, 64, address, size)
        return t.vector(load(t, place(t, address, space), bits, 1, note)[0], bits)

    def first_of(ways):
        if not ways:
            return one_by_one()
        (condition, piece), *others = ways
        pieces = [lambda: [first_of(others)], lambda: [piece()]]
        return either(t, t.all_of(safe, condition), pieces, ALL.int(bits), 1)[0]

    return [Value(VARYING, None, first_of(ways(t, found, bits)))]


def _load_next(t, pointer, bits):
    """Load from neighbouring addresses, one number for each lane."""
    if not t.masked:
        return t.new(f"load {ALL.int(bits)}, ptr {pointer}, align {bits // 8}")
    return load_next(t, pointer, bits, t.mask_vector())


def _gather(t, where, bits, offset, alone=False):
    steady = where.steady and alone
    return gather_sum(t, where.sum, bits, offset, lambda: pointers_of(t, where, offset), steady)


def _load_window(t, where, bits, count):
    """Load all bytes between the first and the last, and pick each lane's; None if there are too many."""
    size = bits // 8
    low = min(where.distances)
    if any((distance - low) % size for distance in where.distances):
        return None
    first = [(distance - low) // size for distance in where.distances]
    width = max(first) + count
    few = len(set(first)) * count <= 8
    if width > WINDOW and not few:
        return None

    def at_once():
        if few:
            return _pick_few(t, where.pointer, low, first, bits, count)
        pointer = _shifted(t, where.pointer, low)
        whole = t.new(f"load <{width} x i{bits}>, ptr {pointer}, align {size}")
        return [t.shuffle(whole, None, f"i{bits}", width, [at + i for at in first]) for i in range(count)]

    if not t.masked:
        return at_once()
    t.mask_vector()
    pieces = [lambda: [_gather(t, where, bits, i * size) for i in range(count)], at_once]
    bytes_ = (max(first) + count) * size
    may = _fits(t, where.pointer, low, bytes_) if where.safe else t.new(f"icmp eq i32 {t.mask}, -1")
    return either(t, may, pieces, ALL.int(bits), count)


def _fits(t, pointer, low, size):
    """Return whether `size` bytes are within the block's shared memory."""
    root, at = t.new("ptrtoint ptr %shared to i64"), t.new(f"ptrtoint ptr {pointer} to i64")
    start = t.new(f"add i64 {t.new(f'sub i64 {at}, {root}')}, {low}")
    t.module.declare("i64 @llvm.usub.sat.i64(i64, i64)")
    room = t.new(f"call i64 @llvm.usub.sat.i64(i64 %shared.room, i64 {size - 1})")
    return t.new(f"icmp ult i64 {start}, {room}")


def _pick_few(t, pointer, low, first, bits, count):
    """Load the few different numbers one by one, and shuffle them to the lanes."""
    size, places = bits // 8, sorted(set(first))
    found = []
    for i in range(count):
        vector = "poison"
        for slot, at in enumerate(places):
            one = t.new(f"load i{bits}, ptr {_shifted(t, pointer, low + (at + i) * size)}, align {size}")
            vector = t.new(f"insertelement <{WARP} x i{bits}> {vector}, i{bits} {one}, i64 {slot}")
        found.append(t.shuffle(vector, None, f"i{bits}", WARP, [places.index(at) for at in first]))
    return found


@translates("ld", "ldu")
def _ld(t, instruction):
    space, type_ = space_of(instruction), instruction.opcode[-1]
    bits, address = BITS[type_], instruction.operands[1]
    targets = listed(instruction.operands[0])
    if space == "param":
        values = t.module.parameter(t, address, bits, len(targets))
    else:
        order = _order(instruction)
        values = _load_checked(t, address, space, bits, len(targets), "volatile " if order else "")
        if order:
            t.line(f"fence {order}")
    for target, value in zip(targets, values, strict=True):
        t.write(target, _extended(t, value, bits, t.function.registers.get(target, bits), type_[0] == "s"))


def _order(instruction):
    """Return the ordering of the fence after a load or before a store, or None.

    Volatile and relaxed accesses are only ordered among themselves; LLVM must not reorder them either.
    """
    found = _ORDERS.keys() & instruction.opcode
    return _ORDERS[found.pop()] if found else None


_ORDERS = {"acquire": "acquire", "release": "release"}
_ORDERS |= dict.fromkeys(("volatile", "relaxed"), 'syncscope("singlethread") seq_cst')


def _extended(t, value, have, want, signed):
    if have >= want:
        return value
    if value.kind is not VARYING:
        return Value(UNIFORM, resize(t, ONE, value.scalar, have, want, signed))
    return Value(VARYING, None, resize(t, ALL, t.vector(value, have), have, want, signed))


# --- Stores -------------------------------------------------------------------------------------------------


@translates("st")
def _st(t, instruction):
    space, type_ = space_of(instruction), instruction.opcode[-1]
    bits = BITS[type_]
    address, given, *_ = instruction.operands  # a cache hint may follow
    if "async" in instruction.opcode or "bulk" in instruction.opcode:
        t.refuse()
    widths = t.function.registers
    values = [narrowed(t, t.operand(n, type_), widths.get(n, bits), bits) for n in listed(given)]
    if space == "param":
        t.module.set_parameter(t, address, bits, values)
        return
    order = _order(instruction)
    if order:
        t.line(f"fence {order}")
    _store_checked(t, address, space, bits, values)


def _store_checked(t, address, space, bits, values):
    """Store; if an assumption about the address must be checked, in one of two ways."""
    to = t.operand(address.base)
    rows = len(values) == 1 and rows_of(t, address, bits) and not to.assumed.uniform
    size = len(values) * bits // 8
    if to.check is None and not rows:
        store(t, place(t, address, space, size), bits, values)
        return
    t.mask_vector()
    check_alignment(t, to, t.function.registers.get(address.base, 64), address, size)

    def piece(checked):
        if checked and rows:
            store_rows(t, address, space, bits, t.vector(values[0], bits))
        else:
            store(t, place(t, address, space, checked=checked), bits, values)
        return ()

    if to.check is None:
        piece(True)
    else:
        either(t, right(t, to), [lambda: piece(False), lambda: piece(True)], None, 0)


def narrowed(t, value, have, bits):
    """Return an integer truncated to a smaller width."""
    if have <= bits:
        return value
    if value.kind is not VARYING and value.kind.constant and value.kind.uniform:
        return value._replace(scalar=str(int(value.scalar) & ((1 << bits) - 1)))
    if value.kind is not VARYING:
        return Value(value.kind, resize(t, ONE, value.scalar, have, bits))
    return Value(VARYING, None, resize(t, ALL, t.vector(value, have), have, bits))


def store(t, where, bits, values):
    """Store neighbouring numbers for each lane; of lanes at the same address the last one wins."""
    size, count = bits // 8, len(values)
    if where.pointers is None and where.distances == ZERO:
        for i, value in enumerate(values):
            pointer = _shifted(t, where.pointer, i * size)
            t.line(f"store i{bits} {_last(t, value, bits)}, ptr {pointer}, align {size}")
        return
    vectors = [t.vector(value, bits) for value in values]

    def one_by_one():
        for i, vector in enumerate(vectors):
            at = functools.partial(pointers_of, t, where, i * size)
            scatter_sum(t, where.sum, bits, vector, i * size, at)
        return ()

    step = tuple(size * lane for lane in range(WARP))
    if where.pointers is None and count == 1 and where.distances == step:
        _store_next(t, where.pointer, bits, vectors[0])
        return
    runs = _runs(where, size, count)
    if not runs or 2 * len(runs) > count * WARP:
        one_by_one()
    elif not t.masked:
        _store_runs(t, where, bits, vectors, runs)
    else:
        t.mask_vector()
        pieces = [one_by_one, lambda: _store_runs(t, where, bits, vectors, runs)]
        either(t, t.new(f"icmp eq i32 {t.mask}, -1"), pieces, None, 0)


def _runs(where, size, count):
    """Return the runs of neighbouring numbers that all lanes store: lists of (distance, lane, value's index).

    Of lanes at the same address it has the last one. Empty if addresses are unknown, or if some overlap.
    """
    found = {}
    for lane, distance in enumerate(where.distances or ()):
        found |= {distance + i * size: (lane, i) for i in range(count)}
    if any((distance - min(found)) % size for distance in found):
        return []
    runs = []
    for distance, (lane, i) in sorted(found.items()):
        if not runs or distance != runs[-1][-1][0] + size:
            runs.append([])
        runs[-1].append((distance, lane, i))
    return runs


def _last(t, value, bits):
    """Return the number of the last lane that is on."""
    if value.kind is not VARYING and value.kind.uniform:
        return value.scalar
    vector = t.vector(value, bits)
    if not t.masked:
        return t.new(f"extractelement {ALL.int(bits)} {vector}, i64 {WARP - 1}")
    t.module.declare("i32 @llvm.ctlz.i32(i32, i1)")
    lane = t.new(f"sub i32 31, {t.new(f'call i32 @llvm.ctlz.i32(i32 {t.mask}, i1 true)')}")
    return t.new(f"extractelement {ALL.int(bits)} {vector}, i32 {lane}")


def _store_next(t, pointer, bits, vector):
    """Store to neighbouring addresses, one number for each lane."""
    if t.masked:
        store_next(t, pointer, bits, vector, t.mask_vector())
    else:
        t.line(f"store {ALL.int(bits)} {vector}, ptr {pointer}, align {bits // 8}")


def _store_runs(t, where, bits, vectors, runs):
    """Store each run of neighbouring numbers at once; all lanes are on."""
    width = WARP * len(vectors)
    whole = joined(t, vectors, f"i{bits}", width)
    for run in runs:
        part = t.shuffle(whole, None, f"i{bits}", width, [i * WARP + lane for _, lane, i in run])
        pointer = _shifted(t, where.pointer, run[0][0])
        t.line(f"store <{len(run)} x i{bits}> {part}, ptr {pointer}, align {bits // 8}")
    return ()


@translates("prefetch", "prefetchu", "discard", "applypriority")
def _nothing(t, instruction):
    """Do nothing: cache hints have no effect."""
