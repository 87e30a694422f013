"""The checks of notebook 21, ``21_colour_images``."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, normal, output
from cnn_numba import device

# --- decayed_step_kernel -----------------------------------------------------------------------------------

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
            "You decay past the velocity, as AdamW does. Here the decay is a part of the gradient.",
            lambda p, g, v, lr, m, wd: (p - lr * (m * v + g + wd * p), m * v + g),
            [
                ("gradients[i] + weight_decay * parameters[i]", "gradients[i]"),
                ("lr * velocity[i]", "lr * (velocity[i] + weight_decay * parameters[i])"),
            ],
        ),
        "decay of the velocity": (
            "`{weight_decay}` multiplies the velocity. It belongs to the parameter, which is to shrink.",
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
            "You multiply the decay by the learning rate, and the step does so again.",
            lambda p, g, v, lr, m, wd: decayed_step(p, g, v, lr, m, lr * wd),
            ("weight_decay * parameters[i]", "lr * weight_decay * parameters[i]"),
        ),
        "decay of the new parameter": (
            "You take the decay of the new parameter. Take that of the old one, and add it to the gradient.",
            lambda p, g, v, lr, m, wd: ((p - lr * (m * v + g)) * (1 - lr * wd), m * v + g),
            lambda p, g, v, lr, m, wd: ((p - lr * (m * v + g)) * (1 - wd), m * v + g),
            [
                ("gradients[i] + weight_decay * parameters[i]", "gradients[i]"),
                ("= lr * velocity[i]", "= lr * velocity[i]\nparameters[i] *= float32(1) - lr * weight_decay"),
            ],
        ),
        "gradient dampened": (
            "You take a share `1 - {momentum}` of the gradient. Here all of it counts.",
            lambda p, g, v, lr, m, wd: decayed_step(p, (1 - m) * g, v, lr, m, (1 - m) * wd),
            lambda p, g, v, lr, m, wd: decayed_step(p, (1 - m) * g, v, lr, m, wd),
            ("+ gradient", "+ (float32(1) - momentum) * gradient"),
        ),
        "momentum twice": (
            "You use the momentum twice, as Nesterov's method does. Here step by `{lr} * {velocity}[i]`.",
            lambda p, g, v, lr, m, wd: (p - lr * (g + wd * p + m * (m * v + g + wd * p)), m * v + g + wd * p),
            ("lr * velocity[i]", "lr * (gradient + momentum * velocity[i])"),
        ),
        "only the sign": (
            "You pull every parameter equally hard, by its sign. Weight decay pulls in proportion to size.",
            lambda p, g, v, lr, m, wd: decayed_step(p, g + wd * np.sign(p) - wd * p, v, lr, m, wd),
            (
                "weight_decay * parameters[i]",
                "(weight_decay if parameters[i] > float32(0) else -weight_decay)",
            ),
        ),
        "momentum left out": (
            "The old velocity has no part in the new one: a share `{momentum}` of it remains.",
            lambda p, g, v, lr, m, wd: decayed_step(p, g, v, lr, 0, wd),
            ("momentum * velocity[i] + gradient", "gradient"),
        ),
        "velocity before the step": (
            "You move by the velocity of the step before: compute the new one first.",
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
            "The rate is in your velocity. Multiply by it when the parameter moves.",
            lambda p, g, v, lr, m, wd: (p - (m * v + lr * (g + wd * p)), m * v + lr * (g + wd * p)),
            [("+ gradient", "+ lr * gradient"), ("lr * velocity[i]", "velocity[i]")],
        ),
        "uphill": (
            "The parameters climb: the step goes against the velocity, `-=`.",
            lambda p, g, v, lr, m, wd: (p + lr * (m * v + g + wd * p), m * v + g + wd * p),
            ("parameters[i] -=", "parameters[i] +="),
        ),
        "velocity not stored": (
            "The parameters are right, and `{velocity}` is what it was: the next step needs the new one.",
            lambda p, g, v, lr, m, wd: (decayed_step(p, g, v, lr, m, wd)[0], v),
            [("velocity[i] = momentum", "speed = momentum"), ("lr * velocity[i]", "lr * speed")],
        ),
    },
)


# --- crop_and_flip_kernel ----------------------------------------------------------------------------------

BLOCK = 4, 2, 2


def crop_and_flip(images, indices, places, padding):
    """Return the images at `indices`, each cut out of its black margin, mirrored or not, in 0 .. 1."""
    return _cut(images[indices], places, padding)


def _cut(images, places, padding, mode="constant"):
    height, width = images.shape[2:]
    wide = 3 * padding + 1  # so that a window may lie further out than it should
    cut = []
    for image, (row, column, mirror) in zip(images, places, strict=True):
        top, left = row + wide - padding, column + wide - padding
        margin = (0, 0), (wide, wide), (wide, wide)
        window = np.pad(image, margin, mode=mode)[:, top : top + height, left : left + width]
        cut.append(window[:, :, ::-1] if mirror else window)
    return np.array(cut) / 255


def _with_places(change):
    """Return a wrong answer that sees other places; `change` takes them and the padding."""

    def wrong(images, indices, places, padding):
        places = places.copy()
        change(places, padding)
        return crop_and_flip(images, indices, places, padding)

    return wrong


def _exchange(places, padding):
    places[:, :2] = places[:, 1::-1].copy()


def _turn_round(places, padding):
    places[:, :2] = 2 * padding - places[:, :2]


def _never_mirror(places, padding):
    places[:, 2] = 0


def _always_mirror(places, padding):
    places[:, 2] = 1


def _mirror_first(places, padding):
    mirrored = places[:, 2] == 1
    places[mirrored, 1] = 2 * padding - places[mirrored, 1]


def _mirror_one_off(places, padding):
    places[places[:, 2] == 1, 1] += 1


def _mirror_about_the_image(places, padding):
    mirrored = places[:, 2] == 1
    places[mirrored, 1] = padding


def _without_padding(places, padding):
    places[:, :2] += padding


def _upside_down(images, indices, places, padding):
    plain = places.copy()
    plain[:, 2] = 0
    cut = crop_and_flip(images, indices, plain, padding)
    return np.array([c[:, ::-1] if m else c for c, m in zip(cut, places[:, 2], strict=True)])


def _first_channel(images, indices, places, padding):
    cut = crop_and_flip(images, indices, places, padding)
    cut[:, 1:] = np.nan
    return cut


def _crops(rng):
    for count, channels, height, width, padding in [
        (1, 1, 3, 4, 1),
        (3, 2, 5, 6, 2),
        (4, 3, 4, 3, 1),
        (5, 2, 3, 5, 4),
        (3, 3, 6, 4, 2),
    ]:
        images = rng.integers(1, 256, (count + 2, channels, height, width), dtype=np.uint8)
        indices = rng.permutation(count + 2)[:count]
        places = rng.integers(0, 2 * padding + 1, (count, 3)).astype(np.int32)
        places[:, 2] = np.arange(count) % 2
        sizes = (width, height, count)
        grid = tuple(device.blocks(size + 1, block) for size, block in zip(sizes, BLOCK, strict=True))
        out = output((count, channels, height, width))
        yield launch(grid, BLOCK, images, indices, places, padding, out)


crop_and_flip_kernel = KernelExercise(
    "crop_and_flip_kernel",
    reference=crop_and_flip,
    cases=_crops,
    float32=True,
    once=True,
    mistakes={
        "never mirrored": (
            "No image is mirrored: `{places}[i, 2]` is 1 for those that are to be.",
            _with_places(_never_mirror),
            ("if places[i, 2] == 1:", "if places[i, 2] == 2:"),
        ),
        "always mirrored": (
            "Every image is mirrored: only those with `{places}[i, 2] == 1` are.",
            _with_places(_always_mirror),
            ("if places[i, 2] == 1:", "if places[i, 2] < 2:"),
        ),
        "mirrored first": (
            "You mirror before you cut. First cut the window at `{places}`, then reverse *its* columns.",
            _with_places(_mirror_first),
            ("column = out.shape[3] - 1 - w + places[i, 1] - padding", "column = out.shape[3] - 1 - column"),
        ),
        "mirrored one too far": (
            "Mirrored images are moved by one column: the mirror of `w` is `out.shape[3] - 1 - w`.",
            _with_places(_mirror_one_off),
            ("out.shape[3] - 1 - w", "out.shape[3] - w"),
        ),
        "mirrored without moving": (
            "The mirrored images are not moved sideways: `{places}[i, 1]` counts there, too.",
            _with_places(_mirror_about_the_image),
            ("column = out.shape[3] - 1 - w + places[i, 1] - padding", "column = out.shape[3] - 1 - w"),
        ),
        "padding left out": (
            "Your windows begin too late: `{places}` counts from the margin. Subtract `{padding}`.",
            _with_places(_without_padding),
            [("places[i, 0] - padding", "places[i, 0]"), ("places[i, 1] - padding", "places[i, 1]", 2)],
        ),
        "upside down": (
            "You reverse the rows. A mirror exchanges left and right: the columns.",
            _upside_down,
            ("column = out.shape[3] - 1 - w + places[i, 1] -", "row = out.shape[2] - 1 - h + places[i, 0] -"),
        ),
        "moved the other way": (
            "The images move the wrong way: begin at row `{places}[i, 0] - {padding}` of the image.",
            _with_places(_turn_round),
            [("h + places[i, 0] -", "h - places[i, 0] +"), ("+ places[i, 1] -", "- places[i, 1] +", 2)],
        ),
        "row and column exchanged": (
            "Row and column are exchanged: `{places}[i, 0]` is the row at which the window begins.",
            _with_places(_exchange),
            [("[i, 0]", "[i, 3 - 3]"), ("[i, 1]", "[i, 0]", 2), ("[i, 3 - 3]", "[i, 1]")],
        ),
        "without moving": (
            "The images stay where they are: add what `{places}` says, less `{padding}`.",
            _with_places(lambda places, padding: places[:, :2].fill(padding)),
            [("+ places[i, 0] - padding", ""), ("+ places[i, 1] - padding", "", 2)],
        ),
        "first images": (
            "You take the first images of the set. Image `i` of the batch is number `{indices}[i]`.",
            lambda images, indices, places, padding: _cut(images[: len(indices)], places, padding),
            ("images[indices[i], ", "images[i, "),
        ),
        "edge drawn out": (
            "Outside of the image you repeat its edge. It is black there: 0.",
            lambda images, indices, places, padding: _cut(images[indices], places, padding, "edge"),
            (
                "inside = 0 <= row < out.shape[2] and 0 <= column < out.shape[3]",
                "inside = True\n"
                "row, column = min(max(row, 0), out.shape[2] - 1), min(max(column, 0), out.shape[3] - 1)",
            ),
        ),
        "wrapped round": (
            "What leaves the image on one side comes in on the other. It is black outside: 0.",
            lambda images, indices, places, padding: _cut(images[indices], places, padding, "wrap"),
            ("0 <= row < out.shape[2] and 0 <= column <", "True\nrow, column = row % out.shape[2], column %"),
        ),
        "first channel only": (
            "Only channel 0 is written. A thread has all channels of its pixel to do.",
            _first_channel,
            ("range(out.shape[1])", "range(1)"),
        ),
        "not divided": (
            "Your numbers go up to 255: divide by `float32(255)`.",
            lambda images, indices, places, padding: 255 * crop_and_flip(images, indices, places, padding),
            (" / float32(255)", ""),
        ),
    },
)


# --- folded_convolution_kernel -----------------------------------------------------------------------------

FOLD_BLOCK = 8, 2


def folded_convolution(weight, bias, gamma, beta, mean, variance, eps):
    """Return weight and bias of the convolution that does the work of the normalisation behind it too."""
    scale = gamma / np.sqrt(variance + eps)
    return weight * scale[:, np.newaxis], (bias - mean) * scale + beta


def _normalised_convolutions(rng):
    for out_channels, taps in [(1, 3), (3, 9), (5, 7), (2, 18), (6, 4)]:
        gamma, beta, mean, bias = (normal(rng, out_channels) for _ in range(4))
        variance = rng.uniform(0.1, 2, out_channels).astype(np.float32)
        grid = device.blocks(taps + 1, FOLD_BLOCK[0]), device.blocks(out_channels + 1, FOLD_BLOCK[1])
        arrays = normal(rng, (out_channels, taps)), bias, gamma, beta, 3 * mean, variance
        results = output((out_channels, taps)), output(out_channels)
        yield launch(grid, FOLD_BLOCK, *arrays, np.float32(0.25), *results)


def _folded(scale=None, bias=None):
    """Return a wrong answer with another scale, or another bias from what there is and the scale."""

    def wrong(weight, b, gamma, beta, mean, variance, eps):
        s = (scale or (lambda g, v, e: g / np.sqrt(v + e)))(gamma, variance, eps)
        shifted = (bias or (lambda b, mean, s, beta: (b - mean) * s + beta))(b, mean, s, beta)
        return weight * s[:, np.newaxis], shifted

    return wrong


def _weight_as_it_was(weight, *others):
    return weight, folded_convolution(weight, *others)[1]


folded_convolution_kernel = KernelExercise(
    "folded_convolution_kernel",
    reference=folded_convolution,
    cases=_normalised_convolutions,
    float32=True,
    once=True,
    mistakes={
        "no root": (
            "You divide by the variance. The normalisation divides by its root.",
            _folded(scale=lambda gamma, variance, eps: gamma / (variance + eps)),
            ("math.sqrt(variance[oc] + eps)", "(variance[oc] + eps)"),
        ),
        "without eps": (
            "`{eps}` is missing: it is added to the variance, under the root.",
            _folded(scale=lambda gamma, variance, eps: gamma / np.sqrt(variance)),
            ("variance[oc] + eps", "variance[oc]"),
        ),
        "eps behind the root": (
            "`{eps}` is added to the variance, under the root; you add it to the root.",
            _folded(scale=lambda gamma, variance, eps: gamma / (np.sqrt(variance) + eps)),
            ("math.sqrt(variance[oc] + eps)", "(math.sqrt(variance[oc]) + eps)"),
        ),
        "gamma left out": (
            "The scale lacks `{gamma}`, the factor that was learned.",
            _folded(scale=lambda gamma, variance, eps: 1 / np.sqrt(variance + eps)),
            ("gamma[oc] /", "float32(1) /"),
        ),
        "multiplied by the root": (
            "You multiply by the root: the normalisation divides by it.",
            _folded(scale=lambda gamma, variance, eps: gamma * np.sqrt(variance + eps)),
            ("gamma[oc] /", "gamma[oc] *"),
        ),
        "mean left out": (
            "The mean is still there: it is taken away from the bias, before the scale.",
            _folded(bias=lambda b, mean, s, beta: b * s + beta),
            ("(bias[oc] - mean[oc])", "bias[oc]"),
        ),
        "mean added": (
            "The mean is taken away, and you add it.",
            _folded(bias=lambda b, mean, s, beta: (b + mean) * s + beta),
            ("bias[oc] - mean[oc]", "bias[oc] + mean[oc]"),
        ),
        "old bias left out": (
            "The convolution has a bias too, which goes through the normalisation as well.",
            _folded(bias=lambda b, mean, s, beta: beta - mean * s),
            ("(bias[oc] - mean[oc])", "-mean[oc]"),
        ),
        "old bias not scaled": (
            "The old bias is a part of what is normalised: it is multiplied by the scale too.",
            _folded(bias=lambda b, mean, s, beta: b - mean * s + beta),
            ("(bias[oc] - mean[oc]) * scale", "bias[oc] - mean[oc] * scale"),
        ),
        "mean not scaled": (
            "The mean is taken away before the scale: it is multiplied by that as well.",
            _folded(bias=lambda b, mean, s, beta: b * s - mean + beta),
            ("(bias[oc] - mean[oc]) * scale", "bias[oc] * scale - mean[oc]"),
        ),
        "beta left out": (
            "`{beta}`, the shift that was learned, is missing from the bias.",
            _folded(bias=lambda b, mean, s, beta: (b - mean) * s),
            (" + beta[oc]", ""),
        ),
        "beta scaled": (
            "`{beta}` is added last, after the scale.",
            _folded(bias=lambda b, mean, s, beta: (b - mean + beta) * s),
            ("(bias[oc] - mean[oc]) * scale + beta[oc]", "(bias[oc] - mean[oc] + beta[oc]) * scale"),
        ),
        "bias as it was": (
            "You leave the bias as it was; the normalisation shifts it, and scales it.",
            _folded(bias=lambda b, mean, s, beta: b),
            ("(bias[oc] - mean[oc]) * scale + beta[oc]", "bias[oc]"),
        ),
        "weight as it was": (
            "The bias is right, the weights are as they were: each is multiplied by its channel's scale.",
            _weight_as_it_was,
            ("weight[oc, k] * scale", "weight[oc, k]"),
        ),
    },
)
