"""`int8_dense`: a dense layer in int8."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise


def _rounded(values, scale):
    return np.clip(np.rint(values / scale), -127, 127)


def _wrapped(values, scale):
    return np.rint(values / scale).astype(np.int64).astype(np.int8).astype(np.float64)


def _cut(values, scale):
    return np.clip(np.trunc(values / scale), -127, 127)


def _down(values, scale):
    return np.clip(np.floor(values / scale), -127, 127)


def _up(values, scale):
    return np.clip(np.ceil(values / scale), -127, 127)


def _by_row(weight):
    return abs(weight).max(axis=1) / 127


def _dense(
    x8=_rounded,
    w8=_rounded,
    scales=_by_row,
    total=lambda x, w: x @ w.T,
    back=lambda total, x_scale, scales, bias: total * (x_scale * scales) + bias,
):
    """Return a dense layer in 8 bits, with one mistake."""

    def int8_dense(x, weight, bias, x_scale):
        s = scales(weight)
        return back(total(x8(x, x_scale), w8(weight, s[:, None])), x_scale, s, bias)

    return int8_dense


def _by_columns(x, weight, bias, x_scale):
    scales = abs(weight).max(axis=0) / 127
    return _rounded(x, x_scale) @ _rounded(weight, scales).T * (x_scale * scales) + bias


def _meets_the_columns(x, weight, bias, x_scale):
    scales = _by_row(weight)
    return _rounded(x, x_scale) @ _rounded(weight, scales).T * (x_scale * scales) + bias


def _multiplied(values, scale):
    return np.clip(np.rint(values * scale), -127, 127)


def _in_8_bits(x, w):
    return x.astype(np.int8) @ w.astype(np.int8).T


def _layers(rng):
    """Draw dense layers with small and large rows, and inputs that sometimes exceed the calibration."""
    for samples, inputs, outputs, limit in [
        (1, 2, 1, 3.0),
        (2, 3, 3, 2.0),  # square: a scale along the wrong axis then raises no error
        (3, 7, 4, 2.0),
        (5, 20, 6, 1.5),
        (2, 33, 5, 2.5),
        (4, 9, 3, 1.0),
    ]:
        weight = rng.normal(size=(outputs, inputs)) * 10.0 ** rng.uniform(-1.5, 1, (outputs, 1))
        x, bias = rng.normal(size=(samples, inputs)), rng.normal(size=outputs)
        x[0, 0], x[-1, -1] = 1.3 * limit, -1.4 * limit
        yield x, weight, bias, limit / 127


int8_dense = Exercise(
    "int8_dense",
    reference=_dense(),
    cases=_layers,
    mistakes={
        "one scale for all rows": (
            "You use one scale for the whole weight. Give each row its own, or small rows lose precision.",
            _dense(scales=lambda weight: np.full(len(weight), abs(weight).max() / 127)),
            ("np.abs(weight).max(axis=1) / 127", "np.full(len(weight), np.abs(weight).max() / 127)"),
        ),
        "scale of the columns": (
            "You take the largest of each column. Each row (one per output) has a scale: `axis=1`.",
            _by_columns,
            [("max(axis=1)", "max(axis=0)"), ("scales[:, None]", "scales")],
        ),
        "scales meet the columns": (
            "Your row scales multiply the columns of the weight: give them another axis, `scales[:, None]`.",
            _meets_the_columns,
            ("scales[:, None]", "scales"),
        ),
        "divided back": (
            "You divide the sums by the scales. Multiply them by `{x_scale}` and by the row's scale.",
            _dense(back=lambda total, x_scale, scales, bias: total / (x_scale * scales) + bias),
            ("total * (x_scale", "total / (x_scale"),
        ),
        "multiplied by the scale": (
            "You multiply by a scale to get integers. A scale is the size of one step: divide by it.",
            _dense(x8=_multiplied),
            _dense(w8=_multiplied),
            _dense(x8=_multiplied, w8=_multiplied),
            ("x / x_scale", "x * x_scale"),
        ),
        "not clipped": (
            "Inputs beyond the range become integers beyond 127: after dividing, clip to -127 .. 127.",
            _dense(x8=lambda values, scale: np.rint(values / scale)),
            ("np.clip(np.rint(x / x_scale), -127, 127).astype(np.int8)", "np.rint(x / x_scale)"),
            (
                "np.clip(np.rint(x / x_scale), -127, 127).astype(np.int8)",
                "np.rint(np.clip(x, -127, 127) / x_scale)",
            ),
        ),
        "128 steps": (
            "You divide each row's largest by 128. int8 ends at 127: a row's largest must become 127.",
            _dense(scales=lambda weight: abs(weight).max(axis=1) / 128),
            ("axis=1) / 127", "axis=1) / 128"),
        ),
        "clipped at -128": (
            "You clip at -128. The range must be symmetric: -127 .. 127.",
            _dense(x8=lambda values, scale: np.clip(np.rint(values / scale), -128, 127)),
            ("np.rint(x / x_scale), -127", "np.rint(x / x_scale), -128"),
        ),
        "largest, not largest in size": (
            "You take the largest number of each row. Take the largest *absolute* value.",
            _dense(scales=lambda weight: abs(weight.max(axis=1)) / 127),
            ("np.abs(weight).max(axis=1)", "np.abs(weight.max(axis=1))"),
        ),
        "wraps around": (
            "Inputs beyond the range wrap around, 140 to -116: clip to -127 .. 127 before `astype(np.int8)`.",
            _dense(x8=_wrapped),
            ("np.clip(np.rint(x / x_scale), -127, 127).astype", "np.rint(x / x_scale).astype(int).astype"),
        ),
        "cut off": (
            "`astype` truncates towards 0. Round to the nearest first: `np.rint`.",
            _dense(x8=_cut, w8=_cut),
            _dense(x8=_cut),
            _dense(w8=_cut),
            [
                ("np.rint(x / x_scale)", "x / x_scale"),
                ("np.rint(weight / scales[:, None])", "weight / scales[:, None]"),
            ],
            ("np.rint(x / x_scale)", "x / x_scale"),
        ),
        "rounded to one side": (
            "You always round down, or always up. Round to the *nearest*: `np.rint`.",
            *(
                _dense(**dict.fromkeys(which, rounding))
                for rounding in (_down, _up)
                for which in (("x8",), ("w8",), ("x8", "w8"))
            ),
            ("np.rint(x / x_scale)", "np.floor(x / x_scale)"),
            ("np.rint(x / x_scale)", "np.ceil(x / x_scale)"),
            [
                ("np.rint(x / x_scale)", "np.floor(x / x_scale)"),
                ("np.rint(weight / scales[:, None])", "np.floor(weight / scales[:, None])"),
            ],
        ),
        "negative inputs lost": (
            "You clip the inputs at 0. They have a sign: clip to -127 .. 127, as int8.",
            _dense(x8=lambda values, scale: np.clip(np.rint(values / scale), 0, 127)),
            ("np.rint(x / x_scale), -127", "np.rint(x / x_scale), 0"),
        ),
        "weights in the inputs' steps": (
            "The weights are divided by the inputs' scale. Each row has its own, `scales`.",
            lambda x, weight, bias, x_scale: (
                _rounded(x, x_scale) @ _rounded(weight, x_scale).T * (x_scale * _by_row(weight)) + bias
            ),
            lambda x, weight, bias, x_scale: (
                _rounded(x, x_scale) @ _rounded(weight, x_scale).T * x_scale**2 + bias
            ),
            ("weight / scales[:, None]", "weight / x_scale"),
        ),
        "sums in 16 bits": (
            "Your sums overflow: a sum of products of 127 and 127 quickly exceeds int16. Add in int32.",
            _dense(total=lambda x, w: x.astype(np.int16) @ w.astype(np.int16).T),
            (".astype(np.int32)", ".astype(np.int16)", 2),
        ),
        "sums in 8 bits": (
            "Your sums overflow: you add in 8 bits. Convert to int32 before you multiply.",
            _dense(total=_in_8_bits),
            (".astype(np.int32)", "", 2),
        ),
        "not scaled back": (
            "The sums are whole numbers, in units of `{x_scale}` times the row's scale: multiply by both.",
            _dense(back=lambda total, x_scale, scales, bias: total + bias),
            ("total * (x_scale * scales)", "total"),
        ),
        "one scale missing": (
            "A unit of the sum is a unit of `{x}` times a unit of the weight: multiply by *both* scales.",
            _dense(back=lambda total, x_scale, scales, bias: total * scales + bias),
            _dense(back=lambda total, x_scale, scales, bias: total * x_scale + bias),
            ("(x_scale * scales)", "scales"),
            ("(x_scale * scales)", "x_scale"),
        ),
        "bias scaled": (
            "The bias is a float already: add it after the sums are scaled back.",
            _dense(back=lambda total, x_scale, scales, bias: (total + bias) * (x_scale * scales)),
            ("total * (x_scale * scales) + bias", "(total + bias) * (x_scale * scales)"),
        ),
        "bias forgotten": (
            "The bias is missing.",
            _dense(back=lambda total, x_scale, scales, bias: total * (x_scale * scales)),
            ("(x_scale * scales) + bias", "(x_scale * scales)"),
        ),
        "inputs not rounded": (
            "You round the weights only. An integer unit multiplies int8 by int8: round the inputs too.",
            _dense(x8=lambda x, scale: x / scale),
            [
                ("np.clip(np.rint(x / x_scale), -127, 127).astype(np.int8)", "x / x_scale"),
                ("x8.astype(np.int32)", "x8"),
            ],
        ),
        "weights not rounded": (
            "The weights are scaled but not rounded: round and clip them like the inputs.",
            _dense(w8=lambda weight, scale: weight / scale),
            [
                (
                    "np.clip(np.rint(weight / scales[:, None]), -127, 127).astype(np.int8)",
                    "weight / scales[:, None]",
                ),
                ("w8.astype(np.int32)", "w8"),
            ],
        ),
        "not rounded at all": (
            "Nothing is rounded: this is the dense layer in floating point.",
            lambda x, weight, bias, x_scale: x @ weight.T + bias,
            ("total * (x_scale * scales) + bias", "x @ weight.T + bias"),
        ),
        "range of the batch": (
            "You take the inputs' scale from this batch. Use the calibrated `{x_scale}`, and clip.",
            lambda x, weight, bias, x_scale: _dense()(x, weight, bias, abs(x).max() / 127),
            ("scales = np.abs(weight)", "x_scale = np.abs(x).max() / 127\nscales = np.abs(weight)"),
        ),
    },
)
