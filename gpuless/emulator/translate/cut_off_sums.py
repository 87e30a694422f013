"""Sums of float32 as the Tensor Cores of an H100 and an H200 compute them, in IR."""

import functools

from gpuless.emulator.translate.typed import Integers, Typed
from gpuless.emulator.translate.values import ALL

# Products and the sum are truncated at 2^-25 of their largest power of two before they are added.
_KEPT = 25
_LEAST = -133  # the minimum of that largest power
_SUBNORMAL = 2.0**-126, 2.0**149  # float32 numbers below the first are multiples of 1 / the second


def added_up(t, f, types, pairs, total):
    """Return a number plus products, as an H200 adds them or one by one; `types`: of D, A, B and C."""
    if types[0] == "f32" and types[1] in ("tf32", "f16", "bf16"):
        return _cut_off_sum(t, f, types[1], pairs, total)
    for x, y in pairs:
        total = f.call("fma", x, y, total)
    return total


def _cut_off_sum(t, f, type_, pairs, total):
    """Return the sum of products and a float32, as an H100 and an H200 compute it.

    Each summand is truncated at 2^-25 of the largest power of two among them; the power of a product is the
    sum of its factors' powers. Then all are added exactly, and the total is truncated to float32. As on an
    H100, subnormal numbers count with the smallest power of their type; the largest power is at least -133.
    """
    wide, whole, powers = Typed(t, ALL, "f64"), Integers(t, ALL, 32), []
    terms = [(wide("fmul", *(f.change(wide, x) for x in pair)), pair) for pair in pairs]
    terms.append((f.change(wide, total), (total,)))
    least = 127 - 14 if type_ == "f16" else 1  # of the exponents of factors, as float32 has them
    for term, factors in terms:
        fields = [whole("and", whole("lshr", f.to_int(x), 23), 0xFF) for x in factors]
        fields = [whole.call("smax", field, 1 if len(factors) == 1 else least) for field in fields]
        power = whole("sub", functools.reduce(lambda a, b: whole("add", a, b), fields), 127 * len(fields))
        powers.append(whole.select(wide("fcmp oeq", term, 0.0), _LEAST, power))
    largest = functools.reduce(lambda a, b: whole.call("smax", a, b), powers, _LEAST)
    up, unit = (_power_of_two(t, whole, wide, largest, sign) for sign in (-1, 1))
    parts = [wide.call("trunc", wide("fmul", term, up)) for term, _ in terms]
    exact = wide("fmul", functools.reduce(lambda a, b: wide("fadd", a, b), parts), unit)
    # Truncate to float32.
    kept = wide.to_float(wide.bitwise("and", wide.to_int(exact), -1 << 29))
    first, step = _SUBNORMAL
    few = wide("fmul", wide.call("trunc", wide("fmul", exact, step)), 1 / step)
    return wide.change(f, wide.select(wide("fcmp olt", wide.call("fabs", exact), first), few, kept))


def _power_of_two(t, whole, wide, power, sign):
    """Return 2 ** (sign * (power - _KEPT))."""
    field = whole("add", whole("mul", power, sign), 1023 - sign * _KEPT)
    return wide.to_float(wide.bitwise("shl", t.new(f"zext {ALL.int(32)} {field} to {ALL.int(64)}"), 52))
