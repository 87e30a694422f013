"""Facts about the lanes of a warp, against the numbers that 32 lanes compute."""

import pytest
from hypothesis import assume, given, settings, strategies as st

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import UNIFORM, VARYING, Lanes, constant
from gpuless.emulator.analysis.rules import special_registers

BITS = (16, 32, 64)
RNG = st.randoms(use_true_random=True)


def signed(number, bits):
    return number - (1 << bits) if number >> (bits - 1) & 1 else number


#: The operation of each rule, in plain integers: the width, then the operands of one lane.
OPERATIONS = {
    "add": lambda bits, a, b: a + b,
    "sub": lambda bits, a, b: a - b,
    "mul": lambda bits, a, b: a * b,
    "shl": lambda bits, a, b: a << b if b < bits else 0,
    "shr.u": lambda bits, a, b: a >> b if b < bits else 0,
    "shr.s": lambda bits, a, b: signed(a, bits) >> (b if b < bits else bits),
    "and": lambda bits, a, b: a & b,
    "or": lambda bits, a, b: a | b,
    "xor": lambda bits, a, b: a ^ b,
    "not": lambda bits, a: ~a,
    "neg": lambda bits, a: -a,
    "min.u": lambda bits, a, b: min(a, b),
    "max.u": lambda bits, a, b: max(a, b),
    "div.u": lambda bits, a, b: a // b,
    "rem.u": lambda bits, a, b: a % b,
    "min.s": lambda bits, a, b: min(signed(a, bits), signed(b, bits)),
    "popc": lambda bits, a: a.bit_count(),
}


def distances(rng, bits):
    """Return the distances of 32 lanes from the first, from the places of threads or at random."""
    form = rng.randrange(6)
    if form == 0:
        return (0, *(rng.randrange(-9, 1 << bits) for _ in range(31)))
    step = rng.choice([1, 2, 4, 16, 100, -1, -4, 1 << (bits - 3), 1 << (bits - 1)])
    row = rng.choice([1, 4, 8, 16, 32])
    if form == 1:
        return tuple(step * (lane // row) for lane in range(32))
    return tuple(step * (lane % row) for lane in range(32))


def number(rng, bits):
    """Return a number, often an edge case."""
    return rng.choice(
        [rng.randrange(70), 1 << rng.randrange(bits), -1, -rng.randrange(70), rng.getrandbits(bits)]
    )


def held(rng, bits):
    """Return a kind, and numbers of 32 lanes that it describes."""
    mask, form = (1 << bits) - 1, rng.randrange(6)
    if form == 0:
        value = number(rng, bits) & mask
        return constant(value), [value] * 32
    if form == 1:
        first = number(rng, bits)
        values = tuple(first + offset & mask for offset in distances(rng, bits))
        return constant(*values), list(values)
    align = rng.choice([0, 2, 5, 8, bits - 1, bits, bits + 3])
    first = number(rng, bits) << align & mask
    offsets = distances(rng, bits) if form > 2 else lanes.ZERO
    offsets = offsets if any(offsets) else lanes.ZERO
    numbers = [first + offset & mask for offset in offsets]
    size = rng.choice([64, max(numbers).bit_length()])
    return Lanes(offsets, align, size=size), numbers


def describes(kind, numbers, bits):
    """Return whether a description of numbers is true."""
    if kind is VARYING:
        return True
    if kind.constant:
        return list(kind.offsets) == numbers
    if kind.rows > 1:
        width = 32 // kind.rows
        rows = [numbers[at : at + width] * kind.rows for at in range(0, 32, width)]
        return all(describes(kind._replace(rows=1), row, bits) for row in rows)
    if max(numbers).bit_length() > kind.size:
        return False
    near = all((n - numbers[0] - o) % (1 << bits) == 0 for n, o in zip(numbers, kind.offsets, strict=True))
    return near and kind.offsets[0] == 0 and numbers[0] % (1 << kind.align) == 0


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(rng=RNG)
def test_rules_describe_what_lanes_compute(name, rng):
    operation = OPERATIONS[name]
    for _ in range(12):
        bits = rng.choice(BITS)
        mask = (1 << bits) - 1
        operands = [held(rng, bits) for _ in range(operation.__code__.co_argcount - 1)]
        if name.startswith("sh") and rng.random() < 0.8:
            amount = rng.randrange(bits + 3)
            operands[1] = constant(amount), [amount] * 32
        if name in ("div.u", "rem.u") and 0 in operands[1][1]:
            continue
        numbers = [
            operation(bits, *lane) & mask for lane in zip(*(held for _, held in operands), strict=True)
        ]
        kind = lanes.combine(name, bits, *(kind for kind, _ in operands))
        assert describes(kind, numbers, bits), (kind, numbers)


def held_in_rows(rng, bits, rows):
    """Return a kind that describes each of several rows by itself, and its numbers."""
    width, align = 32 // rows, rng.choice([0, 2, 5, 8])
    pattern = distances(rng, bits)[:width]
    starts = [number(rng, bits) << align for _ in range(rows)]
    offsets = pattern * rows if any(pattern) else lanes.ZERO
    numbers = [start + offset & ((1 << bits) - 1) for start in starts for offset in pattern]
    return Lanes(offsets, align, rows=rows), numbers


@pytest.mark.parametrize("name", [*sorted(lanes.ADDRESSING), "and", "shr.s"])
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(rng=RNG)
def test_rules_describe_rows_by_themselves(name, rng):
    operation = OPERATIONS[name]
    for _ in range(12):
        bits, rows = rng.choice(BITS), rng.choice((2, 4, 8))
        count = operation.__code__.co_argcount - 1
        operands = [
            held_in_rows(rng, bits, rows) if rng.random() < 0.5 else held(rng, bits) for _ in range(count)
        ]
        if name.startswith("sh") and rng.random() < 0.8:
            amount = rng.randrange(bits + 3)
            operands[1] = constant(amount), [amount] * 32
        mask = (1 << bits) - 1
        numbers = [operation(bits, *lane) & mask for lane in zip(*(n for _, n in operands), strict=True)]
        kind = lanes.near(name, bits, rows, *(kind for kind, _ in operands))
        assert describes(kind, numbers, bits), (kind, numbers)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(rng=RNG)
def test_facts_about_a_warp_hold_for_its_rows(rng):
    bits, rows = rng.choice(BITS), rng.choice((2, 4, 8))
    kind, numbers = held(rng, bits)
    assert describes(lanes.in_rows(kind, rows), numbers, bits)


def test_a_row_times_the_length_of_a_row():
    row, length = Lanes((0,) * 16 + (1,) * 16), UNIFORM
    start = lanes.near("mul", 64, 2, row, length)
    assert start == Lanes(lanes.ZERO, 0, rows=2)
    assert lanes.near("mul", 64, 1, row, length) is VARYING
    element = lanes.near("add", 64, 2, start, Lanes(tuple(range(16)) * 2))
    assert element == Lanes(tuple(range(16)) * 2, 0, rows=2)
    assert lanes.near("shl", 64, 2, element, constant(2)) == Lanes(tuple(range(0, 64, 4)) * 2, 2, rows=2)
    assert lanes.join(element, Lanes(tuple(range(16)) * 2, 3)) == element


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(rng=RNG)
def test_a_number_that_is_widened_or_cut(rng):
    width, have, want = (rng.choice((8, 16, 32, 64)) for _ in range(3))
    assume(width >= have)  # a register may be larger than the number that is read from it
    sign = rng.random() < 0.5
    kind, numbers = held(rng, width)
    cut = [number & ((1 << have) - 1) for number in numbers]
    wide = [(signed(number, have) if sign else number) & ((1 << want) - 1) for number in cut]
    found = lanes.widen(have, want, sign, kind)
    assert describes(found, wide, want), (found, wide)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(rng=RNG)
def test_lanes_that_do_not_wrap_stay_near_each_other(rng):
    sign = rng.random() < 0.5
    offsets = distances(rng, 16)
    align = rng.randrange(9)
    low, high = (-(1 << 31), (1 << 31) - 1) if sign else (0, (1 << 32) - 1)
    first = rng.randrange(low >> align, high >> align) << align
    exact = [first + offset for offset in offsets]
    assume(low <= min(exact) and max(exact) <= high)
    found = lanes.widen(32, 64, sign, Lanes(offsets, align), assume=True)
    assert found is not VARYING
    assert describes(found, [number & ((1 << 64) - 1) for number in exact], 64)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(rng=RNG)
def test_a_choice_is_described_by_what_both_sides_share(rng):
    bits = rng.choice(BITS)
    (x, a), (y, b) = held(rng, bits), held(rng, bits)
    if rng.random() < 0.5:  # often the same distances from another number
        y = Lanes(lanes.relative(x)[0], 2)
        first = 4 * rng.randrange(99)
        b = [first + offset & ((1 << bits) - 1) for offset in y.offsets]
    joined = lanes.join(x, y)
    assert describes(joined, a, bits)
    assert describes(joined, b, bits)
    assert lanes.join(x, VARYING) is VARYING
    assert lanes.join(x, x) == x


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(rng=RNG)
def test_a_choice(rng):
    bits = rng.choice(BITS)
    (x, a), (y, b) = held(rng, bits), held(rng, bits)
    flag = rng.randrange(2)
    mixed = [lane & 5 == flag for lane in range(32)]
    conditions = [(UNIFORM, [flag] * 32), (constant(flag), [flag] * 32), (constant(*mixed), mixed)]
    condition, flags = rng.choice(conditions)
    numbers = [p if c else q for c, p, q in zip(flags, a, b, strict=True)]
    assert describes(lanes.select(condition, x, y), numbers, bits)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(rng=RNG)
def test_a_comparison(rng):
    bits = rng.choice(BITS)
    (x, a), (y, b) = held(rng, bits), held(rng, bits)
    if rng.random() < 0.5 and not x.constant:
        first = a[0] + rng.randrange(-1, 2)
        y, b = Lanes(x.offsets, 0), [first + offset & ((1 << bits) - 1) for offset in x.offsets]
    equal = [int(p == q) for p, q in zip(a, b, strict=True)]
    less = [int(p < q) for p, q in zip(a, b, strict=True)]
    assert describes(lanes.compare(True, x, y), equal, 1)
    assert describes(lanes.compare(False, x, y), less, 1)


# --- That enough is known ----------------------------------------------------------------------------

THREAD = Lanes(tuple(range(32)), 5)  # %tid.x of a block of 64


def halves_joined(threads, mask):
    """Return what is known of the bits of a thread's number inside and outside a mask, joined."""
    thread = special_registers((threads, 1, 1))["%tid.x"]
    low, high = (lanes.combine("and", 32, thread, constant(m)) for m in (mask, mask ^ 0xFFFFFFFF))
    return lanes.combine("or", 32, low, high)


@pytest.mark.parametrize(
    ("found", "offsets"),
    [
        (lambda: lanes.combine("and", 32, THREAD, constant(7)), [i & 7 for i in range(32)]),
        (lambda: lanes.combine("shr.u", 32, THREAD, constant(3)), [i >> 3 for i in range(32)]),
        (lambda: lanes.combine("shr.s", 32, THREAD, constant(3)), [i >> 3 for i in range(32)]),
        (lambda: lanes.combine("mul", 32, THREAD, constant(12)), [12 * i for i in range(32)]),
        (lambda: lanes.combine("shl", 32, THREAD, constant(2)), [4 * i for i in range(32)]),
        (lambda: lanes.combine("add", 32, THREAD, UNIFORM), list(range(32))),
        (lambda: lanes.combine("or", 32, THREAD, constant(1)), [i & ~1 for i in range(32)]),
        (lambda: halves_joined(256, 63), list(range(32))),
        (lambda: lanes.widen(32, 64, False, THREAD), list(range(32))),
        (lambda: lanes.widen(32, 64, True, THREAD), list(range(32))),
        (lambda: lanes.combine("sub", 32, UNIFORM, THREAD), [-i for i in range(32)]),
        (
            lambda: lanes.combine(
                "add", 32, UNIFORM, lanes.combine("sub", 32, constant(*range(32)), constant(1))
            ),
            list(range(32)),
        ),
    ],
)
def test_places_of_threads_stay_known(found, offsets):
    assert list(found().offsets) == offsets


@pytest.mark.parametrize(
    ("block", "varying"),
    [
        ((8, 1, 1), ""),
        ((40, 1, 1), ""),
        ((1000, 1, 1), ""),
        ((16, 3, 1), ""),
        ((4, 4, 1), ""),
        ((8, 2, 3), ""),
        ((64, 3, 2), ""),
        ((10, 10, 1), "xy"),
        ((1, 40, 1), ""),
        ((1, 1, 20), ""),
        ((3, 5, 7), "xyz"),
    ],
)
def test_places_of_threads(block, varying):
    """A block need not fill its last warp: descriptions hold for the existing lanes."""
    x, y, z = block
    kinds = special_registers(block)
    for axis, name in enumerate("xyz"):
        kind = kinds[f"%tid.{name}"]
        assert (kind is VARYING) == (name in varying), name
        if kind is VARYING:
            continue
        for warp in range(-(-x * y * z // 32)):
            threads = range(32 * warp, min(32 * warp + 32, x * y * z))
            places = [(i % x, i // x % y, i // (x * y))[axis] for i in threads]
            offsets = kind.offsets[: len(places)]
            first = 0 if kind.constant else places[0]
            assert places == [first + offset for offset in offsets]
            assert kind.constant or places[0] % (1 << kind.align) == 0
