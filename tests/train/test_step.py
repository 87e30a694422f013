"""One training step, and its strategies."""

import numpy as np
import pytest
from test_training import small_net, stripes

from cnn_numba.beyond.precision.scaling import LossScaler
from cnn_numba.nn.layers import Conv2d, CrossEntropyLoss
from cnn_numba.nn.models import Sequential
from cnn_numba.train.batches import batches_of
from cnn_numba.train.checkpoint_contents import HISTORY_KEYS
from cnn_numba.train.extensions import EXTENSIONS, extension
from cnn_numba.train.optim import SGD, Adam
from cnn_numba.train.phases import Phase
from cnn_numba.train.recipe import check_recipe, checksum
from cnn_numba.train.records import plot_history, write_history
from cnn_numba.train.scaler import Scaler, scaler_for
from cnn_numba.train.single_process import SINGLE, Part
from cnn_numba.train.step import steps_of, train_step

LAYERS = "linear2", "relu1", "linear1", "flatten1", "pool1", "conv1"
PHASES = [Phase("forward"), Phase("loss"), *(Phase("backward", layer) for layer in LAYERS)]


def batch(count=32):
    """Return the first images of the stripes, ready for a step, and their labels."""
    data, model = stripes(), small_net()
    source = batches_of(model, data.train_images, data.train_labels, data.mean, data.std)
    source.begin(np.arange(count))
    return source.take(count)


def test_a_step_has_its_phases_and_updates_at_the_end():
    model, seen = small_net(), []
    before = model.parameters.copy()

    def after(phase):
        seen.append((phase, np.array_equal(model.parameters, before)))

    losses, logits = train_step(model, CrossEntropyLoss(32, 2), SGD(model, lr=0.1), *batch(), after=after)
    assert seen == [*((phase, True) for phase in PHASES), (Phase("update"), False)]
    assert (losses.shape, logits.shape) == ((32,), (32, 2))


def test_a_step_by_hand_equals_a_step_of_a_training():
    ours, theirs, loss = small_net(), small_net(), CrossEntropyLoss(32, 2)
    steps = steps_of(theirs, loss, Adam(theirs, lr=1e-2), stripes(), pytest.fail, graph=True)
    steps.begin(np.arange(32), [1e-2])
    steps.take(32)
    phases = []
    losses, _ = train_step(ours, loss, Adam(ours), *batch(), lr=1e-2, after=phases.append)
    assert phases == [*PHASES, Phase("update")]
    np.testing.assert_array_equal(ours.parameters, theirs.parameters)
    assert steps.last_loss() == pytest.approx(losses.mean())


def test_numpy_is_silent_in_the_backward_pass_of_a_scaler_alone():
    class Quiet(Scaler):
        def quiet(self):
            return np.errstate(over="ignore")

    def fail(phase):
        seen[phase] = np.geterr()["over"]
        if phase.layer == "linear1":
            raise ZeroDivisionError

    model, seen = small_net(), {}
    with np.errstate(over="warn"), pytest.raises(ZeroDivisionError) as caught:
        train_step(model, CrossEntropyLoss(32, 2), SGD(model), *batch(), scaler=Quiet(), after=fail)
    assert (seen[Phase("loss")], seen[Phase("backward", "linear2")]) == ("warn", "ignore")
    assert caught.tb is not None  # which keeps the step's frames alive
    assert np.geterr()["over"] == "warn"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": None}, "model must be of type Sequential, got None"),
        ({"scaler": 5}, "scaler must be of"),
        ({"optimizer": SGD}, "optimizer must be of type Optimizer, got <class "),
        ({"after": None}, "after must be a function, got None"),
        ({"loss": None}, r"loss must have .*, as CrossEntropyLoss\(32, 2, 'cpu'\) has, got None"),
        ({"loss": CrossEntropyLoss}, "loss must have forward and backward, .* got <class "),
        ({"labels": None}, "labels must be an array, a label for each sample, got None"),
        ({"labels": np.int32(1)}, "labels must be an array, a label for each sample, got "),
        ({"labels": [0, 1]}, "labels must be an array, got list: "),
        ({"x": None}, "x must be an array, got NoneType: None"),
    ],
)
def test_wrong_arguments_of_a_step_are_named(wrong, message):
    model = small_net()
    x, labels = batch()
    given = {"model": model, "loss": CrossEntropyLoss(32, 2), "optimizer": SGD(model), "x": x}
    with pytest.raises(TypeError, match=message):
        train_step(**given | {"labels": labels} | wrong)


@pytest.mark.parametrize(
    "wrong", [(16, 2), (32, 3), (32, 2, "gpu"), (32, 2, "reference")], ids=lambda sizes: str(sizes[-1])
)
def test_a_step_with_a_loss_for_another_model_is_refused(wrong):
    model, seen = small_net(), []
    message = (
        r"loss must suit stripes_net, as CrossEntropyLoss\(32, 2, 'cpu'\) does, "
        rf"got CrossEntropyLoss\({', '.join(map(repr, (*wrong, 'cpu')[:3]))}\)$"
    )
    with pytest.raises(ValueError, match=message):
        train_step(model, CrossEntropyLoss(*wrong), SGD(model), *batch(), after=seen.append)
    assert seen == []


def test_a_step_with_a_scaler_of_another_model_is_refused():
    model, scaler = small_net(), LossScaler(small_net())
    with pytest.raises(ValueError, match=r"^scaler must be made for this model, got .*LossScaler"):
        train_step(model, CrossEntropyLoss(32, 2), SGD(model), *batch(), scaler=scaler)


def test_a_loss_for_a_model_whose_output_is_a_map_is_not_told_sizes():
    model = Sequential([Conv2d(1, 2, 3)], (1, 8, 8), 4)
    x, labels = np.ones((4, 1, 8, 8), np.float32), np.zeros(4, np.int32)
    with pytest.raises(ValueError, match=r"^logits must have shape"):
        train_step(model, CrossEntropyLoss(4, 2), SGD(model), x, labels)


def test_a_loss_need_only_be_as_large_as_the_batch():
    model, loss = small_net(), CrossEntropyLoss(16, 2)
    assert train_step(model, loss, SGD(model), *batch(16))[0].shape == (16,)
    x, labels = np.ones((33, 1, 8, 8), np.float32), np.zeros(33, np.int32)
    with pytest.raises(ValueError, match="built for 1 to 32 samples, got 33"):
        train_step(model, CrossEntropyLoss(32, 2), SGD(model), x, labels)


def test_a_loss_of_your_own_needs_only_its_two_passes():
    class Sum:
        def forward(self, logits, labels):
            self.gradient = np.ones_like(logits)
            return logits.sum(axis=1)

        def backward(self):
            return self.gradient

    model = small_net()
    losses, logits = train_step(model, Sum(), SGD(model), batch()[0], ["any", "labels"])
    np.testing.assert_array_equal(losses, logits.sum(axis=1))
    np.testing.assert_array_equal(model.layers[-1].grad_bias, 32)


def test_a_step_with_an_optimizer_of_another_model_is_refused():
    model, (x, labels) = small_net(), batch()
    before = model.gradients.copy()
    with pytest.raises(ValueError, match=r"made for another model .*: make SGD\(model\)"):
        train_step(model, CrossEntropyLoss(32, 2), SGD(small_net()), x, labels)
    np.testing.assert_array_equal(model.gradients, before)


# --- Strategies --------------------------------------------------------------------------------------------


def test_one_process_gets_the_whole_batch():
    model, array = small_net(), np.arange(3.0)
    assert (SINGLE.first, SINGLE.many, SINGLE.share(7), SINGLE.count(7)) == (
        True,
        False,
        slice(0, 7),
        7,
    )
    assert SINGLE.all_reduce(array) is array
    assert SINGLE.exchange("a") == [SINGLE.from_first(lambda: "a")] == ["a"]
    assert (SINGLE.batch_size(model), SINGLE.callbacks()) == (32, [])
    part = SINGLE.part(model, Scaler(), None)
    assert (part.share_of(7), part.cuts, part.no_graphs, part.buckets) == (None, (), "", ())
    with pytest.raises(NotImplementedError):
        Part().phases_of_nothing()


def test_without_scaling_the_optimiser_makes_the_step():
    model, scaler = small_net(), scaler_for(small_net(), None)
    before, gradient = model.parameters.copy(), np.ones(2, np.float32)
    assert type(scaler) is Scaler
    assert (scaler.settings, dict(scaler.state), scaler.callbacks()) == (None, {}, [])
    assert scaler.scale_gradient(gradient) is gradient
    model.gradients[:] = 1
    assert scaler.step(SGD(model), lr=0.5)
    np.testing.assert_allclose(model.parameters, before - 0.5, rtol=1e-6)


def test_unregistered_extensions_are_named(monkeypatch):
    monkeypatch.delitem(EXTENSIONS, "scaler")
    with pytest.raises(ValueError, match=r"scaler needs cnn_numba\.beyond, which was not imported"):
        scaler_for(small_net(), True)
    monkeypatch.setitem(EXTENSIONS, "scaler", lambda model: "a scaler")
    assert extension("scaler")(None) == scaler_for(small_net(precision="float16"), None) == "a scaler"


# --- Recipes and records -----------------------------------------------------------------------------------


def test_a_constant_schedule_frees_the_epochs_and_old_files_the_data():
    recipe = {"schedule": "constant", "epochs": 3, "device": "cpu", "train_crc32": 1, "test_crc32": 2}
    check_recipe({"schedule": "constant", "epochs": 1, "device": "gpu"}, recipe)
    for saved, message in (
        ({"device": "reference"}, "device 'reference', now 'cpu'"),
        ({"train_crc32": 5}, "train_crc32 5, now 1; the data differ"),
        ({"schedule": "cosine", "epochs": 3}, "schedule 'cosine', now 'constant'"),
    ):
        with pytest.raises(ValueError, match=message):
            check_recipe(recipe | saved, recipe)


def test_a_checksum_is_of_the_bytes_of_all_arrays():
    one, other = np.arange(4, dtype=np.uint8), np.ones(2)
    assert checksum(one, other) == checksum(one.copy(), other) != checksum(other, one)


@pytest.mark.parametrize(
    ("history", "error", "message"),
    [
        (None, TypeError, "history must be a list of dicts, as fit returns it; got None"),
        ([5], TypeError, r"history must be a list of dicts, as fit returns it; got \[5\]"),
        ([{"epoch": 1}], ValueError, "entry 0 lacks train_loss, train_accuracy, test_loss"),
    ],
)
def test_an_invalid_history_raises_before_anything_is_written(tmp_path, history, error, message):
    for use in (write_history, plot_history):
        with pytest.raises(error, match=message):
            use(history, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_history_of_words_or_unlike_entries_raises(tmp_path):
    entry = dict.fromkeys(HISTORY_KEYS, 1)
    with pytest.raises(TypeError, match="history must hold numbers, got test_loss 'low' in entry 1"):
        plot_history([entry, entry | {"test_loss": "low"}])
    with pytest.raises(ValueError, match="entry 1 has loss_scale, unlike entry 0: "):
        write_history([entry, entry | {"loss_scale": 2}], tmp_path)
    with pytest.raises(ValueError, match="entry 1 lacks mine and has loss_scale, unlike entry 0: "):
        write_history([entry | {"mine": 1}, entry | {"loss_scale": 2}], tmp_path)
