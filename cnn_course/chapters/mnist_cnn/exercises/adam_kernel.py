"""One step of Adam, a thread for each parameter."""

from functools import partial

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, normal


def _adam_launched(
    p, g, m, v, lr, beta1, beta2, eps, correction1, correction2, *, power=2, root=None, hats=None
):
    """Take a step of Adam with the given corrections; the keywords make it wrong."""
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**power
    m_hat, v_hat = hats(m, v, correction1, correction2) if hats else (m / correction1, v / correction2)
    return p - lr * m_hat / (root(v_hat, eps) if root else np.sqrt(v_hat) + eps), m, v


def _adam_moved(change):
    """Return a wrong Adam: `change` gets the old arrays and the right results, and returns what is stored."""

    def wrong(p, g, m, v, *settings):
        return change((p, m, v), _adam_launched(p, g, m, v, *settings), g, settings)

    return wrong


def _adam_of(means):
    """Return a wrong Adam with other means, ``means(m, v, g, beta1, beta2)``."""

    def wrong(p, g, m, v, lr, beta1, beta2, *rest):
        m, v = means(m, v, g, beta1, beta2)
        return _adam_launched(p, 0 * g, m, v, lr, 1, 1, *rest)

    return wrong


def _moments_launched(rng):
    sizes = [(1, 4, 3), (1, 32, 20), (3, 8, 19), (2, 32, 47), (5, 16, 65)]
    settings = [(0.5, 0.5, 0.75, 0.25, 1), (0.1, 0.7, 0.95, 0.1, 2), (0.3, 0.9, 0.99, 0.05, 7)]
    settings += [(0.2, 0.8, 0.9, 0.2, 3), (0.25, 0.6, 0.8, 0.3, 40)]
    for (grid, block, n), (lr, beta1, beta2, eps, step) in zip(sizes, settings, strict=True):
        v = rng.uniform(0.1, 2, n).astype(np.float32)
        numbers = lr, beta1, beta2, eps, 1 - beta1**step, 1 - beta2**step
        arrays = inout(normal(rng, n)), normal(rng, n), inout(normal(rng, n)), inout(v)
        yield launch(grid, block, *arrays, *map(np.float32, numbers))


adam_kernel = KernelExercise(
    "adam_kernel",
    reference=_adam_launched,
    cases=_moments_launched,
    float32=True,
    once=True,
    mistakes={
        "not corrected": (
            "Correct both means: divide `{m}` by `{correction1}` and `{v}` by `{correction2}`.",
            partial(_adam_launched, hats=lambda m, v, *_: (m, v)),
            [("/ correction1", ""), ("/ correction2", "")],
        ),
        "v not corrected": (
            "`{m}` is corrected and `{v}` is not: divide it by `{correction2}` before you take the root.",
            partial(_adam_launched, hats=lambda m, v, c1, _: (m / c1, v)),
            ("/ correction2", ""),
        ),
        "m not corrected": (
            "`{v}` is corrected and `{m}` is not: divide it by `{correction1}`.",
            partial(_adam_launched, hats=lambda m, v, _, c2: (m, v / c2)),
            ("/ correction1", ""),
        ),
        "corrections exchanged": (
            "`{correction1}` belongs to `{m}`, whose factor is `{beta1}`, and `{correction2}` to `{v}`.",
            partial(_adam_launched, hats=lambda m, v, c1, c2: (m / c2, v / c1)),
            [("new_m / correction1", "new_m / correction2"), ("new_v / correction2", "new_v / correction1")],
        ),
        "correction kept": (
            "The parameters are right. Store `{m}` and `{v}` themselves, not the corrected means.",
            _adam_moved(lambda _, new, g, s: (new[0], new[1] / s[4], new[2] / s[5])),
            ("m[i], v[i] = new_m, new_v", "m[i], v[i] = new_m / correction1, new_v / correction2"),
        ),
        "means not stored": (
            "The parameters are right, but the new means are lost: store them in `{m}[i]` and `{v}[i]`.",
            _adam_moved(lambda old, new, *_: (new[0], *old[1:])),
            _adam_moved(lambda old, new, *_: (new[0], old[1], new[2])),
            _adam_moved(lambda old, new, *_: (new[0], new[1], old[2])),
            ("m[i], v[i] = new_m, new_v", ""),
            ("m[i], v[i] = new_m, new_v", "m[i] = new_m"),
        ),
        "parameters not stored": (
            "The means are right, but the parameters stay where they are: store what you compute, by "
            "`{p}[i] -= ...`.",
            _adam_moved(lambda old, new, *_: (old[0], *new[1:])),
            ("parameters[i] -=", "step ="),
        ),
        "old means": (
            "You move the parameters by the old means. Update the means with the gradient first.",
            _adam_moved(
                lambda old, new, g, s: (
                    old[0] - s[0] * (old[1] / s[4]) / (np.sqrt(old[2] / s[5]) + s[3]),
                    *new[1:],
                )
            ),
            [
                ("(new_m / correction1)", "(m[i] / correction1)"),
                ("new_v / correction2", "v[i] / correction2"),
                ("m[i], v[i] = new_m, new_v\nparameters", "parameters"),
                ("+ eps)", "+ eps)\nm[i], v[i] = new_m, new_v"),
            ],
        ),
        "multiplied": (
            "You multiply by a correction, which makes a mean smaller still. Divide by both.",
            partial(_adam_launched, hats=lambda m, v, c1, c2: (m * c1, v * c2)),
            partial(_adam_launched, hats=lambda m, v, c1, c2: (m * c1, v / c2)),
            partial(_adam_launched, hats=lambda m, v, c1, c2: (m / c1, v * c2)),
            [("/ correction1", "* correction1"), ("/ correction2", "* correction2")],
            ("/ correction1", "* correction1"),
            ("/ correction2", "* correction2"),
        ),
        "weight of the start": (
            "`{correction1}` and `{correction2}` are `1 - beta**step` already: divide by them.",
            partial(_adam_launched, hats=lambda m, v, c1, c2: (m / (1 - c1), v / (1 - c2))),
            [
                ("/ correction1", "/ (float32(1) - correction1)"),
                ("/ correction2", "/ (float32(1) - correction2)"),
            ],
        ),
        "root taken first": (
            "You correct the root of `{v}`. Correct `{v}`, then take the root.",
            partial(_adam_launched, hats=lambda m, v, c1, c2: (m / c1, v / c2**2)),
            ("math.sqrt(new_v / correction2)", "math.sqrt(new_v) / correction2"),
        ),
        "betas exchanged": (
            "`{beta1}` belongs to `{m}`, and `{beta2}` to `{v}`: exchange them.",
            _adam_of(lambda m, v, g, b1, b2: (b2 * m + (1 - b2) * g, b1 * v + (1 - b1) * g * g)),
            [
                ("beta1 * m[i] + (float32(1) - beta1)", "beta2 * m[i] + (float32(1) - beta2)"),
                ("beta2 * v[i] + (float32(1) - beta2)", "beta1 * v[i] + (float32(1) - beta1)"),
            ],
        ),
        "weights exchanged": (
            "The old mean has the weight beta, and the gradient `1 - beta`: exchange them.",
            _adam_of(lambda m, v, g, b1, b2: ((1 - b1) * m + b1 * g, (1 - b2) * v + b2 * g * g)),
            [
                ("beta1 * m[i] + (float32(1) - beta1)", "(float32(1) - beta1) * m[i] + beta1"),
                ("beta2 * v[i] + (float32(1) - beta2)", "(float32(1) - beta2) * v[i] + beta2"),
            ],
        ),
        "weight left out": (
            "You add the whole gradient. Its weight in the mean is `1 - beta`.",
            _adam_of(lambda m, v, g, b1, b2: (b1 * m + g, b2 * v + g * g)),
            [("(float32(1) - beta1) * g", "g"), ("(float32(1) - beta2) * g", "g")],
        ),
        "replaced": (
            "You replace the parameter by the step: move it, with `-=`.",
            _adam_moved(lambda old, new, *_: (old[0] - new[0], *new[1:])),
            _adam_moved(lambda old, new, *_: (new[0] - old[0], *new[1:])),
            ("parameters[i] -=", "parameters[i] ="),
        ),
        "eps left out": (
            "`{eps}` is missing: add it to the root. It prevents a division by 0 when all gradients are 0.",
            partial(_adam_launched, root=lambda v_hat, eps: np.sqrt(v_hat)),
            (" + eps", ""),
        ),
        "eps under the root": (
            "You add `{eps}` under the root. Take the root first, then add it.",
            partial(_adam_launched, root=lambda v_hat, eps: np.sqrt(v_hat + eps)),
            ("correction2) + eps", "correction2 + eps)"),
        ),
        "no root": (
            "You divide by the mean of the squares itself: take its root.",
            partial(_adam_launched, root=lambda v_hat, eps: v_hat + eps),
            ("math.sqrt(new_v / correction2)", "new_v / correction2"),
        ),
        "gradient not squared": (
            "`{v}` is the mean of the *squares* of the gradients: multiply `g` by itself.",
            partial(_adam_launched, power=1),
            ("* g * g", "* g"),
        ),
        "uphill": (
            "The gradient points uphill, and so do you: subtract.",
            _adam_moved(lambda old, new, *_: (2 * old[0] - new[0], *new[1:])),
            ("-=", "+="),
        ),
    },
)
