"""The gradient of a ReLU."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_numba.ops.activation.reference import relu_backward


def _rectified(rng):
    """Draw outputs of a ReLU, about half of them 0, with more threads than elements."""
    return [
        launch(grid, block, normal(rng, n), np.maximum(normal(rng, n), 0), output(n))
        for grid, block, n in [(1, 8, 5), (1, 32, 23), (3, 8, 19), (2, 32, 47), (5, 16, 65)]
    ]


relu_backward_kernel = KernelExercise(
    "relu_backward_kernel",
    reference=relu_backward,
    cases=_rectified,
    float32=True,
    mistakes={
        "open at zero": (
            "Where the output is 0, ReLU blocks the gradient, but you let it through: use `>`.",
            lambda grad_output, out: np.where(out >= 0, grad_output, 0),
            ("out[i] > float32(0)", "out[i] >= float32(0)"),
        ),
        "slope only": (
            "You store the slope, 1 or 0. The chain rule multiplies it by `{grad_output}`.",
            lambda grad_output, out: (out > 0).astype(float),
            ("grad_output[i]", "float32(1)"),
        ),
        "gradient rectified": (
            "You cut off negative gradients. The sign of the *output* decides: any gradient may pass.",
            lambda grad_output, out: np.maximum(grad_output, 0),
            ("grad_output[i] if out[i] > float32(0) else float32(0)", "max(grad_output[i], float32(0))"),
        ),
        "times the output": (
            "You multiply by the output. The slope is 1 wherever the output is positive, however large.",
            lambda grad_output, out: grad_output * out,
            ("grad_output[i] if out[i] > float32(0) else float32(0)", "grad_output[i] * out[i]"),
        ),
        "inverted": (
            "It is the other way round: the gradient goes through where the output is positive.",
            lambda grad_output, out: np.where(out > 0, 0, grad_output),
            (
                "grad_output[i] if out[i] > float32(0) else float32(0)",
                "float32(0) if out[i] > float32(0) else grad_output[i]",
            ),
        ),
        "forward again": (
            "You store the output itself. Store `{grad_output}` where the output is positive, else 0.",
            lambda grad_output, out: out,
            ("grad_output[i] if out[i] > float32(0) else float32(0)", "max(out[i], float32(0))"),
        ),
        "nothing where it is cut off": (
            "Where the output is 0 you write nothing, so the old contents of memory stay. Write a 0 there.",
            lambda grad_output, out: np.where(out > 0, grad_output, np.nan),
            [("size", "size and out[i] > float32(0)"), ("[i] if out[i] > float32(0) else float32(0)", "[i]")],
        ),
    },
)
