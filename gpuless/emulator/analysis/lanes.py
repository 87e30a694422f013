"""What the 32 lanes of a warp hold: one number, one number plus known distances, or anything.

Most registers of a kernel are the same in all lanes, or differ by the lane's position in the block: a row, a
column, an address. They need no vector. `Lanes` describes such a register by lane 0, which one scalar
instruction computes, and by the distances of the other lanes from it, which are known at compile time.

The functions are the rules for operations on such operands, exact modulo a power of two, as registers are. To
widen a sum from 32 to 64 bits needs a proof that no lane wraps around; `assume` waives it for addresses,
whose lanes cannot be 16 GB apart.
"""

import functools
from typing import NamedTuple

from gpuless.limits import WARP

ZERO = (0,) * WARP


class Lanes(NamedTuple):
    """Lane i holds the number of lane 0 plus ``offsets[i]``; a constant holds just ``offsets[i]``.

    `align`: lane 0 holds a multiple of ``2 ** align``; `rows`: if the rows of a block are shorter than a
    warp, the number of rows that are described separately: distances are then from the first lane of each
    row, and the distances of rows are unknown; `unit`: the kernel parameter, such as a stride, that the
    distances are multiplied by; `size`: all lanes fit into this many bits.
    """

    offsets: tuple
    align: int = 0
    constant: bool = False
    rows: int = 1
    unit: object = None
    size: int = 64

    @property
    def uniform(self):
        """Whether all lanes hold the same number."""
        return self.offsets is ZERO or self.offsets.count(self.offsets[0]) == WARP


VARYING = None  # nothing is known
UNIFORM = Lanes(ZERO)


def uniform(kind):
    """Return whether a kind is known to be the same number in all lanes."""
    return kind is not VARYING and kind.uniform


@functools.cache
def constant(*offsets):
    """Return the kind of constants: one for all lanes, or one for each."""
    return Lanes(offsets * WARP if len(offsets) == 1 else offsets, 64, True)


@functools.lru_cache(maxsize=4096)
def trailing_zeros(number):
    """Return the number of trailing zero bits; 64 for 0."""
    return (number & -number).bit_length() - 1 if number else 64


@functools.lru_cache(maxsize=4096)
def _distances(offsets):
    return ZERO if offsets.count(offsets[0]) == WARP else tuple(offset - offsets[0] for offset in offsets)


def relative(kind):
    """Return (distances from lane 0, alignment of lane 0)."""
    if kind.constant:
        return _distances(kind.offsets), trailing_zeros(kind.offsets[0])
    return kind.offsets, kind.align


def size_of(kind):
    """Return how many bits are enough for the number in any lane."""
    if not kind.constant:
        return kind.size
    return max(kind.offsets).bit_length() if min(kind.offsets) >= 0 else 64


@functools.lru_cache(maxsize=4096)
def _map(function, *offsets):
    result = tuple(map(function, *offsets))
    return ZERO if result == ZERO else result


@functools.lru_cache(maxsize=4096)
def nearest(offsets, bits):
    """Return distances modulo 2**bits, each as the number nearest to zero."""
    half = 1 << (bits - 1)
    if -half <= min(offsets) and max(offsets) < half:
        return offsets
    return _map(lambda offset: (offset + half) % (2 * half) - half, offsets)


def _apart(bits, distances, align):
    return Lanes(nearest(distances, bits), min(align, bits))


def _within(bits, kind):
    """Return whether adding the distances never carries into the bits of lane 0."""
    return min(kind.offsets) >= 0 and max(kind.offsets) < 1 << min(kind.align, bits)


@functools.lru_cache(maxsize=8192)
def join(x, y):
    """Return the kind of a register that is of one kind or the other."""
    if x == y:
        return x
    if x is VARYING or y is VARYING:
        return VARYING
    rows = max(x.rows, y.rows)
    if x.rows != y.rows:
        x, y = in_rows(x, rows), in_rows(y, rows)
        return join(x, y)
    (a, align_a), (b, align_b) = relative(x), relative(y)
    alike = a == b and (x.unit == y.unit or x.uniform)
    size = max(size_of(x), size_of(y))
    return Lanes(a, min(align_a, align_b), rows=rows, unit=x.unit, size=size) if alike else VARYING


@functools.lru_cache(maxsize=8192)
def in_rows(kind, rows):
    """Return a kind with each row of the warp described separately."""
    if kind is VARYING or kind.rows == rows:
        return kind
    width = WARP // rows
    starts = kind.offsets[::width]
    distances = tuple(offset - starts[lane // width] for lane, offset in enumerate(kind.offsets))
    if kind.rows > 1 or any(distances[lane] != distances[lane % width] for lane in range(WARP)):
        return VARYING
    align = min(kind.align, *map(trailing_zeros, starts))
    return (
        Lanes(distances, align, False, rows, kind.unit) if any(distances) else Lanes(ZERO, align, rows=rows)
    )


def _signed(number, bits):
    return number - (1 << bits) if number >> (bits - 1) & 1 else number


def _fold(function, bits, *kinds):
    mask = (1 << bits) - 1
    return constant(*_map(lambda *lanes: function(*lanes) & mask, *(kind.offsets for kind in kinds)))


def _add(bits, x, y):
    (a, align_a), (b, align_b) = relative(x), relative(y)
    return _apart(bits, a if b is ZERO else _map(int.__add__, a, b), min(align_a, align_b))


def _sub(bits, x, y):
    (a, align_a), (b, align_b) = relative(x), relative(y)
    return _apart(bits, a if b is ZERO else _map(int.__sub__, a, b), min(align_a, align_b))


def _mul(bits, x, y):
    if y.constant and y.uniform:
        x, y = y, x
    if x.constant and x.uniform:
        factor = _signed(x.offsets[0], bits)
        return _apart(bits, _map(lambda a: a * factor, y.offsets), y.align + trailing_zeros(factor))
    if x.uniform and y.uniform:
        return _apart(bits, ZERO, relative(x)[1] + relative(y)[1])
    return VARYING


def _shift_left(bits, x, y):
    if y.constant and y.uniform and y.offsets[0] < bits:
        return _mul(bits, x, constant(1 << y.offsets[0]))
    return _elementwise(x, y)


def _shift_right(bits, x, y):
    if y.constant and y.uniform and (x.uniform or _within(bits, x)):
        # If all bits in which lanes differ are shifted out, the offsets become zero.
        amount = y.offsets[0]
        size = max(min(x.size, bits) - amount, 0)
        return Lanes(_map(lambda a: a >> amount, x.offsets), max(x.align - amount, 0), size=size)
    return _elementwise(x, y)


def _shift_right_signed(bits, x, y):
    found = _shift_right(bits, x, y) if y.constant and x.align < bits - 1 else _elementwise(x, y)
    return found if found is VARYING or x.size < bits else found._replace(size=64)


def _and(bits, x, y):
    if x.constant:
        x, y = y, x
    if y.constant and y.uniform and (x.uniform or _within(bits, x)):
        mask = y.offsets[0]
        if mask < 1 << min(x.align, bits):
            return constant(*_map(lambda a: a & mask, x.offsets))
        align, size = max(x.align, min(trailing_zeros(mask), bits)), min(x.size, mask.bit_length())
        return Lanes(_map(lambda a: a & mask, x.offsets), align, size=size)
    return _elementwise(x, y)


def _or(bits, x, y):
    if x.constant:
        x, y = y, x
    for one, other in ((x, y), (y, x)):
        if other.uniform and size_of(one) <= min(relative(other)[1], bits):
            return _add(bits, x, y)  # the operands share no bit
    if y.constant and y.uniform and _within(bits, x):
        mask = y.offsets[0]
        return Lanes(_map(lambda a: a & ~mask, x.offsets), min(x.align, trailing_zeros(mask)))
    return _elementwise(x, y)


def _xor(bits, x, y):
    if x.constant:
        x, y = y, x
    if y.constant and y.uniform and _within(bits, x):
        low = y.offsets[0] & ((1 << x.align) - 1)
        return Lanes(_map(lambda a: (a ^ low) - low, x.offsets), min(x.align, trailing_zeros(y.offsets[0])))
    return _elementwise(x, y)


def _not(bits, x):
    if x.constant:
        return _fold(lambda a: ~a, bits, x)
    return Lanes(_map(int.__neg__, x.offsets), 0)


def _elementwise(*kinds):
    """Return the kind of any operation that works lane by lane."""
    return UNIFORM if all(kind.uniform for kind in kinds) else VARYING


def _folding(function, otherwise=lambda bits, *kinds: _elementwise(*kinds)):
    """Return a rule that folds constants, and leaves other kinds to `otherwise`."""

    def rule(bits, x, y):
        if x.constant and y.constant:
            return _fold(lambda a, b: function(a, b, bits), bits, x, y)
        return otherwise(bits, x, y)

    return rule


def widen(have, want, signed, x, assume=False):
    """Return the kind of a register of `have` bits that is converted to `want` bits."""
    if x.constant:
        cut = (1 << have) - 1
        return _fold(lambda a: _signed(a & cut, have) if signed else a & cut, want, x)
    if x.unit:
        return VARYING
    if want <= have:
        found = _apart(want, x.offsets, x.align)
        return found if x.rows == 1 else found._replace(rows=x.rows)
    if x.uniform or (_within(have, x) and x.align < have) or assume:
        return Lanes(nearest(x.offsets, have), min(x.align, have - 1), rows=x.rows)
    return VARYING


def select(condition, x, y):
    """Return the kind of ``x if condition else y``."""
    if condition.constant and condition.uniform:
        return x if condition.offsets[0] else y
    return join(x, y) if condition.uniform else VARYING


def compare(equality, x, y):
    """Return the kind of a comparison; `equality` if it is == or !=."""
    if equality and not (x.constant or y.constant) and x.offsets == y.offsets:
        return UNIFORM
    return _elementwise(x, y)


RULES = {
    "add": _folding(lambda a, b, _: a + b, _add),
    "sub": _folding(lambda a, b, _: a - b, _sub),
    "mul": _folding(lambda a, b, _: a * b, _mul),
    "shl": _folding(lambda a, b, bits: a << b if b < bits else 0, _shift_left),
    "shr.u": _folding(lambda a, b, bits: a >> b if b < bits else 0, _shift_right),
    "shr.s": _folding(lambda a, b, bits: _signed(a, bits) >> min(b, bits - 1), _shift_right_signed),
    "and": _folding(lambda a, b, _: a & b, _and),
    "or": _folding(lambda a, b, _: a | b, _or),
    "xor": _folding(lambda a, b, _: a ^ b, _xor),
    "not": _not,
    "neg": lambda bits, x: RULES["sub"](bits, constant(0), x),
    "min.u": _folding(lambda a, b, _: min(a, b)),
    "max.u": _folding(lambda a, b, _: max(a, b)),
    "div.u": _folding(lambda a, b, _: a // b if b else -1),
    "rem.u": _folding(lambda a, b, _: a % b if b else a),
}
#: The rules for computing addresses, whose lanes are known to stay near each other.
ADDRESSING = {"add", "sub", "mul", "shl", "neg"}


def combine(rule, bits, *kinds):
    """Return the kind of an integer operation: one of `RULES`, or any other that works lane by lane."""
    if VARYING in kinds:
        return VARYING
    if any(kind.unit for kind in kinds):
        return _in_units(rule, bits, *kinds)
    return RULES[rule](bits, *kinds) if rule in RULES else _elementwise(*kinds)


def _in_units(rule, bits, *kinds):
    """Return the kind of an operation on numbers whose distances are multiples of a parameter."""
    units = {kind.unit for kind in kinds if not kind.uniform}
    if len(units) > 1 or rule not in ADDRESSING:
        return VARYING
    found = RULES[rule](bits, *(kind._replace(unit=None) for kind in kinds))
    return found if found is VARYING or found.uniform else found._replace(unit=units.pop())


def times(kind, unit):
    """Return the kind that may be assumed for the product of a number and a parameter."""
    if kind is VARYING or kind.uniform or kind.unit:
        return VARYING
    return Lanes(relative(kind)[0], rows=kind.rows, unit=unit)


@functools.lru_cache(maxsize=8192)
def near(rule, bits, rows, *kinds):
    """Return the kind of an operation of `RULES` on addresses, with separate rows if necessary.

    A row's number times the length of a row is the same in all lanes of that row, but its distance from that
    of the next row is unknown before the kernel runs.
    """
    if VARYING in kinds:
        return VARYING
    if all(kind.rows == 1 for kind in kinds):
        whole = combine(rule, bits, *kinds)
        if whole is not VARYING or rows == 1:
            return whole
    each = [kind if kind.constant and kind.uniform else in_rows(kind, rows) for kind in kinds]
    if VARYING in each:
        return VARYING
    found = combine(rule, bits, *(kind._replace(rows=1) for kind in each))
    return VARYING if found is VARYING or found.constant else found._replace(rows=rows)
