"""The wrong answers that stand beside no mistake of the exercises."""

from numba import cuda, float32
from wrong_answers import wrong

from cnn_course.chapters.the_machine.exercises import THREADS

WRONG = {
    "warps_needed": {
        "type": [("math.ceil(", "float(")],
        "numbers": [("return math.ceil(in_flight / (32 * bytes_a_thread))", "return 12")],
    },
    "warp_sums_kernel": {
        "missing barrier": [
            (
                "for step in (16, 8, 4, 2, 1):\n    cuda.syncwarp()",
                "cuda.syncwarp()\nfor step in (16, 8, 4, 2, 1):",
            ),
            [
                ("cuda.syncwarp()\nif", "if"),
                ("    line[t] += line[t + step]", "    line[t] += line[t + step]\ncuda.syncwarp()"),
            ],
        ],
        "divergent warp": [
            [("cuda.syncwarp()\n", ""), ("    line[t] += line", "    cuda.syncwarp()\n    line[t] += line")]
        ],
        "waits for the block": [("cuda.syncwarp()", "cuda.syncthreads()")],
        "not called": [("cuda.syncwarp()", "cuda.syncwarp")],
        "write-write race": [("if t % 32 == 0:", "if t % 32 < 2:")],
        "writes past the edge": [("out[i // 32]", "out[i]")],
        "float64": [("out[i // 32] = line[t]", "out[i // 32] = 0.1 * line[t] * 10")],
    },
}


@wrong("warp_sums_kernel", "numbers")
@cuda.jit
def shuffles_nothing(x, out):
    line = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    line[t] = x[i]
    cuda.syncwarp()
    if t % 32 == 0:
        out[i // 32] = line[t] + line[t + 1]
