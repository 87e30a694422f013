"""Tensor Cores, in IR: products of small matrices whose elements are distributed over the lanes of a warp.

A matrix is held in fragments (PTX ISA 9.7.14 and 9.7.15, "Matrix Fragments"): eight rows by four lanes, each
lane with one register of neighbours along the common dimension, and as many such blocks as the shape needs.
PTX leaves the fragments of `wmma` open; here they are those of `mma`.

All lanes compute their elements of the result at once, from a column of A and a row of B that constant
shuffles bring. Products are exact. NVIDIA doesn't document how the hardware adds. Sums in float32 are those
of an H200, bit for bit (`cut_off_sums`). Other sums start from C and add in the order of the common
dimension, each rounded to float32 (float64 for that type; integers are exact). A float16 is rounded once, at
the end.
"""

import re
from typing import NamedTuple

from gpuless.emulator.analysis.lanes import VARYING, WARP
from gpuless.emulator.ptx import BITS
from gpuless.emulator.ptx.instructions import listed
from gpuless.emulator.translate.addresses import place, pointers_of, space_of, spread
from gpuless.emulator.translate.cut_off_sums import added_up
from gpuless.emulator.translate.masked import gather, scatter
from gpuless.emulator.translate.small_floats import from_eight
from gpuless.emulator.translate.typed import Integers, Typed, joined
from gpuless.emulator.translate.values import ALL, Value, translates

_BITS = {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4, "b1": 1}
_BITS |= dict.fromkeys(("e4m3", "e5m2", "s8", "u8"), 8)
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_INT, _LONG, _FLOAT = ALL.int(32), ALL.int(64), ALL.float(32)


class _Kind(NamedTuple):
    """A product of matrices: its shape, and the types of D, A, B and C."""

    rows: int
    columns: int
    depth: int
    types: tuple
    saturated: bool
    logic: str | None  # for single bits: "and" or "xor"

    @property
    def packed(self):
        """Elements of A or B in a register."""
        return max(1, 32 // _BITS[self.types[1]])

    @property
    def blocks(self):
        """Registers along the common dimension."""
        return self.depth // (4 * self.packed)


def _dimensions(opcode):
    return tuple(map(int, next(filter(None, map(_SHAPE.match, opcode))).groups()))


def _kind_of(opcode):
    types = tuple(part for part in opcode if part in _BITS or part in ("f32", "s32"))
    if len(types) == 2:  # `wmma` omits the types of A and B if they are float16
        types = types[0], "f16", "f16", types[1]
    logic = next((part for part in opcode if part in ("and", "xor")), None)
    return _Kind(*_dimensions(opcode), types, "satfinite" in opcode, logic)


_SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "s8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "s4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
_SHAPES |= {"u8": _SHAPES["s8"], "u4": _SHAPES["s4"], "e4m3": ("m16n8k32",), "e5m2": ("m16n8k32",)}


@translates("mma")
def _mma(t, instruction):
    opcode = instruction.opcode
    types = [part for part in opcode if part in _BITS or part in ("f32", "s32")]
    if opcode[1] != "sync" or not set(_SHAPES.get(types[1], ())).intersection(opcode):
        t.refuse()
    _multiply(t, instruction)


def _multiply(t, instruction):
    kind = _kind_of(instruction.opcode)
    target, *given = (listed(operand) for operand in instruction.operands)
    widths = [BITS.get(type_, 32) if type_ == "f64" else 32 for type_ in kind.types]
    pairs = zip(given, widths[1:], strict=True)
    registers = [[t.vector(t.operand(name, f"b{bits}"), bits) for name in names] for names, bits in pairs]
    counts = tuple(map(len, registers))
    name = "mma." + ".".join(map(str, (*kind[:3], *kind.types, *counts, kind.saturated, kind.logic)))
    _define(t, name, kind, counts, widths)
    flat = [(register, bits) for part, bits in zip(registers, widths[1:], strict=True) for register in part]
    slot = f"%matrices.{len(flat)}.{widths[0]}"
    t.slots[slot] = f"[{len(flat)} x {ALL.int(widths[0])}]"
    for i, (register, bits) in enumerate(flat):
        t.line(f"store {ALL.int(bits)} {register}, ptr {_at(t, slot, i, widths[0])}")
    t.line(f"call void @{name}(ptr {slot})")
    for i, register in enumerate(target):
        found = t.new(f"load {ALL.int(widths[0])}, ptr {_at(t, slot, i, widths[0])}")
        t.write(register, Value(VARYING, None, found))


def _at(t, slot, i, bits):
    return t.new(f"getelementptr {ALL.int(bits)}, ptr {slot}, i64 {i}")


def _define(t, name, kind, counts, widths):
    """Define the function of a kind of product, from the registers of A, B and C to those of D."""
    if name in t.module.definitions:
        return
    outside, t.lines = t.lines, []
    type_ = ALL.int(widths[0])
    registers = [t.new(f"load {type_}, ptr {_at(t, '%all', i, widths[0])}") for i in range(sum(counts))]
    a, b = registers[: counts[0]], registers[counts[0] : counts[0] + counts[1]]
    results = (_count_bits if kind.types[1] == "b1" else _sum)(t, kind, a, b, registers[-counts[2] :])
    for i, result in enumerate(results):
        t.line(f"store {type_} {result}, ptr {_at(t, '%all', i, widths[0])}")
    body, t.lines = "\n".join(t.lines), outside
    t.module.define(name, f"define internal void @{name}(ptr %all) #1 {{\n{body}\n  ret void\n}}\n")


# Each group of four lanes has a row of A and of the result; each of its lanes has two columns of that row.
_ROW = [[lane & ~3 | other for lane in range(WARP)] for other in range(4)]
_COLUMN = [[[4 * (2 * (lane & 3) + j) + other for lane in range(WARP)] for other in range(4)] for j in (0, 1)]


def _sum(t, kind, a, b, c):
    """Return the registers of A times B plus C."""
    f = Typed(t, ALL, "f64" if kind.types[1] == "f64" else "f32")
    a, b = (
        [_elements(t, register, type_) for register in registers]
        for registers, type_ in ((a, kind.types[1]), (b, kind.types[2]))
    )
    totals = _accumulators(t, kind, c)
    terms = [[] for _ in totals]
    bands = kind.rows // 8
    for along in range(kind.depth):
        block, rest = divmod(along, 4 * kind.packed)
        owner, i = divmod(rest, kind.packed)
        rows = [
            t.shuffle(a[band + bands * block][i], None, f.element, WARP, _ROW[owner]) for band in range(bands)
        ]
        for column in range(kind.columns // 8):
            held = b[block + kind.blocks * column][i]
            for j in (0, 1):
                y = t.shuffle(held, None, f.element, WARP, _COLUMN[j][owner])
                for band, x in enumerate(rows):
                    at = 2 * (band + bands * column) + j
                    terms[at].append((x, y))
    totals = [added_up(t, f, kind.types, *each) for each in zip(terms, totals, strict=True)]
    return _finished(t, kind, totals, c)


def _elements(t, register, type_):
    """Return the numbers in a register of A or B, the lowest first."""
    i = Integers(t, ALL, 32)
    if type_ == "f64":
        return [t.new(f"bitcast {ALL.int(64)} {register} to {ALL.float(64)}")]
    if type_ == "tf32":
        return [t.new(f"bitcast {_INT} {i('and', register, -(1 << 13))} to {_FLOAT}")]
    if type_ == "f16":
        return [t.new(f"fpext {ALL.float(16)} {half} to {_FLOAT}") for half in _halves(t, register)]
    if type_ == "bf16":
        halves = i("shl", register, 16), i("and", register, -(1 << 16))
        return [t.new(f"bitcast {_INT} {half} to {_FLOAT}") for half in halves]
    bits, signed = _BITS[type_], type_[0] == "s"
    if type_[0] == "e":
        bytes_ = [i("lshr", register, 8 * place) for place in range(4)]
        return [from_eight(t, ALL, type_, byte) for byte in bytes_]
    found = []
    for at in range(32 // bits):
        up = i("shl", register, 32 - bits * (at + 1))
        down = i("ashr" if signed else "lshr", up, 32 - bits)
        found.append(t.new(f"sitofp {_INT} {down} to {_FLOAT}"))  # exact, as are their products and sums
    return found


def _halves(t, register):
    """Return the two float16 numbers of a register."""
    both = t.new(f"bitcast {_INT} {register} to <{2 * WARP} x half>")
    return [t.shuffle(both, None, "half", 2 * WARP, range(i, 2 * WARP, 2)) for i in (0, 1)]


def _accumulators(t, kind, c):
    """Return the initial values of the sums."""
    type_ = kind.types[3]
    if type_ == "f16":
        return [t.new(f"fpext {ALL.float(16)} {half} to {_FLOAT}") for one in c for half in _halves(t, one)]
    if type_ == "s32":
        return ["zeroinitializer"] * len(c)
    bits = BITS[type_]
    return [t.new(f"bitcast {ALL.int(bits)} {one} to {ALL.float(bits)}") for one in c]


def _finished(t, kind, totals, c):
    """Return the sums as registers of the result."""
    type_ = kind.types[0]
    if type_ == "s32":
        totals = [t.new(f"fptosi {_FLOAT} {total} to {_INT}") for total in totals]
        return _added(t, kind, totals, c)
    if type_ == "f16":
        halves = [t.new(f"fptrunc {_FLOAT} {total} to {ALL.float(16)}") for total in totals]
        order = [WARP * (i & 1) + i // 2 for i in range(2 * WARP)]
        pairs = [
            t.shuffle(low, high, "half", WARP, order)
            for low, high in zip(halves[::2], halves[1::2], strict=True)
        ]
        return [t.new(f"bitcast <{2 * WARP} x half> {pair} to {_INT}") for pair in pairs]
    bits = BITS[type_]
    return [t.new(f"bitcast {ALL.float(bits)} {total} to {ALL.int(bits)}") for total in totals]


def _added(t, kind, totals, c):
    """Return integer sums plus C, wrapped around or saturated."""
    i = Integers(t, ALL, 32)
    pairs = zip(totals, c, strict=True)
    return [i.call("sadd.sat", *pair) if kind.saturated else i("add", *pair) for pair in pairs]


def _count_bits(t, kind, a, b, c):
    """Return the registers of C plus the bits set in the `and` or `xor` of A's rows and B's columns."""
    bands, i = kind.rows // 8, Integers(t, ALL, 32)
    totals = list(c)
    for at in range(4 * kind.blocks):
        block, owner = divmod(at, 4)
        for band in range(bands):
            x = t.shuffle(a[band + bands * block], None, "i32", WARP, _ROW[owner])
            for j in (0, 1):
                y = t.shuffle(b[block], None, "i32", WARP, _COLUMN[j][owner])
                count = i.call("ctpop", i(kind.logic, x, y))
                totals[2 * band + j] = i("add", totals[2 * band + j], count)
    return totals


# --- Loading and storing whole matrices ---------------------------------------------------------------------


@translates("wmma")
def _wmma(t, instruction):
    opcode = instruction.opcode
    if opcode[1] == "mma":
        _multiply(t, instruction)
    elif opcode[1] == "load":
        _load_whole(t, instruction)
    else:
        _store_whole(t, instruction)


def _fragment(dimensions, which, bits, count):
    """Return, for each register, the (rows, columns) of its elements; each is a list over the lanes."""
    rows, columns, depth = dimensions
    packed = max(1, 32 // bits)
    group, member = [lane >> 2 for lane in range(WARP)], [lane & 3 for lane in range(WARP)]
    found = []
    if which in "ab":
        bands, blocks = (rows if which == "a" else columns) // 8, depth // (4 * packed)
        for register in range(count):
            # If there are more registers than elements, as for float16, they repeat.
            at = register % (bands * blocks)
            band, block = (at % bands, at // bands) if which == "a" else (at // blocks, at % blocks)
            outer = [8 * band + g for g in group]
            inner = [[packed * (4 * block + m) + i for m in member] for i in range(packed)]
            found.append([(outer, along) if which == "a" else (along, outer) for along in inner])
        return found
    for at in range(count * packed):
        tile, j = divmod(at, 2)
        column, band = divmod(tile, rows // 8)
        found.append(([8 * band + g for g in group], [8 * column + 2 * m + j for m in member]))
    return [found[i : i + packed] for i in range(0, len(found), packed)]


def _places(t, instruction, which, count, address, stride=None):
    """Return, for each register, the pointers to its elements, or one pointer if they are neighbours."""
    opcode = instruction.opcode
    bits = _BITS.get(opcode[-1], 32)
    across, dimensions = "col" in opcode, _dimensions(opcode)
    if stride is None:
        rows, columns = (dimensions[i] for i in {"a": (0, 2), "b": (2, 1)}.get(which, (0, 1)))
        step = f"splat (i64 {rows if across else columns})"
    else:
        step = t.new(f"zext {_INT} {t.vector(t.operand(stride, 'u32'), 32)} to {_LONG}")
    found = []
    for elements in _fragment(dimensions, which, bits, count):
        at = [(column, row) if across else (row, column) for row, column in elements]
        neighbours = all(line == at[0][0] for line, _ in at)
        pointers, i = [], Integers(t, ALL, 64)
        for line, along in at[:1] if neighbours else at:
            offset = i("add", i("mul", step, _constants(line)), _constants(along))
            offset = i("lshr", i("mul", offset, bits), 3)
            pointers.append(spread(t, address, space_of(instruction), offset))
        found.append(pointers)
    return found


def _constants(numbers):
    return f"<{', '.join(f'i64 {number}' for number in numbers)}>"


def _load_whole(t, instruction):
    """Write `wmma.load`."""
    names, address, *stride = instruction.operands
    names = listed(names)
    width = 64 if instruction.opcode[-1] == "f64" else 32
    for name, pointers in zip(
        names, _places(t, instruction, instruction.opcode[2], len(names), address, *stride), strict=True
    ):
        bits = width // len(pointers)
        found, int_ = "zeroinitializer", Integers(t, ALL, 32)
        for i, each in enumerate(pointers):
            one = gather(t, each, bits)
            if bits < width:
                one = int_("shl", int_.resized(one, bits), bits * i)
            found = one if i == 0 else int_("or", found, one)
        t.write(name, Value(VARYING, None, found))


def _store_whole(t, instruction):
    """Write `wmma.store`."""
    address, names, *stride = instruction.operands
    names = listed(names)
    width = 64 if instruction.opcode[-1] == "f64" else 32
    for name, pointers in zip(names, _places(t, instruction, "d", len(names), address, *stride), strict=True):
        vector = t.vector(t.operand(name, f"b{width}"), width)
        bits, int_ = width // len(pointers), Integers(t, ALL, 32)
        for i, each in enumerate(pointers):
            one = vector
            if bits < width:
                one = int_.of(bits).resized(int_("lshr", vector, bits * i), 32)
            scatter(t, each, bits, one)


# --- Matrices of eight rows of eight 16-bit numbers ---------------------------------------------------------

_ROWS = f"<{2 * WARP} x i16>"
#: The indices of each lane's two numbers of the transposed matrix.
_TRANSPOSED = [8 * (2 * (lane & 3) + i) + (lane >> 2) for lane in range(WARP) for i in (0, 1)]


def _transposed(t, register):
    """Return the register of the transposed matrix."""
    numbers = t.new(f"bitcast {_INT} {register} to {_ROWS}")
    return t.new(f"bitcast {_ROWS} {t.shuffle(numbers, None, 'i16', 2 * WARP, _TRANSPOSED)} to {_INT}")


def _row_pointers(t, instruction, address):
    """Return the pointers to rows; those in lanes that are off are arbitrary."""
    # With fewer than four matrices some lanes have no row, so no alignment is required.
    size = 16 if "x4" in instruction.opcode else 1
    return t.new(f"freeze <{WARP} x ptr> {pointers_of(t, place(t, address, space_of(instruction), size))}")


def _eight_by_eight(t, instruction):
    if "m8n8" not in instruction.opcode or instruction.opcode[-1] != "b16":
        t.refuse()
    return "trans" in instruction.opcode


@translates("ldmatrix")
def _ldmatrix(t, instruction):
    transposed = _eight_by_eight(t, instruction)
    names, address = instruction.operands
    names = listed(names)
    pointers, registers = _row_pointers(t, instruction, address), []
    for matrix in range(len(names)):
        pieces = []
        for row in range(8):
            pointer = t.new(f"extractelement <{WARP} x ptr> {pointers}, i64 {8 * matrix + row}")
            pieces.append(t.new(f"load <4 x i32>, ptr {pointer}, align 4"))
        whole = joined(t, pieces, "i32")
        registers.append(_transposed(t, whole) if transposed else whole)
    for name, register in zip(names, registers, strict=True):
        t.write(name, Value(VARYING, None, register))


@translates("stmatrix")
def _stmatrix(t, instruction):
    transposed = _eight_by_eight(t, instruction)
    address, names = instruction.operands
    names = listed(names)
    pointers = _row_pointers(t, instruction, address)
    for matrix, name in enumerate(names):
        register = t.vector(t.operand(name, "b32"), 32)
        register = _transposed(t, register) if transposed else register
        for row in range(8):
            pointer = t.new(f"extractelement <{WARP} x ptr> {pointers}, i64 {8 * matrix + row}")
            piece = t.shuffle(register, None, "i32", WARP, range(4 * row, 4 * row + 4))
            t.line(f"store <4 x i32> {piece}, ptr {pointer}, align 4")


@translates("movmatrix")
def _movmatrix(t, instruction):
    _eight_by_eight(t, instruction)
    target, source = instruction.operands
    t.write(target, Value(VARYING, None, _transposed(t, t.vector(t.operand(source, "b32"), 32))))
