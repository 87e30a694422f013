"""The arguments of the functions that gather a batch, for all backends: see `cnn_numba.ops.specs`."""

from cnn_numba.arguments import integer, settings
from cnn_numba.ops.specs import Spec

#: An image moves by at most this many pixels.
MOST_PADDING = 255

_DATA = "images:uint8[N C H W], labels:int32[N], order:int64[length], cursor:int32[1]"
_BATCH = "x![B C H W], y!:int32[B]"

gather_batch = Spec("images:uint8[N C H W], indices:int64[B] -> out[B C H W]")
gather_labels = Spec("labels:int32[N], indices:int64[B] -> out:int32[B]")
gather_batch_at = Spec(f"{_DATA}, {_BATCH}, advances?!:int32[1]", filled="C H W")
gather_augmented_at = Spec(f"{_DATA}, draw:uint32[2], {_BATCH}", filled="C H W")


def batch_size_of(x, batch_size):
    """Return the size of a full batch: that of `x` if it is None, and never less."""
    batch_size = integer(x.shape[0] if batch_size is None else batch_size, "batch_size")
    if batch_size < x.shape[0]:
        raise ValueError(f"batch_size must be at least the {x.shape[0]} samples of x, got {batch_size}")
    return batch_size


def augmentation(padding, flip, seed=0, epoch=0):
    """Check and return the arguments of `gather_augmented` that `gather_batch` does not have."""
    return integer(padding, "padding", maximum=MOST_PADDING), *settings(flip=flip, seed=seed, epoch=epoch)
