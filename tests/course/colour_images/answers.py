"""The wrong answers that stand beside no mistake of the exercises."""

WRONG = {
    "decayed_step_kernel": {
        "writes past the edge": [("if i < parameters.size:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
    },
    "crop_and_flip_kernel": {
        "writes past the edge": [
            ("if i < out.shape[0] and h < out.shape[2] and w < out.", "if h < out.shape[2] and w < out.")
        ],
        "float64": [("/ float32(255)", "* (1 / 255)")],
    },
    "folded_convolution_kernel": {
        "done more than once": [("if k == 0:", "if True:")],
        "writes past the edge": [
            ("if oc < weight.shape[0] and k < weight.shape[1]:", "if k < weight.shape[1]:")
        ],
        "float64": [("gamma[oc] /", "1.0 * gamma[oc] /")],
    },
}
