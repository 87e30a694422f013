"""Augmentation: random changes of the training images."""

from typing import NamedTuple

import numpy as np

from cnn_numba.arguments import choice, integer, shown, sizes


class Augmentation(NamedTuple):
    """The arguments of `gather_augmented` in `ops.gather`."""

    padding: int
    flip: bool
    seed: int


#: No change; move by up to an eighth of the image's size; move and mirror.
AUGMENTATIONS = ("none", "crop", "crop-flip")


def augmentation(name: str, image_shape: tuple[int, ...], seed: int) -> Augmentation | None:
    """Return one of `AUGMENTATIONS` for images (C, H, W), None for "none".

    Examples
    --------
    >>> augmentation("crop-flip", (3, 32, 32), seed=0)[:2]
    (4, True)
    """
    if choice(name, "augment", AUGMENTATIONS) == "none":
        return None
    if len(sizes(image_shape, "image_shape")) != 3:
        samples = f"samples of shape {shown(image_shape)}"
        raise ValueError(f"augment is for images (C, H, W), not for {samples}: {name}")
    seed = integer(seed, "seed", maximum=None)
    # A different stream from those of the weights and of the order of the images.
    key = int(np.random.SeedSequence([seed, 2]).generate_state(1)[0])
    return Augmentation(max(image_shape[1:]) // 8, name == "crop-flip", key)
