"""The LSTM at the article's sizes: what it computes, and how long it would take on three GPUs.

`python -m cnn_course.chapters.sequences.article_sizes` writes ``article_sizes.json``, which notebook 22
draws. It needs the emulated GPU, and a minute. Nothing is measured: the times are modelled.
"""

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

import gpuless
from benchmarks.records import new_record
from cnn_numba import device
from cnn_numba.beyond.recurrent import gpu
from cnn_numba.train.graphs import record as recorded_graph

RECORD = Path(__file__).with_name("article_sizes.json")
GPUS = ("T4", "A100", "H100")
#: What the kernels of `gpu.lstm_forward` do, by their names.
PARTS = {
    "matmul_large_kernel": "product of all inputs",
    "matmul_small_kernel": "products of the steps",
    "matmul_sum_parts_kernel": "products of the steps",
    "lstm_cell_forward_kernel": "cells",
    "lstm_start_kernel": "cells",
}


class Sizes(NamedTuple):
    """The sizes of an LSTM's forward pass."""

    samples: int = 64
    steps: int = 100
    inputs: int = 512
    hidden: int = 256

    @property
    def beforehand(self) -> int:
        """The multiply-adds that need no state: one product."""
        return self.samples * self.steps * self.inputs * 4 * self.hidden

    @property
    def waiting(self) -> int:
        """The multiply-adds of all steps, each of which waits for the step before."""
        return self.samples * self.steps * self.hidden * 4 * self.hidden

    def draw(self, seed: int = 0) -> tuple:
        """Return an input (samples, steps, inputs) and the two weights, float32."""
        rng, bound = np.random.default_rng(seed), 1 / np.sqrt(self.hidden)
        x = rng.normal(size=(self.samples, self.steps, self.inputs))
        weights = (rng.uniform(-bound, bound, (4 * self.hidden, n)) for n in (self.inputs, self.hidden))
        return tuple(np.float32(array) for array in (x, *weights))


#: The article's sizes.
ARTICLE = Sizes()


def measure(path: Path = RECORD, sizes: Sizes = ARTICLE, gpus: tuple = GPUS) -> dict:
    """Model the forward pass as launches and as one CUDA graph; write the record, and return it."""
    arrays = [device.to_device(array) for array in sizes.draw()]
    scratch = gpu.lstm_scratch(*sizes)
    outputs = gpu.lstm_forward(*arrays, scratch=scratch)
    names = "out", "h_n", "c_n", "cells", "gates"

    def forward():
        gpu.lstm_forward(*arrays, scratch=scratch, **dict(zip(names, outputs, strict=True)))

    results: dict = {}
    with device.use_stream(device.stream()):  # the default one cannot be recorded
        forward()
        graph = recorded_graph(forward)
        for way, work in (("launches", forward), ("graph", graph)):
            with gpuless.profiling(list(gpus), samples=1) as timelines:
                work()
                device.synchronize()
            for timeline in timelines:
                results.setdefault(timeline.device.name, {})[way] = _figures(timeline)
    record = new_record("article-sizes", modelled=True, sizes=sizes._asdict(), results=results)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return record


def _figures(timeline):
    """Return the time of a forward pass, its range, and what the kernels of each part take; microseconds."""
    parts: Counter = Counter()
    for row in timeline.rows():
        parts[PARTS[row.name]] += row.total
    launches = sum(row.calls for row in timeline.rows())
    times = {name: getattr(timeline, name) for name in ("microseconds", "low", "high")}
    return times | {"kernels": launches, "parts": dict(parts)}


def recorded() -> dict:
    """Return what was modelled: `sizes`, and for each GPU the figures of "launches" and of "graph"."""
    return json.loads(RECORD.read_text())


if __name__ == "__main__":
    measure()
