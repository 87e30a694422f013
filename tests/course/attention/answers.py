"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

WRONG = {
    "causal_softmax_kernel": {
        "writes past the edge": [("if i < scores.shape[0]:", "if True:")],
        "never written": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "float64": [("total = float32(0)", "total = 0.0")],
        "not small enough": [
            ("largest = scores[i, 0]\nfor j in range(1, ", "largest = float32(-2000)\nfor j in range(")
        ],
    },
    "tiled_attention_kernel": {
        "missing barrier": [
            ("copy_rows(v, first, v_tile)\ncuda.syncthreads()", "copy_rows(v, first, v_tile)"),
            ("    largest = new\ncuda.syncthreads()", "    largest = new"),
        ],
        "writes past the edge": [("if i < q.shape[0]:", "if True:")],
        "float64": [("float32(-math.inf), float32(0)", "float32(-math.inf), 0.0")],
    },
    "softmax_backward_kernel": {
        "writes past the edge": [("if i < weights.shape[0]:", "if True:")],
        "float64": [("average = float32(0)", "average = 0.0")],
        "nothing written": [("grad_scores[i, j] = ", "result = ")],
    },
}

RIGHT = {
    "causal_softmax_kernel": {
        "shifted by the logarithm of the sum": [("- largest) / total", "- (largest + math.log(total)))")]
    }
}
