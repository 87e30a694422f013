"""One step of Adam, in NumPy."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, case


def _adam(p, g, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, *, denominator=None, hats=None):
    """Take a step of Adam; `hats` and `denominator` make it wrong."""
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
            "You divide by the weight of the zeros at the start. Divide by the gradients' weight, `1 - "
            "beta**{step}`.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / b1**step, v / b2**step)),
            [("m / (1 - beta1**step)", "m / beta1**step"), ("v / (1 - beta2**step)", "v / beta2**step")],
        ),
        "times the step": (
            "You multiply beta by the step. The weight of the start is a power: `{beta1}**{step}`.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / (1 - b1 * step), v / (1 - b2 * step))),
            [("beta1**step", "beta1 * step"), ("beta2**step", "beta2 * step")],
        ),
        "power of the difference": (
            "You raise `1 - beta` to a power. Only beta is: `1 - {beta1}**{step}`.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / (1 - b1) ** step, v / (1 - b2) ** step)),
            [("(1 - beta1**step)", "(1 - beta1) ** step"), ("(1 - beta2**step)", "(1 - beta2) ** step")],
        ),
        "brackets missing": (
            "You divide by 1 and subtract the power from the mean. Put `1 - beta**{step}` in brackets.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m - b1**step, v - b2**step)),
            [("(1 - beta1**step)", "1 - beta1**step"), ("(1 - beta2**step)", "1 - beta2**step")],
        ),
        "one correction for both": (
            "You correct both means by the same beta. `{m}` belongs to `{beta1}`, `{v}` to `{beta2}`.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / (1 - b1**step), v / (1 - b1**step))),
            _adam_with(hats=lambda m, v, step, b1, b2: (m / (1 - b2**step), v / (1 - b2**step))),
            ("v / (1 - beta2**step)", "v / (1 - beta1**step)"),
        ),
        "fixed betas": (
            "Your correction is right for betas of 0.9 and 0.999 only: use `{beta1}` and `{beta2}`.",
            _adam_with(hats=lambda m, v, step, b1, b2: (m / (1 - 0.9**step), v / (1 - 0.999**step))),
            [("1 - beta1**", "1 - 0.9**"), ("1 - beta2**", "1 - 0.999**")],
        ),
        "first step only": (
            "You correct only the first step. The weight of the zeros at the start shrinks with each step, "
            "but never becomes 0: correct every step.",
            _adam_with(
                hats=lambda m, v, step, b1, b2: (m, v) if step > 1 else (m / (1 - b1), v / (1 - b2)),
            ),
            [
                ("m_hat = m /", "m_hat = m if step > 1 else m /"),
                ("v_hat = v /", "v_hat = v if step > 1 else v /"),
            ],
        ),
        "counted from 2": (
            "Your correction is that of the next step. The first step has number 1: use `{step}` as it is.",
            _adam_with(hats=lambda m, v, step, b1, b2: _hats(m, v, step + 1, b1, b2)),
            ("**step", "**(step + 1)", 2),
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
            "You correct the old means. Update them with the gradient first.",
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
