"""Make the moving picture of the README: ``python docs/images/front.py``.

It writes ``front.gif``, and ``front.png``, the end of each scene, for readers who want no motion. All that
is shown has been run: the kernels where the course's kernels run, the sanitizer's words by the sanitizer, the
answer by the network that ``cnn-numba train`` trains. Only what a race comes to differs from run to run, and
stands in ``front.json``; with ``--measure`` the script counts anew. The other picture there,
``feature_maps.png``, is taken from notebook 00, which draws it.
"""

import base64
import inspect
import json
import os
import re
import sys
import textwrap
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import cnn_numba  # noqa: F401  isort: skip  (before numba.cuda: this selects what kernels run on)
import matplotlib
import numpy as np
from numba import cuda, float32
from PIL import Image, ImageDraw, ImageFont
from scipy.spatial import KDTree

import gpuless
from benchmarks.plots import COLOURS, FAINT, INK, PAPER
from cnn_course.chapters.mnist_cnn.pad import example_drawing
from cnn_numba import data, device
from cnn_numba.data.digits import prepare_digit
from cnn_numba.pretrained import MNIST_CNN
from cnn_numba.train.checkpoint import load_model
from cnn_numba.train.loop import evaluate

FOLDER = Path(__file__).parent
RECORD = FOLDER / "front.json"
# Half as large again as GitHub shows it: what is 33 high here is still 10 high on a telephone.
WIDTH, HEIGHT, MARGIN = 1200, 900, 44
BLUE, ORANGE, GREEN = COLOURS[0], "#b35900", "#00704f"
CARD, GREY = "#f0eee7", "#5c5f66"
STEPS = ("1  Write a kernel", "2  Find the race", "3  Draw a digit")
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
BLOCKS, THREADS = (4, 4), (8, 8)


@cuda.jit
def conv_kernel(image, w, out):
    x, y = cuda.grid(2)  # which output is mine?
    if y >= out.shape[0] or x >= out.shape[1]:
        return
    total = float32(0)
    for i in range(3):
        for j in range(3):
            total += image[y + i, x + j] * w[i, j]
    out[y, x] = total


@cuda.jit
def count_kernel(digits, counts):
    x, y, n = cuda.grid(3)  # which pixel is mine?
    if y < 28 and x < 28:
        level = digits[n, y, x] // 16
        counts[level] += 1


@cuda.jit
def mended_kernel(digits, counts):
    x, y, n = cuda.grid(3)
    if y < 28 and x < 28:
        level = digits[n, y, x] // 16
        cuda.atomic.add(counts, level, 1)


@dataclass(frozen=True)
class Facts:
    """What the film shows."""

    image: np.ndarray
    weight: np.ndarray
    out: np.ndarray
    """What the kernel wrote."""
    written: list
    """The outputs (row, column) of each block, in the order in which the simulator's threads wrote them."""
    words: str
    """What the sanitizer says of the race."""
    digit: np.ndarray
    maps: list
    """The four busiest maps of each layer, for the digit that is drawn."""
    sizes: list
    """How many maps a layer has, and their height."""
    chances: np.ndarray
    accuracy: float


def gather() -> Facts:
    """Run everything once."""
    model = load_model(MNIST_CNN, batch_size=1)
    mnist = data.load("mnist")
    image = mnist.test_images[0, 0].astype(np.float32) / 255
    model.forward(image[None, None])
    weight = model.layers[0].weight[busiest(model.layers[0].output[0], 1)[0], 0].copy()
    digit = prepare_digit(255 - example_drawing())[0]
    chances = model.predict(digit[None, None].astype(np.float32) / 255)[0].copy()
    layers = [layer.output[0].copy() for layer in model.layers[:4]]
    judged = load_model(MNIST_CNN, batch_size=500)
    _, accuracy = evaluate(judged, mnist.test_images, mnist.test_labels)
    return Facts(
        image,
        weight,
        convolved(image, weight),
        writes(image, weight),
        words_of(gpuless.sanitize(count_kernel)[1, (32, 32)], mnist.train_images[:1, 0]),
        digit,
        [maps[busiest(maps, 4)] for maps in layers],
        [maps.shape[:2] for maps in layers],
        chances,
        accuracy,
    )


def busiest(maps, count):
    """Return the numbers of the maps that vary most."""
    return np.argsort(maps.std(axis=(1, 2)))[::-1][:count]


def convolved(image, weight):
    """Return what the film's kernel makes of an image."""
    out = cuda.device_array((26, 26), np.float32)
    conv_kernel[BLOCKS, THREADS](cuda.to_device(image), cuda.to_device(weight), out)
    return out.copy_to_host()


def writes(image, weight):
    """Return which outputs the threads of each block wrote."""
    out = cuda.device_array((26, 26), np.float32)
    arguments = cuda.to_device(image), cuda.to_device(weight), out
    trace = gpuless.record(conv_kernel)[BLOCKS, THREADS](*arguments)
    rows = np.flatnonzero([trace.arrays[number].name == "out" for number in trace.array])
    order = dict.fromkeys(trace.block[rows].tolist())
    return [[trace.index(row) for row in rows if trace.block[row] == block] for block in order]


def words_of(launch, digits):
    """Return the sanitizer's first finding, without its number."""
    report = str(launch(cuda.to_device(digits), cuda.to_device(np.zeros(16, np.int32))))
    said = report.split("\n1. ")[1].split("\n       line")[0]
    return " ".join(said.split())


def measure():
    """Count the pixels of all of MNIST's training digits by both kernels, and write down what came out."""
    digits = data.load("mnist").train_images[:, 0]
    d_digits = cuda.to_device(digits)

    def count(kernel):
        counts = cuda.to_device(np.zeros(16, np.int32))
        kernel[(1, 1, len(digits)), (32, 32, 1)](d_digits, counts)
        return int(counts.copy_to_host().sum())

    record = {
        "date": date.today().isoformat(),
        "kernels": device.describe().splitlines()[0].removeprefix("kernels").strip(),
        "processor_cores": len(os.sched_getaffinity(0)),
        "pixels": digits.size,
        "runs": [count(count_kernel) for _ in range(3)],
        "mended": count(mended_kernel),
    }
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


class Page:
    """One frame: a sheet with the names of the scenes on top, and what is drawn on it."""

    def __init__(self, scene):
        self.image = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
        self.draw = ImageDraw.Draw(self.image)
        for number, name in enumerate(STEPS):
            left, now = MARGIN + number * 385, number == scene
            self.text((left, 22), name, 33, INK if now else GREY, bold=now)
            self.draw.rectangle((left, 68, left + 342, 72), fill=BLUE if now else FAINT)

    def text(self, place, text, size=33, colour=INK, bold=False, mono=False):
        """Write a line, its upper left corner at a place."""
        name = f"DejaVuSans{'Mono' if mono else ''}{'-Bold' if bold else ''}.ttf"
        self.draw.text(place, text, font=ImageFont.truetype(FONTS / name, size), fill=colour)

    def card(self, top, bottom):
        """Put a ground under what is written from here to there."""
        self.draw.rounded_rectangle((MARGIN - 20, top, WIDTH - MARGIN + 20, bottom), 14, fill=CARD)

    def code(self, lines, top, step=42):
        """Draw lines of code on a card, their comments in grey."""
        self.card(top, top + step * len(lines) + 26)
        for number, line in enumerate(lines):
            place = (MARGIN, top + 12 + step * number)
            self.text(place, line, mono=True, colour=GREY)
            self.text(place, line.split("  #")[0], mono=True)

    def array(self, values, left, top, edge, limit=None):
        """Draw an array, grey if it has no ``limit``, else from red, below zero, to blue; NaN stays paper."""
        colours = matplotlib.colormaps["gray" if limit is None else "RdBu"]
        shares = values if limit is None else values / (2 * limit) + 0.5
        pixels = np.uint8(255 * colours(shares)[..., :3])
        pixels[np.isnan(values)] = 224
        picture = Image.fromarray(pixels).resize((edge, edge), Image.Resampling.NEAREST)
        self.image.paste(picture, (left, top))
        self.draw.rectangle((left - 2, top - 2, left + edge + 1, top + edge + 1), outline=GREY, width=2)

    def frame(self, left, top, right, bottom):
        """Draw a frame."""
        self.draw.rectangle((left, top, right, bottom), outline=ORANGE, width=5)


def source(kernel):
    """Return a kernel's lines."""
    return inspect.getsource(kernel.py_func).splitlines()


def kernel_scene(facts):
    """Yield pages and how long each stays: a kernel, whose threads fill an output block by block."""
    lines = source(conv_kernel)
    out = np.full_like(facts.out, np.nan)
    yield kernel_page(facts, lines, out, None), 1.8
    for number, written in enumerate(facts.written):
        rows, columns = np.transpose(written)
        out[rows, columns] = facts.out[rows, columns]
        yield kernel_page(facts, lines, out, (number, written)), 0.15
    yield kernel_page(facts, lines, out, None), 1.6


def kernel_page(facts, lines, out, block):
    """Draw the kernel and what it has written so far; ``block`` is the last one's number and its outputs."""
    page, top, edge = Page(0), 592, 286
    page.code(lines, 92)
    limit = np.abs(facts.out).max()
    for name, left in (("image", MARGIN), ("w", 388), ("out", 560)):
        page.text((left, 546), name, mono=True)
    page.array(facts.image, MARGIN, top, edge)
    page.array(facts.weight, 388, top + 83, 120, np.abs(facts.weight).max())
    page.array(out, 560, top, edge, limit)
    if block is None:
        done = not np.isnan(out).any()
        said = ["676 outputs,", "a thread each"] if done else ["16 blocks", "of 64 threads"]
    else:
        (rows, columns), pixel = zip(*block[1], strict=True), edge / 26
        box = min(columns), min(rows), max(columns) + 1, max(rows) + 1
        page.frame(*(round(start + side * pixel) for start, side in zip((560, top) * 2, box, strict=True)))
        seen = (*box[:2], box[2] + 2, box[3] + 2)
        page.frame(*(round(s + side * edge / 28) for s, side in zip((MARGIN, top) * 2, seen, strict=True)))
        said = [f"block {block[0] + 1}", "of 16"]
    for number, line in enumerate(said):
        page.text((884, 592 + 44 * number), line)
    key(page, 884, 770)
    return page.image


def key(page, left, top):
    """Say what the colours of maps mean."""
    for number, (share, name) in enumerate(((0.85, "above zero"), (0.15, "below zero"))):
        colour = tuple(np.uint8(255 * np.array(matplotlib.colormaps["RdBu"](share)[:3])).tolist())
        page.draw.rectangle((left, top + 56 * number, left + 38, top + 38 + 56 * number), fill=colour)
        page.text((left + 54, top + 56 * number), name, 31, GREY)


def race_scene(facts, record):
    """Yield pages and how long each stays: what a race counts, what the sanitizer says, and the repair."""
    yield race_page(record, 0, ""), 1.4
    for number in (1, 2, 3):
        yield race_page(record, number, ""), 0.6
    yield race_page(record, 3, facts.words), 3.6
    yield race_page(record, 4, facts.words), 2.0


def race_page(record, runs, words):
    """Draw the racing kernel, its first `runs` runs, the fourth fixed, and what the sanitizer says."""
    page = Page(1)
    lines = source(count_kernel)
    mended = runs == 4
    page.code([*lines, ""], 88, 40)
    last = 100 + 40 * (len(lines) - 1)
    if mended:
        page.draw.line((MARGIN + 155, last + 22, MARGIN + 530, last + 22), fill=ORANGE, width=4)
        page.text((MARGIN, last + 40), source(mended_kernel)[-1], mono=True, colour=GREEN, bold=True)
    where = "an emulated GPU" if "emulated" in record["kernels"] else "a GPU"
    page.text((MARGIN, 404), f"{record['pixels']:,} pixels, on {where}. Counted:", 32, GREY)
    counted = [*record["runs"], record["mended"]][:runs]
    for number, count in enumerate(counted):
        top, right = 454 + 50 * number, count == record["pixels"]
        colour = GREEN if right else ORANGE
        page.text((MARGIN, top), "mended" if right else f"run {number + 1}")
        page.draw.rectangle((224, top + 4, 224 + 640, top + 36), outline=GREY, width=2)
        page.draw.rectangle((224, top + 4, 224 + 640 * count // record["pixels"], top + 36), fill=colour)
        page.text((890, top), f"{count:,}", mono=True, bold=True, colour=colour)
    if words:
        page.card(662, 884)
        page.text((MARGIN, 670), "The sanitizer:", 33, GREY)
        for number, line in enumerate(textwrap.wrap(words, 56)):
            page.text((MARGIN, 714 + 41 * number), line, 32, mono=True)
    return page.image


def digit_scene(facts):
    """Yield pages and how long each stays: a digit is drawn, goes through the network, and is read."""
    for share in np.linspace(0, 1, 9):
        yield digit_page(facts, share, -1), 0.1
    for stage in range(6):
        yield digit_page(facts, 1, stage), 0.4 if stage < 5 else 3.2


def digit_page(facts, share, stage):
    """Draw this share of the digit, and the network's stages so far: -1 none, 0 the pixels, 5 the answer."""
    page, edge = Page(2), 250
    page.text((MARGIN, 92), "drawn")
    page.array(1 - example_drawing(share) / 255, MARGIN, 138, edge)
    if stage >= 0:
        page.text((342, 92), "28 x 28 pixels", 32)
        page.array(facts.digit / 255, 342, 138, edge)
    names = "convolution", "max-pooling", "convolution", "max-pooling"
    for number in range(min(stage, 4)):
        left, half = MARGIN + 288 * number, 118
        count, height = facts.sizes[number]
        page.text((left, 420), names[number])
        page.text((left, 460), f"{count} maps, {height} x {height}", 28, GREY)
        for place, values in enumerate(facts.maps[number]):
            corner = left + place % 2 * (half + 10), 512 + place // 2 * (half + 10)
            page.array(values, *corner, half, np.abs(values).max())
    if stage == 5:
        answer(page, facts.chances)
        text = f"It reads {facts.accuracy:.1%} of 10,000 unseen digits right."
        page.text((MARGIN, 826), text, 34, bold=True)
    return page.image


def answer(page, chances):
    """Draw how likely the network takes each digit to be."""
    page.text((660, 92), f"It reads a {chances.argmax()}.", 36, bold=True)
    for digit, chance in enumerate(chances):
        left, best = 660 + 51 * digit, digit == chances.argmax()
        page.draw.rectangle((left, 150, left + 34, 346), fill=CARD)
        page.draw.rectangle((left, 346 - round(196 * chance), left + 34, 346), fill=BLUE)
        page.text((left + 6, 350), str(digit), 33, INK if best else GREY, bold=best)


def scenes(facts):
    """Return the pages of each scene."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return kernel_scene(facts), race_scene(facts, record), digit_scene(facts)


def coloured(page):
    """Give a page the palette of the film: text on its grounds, the maps' colours, and greys."""
    ramps = [
        np.linspace(matplotlib.colors.to_rgb(ground), matplotlib.colors.to_rgb(ink), 8)
        for ground in (PAPER, CARD)
        for ink in (INK, GREY, FAINT, BLUE, ORANGE, GREEN)
    ]
    ramps += [matplotlib.colormaps["RdBu"](np.linspace(0, 1, 97))[:, :3], np.linspace((0,) * 3, (1,) * 3, 32)]
    palette = np.unique(np.uint8(np.rint(255 * np.concatenate(ramps))), axis=0)
    pixels = np.asarray(page).astype(np.int32) @ (65536, 256, 1)
    colours, which = np.unique(pixels, return_inverse=True)
    nearest = KDTree(palette).query(np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1))[1]
    picture = Image.fromarray(np.uint8(nearest)[which].reshape(pixels.shape)).convert("P")
    picture.putpalette(palette.tobytes())
    return picture


def write(facts):
    """Write the film, and the still picture: the last page of each scene, one below the other."""
    films = [list(scene) for scene in scenes(facts)]
    still = Image.new("RGB", (WIDTH, HEIGHT * len(films)), PAPER)
    for number, film in enumerate(films):
        still.paste(film[-1][0], (0, HEIGHT * number))
    coloured(still).save(FOLDER / "front.png", optimize=True)
    first, *others = [coloured(page) for film in films for page, _ in film]
    stays = [round(1000 * seconds) for film in films for _, seconds in film]
    first.save(FOLDER / "front.gif", save_all=True, append_images=others, duration=stays, loop=0)
    return sum(stays)


def copy_feature_maps():
    """Take the picture of a digit's way from notebook 00, as it is stored there."""
    path = FOLDER.parents[1] / "notebooks" / "00_start_here.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    (cell,) = [cell for cell in notebook["cells"] if cell["id"] == "stages-picture"]
    shown = "".join(cell["outputs"][0]["data"]["text/html"])
    picture = base64.b64decode(re.search('base64,([^"]+)', shown)[1])
    (FOLDER / "feature_maps.png").write_bytes(picture)


if __name__ == "__main__":
    if "--measure" in sys.argv:
        measure()
    copy_feature_maps()
    print(f"{write(gather()) / 1000:g} s")
