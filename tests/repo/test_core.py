"""The core stands alone: it trains a network for MNIST if nothing beyond it can be imported."""

import json
import subprocess
import sys

import pytest
from helpers import PROGRAMS

from cnn_numba.train.checkpoint import load_checkpoint


@pytest.mark.slow
def test_the_core_trains_without_beyond(tmp_path):
    done = subprocess.run(
        [sys.executable, PROGRAMS / "without_beyond.py", tmp_path],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (epoch,) = found["history"]
    assert epoch["test_loss"] < epoch["train_loss"] < 2.3  # ln 10, where it begins
    assert found["evaluated"] == pytest.approx([epoch["test_loss"], epoch["test_accuracy"]])
    assert found["lines"][-1].startswith("epoch 1/1: train loss")
    assert found["evaluated"][1] > 0.3  # of ten classes; a tenth before training
    losses = found["losses"]
    assert losses == pytest.approx(dict.fromkeys(losses, losses["cpu"]), rel=1e-4)
    for argument in ("scaler", "timeline"):
        message = found["errors"][argument]
        assert message == f"{argument} needs cnn_numba.beyond, which was not imported: leave the argument out"
    known = "activation, conv, dense, fused, gather, loss, pool, update"
    assert found["errors"]["norm"] == f"there is no operation norm, only {known}"
    assert found["errors"]["text"].startswith("no data set is called 'course-text'; choose from mnist, ")
    assert found["models"] == ["mnist_cnn", "mnist_cnn_deep", "cifar_convnet"]
    assert found["imported"] == []
    assert load_checkpoint(tmp_path / "checkpoint.npz").progress["history"] == found["history"]
