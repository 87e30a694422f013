"""Training steps of a Transformer, ours and PyTorch's, timed in turns.

``python -m benchmarks.transformer`` prints the comparison; with a path it also writes the record there.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.pytorch import pytorch_twin
from benchmarks.records import new_record


def bench_transformer(steps=20, rounds=5, batch_size=64):
    """Time training steps of `text_transformer` on the CPU, ours and PyTorch's, in turns.

    Parameters
    ----------
    steps : int
        Of one round.
    rounds : int
        Each is some of our steps, then as many of PyTorch's.
    batch_size : int

    Returns
    -------
    dict
        A record with the seconds per step of each round, ours and PyTorch's, and the ratio of their medians.
    """
    import torch

    from cnn_numba.beyond.models import text_transformer
    from cnn_numba.beyond.text.data import TEXT
    from cnn_numba.data import load
    from cnn_numba.device import threads
    from cnn_numba.nn.layers import CrossEntropyLoss
    from cnn_numba.train.batches import batches_of
    from cnn_numba.train.optim import Adam
    from cnn_numba.train.step import train_step

    model = text_transformer(batch_size)
    twin, windows = pytorch_twin(model), load(TEXT).train_images
    loss, optimizer = CrossEntropyLoss(*model.shapes[-1]), Adam(model, 1e-3)
    theirs = torch.optim.Adam(twin.parameters(), 1e-3)
    torch.set_num_threads(threads())
    source = batches_of(model, windows, windows, 0.0, 1.0)
    source.begin(np.random.default_rng(0).permutation(len(windows)))

    def our_step():
        train_step(model, loss, optimizer, *source.take(batch_size))
        source.advance()

    def their_step():
        x, y = source.take(batch_size)
        x, y = torch.from_numpy(x).long(), torch.from_numpy(y).long()
        theirs.zero_grad()
        torch.nn.functional.cross_entropy(twin(x), y).backward()
        theirs.step()
        source.advance()

    samples = {"ours": [], "pytorch": []}
    for number in range(rounds + 1):  # the first one warms up
        for name, step in (("ours", our_step), ("pytorch", their_step)):
            begun = time.perf_counter()
            for _ in range(steps):
                step()
            if number:
                samples[name].append((time.perf_counter() - begun) / steps)
    ours, pytorch = (statistics.median(samples[name]) for name in ("ours", "pytorch"))
    each = f"ours {1e3 * ours:.1f} ms, PyTorch {1e3 * pytorch:.1f} ms"
    print(f"text_transformer, batch {batch_size}, a step: {each}")
    print(f"ratio {ours / pytorch:.2f}, medians of {rounds} rounds of {steps} steps in turn")
    return new_record("transformer", batch_size=batch_size, seconds=samples, ratio=ours / pytorch)


if __name__ == "__main__":
    figures = bench_transformer()
    for path in sys.argv[1:]:
        Path(path).write_text(json.dumps(figures, indent=2) + "\n")
