"""One step of SGD with momentum, a thread for each parameter."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, normal


def _momentum(parameters, gradients, velocity, lr, momentum):
    velocity = momentum * velocity + gradients
    return parameters - lr * velocity, velocity


def _arenas(rng):
    sizes = [(1, 4, 3), (1, 32, 20), (3, 8, 19), (2, 32, 47), (5, 16, 65)]
    rates = [(0.5, 0.5), (0.1, 0.9), (0.25, 0.75), (0.01, 0.9), (0.5, 0.25)]
    return [
        launch(
            *(grid, block, inout(normal(rng, n)), normal(rng, n), inout(normal(rng, n))),
            *(np.float32(lr), np.float32(momentum)),
        )
        for (grid, block, n), (lr, momentum) in zip(sizes, rates, strict=True)
    ]


momentum_kernel = KernelExercise(
    "momentum_kernel",
    reference=_momentum,
    cases=_arenas,
    float32=True,
    once=True,
    mistakes={
        "velocity not stored": (
            "The parameters are right, but the new velocity is lost: store it in `{velocity}[i]`.",
            lambda p, g, v, lr, momentum: (p - lr * (momentum * v + g), v),
            ("velocity[i] = v", ""),
        ),
        "parameters not stored": (
            "The velocity is right, but the parameters stay where they are: store what you compute, by "
            "`{parameters}[i] -= ...`.",
            lambda p, g, v, lr, momentum: (p, momentum * v + g),
            ("parameters[i] -=", "step ="),
        ),
        "old velocity": (
            "You move the parameters by the velocity of the step before. Update the velocity first.",
            lambda p, g, v, lr, momentum: (p - lr * v, momentum * v + g),
            ("velocity[i] = v\nparameters[i] -= lr *", "parameters[i] -= lr * velocity[i]\nvelocity[i] ="),
        ),
        "gradient alone": (
            "The velocity is right, but the parameters move by the gradient. Move them by the velocity.",
            lambda p, g, v, lr, momentum: (p - lr * g, momentum * v + g),
            ("lr * v", "lr * gradients[i]"),
        ),
        "replaced": (
            "You replace the parameter by the step: move it, with `-=`.",
            lambda p, g, v, lr, momentum: (lr * (momentum * v + g), momentum * v + g),
            lambda p, g, v, lr, momentum: (-lr * (momentum * v + g), momentum * v + g),
            ("parameters[i] -= lr * v", "parameters[i] = lr * v"),
        ),
        "never fades": (
            "The velocity is the sum of all gradients: it must fade by the factor `{momentum}` at each step.",
            lambda p, g, v, lr, momentum: (p - lr * (v + g), v + g),
            ("momentum * velocity[i]", "velocity[i]"),
        ),
        "averaged": (
            "You weight the gradient by `1 - {momentum}`, as Adam does. Here add the gradient as it is.",
            lambda p, g, v, lr, momentum: (
                p - lr * (momentum * v + (1 - momentum) * g),
                momentum * v + (1 - momentum) * g,
            ),
            ("gradients[i]", "(np.float32(1) - momentum) * gradients[i]"),
        ),
        "rate in the velocity": (
            "You multiply the gradient by `{lr}` before it goes into the velocity. Some books do so; here "
            "the velocity holds gradients, and `{lr}` comes in when the parameters move.",
            lambda p, g, v, lr, momentum: (p - (momentum * v + lr * g), momentum * v + lr * g),
            [("gradients[i]", "lr * gradients[i]"), ("lr * v", "v")],
        ),
        "rate twice": (
            "You multiply by `{lr}` twice: the velocity holds gradients as they are.",
            lambda p, g, v, lr, momentum: (p - lr * (momentum * v + lr * g), momentum * v + lr * g),
            ("gradients[i]", "lr * gradients[i]"),
        ),
        "rate left out": (
            "You move by the velocity itself: multiply it by `{lr}`.",
            lambda p, g, v, lr, momentum: (p - (momentum * v + g), momentum * v + g),
            ("lr * v", "v"),
        ),
        "gradient subtracted": (
            "You subtract the gradient in the velocity. Add it there: the step subtracts the velocity.",
            lambda p, g, v, lr, momentum: (p - lr * (momentum * v - g), momentum * v - g),
            lambda p, g, v, lr, momentum: (p + lr * (momentum * v - g), momentum * v - g),
            lambda p, g, v, lr, momentum: (p + (momentum * v - lr * g), momentum * v - lr * g),
            ("+ gradients[i]", "- gradients[i]"),
            [("+ gradients[i]", "- gradients[i]"), ("-=", "+=")],
            [("+ gradients[i]", "- lr * gradients[i]"), ("-= lr * v", "+= v")],
        ),
        "gradient fades too": (
            "You multiply the gradient by `{momentum}` too. Only the old velocity fades.",
            lambda p, g, v, lr, momentum: (p - lr * momentum * (v + g), momentum * (v + g)),
            ("velocity[i] + gradients[i]", "(velocity[i] + gradients[i])"),
        ),
        "always 0.9": (
            "Your factor is always 0.9: use the argument `{momentum}`.",
            lambda p, g, v, lr, momentum: (p - lr * (0.9 * v + g), 0.9 * v + g),
            ("momentum *", "np.float32(0.9) *"),
        ),
        "nesterov": (
            "You move by `g + {momentum} * v`, which is Nesterov's variant. Plain momentum moves by `v`.",
            lambda p, g, v, lr, momentum: (p - lr * (g + momentum * (momentum * v + g)), momentum * v + g),
            ("lr * v", "lr * (gradients[i] + momentum * v)"),
        ),
        "uphill": (
            "The gradient points uphill, and so do you: subtract.",
            lambda p, g, v, lr, momentum: (p + lr * (momentum * v + g), momentum * v + g),
            ("-=", "+="),
        ),
    },
)
