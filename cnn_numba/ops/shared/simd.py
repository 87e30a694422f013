"""Vectors of float32 inside `@njit` functions: load, store, and multiply-add.

Numba vectorises simple loops, but it cannot keep a tile of sums in vector registers, as a fast matrix product
must. Numba has no vector type either, so this module adds one: `load` and `store` move `WIDTH` consecutive
floats, and `multiply_add` multiplies a vector by a number and adds another vector. LLVM turns each into one
instruction.

`vectors` makes an array of vectors. LLVM keeps it in registers if every index into it is a constant once
loops of constant length are unrolled; a function that takes one must be an `inline_jit`.

Indices are not checked, and a negative one does not wrap around.
"""

import operator

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

#: Floats per vector: one AVX-512 register, else one AVX2 register (two NEON registers on ARM).
WIDTH = 16 if binding.get_host_cpu_features().get("avx512f") else 8

_LLVM_VECTOR = ir.VectorType(ir.FloatType(), WIDTH)
ZEROS = ir.Constant(_LLVM_VECTOR, [0.0] * WIDTH)


class _Vector(types.Type):
    """The type of a vector, or of an array of vectors."""

    def __init__(self, name, llvm):
        super().__init__(name=name)
        self.llvm = llvm


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, numba_type):
        super().__init__(manager, numba_type, numba_type.llvm)


_vector = _Vector(f"float32x{WIDTH}", _LLVM_VECTOR)
_vectors = _Vector(f"float32x{WIDTH}[]", _LLVM_VECTOR.as_pointer())


def _made_of(code):
    """Return the generator of a function, from ``code(builder, *values)``."""
    return lambda context, builder, signature, args: code(builder, *args)


def _address(context, builder, signature, args):
    """Return the address of ``array[index]``, for an (array, index, ...) call."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [context.cast(builder, args[1], signature.args[1], types.intp)])


def _pointer(context, builder, signature, args, vector=_LLVM_VECTOR):
    """Return that address as the address of a vector."""
    return builder.bitcast(_address(context, builder, signature, args), vector.as_pointer())


@intrinsic
def load(typing_context, array, index):
    """Return ``array[index : index + WIDTH]`` of a contiguous float32 array as a vector."""

    def generate(context, builder, signature, args):
        # align=4: the address need not be a multiple of a vector.
        return builder.load(_pointer(context, builder, signature, args), align=4)

    return _vector(array, index), generate


@intrinsic
def store(typing_context, array, index, value):
    """Write the vector `value` to ``array[index : index + WIDTH]``."""

    def generate(context, builder, signature, args):
        builder.store(args[2], _pointer(context, builder, signature, args), align=4)
        return context.get_dummy_value()

    return types.void(array, index, value), generate


@intrinsic
def number(typing_context, array, index):
    """Return ``array[index]``, without Numba's code for a negative index."""

    def generate(context, builder, signature, args):
        return builder.load(_address(context, builder, signature, args))

    return array.dtype(array, index), generate


@intrinsic
def multiply_add(typing_context, number, vector, addend):
    """Return ``number * vector + addend``, a fused multiply-add."""

    def generate(context, builder, signature, args):
        product = builder.fmul(_broadcast(context, builder, signature, args), args[1], flags=["contract"])
        return builder.fadd(product, args[2], flags=["contract"])

    return _vector(number, vector, addend), generate


def _broadcast(context, builder, signature, args):
    """Return a vector with the first argument, a number, in every element."""
    return _repeated(builder, context.cast(builder, args[0], signature.args[0], types.float32))


def _repeated(builder, value):
    """Return a vector with a value in every lane."""
    undefined, lane = ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined), ir.IntType(32)
    first = builder.insert_element(undefined, value, ir.Constant(lane, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(lane, WIDTH), [0] * WIDTH))


@intrinsic
def filled(typing_context, number):
    """Return a vector with this number in every element."""
    return _vector(number), _broadcast


@intrinsic
def add(typing_context, a, b):
    """Return ``a + b``, element by element."""
    return _vector(a, b), _made_of(lambda builder, a, b: builder.fadd(a, b))


@intrinsic
def subtract(typing_context, a, b):
    """Return ``a - b``, element by element."""
    return _vector(a, b), _made_of(lambda builder, a, b: builder.fsub(a, b))


@intrinsic
def where_larger(typing_context, a, b, then, otherwise):
    """Return `then` where `a` is larger than `b` or NaN, elsewhere `otherwise`."""

    def generate(builder, a, b, then, otherwise):
        larger = builder.or_(builder.fcmp_ordered(">", a, b), builder.fcmp_unordered("uno", a, a))
        return builder.select(larger, then, otherwise)

    return _vector(a, b, then, otherwise), _made_of(generate)


@intrinsic
def where_equal(typing_context, a, b, then):
    """Return `then` where `a` equals `b`, elsewhere zeros."""

    def generate(builder, a, b, then):
        return builder.select(builder.fcmp_ordered("==", a, b), then, ZEROS)

    return _vector(a, b, then), _made_of(generate)


_LLVM_BYTES = ir.VectorType(ir.IntType(8), WIDTH)


@intrinsic
def load_bytes(typing_context, array, index):
    """Return ``array[index : index + WIDTH]`` of a contiguous uint8 array as a vector of floats."""

    def generate(context, builder, signature, args):
        loaded = builder.load(_pointer(context, builder, signature, args, _LLVM_BYTES), align=1)
        return builder.uitofp(loaded, _LLVM_VECTOR)

    return _vector(array, index), generate


@intrinsic
def store_bytes(typing_context, array, index, value):
    """Write a vector of whole numbers up to 255 to ``array[index : index + WIDTH]``, a uint8 array."""

    def generate(context, builder, signature, args):
        value = builder.fptoui(args[2], _LLVM_BYTES)
        builder.store(value, _pointer(context, builder, signature, args, _LLVM_BYTES), align=1)
        return context.get_dummy_value()

    return types.void(array, index, value), generate


@intrinsic(prefer_literal=True)
def vectors(typing_context, count):
    """Return an array of vectors; `count` is a constant."""
    size = count.literal_value
    return _vectors(count), _made_of(lambda builder, _: cgutils.alloca_once(builder, _LLVM_VECTOR, size=size))


def _element(context, builder, signature, args):
    return builder.gep(args[0], [context.cast(builder, args[1], signature.args[1], types.intp)])


@intrinsic
def _get(typing_context, array, index):
    def generate(context, builder, signature, args):
        return builder.load(_element(context, builder, signature, args))

    return _vector(array, index), generate


@intrinsic
def _set(typing_context, array, index, value):
    def generate(context, builder, signature, args):
        builder.store(args[2], _element(context, builder, signature, args))
        return context.get_dummy_value()

    return types.void(array, index, value), generate


@overload(operator.getitem, target="cpu")
def _getitem(array, index):
    if array == _vectors:
        return lambda array, index: _get(array, index)


@overload(operator.setitem, target="cpu")
def _setitem(array, index, value):
    if array == _vectors:
        return lambda array, index, value: _set(array, index, value)
