"""How many bytes an epoch sends over the bus."""

from functools import partial

from cnn_course.engine.checks.exercise import Exercise


def _bus(
    images,
    pixels,
    batch_size,
    resident,
    *,
    pixel=4,
    label=4,
    loss=4,
    index=8,
    rate=4,
    rates=2,
    few=20,
    steps=None,
    whole_batches=False,
    moved=0,
):
    """Count the bytes of an epoch; every keyword is a way to get them wrong."""
    steps = -(-images // batch_size) if steps is None else steps(images, batch_size)
    if resident:
        return index * images + rate * rates * steps + few + moved * images * pixels
    sent = steps * batch_size if whole_batches else images
    return sent * (pixel * pixels + label + loss)


bus_bytes = Exercise(
    "bus_bytes",
    reference=_bus,
    cases=lambda rng: [
        (images, pixels, batch_size, resident)
        for images, pixels, batch_size in [(7, 6, 3), (12, 5, 4), (100, 49, 32), (61, 784, 16)]
        for resident in (False, True)
    ],
    rtol=1e-12,
    mistakes={
        "one byte a pixel": (
            "You count a byte for a pixel. The host normalises before it sends: a pixel is a float32.",
            partial(_bus, pixel=1),
            ("4 * pixels", "pixels"),
        ),
        "elements counted": (
            "You count elements, not bytes: float32 and int32 have 4 bytes, int64 and float64 have 8.",
            partial(_bus, pixel=1, label=1, loss=1, index=1, rate=1, few=3),
            [
                ("8 * images + 2 * 4 * steps + 4 + 2 * 8", "images + 2 * steps + 1 + 2"),
                ("4 * pixels + 4 + 4", "pixels + 1 + 1"),
            ],
        ),
        "label or loss left out": (
            "Each image also has a label, which goes there, and a loss, which comes back: 4 bytes each.",
            partial(_bus, label=0),
            ("4 * pixels + 4 + 4", "4 * pixels + 4"),
        ),
        "pixels only": (
            "Labels go there as well, and losses come back.",
            partial(_bus, label=0, loss=0),
            ("(4 * pixels + 4 + 4)", "4 * pixels"),
        ),
        "steps rounded down": (
            "You round the number of steps down: the last batch, smaller than the others, is a step too.",
            partial(_bus, steps=lambda images, batch_size: images // batch_size),
            ("device.blocks(images, batch_size)", "images // batch_size"),
        ),
        "whole batches": (
            "You count the last batch as a whole one. It has the images that are left over.",
            partial(_bus, whole_batches=True),
            ("return images", "return device.blocks(images, batch_size) * batch_size"),
        ),
        "indices of four bytes": (
            "The order of the images consists of int64 numbers, of 8 bytes each.",
            partial(_bus, index=4),
            ("return 8 * images", "return 4 * images"),
        ),
        "one rate a step": (
            "Each step has a row of two rates, of which plain SGD needs one. Both travel.",
            partial(_bus, rates=1),
            ("2 * 4 * steps", "4 * steps"),
        ),
        "cursor and totals left out": (
            "A cursor of 4 bytes goes there, and two totals of 8 bytes each come back.",
            partial(_bus, few=0),
            (" + 4 + 2 * 8", ""),
        ),
        "totals of four bytes": (
            "The two totals are float64 numbers, of 8 bytes each.",
            partial(_bus, few=12),
            ("2 * 8", "2 * 4"),
        ),
        "cursor at each step": (
            "The cursor goes there once an epoch. At each step a kernel moves it on, on the device.",
            partial(_bus, rates=3, few=16),
            ("2 * 4 * steps + 4", "(2 * 4 + 4) * steps"),
        ),
        "images sent again": (
            "Resident means that the images are there already: no step and no epoch sends them again.",
            partial(_bus, moved=4),
            partial(_bus, moved=1),
            ("return 8 * images", "return (8 + 4 * pixels) * images"),
            ("return 8 * images", "return (8 + pixels) * images"),
        ),
    },
)
