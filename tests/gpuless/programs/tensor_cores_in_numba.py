"""A program: a product of matrices on the Tensor Cores, in a Numba kernel with instructions of PTX in it."""

import gpuless

gpuless.select()

import numpy as np  # noqa: E402
from llvmlite import ir  # noqa: E402
from numba import cuda, float32, types, uint32  # noqa: E402
from numba.cuda.extending import intrinsic  # noqa: E402

WORD, NUMBER, LONG = ir.IntType(32), ir.FloatType(), ir.IntType(64)
M, N, DEPTH, STEP = 64, 48, 96, 16


def emit(builder, code, constraints, result, arguments):
    """Write a line of PTX into a kernel."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(ir.InlineAsm(kind, code, constraints, side_effect=True), arguments)


def tuple_of(context, builder, kind, values, count):
    return context.make_tuple(builder, kind, [builder.extract_value(values, i) for i in range(count)])


def data_of(context, builder, signature, arguments, i):
    return context.make_array(signature.args[i])(context, builder, arguments[i]).data


@intrinsic
def shared_address(typing_context, array):
    """Return the address of an array in shared memory."""

    def codegen(context, builder, signature, arguments):
        address = builder.ptrtoint(data_of(context, builder, signature, arguments, 0), LONG)
        code = "{ .reg .b64 there; cvta.to.shared.u64 there, $1; cvt.u32.u64 $0, there; }"
        return emit(builder, code, "=r,l", WORD, [address])

    return types.uint32(array), codegen


@intrinsic
def copy16(typing_context, to, array, index):
    """Copy 16 bytes to shared memory."""

    def codegen(context, builder, signature, arguments):
        start = builder.gep(data_of(context, builder, signature, arguments, 1), [arguments[2]])
        source = builder.ptrtoint(start, LONG)
        code = "cp.async.cg.shared.global [$0], [$1], 16;"
        emit(builder, code, "r,l,~{memory}", ir.VoidType(), [arguments[0], source])
        return context.get_dummy_value()

    return types.void(types.uint32, array, types.int64), codegen


@intrinsic
def wait_for_copies(typing_context):
    """Wait until the thread's copies are done."""

    def codegen(context, builder, signature, arguments):
        emit(builder, "cp.async.wait_all;", "~{memory}", ir.VoidType(), [])
        return context.get_dummy_value()

    return types.void(), codegen


def load_matrices(count, transposed):
    """Return an intrinsic that reads matrices of eight by eight from shared memory."""

    @intrinsic
    def load(typing_context, address):
        def codegen(context, builder, signature, arguments):
            names = ", ".join(f"${i}" for i in range(count))
            code = f"ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {{{names}}}, [${count}];"
            result = ir.LiteralStructType([WORD] * count)
            values = emit(builder, code, "=r," * count + "r,~{memory}", result, arguments)
            return tuple_of(context, builder, signature.return_type, values, count)

        return types.UniTuple(types.uint32, count)(types.uint32), codegen

    return load


load_a, load_b = load_matrices(4, ""), load_matrices(2, ".trans")


@intrinsic
def mma(typing_context, a, b, c):
    """Multiply 16 x 16 by 16 x 8 numbers, and add."""

    def codegen(context, builder, signature, arguments):
        code = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        code += "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
        given = zip(arguments, (4, 2, 4), strict=True)
        flat = [builder.extract_value(one, i) for one, count in given for i in range(count)]
        result = ir.LiteralStructType([NUMBER] * 4)
        values = emit(builder, code, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", result, flat)
        return tuple_of(context, builder, signature.return_type, values, 4)

    return c(a, b, c), codegen


@cuda.jit
def product_kernel(a, b, c):
    """Compute 16 x 8 numbers with a warp."""
    tile_a = cuda.shared.array((16, STEP), types.uint16, alignment=16)
    tile_b = cuda.shared.array((STEP, 8), types.uint16, alignment=16)
    lane = uint32(cuda.threadIdx.x)
    top, left = uint32(cuda.blockIdx.y * 16), uint32(cuda.blockIdx.x * 8)
    at_a, at_b = shared_address(tile_a), shared_address(tile_b)
    zero = float32(0)
    total = (zero, zero, zero, zero)
    for k in range(0, DEPTH, STEP):
        copy16(at_a + 16 * lane, a, (top + lane // 2) * DEPTH + k + 8 * (lane % 2))
        if lane < 16:
            copy16(at_b + 16 * lane, b, (k + lane) * N + left)
        wait_for_copies()
        cuda.syncthreads()
        rows = load_a(at_a + 32 * (lane % 16) + 16 * (lane // 16))
        columns = load_b(at_b + 16 * (lane % 16))
        total = mma(rows, columns, total)
        cuda.syncthreads()
    row, column = top + lane // 4, left + 2 * (lane % 4)
    c[row, column], c[row, column + 1] = total[0], total[1]
    c[row + 8, column], c[row + 8, column + 1] = total[2], total[3]


def main():
    """Compare with NumPy's product in double precision."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(size).astype(np.float16) for size in ((M, DEPTH), (DEPTH, N)))
    c = np.full((M, N), np.nan, np.float32)
    product_kernel[(N // 8, M // 16), 32](a.view(np.uint16).ravel(), b.view(np.uint16).ravel(), c)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    print(np.abs(c - exact).max() < 2**-22 * DEPTH * 4)


main()
