"""Training on the GPU, in the simulator: equal to the CPU, and the same whether replayed or launched."""

import contextlib
import contextvars
import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import assert_close

import gpuless
from cnn_numba import LossScaler, device
from cnn_numba.data import Dataset
from cnn_numba.nn.layers import AvgPool2d, Conv2d, CrossEntropyLoss, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.backends import backend
from cnn_numba.train import graphs, step
from cnn_numba.train.augment import augmentation
from cnn_numba.train.checkpoint import load_model
from cnn_numba.train.loop import TrainingDiverged, evaluate, fit
from cnn_numba.train.optim import SGD, Adam
from cnn_numba.train.phases import Phase
from cnn_numba.train.single_process import SINGLE, Part, SingleProcess
from cnn_numba.train.step import train_step

BATCH = 2
# Two whole batches and a tail: a simulated step takes a second.
IMAGES = 5


def toy_cnn(device="gpu", batch_size=BATCH, precision="float32"):
    """Build mnist_cnn with fewer channels, for images of 10 x 10."""
    layers = [
        Conv2d(1, 3, 3),
        MaxPool2d(2),
        Conv2d(3, 4, 3),
        MaxPool2d(2),
        Flatten(),
        Linear(4, 5),
        ReLU(),
        Linear(5, 4),
    ]
    return Sequential(layers, (1, 10, 10), batch_size, device, 3, "toy_cnn", precision)


@pytest.fixture
def data(rng):
    def images(count):
        return rng.integers(0, 256, (count, 1, 10, 10), dtype=np.uint8)

    def labels(count):
        return rng.integers(0, 4, count).astype(np.int32)

    parts = {
        "train_images": images(IMAGES),
        "train_labels": labels(IMAGES),
        "test_images": images(1),
        "test_labels": labels(1),
    }
    return Dataset(name="toy", **parts, classes=tuple("abcd"))


OPTIMIZERS = {
    "adam": lambda model: Adam(model, lr=1e-2),
    "sgd": lambda model: SGD(model, lr=1e-2, momentum=0.9),
}


def assert_trained_alike(ours, theirs, tolerance=2e-5):
    np.testing.assert_allclose(
        device.to_host(ours.parameters), device.to_host(theirs.parameters), rtol=1e-3, atol=tolerance
    )


# --- One step ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 1])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_on_the_gpu_equals_the_cpu_s(optimizer, count, rng):
    x = rng.random((count, 1, 10, 10), dtype=np.float32)
    labels = rng.integers(0, 4, count).astype(np.int32)
    results = {}
    for place, move in (("cpu", np.asarray), ("gpu", device.to_device)):
        model = toy_cnn(place, batch_size=3)
        step = OPTIMIZERS[optimizer](model)
        loss = CrossEntropyLoss(3, 4, place)
        model.forward(move(x), training=True)
        outputs = [device.to_host(layer.output) for layer in model.layers]
        losses, logits = train_step(model, loss, step, move(x), move(labels))
        arrays = (losses, logits, model.gradients, model.parameters, *outputs)
        results[place] = [device.to_host(array) for array in arrays]
    for ours, theirs in zip(results["gpu"], results["cpu"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)


def test_models_start_and_predict_alike(rng):
    x = rng.random((2, 1, 10, 10), dtype=np.float32)
    ours, theirs = toy_cnn("gpu"), toy_cnn("cpu")
    np.testing.assert_array_equal(device.to_host(ours.parameters), theirs.parameters)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-5)


def test_a_relu_is_computed_by_the_layer_before():
    for place in ("gpu", "cpu"):
        *_, linear, relu, _ = toy_cnn(place).layers
        assert (linear.relu, relu.fused) == (True, True)


def test_a_host_array_is_rejected():
    with pytest.raises(TypeError, match=r"x is an array on the host, shape \(1, 1, 10, 10\)"):
        toy_cnn().forward(np.zeros((1, 1, 10, 10), np.float32))


# --- Whole training runs -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_training_on_the_gpu_equals_training_on_the_cpu(data):
    models, histories = {}, {}
    for place in ("cpu", "gpu"):
        models[place] = toy_cnn(place)
        histories[place] = fit(models[place], data, Adam(models[place], lr=1e-2), epochs=2, progress=False)
    assert_trained_alike(models["gpu"], models["cpu"])
    for ours, theirs in zip(histories["gpu"], histories["cpu"], strict=True):
        for key in ("epoch", "train_accuracy", "test_accuracy"):
            assert ours[key] == theirs[key]
        for key in ("train_loss", "test_loss"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-4)


def test_evaluation_on_the_gpu_equals_the_cpu_s(data):
    arguments = data.train_images, data.train_labels, 0.3, 0.7
    loss, accuracy = evaluate(toy_cnn("gpu"), *arguments)
    expected_loss, expected_accuracy = evaluate(toy_cnn("cpu"), *arguments)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert accuracy == expected_accuracy


def test_on_step_gets_the_loss_of_each_step_and_the_epoch_waits_for_the_gpu(data, monkeypatch):
    waits = []
    monkeypatch.setattr(step.DeviceSteps, "wait", lambda steps: waits.append(steps))
    seen = {"cpu": [], "gpu": []}
    for place, losses in seen.items():
        model = toy_cnn(place)
        fit(
            model,
            data,
            SGD(model, lr=1e-2),
            epochs=1,
            progress=False,
            on_step=lambda step, loss, losses=losses: losses.append(loss),
        )
    assert len(seen["gpu"]) == 3
    np.testing.assert_allclose(seen["gpu"], seen["cpu"], rtol=1e-4)
    assert len(waits) == 1


def test_a_nan_is_noticed_at_the_end_of_the_epoch(data):
    model = toy_cnn()
    model.layers[2].weight[0, 0, 0, 0] = np.nan
    with pytest.raises(TrainingDiverged, match="NaN or infinite in epoch 1; on the GPU"):
        fit(model, data, SGD(model, lr=1e-2), epochs=1, progress=False)


# --- Checkpoints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "then"), [("cpu", "gpu"), ("gpu", "cpu")])
def test_a_training_resumes_on_another_device(first, then, data, tmp_path):
    whole = toy_cnn("cpu")
    fit(whole, data, Adam(whole, lr=1e-2), epochs=2, schedule="constant", progress=False)
    lines = []
    for place, epochs in ((first, 1), (then, 2)):
        model = toy_cnn(place)
        history = fit(
            *(model, data, Adam(model, lr=1e-2)),
            epochs=epochs,
            schedule="constant",
            out=tmp_path,
            resume=epochs == 2,
            progress=False,
            log=lines.append,
        )
    assert [entry["epoch"] for entry in history] == [1, 2]
    assert_trained_alike(model, whole)
    assert any("the last digits will differ" in line for line in lines)


@pytest.mark.slow
def test_resuming_in_the_middle_of_an_epoch_gives_the_same_bits(data, tmp_path):
    whole = toy_cnn()
    fit(whole, data, Adam(whole, lr=1e-2), epochs=2, progress=False)

    model = toy_cnn()
    adam = Adam(model, lr=1e-2)
    with pytest.raises(KeyboardInterrupt):
        fit(*(model, data, adam), epochs=2, out=tmp_path, progress=False, on_step=_interrupt_at(4))
    model = toy_cnn()
    fit(*(model, data, Adam(model, lr=1e-2)), epochs=2, out=tmp_path, resume=True, progress=False)
    np.testing.assert_array_equal(device.to_host(model.parameters), device.to_host(whole.parameters))


def _interrupt_at(number):
    import signal

    def on_step(step, loss):
        if step == number:
            signal.raise_signal(signal.SIGINT)

    return on_step


def test_a_network_of_the_gpu_is_loaded_on_the_cpu(tmp_path):
    from cnn_numba.nn.models import mnist_cnn
    from cnn_numba.train.checkpoint import save_checkpoint

    save_checkpoint(tmp_path / "net.npz", mnist_cnn(batch_size=1, device="gpu", seed=5))
    ours = load_model(tmp_path / "net.npz", device="cpu")
    np.testing.assert_array_equal(ours.parameters, mnist_cnn(seed=5).parameters)
    there = load_model(tmp_path / "net.npz", batch_size=1, device="gpu")
    np.testing.assert_array_equal(device.to_host(there.parameters), ours.parameters)


# --- Graphs ------------------------------------------------------------------------------------------------


@pytest.fixture
def fake_graphs(monkeypatch):
    """Record like a CUDA graph: launches and their arguments, which run only in the replay."""
    recorded = []

    def record(function):
        launches = []
        with monkeypatch.context() as patch:
            for forbidden in ("empty", "zeros", "to_device", "to_host", "copy", "synchronize", "pinned"):
                patch.setattr(device, forbidden, lambda *_, name=forbidden: pytest.fail(f"{name} in a step"))
            with device.observe_launches(launches.append):
                function()
        recorded.append(launches)

        def replay():
            for launch in launches:
                launch.run()

        return replay

    monkeypatch.setattr(graphs, "record", record)
    return recorded


class SecondOfTwo(SingleProcess):
    """A worker without an image from a batch of one, which leaves the gradients alone."""

    size, rank = 2, 1


class SecondPart(Part):
    """The share of such a worker in a batch."""

    def phases_of_nothing(self):
        yield Phase("loss")


@pytest.mark.parametrize(
    ("augment", "workers", "advances"),
    [("none", SINGLE, 0), ("crop", SINGLE, 1), ("none", SecondOfTwo(), 1)],
)
def test_each_step_takes_its_rate_and_moves_the_cursors(data, augment, workers, advances):
    """Without an extra launch, except if no gathering kernel could move a cursor."""
    model, lrs, count = toy_cnn(), [0.02, 0.01, 0.005], 1
    common = model, CrossEntropyLoss(BATCH, 4, "gpu"), SGD(model), data, lambda line: None, False
    steps = step.steps_of(*common, augmentation(augment, (1, 10, 10), 0), SecondPart(workers=workers))
    device.copy(model.gradients, np.ones(model.gradients.shape, np.float32))
    for _ in range(2):  # epochs
        steps.begin(np.arange(IMAGES), lrs)
        for number, lr in enumerate(lrs):
            before = device.to_host(model.parameters).copy()
            launched = []
            with device.observe_launches(
                lambda launch, launched=launched: (launched.append(launch.kernel.__name__), launch.run())
            ):
                steps.take(count)
            expected = before - np.float32(lr) * device.to_host(model.gradients)
            assert_close(device.to_host(model.parameters), expected)
            assert device.to_host(steps.batches.batch_cursor).tolist() == [number + 1]
            assert device.to_host(steps.batches.step_cursor).tolist() == [number]
            assert launched.count("advance_kernel") == advances


def taken_by(model, data, augment="none"):
    """Return the names of the kernels that gather a batch."""
    common = model, CrossEntropyLoss(BATCH, 4, "gpu"), SGD(model), data, lambda line: None, False
    steps, launched = step.steps_of(*common, augmentation(augment, (1, 10, 10), 0)), []
    steps.begin(np.arange(IMAGES), [0.1])
    with device.observe_launches(lambda launch: (launched.append(launch.kernel.__name__), launch.run())):
        steps.batches.take(BATCH)
    return launched


def gathering_alone():
    """Return a backend with an own module for gathering."""
    gpu = backend("gpu")
    return gpu._replace(ops=gpu.ops.replace(gather=SimpleNamespace(**vars(gpu.ops.gather))))


def test_a_batch_is_gathered_with_the_first_convolution(data):
    assert taken_by(toy_cnn(), data) == ["gather_conv2d_pool_kernel"]
    assert taken_by(toy_cnn(), data, "crop") == ["advance_kernel", "gather_augmented_at_kernel"]


def test_a_batch_is_gathered_alone_where_something_was_replaced(data):
    watched, replaced = toy_cnn(), toy_cnn()
    watched.layers[1].forward = watched.layers[1].forward
    replaced.forward = replaced.forward
    for model in (watched, replaced, toy_cnn(gathering_alone())):
        assert taken_by(model, data) == ["gather_batch_at_kernel"]


def test_a_step_has_the_same_bits_where_the_batch_is_gathered_alone(data):
    models = [toy_cnn(), toy_cnn(gathering_alone())]
    for model in models:
        common = model, CrossEntropyLoss(BATCH, 4, "gpu"), SGD(model), data, lambda line: None, False
        steps = step.steps_of(*common)
        steps.begin(np.arange(3), [0.1, 0.1])
        steps.take(BATCH)
        steps.take(1)
    one, other = (device.to_host(model.parameters) for model in models)
    np.testing.assert_array_equal(one, other)
    assert evaluate(models[0], data.test_images, data.test_labels) == evaluate(
        models[1], data.test_images, data.test_labels
    )


def a_step_of(model, data, optimizer=None, part=None, count=BATCH):
    """Take two steps on the GPU; return the kernels of the second, and all arrays that they wrote."""
    optimizer, launched = optimizer or Adam(model, weight_decay=0.1), []
    common = model, CrossEntropyLoss(BATCH, 4, "gpu"), optimizer, data, pytest.fail, False, None, part
    steps = step.steps_of(*common)
    steps.begin(np.arange(IMAGES), [0.02, 0.01])
    steps.take(count)
    with device.observe_launches(
        lambda launch: (launched.append(launch.kernel.py_func.__name__), launch.run())
    ):
        steps.take(count)
    arrays = model.gradients, model.parameters, *optimizer.state.values(), steps.batches.batch_cursor
    return launched, [device.to_host(array).tobytes() for array in arrays]


#: Models with one, two and three stages: of three, the sums of the last two are a launch of their own.
STAGES = {
    1: lambda: [Conv2d(1, 3, 3), ReLU(), Flatten(), Linear(192, 4)],
    2: lambda: toy_cnn().layers,
    3: lambda: [Conv2d(1, 3, 3), Conv2d(3, 2, 3), ReLU(), Conv2d(2, 5, 3), Flatten(), Linear(80, 4)],
}


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("count", [1, BATCH])
def test_adam_adds_up_the_gradients_of_the_first_convolutions(data, monkeypatch, stages, count):
    def model():
        return Sequential(STAGES[stages](), (1, 10, 10), BATCH, "gpu", seed=3)

    launched, arrays = a_step_of(model(), data, count=count)
    monkeypatch.setattr(step.DeviceSteps, "_deferred_sums", lambda steps: contextlib.nullcontext(()))
    apart, expected = a_step_of(model(), data, count=count)
    assert arrays == expected
    assert apart[-2:] == ["conv2d_sum_weight_and_bias_kernel", "adam_scheduled_kernel"]
    assert launched == [*apart[:-2], "adam_with_sums_kernel"]
    assert launched.count("conv2d_sum_weight_and_bias_kernel") == (stages == 3)


class OwnAdam(Adam):
    """An optimiser that may read gradients before it updates."""


def watched_adam(model):
    """Return an optimiser whose update somebody has replaced, for example to clip the gradients."""
    adam = Adam(model)
    adam.scheduled_step = lambda *arguments: Adam.scheduled_step(adam, *arguments)
    return adam


def own_update():
    ops = backend("gpu").ops
    return backend("gpu")._replace(ops=ops.replace(update=SimpleNamespace(**vars(ops.update))))


@pytest.mark.parametrize(
    "how",
    [
        lambda: dict(model=(model := toy_cnn()), optimizer=SGD(model, momentum=0.9)),
        lambda: dict(model=(model := toy_cnn()), optimizer=OwnAdam(model)),
        lambda: dict(model=(model := toy_cnn()), optimizer=watched_adam(model)),
        lambda: dict(model=toy_cnn(), optimizer=Adam(toy_cnn())),
        lambda: dict(model=(model := toy_cnn()), part=Part(LossScaler(model))),
        lambda: dict(model=toy_cnn(), part=SecondPart()),
        lambda: dict(model=toy_cnn(own_update())),
        lambda: dict(model=Sequential([AvgPool2d(1), *toy_cnn().layers], (1, 10, 10), BATCH, "gpu")),
    ],
    ids=[
        "sgd", "own Adam", "a replaced step", "another model", "scaler", "workers", "own update",
        "not the first layers",
    ],
)  # fmt: skip
def test_gradients_that_are_read_before_the_update_are_added_up_before(data, how):
    launched, _ = a_step_of(data=data, **how())
    assert "conv2d_sum_weight_and_bias_kernel" in launched
    assert "adam_with_sums_kernel" not in launched


def test_a_step_that_fails_leaves_no_sums_to_later_passes(data, monkeypatch):
    model = toy_cnn()
    with monkeypatch.context() as patch:
        patch.setattr(Adam, "scheduled_step_with_sums", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            a_step_of(model, data)
    device.copy(model.gradients, np.full(model.gradients.shape, np.nan, np.float32))
    model.backward(device.to_device(np.ones((BATCH, 4), np.float32)))
    assert np.isfinite(device.to_host(model.gradients)).all()


def test_an_interrupted_step_leaves_no_batch_half_done(data):
    model = toy_cnn()
    steps = step.steps_of(model, CrossEntropyLoss(BATCH, 4, "gpu"), Adam(model), data, pytest.fail, False)
    steps.begin(np.arange(IMAGES), [0.1])
    phases = steps._step(BATCH)
    assert next(phases) == Phase("gather")
    phases.close()
    device.copy(model.parameters, np.ones(model.parameters.shape, np.float32))
    first, second = (device.to_host(model.forward(steps.batches.x)).copy() for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_graph_ends_at_the_phases_in_cuts(monkeypatch):
    events, cut = [], Phase("backward", "b")

    def launches(count):
        for name in "abcd":
            events.append(name)
            yield Phase("backward", name)

    def record(part):
        begin = len(events)
        part()
        launched = events[begin:]
        del events[begin:]
        return lambda: events.append(launched)

    monkeypatch.setattr(graphs, "record", record)
    replay = graphs.Replay(launches, after=events.append, cuts=[cut])
    replay(3)  # compiles
    assert events[:4] == ["a", Phase("backward", "a"), "b", cut]
    events.clear()
    replay(3)
    assert events == [["a", "b"], cut, ["c", "d"]]


@pytest.mark.slow
def test_replaying_a_recorded_step_is_training(data, fake_graphs):
    models, measured = [toy_cnn(), toy_cnn()], []
    for model, graph in zip(models, (True, False), strict=True):
        history = fit(model, data, Adam(model, lr=1e-2), epochs=3, progress=False, graph=graph)
        measured.append([(epoch["test_loss"], epoch["test_accuracy"]) for epoch in history])
    # One for whole batches, one for the tail and one for the test's, and nothing in them came from the host.
    kinds = [sorted({launch.kernel.py_func.__name__ for launch in launches}) for launches in fake_graphs]
    trained = [kind for kind in kinds if "adam_with_sums_kernel" in kind]
    assert (len(trained), len(kinds) - len(trained)) == (2, 1)
    assert len({len(launches) for launches in fake_graphs}) == 2
    assert measured[0] == measured[1]
    replayed, launched = (device.to_host(model.parameters) for model in models)
    np.testing.assert_array_equal(replayed, launched)


@pytest.mark.slow
def test_the_loss_of_a_replayed_step_covers_its_whole_batch(data, fake_graphs):
    # In the second epoch the whole batches are replayed after the tail's step has run.
    seen = []
    for graph in (True, False):
        model, losses = toy_cnn(), []
        fit(
            *(model, data, SGD(model, lr=1e-2)),
            epochs=2,
            progress=False,
            graph=graph,
            on_step=lambda step, loss, losses=losses: losses.append(loss),
        )
        seen.append(losses)
    assert seen[0] == seen[1]
    assert len(fake_graphs) == 3


def test_without_graphs_it_warns_once_and_trains(data):
    model, lines = toy_cnn(), []
    fit(model, data, SGD(model, lr=1e-2), epochs=1, progress=False, log=lines.append)
    if device.simulated():
        (line,) = [line for line in lines if "No CUDA graphs" in line]
        assert line.endswith("(the simulator has none): each kernel is launched separately, which is slower")


class FakeStream:
    """Records the streams that it waits for."""

    def __init__(self):
        self.waited = []

    def wait(self, stream):
        self.waited.append(stream)


class FakeCore:
    """Replaces `cuda.core`: records the calls of the stream, the builder and the graph."""

    def __init__(self, failure=None):
        self.calls, self.failure = [], failure
        self.Stream, self.stream, self.side = self, FakeStream(), FakeStream()

    def __int__(self):
        return 42

    def from_handle(self, handle):
        return {42: self, 43: self.side}[handle]

    def create_graph_builder(self):
        return self

    def begin_building(self):
        self.calls.append("begin")

    def end_building(self):
        if self.failure:
            raise self.failure  # and the stream continues to record, like the real one
        self.calls.append("end")
        return self

    def complete(self):
        return self

    def close(self):
        self.calls.append("close")
        if self.failure:
            raise self.failure

    def launch(self, stream):
        assert stream is self
        self.calls.append("launch")


@pytest.fixture
def core(monkeypatch):
    """Give `record` a `cuda.core` and a GPU."""

    def become(failure=None):
        fake = FakeCore(failure)
        monkeypatch.setitem(sys.modules, "cuda.core", fake)
        monkeypatch.setattr(device, "simulated", lambda: False)
        monkeypatch.setattr(device, "stream", lambda: 43)
        return fake

    return become


def test_recording_uses_the_builders_stream_and_replay_the_current_one(core):
    fake = core()
    with device.use_stream(fake):
        replay = graphs.record(lambda: fake.calls.append(device.current_stream() is fake.stream))
        assert fake.calls == ["begin", True, "end", "close"]
        replay()
    assert fake.calls[4:] == ["launch"]
    # Both streams are recorded, and joined in the end.
    assert (fake.side.waited, fake.stream.waited) == ([fake.stream], [fake.side])


def test_the_simulator_records_nothing(monkeypatch):
    monkeypatch.setattr(device, "simulated", lambda: True)
    with pytest.raises(graphs.GraphsUnavailable, match="the simulator has none"):
        graphs.record(lambda: None)


def test_unrecordable_operations_end_the_recording_with_a_reason(core):
    fake = core(RuntimeError("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"))
    with device.use_stream(fake), pytest.raises(graphs.GraphsUnavailable, match="CAPTURE_INVALIDATED"):
        graphs.record(lambda: None)
    # The first error is the reason, not its consequences.
    with device.use_stream(fake), pytest.raises(graphs.GraphsUnavailable, match="division by zero"):
        graphs.record(lambda: 1 / 0)
    # Closed, or the stream would record for ever: nothing could be launched on it.
    assert fake.calls == ["begin", "close"] * 2


@pytest.mark.slow
def test_launches_of_a_branch_may_come_last(data, monkeypatch):
    """In a graph it may begin at once, as without one, or as late as the next join, as here."""
    from cnn_numba.nn import heads

    late, held = [], []

    @contextlib.contextmanager
    def branch():
        late.append(True)
        yield
        late.pop()

    def join():
        while held:
            held.pop(0).run()

    trained = []
    for delayed in (False, True):
        if delayed:
            monkeypatch.setattr(device, "branch", branch)
            monkeypatch.setattr(device, "join", join)
            monkeypatch.setattr(heads, "branch", branch)
        model, kernels = toy_cnn(), []

        def note(launch, kernels=kernels):
            if late:
                held.append(launch)
                kernels.append(launch.kernel.py_func.__name__)
            else:
                launch.run()

        with device.observe_launches(note):
            fit(model, data, Adam(model, lr=1e-2), epochs=1, progress=False, graph=False)
        trained.append(device.to_host(model.parameters))
    of_a_step = ["linear_cross_entropy_sums_kernel", "conv2d_backward_weight_and_bias_narrow_kernel"]
    assert (kernels, held) == (of_a_step * 3, [])
    np.testing.assert_array_equal(*trained)


# --- On a real GPU -----------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_real_graph_gives_the_bits_of_plain_launches(data):
    models, measured = [toy_cnn(), toy_cnn()], []
    for model, graph in zip(models, (True, False), strict=True):
        lines = []
        options = {"epochs": 4, "progress": False, "graph": graph, "log": lines.append}
        history = fit(model, data, Adam(model, lr=1e-2), **options)
        measured.append([(epoch["test_loss"], epoch["test_accuracy"]) for epoch in history])
        assert not any("No CUDA graphs" in line for line in lines)
    assert measured[0] == measured[1]
    replayed, launched = (device.to_host(model.parameters) for model in models)
    np.testing.assert_array_equal(replayed, launched)


@pytest.mark.gpu
def test_a_branch_runs_beside_later_launches_until_they_join():
    if device.hardware():
        pytest.skip("when each kernel runs is modelled by the emulated GPU")
    from cnn_numba.ops.activation.gpu import relu_forward

    first, second, third = (device.to_device(np.ones(300, np.float32)) for _ in range(3))

    def work():
        relu_forward(first, second)
        with device.branch():
            relu_forward(second, first)
        relu_forward(second, third)
        device.join()
        device.join()  # of nothing
        relu_forward(first, second)
        with device.branch():  # joined in the end
            relu_forward(second, third)

    work()
    with device.use_stream(device.stream()):
        replay = graphs.record(work)
        in_thread = ThreadPoolExecutor(1).submit(contextvars.copy_context().run, graphs.record, work)
        in_thread.result()()
        with gpuless.profiling("H100 SXM") as timeline:
            replay()
            device.synchronize()
    one, branch, beside, joined, last = [event for event in timeline.events if event.kind == "kernel"]
    assert one.end < branch.begin == beside.begin < branch.end < joined.begin
    assert last.begin > joined.end
    with device.branch():
        assert device.current_stream() == 0


@pytest.mark.exhaustive("test_backends.py: two training runs, one with replayed steps, have the same bits")
@pytest.mark.gpu
def test_the_same_seed_gives_the_same_bits_on_the_gpu():
    from cnn_numba.data import load
    from cnn_numba.nn.models import mnist_cnn

    mnist = load("mnist")
    count = 3000 if device.hardware() else 400
    names = "train_images", "train_labels", "test_images", "test_labels"
    part = dataclasses.replace(mnist, **{name: getattr(mnist, name)[:count] for name in names})
    results = []
    for _ in range(2):
        model = mnist_cnn(device="gpu")
        fit(model, part, Adam(model, lr=1e-3), epochs=2, progress=False)
        results.append(device.to_host(model.parameters))
    np.testing.assert_array_equal(*results)
