"""Three slow kernels of notebook 15, each slow for a different reason, and their modelled times."""

from functools import cache

import numpy as np
from numba import cuda, float32

from cnn_course.engine.modelled_ladders import modelled
from cnn_numba import device

#: The GPU whose modelled time is checked.
GPU = "T4"
#: The kernels' inputs: images of 28 x 28 pixels, 64 images with 32 feature maps, labels.
SIZES = {"brightness_kernel": (16_384, 784), "channel_sums_kernel": (64, 32, 676), "count_kernel": (1 << 20,)}


@cuda.jit
def brightness_kernel(images, out):
    """Work out the mean of an image, an image per thread."""
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(images.shape[1]):
            total += images[i, k]
        out[i] = total / float32(images.shape[1])


@cuda.jit
def channel_sums_kernel(x, out):
    """Add up a channel, a channel per block."""
    c, pixels = cuda.blockIdx.x, x.shape[2]
    total = float32(0)
    for i in range(cuda.threadIdx.x, x.shape[0] * pixels, cuda.blockDim.x):
        total += x[i // pixels, c, i % pixels]
    cuda.atomic.add(out, c, total)


@cuda.jit
def count_kernel(labels, counts):
    """Count how often each label occurs, a label a thread."""
    i = cuda.grid(1)
    if i < labels.size:
        cuda.atomic.add(counts, labels[i], 1)


#: The cause of each, and the line that is slow.
ANSWERS = {
    "brightness_kernel": ("far apart", "total += images[i, k]"),
    "channel_sums_kernel": ("few blocks", "total += x[i // pixels, c, i % pixels]"),
    "count_kernel": ("one address", "cuda.atomic.add(counts, labels[i], 1)"),
}


def modelled_time(work, gpu=GPU) -> float:
    """Return the modelled microseconds of the kernels that a function launches; 0 if it launches none.

    Parameters
    ----------
    work : callable
        Called without arguments.
    gpu : str
        A name that `gpuless.profile` knows.
    """
    try:
        return modelled({"work": work}, [gpu]).microseconds(gpu)["work"]
    except ValueError:
        return 0.0


def feature_maps():
    """Return device arrays of the full size: feature maps, and an array for the channel sums."""
    shape = SIZES["channel_sums_kernel"]
    maps = np.random.default_rng(15).normal(size=shape).astype(np.float32)
    return device.to_device(maps), device.zeros(shape[1])


@cache
def given_time() -> float:
    """Return the modelled microseconds of the given `channel_sums_kernel`."""
    maps, sums = feature_maps()
    return modelled_time(lambda: channel_sums_kernel[maps.shape[1], 128](maps, sums))
