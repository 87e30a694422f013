"""`decayed_step_kernel`: a step with weight decay."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, normal
from cnn_numba import device

THREADS = 16


def decayed_step(parameters, gradients, velocity, lr, momentum, weight_decay):
    """Return the parameters and the velocity after a step of SGD with momentum and weight decay."""
    velocity = momentum * velocity + gradients + weight_decay * parameters
    return parameters - lr * velocity, velocity


def _arenas(rng):
    for size in (5, 23, THREADS, 47, 65):
        arrays = inout(2 * normal(rng, size)), normal(rng, size), inout(normal(rng, size))
        settings = map(np.float32, (0.25, 0.875, 0.375))
        yield launch(device.blocks(size + 1, THREADS), THREADS, *arrays, *settings)


decayed_step_kernel = KernelExercise(
    "decayed_step_kernel",
    reference=decayed_step,
    cases=_arenas,
    float32=True,
    mistakes={
        "decay left out": (
            "Nothing pulls the parameters towards 0: add `{weight_decay} * {parameters}[i]` to the gradient.",
            lambda p, g, v, lr, m, wd: decayed_step(p, g, v, lr, m, 0),
            (" + weight_decay * parameters[i]", ""),
        ),
        "decay pushes away": (
            "Your decay pushes the parameters away from 0: *add* it to the gradient.",
            lambda p, g, v, lr, m, wd: decayed_step(p, g, v, lr, m, -wd),
            ("+ weight_decay", "- weight_decay"),
        ),
        "decay beside the velocity": (
            "You apply the decay outside the velocity, as AdamW does. Here it's part of the gradient.",
            lambda p, g, v, lr, m, wd: (p - lr * (m * v + g + wd * p), m * v + g),
            [
                ("gradients[i] + weight_decay * parameters[i]", "gradients[i]"),
                ("lr * velocity[i]", "lr * (velocity[i] + weight_decay * parameters[i])"),
            ],
        ),
        "decay of the velocity": (
            "You multiply the velocity by `{weight_decay}`. Multiply the parameter: that is what decays.",
            lambda p, g, v, lr, m, wd: (p - lr * (m * v + g + wd * v), m * v + g + wd * v),
            ("weight_decay * parameters[i]", "weight_decay * velocity[i]"),
        ),
        "decay without the rate": (
            "Your decay ignores the rate. Add `{weight_decay} * {parameters}[i]` to the gradient instead.",
            lambda p, g, v, lr, m, wd: (p - wd * p - lr * (m * v + g), m * v + g),
            lambda p, g, v, lr, m, wd: (p - wd * p - lr * (m * v + g + wd * p), m * v + g + wd * p),
            [
                ("gradients[i] + weight_decay * parameters[i]", "gradients[i]"),
                ("[i] -= lr * velocity[i]", "[i] -= lr * velocity[i] + weight_decay * parameters[i]"),
            ],
        ),
        "rate in the decay": (
            "You multiply the decay by the learning rate, and the step multiplies by it again.",
            lambda p, g, v, lr, m, wd: decayed_step(p, g, v, lr, m, lr * wd),
            ("weight_decay * parameters[i]", "lr * weight_decay * parameters[i]"),
        ),
        "decay of the new parameter": (
            "You decay the new parameter. Take the old one, and add its decay to the gradient.",
            lambda p, g, v, lr, m, wd: ((p - lr * (m * v + g)) * (1 - lr * wd), m * v + g),
            lambda p, g, v, lr, m, wd: ((p - lr * (m * v + g)) * (1 - wd), m * v + g),
            [
                ("gradients[i] + weight_decay * parameters[i]", "gradients[i]"),
                ("= lr * velocity[i]", "= lr * velocity[i]\nparameters[i] *= float32(1) - lr * weight_decay"),
            ],
        ),
        "gradient dampened": (
            "You take only `1 - {momentum}` of the gradient. Take the whole gradient here.",
            lambda p, g, v, lr, m, wd: decayed_step(p, (1 - m) * g, v, lr, m, (1 - m) * wd),
            lambda p, g, v, lr, m, wd: decayed_step(p, (1 - m) * g, v, lr, m, wd),
            ("+ gradient", "+ (float32(1) - momentum) * gradient"),
        ),
        "momentum twice": (
            "You use the momentum twice, as in Nesterov's method. Step by `{lr} * {velocity}[i]` here.",
            lambda p, g, v, lr, m, wd: (p - lr * (g + wd * p + m * (m * v + g + wd * p)), m * v + g + wd * p),
            ("lr * velocity[i]", "lr * (gradient + momentum * velocity[i])"),
        ),
        "only the sign": (
            "You pull every parameter equally hard, by its sign. Weight decay pulls in proportion to its "
            "size.",
            lambda p, g, v, lr, m, wd: decayed_step(p, g + wd * np.sign(p) - wd * p, v, lr, m, wd),
            (
                "weight_decay * parameters[i]",
                "(weight_decay if parameters[i] > float32(0) else -weight_decay)",
            ),
        ),
        "momentum left out": (
            "The old velocity is missing from the new one. Keep `{momentum}` times the old one.",
            lambda p, g, v, lr, m, wd: decayed_step(p, g, v, lr, 0, wd),
            ("momentum * velocity[i] + gradient", "gradient"),
        ),
        "step without the velocity": (
            "You move by the gradient alone. Store the new velocity in `{velocity}`, and move by that.",
            lambda p, g, v, lr, m, wd: (p - lr * (g + wd * p), v),
            lambda p, g, v, lr, m, wd: (p - lr * (g + wd * p), m * v + g + wd * p),
            ("lr * velocity[i]", "lr * gradient"),
        ),
        "momentum of the gradient": (
            "You multiply the gradient by `{momentum}`. Multiply the old velocity by it.",
            lambda p, g, v, lr, m, wd: decayed_step(p, m * g, v / m, lr, m, m * wd),
            ("momentum * velocity[i] + gradient", "velocity[i] + momentum * gradient"),
        ),
        "gradient shrunk": (
            "You scale the gradient by `{weight_decay}`. The parameter decays: add `{weight_decay} * "
            "{parameters}[i]` to the gradient.",
            lambda p, g, v, lr, m, wd: decayed_step(p, (1 - wd) * g, v, lr, m, 0),
            lambda p, g, v, lr, m, wd: decayed_step(p, (1 + wd) * g, v, lr, m, 0),
            lambda p, g, v, lr, m, wd: decayed_step(p, wd * g, v, lr, m, 0),
            ("weight_decay * parameters[i]", "weight_decay * gradients[i]"),
            ("gradients[i] + weight_decay * parameters[i]", "(float32(1) - weight_decay) * gradients[i]"),
        ),
        "decay by the square": (
            "Your decay uses the square of the parameter, as in the loss. The gradient needs its derivative, "
            "the parameter itself.",
            lambda p, g, v, lr, m, wd: decayed_step(p, g + wd * p * (p - 1), v, lr, m, wd),
            ("weight_decay * parameters[i]", "weight_decay * parameters[i] * parameters[i]"),
        ),
        "decay by the absolute value": (
            "Your decay ignores the parameter's sign, and pushes negative parameters further down.",
            lambda p, g, v, lr, m, wd: decayed_step(p, g + wd * (np.abs(p) - p), v, lr, m, wd),
            ("weight_decay * parameters[i]", "weight_decay * abs(parameters[i])"),
        ),
        "parameter overwritten": (
            "You store the step itself as the parameter. Subtract it from the parameter: `-=`.",
            lambda p, g, v, lr, m, wd: (lr * (m * v + g + wd * p), m * v + g + wd * p),
            ("parameters[i] -=", "parameters[i] ="),
        ),
        "parameter moved first": (
            "You move the parameter first, and compute the velocity from the new parameter. First the "
            "velocity, then the parameter.",
            lambda p, g, v, lr, m, wd: (p - lr * v, m * v + g + wd * (p - lr * v)),
            """
                i = cuda.grid(1)
                if i < parameters.size:
                    parameters[i] -= lr * velocity[i]
                    velocity[i] = momentum * velocity[i] + gradients[i] + weight_decay * parameters[i]
            """,
        ),
        "velocity before the step": (
            "You move by the velocity from before the step. Compute the new one first.",
            lambda p, g, v, lr, m, wd: (p - lr * v, decayed_step(p, g, v, lr, m, wd)[1]),
            [
                (
                    "velocity[i] = momentum * velocity[i] + gradient",
                    "before = velocity[i]\nvelocity[i] = momentum * before + gradient",
                ),
                ("lr * velocity[i]", "lr * before"),
            ],
        ),
        "rate in the velocity": (
            "Your velocity contains the learning rate. Multiply by it only when the parameter moves.",
            lambda p, g, v, lr, m, wd: (p - (m * v + lr * (g + wd * p)), m * v + lr * (g + wd * p)),
            lambda p, g, v, lr, m, wd: (p + (m * v - lr * (g + wd * p)), m * v - lr * (g + wd * p)),
            [("+ gradient", "+ lr * gradient"), ("lr * velocity[i]", "velocity[i]")],
            [("+ gradient", "- lr * gradient"), ("-= lr * velocity[i]", "+= velocity[i]")],
        ),
        "uphill": (
            "The parameters move up the gradient. Subtract the step: `-=`.",
            lambda p, g, v, lr, m, wd: (p + lr * (m * v + g + wd * p), m * v + g + wd * p),
            ("parameters[i] -=", "parameters[i] +="),
        ),
        "velocity not stored": (
            "The parameters are right. Store the new velocity in `{velocity}`: the next step needs it.",
            lambda p, g, v, lr, m, wd: (decayed_step(p, g, v, lr, m, wd)[0], v),
            [("velocity[i] = momentum", "speed = momentum"), ("lr * velocity[i]", "lr * speed")],
        ),
    },
)
