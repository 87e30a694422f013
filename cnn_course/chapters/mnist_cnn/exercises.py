"""The checks of notebook 09, ``09_mnist_cnn``."""

from functools import partial

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, case
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
    mistakes={
        "velocity not stored": (
            "The parameters are right, but the new velocity is lost: store it in `{velocity}[i]`.",
            lambda p, g, v, lr, momentum: (p - lr * (momentum * v + g), v),
            ("velocity[i] = v", ""),
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


def _adam(p, g, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, *, denominator=None, hats=None):
    """Take a step of Adam; `hats` and `denominator` say how to go wrong."""
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    m_hat, v_hat = (hats or _hats)(m, v, step, beta1, beta2)
    root = (denominator or _denominator)(v_hat, eps)
    return p - lr * m_hat / root, m, v


def _hats(m, v, step, beta1, beta2):
    return m / (1 - beta1**step), v / (1 - beta2**step)


def _denominator(v_hat, eps):
    return np.sqrt(v_hat) + eps


def _reference_adam(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    return _adam(parameters, gradients, m, v, step, lr, beta1, beta2, eps)


def _adam_with(**how):
    return lambda *args, **kwargs: _adam(*args, **kwargs, **how)


def _old_means(p, g, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m_hat, v_hat = _hats(m, v, step, beta1, beta2)
    moved = p - lr * m_hat / _denominator(v_hat, eps)
    return moved, beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2


def _corrected_rate(p, g, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    rate = lr * np.sqrt(1 - beta2**step) / (1 - beta1**step)
    return _adam(p, g, m, v, step, rate, beta1, beta2, eps, hats=lambda m, v, *_: (m, v))


def _hats_kept(p, g, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    moved, m, v = _adam(p, g, m, v, step, lr, beta1, beta2, eps)
    return moved, *_hats(m, v, step, beta1, beta2)


def _moments(rng):
    def drawn(n, step, **settings):
        p, g, m = rng.normal(size=(3, n))
        v = rng.uniform(0.1, 2, n)
        return case(p, g, m, v, step, **settings)

    p, g = rng.normal(size=(2, 3))
    return [
        case(p, g, np.zeros(3), np.zeros(3), 1, lr=0.1),
        drawn(1, 1, lr=0.5, eps=0.3),
        drawn(5, 2, lr=0.1, beta1=0.7, beta2=0.95),
        drawn(4, 7, lr=0.3, eps=0.1),
        drawn(7, 40, lr=0.2, beta1=0.95, beta2=0.99, eps=0.05),
        drawn(6, 3, lr=0.05, beta1=0.5, beta2=0.8, eps=0.2),
    ]


adam_step = Exercise(
    "adam_step",
    reference=_reference_adam,
    cases=_moments,
    starts_as=_adam_with(hats=lambda m, v, *_: (m, v)),
    mistakes={
        "v not corrected": (
            "`{m}` is corrected and `{v}` is not. It starts at 0 too, and grows more slowly: correct both.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / (1 - b1**step), v)),
            ("np.sqrt(v_hat)", "np.sqrt(v)"),
        ),
        "m not corrected": (
            "`{v}` is corrected and `{m}` is not. It starts at 0 too: correct both.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m, v / (1 - b2**step))),
            ("lr * m_hat", "lr * m"),
        ),
        "power forgotten": (
            "You divide by `1 - beta` at every step. The missing part shrinks: use `beta**{step}`.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / (1 - b1), v / (1 - b2))),
            [("beta1**step", "beta1"), ("beta2**step", "beta2")],
        ),
        "betas exchanged": (
            "You correct `{m}` by `{beta2}` and `{v}` by `{beta1}`: exchange them.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / (1 - b2**step), v / (1 - b1**step))),
            [("(1 - beta1**step)", "(1 - beta2**step)"), ("v / (1 - beta2**step)", "v / (1 - beta1**step)")],
        ),
        "multiplied": (
            "You multiply by `1 - beta**{step}`, which makes the means smaller still. Divide.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m * (1 - b1**step), v * (1 - b2**step))),
            [("/ (1 - beta1**step)", "* (1 - beta1**step)"), ("/ (1 - beta2**step)", "* (1 - beta2**step)")],
        ),
        "weight of the start": (
            "You divide by the weight of the zeros at the start. The gradients' is `1 - beta**{step}`.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / b1**step, v / b2**step)),
            [("m / (1 - beta1**step)", "m / beta1**step"), ("v / (1 - beta2**step)", "v / beta2**step")],
        ),
        "times the step": (
            "You multiply beta by the step. The share of the start is a power: `{beta1}**{step}`.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / (1 - b1 * step), v / (1 - b2 * step))),
            [("beta1**step", "beta1 * step"), ("beta2**step", "beta2 * step")],
        ),
        "counted from 0": (
            "Your correction is that of the step before. The first step has number 1: use `{step}` as it is.",
            _adam_with(
                hats=lambda m, v, step, b1, b2: (
                    m / np.float64(1 - b1 ** (step - 1)),
                    v / np.float64(1 - b2 ** (step - 1)),
                )
            ),
            ("**step", "**(step - 1)", 2),
        ),
        "root taken first": (
            "You correct the root of `{v}`. Correct `{v}`, then take the root.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / (1 - b1**step), v / (1 - b2**step) ** 2)),
            [("v / (1 - beta2**step)", "np.sqrt(v) / (1 - beta2**step)"), ("np.sqrt(v_hat)", "v_hat")],
        ),
        "eps under the root": (
            "You add `{eps}` under the root. Take the root first, then add it.",
            _adam_with(denominator=lambda v_hat, eps: np.sqrt(v_hat + eps)),
            ("(np.sqrt(v_hat) + eps)", "np.sqrt(v_hat + eps)"),
        ),
        "eps not corrected": (
            "You have moved the corrections into the learning rate, as the paper does in its shortcut. That "
            "adds `{eps}` to the root of `{v}`; here add it to the root of `v_hat`.",
            _corrected_rate,
            [("/ (1 - beta1**step)", "* np.sqrt(1 - beta2**step) / (1 - beta1**step)"), ("(v_hat)", "(v)")],
        ),
        "old means": (
            "You correct the means that were handed in. Bring in the gradient first.",
            _old_means,
            [
                ("m = beta1 * m", "old_m, m = m, beta1 * m"),
                ("v = beta2 * v", "old_v, v = v, beta2 * v"),
                ("m_hat = m", "m_hat = old_m"),
                ("v_hat = v", "v_hat = old_v"),
            ],
        ),
        "correction kept": (
            "The parameters are right. Return `{m}` and `{v}` themselves, not the corrected means.",
            _hats_kept,
            [("m_hat = m", "m_hat = m = m"), ("v_hat = v", "v_hat = v = v")],
        ),
    },
)


def _adam_launched(
    p, g, m, v, lr, beta1, beta2, eps, correction1, correction2, *, power=2, root=None, hats=None
):
    """Take a step of Adam with the corrections given; the keywords say how to go wrong."""
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**power
    m_hat, v_hat = hats(m, v, correction1, correction2) if hats else (m / correction1, v / correction2)
    return p - lr * m_hat / (root(v_hat, eps) if root else np.sqrt(v_hat) + eps), m, v


def _adam_moved(change):
    """Return a wrong Adam: what is stored, of what was there before and what is right."""

    def wrong(p, g, m, v, *settings):
        return change((p, m, v), _adam_launched(p, g, m, v, *settings), g, settings)

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
        "old means": (
            "You move the parameters by the means of the step before. Bring in the gradient first.",
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
