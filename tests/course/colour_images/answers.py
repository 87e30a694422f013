"""Wrong answers beside those that `mistakes` of the exercises hold."""

from numba import cuda, float32
from wrong_answers import wrong

WRONG = {
    "decayed_step_kernel": {
        "writes past the edge": [("if i < parameters.size:", "if True:")],
    },
    "crop_and_flip_kernel": {
        "writes past the edge": [
            (
                "if i < out.shape[0] and h < out.shape[2] and w < out.shape[3]:",
                "if h < out.shape[2] and w < out.shape[3]:",
            )
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


@wrong("decayed_step_kernel", "only the sign")
@cuda.jit
def step_by_the_sign(parameters, gradients, velocity, lr, momentum, weight_decay):
    i = cuda.grid(1)
    if i < parameters.size:
        pull = weight_decay if parameters[i] > float32(0) else -weight_decay
        velocity[i] = momentum * velocity[i] + gradients[i] + pull
        parameters[i] -= lr * velocity[i]


@wrong("crop_and_flip_kernel", "edge drawn out")
@cuda.jit
def crop_with_the_edge(images, indices, places, padding, out):
    w, h, i = cuda.grid(3)
    if i < out.shape[0] and h < out.shape[2] and w < out.shape[3]:
        row = min(max(h + places[i, 0] - padding, 0), out.shape[2] - 1)
        across = out.shape[3] - 1 - w if places[i, 2] == 1 else w
        column = min(max(across + places[i, 1] - padding, 0), out.shape[3] - 1)
        for c in range(out.shape[1]):
            out[i, c, h, w] = float32(images[indices[i], c, row, column]) / float32(255)


@wrong("crop_and_flip_kernel", "wrapped round")
@cuda.jit
def crop_wrapped(images, indices, places, padding, out):
    w, h, i = cuda.grid(3)
    if i < out.shape[0] and h < out.shape[2] and w < out.shape[3]:
        row = (h + places[i, 0] - padding + 2 * out.shape[2]) % out.shape[2]
        across = out.shape[3] - 1 - w if places[i, 2] == 1 else w
        column = (across + places[i, 1] - padding + 2 * out.shape[3]) % out.shape[3]
        for c in range(out.shape[1]):
            out[i, c, h, w] = float32(images[indices[i], c, row, column]) / float32(255)
