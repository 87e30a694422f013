"""`for_keras`: weights for channels last."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise


def _converted(kernel=(2, 3, 1, 0), features=(2, 3, 1, 0), flip=False):
    """Return a conversion that puts the axes of both weights into these orders."""

    def convert(conv_weight, dense_weight, shape):
        turned = conv_weight.transpose(kernel)
        dense = dense_weight.reshape(-1, *shape).transpose(features)
        return turned[::-1, ::-1] if flip else turned, dense.reshape(-1, len(dense_weight))

    return convert


def _with_dense(dense):
    """Return a conversion that is right for the convolution, with `dense` converting the dense layer."""
    return lambda conv_weight, dense_weight, shape: (
        conv_weight.transpose(2, 3, 1, 0),
        dense(dense_weight, shape),
    )


def _reshaped(conv_weight, dense_weight, shape):
    outputs, inputs, *window = conv_weight.shape
    right = _converted()(conv_weight, dense_weight, shape)
    return conv_weight.reshape(*window, inputs, outputs), right[1]


def _apart(weight, channels, height, width):
    """Return a dense weight converted for Keras, as if its features had these sizes."""
    features = weight.reshape(-1, channels, height, width).transpose(2, 3, 1, 0)
    return features.reshape(-1, len(weight))


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
            "You reshape the convolution's weight: that changes the shape but keeps the numbers in their old "
            "order. Reorder its axes: `transpose`.",
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
            "You transpose each filter: rows come before columns in both layouts.",
            _converted(kernel=(3, 2, 1, 0)),
            ("kernel = conv_weight.transpose(2, 3, 1, 0)", "kernel = conv_weight.T"),
        ),
        "flipped": (
            "You flip the filters. Keras correlates, as we do: only reorder the axes.",
            _converted(flip=True),
            ("return kernel, features", "return kernel[::-1, ::-1], features"),
        ),
        "features in our order": (
            "The dense weight is transposed, but its rows are still in our order of features, channel by "
            "channel. Keras flattens pixel by pixel, with all channels of a pixel side by side.",
            _with_dense(lambda weight, shape: weight.T),
            ("= dense_weight.reshape(-1, *shape).transpose(2, 3, 1, 0)", "= dense_weight.T"),
        ),
        "not turned": (
            "The features are in the right order, but a dense weight in Keras has the shape (inputs, "
            "outputs).",
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
        "shape in Keras's order": (
            "`{shape}` is `(C, H, W)`, our order: reshape the dense weight's features to that order. Then "
            "reorder the axes.",
            _with_dense(lambda weight, shape: _apart(weight, shape[2], shape[0], shape[1])),
            ("dense_weight.reshape(-1, *shape)", "dense_weight.reshape(-1, shape[2], *shape[:2])"),
        ),
        "outputs not turned": (
            "The dense weight has its outputs first, `(outputs, C * H * W)`. You treat them as the last "
            "axis, but `reshape` doesn't transpose. Transpose first, or reshape to `(-1, *shape)`.",
            _with_dense(
                lambda weight, shape: (
                    weight.reshape(*shape, -1).transpose(1, 2, 0, 3).reshape(-1, len(weight))
                )
            ),
            [
                ("dense_weight.reshape(-1, *shape)", "dense_weight.reshape(*shape, -1)"),
                ("*shape, -1).transpose(2, 3, 1, 0)", "*shape, -1).transpose(1, 2, 0, 3)"),
            ],
        ),
        "columns before rows": (
            "Your features run down the columns. Rows come first in both layouts: height, width, channels.",
            _converted(features=(3, 2, 1, 0)),
            ("*shape).transpose(2, 3, 1, 0)", "*shape).transpose(3, 2, 1, 0)"),
        ),
        "dense weight reshaped": (
            "You reshape the dense weight: its numbers stay in the old order. Transpose it.",
            _with_dense(lambda weight, shape: weight.reshape(-1, len(weight))),
            ("features.reshape(", "dense_weight.reshape("),
        ),
    },
)
