"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

WRONG = {
    "causal_softmax_kernel": {
        "writes past the edge": [("if i < scores.shape[0]:", "if True:")],
        "never written": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "float64": [("total = float32(0)", "total = 0.0")],
        "not small enough": [
            ("largest = scores[i, 0]\nfor j in range(1, ", "largest = float32(-2000)\nfor j in range(")
        ],
        "numbers": [("else float32(0)", "else float32(-1e9)")],
        "too much for a thread": [
            (
                "i = cuda.grid(1)\nif i < scores.shape[0]:",
                "for i in range(scores.shape[0] * (cuda.grid(1) == 0)):",
            )
        ],
    },
    "online_step": {
        "other order": [("return new, total, average", "return average, new, total")],
        "shape": [("weights @ values", "weights * values"), ("scores.max())", "scores)")],
    },
    "tiled_attention_kernel": {
        "missing barrier": [
            ("copy_rows(v, first, v_tile)\ncuda.syncthreads()", "copy_rows(v, first, v_tile)"),
            ("    largest = new\ncuda.syncthreads()", "    largest = new"),
        ],
        "writes past the edge": [("if i < q.shape[0]:", "if True:")],
        "float64": [("float32(-math.inf), float32(0)", "float32(-math.inf), 0.0")],
        "not from the tile": [
            ("dot(q, i, k_tile, j)", "dot(q, i, k, first + j)"),
            ("v_tile[j, d]", "v[first + j, d]"),
            [("dot(q, i, k_tile, j)", "dot(q, i, k, first + j)"), ("v_tile[j, d]", "v[first + j, d]")],
        ],
    },
    "softmax_backward_kernel": {
        "writes past the edge": [("if i < weights.shape[0]:", "if True:")],
        "float64": [("average = float32(0)", "average = 0.0")],
        "nothing written": [("grad_scores[i, j] = ", "result = ")],
        "too much for a thread": [
            (
                "i = cuda.grid(1)\nif i < weights.shape[0]:",
                "for i in range(weights.shape[0] if cuda.grid(1) == 0 else 0):",
            )
        ],
    },
}

RIGHT = {
    "causal_softmax_kernel": {
        "shifted by the logarithm of the sum": [("- largest) / total", "- (largest + math.log(total)))")],
        "by rounds over the grid": [
            (
                "i = cuda.grid(1)\nif i < scores.shape[0]:",
                "for i in range(cuda.grid(1), scores.shape[0], cuda.gridsize(1)):",
            )
        ],
    },
    "tiled_attention_kernel": {
        "the largest first, the tiles of keys twice": """
            k_tile = cuda.shared.array((TILE, D), float32)
            v_tile = cuda.shared.array((TILE, D), float32)
            average = cuda.local.array(D, float32)
            i, largest, total = cuda.grid(1), float32(-math.inf), float32(0)
            for d in range(D):
                average[d] = float32(0)
            for first in range(0, k.shape[0], TILE):
                copy_rows(k, first, k_tile)
                cuda.syncthreads()
                for j in range(min(TILE, k.shape[0] - first)):
                    largest = max(largest, SCALE * dot(q, i, k_tile, j))
                cuda.syncthreads()
            for first in range(0, k.shape[0], TILE):
                copy_rows(k, first, k_tile)
                copy_rows(v, first, v_tile)
                cuda.syncthreads()
                for j in range(min(TILE, k.shape[0] - first)):
                    weight = math.exp(SCALE * dot(q, i, k_tile, j) - largest)
                    total += weight
                    for d in range(D):
                        average[d] += weight * v_tile[j, d]
                cuda.syncthreads()
            if i < q.shape[0]:
                for d in range(D):
                    out[i, d] = average[d] / total
        """
    },
}
