"""Training on images moved and mirrored at random: repeatable, resumable, the same on every device."""

import numpy as np
import pytest

from cnn_numba import device
from cnn_numba.beyond.norm.layers import BatchNorm2d
from cnn_numba.data import Dataset
from cnn_numba.nn.layers import Conv2d, CrossEntropyLoss, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.gather.cpu import gather_augmented
from cnn_numba.train.augment import AUGMENTATIONS, Augmentation, augmentation
from cnn_numba.train.checkpoint import load_checkpoint, save_checkpoint
from cnn_numba.train.loop import Interrupted, fit
from cnn_numba.train.optim import SGD
from cnn_numba.train.step import steps_of

IMAGES, BATCH = 11, 4


@pytest.fixture
def data(rng):
    images = rng.integers(0, 256, (IMAGES, 3, 8, 8), dtype=np.uint8)
    labels = rng.integers(0, 4, IMAGES).astype(np.int32)
    return Dataset("toy", images, labels, images[:2], labels[:2], 0.5, 0.5, classes=tuple("abcd"))


def toy(place="cpu"):
    layers = [Conv2d(3, 4, 3, padding=1), MaxPool2d(2), BatchNorm2d(4), ReLU(), Flatten(), Linear(64, 4)]
    return Sequential(layers, (3, 8, 8), BATCH, place, seed=3, name="toy")


def train(data, place="cpu", augment="crop-flip", weight_decay=1e-3, epochs=2, **options):
    model = toy(place)
    optimizer = SGD(model, lr=0.05, momentum=0.9, weight_decay=weight_decay)
    history = fit(model, data, optimizer, epochs=epochs, augment=augment, progress=False, **options)
    return device.to_host(model.parameters).copy(), history


def test_the_meaning_of_the_names():
    assert augmentation("none", (3, 32, 32), 0) is None
    moved, mirrored = (augmentation(name, (3, 32, 24), 5) for name in ("crop", "crop-flip"))
    assert (moved[:2], mirrored[:2]) == ((4, False), (4, True))
    assert moved.seed == mirrored.seed != augmentation("crop", (3, 32, 24), 6).seed
    assert 0 <= moved.seed < 2**32
    assert AUGMENTATIONS == ("none", "crop", "crop-flip")
    with pytest.raises(ValueError, match="augment must be one of none, crop, crop-flip, got 'mixup'"):
        augmentation("mixup", (3, 32, 32), 0)


def test_batches_are_augmented_differently_in_each_epoch(data):
    model = toy()
    how = Augmentation(1, True, 77)
    steps = steps_of(
        model, CrossEntropyLoss(BATCH, 4), SGD(model), data, pytest.fail, False, augmentation=how
    )
    for epoch in (0, 3):
        order = np.random.default_rng(epoch).permutation(IMAGES)
        steps.begin(order, [0.1] * 3, epoch)
        for first in range(0, IMAGES, BATCH):
            indices = order[first : first + BATCH]
            steps.take(len(indices))
            seen = steps.batches.x[: len(indices)]
            expected = gather_augmented(data.train_images, indices, 0.5, 0.5, 1, True, 77, epoch)
            np.testing.assert_array_equal(seen, expected)


def test_trainings_repeat_and_depend_on_the_augmentation(data):
    trained = {name: train(data, augment=name)[0] for name in AUGMENTATIONS}
    np.testing.assert_array_equal(trained["crop-flip"], train(data)[0])
    for name in ("none", "crop"):
        assert (trained[name] != trained["crop-flip"]).any()
    assert (train(data, weight_decay=0.0)[0] != trained["crop-flip"]).any()


def test_resuming_in_the_middle_of_an_epoch_gives_the_same_bits(data, tmp_path):
    import signal

    def interrupt(step, loss):
        if step == 5:
            signal.raise_signal(signal.SIGINT)

    whole, _ = train(data)
    with pytest.raises(Interrupted):
        train(data, out=tmp_path, on_step=interrupt)
    for changed, message in (
        ({"augment": "none"}, "augment 'crop-flip', now 'none'"),
        ({"weight_decay": 0.0}, r"weight_decay 0\.001, now 0\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            train(data, out=tmp_path, resume=True, **changed)
    np.testing.assert_array_equal(train(data, out=tmp_path, resume=True)[0], whole)


def test_a_checkpoint_from_before_augmentation_existed_is_resumed(data, tmp_path):
    path = tmp_path / "checkpoint.npz"
    constant = {"augment": "none", "schedule": "constant", "out": tmp_path}
    train(data, epochs=1, **constant)
    checkpoint = load_checkpoint(path)
    del checkpoint.progress["recipe"]["augment"]
    model = toy()
    optimizer = SGD(model, lr=0.05, momentum=0.9, weight_decay=1e-3)
    model.parameters[:], model.buffers[:] = checkpoint.parameters, checkpoint.buffers
    optimizer.load_state(checkpoint.optimizer)
    save_checkpoint(path, model, optimizer, checkpoint.progress)
    resumed, history = train(data, epochs=2, resume=True, **constant)
    assert len(history) == 2
    np.testing.assert_array_equal(resumed, train(data, augment="none", schedule="constant")[0])


def test_a_crafted_recipe_is_rejected(data, tmp_path):
    train(data, epochs=1, out=tmp_path)
    path = tmp_path / "checkpoint.npz"
    progress = load_checkpoint(path).progress
    progress["recipe"]["augment"] = "mixup"
    save_checkpoint(path, toy(), None, progress)
    with pytest.raises(ValueError, match=r"checkpoint\.npz: .* augment 'mixup', now 'crop-flip'"):
        train(data, epochs=1, out=tmp_path, resume=True)
    progress["recipe"]["weight_decay"] = -1
    save_checkpoint(path, toy(), None, progress)
    with pytest.raises(ValueError, match="weight_decay in the recipe must be at least 0"):
        load_checkpoint(path)


@pytest.mark.gpu
@pytest.mark.slow
def test_the_gpu_draws_and_trains_like_the_cpu_and_its_graphs_give_the_same_bits(data):
    """A graph recorded in the first epoch is replayed in the second and third, with their own numbers."""
    launched, replayed = (train(data, "gpu", epochs=3, graph=graph)[0] for graph in (False, True))
    np.testing.assert_array_equal(replayed, launched)
    np.testing.assert_allclose(launched, train(data, epochs=3)[0], rtol=1e-3, atol=2e-5)
