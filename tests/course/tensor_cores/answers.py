"""The wrong answers that stand beside no mistake of the exercises."""

from numba import cuda, float32
from wrong_answers import wrong

from cnn_numba.ops.shared.tensor_cores import to_tf32

WRONG = {
    "nearest_tf32": {
        "bits returned": [("builder.bitcast(bits, ir.FloatType())", "bits")],
        "other types": [("types.float32(types.float32)", "types.float64(types.float32)")],
        "register of another type": [
            ('"=r,f"', '"=f,f"'),
            [
                ("ir.IntType(32), [", "ir.FloatType(), ["),
                ('"=r,f"', '"=f,f"'),
                ("builder.bitcast(bits, ir.FloatType())", "bits"),
            ],
        ],
        "another type returned": [
            [("ir.IntType(32), [", "ir.IntType(64), ["), ("bits, ir.FloatType()", "bits, ir.DoubleType()")]
        ],
        "no pair": [("return types.float32(types.float32), code", "return code")],
        "not an intrinsic": [("@intrinsic", "")],
        "raises": [
            ("cvt.rna.tf32.f32 $0, $1;", "cvt.rna.tf32 $0, $1;"),
            ("cvt.rna.tf32.f32 $0, $1;", "cvt.rna.tf32.f32 $0, $1"),
            ('"=r,f"', '"r,f"'),
            ("builder.bitcast(bits, ir.FloatType())", "builder.bitcast(bits, types.float32)"),
        ],
        "returns None": [("return builder.bitcast(", "builder.bitcast(")],
    },
    "warp_product_kernel": {
        "raises": [
            (
                "(above[0], below[0], above[1], below[1]), right",
                "right, (above[0], below[0], above[1], below[1])",
            )
        ],
        "float64": [("float32(0), float32(0), float32(0), float32(0)", "0, 0, 0, 0")],
        "never written": [("out[top + 8, column], out[top + 8, column + 1] = sums[2], sums[3]", "")],
    },
}

RIGHT = {
    "nearest_tf32": {
        "a float of an integer register": [  # LLVM takes the same bits
            ("ir.IntType(32), [", "ir.FloatType(), ["),
            ("builder.bitcast(bits, ir.FloatType())", "bits"),
        ]
    },
    "held_by": {
        "looked for": """
            for lane in range(32):
                r, c = lane // 4, lane % 4
                held = [(r, c), (r + 8, c), (r, c + 4), (r + 8, c + 4)]
                if (row, k) in held:
                    return lane, held.index((row, k))
        """
    },
    "warp_product_kernel": {
        "step by step": """
            lane = cuda.laneid
            group, within = lane // 4, lane % 4
            y, x = 16 * cuda.blockIdx.y + group, 8 * cuda.blockIdx.x
            zero = float32(0)
            sums = (zero, zero, zero, zero)
            for step in range(a.shape[1] // 8):
                k = 8 * step + within
                a0, a1 = to_tf32(a[y, k]), to_tf32(a[y + 8, k])
                a2, a3 = to_tf32(a[y, k + 4]), to_tf32(a[y + 8, k + 4])
                b0, b1 = to_tf32(b[k, x + group]), to_tf32(b[k + 4, x + group])
                sums = multiply_tf32((a0, a1, a2, a3), (b0, b1), sums)
            for i in range(4):
                out[y + 8 * (i // 2), x + 2 * within + i % 2] = sums[i]
        """
    },
}


@wrong("warp_product_kernel", "without")
@cuda.jit
def multiplies_without_tensor_cores(a, b, out):
    lane = cuda.threadIdx.x
    for i in range(4):
        row, column = 16 * cuda.blockIdx.y + 4 * i + lane // 8, 8 * cuda.blockIdx.x + lane % 8
        total = float32(0)
        for k in range(a.shape[1]):
            total += to_tf32(a[row, k]) * to_tf32(b[k, column])
        out[row, column] = total
