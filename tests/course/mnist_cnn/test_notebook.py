"""Notebook 09: updates, the live curve, pictures, and the pad without a browser."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from test_notebooks import defined_in_cell

from cnn_course.chapters.mnist_cnn import exercises as check, pictures
from cnn_course.chapters.mnist_cnn.pad import SIZE, DigitPad, example_drawing
from cnn_course.engine import notebooks
from cnn_numba import data, gather_batch
from cnn_numba.data.files import CHECKOUT
from cnn_numba.nn import models
from cnn_numba.nn.layers import ReLU
from cnn_numba.ops.update import reference
from cnn_numba.train import loop as training, optim
from gpuless.profile.devices import device

STEM = "09_mnist_cnn"


def test_the_loss_falls_though_a_gradient_has_the_wrong_sign():
    cells = {cell.id: cell for cell in notebooks.read(CHECKOUT / "notebooks" / f"{STEM}.ipynb").cells}
    (output,) = cells["wrong-gradient"].outputs
    losses = [float(loss) for loss in output.text.split()]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == 3.42
    assert losses[-1] < 0.4


def text_of(cell_id, stem=STEM):
    """Return the source of a cell."""
    cells = notebooks.read(CHECKOUT / "notebooks" / f"{stem}.ipynb").cells
    return next(cell.source for cell in cells if cell.id == cell_id)


def test_the_network_begins_as_the_texts_say():
    mnist, net = data.load("mnist"), models.mnist_cnn(64)
    logits = net.forward(gather_batch(mnist.train_images, np.arange(64), 0.0, 1.0), training=True)
    assert np.sqrt((logits**2).mean()) == pytest.approx(1.6, abs=0.05)
    assert "logits of size 1.6" in text_of("first-loss-after", "06_dense_layers")
    (relu,) = (layer for layer in net.layers if isinstance(layer, ReLU))
    assert (relu.output == 0).all(axis=0).sum() == 6
    assert "6 of the 128 units" in text_of("backward-after")


def test_the_paths_down_the_valley_are_as_the_text_says():
    drawn = []
    namespace = {"np": np, "pictures": SimpleNamespace(ravine_picture=lambda _, paths: drawn.append(paths))}
    for cell_id in ("momentum-step", "valley"):
        exec(text_of(cell_id), namespace)
    fast, slow, momentum = drawn[0].values()
    assert (np.diff(np.sign(fast[:, 1])) != 0).all()
    assert (slow[:, 1] >= 0).all()
    assert "more than a third of the way is left" in text_of("momentum-after")
    assert slow[-1, 0] / slow[0, 0] > 1 / 3
    assert "runs a little past the lowest point before it turns back" in text_of("momentum-after")
    assert 0 < momentum[-1, 0] < momentum[:, 0].max() < 1


def test_the_gpus_of_the_certificate_are_as_the_text_says():
    text, (t4, h100) = text_of("predict-slow"), map(device, ("T4", "H100"))
    assert f"A T4 has {t4.sms}, an H100 {h100.sms}" in text
    assert "eight times the arithmetic of a T4" in text
    faster = (h100.sms * h100.clock / h100.fma) / (t4.sms * t4.clock / t4.fma)
    assert faster == pytest.approx(8, abs=1)
    record = json.loads((CHECKOUT / "benchmarks" / "epoch-modelled.json").read_text(encoding="utf-8"))
    assert record["results"][0]["batch_size"] == 64
    step = record["results"][0]["gpus"]["T4"]["graph"]
    least, found, most = (f"{step[key] / 1000:.1f}" for key in ("low", "microseconds", "high"))
    assert f"about {found} ms for the same step on a T4 (modelled, {least} to {most})" in text


# --- the updates -------------------------------------------------------------------------------------------


def test_the_updates_in_the_cells_are_the_packages(rng):
    sgd, momentum = (defined_in_cell(STEM, f"{name}-step", f"{name}_step") for name in ("sgd", "momentum"))
    p, g, v = rng.normal(size=(3, 11))
    expected, velocity = p.copy(), v.copy()
    np.testing.assert_allclose(sgd(p, g, 0.3), reference.sgd_update(expected.copy(), g, None, 0.3))
    ours = momentum(p, g, v, 0.3, 0.8)
    reference.sgd_update(expected, g, velocity, 0.3, momentum=0.8)
    np.testing.assert_allclose(ours, (expected, velocity))


def test_storing_corrected_means_shrinks_the_steps_to_nothing():
    m = v = 0.0
    for step in range(1, 11):
        m = (0.9 * m + 0.1) / (1 - 0.9**step)
        v = (0.999 * v + 0.001) / (1 - 0.999**step)
    assert v > 1e20
    assert m / np.sqrt(v) < 1e-6  # where a gradient of 1 each time should give a step of 1


def test_the_exercises_ask_for_the_updates_of_the_package(rng):
    p, g, m, v = rng.uniform(0.1, 1, (4, 7))
    expected = p.copy(), m.copy(), v.copy()
    reference.adam_update(expected[0], g, *expected[1:], step=3, lr=0.1, beta1=0.7, beta2=0.8, eps=0.1)
    ours = check.adam_step.reference(p, g, m, v, 3, lr=0.1, beta1=0.7, beta2=0.8, eps=0.1)
    np.testing.assert_allclose(ours, expected)
    parameters, velocity = p.copy(), v.copy()
    reference.sgd_update(parameters, g, velocity, 0.1, momentum=0.9)
    np.testing.assert_allclose(check.momentum_kernel.reference(p, g, v, 0.1, 0.9), (parameters, velocity))


def test_the_layers_of_the_notebook_match_mnist_cnn():
    layers = defined_in_cell(STEM, "wrong-size", "layers")
    assert [repr(layer) for layer in layers(1600)] == [repr(layer) for layer in models.mnist_cnn(1).layers]


def receptive_fields(stack):
    """Return what the cell of the notebook computes for a stack of layers."""
    (cell,) = (
        c
        for c in notebooks.read(CHECKOUT / "notebooks" / f"{STEM}.ipynb").cells
        if c.id == "receptive-picture"
    )
    assert "stack, names = [(3, 1), (2, 2), (3, 1), (2, 2)]" in cell.source
    namespace = {"stack": stack}
    exec("\n".join(cell.source.splitlines()[1:-1]), namespace)
    return namespace["sizes"]


def test_the_receptive_field_holds_the_pixels_that_change_the_output():
    """Light one column after the other: an output depends on as many as the formula says."""
    layers = [models.Conv2d(1, 1, 3), models.MaxPool2d(2), models.Conv2d(1, 1, 3, stride=2)]
    net = models.Sequential(layers, (1, 17, 17), batch_size=1)
    for layer in (layers[0], layers[2]):
        layer.weight[:], layer.bias[:] = 1, 0
    images = np.zeros((17, 1, 1, 17, 17), np.float32)
    images[np.arange(17), 0, 0, :, np.arange(17)] = 1
    seen = [net.forward(image)[0, 0, 1, 1] != 0 for image in images]
    assert sum(seen) == receptive_fields([(3, 1), (2, 2), (3, 2)])[-1] == 8


# --- the curve ---------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(rng):
    images = rng.integers(0, 256, (24, 1, 8, 8), dtype=np.uint8)
    labels = rng.integers(0, 10, 24, dtype=np.int32)
    return data.Dataset("tiny", images, labels, images[:6], labels[:6])


def tiny_model():
    layers = [models.Conv2d(1, 2, 3), models.Flatten(), models.Linear(72, 10)]
    return models.Sequential(layers, (1, 8, 8), batch_size=4)


def curve_of(tiny, patience):
    model, shown = tiny_model(), []
    curve = pictures.TrainingCurve(model, tiny.test_images, tiny.test_labels, 12, 3, shown.append)
    curve.PATIENCE = patience
    training.fit(model, tiny, optim.SGD(model, 0.01), epochs=2, progress=False, on_step=curve)
    return curve, shown


@pytest.mark.slow
def test_the_curve_records_every_step_and_measures_at_intervals(tiny):
    curve, shown = curve_of(tiny, patience=0)
    assert len(curve.losses) == 12
    assert [step for step, _ in curve.measured] == [3, 6, 9, 12]
    assert len(shown) == 4
    accuracy = training.evaluate(curve.model, tiny.test_images, tiny.test_labels)[1]
    assert curve.measured[-1][1] == accuracy


def test_the_curve_does_not_spend_the_time_on_drawing(tiny):
    _, shown = curve_of(tiny, patience=1e9)
    assert len(shown) == 1  # the last


def test_measuring_does_not_change_the_training(tiny):
    model = tiny_model()
    training.fit(model, tiny, optim.SGD(model, 0.01), epochs=2, progress=False)
    np.testing.assert_array_equal(curve_of(tiny, patience=1e9)[0].model.parameters, model.parameters)


def test_pictures_replace_each_other(monkeypatch):
    calls = []

    class Handle:
        def update(self, picture):
            calls.append(("update", picture))

    def display(picture, display_id):
        calls.append(("display", picture))
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    show = pictures._Display()
    for picture in (1, 2, 3):
        show(picture)
    assert calls == [("display", 1), ("update", 2), ("update", 3)]


# --- the pictures ------------------------------------------------------------------------------------------


@pytest.fixture
def runs():
    falling = np.linspace(3, 1, 20)
    lost = np.where(np.arange(20) < 5, 3.0, np.nan)
    return {("SGD", 0.1): falling, ("SGD", 0.01): falling + 0.5, ("SGD", 1.0): lost, ("Adam", 0.1): falling}


def test_the_explorer_gives_the_final_loss(runs):
    ends = [pictures.rate_picture(runs, "SGD", rate).caption for rate in (0.01, 1.0)]
    assert ends == [
        "SGD, learning rate 0.01: the loss ends at 1.97.",
        "SGD, learning rate 1: the loss diverges.",
    ]


@pytest.fixture
def figures(monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures.plots, "picture", lambda fig, *_: drawn.append(fig))
    return drawn


def test_optimisers_are_distinguishable_without_colour(figures):
    losses = np.linspace(2, 1, 20)
    pictures.race_picture({name: losses for name in ("SGD", "momentum", "Adam")})
    pictures.rates_picture({(name, 0.1): losses for name in ("SGD", "momentum", "Adam")})
    race, rates = (figure.axes[0] for figure in figures)
    assert len({line.get_linestyle() for line in race.lines}) == 3
    lines = [line for line in rates.lines if line.get_marker() != "x"]
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == 3


def test_lost_runs_are_crosses(runs, figures):
    pictures.rates_picture(runs)
    (ax,) = figures[0].axes
    crosses = [line.get_xdata().tolist() for line in ax.lines if line.get_marker() == "x"]
    assert crosses == [[1.0], []]


def test_the_worst_mistakes_come_first(figures):
    chances = np.full((4, 10), 0.01)
    chances[[0, 1, 2, 3], [5, 6, 7, 8]] = [0.91, 0.5, 0.7, 0.91]
    labels = np.array([5, 0, 1, 2])
    pictures.mistakes_picture(np.zeros((4, 1, 3, 3)), labels, chances, count=4)
    titles = [ax.get_title() for ax in figures[0].axes]
    assert titles == ["2, says 8\n91% sure", "1, says 7\n70% sure", "0, says 6\n50% sure", ""]


def test_right_answers_are_not_coloured(figures):
    matrix = np.diag(np.full(10, 900))
    matrix[4, 9] = 5
    pictures.confusion_picture(matrix)
    (ax,) = figures[0].axes
    shown = ax.images[0].get_array()
    assert np.isnan(np.diag(shown.filled(np.nan))).all()
    assert ax.images[0].norm.vmax == shown[4, 9] == 5
    assert sorted(text.get_text() for text in ax.texts) == ["5", *["900"] * 10]


def test_the_busiest_maps_are_drawn(figures):
    maps = np.zeros((3, 2, 2))
    maps[1, 0, 0], maps[2, 0, 0] = 5, 1
    pictures.feature_maps_picture(np.zeros((4, 4)), [maps], ["conv1"], count=2)
    peaks = [float(ax.images[0].get_array().max()) for ax in figures[0].axes if ax.images]
    assert peaks == [5, 1]


# --- the pad -----------------------------------------------------------------------------------------------


@pytest.fixture
def pad():
    """Return a pad whose network answers 7 for every digit and keeps its inputs."""
    given = []

    def read(digit):
        given.append(digit)
        return np.eye(10)[7]

    pad = DigitPad(read)
    pad.given = given
    return pad


def png(picture):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="PNG")
    return file.getvalue()


def test_drawings_are_prepared_and_recognised(pad):
    pad.drawing = example_drawing().tobytes()
    (digit,) = pad.given
    assert (digit.shape, digit.dtype) == ((1, 28, 28), np.uint8)
    assert pad.seen == digit.tobytes()
    assert pad.chances == np.eye(10)[7].tolist()
    assert pad.message == "This is a 7."


def test_a_cleared_pad_has_no_answer(pad):
    pad.drawing = example_drawing().tobytes()
    pad.drawing = bytes(SIZE * SIZE)
    assert (pad.seen, pad.chances, pad.message) == (b"", [], "Draw a digit.")
    assert len(pad.given) == 1


def test_a_picture_file_is_read_as_often_as_it_is_opened(pad):
    picture = png(255 - example_drawing())
    for _ in range(2):
        pad.upload = picture
        assert pad.message == "This is a 7."
        pad.drawing = bytes(SIZE * SIZE)
        assert pad.message == "Draw a digit."
    np.testing.assert_array_equal(*pad.given)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"no picture", ": the file is no picture"), (png(np.zeros((9, 9), np.uint8)), "blank")],
    ids=["text", "blank"],
)
def test_a_file_without_a_digit_gives_a_message(pad, content, words):
    pad.upload = content
    assert pad.message.startswith("No digit could be read: ")
    assert words in pad.message
    assert (pad.chances, pad.given) == ([], [])


def test_the_browser_sends_buffers(pad):
    """What comes over the wire is a memoryview."""
    buffer = memoryview(example_drawing().tobytes())
    pad.set_state({"drawing": buffer})
    assert pad.drawing == bytes(buffer)
    assert pad.message == "This is a 7."


def test_without_a_widget_there_is_a_picture(pad):
    bundle, _ = pad._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "<figcaption" in bundle["text/html"]
    assert bundle["text/plain"].startswith("Figure. ")


def test_python_and_the_browser_agree_on_the_size(pad):
    assert f"const SIZE = {SIZE};" in str(pad._esm)


@pytest.mark.parametrize(("digit", "says"), [(8, "This is an 8."), (3, "This is a 3.")])
def test_the_pad_knows_its_articles(digit, says):
    pad = DigitPad(lambda image: np.eye(10)[digit])
    pad.drawing = example_drawing().tobytes()
    assert pad.message == says


def test_a_shift_fills_in_as_much_as_the_text_says():
    (text,) = (
        cell.source
        for cell in notebooks.read(CHECKOUT / "notebooks" / f"{STEM}.ipynb").cells
        if "With `np.roll`" in cell.source
    )
    images = data.load("mnist").test_images[:2000, 0]
    touched = {shift: images[:, :, -shift:].any(axis=(1, 2)).mean() for shift in (4, 6)}
    assert touched[4] == pytest.approx(1 / 7, abs=0.02)
    assert touched[6] == pytest.approx(2 / 5, abs=0.02)
    assert "one digit in seven at 4 pixels, and to two in five at 6" in text
