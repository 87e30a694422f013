"""A training epoch on named GPUs: a modelled step, as one CUDA graph and launch by launch, with its kernels.

Nothing is measured. Steps run on the emulated GPU within `gpuless.profiling`. An epoch is a multiple of a
step, and its last, smaller batch counts as a whole one, also in the evaluation of the test images.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

import gpuless
from benchmarks.recipes import dataset
from benchmarks.records import new_record, text_table
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import MODELS
from cnn_numba.train.evaluation import Evaluation
from cnn_numba.train.optim import Adam
from cnn_numba.train.recipes import PLAIN
from cnn_numba.train.step import steps_of
from gpuless.profile.report import time

_WARM, _STEPS = 2, 3  # steps that compile kernels and record the graph, and profiled steps


def bench_epoch(gpus: Sequence[str], model: str = "mnist_cnn", batch_sizes: Sequence[int] = (64,)) -> dict:
    """Model a training epoch on some GPUs, with the step as a CUDA graph and launched kernel by kernel.

    Parameters
    ----------
    gpus : sequence of str
        Names that `gpuless.profile` knows.
    model : str
        One of `MODELS`.
    batch_sizes : sequence of int

    Returns
    -------
    dict
        For each batch size and GPU the microseconds of a step and the seconds of an epoch in both ways with
        their ranges, the share of the time in which the GPU waits for the host, the gaps, and the kernels;
        and the seconds of evaluating the test images, with a graph for each batch.
    """
    gpus, data = [gpuless.profile.device(gpu) for gpu in gpus], dataset(model)
    print("Modelled, not measured.")
    results = []
    for batch_size in batch_sizes:
        ways = {
            way: _timelines(gpus, model, data, batch_size, graph)
            for way, graph in (("graph", True), ("launches", False))
        }
        steps = -(-len(data.train_images) // batch_size)
        found = {
            graph.device.name: _figures(steps, graph, launches)
            for graph, launches in zip(ways["graph"], ways["launches"], strict=True)
        }
        batches = -(-len(data.test_images) // batch_size)
        for timeline in _evaluated(gpus, model, data, batch_size):
            figures = _step(timeline, batches)
            found[timeline.device.name]["evaluation"] = {
                name: figures[name] for name in ("kernels", "microseconds", "low", "high")
            } | {"seconds": figures["epoch_seconds"]}
        for gpu, figures in found.items():
            _print(model, batch_size, gpu, figures)
        results.append({"batch_size": batch_size, "steps": steps, "gpus": found})
    return new_record("epoch-modelled", modelled=True, model=model, dataset=data.name, results=results)


def _timelines(gpus, model, data, batch_size, graph):
    """Return the timelines of some steps, one for each GPU."""
    network = MODELS[model](batch_size=batch_size, device="gpu")
    loss = CrossEntropyLoss(batch_size, len(data.classes), "gpu")
    steps = steps_of(network, loss, Adam(network, lr=PLAIN["lr"]), data, _refuse, graph)
    count = _WARM + _STEPS
    steps.begin(np.arange(count * batch_size, dtype=np.int64), np.full(count, PLAIN["lr"]))
    for _ in range(_WARM):
        steps.take(batch_size)
    steps.wait()
    with gpuless.profiling(gpus, samples=1) as timelines:
        for _ in range(_STEPS):
            steps.take(batch_size)
        steps.wait()
    return timelines


def _evaluated(gpus, model, data, batch_size):
    """Return the timelines of some batches of test images, one for each GPU."""
    network, count = MODELS[model](batch_size=batch_size, device="gpu"), _STEPS * batch_size
    images = data.test_images[:count], data.test_labels[:count]
    evaluation = Evaluation(network, *images, data.mean, data.std, graph=True)
    evaluation()
    with gpuless.profiling(gpus, samples=1) as timelines:
        evaluation()
    return timelines


def _refuse(line):
    # Otherwise times of launches would count as those of a graph.
    raise RuntimeError(line)


def _figures(steps, graph, launches):
    figures = {"graph": _step(graph, steps), "launches": _step(launches, steps)}
    return figures | {"kernels": _kernels(graph)}


def _step(timeline, steps):
    """Return the figures of a step, from the beginning of its first kernel to the next step's."""
    begins = [event.begin for event in timeline.events if event.kind == "kernel"]
    kernels = len(begins) // _STEPS
    microseconds = begins[-kernels] - begins[-2 * kernels]
    gaps = timeline.gaps
    return {
        "kernels": kernels,
        "microseconds": microseconds,
        "low": microseconds * timeline.low / timeline.microseconds,
        "high": microseconds * timeline.high / timeline.microseconds,
        "epoch_seconds": steps * microseconds / 1e6,
        "host_bound": timeline.host_bound,
        "gaps": (gaps.streams + gaps.graphs) / _STEPS,
    }


def _kernels(timeline):
    """Return for each kernel its launches in a step, their microseconds, and the longest one's limiter."""
    found = defaultdict(list)
    for event in timeline.events:
        if event.kind == "kernel":
            found[event.name].append(event)
    rows = [
        {
            "kernel": name,
            "calls": len(events) // _STEPS,
            "microseconds": sum(event.duration for event in events) / _STEPS,
            "limited_by": max(events, key=lambda event: event.duration).report.limiter,
        }
        for name, events in found.items()
    ]
    return sorted(rows, key=lambda row: -row["microseconds"])


def _print(model, batch_size, gpu, figures):
    for way, text in (("graph", "as a graph"), ("launches", "as launches")):
        step = figures[way]
        between = f"{time(step['low'])} to {time(step['high'])}"
        print(f"{model}, batch {batch_size}, {gpu}, {text}: {step['epoch_seconds']:.2f} s an epoch")
        waits = f"waits for the host {step['host_bound']:.0%} of it, gaps {time(step['gaps'])}"
        print(f"  a step of {step['kernels']} kernels {time(step['microseconds'])} ({between}); {waits}")
    test = figures["evaluation"]
    both = figures["graph"]["epoch_seconds"] + test["seconds"]
    tested = f"the test images, {test['kernels']} kernels a batch, as graphs: {time(1e6 * test['seconds'])}"
    print(f"{tested}; an epoch and these: {both:.2f} s")
    whole = sum(row["microseconds"] for row in figures["kernels"])
    rows = [("kernel", "share", "a step", "calls", "limited by")]
    for row in figures["kernels"]:
        share = f"{row['microseconds'] / whole:.0%}"
        limit = row["limited_by"].split(":")[0].split(",")[0]
        rows.append((row["kernel"], share, time(row["microseconds"]), str(row["calls"]), limit))
    print(text_table(rows), flush=True)
