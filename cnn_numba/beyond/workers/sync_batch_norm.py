"""Batch normalisation by the statistics of a whole batch that is divided among several workers.

With the statistics of its own part each worker would train another network than a single worker does. The
operations stay the same: they compute a part, and a few sums per channel over all workers do the rest.
"""

from collections.abc import Callable

import numpy as np

from cnn_numba.beyond.norm.layers import BatchNorm2d
from cnn_numba.device import Array, copy, first_rows, to_host


class SyncBatchNorm:
    """The training passes of a batch normalisation if other workers have the rest of the batch.

    Parameters
    ----------
    layer : BatchNorm2d
        A built layer, which uses this from now on.
    add_up : callable
        Sums an array on the host over all workers, in place.
    """

    def __init__(self, layer: BatchNorm2d, add_up: Callable[[np.ndarray], object]) -> None:
        self.layer, self.add_up, self.backend = layer, add_up, layer.backend
        layer.sync = self
        # Mean and variance stay from `forward` to `backward`, which normalises x with them again.
        self.mean, self.variance, self.scale, self.shift = (
            self.backend.zeros(layer.num_features) for _ in range(4)
        )
        self.correction = self.backend.empty(layer.input_shape)

    def forward(self, x: Array | None) -> Array | None:
        """Normalise this worker's part of a batch, None if it has none."""
        layer = self.layer
        sums = np.zeros((3, layer.num_features))
        if x is not None:
            # With a momentum of 1, `self.mean` and `self.variance` become those of the part.
            self._normalise(x, layer.weight, layer.bias, layer.out, training=True)
            count = x.size // layer.num_features
            mean, variance = (to_host(array).astype(np.float64) for array in (self.mean, self.variance))
            # In float32 the squares would lose precision.
            sums[0], sums[1], sums[2] = count, count * mean, (count - 1) * variance + count * mean**2
        self.add_up(sums)
        self.count = sums[0, 0]
        mean = sums[1] / self.count
        squares = sums[2] - self.count * mean**2
        self._set(self.mean, mean)
        self._set(self.variance, squares / self.count)
        for running, batch in ((layer.running_mean, mean), (layer.running_var, squares / (self.count - 1))):
            self._set(running, (1 - layer.momentum) * to_host(running) + layer.momentum * batch)
        return None if x is None else self._normalise(x, layer.weight, layer.bias, layer.out)

    def backward(self, grad_output: Array | None) -> Array | None:
        """Write the part's gradients of scale and shift; return that of the input, for the whole batch."""
        layer = self.layer
        sums = np.zeros((2, layer.num_features))
        if grad_output is not None:
            # As if the statistics were constants; the correction for them comes below.
            saved = {"mean": layer.mean, "inv_std": layer.inv_std, "training": False}
            grad_input, *parts = layer.ops.batch_norm2d_backward(
                grad_output, layer.x, layer.weight, **saved, **layer.gradients(grad_output)
            )
            sums[:] = [to_host(array) for array in parts]
        self.add_up(sums)
        if grad_output is None or not layer.needs_grad_input:
            return None
        # grad_input - weight * inv_std * (average + x_hat * slope); normalising x computes x_hat.
        slope, average = sums / self.count
        weight = to_host(layer.weight).astype(np.float64)
        self._set(self.shift, -weight * to_host(layer.inv_std) * average)
        self._set(self.scale, -weight * to_host(layer.inv_std) * slope)
        correction = self._normalise(layer.x, self.scale, self.shift, self.correction)
        return self.backend.ops.activation.add_forward(grad_input, correction, out=grad_input)

    def _normalise(self, x, weight, bias, out, training=False):
        layer = self.layer
        written = {"out": first_rows(out, x.shape[0]), "mean": layer.mean, "inv_std": layer.inv_std}
        how = {"training": training, "momentum": 1.0, "eps": layer.eps}
        normalised, _, _ = layer.ops.batch_norm2d_forward(
            x, weight, bias, self.mean, self.variance, **how, **written
        )
        return normalised

    def _set(self, array, values):
        copy(array, values.astype(self.backend.dtype))
