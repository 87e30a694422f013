import math

import numpy as np

from wrong_answers import derive, wrong

# --- receptive_field ---

receptive_field = derive(
    "receptive_field",
    field_without_strides=("strides ignored", ("distance *= stride", "")),
    field_with_its_own_stride=(
        "stride first",
        (
            "field += (kernel_size - 1) * distance\ndistance *= stride",
            "distance *= stride\nfield += (kernel_size - 1) * distance",
        ),
    ),
    field_with_the_stride_before=("last stride only", ("distance *= stride", "distance = stride")),
    field_adds_kernels=(
        "kernels added",
        ("field, distance = 1, 1", "field = 0"),
        ("(kernel_size - 1) * distance\ndistance *= stride", "kernel_size"),
    ),
    receptive_field_of_whole_windows=("windows added", ("(kernel_size - 1)", "kernel_size")),
    receptive_field_of_windows_alone=(
        "windows added",
        ("field, distance = 1, 1", "field, distance = 0, 1"),
        ("(kernel_size - 1)", "kernel_size"),
    ),
    receptive_field_with_the_rule_for_going_back=(
        "backwards",
        ("field += (kernel_size - 1) * distance", "field = (field - 1) * stride + kernel_size"),
    ),
    field_multiplies_kernels=(
        "kernels multiplied",
        ("field += (kernel_size - 1) * distance", "field *= kernel_size"),
    ),
    field_begins_with_nothing=("pixel forgotten", ("field, distance = 1, 1", "field, distance = 0, 1")),
    field_from_the_last=("backwards", ("in layers", "in reversed(layers)")),
    field_returns_the_step=("distance returned", ("return field", "return distance")),
    field_of_the_last_layer=(
        "last layer only",
        ("field += (kernel_size - 1) * distance", "field = kernel_size"),
    ),
    field_as_a_float=("type", ("field, distance = 1, 1", "field, distance = 1.0, 1.0")),
    field_printed=("returns None", ("return field", "")),
)


@wrong("receptive_field", "raises")
def field_of_one_pair(layers):
    kernel_size, stride = layers
    return 1 + (kernel_size - 1) * stride


@wrong("receptive_field", "numbers")
def field_of_the_course(layers):
    return 10


# --- momentum_kernel ---

momentum_kernel = derive(
    "momentum_kernel",
    momentum_forgets=("velocity not stored", ("velocity[i] = v", "")),
    momentum_moves_first=(
        "old velocity",
        ("velocity[i] = v\nparameters[i] -= lr * v", "parameters[i] -= lr * velocity[i]\nvelocity[i] = v"),
    ),
    momentum_without_use=("gradient alone", ("lr * v", "lr * gradients[i]")),
    momentum_replaces=("replaced", ("parameters[i] -= lr * v", "parameters[i] = lr * v")),
    momentum_adds_up=("never fades", ("momentum * velocity[i]", "velocity[i]")),
    momentum_averages=("averaged", ("gradients[i]", "(np.float32(1) - momentum) * gradients[i]")),
    momentum_with_the_rate_inside=(
        "rate in the velocity",
        ("gradients[i]", "lr * gradients[i]"),
        ("lr * v", "v"),
    ),
    momentum_looks_ahead=("nesterov", ("lr * v", "lr * (gradients[i] + momentum * v)")),
    momentum_climbs=("uphill", ("-=", "+=")),
    momentum_without_guard=("writes past the edge", ("if i < parameters.size:", "if True:")),
    momentum_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    momentum_uses_up_the_gradient=(
        "changes input",
        (
            "v = momentum * velocity[i] + gradients[i]",
            "gradients[i] += momentum * velocity[i]\nv = gradients[i]",
        ),
    ),
)


@wrong("momentum_kernel", "not a kernel")
def momentum_in_numpy(parameters, gradients, velocity, lr, momentum):
    velocity[:] = momentum * velocity + gradients
    parameters[:] -= lr * velocity


# --- adam_step ---

adam_step = derive(
    "adam_step",
    adam_corrects_m=("v not corrected", ("np.sqrt(v_hat)", "np.sqrt(v)")),
    adam_corrects_v=("m not corrected", ("lr * m_hat", "lr * m")),
    adam_corrects_always_alike=("power forgotten", ("beta1**step", "beta1"), ("beta2**step", "beta2")),
    adam_exchanges_betas=(
        "betas exchanged",
        ("m / (1 - beta1**step)", "m / (1 - beta2**step)"),
        ("v / (1 - beta2**step)", "v / (1 - beta1**step)"),
    ),
    adam_multiplies=(
        "multiplied",
        ("m / (1 - beta1**step)", "m * (1 - beta1**step)"),
        ("v / (1 - beta2**step)", "v * (1 - beta2**step)"),
    ),
    adam_divides_by_the_power=(
        "weight of the start",
        ("m / (1 - beta1**step)", "m / beta1**step"),
        ("v / (1 - beta2**step)", "v / beta2**step"),
    ),
    adam_multiplies_beta_by_the_step=(
        "times the step",
        ("beta1**step", "beta1 * step"),
        ("beta2**step", "beta2 * step"),
    ),
    adam_corrects_the_rate=(
        "eps not corrected",
        ("m / (1 - beta1**step)", "m * np.sqrt(1 - beta2**step) / (1 - beta1**step)"),
        ("np.sqrt(v_hat)", "np.sqrt(v)"),
    ),
    adam_counts_from_0=("counted from 0", ("**step", "**(step - 1)", 2)),
    adam_corrects_the_root=(
        "root taken first",
        ("v / (1 - beta2**step)", "np.sqrt(v) / (1 - beta2**step)"),
        ("np.sqrt(v_hat)", "v_hat"),
    ),
    adam_adds_eps_inside=("eps under the root", ("(np.sqrt(v_hat) + eps)", "np.sqrt(v_hat + eps)")),
    adam_corrects_before=(
        "old means",
        ("m = beta1 * m", "old_m, m = m, beta1 * m"),
        ("v = beta2 * v", "old_v, v = v, beta2 * v"),
        ("m_hat = m", "m_hat = old_m"),
        ("v_hat = v", "v_hat = old_v"),
    ),
    adam_keeps_the_hats=("correction kept", ("m_hat = m", "m_hat = m = m"), ("v_hat = v", "v_hat = v = v")),
    adam_in_place=(
        "changes input",
        ("return parameters - lr", "parameters -= lr"),
        ("+ eps), m, v", "+ eps)\nreturn parameters, m, v"),
    ),
    adam_returns_parameters_only=("type", ("+ eps), m, v", "+ eps)")),
)

# --- adam_kernel ---

adam_kernel = derive(
    "adam_kernel",
    adam_thread_without_correction=("not corrected", ("/ correction1", ""), ("/ correction2", "")),
    adam_thread_corrects_m=("v not corrected", ("/ correction2", "")),
    adam_thread_corrects_v=("m not corrected", ("/ correction1", "")),
    adam_thread_exchanges_corrections=(
        "corrections exchanged",
        ("new_m / correction1", "new_m / correction2"),
        ("new_v / correction2", "new_v / correction1"),
    ),
    adam_thread_keeps_the_hats=(
        "correction kept",
        ("m[i], v[i] = new_m, new_v", "m[i], v[i] = new_m / correction1, new_v / correction2"),
    ),
    adam_thread_forgets=("means not stored", ("m[i], v[i] = new_m, new_v", "")),
    adam_thread_forgets_v=("means not stored", ("m[i], v[i] = new_m, new_v", "m[i] = new_m")),
    adam_thread_moves_first=(
        "old means",
        ("(new_m / correction1)", "(m[i] / correction1)"),
        ("new_v / correction2", "v[i] / correction2"),
        ("m[i], v[i] = new_m, new_v\nparameters", "parameters"),
        ("+ eps)", "+ eps)\nm[i], v[i] = new_m, new_v"),
    ),
    adam_thread_adds_eps_inside=("eps under the root", ("correction2) + eps", "correction2 + eps)")),
    adam_thread_takes_no_root=("no root", ("math.sqrt(new_v / correction2)", "new_v / correction2")),
    adam_thread_squares_nothing=("gradient not squared", ("* g * g", "* g")),
    adam_thread_climbs=("uphill", ("-=", "+=")),
    adam_thread_in_float64=("float64", ("float32(1) - beta1", "1 - beta1")),
    adam_thread_without_guard=("writes past the edge", ("if i < parameters.size:", "if True:")),
    adam_thread_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
)

# --- confusion_matrix ---

confusion_matrix = derive(
    "confusion_matrix",
    confusion_adds_at_once=(
        "counted once",
        (
            "for label, answer in zip(labels, answers, strict=True):\n    matrix[label, answer] += 1",
            "matrix[labels, answers] += 1",
        ),
    ),
    confusion_exchanges=("exchanged", ("matrix[label, answer]", "matrix[answer, label]")),
    confusion_counts_hits=(
        "right answers only",
        ("matrix[label, answer] += 1", "if label == answer:\n    matrix[label, answer] += 1"),
    ),
    confusion_counts_misses=(
        "mistakes only",
        ("matrix[label, answer] += 1", "if label != answer:\n    matrix[label, answer] += 1"),
    ),
    confusion_in_floats=("type", ("np.int64", "float")),
    confusion_in_bytes=("counted in a byte", ("np.int64", "np.uint8")),
    confusion_of_the_classes_seen=(
        "classes seen only",
        ("matrix = np.zeros(", "classes = max(labels.max(), answers.max()) + 1\nmatrix = np.zeros("),
    ),
    confusion_starts_anywhere=("not initialised", ("np.zeros", "np.empty")),
    confusion_by_numbers_of_pairs=(
        "wraps",
        (
            "for label, answer in zip(labels, answers, strict=True):\n    matrix[label, answer] += 1",
            "pairs = classes * labels + answers\n"
            "matrix += np.bincount(pairs, minlength=classes**2).reshape(classes, classes)",
        ),
    ),
)


@wrong("confusion_matrix", "shares")
def confusion_in_shares(labels, answers, classes):
    matrix = np.zeros((classes, classes))
    np.add.at(matrix, (labels, answers), 1)
    return matrix / np.bincount(labels, minlength=classes)[:, None]


@wrong("confusion_matrix", "raises")
def confusion_always_of_ten(labels, answers, classes):
    counts = np.bincount(labels * 10 + answers, minlength=100)
    return counts.reshape(classes, classes)


@wrong("confusion_matrix", "raises")
def confusion_misses_an_import(labels, answers, classes):
    return math.confusion(labels, answers, classes)
