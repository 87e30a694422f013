"""`crop_and_flip_kernel`: random crops and flips."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, output
from cnn_numba import device

BLOCK = 4, 2, 2


def crop_and_flip(images, indices, places, padding):
    """Return the images at `indices` in 0 .. 1, cropped with a black margin, and mirrored or not."""
    return _cut(images[indices], places, padding)


def _cut(images, places, padding, mode="constant"):
    height, width = images.shape[2:]
    wide = 3 * padding + 1  # for windows that wrongly begin further out
    cut = []
    for image, (row, column, mirror) in zip(images, places, strict=True):
        top, left = row + wide - padding, column + wide - padding
        margin = (0, 0), (wide, wide), (wide, wide)
        window = np.pad(image, margin, mode=mode)[:, top : top + height, left : left + width]
        cut.append(window[:, :, ::-1] if mirror else window)
    return np.array(cut) / 255


def _with_places(change):
    """Return a wrong answer that uses ``change(places, padding)`` instead of `places`."""

    def wrong(images, indices, places, padding):
        places = places.copy()
        change(places, padding)
        return crop_and_flip(images, indices, places, padding)

    return wrong


def _exchange(places, padding):
    places[:, :2] = places[:, 1::-1].copy()


def _turn_round(places, padding):
    places[:, :2] = 2 * padding - places[:, :2]


def _never_mirror(places, padding):
    places[:, 2] = 0


def _always_mirror(places, padding):
    places[:, 2] = 1


def _mirror_first(places, padding):
    mirrored = places[:, 2] == 1
    places[mirrored, 1] = 2 * padding - places[mirrored, 1]


def _mirror_one_off(places, padding):
    places[places[:, 2] == 1, 1] += 1


def _mirror_about_the_image(places, padding):
    mirrored = places[:, 2] == 1
    places[mirrored, 1] = padding


def _without_padding(places, padding):
    places[:, :2] += padding


def _padding_added(places, padding):
    places[:, :2] += 2 * padding


def _first_row_and_column_black(images, indices, places, padding):
    images = images.copy()
    images[:, :, 0], images[:, :, :, 0] = 0, 0
    return crop_and_flip(images, indices, places, padding)


def _upside_down(images, indices, places, padding):
    plain = places.copy()
    plain[:, 2] = 0
    cut = crop_and_flip(images, indices, plain, padding)
    return np.array([c[:, ::-1] if m else c for c, m in zip(cut, places[:, 2], strict=True)])


def _first_channel(images, indices, places, padding):
    cut = crop_and_flip(images, indices, places, padding)
    cut[:, 1:] = np.nan
    return cut


def _crops(rng):
    for count, channels, height, width, padding in [
        (1, 1, 3, 4, 1),
        (3, 2, 5, 6, 2),
        (4, 3, 4, 3, 1),
        (5, 2, 3, 5, 4),
        (3, 3, 6, 4, 2),
    ]:
        images = rng.integers(1, 256, (count + 2, channels, height, width), dtype=np.uint8)
        indices = rng.permutation(count + 2)[:count]
        places = rng.integers(0, 2 * padding + 1, (count, 3)).astype(np.int32)
        places[:, 2] = np.arange(count) % 2
        sizes = (width, height, count)
        grid = tuple(device.blocks(size + 1, block) for size, block in zip(sizes, BLOCK, strict=True))
        out = output((count, channels, height, width))
        yield launch(grid, BLOCK, images, indices, places, padding, out)


crop_and_flip_kernel = KernelExercise(
    "crop_and_flip_kernel",
    reference=crop_and_flip,
    cases=_crops,
    float32=True,
    once=True,
    mistakes={
        "never mirrored": (
            "You mirror no image. Mirror those with `{places}[i, 2] == 1`.",
            _with_places(_never_mirror),
            ("if places[i, 2] == 1:", "if places[i, 2] == 2:"),
        ),
        "always mirrored": (
            "You mirror every image. Mirror only those with `{places}[i, 2] == 1`.",
            _with_places(_always_mirror),
            ("if places[i, 2] == 1:", "if places[i, 2] < 2:"),
        ),
        "mirrored first": (
            "You mirror before you cut. First cut the window at `{places}`, then reverse *its* columns.",
            _with_places(_mirror_first),
            ("column = out.shape[3] - 1 - w + places[i, 1] - padding", "column = out.shape[3] - 1 - column"),
        ),
        "mirrored one too far": (
            "Mirrored images are off by one column: the mirror of `w` is `out.shape[3] - 1 - w`.",
            _with_places(_mirror_one_off),
            ("out.shape[3] - 1 - w", "out.shape[3] - w"),
        ),
        "mirrored without moving": (
            "Mirrored images aren't moved sideways. Use `{places}[i, 1]` for them too.",
            _with_places(_mirror_about_the_image),
            ("column = out.shape[3] - 1 - w + places[i, 1] - padding", "column = out.shape[3] - 1 - w"),
        ),
        "padding left out": (
            "Your windows begin too late: `{places}` counts from the margin. Subtract `{padding}`.",
            _with_places(_without_padding),
            [("places[i, 0] - padding", "places[i, 0]"), ("places[i, 1] - padding", "places[i, 1]", 2)],
        ),
        "padding added": (
            "Your windows begin too late: `{places}` counts from the margin. *Subtract* `{padding}`.",
            _with_places(_padding_added),
            [
                ("places[i, 0] - padding", "places[i, 0] + padding"),
                ("[i, 1] - padding", "[i, 1] + padding", 2),
            ],
        ),
        "first row and column lost": (
            "Row 0 and column 0 of the images come out black. They are inside: compare by `0 <=`.",
            _first_row_and_column_black,
            [("0 <= row", "0 < row"), ("0 <= column", "0 < column")],
        ),
        "upside down": (
            "You reverse the rows. A mirror exchanges left and right: reverse the columns.",
            _upside_down,
            ("column = out.shape[3] - 1 - w + places[i, 1] -", "row = out.shape[2] - 1 - h + places[i, 0] -"),
        ),
        "moved the other way": (
            "The images move the wrong way. The window begins at row `{places}[i, 0] - {padding}` of the "
            "image.",
            _with_places(_turn_round),
            [("h + places[i, 0] -", "h - places[i, 0] +"), ("+ places[i, 1] -", "- places[i, 1] +", 2)],
        ),
        "row and column exchanged": (
            "You exchange row and column: `{places}[i, 0]` is the row where the window begins.",
            _with_places(_exchange),
            [("[i, 0]", "[i, 3 - 3]"), ("[i, 1]", "[i, 0]", 2), ("[i, 3 - 3]", "[i, 1]")],
        ),
        "without moving": (
            "The images aren't moved. Add the numbers in `{places}` and subtract `{padding}`.",
            _with_places(lambda places, padding: places[:, :2].fill(padding)),
            [("+ places[i, 0] - padding", ""), ("+ places[i, 1] - padding", "", 2)],
        ),
        "first images": (
            "You take the first images of the set. Image `i` of the batch is number `{indices}[i]`.",
            lambda images, indices, places, padding: _cut(images[: len(indices)], places, padding),
            ("images[indices[i], ", "images[i, "),
        ),
        "edge drawn out": (
            "Outside the image you repeat its edge. Use black there: 0.",
            lambda images, indices, places, padding: _cut(images[indices], places, padding, "edge"),
            (
                "inside = 0 <= row < out.shape[2] and 0 <= column < out.shape[3]",
                "inside = True\n"
                "row, column = min(max(row, 0), out.shape[2] - 1), min(max(column, 0), out.shape[3] - 1)",
            ),
        ),
        "wrapped round": (
            "Your image wraps around: pixels that leave on one side come in on the other. Use black outside: "
            "0.",
            lambda images, indices, places, padding: _cut(images[indices], places, padding, "wrap"),
            ("0 <= row < out.shape[2] and 0 <= column <", "True\nrow, column = row % out.shape[2], column %"),
        ),
        "first channel only": (
            "You write only channel 0. A thread computes all channels of its pixel.",
            _first_channel,
            ("range(out.shape[1])", "range(1)"),
        ),
        "not divided": (
            "Your numbers go up to 255. Divide by `float32(255)`.",
            lambda images, indices, places, padding: 255 * crop_and_flip(images, indices, places, padding),
            (" / float32(255)", ""),
        ),
        "divided without a fraction": (
            "`//` drops the fraction, so all bytes below 255 become 0. Divide float32 numbers with `/`.",
            lambda images, indices, places, padding: _cut(images[indices] // 255 * 255.0, places, padding),
            (
                "float32(images[indices[i], c, row, column]) / float32(255)",
                "float32(images[indices[i], c, row, column] // 255)",
            ),
        ),
        "normalised": (
            "You scale to the range from -1 to 1. Only divide by 255 here.",
            lambda images, indices, places, padding: _cut(2.0 * images[indices] - 255, places, padding),
            ("/ float32(255)", "/ float32(255) * float32(2) - float32(1)"),
        ),
    },
)
