"""Notebook 21: the record of each improvement, the included network, and pictures."""

import dataclasses
import inspect
import json
import math
from pathlib import Path

import numpy as np
import pytest

from cnn_course.chapters.colour_images import improvements, pictures, transfer
from cnn_course.chapters.colour_images.exercises.crop_and_flip_kernel import crop_and_flip
from cnn_course.chapters.colour_images.exercises.decayed_step_kernel import decayed_step
from cnn_course.chapters.colour_images.exercises.folded_convolution_kernel import folded_convolution
from cnn_course.chapters.colour_images.exercises.new_last_layer import new_last_layer, your_new_last_layer
from cnn_course.engine import notebooks
from cnn_course.engine.checks.exercise import Wrong
from cnn_numba.beyond.models import cifar_convnet_bn
from cnn_numba.beyond.norm.reference import batch_norm2d_forward
from cnn_numba.data import cifar, image_shape, load
from cnn_numba.nn.models import cifar_convnet
from cnn_numba.ops.conv.reference import conv2d_forward
from cnn_numba.ops.gather.reference import _places, gather_augmented
from cnn_numba.ops.update.reference import sgd_update

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "21_colour_images.ipynb"


def said(cell_id):
    (cell,) = (cell for cell in notebooks.read(NOTEBOOK).cells if cell.id == cell_id)
    return cell.source


# --- what the text says of the record ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def results():
    return {result["title"]: result for result in improvements.recorded()["results"]}


def test_the_record_is_of_the_recipes(results):
    assert list(results) == [step.title for step in improvements.STEPS]
    for step, result in zip(improvements.STEPS, results.values(), strict=True):
        assert step._asdict() == {name: result[name] for name in step._fields}
        assert len(result["histories"]) == step.seeds
        assert all(len(history) == improvements.EPOCHS for history in result["histories"])


def test_the_command_writes_such_a_record(tmp_path, monkeypatch):
    data = load("made-pictures")
    parts = {name: getattr(data, name)[:64] for name in ("train_images", "train_labels")}
    parts |= {name: getattr(data, name)[:10] for name in ("test_images", "test_labels")}
    monkeypatch.setattr(improvements, "load", lambda name, log: dataclasses.replace(data, **parts))
    steps = improvements.STEPS[0], improvements.STEPS[-1]._replace(seeds=2)
    record = improvements.measure(tmp_path / "record.json", epochs=1, steps=steps)
    assert json.loads((tmp_path / "record.json").read_text()) == record
    assert [len(result["histories"]) for result in record["results"]] == [1, 2]
    assert record["results"][1]["augment"] == "crop-flip"


def test_the_large_steps_are_as_large_as_the_text_says(results):
    linear, article, cycle, third, norm, *small = map(improvements.accuracy, results.values())
    assert 0.1 < linear < 0.2 < article < 0.3
    assert cycle > 2 * article
    assert third > cycle + 0.05
    assert norm > third + 0.1
    assert min(small) > norm - 0.01


def test_without_augmentation_the_training_images_are_memorised(results):
    plain, moved = results["weight decay"], results["random crops and flips"]
    assert improvements.accuracy(plain, "train_accuracy") > 0.999
    assert improvements.accuracy(moved, "train_accuracy") < improvements.accuracy(moved) + 0.02


def test_most_parameters_are_in_the_dense_layer():
    dense = next(layer for layer in cifar_convnet(1).layers if layer.name == "linear1")
    size = dense.weight.size + dense.bias.size
    assert f"{size / cifar_convnet(1).parameters.size:.1%}" == "98.8%"
    assert cifar_convnet_bn(1).parameters.size == 114_186
    convolutions = [layer for layer in cifar_convnet(1).layers if layer.kind == "conv"]
    assert sum(layer.weight.size + layer.bias.size for layer in convolutions) == 19_392


def test_the_included_network_is_trained():
    data, net = load("made-pictures"), improvements.trained_network()
    assert net.input_shape == image_shape("made-pictures")
    x = (data.test_images[:192] / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
    answers = np.concatenate([net.predict(part).argmax(axis=1) for part in np.split(x, 3)])
    assert (answers == data.test_labels[:192]).mean() > 0.9
    assert all(layer.weight.min() > 0 for layer in net.layers if layer.kind == "batch_norm")


def test_the_one_cell_that_differs_is_marked():
    assert said("data").startswith("FOLDER = None")
    assert 'load("cifar10", data_dir=FOLDER) if FOLDER else load("made-pictures")' in said("data")


@pytest.mark.exhaustive("tests/data/test_data.py: the files are read; each cell with the made pictures")
@pytest.mark.slow
def test_every_cell_runs_on_files_like_those_of_cifar10(tmp_path):
    """Files of the binary version, of the right names and sizes, with made pictures in them."""
    pictured = load("made-pictures")
    rows = np.concatenate([pictured.train_labels[:, None], pictured.train_images.reshape(10_000, -1)], axis=1)
    for name in cifar.BATCHES:
        (tmp_path / f"{name}.bin").write_bytes(rows.astype(np.uint8).tobytes())
    notebook = notebooks.read(NOTEBOOK)
    (cell,) = (cell for cell in notebook.cells if cell.id == "data")
    cell.source = cell.source.replace("FOLDER = None", f"FOLDER = {str(tmp_path)!r}")
    notebooks.execute(notebook, NOTEBOOK.parent)
    assert "(50000, 3, 32, 32) uint8 to train with" in cell.outputs[0].text
    assert "airplane" in cell.outputs[0].text or "aeroplane" in cell.outputs[0].text


def test_the_filters_that_changed_most_are_shown():
    before = cifar_convnet_bn(1).layers[0].weight.reshape(32, -1)
    after = improvements.trained_network(1).layers[0].weight.reshape(32, -1)
    sizes = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    cosines = np.sort((before * after).sum(axis=1) / sizes)
    assert cosines[7] < 0.75  # shown: turned by 40 degrees and more
    assert np.median(cosines) > 0.85  # "most of them hardly changed"


# --- another task ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shares():
    """Return for each task the mean shares of the three methods over the sizes, and those of each seed."""
    record = transfer.recorded()
    assert (tuple(record["sizes"]), tuple(record["ways"])) == (transfer.SIZES, transfer.WAYS)
    return {name: np.array(list(found.values())) for name, found in record["results"].items()}


def test_transfer_helps_a_near_task(shares):
    last, trained, scratch = shares["other kinds"].mean(axis=2)
    assert (round(100 * scratch[2]), round(100 * trained[2])) == (28, 54)
    assert (abs(last - trained)[:3] < 0.02).all()
    assert trained[3] > last[3] + 0.03


def test_transfer_helps_a_far_task_little(shares):
    last, trained, scratch = shares["digits"].mean(axis=2)
    assert (last < scratch).all()
    assert 0.04 < trained[1] - scratch[1] < 0.06
    assert (shares["digits"][1, 1:] > shares["digits"][2, 1:] - 0.001).all()  # with each seed
    assert (0.01 < (trained - scratch)[2:]).all()
    assert ((trained - scratch)[2:] < 0.02).all()
    assert abs(trained[0] - scratch[0]) < 0.01


def test_the_command_writes_such_a_record_of_both_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "source_of_some_kinds", lambda _: improvements.trained_network())
    monkeypatch.setattr(transfer, "UNSEEN", 20)
    record = transfer.measure(tmp_path / "transfer.json", sizes=(20,), seeds=1, steps=2)
    assert json.loads((tmp_path / "transfer.json").read_text())["results"] == record["results"]
    assert list(record["results"]) == ["other kinds", "digits"]
    assert all(0 <= share <= 1 for found in record["results"].values() for ((share,),) in found.values())


def test_the_time_of_an_epoch_of_photographs():
    record = json.loads((NOTEBOOK.parents[1] / "benchmarks" / "epoch-cifar_convnet_bn.json").read_text())
    (result,) = record["results"]
    assert (record["images"], record["machine"]["threads"]) == (2000, 1)
    assert f"2000 images in {result['medians']['ours']:.2f} seconds" in said("photographs-text")
    epoch = 25 * result["medians"]["ours"]
    assert f"about {epoch:.0f} seconds there, and thirty epochs {30 * epoch / 60:.0f} minutes" in said(
        "photographs-text"
    )


# --- the exercises mean what the package computes ----------------------------------------------------------


def test_the_step_is_the_package_s(rng):
    p, g, v = rng.normal(size=(3, 7))
    expected = decayed_step(p, g, v, 0.25, 0.875, 0.375)
    sgd_update(p, g, v, 0.25, 0.875, 0.375)
    np.testing.assert_allclose([p, v], expected)


def test_cut_and_mirrored_is_the_package_s(rng):
    images = rng.integers(0, 256, (5, 3, 6, 4), dtype=np.uint8)
    indices = np.array([3, 0, 4])
    places = np.array([_places(int(index), 2, 9, 1) for index in indices])
    expected = gather_augmented(images, indices, 0.0, 1.0, 2, True, 9, 1)
    np.testing.assert_allclose(crop_and_flip(images, indices, places, 2), expected)


def test_a_folded_convolution_is_convolution_and_normalisation(rng):
    x, weight = rng.normal(size=(2, 3, 5, 5)), rng.normal(size=(4, 3, 3, 3))
    bias, gamma, beta, mean = rng.normal(size=(4, 4))
    variance = rng.uniform(0.5, 2, 4)
    statistics = mean.copy(), variance.copy()
    plain = conv2d_forward(x, weight, bias)
    expected, _, _ = batch_norm2d_forward(plain, gamma, beta, *statistics, training=False, eps=0.25)
    parts = weight.reshape(4, -1), bias, gamma, beta, mean, variance, 0.25
    folded, folded_bias = folded_convolution(*parts)
    np.testing.assert_allclose(conv2d_forward(x, folded.reshape(weight.shape), folded_bias), expected)


# --- pictures ----------------------------------------------------------------------------------------------


def test_picture_descriptions_match_the_data():
    assert "handwritten digits, a new last layer: 46%" in pictures.transfer_picture().alt
    assert "linear classifier" in pictures.improvements_picture().alt
    assert "without augmentation the training images end at 100.0%" in pictures.overfitting_picture().alt
    images, labels = np.zeros((4, 3, 8, 8), np.uint8), np.array([0, 1, 1, 0])
    chances = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    alt = pictures.mistakes_picture(images, labels, chances, ("owl", "elk"), count=4).alt
    assert alt.startswith("2 test images that the network classifies wrongly with high confidence: ")
    assert "elk, says owl; owl, says elk" in alt
    assert (
        "owl taken for elk 50%"
        in pictures.confusion_picture(labels, chances.argmax(axis=1), ("owl", "elk")).alt
    )


# --- the new last layer ------------------------------------------------------------------------------------


def test_ours_is_the_solution():
    ours = inspect.getsource(your_new_last_layer.__globals__["_ours"])
    solution = said("new-last-layer-solution").split("```")[1].removeprefix("python\n")
    assert ours.replace("def _ours", "def new_last_layer") == solution


def test_how_many_multiplications_freezing_saves():
    net = cifar_convnet_bn(1)
    weighted = [layer for layer in net.layers if layer.kind in ("conv", "linear")]
    places = [math.prod(layer.out.shape[2:]) for layer in weighted]  # 1 of the dense layer
    products = [layer.weight.size * count for layer, count in zip(weighted, places, strict=True)]
    assert f"{sum(products) / 1e6:.1f} million times" in said("predict-frozen")
    assert f"only {products[-1]:,} of these" in said("predict-frozen")
    everything = 200 * 100 * 3 * sum(products)
    frozen = 100 * sum(products[:-1]) + 200 * 100 * 3 * products[-1]
    assert f"{everything / 1e9:.0f}"[:2] == "62"
    assert f"together {frozen / 1e9:.1f} billion" in said("predict-frozen")
    assert f"About {round(everything / frozen, -1):.0f} times" in said("predict-frozen")


def test_layers_that_run_together_are_counted_one_by_one():
    with pytest.raises(Wrong, match="`conv1` runs 2 times"):
        new_last_layer.properties[0](lambda net, w, b, loss, x, *_: [net.forward(x), net.forward(x)])
    with pytest.raises(Wrong, match=r"`conv1\.backward` computes"):
        new_last_layer.properties[0](lambda net, w, b, loss, x, *_: net.backward(net.forward(x)))
