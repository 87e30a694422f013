"""Each layer of a model on one core: its time, its useful operations, and its share of the core's peak.

Everything runs on one thread, so processor time includes no waiting, and shares are those of one core. The
steps of a model are timed inside whole training steps, with the caches as the step before left them; the
stages of a chain are timed repeatedly within the chain. The peak is measured in turns with the training
steps, on the same core at the same clock.
"""

import contextlib
import statistics
import time

import numba
import numpy as np
from numba import njit

from benchmarks.ladder import climb
from benchmarks.recipes import dataset
from benchmarks.records import new_record, text_table
from benchmarks.stages import stages_of, time_stages
from cnn_numba.nn.chains import ConvChain
from cnn_numba.nn.layers import Conv2d, CrossEntropyLoss, Linear
from cnn_numba.nn.models import MODELS
from cnn_numba.ops.shared.simd import WIDTH, load, multiply_add, store, vectors
from cnn_numba.train.batches import batches_of
from cnn_numba.train.optim import Adam

# More than the latency of a multiply-add times those that start per cycle: 8 on today's processors.
SUMS = 12
PEAK_ITERATIONS, WARM_UP = 20_000, 3


@njit
def _multiply_add(iterations, numbers):
    """Repeat SUMS independent multiply-adds in registers."""
    sums, addend = vectors(SUMS), load(numbers, 0)
    for i in range(SUMS):
        sums[i] = load(numbers, i * WIDTH)
    for _ in range(iterations):
        for i in range(SUMS):
            sums[i] = multiply_add(np.float32(0.5), sums[i], addend)
    for i in range(SUMS):
        store(numbers, i * WIDTH, sums[i])


def bench_layers(model="mnist_cnn", batch_size=64, repeats=100, ladder=False):
    """Time each step of a model on one core, the stages of its chains, the loss and the update.

    Parameters
    ----------
    model : str
        One of `MODELS`.
    batch_size : int
    repeats : int
        Timed training steps.
    ladder : bool
        Whether to climb from plain loops to the fast version as well, on the last stage with pooling.

    Returns
    -------
    dict
        The peak; for each step and stage, forward and backward, the median of its processor time; and for
        convolutions and dense layers the useful operations and the share of the peak that they reach. A
        multiply-add counts as two, and Winograd's method as the definition. Not counted are gradients of
        inputs that are not needed, and what `Stage.flops` leaves out.
    """
    data = dataset(model)
    with _one_thread():
        network = MODELS[model](batch_size=batch_size)
        loss, optimizer = CrossEntropyLoss(*network.shapes[-1]), Adam(network, lr=1e-3)
        source = batches_of(network, data.train_images, data.train_labels, data.mean, data.std)
        seconds, peaks, numbers = {}, [], np.ones(SUMS * WIDTH, np.float32)
        for repeat in range(WARM_UP + repeats):
            if repeat == WARM_UP:
                seconds, peaks = {}, []
            source.begin(np.arange(repeat, repeat + batch_size) % len(data.train_images))
            last = _step(network, loss, optimizer, source.take(batch_size), seconds)
            begun = time.process_time()
            _multiply_add(PEAK_ITERATIONS, numbers)
            peaks.append(2 * SUMS * WIDTH * PEAK_ITERATIONS / (time.process_time() - begun))
        peak = statistics.median(peaks)
        medians = {key: statistics.median(samples) for key, samples in seconds.items()}
        stages, within, counted = _count(network, *last)
        steps, parts = (_figures(times, counted, peak) for times in (medians, within))
        rungs = climb(stages, peak) if ladder else []
        print(_text(peak, steps + parts))
        about = {"model": model, "batch_size": batch_size, "peak_flops_per_second": peak}
        return new_record("layers", **about, steps=steps, stages=parts, ladder=rungs)


@contextlib.contextmanager
def _one_thread():
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before)


_BOTH = "forward", "backward"


def _step(network, loss, optimizer, batch, seconds):
    """Run a training step; note the seconds of its parts, and return outputs and gradients by step."""

    def timed(name, direction, function, *arguments):
        begun = time.process_time()
        result = function(*arguments)
        seconds.setdefault((name, direction), []).append(time.process_time() - begun)
        return result

    (x, labels), outputs, gradients = batch, {}, {}
    for step in network.passes:
        outputs[_name(step)] = x = timed(_name(step), "forward", step.forward, x, True)
    timed("loss", "forward", loss.forward, x, labels)
    gradient = timed("loss", "backward", loss.backward)
    for step in reversed(network.passes):
        gradients[_name(step)] = gradient
        gradient = timed(_name(step), "backward", step.backward, gradient)
        if gradient is None:
            break
    timed("update", "", optimizer.step)
    return outputs, gradients


def _name(step):
    return " + ".join(layer.name for layer in step.layers) if isinstance(step, ConvChain) else step.name


def _count(network, outputs, gradients):
    """Return the chains' stages, their times, and all useful operations by name and direction."""
    stages, times, counted = [], {}, {}
    for step in network.passes:
        name = _name(step)
        if isinstance(step, ConvChain):
            found = stages_of(step, gradients[name])
            stages += found
            times |= time_stages(step, found)
            flops = {stage.name: stage.flops() for stage in found}
            flops[name] = tuple(map(sum, zip(*flops.values(), strict=True)))
        elif isinstance(step, (Conv2d, Linear)):
            each, alive = 2 * step.weight[0].size, np.count_nonzero(gradients[name])
            flops = {name: (each * outputs[name].size, each * alive * (1 + step.needs_grad_input))}
        else:
            continue
        for key, both in flops.items():
            counted |= {(key, direction): int(each) for direction, each in zip(_BOTH, both, strict=True)}
    return stages, times, counted


def _figures(times, counted, peak):
    rows = []
    for (name, direction), seconds in times.items():
        rows.append({"name": name, "direction": direction, "seconds": seconds})
        if flops := counted.get((name, direction)):
            rows[-1] |= {"flops": flops, "share_of_peak": flops / seconds / peak}
    return rows


def _text(peak, rows):
    table = [["", "", "ms", "MFLOP", "GFLOP/s", "of peak"]]
    for row in rows:
        table.append([row["name"], row["direction"], f"{1e3 * row['seconds']:.3f}"])
        flops = row.get("flops")
        rate = flops and f"{flops / row['seconds'] / 1e9:.1f}"
        table[-1] += [f"{flops / 1e6:.1f}", rate, f"{row['share_of_peak']:.0%}"] if flops else [""] * 3
    return f"peak of a core: {peak / 1e9:.0f} GFLOP/s\n{text_table(table, left=2)}"
