"""Vectors at the edge of an array, and square blocks of vectors; as in `simd`, indices are not checked."""

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from cnn_numba.ops.shared.jit import inline_jit
from cnn_numba.ops.shared.simd import _LLVM_VECTOR, WIDTH, ZEROS, _made_of, _pointer, _repeated, _vector

_LANE = ir.IntType(32)
_LANES = ir.VectorType(_LANE, WIDTH)


def _first(context, builder, count, count_type):
    """Return a mask of the first `count` lanes: of none if it is negative, of all if it exceeds WIDTH."""
    count = _repeated(builder, context.cast(builder, count, count_type, types.int32))
    return builder.icmp_signed("<", ir.Constant(_LANES, [*range(WIDTH)]), count)


def _masked(builder, name, result, *args):
    """Call LLVM's masked load or store."""
    suffix = f"v{WIDTH}f32.p0"
    kind = ir.FunctionType(result, [arg.type for arg in args])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.{name}.{suffix}")
    return builder.call(function, args)


@intrinsic
def _address(typing_context, block):
    pointer = types.CPointer(types.float32)
    return pointer(block), _made_of(
        lambda builder, block: builder.bitcast(block, ir.FloatType().as_pointer())
    )


@inline_jit
def numbers(block, count):
    """Return the first `count` numbers of an array of vectors as an array, a view."""
    return carray(_address(block), (count,), np.float32)


@intrinsic
def load_part(typing_context, array, index, count):
    """Return the first `count` numbers from ``array[index]`` on as a vector, the rest zeros."""

    def generate(context, builder, signature, args):
        mask = _first(context, builder, args[2], signature.args[2])
        address = _pointer(context, builder, signature, args)
        return _masked(builder, "load", _LLVM_VECTOR, address, ir.Constant(_LANE, 4), mask, ZEROS)

    return _vector(array, index, count), generate


@intrinsic
def store_part(typing_context, array, index, count, value):
    """Write the first `count` numbers of the vector `value` from ``array[index]`` on."""

    def generate(context, builder, signature, args):
        mask = _first(context, builder, args[2], signature.args[2])
        address = _pointer(context, builder, signature, args)
        _masked(builder, "store", ir.VoidType(), args[3], address, ir.Constant(_LANE, 4), mask)
        return context.get_dummy_value()

    return types.void(array, index, count, value), generate


@intrinsic
def positive(typing_context, vector):
    """Return a vector with zeros in place of negative numbers; NaN stays."""

    def generate(builder, vector):
        return builder.select(builder.fcmp_ordered("<=", vector, ZEROS), ZEROS, vector)

    return vector(vector), _made_of(generate)


@intrinsic
def transpose(typing_context, block):
    """Transpose the square of the first WIDTH vectors of an array, in place."""

    def generate(context, builder, signature, args):
        addresses = [builder.gep(args[0], [ir.Constant(ir.IntType(64), i)]) for i in range(WIDTH)]
        rows = [builder.load(address) for address in addresses]
        distance = 1
        while distance < WIDTH:
            # Squares of 2, 4, 8 ...: each swaps two of its quarters.
            for i in range(WIDTH):
                if not i & distance:
                    rows[i], rows[i + distance] = _swapped(builder, rows[i], rows[i + distance], distance)
            distance *= 2
        for address, row in zip(addresses, rows, strict=True):
            builder.store(row, address)
        return context.get_dummy_value()

    return types.void(block), generate


def _swapped(builder, upper, lower, distance):
    """Swap the right half of each square in the upper row with the left half of the one in the lower row."""
    lanes = np.arange(WIDTH)
    right = lanes & distance != 0
    # Numbers from WIDTH on mean lanes of the lower row.
    above = np.where(right, lanes - distance + WIDTH, lanes)
    below = np.where(right, lanes + WIDTH, lanes + distance)
    for pick in (above, below):
        yield builder.shuffle_vector(upper, lower, ir.Constant(_LANES, pick.tolist()))


@inline_jit
def load_square(array, start, step, rows, count, square):
    """Load up to WIDTH `rows` of up to WIDTH numbers, `step` apart from ``array[start]`` on, and transpose.

    Vector i has number i of each row; what is missing is zero.
    """
    for i in range(WIDTH):
        square[i] = load_part(array, start + i * step, count if i < rows else 0)
    transpose(square)


@inline_jit
def store_square(array, start, step, rows, count, square):
    """Transpose, and write what `load_square` with the same arguments reads."""
    transpose(square)
    for i in range(WIDTH):
        if i < rows:
            store_part(array, start + i * step, count, square[i])
