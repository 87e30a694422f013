"""Checks for notebook 26: weights in another layout, bytes of fused kernels, a folded batch norm, 8 bits."""

from itertools import pairwise

import numpy as np

from cnn_course.engine.checks.exercise import Exercise

# --- for_keras ---------------------------------------------------------------------------------------------


def _converted(kernel=(2, 3, 1, 0), features=(2, 3, 1, 0), flip=False):
    """Return a conversion of both weights that turns the axes in these orders."""

    def convert(conv_weight, dense_weight, shape):
        turned = conv_weight.transpose(kernel)
        dense = dense_weight.reshape(-1, *shape).transpose(features)
        return turned[::-1, ::-1] if flip else turned, dense.reshape(-1, len(dense_weight))

    return convert


def _with_dense(dense):
    """Return a conversion that is right for the convolution, and does this to the dense layer."""
    return lambda conv_weight, dense_weight, shape: (
        conv_weight.transpose(2, 3, 1, 0),
        dense(dense_weight, shape),
    )


def _reshaped(conv_weight, dense_weight, shape):
    outputs, inputs, *window = conv_weight.shape
    right = _converted()(conv_weight, dense_weight, shape)
    return conv_weight.reshape(*window, inputs, outputs), right[1]


def _weights(rng):
    """Draw weights of a convolution and of a dense layer; no two sizes alike."""
    for conv, outputs, shape in [
        ((2, 1, 1, 1), 1, (2, 1, 1)),
        ((4, 2, 3, 5), 6, (3, 2, 4)),
        ((3, 5, 2, 4), 7, (4, 3, 2)),
        ((6, 4, 5, 3), 2, (2, 5, 3)),
        ((2, 3, 4, 6), 5, (5, 2, 4)),
    ]:
        dense = outputs, int(np.prod(shape))
        yield rng.normal(size=conv).astype(np.float32), rng.normal(size=dense).astype(np.float32), shape


for_keras = Exercise(
    "for_keras",
    reference=_converted(),
    cases=_weights,
    mistakes={
        "reshaped": (
            "You reshape the convolution's weight: that gives the numbers another shape, and leaves them in "
            "the order in which they were. Its axes have to change places: `transpose`.",
            _reshaped,
            (
                "kernel = conv_weight.transpose(2, 3, 1, 0)",
                "o, i, h, w = conv_weight.shape\nkernel = conv_weight.reshape(h, w, i, o)",
            ),
        ),
        "inputs and outputs exchanged": (
            "Keras puts the input channels before the output channels: take our axes as 2, 3, 1, 0.",
            _converted(kernel=(2, 3, 0, 1)),
            ("kernel = conv_weight.transpose(2, 3, 1, 0)", "kernel = conv_weight.transpose(2, 3, 0, 1)"),
        ),
        "rows and columns exchanged": (
            "You turn each filter on its side: rows stay before columns, in both layouts.",
            _converted(kernel=(3, 2, 1, 0)),
            ("kernel = conv_weight.transpose(2, 3, 1, 0)", "kernel = conv_weight.T"),
        ),
        "flipped": (
            "You flip the filters. Keras correlates, as we do: only the axes change places.",
            _converted(flip=True),
            ("return kernel, features", "return kernel[::-1, ::-1], features"),
        ),
        "features in our order": (
            "The dense weight is turned, but its rows still stand in our order of features, channel by "
            "channel. Keras flattens pixel by pixel, and all channels of a pixel follow one another.",
            _with_dense(lambda weight, shape: weight.T),
            ("= dense_weight.reshape(-1, *shape).transpose(2, 3, 1, 0)", "= dense_weight.T"),
        ),
        "not turned": (
            "The features are in order, but a dense weight of Keras has the shape (inputs, outputs).",
            _with_dense(
                lambda weight, shape: _converted(features=(0, 2, 3, 1))(
                    np.zeros((1, 1, 1, 1)), weight, shape
                )[1].reshape(len(weight), -1)
            ),
            [
                ("*shape).transpose(2, 3, 1, 0)", "*shape).transpose(0, 2, 3, 1)"),
                ("features.reshape(-1, len(dense_weight))", "features.reshape(len(dense_weight), -1)"),
            ],
        ),
        "columns before rows": (
            "Your features run down the columns. Rows come first in both layouts: height, width, channels.",
            _converted(features=(3, 2, 1, 0)),
            ("*shape).transpose(2, 3, 1, 0)", "*shape).transpose(3, 2, 1, 0)"),
        ),
        "dense weight reshaped": (
            "You reshape the dense weight: its numbers stay in the order in which they were. Turn it.",
            _with_dense(lambda weight, shape: weight.reshape(-1, len(weight))),
            ("features.reshape(", "dense_weight.reshape("),
        ),
    },
)


# --- traffic -----------------------------------------------------------------------------------------------


def _counted(
    reads=lambda asked, made: set(asked) - made,
    keep=lambda made, others, results: made & (others | results),
    size=lambda sizes, name: sizes[name],
):
    """Return a count of the bytes of kernels, in one point not as it should be."""

    def traffic(kernels, sizes, results):
        total = 0
        for kernel in kernels:
            made = {output for output, _ in kernel}
            asked = [name for _, inputs in kernel for name in inputs]
            others = {
                name for other in kernels if other is not kernel for _, inputs in other for name in inputs
            }
            moved = [*reads(asked, made), *keep(made, others, set(results))]
            total += sum(size(sizes, name) for name in moved)
        return total

    return traffic


def _loads_inner_arrays(kernels, sizes, results):
    """Return the bytes where the names of all that is loaded or stored are one set."""
    total = 0
    for kernel in kernels:
        made = {output for output, _ in kernel}
        asked = {name for _, inputs in kernel for name in inputs}
        others = {name for other in kernels if other is not kernel for _, inputs in other for name in inputs}
        total += sum(sizes[name] for name in asked | made & (others | set(results)))
    return total


def _last_outputs(kernels, sizes, results):
    """Return the bytes where a kernel stores what its last operation makes, and nothing else."""
    total = 0
    for kernel in kernels:
        made = {output for output, _ in kernel}
        asked = {name for _, inputs in kernel for name in inputs}
        total += sum(sizes[name] for name in asked - made) + sizes[kernel[-1][0]]
    return total


def _once_in_all(kernels, sizes, results):
    """Return the bytes of the arrays that are moved at all."""
    moved = set()
    for kernel in kernels:
        made = {output for output, _ in kernel}
        others = {name for other in kernels if other is not kernel for _, inputs in other for name in inputs}
        moved |= {name for _, inputs in kernel for name in inputs} - made | made & (others | set(results))
    return sum(sizes[name] for name in moved)


def _plans(rng):
    """Draw programs, each cut into kernels in several ways."""
    yield [[("y", ("x",))]], {"x": 4, "y": 8}, ("y",)
    # A by-product that nothing uses.
    yield [[("a", ("x",)), ("mask", ("a",)), ("y", ("a",))]], {"x": 4, "a": 8, "mask": 16, "y": 32}, ("y",)
    chain = [("a", ("x",)), ("b", ("a", "bias")), ("c", ("b",)), ("d", ("c", "x", "x"))]
    fork = [("a", ("x",)), ("b", ("a", "a")), ("c", ("a", "y")), ("d", ("b", "c"))]
    for operations, results in ((chain, ("d",)), (chain, ("d", "b")), (fork, ("d", "c"))):
        names = sorted({name for output, inputs in operations for name in (output, *inputs)})
        sizes = {name: 4 * int(rng.integers(1, 1000)) for name in names}
        for cuts in ((), (2,), (1, 3), (1, 2, 3)):
            ends = [0, *cuts, len(operations)]
            yield [operations[a:b] for a, b in pairwise(ends)], sizes, results


traffic = Exercise(
    "traffic",
    reference=_counted(),
    cases=_plans,
    mistakes={
        "inner arrays written": (
            "You store all that a kernel makes. An array that only this kernel uses stays in registers.",
            _counted(keep=lambda made, others, results: made),
            ("(made & (others | set(results)))", "made"),
        ),
        "inner arrays read": (
            "You count an array that a kernel makes and uses. While it runs that is in its registers: it "
            "is not loaded, and it is stored only if *another* kernel loads it or it is a result.",
            _counted(reads=lambda asked, made: set(asked)),
            _loads_inner_arrays,
            ("(asked - made) |", "asked |"),
            ("if k is not kernel ", ""),
        ),
        "inner arrays moved": (
            "You count arrays that one operation of a kernel makes for the next: they stay in registers.",
            _counted(reads=lambda asked, made: set(asked), keep=lambda made, others, results: made),
            ("for name in moved", "for names in (asked, made) for name in names"),
        ),
        "loaded twice": (
            "A kernel loads an array once, however often its operations use it: take the set of names.",
            _counted(reads=lambda asked, made: [name for name in asked if name not in made]),
            [
                (
                    "{name for _, inputs in kernel for name in inputs}",
                    "[name for _, inputs in kernel for name in inputs if name not in made]",
                ),
                (
                    "(asked - made) | (made & (others | set(results)))",
                    "[*asked, *(made & (others | set(results)))]",
                ),
            ],
        ),
        "nothing stored": (
            "You count what is loaded only. A kernel also stores what others need, and what is a result.",
            _counted(keep=lambda made, others, results: ()),
            ("(asked - made) | (made & (others | set(results)))", "asked - made"),
        ),
        "nothing loaded": (
            "You count what is stored only. A kernel also loads what it has not made.",
            _counted(reads=lambda asked, made: ()),
            ("(asked - made) | (made & (others", "(made & (others"),
        ),
        "results forgotten": (
            "What is among `{results}` is stored, whether another kernel uses it or not.",
            _counted(keep=lambda made, others, results: made & others),
            ("(others | set(results))", "others"),
        ),
        "only results stored": (
            "You store the results only. What a later kernel loads has to be stored as well.",
            _counted(keep=lambda made, others, results: made & results),
            ("(others | set(results))", "set(results)"),
        ),
        "stored twice": (
            "A result that another kernel loads as well is stored once: take the set of names.",
            _counted(keep=lambda made, others, results: [*(made & others), *(made & results)]),
            (
                "(asked - made) | (made & (others | set(results)))",
                "[*(asked - made), *(made & others), *(made & set(results))]",
            ),
        ),
        "last outputs stored": (
            "You store only what each kernel makes last. Store every array that another kernel needs.",
            _last_outputs,
            ("(made & (others | set(results)))", "{kernel[-1][0]}"),
        ),
        "once in all": (
            "You count each array once in all. Count it once for each kernel that loads or stores it.",
            _once_in_all,
            [
                ("total = 0", "everything = set(results)"),
                ("total += sum(sizes[name] for name in moved)", "everything |= asked - made"),
                ("return total", "return sum(sizes[name] for name in everything)"),
            ],
        ),
        "arrays counted": (
            "You count arrays. Count bytes: add up their `{sizes}`.",
            _counted(size=lambda sizes, name: 1),
            ("sum(sizes[name] for name in moved)", "len(moved)"),
        ),
    },
)


# --- fold_batch_norm ---------------------------------------------------------------------------------------


def _folded(
    root=lambda var, eps: np.sqrt(var + eps),
    factor=lambda scale, root: scale / root,
    weight=lambda w, f: w * f[:, None, None, None],
    bias=lambda b, m, f, s: (b - m) * f + s,
):
    """Return a folding of a batch norm into a convolution, in one point not as it should be."""

    def fold(conv_weight, conv_bias, scale, shift, mean, var, eps):
        f = factor(scale, root(var, eps))
        return weight(conv_weight, f), bias(conv_bias, mean, f, shift)

    return fold


def _exchanged(conv_weight, conv_bias, scale, shift, mean, var, eps):
    return _folded()(conv_weight, conv_bias, shift, scale, mean, var, eps)


def _mean_from_the_weight(bias):
    """Return a folding that takes the mean from the weight, and does this to the bias."""

    def fold(conv_weight, conv_bias, scale, shift, mean, var, eps):
        f = scale / np.sqrt(var + eps)
        return (conv_weight - mean[:, None, None, None]) * f[:, None, None, None], bias(
            conv_bias, mean, f, shift
        )

    return fold


def _bias_without_scale(conv_weight, conv_bias, scale, shift, mean, var, eps):
    weight, _ = _folded()(conv_weight, conv_bias, scale, shift, mean, var, eps)
    return weight, (conv_bias - mean) / np.sqrt(var + eps) + shift


def _norms(rng):
    """Draw convolutions and the batch norms that follow them."""
    for shape, eps in [
        ((2, 2, 1, 1), 0.5),
        ((3, 3, 2, 3), 0.1),
        ((4, 2, 3, 2), 0.02),
        ((5, 3, 1, 4), 1e-5),
        ((6, 4, 3, 3), 0.3),
    ]:
        count = shape[0]
        yield (
            *(rng.normal(size=shape), rng.normal(size=count), rng.normal(size=count), rng.normal(size=count)),
            *(rng.normal(size=count), rng.uniform(0.05, 2, count), eps),
        )


_ROOT = "np.sqrt(var + eps)"

fold_batch_norm = Exercise(
    "fold_batch_norm",
    reference=_folded(),
    cases=_norms,
    mistakes={
        "input channels": (
            "You scale the input channels. The factors belong to the *output* channels, the first axis.",
            _folded(weight=lambda w, f: w * f[None, :, None, None]),
            ("factor[:, None, None, None]", "factor[None, :, None, None]"),
        ),
        "along the columns": (
            "Your factors multiply the columns of the filters: give them three more axes.",
            _folded(weight=lambda w, f: w * f),
            ("factor[:, None, None, None]", "factor"),
        ),
        "eps forgotten": (
            "You leave `{eps}` out. It is small, and not nothing: the network was trained with it.",
            _folded(root=lambda var, eps: np.sqrt(var)),
            (_ROOT, "np.sqrt(var)"),
        ),
        "eps beside the root": (
            "`{eps}` is added to the variance, below the root.",
            _folded(root=lambda var, eps: np.sqrt(var) + eps),
            (_ROOT, "(np.sqrt(var) + eps)"),
        ),
        "no root": (
            "You divide by the variance. A batch norm divides by its root, the standard deviation.",
            _folded(root=lambda var, eps: var + eps),
            (_ROOT, "(var + eps)"),
        ),
        "scale forgotten": (
            "You normalise, and forget the learned `{scale}` that follows.",
            _folded(factor=lambda scale, root: 1 / root),
            ("scale / np", "1 / np"),
        ),
        "mean forgotten": (
            "The running mean is nowhere: take it from the bias, before that is scaled.",
            _folded(bias=lambda b, m, f, s: b * f + s),
            ("(conv_bias - mean) * factor", "conv_bias * factor"),
        ),
        "mean added": (
            "You add the running mean. It is taken away.",
            _folded(bias=lambda b, m, f, s: (b + m) * f + s),
            ("conv_bias - mean", "conv_bias + mean"),
        ),
        "mean not scaled": (
            "Subtract the mean *before* you scale: `(bias - {mean}) * factor`.",
            _folded(bias=lambda b, m, f, s: b * f - m + s),
            ("(conv_bias - mean) * factor", "conv_bias * factor - mean"),
        ),
        "bias not scaled": (
            "The convolution's bias passes through the batch norm as well: it is scaled like the weight.",
            _folded(bias=lambda b, m, f, s: b - m * f + s),
            ("(conv_bias - mean) * factor", "conv_bias - mean * factor"),
        ),
        "bias dropped": (
            "You drop the convolution's bias. Many leave it out before a batch norm; this one has it.",
            _folded(bias=lambda b, m, f, s: s - m * f),
            ("(conv_bias - mean)", "(-mean)"),
        ),
        "shift forgotten": (
            "The learned `{shift}` is missing from the new bias.",
            _folded(bias=lambda b, m, f, s: (b - m) * f),
            ("* factor + shift", "* factor"),
        ),
        "shift scaled": (
            "You multiply `{shift}` by the factor as well. It is added at the end, as it is.",
            _folded(bias=lambda b, m, f, s: (b - m + s) * f),
            ("mean) * factor + shift", "mean + shift) * factor"),
        ),
        "scale and shift exchanged": (
            "`{scale}` and `{shift}` have changed places: `{scale}` multiplies, `{shift}` is added.",
            _exchanged,
            [("factor = scale /", "factor = shift /"), ("factor + shift", "factor + scale")],
        ),
        "mean taken from the weight": (
            "You subtract the mean from the weight. It belongs to the *output*: subtract it from the bias.",
            _mean_from_the_weight(lambda b, m, f, s: b * f + s),
            _mean_from_the_weight(lambda b, m, f, s: (b - m) * f + s),
            [
                ("return conv_weight *", "return (conv_weight - mean[:, None, None, None]) *"),
                ("(conv_bias - mean)", "conv_bias"),
            ],
        ),
        "times the root": (
            "You multiply by the root. A batch norm divides by it: `{scale} / np.sqrt({var} + {eps})`.",
            _folded(factor=lambda scale, root: scale * root),
            ("scale / np", "scale * np"),
        ),
        "bias without scale": (
            "Multiply the new bias by `{scale}`, too: it takes the whole factor, like the weight.",
            _bias_without_scale,
            ("(conv_bias - mean) * factor", "(conv_bias - mean) / np.sqrt(var + eps)"),
        ),
        "weight not scaled": (
            "The weight is as it was. Each of its filters is multiplied by its factor.",
            _folded(weight=lambda w, f: w),
            ("conv_weight * factor[:, None, None, None]", "conv_weight"),
        ),
    },
)


# --- int8_dense --------------------------------------------------------------------------------------------


def _rounded(values, scale):
    return np.clip(np.rint(values / scale), -127, 127)


def _wrapped(values, scale):
    return np.rint(values / scale).astype(np.int64).astype(np.int8).astype(np.float64)


def _cut(values, scale):
    return np.clip(np.trunc(values / scale), -127, 127)


def _by_row(weight):
    return abs(weight).max(axis=1) / 127


def _dense(
    x8=_rounded,
    w8=_rounded,
    scales=_by_row,
    total=lambda x, w: x @ w.T,
    back=lambda total, x_scale, scales, bias: total * (x_scale * scales) + bias,
):
    """Return a dense layer in 8 bits, in one point not as it should be."""

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
    """Draw dense layers whose rows differ in size, and inputs that now and then exceed the calibration."""
    for samples, inputs, outputs, limit in [
        (1, 2, 1, 3.0),
        (2, 3, 3, 2.0),  # square: only so does a scale along the wrong axis give numbers and no error
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
            "You use one scale for the whole weight. Give each row its own, or small rows lose their steps.",
            _dense(scales=lambda weight: np.full(len(weight), abs(weight).max() / 127)),
            ("np.abs(weight).max(axis=1) / 127", "np.full(len(weight), np.abs(weight).max() / 127)"),
        ),
        "scale of the columns": (
            "You take the largest of each column. Each row, one for an output, has a scale: `axis=1`.",
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
            "You multiply by a scale to come to integers. A scale is the size of one step: divide by it.",
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
            "You divide each row's largest by 128. int8 ends at 127: the largest of a row is to become 127.",
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
            "`astype` cuts digits off, towards 0. Round to the nearest first: `np.rint`.",
            _dense(x8=_cut, w8=_cut),
            _dense(x8=_cut),
            _dense(w8=_cut),
            [
                ("np.rint(x / x_scale)", "x / x_scale"),
                ("np.rint(weight / scales[:, None])", "weight / scales[:, None]"),
            ],
            ("np.rint(x / x_scale)", "x / x_scale"),
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
            "The weights are scaled, and not rounded: round and clip them like the inputs.",
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
            "You take the inputs' scale from this batch. It was calibrated: use `{x_scale}`, and clip.",
            lambda x, weight, bias, x_scale: _dense()(x, weight, bias, abs(x).max() / 127),
            ("scales = np.abs(weight)", "x_scale = np.abs(x).max() / 127\nscales = np.abs(weight)"),
        ),
    },
)
