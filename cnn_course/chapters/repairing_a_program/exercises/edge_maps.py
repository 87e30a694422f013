"""`edge_maps`: the host's part of a program."""

import numpy as np

from cnn_course.engine.checks import errors
from cnn_course.engine.checks.exercise import Exercise, Wrong, avoids
from cnn_course.engine.checks.kernels import normal
from cnn_numba import device
from cnn_numba.ops.conv.reference import conv_cpu

TILE = 16


def _edge_maps(image, weight):
    return np.array([conv_cpu(image, w) for w in weight], np.float32)


def _written_only(rows, columns):
    """Return a wrong `edge_maps` that writes only some rows and columns; the rest is empty."""

    def wrong(image, weight, empty=np.nan):
        maps = _edge_maps(image, weight)
        height, width = maps.shape[1:]
        maps[:, rows(height, width) :] = empty
        maps[:, :, columns(height, width) :] = empty
        return maps

    return wrong, lambda image, weight: wrong(image, weight, 0)


def _garbage_within(image, weight):
    """Return zeros with garbage in the blocks of a grid that is rounded down: the image was not copied."""
    maps = np.zeros_like(_edge_maps(image, weight))
    height, width = maps.shape[1:]
    maps[:, : height // TILE * TILE, : width // TILE * TILE] = np.nan
    return maps


def _up(n):
    return device.blocks(n, TILE) * TILE


def _returned(attempt, image, weight):
    maps = attempt(image, weight)
    if device.is_device_array(maps):
        raise Wrong(
            "still on the device",
            "Your result is on the device. Callers of `edge_maps` use NumPy arrays: `copy_to_host()`.",
        )
    return maps


def _starts_on_a_large_image(attempt):
    """Demand a launch of many blocks: grid and block must not be exchanged."""
    if device.simulated():  # it runs single threads, step by step
        return
    image = np.zeros((TILE * 33, TILE * 33), np.float32)
    try:
        _returned(attempt, image, np.zeros((1, 3, 3), np.float32))
    except Exception as error:
        raise Wrong(
            "grid and block exchanged",
            f"Right for small images. For {len(image)} x {len(image)} pixels the launch fails: a block "
            "would have 33 x 33 threads, and a GPU allows 1024. The grid comes first: `kernel[blocks, "
            "threads]`.",
            f"{errors.text(error)}.",
        ) from error


edge_maps = Exercise(
    "edge_maps",
    reference=_edge_maps,
    cases=lambda rng: [
        (normal(rng, (h, w)), normal(rng, (filters, 3, 3)))
        for h, w, filters in [(18, 19, 1), (28, 28, 4), (21, 45, 2), (50, 23, 3), (36, 70, 2)]
    ],
    starts_as=lambda image, weight: np.zeros(_edge_maps(image, weight).shape, np.float32),
    run=_returned,
    rtol=1e-5,
    properties=(avoids("conv_cpu"), _starts_on_a_large_image),
    mistakes={
        "rounded down": (
            "The maps' right or lower edge is never written, because you round the number of blocks down. "
            "`device.blocks(n, 16)` rounds up, and the kernel's guard stops the extra threads.",
            *_written_only(lambda h, w: h // TILE * TILE, lambda h, w: w // TILE * TILE),
            *_written_only(lambda h, w: h, lambda h, w: w // TILE * TILE),
            *_written_only(lambda h, w: h // TILE * TILE, lambda h, w: w),
            ("device.blocks(width, 16), device.blocks(height, 16)", "width // 16, height // 16"),
            ("device.blocks(width, 16)", "width // 16"),
            ("device.blocks(height, 16)", "height // 16"),
        ),
        "grid exchanged": (
            "Where the maps are not square, a part of them is never written: your grid is (rows, columns). "
            "In CUDA x comes first, and x runs along a row. First give the blocks of the width, then those "
            "of the height.",
            *_written_only(lambda h, w: _up(w), lambda h, w: _up(h)),
            ("blocks(width, 16), device.blocks(height, 16)", "blocks(height, 16), device.blocks(width, 16)"),
        ),
        "input lost": (
            "The kernel gets a new, empty array instead of your image. `cuda.to_device({image})` allocates "
            "and copies.",
            lambda image, weight: np.full(_edge_maps(image, weight).shape, np.nan, np.float32),
            _garbage_within,
            ("cuda.to_device(image)", "cuda.device_array(image.shape, np.float32)"),
            """
                height, width = image.shape[0] - 2, image.shape[1] - 2
                d_image = cuda.device_array(image.shape, np.float32)
                d_weight = cuda.to_device(weight)
                result = np.zeros((len(weight), height, width), np.float32)
                d_maps = cuda.to_device(result)
                conv_kernel[(width // 16, height // 16), (16, 16)](d_image, d_weight, d_maps)
                return d_maps.copy_to_host()
            """,
        ),
        "first filter only": (
            "Every map is the first filter's. Give the kernel all filters.",
            lambda image, weight: np.repeat(_edge_maps(image, weight[:1]), len(weight), axis=0),
            ("cuda.to_device(weight)", "cuda.to_device(np.stack([weight[0]] * len(weight)))"),
        ),
    },
)
