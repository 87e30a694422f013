"""The network of the reader's kernels: all, none or some of them; wrong ones are found before training."""

import dataclasses
import json
import os
import signal

import numpy as np
import pytest
from solutions import run, solution_of

from cnn_course.chapters.mnist_cnn import pictures as training, recorded
from cnn_course.chapters.mnist_cnn.network import OwnNetwork, _fingerprint
from cnn_course.chapters.mnist_cnn.own_backend import PARTS, own_backend
from cnn_course.engine import history
from cnn_course.engine.history import Step
from cnn_course.engine.standalone import standalone
from cnn_numba import data, device
from cnn_numba.nn.models import mnist_cnn
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import SGD, Adam
from gpuless import frontends

pytestmark = pytest.mark.gpu

# Wrong by little, or only beyond a check's small arrays; either of two kernels may be the cause.
SUBTLE = {
    "conv2d_kernel": ("for ic in range(x.shape[1])", "for ic in range(min(x.shape[1], 31))"),
    "conv2d_backward_input_kernel": (
        "for oc in range(grad_output.shape[1])",
        "for oc in range(min(grad_output.shape[1], 63))",
    ),
    "conv2d_backward_weight_kernel": (
        "for n in range(x.shape[0])",
        "for n in range(min(x.shape[0], 15))",
    ),
    "bias_gradient_kernel": (
        "grad_output.shape[0] * positions",
        "min(grad_output.shape[0] * positions, 8192)",
    ),
    "max_pool_kernel": (
        "argmax[plane, oh, ow] = where",
        "argmax[plane, oh, ow] = where if plane < 600 else 0",
    ),
    "max_pool_backward_kernel": ("if i < grad_output.size", "if i < grad_output.size and i < 80000"),
    "dense_kernel": ("for k in range(x.shape[1])", "for k in range(min(x.shape[1], 1024))"),
    "dense_backward_input_kernel": (
        "for o in range(weight.shape[0])",
        "for o in range(min(weight.shape[0], 127))",
    ),
    "dense_backward_weight_kernel": (
        "for n in range(x.shape[0])",
        "for n in range(min(x.shape[0], 15))",
    ),
    "relu_stride_kernel": ("x[i] <= float32(0)", "x[i] <= float32(0.05)"),
    "relu_backward_kernel": ("out[i] > float32(0)", "out[i] > float32(0.05)"),
    "cross_entropy_kernel": ("float32(logits.shape[0])", "float32(logits.shape[0] + 1)"),
    "adam_kernel": ("beta2 * v[i]", "beta1 * v[i]"),
}


@pytest.fixture(scope="module")
def solutions():
    return {part.name: solution_of(part.topic, part.name) for part in PARTS}


@pytest.fixture(scope="module")
def digits():
    mnist = data.load("mnist")
    return mnist.train_images[:16], mnist.train_labels[:16]


@pytest.fixture(scope="module")
def few():
    """A data set of two batches of 16 and a smaller one."""
    mnist = data.load("mnist")
    return data.Dataset(
        "few",
        mnist.train_images[:40],
        mnist.train_labels[:40],
        mnist.test_images[:32],
        mnist.test_labels[:32],
    )


STEP = Step("T4", 10_700.0, 9_100.0, 16_000.0, "conv2d_backward_weight_kernel", 0.65)


@pytest.fixture
def modelled():
    """Mark a test that models the time of a step."""


@pytest.fixture(autouse=True)
def given_step(request, monkeypatch):
    """Give certificates a stored step, since modelling one takes long."""
    if "modelled" not in request.fixturenames:
        monkeypatch.setattr(OwnNetwork, "steps", lambda self, dataset: (STEP,))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_WORKBOOK", str(tmp_path))
    return tmp_path


def mixture(solutions):
    return {part.name: solutions[part.name] for part in PARTS[::2]}


CHOICES = {"all": lambda own: own, "none": lambda own: {}, "a mixture": mixture}


@pytest.mark.exhaustive_unless(
    lambda choose: choose is mixture, "a network of the reader's kernels beside the package's"
)
@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_a_network_of_right_kernels_trains_like_the_package(choose, solutions, digits, few):
    network = OwnNetwork(16, choose(solutions))
    check = network.check(*digits)
    assert check.passed, check
    assert f"{len(choose(solutions))} of 14 kernels are yours" in repr(network)
    losses = []
    network.train(few, epochs=2, images=40, on_step=lambda step, loss: losses.append(loss))
    expected, model = [], mnist_cnn(16)
    note = lambda step, loss: expected.append(loss)  # noqa: E731
    fit(model, few, Adam(model, lr=0.003), epochs=2, progress=False, on_step=note)
    np.testing.assert_allclose(losses, expected, rtol=2e-3)
    assert len(losses) == 6
    assert network.history == []  # a short run gets no certificate


def test_momentum_trains_like_the_package(solutions, few):
    models = mnist_cnn(16, own_backend(solutions)), mnist_cnn(16)
    for model in models:
        fit(model, few, SGD(model, lr=0.01, momentum=0.9), epochs=2, progress=False, graph=False)
    np.testing.assert_allclose(
        device.to_host(models[0].parameters),
        models[1].parameters,
        atol=1e-4 * np.abs(models[1].parameters).max(),
    )


@pytest.mark.parametrize("name", ["momentum_kernel", "adam_kernel"])
def test_a_graph_of_own_updates_raises_before_training(name, solutions, few, tmp_path):
    """A graph would repeat the learning rate of the recorded step."""
    model = mnist_cnn(16, own_backend({name: solutions[name]}))
    before = device.to_host(model.parameters)
    with pytest.raises(ValueError, match="graph must be False for a backend with its own updates"):
        fit(model, few, Adam(model, lr=0.003), epochs=1, progress=False, out=tmp_path / "run")
    np.testing.assert_array_equal(device.to_host(model.parameters), before)
    assert not (tmp_path / "run").exists()


def test_own_kernels_without_an_update_train_as_a_graph(solutions, few):
    own = {
        name: kernel for name, kernel in solutions.items() if name not in ("momentum_kernel", "adam_kernel")
    }
    models = [mnist_cnn(16, own_backend(own)) for _ in range(2)]
    for model, graph in zip(models, (True, False), strict=True):
        fit(model, few, Adam(model, lr=0.003), epochs=2, progress=False, graph=graph)
    trained = [device.to_host(model.parameters) for model in models]
    np.testing.assert_array_equal(*trained)


@pytest.mark.exhaustive_unless(
    lambda name: name in ("conv2d_kernel", "max_pool_backward_kernel", "cross_entropy_kernel", "adam_kernel"),
    "the first and the last kernel of a step, one with an index and the loss",
)
@pytest.mark.parametrize("name", SUBTLE)
def test_a_subtly_wrong_kernel_is_named_before_training(name, solutions, digits):
    source, (old, new) = standalone(solutions[name].py_func), SUBTLE[name]
    assert old in source
    namespace = {"__name__": "__main__"}
    run(source.replace(old, new), f"subtle-{name}", namespace)
    check = OwnNetwork(16, solutions | {name: namespace[name]}).check(*digits)
    assert not check.passed
    assert name in check.wrong[0].kernels, check
    assert name in repr(check)


def test_every_kernel_of_the_training_has_a_subtle_mistake_above():
    assert {part.name for part in PARTS} - SUBTLE.keys() == {"momentum_kernel"}


def test_an_unknown_kernel_is_rejected():
    with pytest.raises(ValueError, match="the network has no part relu"):
        OwnNetwork(16, {"relu": None})


# --- training on all images --------------------------------------------------------------------------------


def test_a_stopped_training_resumes_to_the_same_numbers(few, folder, capsys):
    whole = OwnNetwork(16, {})
    whole.train(few, epochs=3, on_step=lambda step, loss: None)
    expected = device.to_host(whole.model.parameters)
    (folder / "training").rename(folder / "elsewhere")

    def stop_at_4(step, loss):
        if step == 4:
            os.kill(os.getpid(), signal.SIGINT)

    stopped, again, seen = OwnNetwork(16, {}), OwnNetwork(16, {}), []
    stopped.train(few, epochs=3, on_step=stop_at_4)
    assert "Stopped, and saved: train again to go on from there." in capsys.readouterr().out
    with pytest.raises(ValueError, match="needs a finished training run on all images"):
        stopped.certificate()
    again.train(few, epochs=3, on_step=lambda step, loss: seen.append(step))
    assert seen == [5, 6, 7, 8, 9]
    np.testing.assert_array_equal(device.to_host(again.model.parameters), expected)


def test_a_resumed_training_continues_its_curve(few, folder, monkeypatch):
    def network():
        own = OwnNetwork(16, {})
        curves = []

        def curve(*arguments):
            curves.append(OwnNetwork._curve(own, *arguments))
            curves[0]._show = lambda picture: None
            return curves[0]

        own._curve = curve
        return own, curves

    (stopped, first), (again, second) = network(), network()
    evaluate = training.evaluate

    def stop(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return evaluate(*arguments)

    monkeypatch.setattr(training, "evaluate", stop)  # at its first measurement
    stopped.train(few, epochs=3)
    monkeypatch.setattr(training, "evaluate", evaluate)
    again.train(few, epochs=3)
    assert len(first[0].losses) == 2
    assert len(second[0].losses) == 9
    assert second[0].losses[:2] == first[0].losses
    assert [step for step, _ in second[0].measured] == [2, 4, 6, 8, 9]


def test_with_another_kernel_the_training_starts_over(few, solutions):
    def stop_at_2(step, loss):
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    seen = []
    OwnNetwork(16, {}).train(few, epochs=1, on_step=stop_at_2)
    own = {"relu_backward_kernel": solutions["relu_backward_kernel"]}
    OwnNetwork(16, own).train(few, epochs=1, on_step=lambda step, loss: seen.append(step))
    assert seen == [1, 2, 3]


def test_a_finished_training_is_not_repeated(few):
    OwnNetwork(16, {}).train(few, epochs=1, on_step=lambda step, loss: None)
    again, seen = OwnNetwork(16, {}), []
    again.train(few, epochs=1, on_step=lambda step, loss: seen.append(step))
    assert (seen, again.certificate().epochs) == ([], 1)
    again.train(few, epochs=2, on_step=lambda step, loss: seen.append(step))
    assert seen == [1, 2, 3, 4, 5, 6]


def test_a_training_without_a_checkpoint_does_not_resume_an_earlier_one(few, solutions, folder):
    """Killed before its first checkpoint, it must not resume from one of other kernels."""
    OwnNetwork(16, {}).train(few, epochs=1, on_step=lambda step, loss: None)
    other = OwnNetwork(16, {"relu_backward_kernel": solutions["relu_backward_kernel"]})
    assert not other._resumes(few, 1, folder / "training")
    assert not other._resumes(few, 1, folder / "training")
    assert (folder / "training" / "earlier-1" / "checkpoint.npz").is_file()


def test_a_change_in_a_used_function_counts_as_a_change_of_the_kernel():
    source = """
from numba import cuda, float32
{limit}

@cuda.jit
def relu_stride_kernel(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = max(x[i], float32(LIMIT))
"""
    prints = set()
    for limit in ("LIMIT = 0", "LIMIT = 1"):
        namespace = {"__name__": "__main__"}
        run(source.format(limit=limit), limit, namespace)
        prints.add(_fingerprint({"relu_stride_kernel": namespace["relu_stride_kernel"]}))
    assert len(prints) == 2


@pytest.mark.exhaustive("capstone/test_step.py: the same step, put together from its parts")
@pytest.mark.skipif(not frontends.installed(), reason="models launches of the emulated GPU")
@pytest.mark.usefixtures("modelled")
def test_a_step_of_the_solutions_takes_the_time_in_the_notebook(solutions):
    noted = recorded.steps()
    assert [step.gpu for step in noted] == ["T4", "A100 SXM", "H100 SXM"]
    (step,) = OwnNetwork(64, solutions).steps(data.load("mnist"), ["T4"])
    found, expected = step._asdict(), noted[0]._asdict()
    assert (found.pop("gpu"), found.pop("slowest")) == (expected.pop("gpu"), expected.pop("slowest"))
    assert found == pytest.approx(expected, rel=0.01)


def test_a_certificate_without_own_kernels_counts_none():
    certificate = dataclasses.replace(
        recorded.certificate(), multiplications=0, kernels=(("ReLU", "relu", False),)
    )
    assert certificate.lines[2] == "0 of 1 kernels are yours"


def test_the_example_of_a_certificate_says_that_it_is_one():
    certificate = recorded.certificate()
    assert repr(certificate).startswith("Example: MNIST, trained from scratch\nreads 99.10% of 10,000 digits")
    assert "14 of 14 kernels are yours: 923.8 billion multiplications, 100% of all" in repr(certificate)
    picture = certificate.picture()
    assert picture.caption.startswith("An example: the network reads 99.10%")


def test_the_certificate_says_who_wrote_what(few, solutions, folder):
    own = {name: solutions[name] for name in ("dense_kernel", "relu_backward_kernel")}
    network = OwnNetwork(16, own)
    network.train(few, epochs=2, on_step=lambda step, loss: None)
    certificate = network.certificate()
    (last,) = network.history[1:]
    assert certificate.accuracy == last["test_accuracy"]
    # Two epochs of 40 images, each 1600 x 128 + 128 x 10 products in the dense layers' forward pass.
    assert certificate.multiplications == 2 * 40 * (1600 * 128 + 128 * 10)
    # Per image: 676 x 9 x 32 twice, 121 x 9 x 32 x 64 and the dense ones three times.
    each = 2 * 676 * 9 * 32 + 3 * (121 * 9 * 32 * 64 + 1600 * 128 + 128 * 10)
    assert certificate.all_multiplications == 2 * 40 * each
    text = (folder / "certificate.txt").read_text()
    assert f"{last['test_accuracy']:.2%}" in text
    assert "of 32 digits that it has never seen" in text
    assert "2 of 14 kernels are yours: 16.5 million multiplications, 3% of all" in text
    assert "a step, modelled: 11 ms on T4 (9.1 to 16)" in text
    assert (
        "T4        11 ms modelled, 9.1 to 16; 65% of the GPU's time in conv2d_backward_weight_kernel" in text
    )
    assert "✔ yours        dense layer " in text
    assert (folder / "certificate.png").read_bytes().startswith(b"\x89PNG")
    assert history.entries() == [history.Entry(history.PART_ONE, (STEP,))]
    json.loads((folder / "training" / "history.json").read_text())
