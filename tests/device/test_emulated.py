"""The gpu rooms on the emulated GPU: their kernels as NVIDIA's compiler makes them, run by the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuless import emulator

ROOT = Path(__file__).parents[2]
# Barriers, shuffles, tiles in registers; the other rooms hold nothing that these do not.
ROOMS = ["conv", "loss", "norm"]


def on_the_emulated_gpu(*command):
    """Run Python in a process that has an emulated GPU; return what it prints."""
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_ENABLE_CUDASIM"}
    env |= {"GPULESS": "emulator", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", *command]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


pytestmark = pytest.mark.skipif(bool(emulator.problem()), reason=emulator.problem())


@pytest.mark.slow
def test_the_tests_of_gpu_rooms_pass():
    """All but those that compare with PyTorch on CUDA, and the sanitizer's, a simulator of its own."""
    files = [f"tests/ops/test_{room}_gpu.py" for room in ROOMS]
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not gpu", "-k", "not sanitizer"]
    found = on_the_emulated_gpu("-m", "pytest", *options, *files)
    assert " passed" in found
    assert " skipped" not in found


LOSSES = """
import numpy as np
from cnn_numba import device
from cnn_numba.data import load
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import mnist_cnn
from cnn_numba.train.optim import Adam
from cnn_numba.train.steps import steps_of

assert not device.simulated()
print(device.describe().splitlines()[1])
data, found = load("mnist"), {}
for place, graph in (("cpu", False), ("gpu", False), ("gpu", True)):
    model = mnist_cnn(batch_size=32, device=place)
    loss = CrossEntropyLoss(32, 10, place)
    steps = steps_of(model, loss, Adam(model), data, print, graph)
    steps.begin(np.arange(32 * 100, dtype=np.int64), np.full(100, 1e-3))
    losses = []
    for _ in range(100):
        steps.take(32)
        losses.append(float(steps.last_loss()))
    found[place, graph] = losses
ours, theirs = (np.array(found[key]) for key in (("gpu", False), ("cpu", False)))
print(np.abs(ours - theirs).max() < 1e-3, ours[-10:].mean() < ours[0] / 3)
print(found["gpu", True] == found["gpu", False])
"""


@pytest.mark.slow
def test_a_training_follows_that_of_the_cpu_room():
    """A hundred steps; and a recorded graph replays to the same bits."""
    name, *rest = on_the_emulated_gpu("-c", LOSSES).splitlines()
    assert "Emulated GPU" in name
    assert rest == ["True True", "True"]
