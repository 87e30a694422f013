import math

import numpy as np
from numba import cuda

from wrong_answers import wrong

# --- receptive_field ---


@wrong("receptive_field", "strides ignored")
def field_without_strides(layers):
    field = 1
    for kernel_size, _stride in layers:
        field += kernel_size - 1
    return field


@wrong("receptive_field", "stride first")
def field_with_its_own_stride(layers):
    field = step = 1
    for kernel_size, stride in layers:
        step *= stride
        field += (kernel_size - 1) * step
    return field


@wrong("receptive_field", "last stride only")
def field_with_the_stride_before(layers):
    field = step = 1
    for kernel_size, stride in layers:
        field += (kernel_size - 1) * step
        step = stride
    return field


@wrong("receptive_field", "kernels added")
def field_adds_kernels(layers):
    return sum(kernel_size for kernel_size, _ in layers)


@wrong("receptive_field", "kernels added")
def receptive_field_of_whole_windows(layers):
    field, distance = 1, 1
    for kernel_size, stride in layers:
        field += kernel_size * distance
        distance *= stride
    return field


@wrong("receptive_field", "kernels added")
def receptive_field_of_windows_alone(layers):
    field, distance = 0, 1
    for kernel_size, stride in layers:
        field += kernel_size * distance
        distance *= stride
    return field


@wrong("receptive_field", "backwards")
def receptive_field_with_the_rule_for_going_back(layers):
    field = 1
    for kernel_size, stride in layers:
        field = (field - 1) * stride + kernel_size
    return field


@wrong("receptive_field", "kernels multiplied")
def field_multiplies_kernels(layers):
    field = 1
    for kernel_size, _ in layers:
        field *= kernel_size
    return field


@wrong("receptive_field", "pixel forgotten")
def field_begins_with_nothing(layers):
    field, step = 0, 1
    for kernel_size, stride in layers:
        field += (kernel_size - 1) * step
        step *= stride
    return field


@wrong("receptive_field", "backwards")
def field_from_the_last(layers):
    field = step = 1
    for kernel_size, stride in reversed(layers):
        field += (kernel_size - 1) * step
        step *= stride
    return field


@wrong("receptive_field", "distance returned")
def field_returns_the_step(layers):
    field = step = 1
    for kernel_size, stride in layers:
        field += (kernel_size - 1) * step
        step *= stride
    return step


@wrong("receptive_field", "last layer only")
def field_of_the_last_layer(layers):
    for kernel_size, _ in layers:
        field = kernel_size
    return field


@wrong("receptive_field", "type")
def field_as_a_float(layers):
    field = step = 1.0
    for kernel_size, stride in layers:
        field += (kernel_size - 1) * step
        step *= stride
    return field


@wrong("receptive_field", "returns None")
def field_printed(layers):
    field = step = 1
    for kernel_size, stride in layers:
        field += (kernel_size - 1) * step
        step *= stride


@wrong("receptive_field", "raises")
def field_of_one_pair(layers):
    kernel_size, stride = layers
    return 1 + (kernel_size - 1) * stride


@wrong("receptive_field", "numbers")
def field_of_the_course(layers):
    return 10


# --- momentum_kernel ---


@wrong("momentum_kernel", "velocity not stored")
@cuda.jit
def momentum_forgets(parameters, gradients, velocity, lr, momentum):
    i = cuda.grid(1)
    if i < parameters.size:
        v = momentum * velocity[i] + gradients[i]
        parameters[i] -= lr * v


@wrong("momentum_kernel", "old velocity")
@cuda.jit
def momentum_moves_first(parameters, gradients, velocity, lr, momentum):
    i = cuda.grid(1)
    if i < parameters.size:
        parameters[i] -= lr * velocity[i]
        velocity[i] = momentum * velocity[i] + gradients[i]


@wrong("momentum_kernel", "gradient alone")
@cuda.jit
def momentum_without_use(parameters, gradients, velocity, lr, momentum):
    i = cuda.grid(1)
    if i < parameters.size:
        velocity[i] = momentum * velocity[i] + gradients[i]
        parameters[i] -= lr * gradients[i]


@wrong("momentum_kernel", "never fades")
@cuda.jit
def momentum_adds_up(parameters, gradients, velocity, lr, momentum):
    i = cuda.grid(1)
    if i < parameters.size:
        velocity[i] += gradients[i]
        parameters[i] -= lr * velocity[i]


@wrong("momentum_kernel", "averaged")
@cuda.jit
def momentum_averages(parameters, gradients, velocity, lr, momentum):
    i = cuda.grid(1)
    if i < parameters.size:
        velocity[i] = momentum * velocity[i] + (np.float32(1) - momentum) * gradients[i]
        parameters[i] -= lr * velocity[i]


@wrong("momentum_kernel", "rate in the velocity")
@cuda.jit
def momentum_with_the_rate_inside(parameters, gradients, velocity, lr, momentum):
    i = cuda.grid(1)
    if i < parameters.size:
        velocity[i] = momentum * velocity[i] + lr * gradients[i]
        parameters[i] -= velocity[i]


@wrong("momentum_kernel", "nesterov")
@cuda.jit
def momentum_looks_ahead(parameters, gradients, velocity, lr, momentum):
    i = cuda.grid(1)
    if i < parameters.size:
        velocity[i] = momentum * velocity[i] + gradients[i]
        parameters[i] -= lr * (gradients[i] + momentum * velocity[i])


@wrong("momentum_kernel", "uphill")
@cuda.jit
def momentum_climbs(parameters, gradients, velocity, lr, momentum):
    i = cuda.grid(1)
    if i < parameters.size:
        velocity[i] = momentum * velocity[i] + gradients[i]
        parameters[i] += lr * velocity[i]


@wrong("momentum_kernel", "writes past the edge")
@cuda.jit
def momentum_without_guard(parameters, gradients, velocity, lr, momentum):
    i = cuda.grid(1)
    velocity[i] = momentum * velocity[i] + gradients[i]
    parameters[i] -= lr * velocity[i]


@wrong("momentum_kernel", "first block only")
@cuda.jit
def momentum_of_the_first_block(parameters, gradients, velocity, lr, momentum):
    i = cuda.threadIdx.x
    if i < parameters.size:
        velocity[i] = momentum * velocity[i] + gradients[i]
        parameters[i] -= lr * velocity[i]


@wrong("momentum_kernel", "changes input")
@cuda.jit
def momentum_uses_up_the_gradient(parameters, gradients, velocity, lr, momentum):
    i = cuda.grid(1)
    if i < parameters.size:
        gradients[i] += momentum * velocity[i]
        velocity[i] = gradients[i]
        parameters[i] -= lr * velocity[i]


@wrong("momentum_kernel", "not a kernel")
def momentum_in_numpy(parameters, gradients, velocity, lr, momentum):
    velocity[:] = momentum * velocity + gradients
    parameters[:] -= lr * velocity


# --- adam_step ---


def _means(gradients, m, v, beta1, beta2):
    return beta1 * m + (1 - beta1) * gradients, beta2 * v + (1 - beta2) * gradients**2


@wrong("adam_step", "v not corrected")
def adam_corrects_m(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = _means(gradients, m, v, beta1, beta2)
    m_hat = m / (1 - beta1**step)
    return parameters - lr * m_hat / (np.sqrt(v) + eps), m, v


@wrong("adam_step", "m not corrected")
def adam_corrects_v(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = _means(gradients, m, v, beta1, beta2)
    v_hat = v / (1 - beta2**step)
    return parameters - lr * m / (np.sqrt(v_hat) + eps), m, v


@wrong("adam_step", "power forgotten")
def adam_corrects_always_alike(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = _means(gradients, m, v, beta1, beta2)
    m_hat, v_hat = m / (1 - beta1), v / (1 - beta2)
    return parameters - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


@wrong("adam_step", "betas exchanged")
def adam_exchanges_betas(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = _means(gradients, m, v, beta1, beta2)
    m_hat, v_hat = m / (1 - beta2**step), v / (1 - beta1**step)
    return parameters - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


@wrong("adam_step", "multiplied")
def adam_multiplies(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = _means(gradients, m, v, beta1, beta2)
    m_hat, v_hat = m * (1 - beta1**step), v * (1 - beta2**step)
    return parameters - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


@wrong("adam_step", "weight of the start")
def adam_divides_by_the_power(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = _means(gradients, m, v, beta1, beta2)
    m_hat, v_hat = m / beta1**step, v / beta2**step
    return parameters - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


@wrong("adam_step", "times the step")
def adam_multiplies_beta_by_the_step(
    parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8
):
    m, v = beta1 * m + (1 - beta1) * gradients, beta2 * v + (1 - beta2) * gradients**2
    m_hat, v_hat = m / (1 - beta1 * step), v / (1 - beta2 * step)
    return parameters - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


@wrong("adam_step", "eps not corrected")
def adam_corrects_the_rate(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = beta1 * m + (1 - beta1) * gradients, beta2 * v + (1 - beta2) * gradients**2
    rate = lr * np.sqrt(1 - beta2**step) / (1 - beta1**step)
    return parameters - rate * m / (np.sqrt(v) + eps), m, v


@wrong("adam_step", "counted from 0")
def adam_counts_from_0(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    step = step - 1
    m, v = _means(gradients, m, v, beta1, beta2)
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return parameters - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


@wrong("adam_step", "root taken first")
def adam_corrects_the_root(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = _means(gradients, m, v, beta1, beta2)
    m_hat, root = m / (1 - beta1**step), np.sqrt(v) / (1 - beta2**step)
    return parameters - lr * m_hat / (root + eps), m, v


@wrong("adam_step", "eps under the root")
def adam_adds_eps_inside(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = _means(gradients, m, v, beta1, beta2)
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return parameters - lr * m_hat / np.sqrt(v_hat + eps), m, v


@wrong("adam_step", "old means")
def adam_corrects_before(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    m, v = _means(gradients, m, v, beta1, beta2)
    return parameters - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


@wrong("adam_step", "correction kept")
def adam_keeps_the_hats(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = _means(gradients, m, v, beta1, beta2)
    m = m / (1 - beta1**step)
    v = v / (1 - beta2**step)
    return parameters - lr * m / (np.sqrt(v) + eps), m, v


@wrong("adam_step", "changes input")
def adam_in_place(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = _means(gradients, m, v, beta1, beta2)
    parameters -= lr * m / (1 - beta1**step) / (np.sqrt(v / (1 - beta2**step)) + eps)
    return parameters, m, v


@wrong("adam_step", "type")
def adam_returns_parameters_only(
    parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8
):
    m, v = _means(gradients, m, v, beta1, beta2)
    return parameters - lr * m / (1 - beta1**step) / (np.sqrt(v / (1 - beta2**step)) + eps)


# --- confusion_matrix ---


@wrong("confusion_matrix", "counted once")
def confusion_adds_at_once(labels, answers, classes):
    matrix = np.zeros((classes, classes), int)
    matrix[labels, answers] += 1
    return matrix


@wrong("confusion_matrix", "exchanged")
def confusion_exchanges(labels, answers, classes):
    matrix = np.zeros((classes, classes), int)
    for label, answer in zip(labels, answers, strict=True):
        matrix[answer, label] += 1
    return matrix


@wrong("confusion_matrix", "right answers only")
def confusion_counts_hits(labels, answers, classes):
    matrix = np.zeros((classes, classes), int)
    for label, answer in zip(labels, answers, strict=True):
        if label == answer:
            matrix[label, answer] += 1
    return matrix


@wrong("confusion_matrix", "mistakes only")
def confusion_counts_misses(labels, answers, classes):
    matrix = np.zeros((classes, classes), int)
    for label, answer in zip(labels, answers, strict=True):
        if label != answer:
            matrix[label, answer] += 1
    return matrix


@wrong("confusion_matrix", "shares")
def confusion_in_shares(labels, answers, classes):
    matrix = np.zeros((classes, classes))
    np.add.at(matrix, (labels, answers), 1)
    return matrix / np.bincount(labels, minlength=classes)[:, None]


@wrong("confusion_matrix", "type")
def confusion_in_floats(labels, answers, classes):
    matrix = np.zeros((classes, classes))
    np.add.at(matrix, (labels, answers), 1)
    return matrix


@wrong("confusion_matrix", "counted in a byte")
def confusion_in_bytes(labels, answers, classes):
    matrix = np.zeros((classes, classes), np.uint8)
    np.add.at(matrix, (labels, answers), 1)
    return matrix


@wrong("confusion_matrix", "classes seen only")
def confusion_of_the_classes_seen(labels, answers, classes):
    size = max(labels.max(), answers.max()) + 1
    matrix = np.zeros((size, size), int)
    np.add.at(matrix, (labels, answers), 1)
    return matrix


@wrong("confusion_matrix", "raises")
def confusion_always_of_ten(labels, answers, classes):
    counts = np.bincount(labels * 10 + answers, minlength=100)
    return counts.reshape(classes, classes)


@wrong("confusion_matrix", "not initialised")
def confusion_starts_anywhere(labels, answers, classes):
    matrix = np.empty((classes, classes), int)
    for label, answer in zip(labels, answers, strict=True):
        matrix[label, answer] += 1
    return matrix


@wrong("confusion_matrix", "raises")
def confusion_misses_an_import(labels, answers, classes):
    return math.confusion(labels, answers, classes)
