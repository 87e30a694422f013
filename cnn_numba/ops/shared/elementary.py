"""exp, and the normal distribution, in float32 without a call or a branch, so that loops vectorise.

`math.exp` and `math.erf` call the C library for each number and take five times as long as a vectorised loop.
The polynomials below minimise the largest error; they were found with Lawson's iteration.
"""

import math

import numpy as np

from cnn_numba.ops.shared.jit import serial_jit

_LOG2_E = np.float32(math.log2(math.e))
# exp of less would not have all digits in float32 and counts as 0; exp of more is infinite.
_SMALLEST, _LARGEST = np.float32(-87.3), np.float32(88.72)
# 2**r for r from -1/2 to 1/2, highest power first; relative error 2e-9
_E0, _E1, _E2, _E3, _E4, _E5, _E6 = map(
    np.float32, (1.53458116e-4, 1.33999312e-3, 9.61848896e-3, 0.0555032878, 0.240226469, 0.693147206, 1)
)
# exp(-x**2 / 2) times this polynomial in t = 1 / (1 + 0.3 * x) is the probability of more than x, for x from
# 0 to 10; highest power first, relative error 5e-8
_SLOPE = np.float32(0.3)
_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8 = map(
    np.float32,
    (
        *(0.0371242388, -0.162959805, 0.215568835, -0.0611648505, 0.131632428),
        *(0.0994861829, 0.120642065, 0.119675394, -4.46416236e-6),
    ),
)
_PEAK = np.float32(1 / math.sqrt(2 * math.pi))


@serial_jit
def exp(x):
    """Return exp(x) of a float32; the relative error grows with the size of x, to at most 1e-5."""
    inside = min(max(x, _SMALLEST), _LARGEST)
    power = inside * _LOG2_E
    whole = math.floor(power + np.float32(0.5))
    r = power - whole
    value = (((((_E0 * r + _E1) * r + _E2) * r + _E3) * r + _E4) * r + _E5) * r + _E6
    # 2**whole, from the bits of its exponent; in two factors, since 2**128 is no float32
    half = np.int32(whole) >> np.int32(1)
    rest = np.int32(whole) - half
    value *= np.int32((half + np.int32(127)) << np.int32(23)).view(np.float32)
    value *= np.int32((rest + np.int32(127)) << np.int32(23)).view(np.float32)
    value = np.float32(0) if x < _SMALLEST else value
    value = np.float32(np.inf) if x > _LARGEST else value
    return value if x == x else x


@serial_jit
def normal(x):
    """Return the standard normal distribution's probability below x, and its density at x."""
    density = exp(np.float32(-0.5) * x * x)
    t = np.float32(1) / (np.float32(1) + _SLOPE * abs(x))
    tail = (((((((_T0 * t + _T1) * t + _T2) * t + _T3) * t + _T4) * t + _T5) * t + _T6) * t + _T7) * t + _T8
    tail *= density
    return (tail if x < np.float32(0) else np.float32(1) - tail), _PEAK * density
