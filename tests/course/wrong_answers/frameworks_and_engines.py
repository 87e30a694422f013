import numpy as np

from wrong_answers import derive, wrong

# --- for_keras ---

for_keras = derive(
    "for_keras",
    weights_with_outputs_before_inputs=(
        "inputs and outputs exchanged",
        ("kernel = conv_weight.transpose(2, 3, 1, 0)", "kernel = conv_weight.transpose(2, 3, 0, 1)"),
    ),
    weights_lying_on_their_side=(
        "rows and columns exchanged",
        ("kernel = conv_weight.transpose(2, 3, 1, 0)", "kernel = conv_weight.T"),
    ),
    weights_flipped=(
        "flipped",
        ("return kernel, features", "return kernel[::-1, ::-1], features"),
    ),
    weights_reshaped=(
        "reshaped",
        (
            "kernel = conv_weight.transpose(2, 3, 1, 0)",
            "o, i, h, w = conv_weight.shape\nkernel = conv_weight.reshape(h, w, i, o)",
        ),
    ),
    weights_with_features_in_our_order=(
        "features in our order",
        ("features = dense_weight.reshape(-1, *shape).transpose(2, 3, 1, 0)", "features = dense_weight.T"),
    ),
    weights_with_columns_first=(
        "columns before rows",
        ("*shape).transpose(2, 3, 1, 0)", "*shape).transpose(3, 2, 1, 0)"),
    ),
    weights_not_turned=(
        "not turned",
        ("*shape).transpose(2, 3, 1, 0)", "*shape).transpose(0, 2, 3, 1)"),
        ("features.reshape(-1, len(dense_weight))", "features.reshape(len(dense_weight), -1)"),
    ),
)


@wrong("for_keras", "dense weight reshaped")
def weights_of_the_dense_layer_reshaped(conv_weight, dense_weight, shape):
    outputs, inputs = dense_weight.shape
    return conv_weight.transpose(2, 3, 1, 0), dense_weight.reshape(inputs, outputs)


# --- traffic ---

traffic = derive(
    "traffic",
    bytes_of_all_that_is_made=("inner arrays written", ("(made & (others | set(results)))", "made")),
    bytes_of_what_it_has_made=("inner arrays read", ("(asked - made) |", "asked |")),
    bytes_of_loads=("nothing stored", ("(asked - made) | (made & (others | set(results)))", "asked - made")),
    bytes_of_stores=("nothing loaded", ("(asked - made) | (made & (others", "(made & (others")),
    bytes_without_results=("results forgotten", ("(others | set(results))", "others")),
    bytes_of_results_only=("only results stored", ("(others | set(results))", "set(results)")),
    bytes_with_the_kernel_among_the_others=("inner arrays read", ("if k is not kernel ", "")),
    bytes_of_the_last_outputs=(
        "last outputs stored",
        ("(made & (others | set(results)))", "{kernel[-1][0]}"),
    ),
    bytes_by_the_count=("arrays counted", ("sum(sizes[name] for name in moved)", "len(moved)")),
)


@wrong("traffic", "inner arrays moved")
def bytes_of_each_operation(kernels, sizes, results):
    total = 0
    for kernel in kernels:
        touched = set()
        for output, inputs in kernel:
            touched |= {*inputs}
            total += sizes[output]
        total += sum(sizes[name] for name in touched)
    return total


@wrong("traffic", "loaded twice")
def bytes_loaded_at_each_use(kernels, sizes, results):
    total = 0
    for kernel in kernels:
        made = {output for output, _ in kernel}
        others = {name for k in kernels if k is not kernel for _, inputs in k for name in inputs}
        total += sum(sizes[name] for _, inputs in kernel for name in inputs if name not in made)
        total += sum(sizes[name] for name in made & (others | set(results)))
    return total


@wrong("traffic", "stored twice")
def bytes_of_results_beside_those_of_others(kernels, sizes, results):
    total = 0
    for kernel in kernels:
        made = {output for output, _ in kernel}
        others = {name for k in kernels if k is not kernel for _, inputs in k for name in inputs}
        total += sum(sizes[name] for name in {name for _, inputs in kernel for name in inputs} - made)
        total += sum(sizes[name] for name in made if name in others)
        total += sum(sizes[name] for name in made if name in results)
    return total


@wrong("traffic", "once in all")
def bytes_of_each_array_once(kernels, sizes, results):
    moved = set(results)
    for kernel in kernels:
        made = {output for output, _ in kernel}
        moved |= {name for _, inputs in kernel for name in inputs if name not in made}
    return sum(sizes[name] for name in moved)


# --- fold_batch_norm ---

FACTOR = "np.sqrt(var + eps)"

fold_batch_norm = derive(
    "fold_batch_norm",
    fold_into_the_inputs=("input channels", ("factor[:, None, None, None]", "factor[None, :, None, None]")),
    fold_into_the_columns=("along the columns", ("factor[:, None, None, None]", "factor")),
    fold_without_eps=("eps forgotten", (FACTOR, "np.sqrt(var)")),
    fold_with_eps_beside=("eps beside the root", (FACTOR, "(np.sqrt(var) + eps)")),
    fold_by_the_variance=("no root", (FACTOR, "(var + eps)")),
    fold_without_scale=("scale forgotten", ("scale / np", "1 / np")),
    fold_without_mean=("mean forgotten", ("(conv_bias - mean) * factor", "conv_bias * factor")),
    fold_with_the_mean_added=("mean added", ("conv_bias - mean", "conv_bias + mean")),
    fold_with_the_mean_as_it_is=(
        "mean not scaled",
        ("(conv_bias - mean) * factor", "conv_bias * factor - mean"),
    ),
    fold_with_the_bias_as_it_was=(
        "bias not scaled",
        ("(conv_bias - mean) * factor", "conv_bias - mean * factor"),
    ),
    fold_without_bias=("bias dropped", ("(conv_bias - mean)", "(-mean)")),
    fold_without_shift=("shift forgotten", ("* factor + shift", "* factor")),
    fold_with_the_shift_scaled=("shift scaled", ("mean) * factor + shift", "mean + shift) * factor")),
    fold_with_scale_for_shift=(
        "scale and shift exchanged",
        ("factor = scale /", "factor = shift /"),
        ("factor + shift", "factor + scale"),
    ),
    fold_with_the_mean_out_of_the_weight=(
        "mean taken from the weight",
        ("return conv_weight *", "return (conv_weight - mean[:, None, None, None]) *"),
        ("(conv_bias - mean)", "conv_bias"),
    ),
    fold_by_the_root=("times the root", ("scale / np", "scale * np")),
    fold_with_the_bias_without_scale=(
        "bias without scale",
        ("(conv_bias - mean) * factor", "(conv_bias - mean) / np.sqrt(var + eps)"),
    ),
    fold_of_the_bias_alone=(
        "weight not scaled",
        ("conv_weight * factor[:, None, None, None]", "conv_weight"),
    ),
)


# --- int8_dense ---

int8_dense = derive(
    "int8_dense",
    int8_with_one_scale=(
        "one scale for all rows",
        ("np.abs(weight).max(axis=1) / 127", "np.full(len(weight), np.abs(weight).max() / 127)"),
    ),
    int8_by_the_largest_number=(
        "largest, not largest in size",
        ("np.abs(weight).max(axis=1)", "np.abs(weight.max(axis=1))"),
    ),
    int8_wrapping_around=(
        "wraps around",
        (
            "np.clip(np.rint(x / x_scale), -127, 127).astype(np.int8)",
            "np.rint(x / x_scale).astype(int).astype(np.int8)",
        ),
    ),
    int8_cut_off=(
        "cut off",
        ("np.rint(x / x_scale)", "x / x_scale"),
        ("np.rint(weight / scales[:, None])", "weight / scales[:, None]"),
    ),
    int8_with_inputs_cut_off=("cut off", ("np.rint(x / x_scale)", "x / x_scale")),
    int8_with_short_sums=("sums in 8 bits", (".astype(np.int32)", "", 2)),
    int8_in_whole_numbers=("not scaled back", ("total * (x_scale * scales)", "total")),
    int8_without_the_inputs_scale=("one scale missing", ("(x_scale * scales)", "scales")),
    int8_without_the_weights_scale=("one scale missing", ("(x_scale * scales)", "x_scale")),
    int8_with_the_bias_scaled=(
        "bias scaled",
        ("total * (x_scale * scales) + bias", "(total + bias) * (x_scale * scales)"),
    ),
    int8_without_bias=("bias forgotten", ("(x_scale * scales) + bias", "(x_scale * scales)")),
    int8_of_the_weights_only=(
        "inputs not rounded",
        ("np.clip(np.rint(x / x_scale), -127, 127).astype(np.int8)", "x / x_scale"),
        ("x8.astype(np.int32)", "x8"),
    ),
    int8_of_the_inputs_only=(
        "weights not rounded",
        ("np.clip(np.rint(weight / scales[:, None]), -127, 127).astype(np.int8)", "weight / scales[:, None]"),
        ("w8.astype(np.int32)", "w8"),
    ),
    int8_with_scales_along_the_columns=("scales meet the columns", ("scales[:, None]", "scales")),
    int8_divided_back=("divided back", ("total * (x_scale", "total / (x_scale")),
    int8_times_the_inputs_scale=("multiplied by the scale", ("x / x_scale", "x * x_scale")),
    int8_not_clipped=(
        "not clipped",
        ("np.clip(np.rint(x / x_scale), -127, 127).astype(np.int8)", "np.rint(x / x_scale)"),
    ),
    int8_clipped_before_dividing=(
        "not clipped",
        (
            "np.clip(np.rint(x / x_scale), -127, 127).astype(np.int8)",
            "np.rint(np.clip(x, -127, 127) / x_scale)",
        ),
    ),
    int8_with_128_steps=("128 steps", ("axis=1) / 127", "axis=1) / 128")),
    int8_clipped_lower=("clipped at -128", ("np.rint(x / x_scale), -127", "np.rint(x / x_scale), -128")),
    int8_by_the_range_of_the_batch=(
        "range of the batch",
        ("scales = np.abs(weight)", "x_scale = np.abs(x).max() / 127\nscales = np.abs(weight)"),
    ),
)


@wrong("int8_dense", "scale of the columns")
def int8_by_the_columns(x, weight, bias, x_scale):
    scales = np.abs(weight).max(axis=0) / 127
    x8 = np.clip(np.rint(x / x_scale), -127, 127).astype(np.int8)
    w8 = np.clip(np.rint(weight / scales), -127, 127).astype(np.int8)
    return x8.astype(np.int32) @ w8.astype(np.int32).T * (x_scale * scales) + bias


@wrong("int8_dense", "not rounded at all")
def int8_in_floating_point(x, weight, bias, x_scale):
    return x @ weight.T + bias
