"""What the gpu backends share: sums over warps and blocks, and loads and stores of 128 bits.

The sums are device functions, called from kernels. They add in an order that depends on nothing but the
number of threads, so that the same input gives the same bits.
"""

from llvmlite import ir
from numba import cuda, float32, uint32

from cnn_numba import device
from cnn_numba.ops.shared.intrinsics import instruction, types

#: Threads of a warp, and the mask of `cuda.shfl_xor_sync` that names them all.
WARP = 32
ALL_LANES = 0xFFFFFFFF


def whole_warps(elements, most):
    """Return how many threads a block needs to share so many elements: whole warps, `most` at the most."""
    return min(most, WARP * device.blocks(elements, WARP))


@cuda.jit(device=True)
def warp_sum(value):
    """Return the sum of `value` over the warp's 32 threads, to all of them. Every one must call it."""
    lanes = WARP // 2
    while lanes > 0:
        # Each thread adds its partner's value, so that all of them end with the sum; no shared memory.
        value += cuda.shfl_xor_sync(ALL_LANES, value, lanes)
        lanes >>= 1
    return value


@cuda.jit(device=True)
def warp_max(value):
    """Return the largest `value` of the warp's 32 threads, NaN if one is; as for `warp_sum`."""
    lanes = WARP // 2
    while lanes > 0:
        other = cuda.shfl_xor_sync(ALL_LANES, value, lanes)
        if other > value or other != other:
            value = other
        lanes >>= 1
    return value


@cuda.jit(device=True)
def block_sum(value):
    """Return the sum of a float32 `value` over the block, to all its threads.

    The block has one dimension and whole warps. Every thread must call it: it has barriers.
    """
    partial_sums = cuda.shared.array(WARP, float32)
    thread = uint32(cuda.threadIdx.x)
    lane, warp = thread & uint32(31), thread >> uint32(5)
    value = warp_sum(value)
    if lane == 0:
        partial_sums[warp] = value
    cuda.syncthreads()
    # Every warp adds up the warps' sums: no thread has to pass the result on.
    total = float32(0)
    if lane < uint32(cuda.blockDim.x) >> uint32(5):
        total = partial_sums[lane]
    total = warp_sum(total)
    # The next call writes here again, and must not before all have read.
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def block_max(value):
    """Return the largest float32 `value` of the block, NaN if one is; as for `block_sum`."""
    partial_maxima = cuda.shared.array(WARP, float32)
    thread = uint32(cuda.threadIdx.x)
    lane, warp = thread & uint32(31), thread >> uint32(5)
    value = warp_max(value)
    if lane == 0:
        partial_maxima[warp] = value
    cuda.syncthreads()
    largest = partial_maxima[uint32(0)]
    if lane < uint32(cuda.blockDim.x) >> uint32(5):
        largest = partial_maxima[lane]
    largest = warp_max(largest)
    cuda.syncthreads()
    return largest


def _load4(array, index):
    return array[index], array[index + 1], array[index + 2], array[index + 3]


def _store4(array, index, a, b, c, d):
    array[index] = a
    array[index + 1] = b
    array[index + 2] = c
    array[index + 3] = d


_FLOAT4 = ir.VectorType(ir.FloatType(), 4)
_ALIGNMENT = 16


def _vector_pointer(context, builder, argument_types, array, index):
    """Return a pointer to the element as one to a vector of four."""
    array_type, index_type = argument_types[:2]
    data = context.make_array(array_type)(context, builder, array).data
    index = context.cast(builder, index, index_type, types.intp)
    return builder.bitcast(builder.gep(data, [index]), _FLOAT4.as_pointer())


def _check_array(array, index):
    # Numba asks with other types too, while it looks for a match.
    is_array = isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"
    return is_array and array.dtype == types.float32 and isinstance(index, types.Integer)


@instruction(_load4)
def load4(typingctx, array, index):
    """Return four neighbouring elements of a float32 array (n,), read at once.

    `index` is a multiple of 4, and the array begins at a multiple of 16 bytes.
    """
    if not _check_array(array, index):
        return None

    def code(context, builder, signature, arguments):
        pointer = _vector_pointer(context, builder, signature.args, *arguments)
        vector = builder.load(pointer)
        vector.align = _ALIGNMENT
        elements = [builder.extract_element(vector, ir.Constant(ir.IntType(32), i)) for i in range(4)]
        return context.make_tuple(builder, signature.return_type, elements)

    return types.UniTuple(types.float32, 4)(array, index), code


@instruction(_store4)
def store4(typingctx, array, index, a, b, c, d):
    """Write four neighbouring elements of a float32 array (n,), at once; as for `load4`."""
    if not _check_array(array, index) or any(value != types.float32 for value in (a, b, c, d)):
        return None

    def code(context, builder, signature, arguments):
        array, index, *values = arguments
        pointer = _vector_pointer(context, builder, signature.args, array, index)
        vector = ir.Constant(_FLOAT4, ir.Undefined)
        for i, value in enumerate(values):
            vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), i))
        builder.store(vector, pointer).align = _ALIGNMENT
        return context.get_dummy_value()

    return types.void(array, index, a, b, c, d), code
