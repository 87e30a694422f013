"""Products of fragments of matrices, and their ways to and from memory, against the layouts that PTX states.

Where an element of a matrix is, the PTX manual tells by a formula for each shape and type; they stand here as
they do there. A product is compared with sums of exact fractions.
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
BITS |= {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}


def sizes(shape):
    return tuple(map(int, shape[1:].replace("n", " ").replace("k", " ").split()))


def registers(matrix, layout, bits):
    """Return what each thread's registers hold of a matrix of bit patterns."""
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
    """Return the matrix of which the threads hold these registers, laid out as a result is."""
    matrix, width = [[None] * columns for _ in range(rows)], max(bits, 32)
    for lane in range(32):
        together = sum(int(register) << width * i for i, register in enumerate(held[lane]))
        for i in range(rows * columns // 32):
            row, column = result_layout(lane >> 2, lane % 4, i)
            matrix[row][column] = together >> bits * i & ((1 << bits) - 1)
    return matrix


def multiply(instruction, given, results, bits):
    """Return what registers an instruction leaves in each thread, from those of A, B and C."""
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


def value(bits, type_):
    """Return the number that bits stand for: a fraction, or a float that is none; tf32 has ten bits of 23."""
    if type_ == "tf32":
        bits &= -1 << 13
    exponent_bits, fraction_bits = FORMATS[type_]
    sign = -1 if bits >> (exponent_bits + fraction_bits) & 1 else 1
    exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if exponent:
        fraction |= 1 << fraction_bits
    return sign * Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)


def rounded(exact, type_):
    """Return the bits of the nearest number of a type; the sign of a zero is left open, and the NaN."""
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


def product(a, b, c, types, shape):
    """Return the bits of A B + C: of C and the products, one after the other."""
    m, n, k = sizes(shape)
    within = "f64" if types[1] == "f64" else "f32"
    x = [[value(bits, types[1]) for bits in row] for row in a]
    y = [[value(bits, types[2]) for bits in row] for row in b]
    found = []
    for i in range(m):
        found.append([])
        for j in range(n):
            total = value(c[i][j], types[3])
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
EDGES["tf32"] = [*EDGES["f32"][:3], 0x00002000, 0x80002000, 0x7F7FE000, 0xFF7FFFFF, 1 << 31]


def filled(rows, columns, type_, rng, edges=False):
    """Return a matrix of random bits: plain numbers about one, with some that are at the edge."""
    exponent_bits, fraction_bits = FORMATS[type_]
    bias = (1 << (exponent_bits - 1)) - 1

    def one():
        if edges and rng.random() < 0.04:
            return rng.choice(EDGES[type_])
        exponent = bias + rng.randrange(-3, 4)
        sign = rng.randrange(2) << (exponent_bits + fraction_bits)
        return sign | exponent << fraction_bits | rng.randrange(1 << fraction_bits)

    return [[one() for _ in range(columns)] for _ in range(rows)]


FLOATS = [
    (shape, f"{d}.f16.f16.{c}")
    for shape in ("m16n8k8", "m16n8k16")
    for d, c in (("f32", "f32"), ("f16", "f16"))
]
FLOATS += [("m16n8k8", "f32.bf16.bf16.f32"), ("m16n8k16", "f32.bf16.bf16.f32")]
FLOATS += [("m16n8k16", "f32.f16.f16.f16"), ("m16n8k8", "f16.f16.f16.f32")]
FLOATS += [("m16n8k4", "f32.tf32.tf32.f32"), ("m16n8k8", "f32.tf32.tf32.f32")]
FLOATS += [(shape, "f64.f64.f64.f64") for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")]


@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize(("shape", "types"), FLOATS)
def test_products_of_floating_point_matrices(shape, types, edges):
    rng, (m, n, k), names = random.Random(f"{shape} {types}"), sizes(shape), types.split(".")
    a, b = filled(m, k, names[1], rng, edges), filled(k, n, names[2], rng, edges)
    c = filled(m, n, names[3], rng, edges)
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


@pytest.mark.parametrize("saturated", ["", ".satfinite"])
@pytest.mark.parametrize("signs", ["ss", "su", "us", "uu"])
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
