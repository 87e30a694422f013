"""The accuracy on the test images, from several seeds, beside PyTorch's."""

import numpy as np

from benchmarks.pytorch import TorchTraining, need_pytorch
from benchmarks.recipes import DEFAULT_RECIPE, PLAIN_RECIPE, dataset
from benchmarks.records import new_record
from cnn_numba.data import batches
from cnn_numba.device import threads
from cnn_numba.nn.models import MODELS
from cnn_numba.ops.backends import backend
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import Adam


def bench_accuracy(model="mnist_cnn", seeds=3, plain=False, pytorch=False, device="cpu"):
    """Train from several seeds and report the accuracy on the test images, epoch by epoch.

    Parameters
    ----------
    model : str
        One of `MODELS`.
    seeds : int
        Trainings of each, with the seeds 0, 1, ...
    plain : bool
        The source articles' recipe (constant 1e-3, 5 epochs) instead of the default one.
    pytorch : bool
        Train PyTorch's network as well, from its own initial weights.
    device : {"cpu", "gpu"}
        Where all of them are trained.

    Returns
    -------
    dict
        The accuracies of every seed and epoch, and their means.
    """
    if pytorch:
        need_pytorch()
    data, recipe = dataset(model), PLAIN_RECIPE if plain else DEFAULT_RECIPE
    accuracies = {"ours": []} | ({"pytorch": []} if pytorch else {})
    for seed in range(seeds):
        for who, runs in accuracies.items():
            run = _our_accuracies if who == "ours" else _pytorch_accuracies
            runs.append(run(model, data, recipe, seed, device))
            print(f"  {who}, seed {seed}: " + "  ".join(f"{value:.2%}" for value in runs[-1]), flush=True)
    means = {who: np.mean(runs, axis=0).tolist() for who, runs in accuracies.items()}
    for who, values in means.items():
        print(f"{model}, {who}, mean of {seeds}: " + "  ".join(f"{value:.2%}" for value in values))
    return new_record(
        "accuracy", backend(device).on_device, model=model, recipe=recipe, accuracies=accuracies, means=means
    )


def _our_accuracies(model, data, recipe, seed, device):
    network = MODELS[model](batch_size=recipe["batch_size"], device=device, seed=seed)
    history = fit(
        network,
        data,
        Adam(network, lr=recipe["lr"]),
        epochs=recipe["epochs"],
        schedule=recipe["schedule"],
        seed=seed,
        progress=False,
    )
    return [entry["test_accuracy"] for entry in history]


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
