from numba import cuda, float32

from wrong_answers import derive, wrong

# --- decayed_step_kernel ---

decayed_step_kernel = derive(
    "decayed_step_kernel",
    step_without_decay=("decay left out", (" + weight_decay * parameters[i]", "")),
    step_away_from_zero=("decay pushes away", ("+ weight_decay", "- weight_decay")),
    step_with_decay_beside=(
        "decay beside the velocity",
        ("gradients[i] + weight_decay * parameters[i]", "gradients[i]"),
        ("lr * velocity[i]", "lr * (velocity[i] + weight_decay * parameters[i])"),
    ),
    step_decaying_the_velocity=(
        "decay of the velocity",
        ("weight_decay * parameters[i]", "weight_decay * velocity[i]"),
    ),
    step_without_momentum=("momentum left out", ("momentum * velocity[i] + gradient", "gradient")),
    step_with_the_rate_inside=(
        "rate in the velocity",
        ("+ gradient", "+ lr * gradient"),
        ("lr * velocity[i]", "velocity[i]"),
    ),
    step_uphill=("uphill", ("parameters[i] -=", "parameters[i] +=")),
    step_that_forgets=(
        "velocity not stored",
        ("velocity[i] = momentum", "speed = momentum"),
        ("lr * velocity[i]", "lr * speed"),
    ),
    step_before_the_velocity=(
        "velocity before the step",
        (
            "velocity[i] = momentum * velocity[i] + gradient",
            "before = velocity[i]\nvelocity[i] = momentum * before + gradient",
        ),
        ("lr * velocity[i]", "lr * before"),
    ),
    step_with_decay_past_the_rate=(
        "decay without the rate",
        ("gradients[i] + weight_decay * parameters[i]", "gradients[i]"),
        (
            "parameters[i] -= lr * velocity[i]",
            "parameters[i] -= lr * velocity[i] + weight_decay * parameters[i]",
        ),
    ),
    step_with_the_rate_twice=(
        "rate in the decay",
        ("weight_decay * parameters[i]", "lr * weight_decay * parameters[i]"),
    ),
    step_that_shrinks_at_the_end=(
        "decay of the new parameter",
        ("gradients[i] + weight_decay * parameters[i]", "gradients[i]"),
        (
            "parameters[i] -= lr * velocity[i]",
            "parameters[i] -= lr * velocity[i]\nparameters[i] *= float32(1) - lr * weight_decay",
        ),
    ),
    step_dampened=("gradient dampened", ("+ gradient", "+ (float32(1) - momentum) * gradient")),
    step_of_nesterov=("momentum twice", ("lr * velocity[i]", "lr * (gradient + momentum * velocity[i])")),
    step_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    step_without_guard=("writes past the edge", ("if i < parameters.size:", "if True:")),
)


@wrong("decayed_step_kernel", "only the sign")
@cuda.jit
def step_by_the_sign(parameters, gradients, velocity, lr, momentum, weight_decay):
    i = cuda.grid(1)
    if i < parameters.size:
        pull = weight_decay if parameters[i] > float32(0) else -weight_decay
        velocity[i] = momentum * velocity[i] + gradients[i] + pull
        parameters[i] -= lr * velocity[i]


# --- crop_and_flip_kernel ---

crop_and_flip_kernel = derive(
    "crop_and_flip_kernel",
    crop_without_mirror=("never mirrored", ("if places[i, 2] == 1:", "if places[i, 2] == 2:")),
    crop_always_mirrored=("always mirrored", ("if places[i, 2] == 1:", "if places[i, 2] < 2:")),
    crop_mirrored_first=(
        "mirrored first",
        ("column = out.shape[3] - 1 - w + places[i, 1] - padding", "column = out.shape[3] - 1 - column"),
    ),
    crop_mirrored_one_too_far=("mirrored one too far", ("out.shape[3] - 1 - w", "out.shape[3] - w")),
    crop_mirrored_in_its_place=(
        "mirrored without moving",
        ("column = out.shape[3] - 1 - w + places[i, 1] - padding", "column = out.shape[3] - 1 - w"),
    ),
    crop_without_padding=(
        "padding left out",
        ("+ places[i, 0] - padding", "+ places[i, 0]"),
        ("+ places[i, 1] - padding", "+ places[i, 1]", 2),
    ),
    crop_upside_down=(
        "upside down",
        (
            "column = out.shape[3] - 1 - w + places[i, 1] - padding",
            "row = out.shape[2] - 1 - h + places[i, 0] - padding",
        ),
    ),
    crop_moved_back=(
        "moved the other way",
        ("h + places[i, 0] - padding", "h - places[i, 0] + padding"),
        ("+ places[i, 1] - padding", "- places[i, 1] + padding", 2),
    ),
    crop_exchanged=(
        "row and column exchanged",
        ("places[i, 0]", "places[i, 3 - 3]"),
        ("places[i, 1]", "places[i, 0]", 2),
        ("places[i, 3 - 3]", "places[i, 1]"),
    ),
    crop_that_stays=(
        "without moving",
        ("+ places[i, 0] - padding", ""),
        ("+ places[i, 1] - padding", "", 2),
    ),
    crop_of_the_first=("first images", ("images[indices[i], ", "images[i, ")),
    crop_of_one_channel=("first channel only", ("range(out.shape[1])", "range(1)")),
    crop_of_bytes=("not divided", (" / float32(255)", "")),
    crop_without_guard=(
        "writes past the edge",
        (
            "if i < out.shape[0] and h < out.shape[2] and w < out.shape[3]:",
            "if h < out.shape[2] and w < out.shape[3]:",
        ),
    ),
    crop_in_float64=("float64", ("/ float32(255)", "* (1 / 255)")),
)


@wrong("crop_and_flip_kernel", "edge drawn out")
@cuda.jit
def crop_with_the_edge(images, indices, places, padding, out):
    w, h, i = cuda.grid(3)
    if i < out.shape[0] and h < out.shape[2] and w < out.shape[3]:
        row = min(max(h + places[i, 0] - padding, 0), out.shape[2] - 1)
        across = out.shape[3] - 1 - w if places[i, 2] == 1 else w
        column = min(max(across + places[i, 1] - padding, 0), out.shape[3] - 1)
        for c in range(out.shape[1]):
            out[i, c, h, w] = float32(images[indices[i], c, row, column]) / float32(255)


@wrong("crop_and_flip_kernel", "wrapped round")
@cuda.jit
def crop_wrapped(images, indices, places, padding, out):
    w, h, i = cuda.grid(3)
    if i < out.shape[0] and h < out.shape[2] and w < out.shape[3]:
        row = (h + places[i, 0] - padding + 2 * out.shape[2]) % out.shape[2]
        across = out.shape[3] - 1 - w if places[i, 2] == 1 else w
        column = (across + places[i, 1] - padding + 2 * out.shape[3]) % out.shape[3]
        for c in range(out.shape[1]):
            out[i, c, h, w] = float32(images[indices[i], c, row, column]) / float32(255)


# --- folded_convolution_kernel ---

folded_convolution_kernel = derive(
    "folded_convolution_kernel",
    fold_without_root=("no root", ("math.sqrt(variance[oc] + eps)", "(variance[oc] + eps)")),
    fold_without_eps=("without eps", ("variance[oc] + eps", "variance[oc]")),
    fold_with_eps_behind=(
        "eps behind the root",
        ("math.sqrt(variance[oc] + eps)", "(math.sqrt(variance[oc]) + eps)"),
    ),
    fold_without_gamma=("gamma left out", ("gamma[oc] /", "float32(1) /")),
    fold_by_the_root=("multiplied by the root", ("gamma[oc] /", "gamma[oc] *")),
    fold_without_mean=("mean left out", ("(bias[oc] - mean[oc])", "bias[oc]")),
    fold_with_the_mean_added=("mean added", ("bias[oc] - mean[oc]", "bias[oc] + mean[oc]")),
    fold_without_the_bias=("old bias left out", ("(bias[oc] - mean[oc])", "-mean[oc]")),
    fold_with_the_bias_beside=(
        "old bias not scaled",
        ("(bias[oc] - mean[oc]) * scale", "bias[oc] - mean[oc] * scale"),
    ),
    fold_with_the_mean_beside=(
        "mean not scaled",
        ("(bias[oc] - mean[oc]) * scale", "bias[oc] * scale - mean[oc]"),
    ),
    fold_without_beta=("beta left out", (" + beta[oc]", "")),
    fold_with_beta_scaled=(
        "beta scaled",
        ("(bias[oc] - mean[oc]) * scale + beta[oc]", "(bias[oc] - mean[oc] + beta[oc]) * scale"),
    ),
    fold_that_keeps_the_bias=("bias as it was", ("(bias[oc] - mean[oc]) * scale + beta[oc]", "bias[oc]")),
    fold_that_keeps_the_weight=("weight as it was", ("weight[oc, k] * scale", "weight[oc, k]")),
    fold_the_bias_again_and_again=("done more than once", ("if k == 0:", "if True:")),
    fold_without_guard=(
        "writes past the edge",
        ("if oc < weight.shape[0] and k < weight.shape[1]:", "if k < weight.shape[1]:"),
    ),
    fold_in_float64=("float64", ("gamma[oc] /", "1.0 * gamma[oc] /")),
)
