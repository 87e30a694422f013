"""The open problem of notebook 14."""

from cnn_course.engine.checks.contest import Contest
from cnn_course.engine.checks.launches import normal
from cnn_numba.ops.conv import gpu, reference

# The second convolution of mnist_cnn: images, channels, height, width; output channels; size of a filter.
IMAGES, CHANNELS, SIDE, FILTERS, FILTER_SIDE = 64, 32, 13, 64, 3

beat_conv2d_forward = Contest(
    "conv2d_forward",
    package=lambda x, weight, bias, out: gpu.conv2d_forward(x, weight, bias, out=out),
    reference=reference.conv2d_forward,
    draw=lambda rng: (
        normal(rng, (IMAGES, CHANNELS, SIDE, SIDE)),
        normal(rng, (FILTERS, CHANNELS, FILTER_SIDE, FILTER_SIDE)),
        normal(rng, FILTERS),
    ),
    # There are 142,737,408 multiply-adds. Winograd's minimal filtering of 4 x 4 results needs a quarter of
    # the multiplications, and some extra additions.
    least_operations=IMAGES * FILTERS * (SIDE - FILTER_SIDE + 1) ** 2 * CHANNELS * FILTER_SIDE**2 // 4,
)
