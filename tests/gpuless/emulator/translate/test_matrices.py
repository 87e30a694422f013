"""Products of fragments of matrices, and their loads and stores, against the layouts in the PTX manual.

The PTX manual has a formula for the place of an element for each shape and type; they are here as
there. A product is compared with sums of exact fractions.
"""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from ptx_programs import run

# --- Where the elements of matrices are: (row, column) of element i in thread t of group g -----------------

A = {
    ("m16n8k8", 16): lambda g, t, i: (g if i < 2 else g + 8, 2 * t + (i & 1)),
    ("m16n8k16", 16): lambda g, t, i: (
        g if i < 2 or 4 <= i < 6 else g + 8,
        2 * t + (i & 1) + (8 if i >= 4 else 0),
    ),
    ("m16n8k4", 32): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("m16n8k8", 32): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    ("m8n8k16", 8): lambda g, t, i: (g, 4 * t + i),
    ("m16n8k16", 8): lambda g, t, i: (g if i < 4 else g + 8, 4 * t + (i & 3)),
    ("m16n8k32", 8): lambda g, t, i: (
        g if i < 4 or 8 <= i < 12 else g + 8,
        4 * t + (i & 3) + (16 if i >= 8 else 0),
    ),
    ("m8n8k32", 4): lambda g, t, i: (g, 8 * t + i),
    ("m16n8k32", 4): lambda g, t, i: (g if i < 8 else g + 8, 8 * t + (i & 7)),
    ("m16n8k64", 4): lambda g, t, i: (
        g if i < 8 or 16 <= i < 24 else g + 8,
        8 * t + (i & 7) + (32 if i >= 16 else 0),
    ),
    ("m8n8k128", 1): lambda g, t, i: (g, 32 * t + i),
    ("m16n8k128", 1): lambda g, t, i: (g if i < 32 else g + 8, 32 * t + (i & 31)),
    ("m16n8k256", 1): lambda g, t, i: (
        g if i < 32 or 64 <= i < 96 else g + 8,
        32 * t + (i & 31) + (128 if i >= 64 else 0),
    ),
    ("m8n8k4", 64): lambda g, t, i: (g, t),
    ("m16n8k4", 64): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("m16n8k8", 64): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    ("m16n8k16", 64): lambda g, t, i: (g if i % 2 == 0 else g + 8, 2 * i + t - (0 if i % 2 == 0 else 2)),
}
B = {
    ("m16n8k8", 16): lambda g, t, i: (2 * t + i, g),
    ("m16n8k16", 16): lambda g, t, i: (2 * t + (i & 1) + (8 if i >= 2 else 0), g),
    ("m16n8k4", 32): lambda g, t, i: (t, g),
    ("m16n8k8", 32): lambda g, t, i: (t if i == 0 else t + 4, g),
    ("m8n8k16", 8): lambda g, t, i: (4 * t + i, g),
    ("m16n8k16", 8): lambda g, t, i: (4 * t + i, g),
    ("m16n8k32", 8): lambda g, t, i: (4 * t + (i & 3) + (16 if i >= 4 else 0), g),
    ("m8n8k32", 4): lambda g, t, i: (8 * t + i, g),
    ("m16n8k32", 4): lambda g, t, i: (8 * t + i, g),
    ("m16n8k64", 4): lambda g, t, i: (8 * t + (i & 7) + (32 if i >= 8 else 0), g),
    ("m8n8k128", 1): lambda g, t, i: (32 * t + i, g),
    ("m16n8k128", 1): lambda g, t, i: (32 * t + i, g),
    ("m16n8k256", 1): lambda g, t, i: (32 * t + (i & 31) + (128 if i >= 32 else 0), g),
    ("m8n8k4", 64): lambda g, t, i: (t, g),
    ("m16n8k4", 64): lambda g, t, i: (t, g),
    ("m16n8k8", 64): lambda g, t, i: (t + 4 * i, g),
    ("m16n8k16", 64): lambda g, t, i: (t + 4 * i, g),
}


def result_layout(g, t, i):
    return (g if i < 2 else g + 8), 2 * t + (i & 1)


BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32}
BITS |= {"e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}


def sizes(shape):
    return tuple(map(int, shape[1:].replace("n", " ").replace("k", " ").split()))


def registers(matrix, layout, bits):
    """Return the registers of each thread for a matrix of bit patterns."""
    rows, columns = len(matrix), len(matrix[0])
    elements = rows * columns // 32
    width = max(bits, 32)
    found = []
    for lane in range(32):
        together = 0
        for i in range(elements):
            row, column = layout(lane >> 2, lane % 4, i)
            together |= matrix[row][column] << bits * i
        found.append([together >> width * i & ((1 << width) - 1) for i in range(elements * bits // width)])
    return found


def matrix_of(held, rows, columns, bits):
    """Return the matrix from the threads' registers, in the layout of a result."""
    matrix, width = [[None] * columns for _ in range(rows)], max(bits, 32)
    for lane in range(32):
        together = sum(int(register) << width * i for i, register in enumerate(held[lane]))
        for i in range(rows * columns // 32):
            row, column = result_layout(lane >> 2, lane % 4, i)
            matrix[row][column] = together >> bits * i & ((1 << bits) - 1)
    return matrix


def multiply(instruction, given, results, bits):
    """Return each thread's registers after an instruction, from those of A, B and C."""
    dtype = np.uint64 if bits == 64 else np.uint32
    arrays = [np.array(one, dtype) for one in given] + [np.zeros((32, results), dtype)]
    size, kind = bits // 8, f"b{bits}"
    lines, operands = [], []
    for i, array in enumerate(arrays):
        count = array.shape[1]
        names = [f"%m{i}{j}" for j in range(count)]
        lines += [f".reg .{kind} {', '.join(names)};", f"ld.param.u64 %a{i}, [p{i}];"]
        lines += [f"mul.wide.u32 %y, %t, {count * size}; add.s64 %a{i}, %a{i}, %y;"]
        if i < len(given):
            lines += [f"ld.global.{kind} {name}, [%a{i}+{size * j}];" for j, name in enumerate(names)]
        operands.append("{" + ", ".join(names) + "}")
    lines.append(f"{instruction} {operands[-1]}, {', '.join(operands[:-1])};")
    last = len(given)
    lines += [f"st.global.{kind} [%a{last}+{size * j}], %m{last}{j};" for j in range(results)]
    parameters = ", ".join(f".param .u64 p{i}" for i in range(len(arrays)))
    text = f".visible .entry f({parameters})\n{{ .reg .b64 %a<9>, %y; .reg .b32 %t; mov.u32 %t, %tid.x;\n"
    return run(text + "\n".join(lines) + "\nret; }", arrays)[-1].tolist()


# --- Numbers ------------------------------------------------------------------------------------------------

FORMATS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 23), "f32": (8, 23), "f64": (11, 52)}
FORMATS |= {"e4m3": (4, 3), "e5m2": (5, 2)}


def value(bits, type_):
    """Return the number of some bits: a fraction, or a float if it is none; tf32 has ten bits of 23."""
    if type_ == "tf32":
        bits &= -1 << 13
    exponent_bits, fraction_bits = FORMATS[type_]
    sign = -1 if bits >> (exponent_bits + fraction_bits) & 1 else 1
    exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if type_ == "e4m3":  # has no infinity, and one NaN
        if bits & 0x7F == 0x7F:
            return math.nan
    elif exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if exponent:
        fraction |= 1 << fraction_bits
    return sign * Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)


def rounded(exact, type_):
    """Return the bits of the nearest number of a type; the sign of zero and the NaN are arbitrary."""
    exponent_bits, fraction_bits = FORMATS[type_]
    if isinstance(exact, float):
        if math.isnan(exact):
            return None
        high = (1 << exponent_bits) - 1 << fraction_bits
        return high | (1 << (exponent_bits + fraction_bits) if exact < 0 else 0)
    least = 2 - (1 << (exponent_bits - 1)) - fraction_bits
    size = abs(exact)
    at = least
    if size:
        at = max(least, size.numerator.bit_length() - size.denominator.bit_length() - fraction_bits - 1)
        while size / Fraction(2) ** at >= 1 << (fraction_bits + 1):
            at += 1
    whole = round(size / Fraction(2) ** at)  # ties go to even
    pattern = whole + (at - least << fraction_bits) if whole >> fraction_bits else whole
    infinite = (1 << exponent_bits) - 1 << fraction_bits
    return min(pattern, infinite) | (1 << (exponent_bits + fraction_bits) if exact < 0 else 0)


def step(total, a, b, type_):
    """Return a number plus a product, rounded once."""
    if isinstance(a, float) or isinstance(b, float):
        return float(a) * float(b) + float(total)
    if isinstance(total, float):
        return total
    return value(rounded(total + a * b, type_), type_)


def cut_off_sum(total, pairs):
    """Return a number plus products as an H200 adds them: `tests/benchmarks` has recorded results."""
    numbers = [total, *(number for pair in pairs for number in pair)]
    if any(isinstance(number, float) for number in numbers):  # infinite, or none
        return sum((float(x) * float(y) for x, y in pairs), float(total))
    powers = [power(x) + power(y) for x, y in pairs if x and y] + ([power(total)] if total else [])
    unit = Fraction(2) ** (max(powers, default=0) - 25)
    exact = sum(math.trunc(term / unit) for term in [total, *(x * y for x, y in pairs)]) * unit
    place = Fraction(2) ** max(power(exact) - 23, -149) if exact else 1
    return math.trunc(exact / place) * place


def power(number):
    """Return the exponent of the largest power of two that is no larger."""
    found = abs(number).numerator.bit_length() - number.denominator.bit_length()
    return found if abs(number) >= Fraction(2) ** found else found - 1


def product(a, b, c, types, shape):
    """Return the bits of A B + C: of C and the products, one after the other, or as Tensor Cores add."""
    m, n, k = sizes(shape)
    cut_off = types[0] == "f32" and types[1] in ("f16", "bf16", "tf32")
    within = "f64" if types[1] == "f64" else "f32"
    x = [[value(bits, types[1]) for bits in row] for row in a]
    y = [[value(bits, types[2]) for bits in row] for row in b]
    found = []
    for i in range(m):
        found.append([])
        for j in range(n):
            total = value(c[i][j], types[3])
            if cut_off:
                total = cut_off_sum(total, [(x[i][at], y[at][j]) for at in range(k)])
            else:
                for at in range(k):
                    total = step(total, x[i][at], y[at][j], within)
            found[-1].append(rounded(total, types[0]))
    return found


EDGES = {
    "f16": [0x7C00, 0xFC00, 0x7E01, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x8000],
    "bf16": [0x7F80, 0xFF80, 0x7FC1, 0x0001, 0x807F, 0x7F7F, 0xFF7F, 0x8000],
    "f32": [0x7F800000, 0xFF800000, 0x7FC00001, 1, 0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 1 << 31],
    "f64": [0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48 | 1, 1, 1 << 63 | 5, (0x7FF << 52) - 1, 1 << 63],
}
EDGES |= {"e4m3": [0x7F, 0x7E, 0xFE, 1, 0x87, 0x80, 0x78, 0x08]}
EDGES |= {"e5m2": [0x7C, 0xFC, 0x7D, 0x7B, 0xFB, 1, 0x83, 0x80]}
EDGES["tf32"] = [*EDGES["f32"][:3], 0x00002000, 0x80002000, 0x7F7FE000, 0xFF7FFFFF, 1 << 31]


def filled(rows, columns, type_, rng, at_edge):
    """Return a matrix of random bits: plain numbers near one, and some edge cases."""
    exponent_bits, fraction_bits = FORMATS[type_]
    bias = (1 << (exponent_bits - 1)) - 1

    def one(row, column):
        if at_edge(row, column) and rng.random() < 0.15:
            return rng.choice(EDGES[type_])
        exponent = bias + rng.randrange(-3, 4)
        sign = rng.randrange(2) << (exponent_bits + fraction_bits)
        return sign | exponent << fraction_bits | rng.randrange(1 << fraction_bits)

    return [[one(row, column) for column in range(columns)] for row in range(rows)]


FLOATS = [
    (shape, f"{d}.f16.f16.{c}")
    for shape in ("m16n8k8", "m16n8k16")
    for d, c in (("f32", "f32"), ("f16", "f16"))
]
FLOATS += [("m16n8k8", "f32.bf16.bf16.f32"), ("m16n8k16", "f32.bf16.bf16.f32")]
FLOATS += [("m16n8k16", "f32.f16.f16.f16"), ("m16n8k8", "f16.f16.f16.f32")]
FLOATS += [("m16n8k32", "f32.e4m3.e5m2.f32"), ("m16n8k32", "f16.e5m2.e4m3.f16")]
FLOATS += [("m16n8k4", "f32.tf32.tf32.f32"), ("m16n8k8", "f32.tf32.tf32.f32")]
FLOATS += [(shape, "f64.f64.f64.f64") for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")]


@pytest.mark.parametrize(("shape", "types"), FLOATS)
def test_products_of_floating_point_matrices(shape, types):
    rng, (m, n, k), names = random.Random(f"{shape} {types}"), sizes(shape), types.split(".")
    a = filled(m, k, names[1], rng, lambda row, _: row % 4 == 1)
    b = filled(k, n, names[2], rng, lambda _, column: column == 3)
    c = filled(m, n, names[3], rng, lambda row, _: row % 4 == 2)
    bits = BITS[names[1]]
    given = [registers(a, A[shape, bits], bits), registers(b, B[shape, bits], bits)]
    given.append(registers(c, result_layout, BITS[names[3]]))
    width = 64 if bits == 64 else 32
    instruction = f"mma.sync.aligned.{shape}.row.col.{types}"
    held = multiply(instruction, given, m * n * BITS[names[0]] // 32 // width, width)
    found = matrix_of(held, m, n, BITS[names[0]])
    wanted = product(a, b, c, names, shape)
    for i in range(m):
        for j in range(n):
            if wanted[i][j] is None:
                assert isinstance(value(found[i][j], names[0]), float), (i, j)
                assert math.isnan(value(found[i][j], names[0])), (i, j)
            elif value(wanted[i][j], names[0]) != 0 or value(found[i][j], names[0]) != 0:
                assert found[i][j] == wanted[i][j], (i, j)


INTEGERS = [
    ("m8n8k16", 8),
    ("m16n8k16", 8),
    ("m16n8k32", 8),
    ("m8n8k32", 4),
    ("m16n8k32", 4),
    ("m16n8k64", 4),
]


@pytest.mark.parametrize(
    ("signs", "saturated"), [("ss", ""), ("su", ".satfinite"), ("us", ""), ("uu", ".satfinite")]
)
@pytest.mark.parametrize(("shape", "bits"), INTEGERS)
def test_products_of_integer_matrices(shape, bits, signs, saturated):
    rng, (m, n, k) = random.Random(f"{shape} {signs}"), sizes(shape)
    a, b = ([[rng.randrange(1 << bits) for _ in range(w)] for _ in range(h)] for h, w in ((m, k), (k, n)))
    c = [[rng.choice([0, 5, 2**31 - 1, 2**31, 2**32 - 1, 2**31 - 99]) for _ in range(n)] for _ in range(m)]
    a[0], a[-1] = [1 << (bits - 1)] * k, [(1 << bits) - 1] * k
    instruction = f"mma.sync.aligned.{shape}.row.col{saturated}.s32.{signs[0]}{bits}.{signs[1]}{bits}.s32"
    given = [registers(a, A[shape, bits], bits), registers(b, B[shape, bits], bits)]
    held = multiply(instruction, [*given, registers(c, result_layout, 32)], m * n // 32, 32)
    found = matrix_of(held, m, n, 32)

    def plain(number, sign, width):
        return number - (1 << width) if sign == "s" and number >> (width - 1) else number

    for i in range(m):
        for j in range(n):
            total = sum(plain(a[i][at], signs[0], bits) * plain(b[at][j], signs[1], bits) for at in range(k))
            total += plain(c[i][j], "s", 32)
            if saturated:
                total = max(-(1 << 31), min((1 << 31) - 1, total))
            assert found[i][j] == total & 0xFFFFFFFF, (i, j)


@pytest.mark.parametrize("logic", ["xor", "and"])
@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
def test_products_of_bits(shape, logic):
    rng, (m, n, k) = random.Random(shape), sizes(shape)
    a, b = ([[rng.randrange(2) for _ in range(w)] for _ in range(h)] for h, w in ((m, k), (k, n)))
    c = [[rng.randrange(1 << 32) for _ in range(n)] for _ in range(m)]
    instruction = f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{logic}.popc"
    given = [registers(a, A[shape, 1], 1), registers(b, B[shape, 1], 1), registers(c, result_layout, 32)]
    found = matrix_of(multiply(instruction, given, m * n // 32, 32), m, n, 32)
    pair = {"xor": lambda x, y: x ^ y, "and": lambda x, y: x & y}[logic]
    for i in range(m):
        for j in range(n):
            count = sum(pair(a[i][at], b[at][j]) for at in range(k))
            assert found[i][j] == count + c[i][j] & 0xFFFFFFFF, (i, j)


# --- Eight by eight: to and from shared memory ------------------------------------------------------------


def pieces(matrix, lane):
    """Return the 32 bits of a thread from a matrix of 16-bit numbers: two neighbours of a row."""
    row, column = lane >> 2, 2 * (lane % 4)
    return int(matrix[row][column]) | int(matrix[row][column + 1]) << 16


FILL = """
.shared .align 16 .b8 buffer[4096];
.visible .entry f(.param .u64 p0, .param .u64 p1, .param .u64 p2)
{ .reg .b32 %r<20>, %t, %s; .reg .b64 %a<9>, %y; .reg .pred %p;
ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1]; ld.param.u64 %a2, [p2];
mov.u32 %t, %tid.x; mul.wide.u32 %y, %t, 4; add.s64 %a1, %a1, %y; ld.global.u32 %s, [%a1];
mul.wide.u32 %y, %t, 16; add.s64 %a0, %a0, %y; add.s64 %a2, %a2, %y;
mov.u32 %r9, buffer; add.u32 %r10, %r9, %s;
"""


def exchange(body, matrices, offsets):
    """Return the results of threads, four words each: their row of the matrices is at an offset."""
    rows = np.concatenate(matrices)
    given = np.zeros((32, 8), np.uint16)
    given[: len(rows)] = rows
    out = np.zeros((32, 4), np.uint32)
    return run(FILL + body + "\nret; }", [given, np.array(offsets, np.uint32), out])[-1]


@pytest.mark.parametrize("transposed", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(count, transposed):
    rng = np.random.default_rng(count)
    matrices = [rng.integers(0, 1 << 16, (8, 8), np.uint16) for _ in range(count)]
    wanted = [matrix.T if transposed else matrix for matrix in matrices]
    order = rng.permutation(64)[:32] * 16  # rows lie anywhere
    registers = ["%r1", "%r2", "%r3", "%r4"][:count]
    listed = "{" + ", ".join(registers) + "}"
    body = (
        "ld.global.v4.u32 {%r11, %r12, %r13, %r14}, [%a0]; st.shared.v4.u32 [%r10], {%r11, %r12, %r13, %r14};"
    )
    body += f" ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {listed}, [%r10];"
    body += "".join(f" st.global.u32 [%a2+{4 * i}], {one};" for i, one in enumerate(registers))
    found = exchange(body, matrices, order)
    for lane in range(32):
        assert found[lane, :count].tolist() == [pieces(matrix, lane) for matrix in wanted], lane
    # And back, with four numbers from each thread.
    given = "".join(f" ld.global.u32 {one}, [%a0+{4 * i}];" for i, one in enumerate(registers))
    body = given + f" stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [%r10], {listed};"
    words = "{%r11, %r12, %r13, %r14}"
    body += f" ld.shared.v4.u32 {words}, [%r10]; st.global.v4.u32 [%a2], {words};"
    held = rng.integers(0, 1 << 32, (32, 4), np.uint32)
    found = exchange(body, [held.view(np.uint16).reshape(32, 8)], order).view(np.uint16).reshape(32, 8)
    for i in range(count):
        matrix = found[8 * i : 8 * i + 8]
        matrix = matrix.T if transposed else matrix
        assert [pieces(matrix, lane) for lane in range(32)] == held[:, i].tolist()


def test_movmatrix():
    matrix = np.random.default_rng(1).integers(0, 1 << 16, (8, 8), np.uint16)
    out = np.zeros(32, np.uint32)
    text = ".visible .entry f(.param .u64 p0) { .reg .b32 %r<3>, %t; .reg .b64 %a, %y; ld.param.u64 %a, [p0];"
    text += "mov.u32 %t, %tid.x; mul.wide.u32 %y, %t, 4; add.s64 %a, %a, %y; ld.global.u32 %r1, [%a];"
    text += "movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.global.u32 [%a], %r2; ret; }"
    (out,) = run(text, [np.array([pieces(matrix, lane) for lane in range(32)], np.uint32)])
    assert out.tolist() == [pieces(matrix.T, lane) for lane in range(32)]


# --- Whole matrices: wmma ---------------------------------------------------------------------------------

DTYPES = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "f64": np.float64, "s32": np.int32}
DTYPES |= {"s8": np.int8, "u8": np.uint8, "bf16": np.uint16}
WHOLE = [
    (shape, "f16", result) for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for result in ("f16", "f32")
]
WHOLE += [(shape, "bf16", "f32") for shape in ("m16n16k16", "m32n8k16", "m8n32k16")]
WHOLE += [(shape, kind, "s32") for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for kind in ("s8", "u8")]
WHOLE += [("m16n16k8", "tf32", "f32"), ("m8n8k4", "f64", "f64")]
REPEATED = [("m32n8k16", "f16", "f16"), ("m8n32k16", "f16", "f32")]
REPEATED += [("m32n8k16", "u8", "s32"), ("m8n32k16", "s8", "s32")]
COUNTS = {"f16": lambda elements: 8, "bf16": lambda elements: elements // 64, "tf32": lambda elements: 4}
COUNTS |= {
    "f64": lambda elements: 1,
    "s8": lambda elements: elements // 128,
    "u8": lambda elements: elements // 128,
}


def stored(matrix, layout, stride, dtype):
    """Return a matrix as in memory, its rows or columns a stride apart, with nines between them."""
    lines = matrix if layout == "row" else matrix.T
    memory = np.full((len(lines), stride), 9, dtype)
    memory[:, : lines.shape[1]] = lines
    return memory.ravel()


@pytest.mark.exhaustive_unless(
    lambda shape, kind, result: (shape, kind, result) not in REPEATED,
    "their shapes for another type of as many bits, and square matrices of their types",
)
@pytest.mark.parametrize(("shape", "kind", "result"), WHOLE)
def test_whole_matrices(shape, kind, result):
    (m, n, k), rng = sizes(shape), np.random.default_rng(len(shape + kind))
    layouts = [("row", "col", "col"), ("col", "row", "row")]
    for la, lb, lc in layouts if shape == "m16n16k16" else layouts[m > n :][:1]:
        low = 0 if kind == "u8" else -4
        a, b, c = (rng.integers(low, 5, size).astype(np.float64) for size in ((m, k), (k, n), (m, n)))
        right = a @ b + c
        strides = {"a": 48, "b": 40, "c": 56}
        as_stored = (lambda x: x.astype(np.float32).view(np.uint32) >> 16) if kind == "bf16" else lambda x: x
        arrays = [
            stored(as_stored(a), la, strides["a"], DTYPES[kind]),
            stored(as_stored(b), lb, strides["b"], DTYPES[kind]),
            stored(c, lc, strides["c"], DTYPES[result]),
        ]
        width = "b64" if kind == "f64" else "b32"
        counts = [COUNTS[kind](m * k), COUNTS[kind](k * n), m * n // (64 if result == "f16" else 32)]
        names = [
            "{" + ", ".join(f"%{one}{i}" for i in range(count)) + "}"
            for one, count in zip("xyz", counts, strict=True)
        ]
        text = ".visible .entry f(.param .u64 p0, .param .u64 p1, .param .u64 p2) {\n"
        text += f".reg .{width} %x<9>, %y<9>, %z<9>; .reg .b32 %s; .reg .b64 %a<3>;\n"
        for i, (one, layout, type_) in enumerate((("a", la, kind), ("b", lb, kind), ("c", lc, result))):
            text += f"ld.param.u64 %a{i}, [p{i}]; mov.u32 %s, {strides[one]};\n"
            text += f"wmma.load.{one}.sync.aligned.{layout}.{shape}.global.{type_} "
            text += f"{names[i]}, [%a{i}], %s;\n"
        types = f"{result}.{result}" if kind == "f16" else f"{result}.{kind}.{kind}.{result}"
        text += f"wmma.mma.sync.aligned.{la}.{lb}.{shape}.{types} "
        text += f"{names[2]}, {names[0]}, {names[1]}, {names[2]};\n"
        text += f"wmma.store.d.sync.aligned.{lc}.{shape}.global.{result} "
        text += f"[%a2], {names[2]}, {strides['c']}; ret; }}"
        found = run(text, arrays)[-1]
        assert np.array_equal(found, stored(right, lc, strides["c"], DTYPES[result])), (la, lb, lc)
