"""The checks of notebook 16, ``16_mixed_precision``."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, avoids
from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, output
from cnn_numba import device
from cnn_numba.ops.update.reference import unscale_gradients

# --- decode_float16 ----------------------------------------------------------------------------------------


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
    signed=True,
    mantissa=1024,
    fields=_fields,
):
    """Return a function that reads 16 bits, in one point not as float16."""

    def read(bits):
        sign, exponent, fraction = fields(bits)
        factor = -1.0 if sign and signed else 1.0
        if exponent == 31 and infinite:
            return factor * np.inf
        if exponent == 0 and subnormal:
            return factor * fraction / mantissa * 2.0**smallest if subnormal != "zero" else 0 * factor
        return factor * (hidden + fraction / mantissa) * 2.0 ** (exponent - bias)

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
        "bias": (
            "Your powers of two are off. The exponent field holds the exponent plus 15: take 15 away.",
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
        "subnormal numbers lost": (
            "An exponent field of 0 does not mean 0: the number is `mantissa / 1024 * 2**-14`.",
            _decoded(subnormal="zero"),
            ("sign * mantissa / 1024 * 2.0**-14", "sign * 0.0"),
        ),
        "sign in the exponent": (
            "Your exponent field has the sign in it: after the shift by 10 keep five bits, `& 31`.",
            _decoded(fields=lambda bits: (bits >> 15, bits >> 10, bits & 1023)),
            ("bits >> 10 & 31", "bits >> 10"),
        ),
        "exponent in the mantissa": (
            "Your mantissa has the bits above it as well: keep ten of them, `{bits} & 1023`.",
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
            "There are two infinities: the sign counts there too.",
            lambda bits: abs(decode(bits)) if np.isinf(decode(bits)) else decode(bits),
            ('sign * float("inf")', 'float("inf")'),
        ),
        "no infinity": (
            "An exponent field of 31 is no exponent: with a mantissa of 0 it stands for infinity.",
            _decoded(infinite=False),
            ("if exponent == 31:", "if exponent == 32:"),
        ),
        "sign": (
            "The sign is missing: bit 15 makes a number negative.",
            _decoded(signed=False),
            ("-1.0 if", "1.0 if"),
        ),
        "mantissa": (
            "The mantissa has 10 bits: divide it by $2^{{10}}$, 1024.",
            *(_decoded(mantissa=count) for count in (512, 1023, 2048)),
            ("mantissa / 1024", "mantissa / 512", 2),
            ("mantissa / 1024", "mantissa / 2048", 2),
            ("mantissa / 1024", "mantissa / 1023", 2),
        ),
    },
)


# --- sum_rows_kernel ---------------------------------------------------------------------------------------

THREADS = 16


def _rows(rng):
    """Draw rows of float16 numbers, some so long that a sum in float16 loses digits."""
    for shape in [(2, 3), (5, 90), (19, 7), (3, 400), (33, 24)]:
        x = rng.uniform(0.5, 2, shape).astype(np.float16)
        yield launch(device.blocks(shape[0] + 1, THREADS), THREADS, x, output(shape[0]))


def _added_up(x):
    """Add each row up in float16, one number after the other."""
    total = np.zeros(len(x), np.float16)
    for column in x.T:
        total += column
    return total


sum_rows_kernel = KernelExercise(
    "sum_rows_kernel",
    reference=lambda x: x.sum(axis=1, dtype=np.float64),
    cases=_rows,
    float32=True,
    once=True,
    mistakes={
        "sum in float16": (
            "You add up in float16: beyond 512 its numbers are half apart, and every addition rounds. Keep "
            "the sum as a `float32`, and make each element one before you add it.",
            _added_up,
            [("= float32(0)", "= float16(0)"), ("+= float32(x[row, k])", "= float16(total + x[row, k])")],
        ),
        "rounded at the end": (
            "The sum is right, and then rounded to float16. `out` is float32: store it as it is.",
            lambda x: x.sum(axis=1, dtype=np.float64).astype(np.float16),
            ("out[row] = total", "out[row] = float16(total)"),
        ),
        "mean": (
            "You divide by the number of columns. That is the mean: return the sum.",
            lambda x: x.mean(axis=1, dtype=np.float64),
            ("out[row] = total", "out[row] = total / float32(x.shape[1])"),
        ),
        "last column missing": (
            "The last element of each row is left out: the columns are `range({x}.shape[1])`.",
            lambda x: x[:, :-1].sum(axis=1, dtype=np.float64),
            ("range(x.shape[1])", "range(x.shape[1] - 1)"),
        ),
        "first column missing": (
            "The first element of each row is left out: columns count from 0.",
            lambda x: x[:, 1:].sum(axis=1, dtype=np.float64),
            ("range(x.shape[1])", "range(1, x.shape[1])"),
        ),
        "last element only": (
            "Each row's result is its last element: you overwrite the sum, where you should add to it.",
            lambda x: x[:, -1],
            ("total +=", "total ="),
        ),
        "same row everywhere": (
            "Every thread adds up row 0. Its own is number `cuda.grid(1)`.",
            lambda x: np.full(len(x), x[0].sum(dtype=np.float64)),
            ("x[row, k]", "x[0, k]"),
        ),
    },
)


# --- stochastic_kernel -------------------------------------------------------------------------------------


def _bits(rng):
    """Draw the bits of floats, and as many random ones."""
    for size in (4, 23, THREADS, 47):
        x = (rng.normal(size=size) * 10.0 ** rng.integers(-3, 4, size)).astype(np.float32)
        noise = rng.integers(0, 2**32, size, dtype=np.uint32)
        grid = device.blocks(size + 1, THREADS)
        yield launch(grid, THREADS, x.view(np.uint32), noise, output(size, np.uint32))
    exact = np.array([1, -2, 0.5, 0, 3], np.float32)  # numbers of bfloat16 stay what they are
    noise = np.array([2**32 - 1, 0, 2**16 - 1, 2**15, 2**31], np.uint32)
    yield launch(1, THREADS, exact.view(np.uint32), noise, output(5, np.uint32))


def _upper(values):
    return (np.asarray(values, np.uint64) & 0xFFFF0000).astype(np.uint32)


def _with_noise(noise):
    """Return a function that adds something made of the random bits, and cuts off the lower half."""
    return lambda x, random: _upper(x.astype(np.uint64) + noise(random.astype(np.uint64)))


stochastic_kernel = KernelExercise(
    "stochastic_kernel",
    reference=_with_noise(lambda random: random & 0xFFFF),
    cases=_bits,
    once=True,
    mistakes={
        "cut off": (
            "You only cut off the lower half, which rounds towards 0. Add the random bits first, by `+`.",
            lambda x, random: _upper(x),
            ("x[i] + noise", "x[i]"),
            ("x[i] + noise", "x[i] | noise"),
        ),
        "nearest": (
            "You round to the nearest. What is added must be random: the lower 16 bits of `{random}[i]`.",
            _with_noise(lambda random: 0x8000 + 0 * random),
            _with_noise(lambda random: 0x7FFF + 0 * random),
            ("random[i] & uint32(0xFFFF)", "uint32(0x8000)"),
            ("random[i] & uint32(0xFFFF)", "uint32(0x7FFF)"),
        ),
        "all random bits": (
            "You add all 32 random bits. Add the lower half: `{random}[i] & uint32(0xFFFF)`.",
            _with_noise(lambda random: random),
            lambda x, random: _upper(x + random),
            ("random[i] & uint32(0xFFFF)", "random[i]"),
        ),
        "upper random bits": (
            "You add random bits to the upper half. Add the lower 16: they decide whether the cut carries.",
            _with_noise(lambda random: random & 0xFFFF0000),
            lambda x, random: _upper(x + (random & np.uint32(0xFFFF0000))),
            ("random[i] & uint32(0xFFFF)", "random[i] & uint32(0xFFFF0000)"),
        ),
        "half of the noise": (
            "Fifteen random bits reach only half of the way: a number is rounded up too seldom. Take 16.",
            _with_noise(lambda random: random & 0x7FFF),
            ("uint32(0xFFFF)", "uint32(0x7FFF)"),
        ),
        "not cut off": (
            "You add the noise and leave it there. Cut the lower half off after it: `& uint32(0xFFFF0000)`.",
            lambda x, random: (x.astype(np.uint64) + (random & 0xFFFF)).astype(np.uint32),
            ("(x[i] + noise) & uint32(0xFFFF0000)", "x[i] + noise"),
        ),
        "or instead of plus": (
            "`|` and `^` never carry into the upper half. Add the random bits, then cut off the lower half.",
            lambda x, random: (x | (random & 0xFFFF)).astype(np.uint32),
            lambda x, random: (x ^ (random & 0xFFFF)).astype(np.uint32),
            ("(x[i] + noise) & uint32(0xFFFF0000)", "x[i] ^ noise"),
        ),
        "the other random bits": (
            "You take the upper 16 random bits. Take the lower ones here.",
            _with_noise(lambda random: random >> 16),
            ("random[i] & uint32(0xFFFF)", "random[i] >> uint32(16)"),
        ),
        "noise added after the cut": (
            "You cut first and add then: the lower half of the result is not 0. Add, and cut after it.",
            lambda x, random: (_upper(x) + (random & np.uint32(0xFFFF))).astype(np.uint32),
            ("(x[i] + noise) & uint32(0xFFFF0000)", "(x[i] & uint32(0xFFFF0000)) + noise"),
        ),
        "wrong half": (
            "You keep the lower half, and throw sign, exponent and the mantissa's upper bits away.",
            lambda x, random: ((x.astype(np.uint64) + (random & 0xFFFF)) & 0xFFFF).astype(np.uint32),
            ("uint32(0xFFFF0000)", "uint32(0xFFFF)"),
        ),
        "taken away": (
            "You take the noise away: that rounds downwards, by chance. Add it.",
            lambda x, random: _upper(x.astype(np.int64) - (random & 0xFFFF).astype(np.int64) & 0xFFFFFFFF),
            ("x[i] + noise", "x[i] - noise"),
        ),
    },
)


# --- unscale_kernel ----------------------------------------------------------------------------------------


def _gradients(rng):
    """Draw gradients, in some launches with one that is not finite, each at another place."""
    for size, scale, bad, place, before in [
        (5, 4, None, 0, 0),
        (23, 1024, np.inf, 20, 0),
        (THREADS, 2, np.nan, 15, 0),
        (41, 8, -np.inf, 40, 0),
        (30, 0.5, None, 0, 1),
        (18, 16, np.nan, 17, 0),
        (3, 4, np.inf, 0, 0),
    ]:
        gradients = rng.normal(size=size).astype(np.float32)
        if bad is not None:
            gradients[place:] = bad
        grid = device.blocks(size + 1, THREADS)
        yield launch(
            *(grid, THREADS, inout(gradients), np.array([scale], np.float32)),
            inout(np.array([before], np.int32)),
        )
    # Above what float16 has, and finite.
    large = np.float32([7e4, -1e30, 3, 1e38])
    yield launch(1, THREADS, inout(large), np.float32([2]), inout(np.zeros(1, np.int32)))


def _unscaled(finite=np.isfinite, change=lambda gradients, scale: gradients / scale, kept=True):
    """Return a function that does what the kernel is to do, in one point not so."""

    def function(gradients, scale, found_inf):
        with np.errstate(all="ignore"):
            bad = not finite(gradients).all()
            found = max(int(found_inf[0]), int(bad)) if kept else int(bad)
            return change(np.float64(gradients), np.float64(scale[0])), np.array([found], np.int32)

    return function


def _counted(gradients, scale, found_inf):
    """Count what is not finite, where the kernel should say yes or no."""
    with np.errstate(all="ignore"):
        count = np.count_nonzero(~np.isfinite(gradients))
        return np.float64(gradients) / scale[0], np.int32(found_inf + count)


def _reference(gradients, scale, found_inf):
    gradients, found_inf = gradients.astype(np.float64), found_inf.copy()
    return unscale_gradients(gradients, scale.copy(), found_inf), found_inf


unscale_kernel = KernelExercise(
    "unscale_kernel",
    reference=_reference,
    cases=_gradients,
    float32=True,
    mistakes={
        "multiplied": (
            "You multiply by the scale, which the gradients hold already. Divide by it.",
            _unscaled(change=lambda gradients, scale: gradients * scale),
            ("/ scale[0]", "* scale[0]"),
        ),
        "left as they are": (
            "The gradients stay as they are. Divide each of them by `{scale}[0]`, in place.",
            _unscaled(change=lambda gradients, scale: gradients),
            ("gradients[i] = gradient", "pass"),
        ),
        "nothing found": (
            "`{found_inf}` is never set. A gradient that is NaN or infinite must set it to 1.",
            _unscaled(finite=lambda gradients: np.ones(1, bool)),
            ("cuda.atomic.max(found_inf, 0, 1)", "pass"),
        ),
        "NaN missed": (
            "You find infinities, but no NaN. Every comparison with NaN is false, except `!=`.",
            _unscaled(finite=lambda gradients: ~np.isinf(gradients)),
            ("not abs(gradient) < float32(np.inf)", "abs(gradient) >= float32(np.inf)"),
        ),
        "infinity missed": (
            "You find NaN, and no infinities. Those are what an overflow leaves.",
            _unscaled(finite=lambda gradients: ~np.isnan(gradients)),
            ("not abs(gradient) < float32(np.inf)", "gradient != gradient"),
        ),
        "minus infinity missed": (
            "You miss minus infinity: compare the absolute value.",
            _unscaled(finite=lambda gradients: ~(np.isnan(gradients) | (gradients == np.inf))),
            ("abs(gradient)", "gradient"),
        ),
        "large is not infinite": (
            "A gradient may be larger than any float16 and still finite: test for infinite or NaN.",
            _unscaled(finite=lambda gradients: abs(gradients) <= 65504),
            _unscaled(finite=lambda gradients: abs(gradients) <= 1e10),
            ("float32(np.inf)", "float32(1e10)"),
            ("float32(np.inf)", "float32(65504)"),
        ),
        "found everywhere": (
            "`{found_inf}` is set where all gradients are finite, and every step would be skipped: by a "
            "condition that is always true, or by threads beyond the last gradient, which need a guard.",
            _unscaled(finite=lambda gradients: np.zeros(1, bool)),
            ("if not abs(gradient) < float32(np.inf):", "if True:"),
            ("if i < gradients.size:", "if True:"),
        ),
        "counted": (
            "`{found_inf}` is a count, not 1. `cuda.atomic.max({found_inf}, 0, 1)` leaves a 1 a 1.",
            _counted,
            ("cuda.atomic.max(found_inf, 0, 1)", "cuda.atomic.add(found_inf, 0, 1)"),
        ),
        "plus infinity missed": (
            "You find minus infinity, and not plus infinity: compare the absolute value.",
            _unscaled(finite=lambda gradients: ~(np.isnan(gradients) | (gradients == -np.inf))),
            _unscaled(finite=lambda gradients: gradients != -np.inf),
            ("not abs(gradient) < float32(np.inf)", "not gradient > float32(-np.inf)"),
        ),
        "plus infinity only": (
            "Of what is not finite you find plus infinity only: there are minus infinity and NaN, too.",
            _unscaled(finite=lambda gradients: gradients != np.inf),
            ("not abs(gradient) < float32(np.inf)", "gradient == float32(np.inf)"),
        ),
        "found undone": (
            "You set `{found_inf}` back to 0. Another kernel may have set it: leave a 1 as it is.",
            _unscaled(kept=False),
            (
                "    cuda.atomic.max(found_inf, 0, 1)",
                "    cuda.atomic.max(found_inf, 0, 1)\n"
                "elif i == 0 and found_inf[0] == 1:\n    found_inf[0] = 0",
            ),
        ),
        "the wrong way round": (
            "`{found_inf}` is set where a gradient *is* finite.",
            _unscaled(finite=lambda gradients: ~np.isfinite(gradients)),
            ("not abs(gradient)", "abs(gradient)"),
        ),
    },
)


# --- next_scale --------------------------------------------------------------------------------------------


def _stepped(
    reached=lambda good, interval: good >= interval, restart=True, forget=True, up=True, down=True, swap=False
):
    """Return one step of the dynamic scale, in one point not so."""

    def step(scale, good_steps, found_inf, interval):
        if found_inf != swap:
            return scale / 2 if down else scale, 0 if forget else good_steps
        good_steps += 1
        if not reached(good_steps, interval):
            return scale, good_steps
        return scale * 2 if up else scale, 0 if restart else good_steps

    return step


def _steps(rng):
    """Draw the states of a loss scaler: in the middle, a step before it grows, and after a bad one."""
    yield 1024.0, 0, False, 3
    yield 8.0, 2, False, 3
    yield 2.0, 5, True, 7
    for power in range(12):
        interval = int(rng.integers(2, 9))
        good = int(rng.integers(0, interval))
        yield 3.0 * 2**power, good, bool(rng.integers(0, 2)), interval
    yield 4.0, 6, False, 7
    yield 512.0, 1, True, 4
    yield 1.0, 3, True, 7  # to a half


def _grows_at_once(scale, good_steps, found_inf, interval):
    return (scale / 2, 0) if found_inf else (scale * 2, good_steps + 1)


def _halves_twice(scale, good_steps, found_inf, interval):
    scale, good_steps = _stepped()(scale, good_steps, found_inf, interval)
    return (scale / 2, good_steps) if found_inf else (scale, good_steps)


def _from_one(scale, good_steps, found_inf, interval, after_growth, after_skip):
    scale, good_steps = _stepped()(scale, good_steps, found_inf, interval)
    begins_anew = after_skip if found_inf else after_growth
    return scale, 1 if good_steps == 0 and begins_anew else good_steps


next_scale = Exercise(
    "next_scale",
    reference=_stepped(),
    cases=_steps,
    mistakes={
        "whole numbers only": (
            "Your scale is a whole number: half of 1 becomes 0. It may be smaller than 1: `/`, not `//`.",
            lambda scale, good_steps, found_inf, interval: (
                (scale // 2, 0) if found_inf else _stepped()(scale, good_steps, found_inf, interval)
            ),
            ("scale / 2", "scale // 2"),
        ),
        "grows at every step": (
            "You double the scale after every good step. It is to grow after `{interval}` of them in a row.",
            _grows_at_once,
            ("if good_steps == interval:\n    return scale * 2, 0\nreturn scale,", "return scale * 2,"),
        ),
        "one step late": (
            "The scale grows one step too late: this step counts too, so add 1 before you compare.",
            _stepped(reached=lambda good, interval: good > interval),
            ("good_steps == interval", "good_steps == interval + 1"),
        ),
        "one step early": (
            "The scale grows one step too early: after `{interval}` good steps, not after one less.",
            _stepped(reached=lambda good, interval: good >= interval - 1),
            ("good_steps == interval", "good_steps >= interval - 1"),
        ),
        "counter goes on": (
            "After growing, set the counter back to 0. Yours goes on, and the scale grows at every step.",
            _stepped(restart=False),
            ("return scale * 2, 0", "return scale * 2, good_steps"),
        ),
        "good steps kept": (
            "A skipped step ends the row: `{good_steps}` is 0 after it.",
            _stepped(forget=False),
            ("return scale / 2, 0", "return scale / 2, good_steps"),
        ),
        "good steps not counted": (
            "A good step that does not complete the row still counts: return `{good_steps} + 1`.",
            lambda scale, good_steps, found_inf, interval: (
                (scale, good_steps)
                if not found_inf and good_steps + 1 < interval
                else _stepped()(scale, good_steps, found_inf, interval)
            ),
            ("return scale, good_steps", "return scale, good_steps - 1"),
        ),
        "counts from one": (
            "A new row begins at 0, before its first good step. Yours begins at 1.",
            lambda *state: _from_one(*state, after_growth=True, after_skip=True),
            lambda *state: _from_one(*state, after_growth=True, after_skip=False),
            lambda *state: _from_one(*state, after_growth=False, after_skip=True),
            ("return scale / 2, 0", "return scale / 2, 1"),
            ("return scale * 2, 0", "return scale * 2, 1"),
        ),
        "does not shrink": (
            "After a step with `{found_inf}`, halve the scale: the next step would overflow as well.",
            _stepped(down=False),
            ("return scale / 2, 0", "return scale, 0"),
        ),
        "does not grow": (
            "The scale never grows: once it has been halved by one unlucky batch, it would stay small.",
            _stepped(up=False),
            ("return scale * 2, 0", "return scale, 0"),
        ),
        "the wrong way round": (
            "You treat good steps as skipped ones, and the other way round.",
            _stepped(swap=True),
            ("if found_inf:", "if not found_inf:"),
        ),
        "halved twice": (
            "You divide by 4 after a skipped step. Halve the scale.",
            _halves_twice,
            ("return scale / 2, 0", "return scale / 4, 0"),
        ),
    },
)
