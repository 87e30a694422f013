"""Instructions that bring the Tensor Cores' operands to a warp: copies past the registers, and `ldmatrix`.

`load_matrices` loads four pieces of 8 rows of 16 bytes from shared memory into a warp, in the order of the
Tensor Cores (see `cnn_numba.ops.shared.tensor_cores`). `copy4_async` and `copy8_async` copy 16 bytes from
global to shared memory, while the thread continues. `commit_copies` ends a group of copies, and
`wait_for_copies_but_newest` waits for all groups but the newest.

Each is one line of PTX, and needs compute capability 8.0. The Python functions define the instructions: see
`cnn_numba.ops.shared.intrinsics`.
"""

from cnn_numba.device.compiler import boolean, cuda, float32, types, uint32
from cnn_numba.ops.shared.intrinsics import ELEMENT, ptx
from cnn_numba.ops.shared.tensor_cores import packed_float16, signed
from cnn_numba.ops.shared.warps import ALL_LANES


def _load_matrices_tf32(array, index):
    index, row, k = signed(index), cuda.laneid // 4, cuda.laneid % 4
    a, b = cuda.shfl_sync(ALL_LANES, index, row), cuda.shfl_sync(ALL_LANES, index, 8 + row)
    c, d = cuda.shfl_sync(ALL_LANES, index, 16 + row), cuda.shfl_sync(ALL_LANES, index, 24 + row)
    return array[a + k], array[b + k], array[c + k], array[d + k]


def _load_matrices(array, index):
    index, row, k = signed(index), cuda.laneid // 4, 2 * (cuda.laneid % 4)
    a, b = cuda.shfl_sync(ALL_LANES, index, row) + k, cuda.shfl_sync(ALL_LANES, index, 8 + row) + k
    c, d = cuda.shfl_sync(ALL_LANES, index, 16 + row) + k, cuda.shfl_sync(ALL_LANES, index, 24 + row) + k
    first, second = packed_float16(array[a], array[a + 1]), packed_float16(array[b], array[b + 1])
    return first, second, packed_float16(array[c], array[c + 1]), packed_float16(array[d], array[d + 1])


def _load_matrices_transposed(array, index):
    index, row, k = signed(index), cuda.laneid // 4, 2 * (cuda.laneid % 4)
    a, a1 = cuda.shfl_sync(ALL_LANES, index, k) + row, cuda.shfl_sync(ALL_LANES, index, k + 1) + row
    b, b1 = cuda.shfl_sync(ALL_LANES, index, k + 8) + row, cuda.shfl_sync(ALL_LANES, index, k + 9) + row
    c, c1 = cuda.shfl_sync(ALL_LANES, index, k + 16) + row, cuda.shfl_sync(ALL_LANES, index, k + 17) + row
    d, d1 = cuda.shfl_sync(ALL_LANES, index, k + 24) + row, cuda.shfl_sync(ALL_LANES, index, k + 25) + row
    first, second = packed_float16(array[a], array[a1]), packed_float16(array[b], array[b1])
    return first, second, packed_float16(array[c], array[c1]), packed_float16(array[d], array[d1])


def _copying(count):
    """Return the Python function that copies `count` numbers, or writes zeros if they are not there."""

    def copy(target, target_index, source, source_index, there):
        for i in range(count):
            target[target_index + i] = source[source_index + i] if there else 0

    return copy


def _nothing():
    pass


def _loading(python, order, number):
    """Return the load of four matrices of 8 x 16 bytes; a lane gets a `number` of each.

    ``(array, index)``: an array with one axis in shared memory, and the element at which a row begins: lane i
    gives it for row i % 8 of matrix i // 8.
    """
    line = f"ldmatrix.sync.aligned.m8n8.x4{order}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
    four = types.UniTuple(number, 4)
    return ptx(python, line, "=r,=r,=r,=r,r,~{memory}", four, *ELEMENT, always=True)


def _copy16(count):
    """Return a copy of `count` numbers, 16 bytes, to shared memory while the thread continues.

    ``(target, target_index, source, source_index, there)``: zeros are written if it is not `there`.
    """
    line = "{.reg .b32 bytes; shl.b32 bytes, $2, 4; cp.async.cg.shared.global [$0], [$1], 16, bytes;}"
    constraints = "r,l,r,~{memory}"
    return ptx(_copying(count), line, constraints, types.void, *ELEMENT, *ELEMENT, boolean, always=True)


def _statement(line):
    return ptx(_nothing, line, "~{memory}", types.void, always=True)


load_matrices_tf32 = _loading(_load_matrices_tf32, "", float32)
load_matrices = _loading(_load_matrices, "", uint32)
load_matrices_transposed = _loading(_load_matrices_transposed, ".trans", uint32)
copy4_async, copy8_async = _copy16(4), _copy16(8)
commit_copies = _statement("cp.async.commit_group;")
wait_for_copies_but_newest = _statement("cp.async.wait_group 1;")
