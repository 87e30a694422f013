"""The instructions of the Tensor Cores, for kernels, and the rounding of their operands.

A Tensor Core multiplies for a whole warp: its 32 lanes together hold an operand, a few numbers each, in an
order that the instruction fixes. With ``row, k = lane // 4, lane % 4``, a product of 16 x 8 results takes:

- left, 16 x 8 numbers of tf32: (row, k), (row + 8, k), (row, k + 4), (row + 8, k + 4);
- right, 8 x 8: (k, row), (k + 4, row), its columns where the left one has rows;
- sums, 16 x 8 of float32: (row, 2 k), (row, 2 k + 1), (row + 8, 2 k), (row + 8, 2 k + 1).

In float16 and bfloat16 two neighbours along k share 32 bits, and there are twice as many k.

Each instruction is one line of PTX and needs compute capability 8.0; `round_to_*` run on every GPU. The
Python functions do the same as the instructions: see `intrinsics`.
"""

import math

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, types, uint32
from cnn_numba.ops.shared.intrinsics import ptx
from cnn_numba.ops.shared.warps import ALL_LANES

#: GPUs have the instructions from here on.
CAPABILITY = (8, 0)


def product_unit(precision):
    """Return what multiplies in a precision on the current GPU: "FFMA" or "Tensor Cores".

    Examples
    --------
    >>> product_unit("float32")
    'FFMA'
    """
    if precision == "float32" or device.simulated():
        return "FFMA"
    return "Tensor Cores" if cuda.get_current_device().compute_capability >= CAPABILITY else "FFMA"


class _Host:
    """A function that the simulator calls unchanged: it uses NumPy, as no kernel could."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        with np.errstate(over="ignore", invalid="ignore"):
            return self.function(*arguments)


def _bits_of(value):
    return np.float32(value).view(np.uint32)


_word_of = _Host(_bits_of)


def _as_number(bits):
    return np.uint32(int(bits) & 0xFFFFFFFF).view(np.float32)


_number_of = _Host(_as_number)


@_Host
def _near_float16(value):
    return np.float32(np.float16(value))


@_Host
def packed_float16(low, high):
    """Return two numbers as float16 in one word."""
    return np.array([low, high], np.float32).astype(np.float16).view(np.uint32)[0]


@_Host
def signed(word):
    """Return the same bits as an int32, which lanes can exchange."""
    return np.uint32(int(word) & 0xFFFFFFFF).view(np.int32)


def _float16_of(word, upper):
    return np.float32(np.array([int(word) & 0xFFFFFFFF], np.uint32).view(np.float16)[upper])


def _bfloat16_of(word, upper):
    return _as_number(int(word) & 0xFFFF0000 if upper else int(word) << 16)


def _tf32_of(number, _):
    """Return a number without the bits that the instruction for tf32 ignores."""
    return _as_number(_bits_of(number) & 0xFFFFE000)


def _bits(value):
    return _word_of(value)


def _number(bits):
    return _number_of(bits)


def _through_float16(value):
    return _near_float16(value)


def _to_tf32(value):
    return number_of(bits_of(value) & uint32(0xFFFFE000)) if math.isnan(value) else round_to_tf32(value)


def _pack_float16(low, high):
    return packed_float16(low, high)


def _pack_bfloat16(low, high):
    below, above = bits_of(round_to_bfloat16(low)), bits_of(round_to_bfloat16(high))
    return below >> uint32(16) | above & uint32(0xFFFF0000)


def _multiplication(element, depth):
    """Make the Python function of an instruction; lanes exchange their numbers by shuffles."""
    per_word = depth // 8

    @_Host
    def elements(words):
        return [[element(word, upper) for upper in range(per_word)] for word in words]

    def multiply(left, right, sums):
        (c0, c1, c2, c3), (_, _, _, _), (_, _) = sums, left, right
        row, column = cuda.laneid // 4, 2 * (cuda.laneid % 4)
        left, right = elements(left), elements(right)
        for k in range(depth):
            half, holder, upper = k // (4 * per_word), k // per_word % 4, k % per_word
            upper_row = cuda.shfl_sync(ALL_LANES, left[2 * half][upper], 4 * row + holder)
            lower_row = cuda.shfl_sync(ALL_LANES, left[2 * half + 1][upper], 4 * row + holder)
            first = cuda.shfl_sync(ALL_LANES, right[half][upper], 4 * column + holder)
            second = cuda.shfl_sync(ALL_LANES, right[half][upper], 4 * column + 4 + holder)
            c0, c1 = c0 + upper_row * first, c1 + upper_row * second
            c2, c3 = c2 + lower_row * first, c3 + lower_row * second
        return c0, c1, c2, c3

    return multiply


_multiply_tf32 = _multiplication(_tf32_of, 8)
_multiply_float16 = _multiplication(_float16_of, 16)
_multiply_bfloat16 = _multiplication(_bfloat16_of, 16)


# --- What kernels call -------------------------------------------------------------------------------------


def _product_of(python, shape, kind, operand):
    """Make an instruction that multiplies; a lane holds 4 registers of `left`, 2 of `right`, and 4 sums."""
    names = [f"${i}" for i in range(14)]
    groups = (", ".join(names[slice(*ends)]) for ends in ((0, 4), (4, 8), (8, 10), (10, 14)))
    operands = ", ".join(f"{{{group}}}" for group in groups)
    line = f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {operands};"
    constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
    four, left, right = (types.UniTuple(*of) for of in ((float32, 4), (operand, 4), (operand, 2)))
    return ptx(python, line, constraints, four, left, right, four, always=True)


bits_of = ptx(_bits, "mov.b32 $0, $1;", "=r,f", uint32, float32)
number_of = ptx(_number, "mov.b32 $0, $1;", "=f,r", float32, uint32)
_nearest_float16 = ptx(
    _through_float16,
    "{.reg .b16 half; cvt.rn.f16.f32 half, $1; cvt.f32.f16 $0, half;}",
    "=f,f",
    float32,
    float32,
)


@cuda.jit(device=True)
def round_to_tf32(value):
    """Return the number of tf32 nearest to `value`; a tie goes away from zero."""
    if math.isnan(value):
        return value
    return number_of((bits_of(value) + uint32(0x1000)) & uint32(0xFFFFE000))


@cuda.jit(device=True)
def round_to_float16(value):
    """Return the number of float16 nearest to `value`; a tie goes to the even one."""
    return value if math.isnan(value) else _nearest_float16(value)


@cuda.jit(device=True)
def round_to_bfloat16(value):
    """Return the number of bfloat16 nearest to `value`; a tie goes to the even one."""
    if math.isnan(value):
        return value
    bits = bits_of(value)
    odd = bits >> uint32(16) & uint32(1)
    return number_of((bits + uint32(0x7FFF) + odd) & uint32(0xFFFF0000))


#: Round to tf32 with the instruction. An H200 cuts off the lower bits of a NaN, which may become infinity.
to_tf32 = ptx(_to_tf32, "cvt.rna.tf32.f32 $0, $1;", "=r,f", float32, float32)
pack_float16 = ptx(_pack_float16, "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", uint32, float32, float32)
pack_bfloat16 = ptx(_pack_bfloat16, "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", uint32, float32, float32)
multiply_tf32 = _product_of(_multiply_tf32, "m16n8k8", "tf32", float32)
multiply_float16 = _product_of(_multiply_float16, "m16n8k16", "f16", uint32)
multiply_bfloat16 = _product_of(_multiply_bfloat16, "m16n8k16", "bf16", uint32)
