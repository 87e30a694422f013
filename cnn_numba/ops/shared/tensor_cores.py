"""The instructions of the Tensor Cores, for kernels: what a warp multiplies, and how its operands get there.

A Tensor Core multiplies for a whole warp: its 32 lanes hold an operand together, a few numbers each, in an
order that the instruction fixes. With ``row, k = lane // 4, lane % 4``, a product of 16 x 8 results takes:

- left, 16 x 8 numbers of tf32: (row, k), (row + 8, k), (row, k + 4), (row + 8, k + 4);
- right, 8 x 8: (k, row), (k + 4, row), its columns where the left one has rows;
- sums, 16 x 8 of float32: (row, 2 k), (row, 2 k + 1), (row + 8, 2 k), (row + 8, 2 k + 1).

Of float16 and bfloat16 two neighbours along k share 32 bits, and there are twice as many k.

`load_matrices` gets a warp four pieces of 8 rows of 16 bytes each from shared memory, in this very order;
`copy4_async` and `copy8_async` bring them there from global memory, 16 bytes at a time, while the thread goes
on. `commit_copies` ends a group of copies, and `wait_for_copies_but_newest` waits for all groups but one.

Each is an intrinsic: Numba writes one line of PTX where it is called. All need compute capability 8.0, but
the roundings written without PTX, `round_to_*`. The Python functions say what the instructions do: see
`intrinsics`.
"""

import numpy as np
from llvmlite import ir
from numba import cuda

from cnn_numba import device
from cnn_numba.ops.shared.intrinsics import instruction, types

#: From here on GPUs have the instructions.
CAPABILITY = (8, 0)
ALL_LANES = 0xFFFFFFFF
_WORD, _HALF, _NUMBER = ir.IntType(32), ir.HalfType(), ir.FloatType()
_BYTES = ir.IntType(8).as_pointer(3)


def product_unit(precision):
    """Return what multiplies numbers of a precision on the current GPU: "FFMA" or "Tensor Cores".

    Examples
    --------
    >>> product_unit("float32")
    'FFMA'
    """
    if precision == "float32" or device.simulated():
        return "FFMA"
    return "Tensor Cores" if cuda.get_current_device().compute_capability >= CAPABILITY else "FFMA"


class _Host:
    """A function that the simulator calls as it is: NumPy does what no kernel could."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        with np.errstate(over="ignore", invalid="ignore"):
            return self.function(*arguments)


def _bits_of(value):
    return int(np.float32(value).view(np.uint32))


def _number_of(bits):
    return np.uint32(bits).view(np.float32)


@_Host
def _near_tf32(value):
    return value if value != value else _number_of((_bits_of(value) + 0x1000) & 0xFFFFE000)


@_Host
def _near_float16(value):
    return np.float32(np.float16(value))


@_Host
def _near_bfloat16(value):
    bits = _bits_of(value)
    return value if value != value else _number_of((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000)


@_Host
def _packed_float16(low, high):
    return np.array([low, high], np.float32).astype(np.float16).view(np.uint32)[0]


@_Host
def _packed_bfloat16(low, high):
    return np.uint32(_bits_of(_near_bfloat16(low)) >> 16 | _bits_of(_near_bfloat16(high)) & 0xFFFF0000)


@_Host
def _signed(word):
    """Return the same bits as an int32, which lanes can exchange."""
    return np.uint32(int(word) & 0xFFFFFFFF).view(np.int32)


@_Host
def _float16_of(word, upper):
    return np.float32(np.array([word], np.int32).view(np.float16)[int(upper)])


@_Host
def _bfloat16_of(word, upper):
    return _number_of(int(word) & 0xFFFF0000 if upper else int(word) << 16 & 0xFFFFFFFF)


def _round_to_tf32(value):
    return _near_tf32(value)


def _round_to_float16(value):
    return _near_float16(value)


def _round_to_bfloat16(value):
    return _near_bfloat16(value)


def _pack_float16(low, high):
    return _packed_float16(low, high)


def _pack_bfloat16(low, high):
    return _packed_bfloat16(low, high)


@_Host
def _itself(number):
    return number


@_Host
def _seen(number, upper):
    """Return a number without the bits that the instruction of tf32 does not look at."""
    return _number_of(_bits_of(number) & 0xFFFFE000)


def _multiplication(word, element, depth):
    """Make the Python function of an instruction: each lane sees what the others hold."""
    per_word = depth // 8

    def multiply(left, right, sums):
        c0, c1, c2, c3 = sums
        row, column = cuda.laneid // 4, 2 * (cuda.laneid % 4)
        for k in range(depth):
            half, holder, upper = k // (4 * per_word), k // per_word % 4, k % per_word
            upper_row = element(cuda.shfl_sync(ALL_LANES, word(left[2 * half]), 4 * row + holder), upper)
            lower_row = element(cuda.shfl_sync(ALL_LANES, word(left[2 * half + 1]), 4 * row + holder), upper)
            first = element(cuda.shfl_sync(ALL_LANES, word(right[half]), 4 * column + holder), upper)
            second = element(cuda.shfl_sync(ALL_LANES, word(right[half]), 4 * column + 4 + holder), upper)
            c0, c1 = c0 + upper_row * first, c1 + upper_row * second
            c2, c3 = c2 + lower_row * first, c3 + lower_row * second
        return c0, c1, c2, c3

    return multiply


_multiply_tf32 = _multiplication(_itself, _seen, 8)
_multiply_float16 = _multiplication(_signed, _float16_of, 16)
_multiply_bfloat16 = _multiplication(_signed, _bfloat16_of, 16)


def _load_matrices_tf32(array, index):
    index, row, k = _signed(index), cuda.laneid // 4, cuda.laneid % 4
    a, b = cuda.shfl_sync(ALL_LANES, index, row), cuda.shfl_sync(ALL_LANES, index, 8 + row)
    c, d = cuda.shfl_sync(ALL_LANES, index, 16 + row), cuda.shfl_sync(ALL_LANES, index, 24 + row)
    return array[a + k], array[b + k], array[c + k], array[d + k]


def _load_matrices(array, index):
    index, row, k = _signed(index), cuda.laneid // 4, 2 * (cuda.laneid % 4)
    a, b = cuda.shfl_sync(ALL_LANES, index, row) + k, cuda.shfl_sync(ALL_LANES, index, 8 + row) + k
    c, d = cuda.shfl_sync(ALL_LANES, index, 16 + row) + k, cuda.shfl_sync(ALL_LANES, index, 24 + row) + k
    first, second = _packed_float16(array[a], array[a + 1]), _packed_float16(array[b], array[b + 1])
    return first, second, _packed_float16(array[c], array[c + 1]), _packed_float16(array[d], array[d + 1])


def _load_matrices_transposed(array, index):
    index, row, k = _signed(index), cuda.laneid // 4, 2 * (cuda.laneid % 4)
    a, a1 = cuda.shfl_sync(ALL_LANES, index, k) + row, cuda.shfl_sync(ALL_LANES, index, k + 1) + row
    b, b1 = cuda.shfl_sync(ALL_LANES, index, k + 8) + row, cuda.shfl_sync(ALL_LANES, index, k + 9) + row
    c, c1 = cuda.shfl_sync(ALL_LANES, index, k + 16) + row, cuda.shfl_sync(ALL_LANES, index, k + 17) + row
    d, d1 = cuda.shfl_sync(ALL_LANES, index, k + 24) + row, cuda.shfl_sync(ALL_LANES, index, k + 25) + row
    first, second = _packed_float16(array[a], array[a1]), _packed_float16(array[b], array[b1])
    return first, second, _packed_float16(array[c], array[c1]), _packed_float16(array[d], array[d1])


def _copying(count):
    """Make the Python function of a copy of so many numbers; what is not there becomes zeros."""

    def copy(target, target_index, source, source_index, there):
        for i in range(count):
            target[target_index + i] = source[source_index + i] if there else 0

    return copy


def _nothing():
    pass


def _emit(builder, code, constraints, result, arguments, always=False):
    """Write a line of PTX. Unless it is to be executed `always`, it may go if nobody uses its result."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(ir.InlineAsm(kind, code, constraints, side_effect=always), arguments)


def _rounding(near):
    """Return what generates a rounding; `near` builds the code of numbers that are not NaN."""

    def rounded(typingctx, value):
        def code(context, builder, signature, arguments):
            (value,) = arguments
            nan = builder.fcmp_unordered("uno", value, value)
            return builder.select(nan, value, near(builder, value))

        return types.float32(types.float32), code

    return rounded


def _cut(builder, bits, ones):
    return builder.bitcast(builder.and_(bits, ir.Constant(_WORD, ones)), _NUMBER)


def _tf32(builder, value):
    half = ir.Constant(_WORD, 0x1000)
    return _cut(builder, builder.add(builder.bitcast(value, _WORD), half), 0xFFFFE000)


def _float16(builder, value):
    return builder.fpext(builder.fptrunc(value, _HALF), _NUMBER)


def _bfloat16(builder, value):
    bits = builder.bitcast(value, _WORD)
    odd = builder.and_(builder.lshr(bits, ir.Constant(_WORD, 16)), ir.Constant(_WORD, 1))
    almost_half = builder.add(bits, ir.Constant(_WORD, 0x7FFF))
    return _cut(builder, builder.add(almost_half, odd), 0xFFFF0000)


@instruction(_round_to_tf32)
def to_tf32(typingctx, value):
    """Round a number to tf32 with the instruction for it."""

    def code(context, builder, signature, arguments):
        bits = _emit(builder, "cvt.rna.tf32.f32 $0, $1;", "=r,f", _WORD, arguments)
        return builder.bitcast(bits, _NUMBER)

    return types.float32(types.float32), code


def _packing(kind):
    def pack(typingctx, low, high):
        def code(context, builder, signature, arguments):
            low, high = arguments
            return _emit(builder, f"cvt.rn.{kind}.f32 $0, $1, $2;", "=r,f,f", _WORD, [high, low])

        return types.uint32(types.float32, types.float32), code

    return pack


def _product_of(shape, kind, operand):
    """Return what generates one instruction, whose operands are 4 and 2 of `operand`."""

    def multiply(typingctx, left, right, sums):
        def code(context, builder, signature, arguments):
            given = zip(arguments, (4, 2, 4), strict=True)
            flat = [builder.extract_value(one, i) for one, count in given for i in range(count)]
            words = [builder.bitcast(value, _WORD) for value in flat[:6]]
            names = [f"${i}" for i in range(14)]
            groups = (", ".join(names[slice(*ends)]) for ends in ((0, 4), (4, 8), (8, 10), (10, 14)))
            operands = ", ".join(f"{{{group}}}" for group in groups)
            line = f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {operands};"
            result = ir.LiteralStructType([_NUMBER] * 4)
            constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
            values = _emit(builder, line, constraints, result, words + flat[6:], always=True)
            four = [builder.extract_value(values, i) for i in range(4)]
            return context.make_tuple(builder, signature.return_type, four)

        four = types.UniTuple(types.float32, 4)
        left, right = (types.UniTuple(getattr(types, operand), count) for count in (4, 2))
        return four(left, right, four), code

    return multiply


def _element(context, builder, array_type, array, index_type, index):
    """Return a pointer to an element."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [context.cast(builder, index, index_type, types.intp)])


def _in_shared_memory(builder, pointer):
    """Return where in shared memory a pointer points, as the instructions want to know it."""
    there = builder.addrspacecast(builder.bitcast(pointer, ir.IntType(8).as_pointer()), _BYTES)
    return builder.ptrtoint(there, _WORD)


def _loading(order, number):
    """Return what generates the load of four matrices of 8 x 16 bytes; a lane gets a `number` of each.

    ``(array, index)``: an array with one axis in shared memory, and the element at which a row begins:
    lane i says it for row i % 8 of matrix i // 8.
    """

    def load(typingctx, array, index):
        def code(context, builder, signature, arguments):
            array_type, index_type = signature.args
            pointer = _element(context, builder, array_type, arguments[0], index_type, arguments[1])
            line = f"ldmatrix.sync.aligned.m8n8.x4{order}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
            result, constraints = ir.LiteralStructType([_WORD] * 4), "=r,=r,=r,=r,r,~{memory}"
            address = _in_shared_memory(builder, pointer)
            values = _emit(builder, line, constraints, result, [address], always=True)
            kind = context.get_value_type(signature.return_type.dtype)
            four = [builder.bitcast(builder.extract_value(values, i), kind) for i in range(4)]
            return context.make_tuple(builder, signature.return_type, four)

        return types.UniTuple(getattr(types, number), 4)(array, index), code

    return load


def _copy16(typingctx, target, target_index, source, source_index, there):
    """Generate a copy of 16 bytes to shared memory while the thread goes on; zeros if it is not `there`."""

    def code(context, builder, signature, arguments):
        kinds = signature.args
        to = _element(context, builder, kinds[0], arguments[0], kinds[1], arguments[1])
        start = _element(context, builder, kinds[2], arguments[2], kinds[3], arguments[3])
        length = builder.select(arguments[4], ir.Constant(_WORD, 16), ir.Constant(_WORD, 0))
        given = _in_shared_memory(builder, to), builder.ptrtoint(start, ir.IntType(64)), length
        line = "cp.async.cg.shared.global [$0], [$1], 16, $2;"
        _emit(builder, line, "r,l,r,~{memory}", ir.VoidType(), given, always=True)
        return context.get_dummy_value()

    return types.void(target, target_index, source, source_index, types.boolean), code


def _statement(line):
    def state(typingctx):
        def code(context, builder, signature, arguments):
            _emit(builder, line, "~{memory}", ir.VoidType(), [], always=True)
            return context.get_dummy_value()

        return types.void(), code

    return state


round_to_tf32 = instruction(_round_to_tf32)(_rounding(_tf32))
round_to_float16 = instruction(_round_to_float16)(_rounding(_float16))
round_to_bfloat16 = instruction(_round_to_bfloat16)(_rounding(_bfloat16))
pack_float16 = instruction(_pack_float16)(_packing("f16x2"))
pack_bfloat16 = instruction(_pack_bfloat16)(_packing("bf16x2"))
multiply_tf32 = instruction(_multiply_tf32)(_product_of("m16n8k8", "tf32", "float32"))
multiply_float16 = instruction(_multiply_float16)(_product_of("m16n8k16", "f16", "uint32"))
multiply_bfloat16 = instruction(_multiply_bfloat16)(_product_of("m16n8k16", "bf16", "uint32"))
load_matrices_tf32 = instruction(_load_matrices_tf32)(_loading("", "float32"))
load_matrices = instruction(_load_matrices)(_loading("", "uint32"))
load_matrices_transposed = instruction(_load_matrices_transposed)(_loading(".trans", "uint32"))
copy4_async, copy8_async = instruction(_copying(4))(_copy16), instruction(_copying(8))(_copy16)
commit_copies = instruction(_nothing)(_statement("cp.async.commit_group;"))
wait_for_copies_but_newest = instruction(_nothing)(_statement("cp.async.wait_group 1;"))
