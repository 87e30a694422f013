"""Notebook 26: its text and the stored outputs, the readers of programs, folding and rounding."""

import re
from pathlib import Path

import numpy as np
import pytest

from cnn_course.chapters.frameworks_and_engines import exercises as check, frameworks, pictures
from cnn_course.engine import notebooks
from cnn_numba import extras
from cnn_numba.beyond.norm.layers import BatchNorm2d
from cnn_numba.nn.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential, mnist_cnn
from cnn_numba.pretrained import MNIST_CNN
from cnn_numba.train.checkpoint import load_model

FOLDER = Path(__file__).parents[3] / "notebooks"
CELLS = {cell.id: cell for cell in notebooks.read(FOLDER / "26_frameworks_and_engines.ipynb").cells}


def shown(cell_id):
    return "\n".join(output.get("text") or output.data["text/plain"] for output in CELLS[cell_id].outputs)


# --- what the text says of the stored outputs --------------------------------------------------------------


@pytest.mark.parametrize("cell_id", ["pytorch", "keras-step", "jax-step"])
def test_every_framework_computes_our_step(cell_id):
    assert shown(cell_id).count("the same") == 9
    assert "NOT" not in shown(cell_id)
    assert re.search(r"loss \S+", shown(cell_id))[0] == re.search(r"loss \d\.\d+", shown("step"))[0]


def test_a_wrong_order_of_features_is_silent():
    assert "an error?            no\nthe same logits?     no" in shown("keras-wrong")


def test_three_of_five_convolutions_are_backward():
    assert shown("jaxpr").endswith("convolutions: 5\n")


def test_xla_fuses_and_moves_more():
    text = shown("traffic-picture")
    assert "the same gradients: True" in text
    found = re.findall(r"(\d+) MB in (\d+) kernels \((.*?)\)", text)
    (written, operations, _), (compiled, kernels, parts), (other, fewer, reshaped) = found
    assert int(operations) > 100 > 80 > int(kernels) > int(fewer)
    assert (int(written), int(compiled)) == (98, 212)  # the text has both
    assert 0.6 < int(other) / int(compiled) < 0.72  # "a third of all bytes"
    pooling, single, sums, copies = (
        [int(re.search(rf"{kind} (\d+)", each)[1]) for each in (found[0][2], parts, reshaped)]
        for kind in ("pooling", "element by element", "sums", "copies")
    )
    assert pooling[1] > pooling[0] > pooling[2] == 0
    assert single[1] < single[0] < single[2]
    assert sums[2] > sums[1]
    assert copies[1] > copies[0]


def test_the_figures_of_notebook_15():
    (cell,) = (
        c for c in notebooks.read(FOLDER / "15_launches_and_graphs.ipynb").cells if c.id == "list-real"
    )
    in_all = re.search(r"in all +(\d+) .* ([\d.]+) MB\n", cell.outputs[1].data["text/plain"])
    assert (in_all[1], round(float(in_all[2]))) == ("10", 26)
    assert "counted 26 MB as the least that its 10 launches touch" in CELLS["traffic-after"].source
    assert "notebook 15 counted 10, fused by hand" in CELLS["jaxpr-after"].source


def test_the_engine_gives_our_answers():
    assert "the same answer: 10,000\nright: 99.16%\nlogits differ by less than 1e-3: True" in shown(
        "all-digits"
    )


def test_the_engine_folds_batch_norm_and_fuses_relu():
    ours, optimised, *pairs = re.findall(
        r"(?:ours|optimised|conv, ReLU|with a norm): (.*?)[;.\]]", shown("optimised")
    )
    assert "Add" in ours
    assert "Add" not in optimised
    assert "Relu" not in optimised
    assert pairs == ["Conv, Relu", "FusedConv", "Conv, BatchNorm, Relu", "FusedConv"]
    assert "3 Conv, 3 BatchNormalization" in shown("optimised")
    assert "negative scales: [0, 0, 0]\nthe same but for rounding: True" in shown("through")


def test_few_bits_are_enough():
    exact, *right = (float(share) for share in re.findall(r"([\d.]+)% right", shown("bits")))
    of_8, of_6, of_4, of_3, of_2 = right
    assert abs(of_8 - exact) <= 0.1
    assert abs(of_6 - exact) <= 0.2
    assert 0.3 <= exact - of_4 <= 1  # "about one digit in 150"
    assert of_4 > of_3 > 50 > of_2
    before, after = re.search(r"([\d,]+) bytes -> ([\d,]+)", shown("int8")).groups()
    assert 3.7 < int(before.replace(",", "")) / int(after.replace(",", "")) < 4
    assert int(re.search(r"changed: (\d+)", shown("int8"))[1]) < 20
    errors = [
        float(error) for error in re.findall(r"error (\S+?)[;.]", shown("calibrate").replace("e-0", "e-"))
    ]
    assert errors[1] > 1.5 * errors[0]


def test_the_cost_is_the_arithmetic_of_the_text():
    seconds, joules = re.search(r"(\d+) s, about (\d+) J", shown("cost")).groups()
    exact = 3 * frameworks.measured_epoch(64)
    assert int(seconds) == round(exact)
    assert int(joules) == round(exact * 400 * 2 / 96 * 1.55)
    assert round(700 / (400 * 2 / 96)) == 84  # "84 times"
    after = next(cell.source for cell in CELLS.values() if "keep a lamp of" in cell.source)
    found, watts, lamp_seconds = map(
        int, re.match(r"(\d+) J keep a lamp of (\d+) W on for some (\d+)", after).groups()
    )
    assert found == int(joules)
    assert abs(watts * lamp_seconds - found) <= watts


# --- packages, comparisons, layouts ------------------------------------------------------------------------


def test_a_missing_package_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "jax" else object())
    assert frameworks.load_packages("json", "jax")[1] is None
    message = f"jax is not installed, so its cells do nothing: {extras.install('roads')}\n"
    assert capsys.readouterr().out == message


def test_a_package_that_fails_to_import_is_one_line(monkeypatch, capsys, tmp_path):
    (tmp_path / "without_backend.py").write_text("import no_such_backend")
    monkeypatch.syspath_prepend(tmp_path)
    assert frameworks.load_packages("without_backend") == [None]
    message = (
        "without_backend cannot be imported (No module named 'no_such_backend'), so its cells do nothing\n"
    )
    assert capsys.readouterr().out == message


def test_the_notebook_runs_to_its_end_without_the_other_packages(monkeypatch, capsys):
    names = ("torch", "jax", "keras", "onnx", "onnxruntime")
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in names else object())
    monkeypatch.chdir(FOLDER)
    namespace = {}
    for cell in CELLS.values():
        if cell.cell_type == "code" and cell.id != "colab":
            exec(compile(cell.source, cell.id, "exec"), namespace)
    output = capsys.readouterr().out
    assert [f"{name} is not installed, so its cells do nothing" in output for name in names] == 5 * [True]
    assert "negative scales: [0, 0, 0]" in output
    assert "three epochs on two cores" in output


def test_differences_are_printed(capsys):
    ours = {"a": np.ones((2, 2)), "b": np.ones(3)}
    theirs = {"a": np.ones((2, 2)), "b": np.array([1, 1, 1.0001])}
    frameworks.compare(ours, theirs)
    assert [line.split()[-3:] for line in capsys.readouterr().out.splitlines()] == [
        ["2)", "the", "same"],
        ["NOT", "the", "same"],
    ]
    assert not frameworks.agree(ours, theirs)
    assert not frameworks.agree(ours, {"a": np.ones((2, 1)), "b": np.ones(3)})
    assert not frameworks.agree(ours, {"a": np.full((2, 2), np.nan), "b": np.ones(3)})


def test_layouts_go_there_and_back():
    ours = frameworks.parameters_of(mnist_cnn(batch_size=1))
    turned = frameworks.to_keras(ours, (64, 5, 5))
    convert = check.for_keras.reference
    np.testing.assert_array_equal(
        turned[2], convert(ours["conv2.weight"], ours["linear1.weight"], (64, 5, 5))[0]
    )
    np.testing.assert_array_equal(
        turned[4], convert(ours["conv2.weight"], ours["linear1.weight"], (64, 5, 5))[1]
    )
    assert [array.shape for array in turned[::2]] == [(3, 3, 1, 32), (3, 3, 32, 64), (1600, 128), (128, 10)]
    back = frameworks.from_keras(turned, ours, (64, 5, 5))
    assert all(np.array_equal(back[name], array) for name, array in ours.items())


# --- programs ----------------------------------------------------------------------------------------------

PROGRAM = """HloModule step, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%fused (p: f32[4,8]) -> f32[4,8] {
  %p = f32[4,8]{1,0} parameter(0)
  %e = f32[4,8]{1,0} exponential(%p)
  ROOT %m = f32[4,8]{1,0} multiply(%e, %p)
}

ENTRY %main (x: f32[4,8], i: s8[3]) -> (f32[4], s8[3]) {
  %x = f32[4,8]{1,0} parameter(0)
  %i = s8[3]{0} parameter(1)
  %zero = f32[] constant(0)
  %f = f32[4,8]{1,0} fusion(%x), kind=kLoop, calls=%fused
  %r = f32[4]{0} reduce(%f, %zero), dimensions={1}, to_apply=%sum
  %t = s8[3]{0} copy(%i)
  ROOT %out = (f32[4], s8[3]) tuple(%r, %t)
}
"""


def test_an_hlo_program_is_read():
    fusion, total, copied = frameworks.kernels_of(PROGRAM)
    assert fusion == ("f", ("exponential", "multiply"), 2 * 4 * 8 * 4)
    assert total == ("r", ("reduce",), 4 * 8 * 4 + 4 + 4 * 4)
    assert copied == ("t", ("copy",), 6)
    assert [each.kind for each in (fusion, total, copied)] == ["element by element", "sums", "copies"]


def test_our_count_matches_xla():
    ours, own = map(
        float,
        re.search(r"compiled: (\S+) MB; by XLA's own count (\S+) MB", shown("traffic-picture")).groups(),
    )
    assert ours == pytest.approx(own, rel=0.01)


def test_the_exercise_and_the_reader_count_alike():
    kernels = [[("e", ("x",)), ("f", ("e", "x"))], [("r", ("f", "zero"))], [("t", ("i",))]]
    sizes = {"x": 128, "e": 128, "f": 128, "zero": 4, "r": 16, "i": 3, "t": 3}
    ours = check.traffic.reference(kernels, sizes, ("r", "t"))
    assert ours == sum(kernel.bytes for kernel in frameworks.kernels_of(PROGRAM))


# --- inference ---------------------------------------------------------------------------------------------


def normalised(rng, *between, scale=1.0):
    """Return a network with a batch norm and arbitrary statistics."""
    layers = [Conv2d(2, 3, 3), *between, BatchNorm2d(3), ReLU(), Flatten()]
    model = Sequential(layers, (2, 6, 6), batch_size=2)
    model.parameters[:] = rng.uniform(0.2, 1, model.parameters.size)
    model.layers[-3].weight[0] *= scale
    model.buffers[:] = rng.uniform(0.5, 2, model.buffers.size)
    return model


@pytest.mark.parametrize(("between", "scale"), [([], -1.0), ([MaxPool2d(2)], 1.0)])
def test_a_folded_network_computes_the_same(rng, between, scale):
    model = normalised(rng, *between, scale=scale)
    plain = frameworks.folded(model)
    x = rng.standard_normal((2, 2, 6, 6), dtype=np.float32)
    assert "batch_norm" not in {layer.kind for layer in plain.layers}
    np.testing.assert_allclose(plain.forward(x), model.forward(x), rtol=1e-4, atol=1e-5)


def test_layers_that_cannot_be_folded_raise(rng):
    with pytest.raises(ValueError, match="batch_norm1 cannot be folded: before it is MaxPool2d"):
        frameworks.folded(normalised(rng, MaxPool2d(2), scale=-1.0))


def test_a_rounded_dense_layer_equals_integer_arithmetic(rng):
    model = Sequential([Flatten(), Linear(12, 5)], (1, 3, 4), batch_size=3)
    kept = model.parameters.copy()
    x = rng.standard_normal((3, 1, 3, 4), dtype=np.float32)
    found = frameworks.rounded_logits(model, [x], {"linear1": 1.5}, 8)
    linear = model.layers[1]
    whole = check.int8_dense.reference(x.reshape(3, 12), linear.weight, linear.bias, 1.5 / 127)
    np.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model.parameters, kept)


def test_batches_of_a_session_add_up(rng):
    pytest.importorskip("onnxruntime")
    from cnn_numba.beyond.onnx import to_onnx

    network = load_model(MNIST_CNN, batch_size=7)
    x = rng.standard_normal((7, 1, 28, 28), dtype=np.float32)
    proto = to_onnx(network)
    np.testing.assert_allclose(
        frameworks.logits_of(frameworks.session(proto), x, batch=3), network.forward(x), rtol=1e-3, atol=1e-4
    )
    assert [node.op_type for node in frameworks.optimised(proto).graph.node][-2:] == ["FusedGemm", "Gemm"]
    assert "Flatten, FusedGemm, Gemm" in pictures.graphs_picture([("it", frameworks.optimised(proto))]).alt
