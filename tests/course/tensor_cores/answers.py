"""The wrong answers that stand beside no mistake of the exercises."""

from numba import cuda, float32
from wrong_answers import wrong

from cnn_numba.ops.shared.tensor_cores import to_tf32

WRONG = {
    "nearest_tf32": {
        "bits returned": [("builder.bitcast(bits, ir.FloatType())", "bits")],
        "other types": [("types.float32(types.float32)", "types.float64(types.float32)")],
        "no pair": [("return types.float32(types.float32), code", "return code")],
        "not an intrinsic": [("@intrinsic", "")],
        "raises": [
            ("cvt.rna.tf32.f32 $0, $1;", "cvt.rna.tf32 $0, $1;"),
            ("cvt.rna.tf32.f32 $0, $1;", "cvt.rna.tf32.f32 $0, $1"),
        ],
        "returns None": [("return builder.bitcast(", "builder.bitcast(")],
    },
    "warp_product_kernel": {
        "never written": [("out[top + 8, column], out[top + 8, column + 1] = sums[2], sums[3]", "")]
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
