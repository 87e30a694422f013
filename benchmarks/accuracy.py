"""The accuracy on the test images from several seeds, ours and PyTorch's."""

import numpy as np

from benchmarks.pytorch import TorchTraining, need_pytorch
from benchmarks.recipes import RECIPES, dataset
from benchmarks.records import new_record
from cnn_numba.data import batches
from cnn_numba.device import threads
from cnn_numba.nn.models import MODELS
from cnn_numba.ops.backends import backend
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import Adam


def bench_accuracy(model="mnist_cnn", seeds=3, recipe="default", pytorch=False, device="cpu"):
    """Train from several seeds and report the accuracy on the test images, epoch by epoch.

    Parameters
    ----------
    model : str
        One of `MODELS`.
    seeds : int
        Training runs of each, with the seeds 0, 1, ...
    recipe : {"default", "fast", "plain"}
        One of the recipes of `cnn_numba.train.recipes`.
    pytorch : bool
        Train PyTorch's network as well, from its own initial weights.
    device : {"cpu", "gpu"}
        For all training runs.

    Returns
    -------
    dict
        The accuracies of every seed and epoch, their means, and the seconds of our epochs. `bench_epoch`
        measures PyTorch's, in a process where its threads wait in PyTorch's own way.
    """
    if pytorch:
        need_pytorch()
    data, recipe, seconds = dataset(model), RECIPES[recipe], []
    accuracies = {"ours": []} | ({"pytorch": []} if pytorch else {})
    for seed in range(seeds):
        for who, runs in accuracies.items():
            if who == "ours":
                history = _our_history(model, data, recipe, seed, device)
                runs.append([entry["test_accuracy"] for entry in history])
                seconds.append([entry["seconds"] for entry in history])
            else:
                runs.append(_pytorch_accuracies(model, data, recipe, seed, device))
            print(f"  {who}, seed {seed}: " + "  ".join(f"{value:.2%}" for value in runs[-1]), flush=True)
    means = {who: np.mean(runs, axis=0).tolist() for who, runs in accuracies.items()}
    for who, values in means.items():
        print(f"{model}, {who}, mean of {seeds}: " + "  ".join(f"{value:.2%}" for value in values))
    print(f"{model}, ours, median seconds of a training run: {np.median(np.sum(seconds, axis=1)):.2f}")
    figures = {"accuracies": accuracies, "means": means, "seconds": seconds}
    return new_record("accuracy", backend(device).on_device, model=model, recipe=recipe, **figures)


def _our_history(model, data, recipe, seed, device):
    network = MODELS[model](batch_size=recipe["batch_size"], device=device, seed=seed)
    optimizer = Adam(network, recipe["lr"], (recipe["beta1"], recipe["beta2"]))
    how = {name: recipe[name] for name in ("epochs", "schedule", "label_smoothing")}
    return fit(network, data, optimizer, **how, seed=seed, progress=False)


def _pytorch_accuracies(model, data, recipe, seed, device):
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(threads())
    network = MODELS[model](batch_size=recipe["batch_size"])
    theirs = TorchTraining(network, data, recipe, False, "cuda" if backend(device).on_device else "cpu")
    generator = np.random.default_rng([seed, 1])
    accuracies = []
    for epoch in range(recipe["epochs"]):
        order = list(batches(len(data.train_labels), recipe["batch_size"], generator))
        theirs.epoch(order, epoch * len(order), recipe["epochs"] * len(order))
        accuracies.append(theirs.accuracy())
    return accuracies
