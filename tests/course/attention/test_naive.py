"""Attention with the table of weights in memory, the first version in the notebook."""

import numpy as np
import pytest
from helpers import assert_close, poisoned, random_float32
from launches import sanitized

from cnn_course.chapters.attention.naive import attention_forward_naive
from cnn_numba import device
from cnn_numba.beyond.attention import reference
from gpuless import counting


def inputs(batch, heads, queries, keys, head_dim):
    rng = np.random.default_rng(queries * 1000 + keys)
    return [random_float32(rng, batch, heads, length, head_dim) for length in (queries, keys, keys)]


@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1, 1, 1, False),
        (2, 3, 6, 32, 16, False),
        (1, 2, 7, 33, 17, False),
        (1, 1, 1, 70, 64, False),
        (1, 2, 71, 71, 5, True),
    ],
    ids=str,
)
def test_against_reference(shape):
    q, k, v = inputs(*shape[:5])
    outputs = [device.to_device(poisoned(size)) for size in (q.shape, (*q.shape[:3], k.shape[2]))]
    received = attention_forward_naive(*map(device.to_device, (q, k, v)), shape[5], *outputs)
    assert all(result is output for result, output in zip(received, outputs, strict=True))
    out, weights = map(device.to_host, outputs)
    assert_close(out, reference.attention_forward(q, k, v, shape[5])[0])
    assert_close(weights, reference.attention_weights(q, k, shape[5]))


def test_causal_attention_needs_as_many_queries_as_keys():
    q = device.zeros((1, 1, 2, 65))
    attention_forward_naive(q, q, q)
    with pytest.raises(ValueError, match="as many queries as keys"):
        attention_forward_naive(q, device.zeros((1, 1, 3, 65)), device.zeros((1, 1, 3, 65)), causal=True)
    with pytest.raises(ValueError, match="weights must have shape"):
        attention_forward_naive(q, q, q, weights=device.zeros((1, 1, 2, 3)))


@pytest.mark.parametrize("shape", [(1, 1, 5, 3, 3, False), (1, 1, 3, 3, 33, True)])
def test_the_sanitizer_finds_nothing(shape):
    with sanitized() as reports:
        attention_forward_naive(*map(device.to_device, inputs(*shape[:5])), shape[5])
    assert len(reports) == 3
    for report in reports:
        assert report.ok, str(report)
        assert not report.notes, str(report)


@pytest.mark.gpu
@pytest.mark.skipif(not device.SELECTION.emulated, reason="counts what the emulated GPU does")
def test_memory_moves_the_table_four_times():
    """It is written as scores, read and written as weights, and read to average the values."""
    for length in (64, 128, 256):
        q, k, v = (device.zeros((1, 1, length, 32)) for _ in range(3))
        with counting() as counts:
            attention_forward_naive(q, k, v)
        moved = sum(each.least_bytes for each in counts)
        assert moved == 4 * (length * 4 * 32 + 4 * length**2)
