"""A float16 taken apart: an exercise of notebook 16."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, avoids


def decode(bits):
    """Return the number that 16 bits stand for."""
    return float(np.uint16(bits).view(np.float16))


def _fields(bits):
    return bits >> 15, bits >> 10 & 31, bits & 1023


def _decoded(
    bias=15,
    hidden=1.0,
    smallest=-14,
    subnormal=True,
    infinite=True,
    mantissa=1024,
    fields=_fields,
    whole="",
):
    """Return a function that decodes 16 bits, with one deviation from float16."""

    def read(bits):
        sign, exponent, fraction = fields(bits)
        factor = -1.0 if sign else 1.0
        if exponent == 31 and infinite:
            return factor * np.inf
        if exponent == 0 and subnormal:
            part = factor * fraction / mantissa
            part = float(np.floor(part)) if whole in ("all", "subnormal") else part
            return part * 2.0**smallest if subnormal != "zero" else 0 * factor
        part = fraction // mantissa if whole in ("all", "normal") else fraction / mantissa
        return factor * (hidden + part) * 2.0 ** (exponent - bias)

    return read


def _patterns(rng):
    """Draw numbers of every kind: of each sign, subnormal ones, both zeros and both infinities."""
    known = [0x3C00, 0xC000, 0x0000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00, 0x8000, 0x8123]
    drawn = rng.integers(0x0400, 0x7C00, 12) | rng.integers(0, 2, 12) << 15
    return [(int(bits),) for bits in (*known, *drawn, *rng.integers(1, 0x0400, 3))]


decode_float16 = Exercise(
    "decode_float16",
    reference=decode,
    cases=_patterns,
    properties=(avoids("float16", "view", "frombuffer", "unpack", "astype", "'float16'"),),
    mistakes={
        "negative throughout": (
            "Your positive numbers get a minus too. In Python `-1 ** sign` is `-(1 ** sign)`: write `(-1) "
            "** sign`.",
            lambda bits: -abs(decode(bits)),
            [("-1.0 if bits >> 15 else 1.0", "bits >> 15"), ("sign *", "-1.0 ** sign *", 3)],
        ),
        "sign as a factor": (
            "The sign bit is 0 or 1, but the factor is 1 or -1: `(-1) ** sign`.",
            lambda bits: (bits >> 15) * decode(bits & 0x7FFF),
            ("-1.0 if bits >> 15 else 1.0", "bits >> 15"),
        ),
        "whole division": (
            "`//` drops the fraction, but the mantissa is a fraction: divide with `/`.",
            _decoded(whole="all"),
            _decoded(whole="normal"),
            _decoded(whole="subnormal"),
            ("mantissa / 1024", "mantissa // 1024", 2),
            ("(1 + mantissa / 1024)", "(1 + mantissa // 1024)"),
            ("sign * mantissa / 1024", "sign * mantissa // 1024"),
        ),
        "bias": (
            "Your powers of two are off. The exponent field holds the exponent plus 15: subtract 15.",
            *(_decoded(bias=bias) for bias in (0, 14, 16, 127)),
            ("exponent - 15", "exponent - 16"),
            ("exponent - 15", "exponent - 14"),
            ("exponent - 15", "exponent - 127"),
        ),
        "leading 1 missing": (
            "A normal number is `1 + mantissa / 1024`, times a power of two: the leading 1 is not stored.",
            _decoded(hidden=0.0),
            ("(1 + mantissa / 1024)", "(mantissa / 1024)"),
        ),
        "subnormal numbers": (
            "With an exponent field of 0 there is no leading 1: the number is `mantissa / 1024 * 2**-14`.",
            _decoded(subnormal=False),
            ("if exponent == 0:", "if exponent < 0:"),
        ),
        "exponent of subnormal numbers": (
            "With an exponent field of 0 the exponent is -14, not -15; only the leading 1 is missing.",
            _decoded(smallest=-15),
            ("2.0**-14", "2.0**-15"),
        ),
        "subnormal numbers too small": (
            "With an exponent field of 0 the number is `mantissa / 1024 * 2**-14`. The $2^{{-24}}$ of the "
            "smallest already includes the division by 1024.",
            _decoded(smallest=-24),
            ("2.0**-14", "2.0**-24"),
        ),
        "subnormal numbers lost": (
            "An exponent field of 0 does not mean 0: the number is `mantissa / 1024 * 2**-14`.",
            _decoded(subnormal="zero"),
            ("sign * mantissa / 1024 * 2.0**-14", "sign * 0.0"),
        ),
        "sign in the exponent": (
            "Your exponent field contains the sign: after the shift by 10 keep five bits, `& 31`.",
            _decoded(fields=lambda bits: (bits >> 15, bits >> 10, bits & 1023)),
            ("bits >> 10 & 31", "bits >> 10"),
        ),
        "exponent in the mantissa": (
            "Your mantissa contains the bits above it: keep the lower ten, `{bits} & 1023`.",
            _decoded(fields=lambda bits: (bits >> 15, bits >> 10 & 31, bits)),
            _decoded(fields=lambda bits: (bits >> 15, bits >> 10 & 31, bits & 0x7FFF)),
            ("bits & 1023", "bits"),
        ),
        "width of the fields": (
            "Your fields have the wrong width: 1 bit of sign, 5 of exponent, 10 of mantissa.",
            *(
                _decoded(fields=lambda bits, e=e, m=m: (bits >> 15, bits >> 10 & e, bits & m))
                for e, m in ((31, 511), (31, 2047), (15, 1023), (31, 1024), (32, 1023))
            ),
            _decoded(fields=lambda bits: (bits >> 15, bits >> 11 & 31, bits & 1023)),
            _decoded(fields=lambda bits: (bits >> 15, bits >> 9 & 31, bits & 1023)),
            ("bits & 1023", "bits & 511"),
            ("bits & 1023", "bits & 1024"),
            ("bits >> 10 & 31", "bits >> 10 & 15"),
        ),
        "infinity without sign": (
            "There are two infinities: apply the sign to them too.",
            lambda bits: abs(decode(bits)) if np.isinf(decode(bits)) else decode(bits),
            ('sign * float("inf")', 'float("inf")'),
        ),
        "sign of normal numbers": (
            "Your normal numbers have no sign: bit 15 makes them negative too.",
            lambda bits: abs(decode(bits)) if 0 < _fields(bits)[1] < 31 else decode(bits),
            ("return sign * (1", "return (1"),
        ),
        "sign of subnormal numbers": (
            "Your subnormal numbers have no sign: bit 15 makes them negative too.",
            lambda bits: abs(decode(bits)) if _fields(bits)[1] == 0 else decode(bits),
            ("sign * mantissa / 1024", "mantissa / 1024"),
        ),
        "no infinity": (
            "An exponent field of 31 is special: with a mantissa of 0 it stands for infinity.",
            _decoded(infinite=False),
            ("if exponent == 31:", "if exponent == 32:"),
        ),
        "sign": (
            "The sign is missing: bit 15 makes a number negative.",
            _decoded(fields=lambda bits: _fields(bits & 0x7FFF)),
            ("-1.0 if", "1.0 if"),
        ),
        "mantissa": (
            "The mantissa has 10 bits: divide it by $2^{{10}}$, 1024.",
            *(_decoded(mantissa=count) for count in (512, 1000, 1023, 2048)),
            ("mantissa / 1024", "mantissa / 512", 2),
            ("mantissa / 1024", "mantissa / 2048", 2),
            ("mantissa / 1024", "mantissa / 1023", 2),
            ("mantissa / 1024", "mantissa / 1000", 2),
        ),
    },
)
