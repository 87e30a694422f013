"""Augmentation by name: random changes of each image before a step."""

from typing import NamedTuple

import numpy as np

from cnn_numba.arguments import choice, integer, shown, sizes


class Augmentation(NamedTuple):
    """How training images are changed at random; see `ops.gather`'s `gather_augmented`."""

    padding: int
    flip: bool
    seed: int


#: Images are left as they are, moved by up to an eighth of their size, or moved and mirrored.
AUGMENTATIONS = ("none", "crop", "crop-flip")


def augmentation(name: str, image_shape: tuple[int, ...], seed: int) -> Augmentation | None:
    """Return what one of `AUGMENTATIONS` means for images (C, H, W); None leaves them as they are.

    Examples
    --------
    >>> augmentation("crop-flip", (3, 32, 32), seed=0)[:2]
    (4, True)
    """
    if choice(name, "augment", AUGMENTATIONS) == "none":
        return None
    if len(sizes(image_shape, "image_shape")) != 3:
        raise ValueError(
            f"augment is for images (C, H, W), not for samples of shape {shown(image_shape)}: {name}"
        )
    seed = integer(seed, "seed", maximum=None)
    # Another stream than those of the weights and of the order of the images.
    key = int(np.random.SeedSequence([seed, 2]).generate_state(1)[0])
    return Augmentation(max(image_shape[1:]) // 8, name == "crop-flip", key)
