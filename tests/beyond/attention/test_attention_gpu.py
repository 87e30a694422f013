import numpy as np
import pytest
from helpers import assert_close, kernels_in, poisoned
from launches import only_launches, sanitized
from test_attention import SHAPES, inputs, torchs

from cnn_numba import device
from cnn_numba.beyond.attention import gpu, gpu_tiled, reference
from gpuless import counting


def on_device(*arrays):
    return [device.to_device(array) for array in arrays]


def to_host(arrays):
    return [device.to_host(array) for array in arrays]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_naive_against_reference(shape):
    q, k, v, grad_output = inputs(*shape[:5])
    causal, table = shape[5], (*q.shape[:3], k.shape[2])
    there, outputs = on_device(q, k, v), on_device(poisoned(q.shape), poisoned(table))
    received = gpu.attention_forward_naive(*there, causal, *outputs)
    assert all(result is output for result, output in zip(received, outputs, strict=True))
    out, weights = to_host(outputs)
    expected, log_sum_exp = reference.attention_forward(q, k, v, causal)
    assert_close(out, expected)
    assert_close(weights, reference.attention_weights(q, k, causal))

    gradients = on_device(*(poisoned(array.shape) for array in (q, k, v)), poisoned(table))
    received = gpu.attention_backward_naive(*on_device(grad_output), *there, outputs[1], *gradients)
    assert all(result is output for result, output in zip(received, gradients, strict=True))
    expected = reference.attention_backward(grad_output, q, k, v, expected, log_sum_exp, causal)
    for result, wanted in zip(to_host(gradients), expected, strict=False):
        assert_close(result, wanted)


def test_launches_and_nothing_else():
    q, k, v, grad_output, out, *gradients = (device.zeros((2, 3, 5, 4)) for _ in range(8))
    log_sum_exp, scratch = device.zeros((2, 3, 5)), gpu.attention_scratch((2, 3, 5, 4), (2, 3, 5, 4))
    x, merged = device.zeros((2, 3, 2, 5, 4)), device.empty((3, 5, 2, 2, 4))
    with only_launches() as launched:
        gpu.attention_forward(q, k, v, True, out, log_sum_exp)
        gpu.attention_backward(grad_output, q, k, v, out, log_sum_exp, True, *gradients, scratch=scratch)
        gpu.merge_heads(x, merged)
        gpu.split_heads(merged, x)
    tiled = [f"attention_{name}_16_kernel" for name in ("forward", "backward_q", "backward_kv")]
    assert launched == [*tiled, "merge_heads_kernel", "split_heads_kernel"]


def test_rows_too_long_for_the_threads_are_refused():
    q, out, rows = device.zeros((1, 1, 2, 65)), device.zeros((1, 1, 2, 65)), device.zeros((1, 1, 2))
    with pytest.raises(ValueError, match="head_dim must be at most 64 here, got 65"), only_launches() as ran:
        gpu.attention_forward(q, q, q, False, out, rows)
    assert not ran
    gpu.attention_forward_naive(q, q, q)


def test_scratch_that_is_none_is_refused():
    q, rows = device.zeros((1, 2, 3, 4)), device.zeros((1, 2, 3))
    small = gpu.attention_scratch((1, 1, 3, 4), (1, 1, 3, 4))
    with pytest.raises(ValueError, match=r"averages must have shape \(6,\) or more, got \(3,\)"):
        gpu.attention_backward(q, q, q, q, q, rows, scratch=small)
    with pytest.raises(TypeError, match="scratch must come from attention_scratch, got list"):
        gpu.attention_backward(q, q, q, q, q, rows, scratch=[])


@pytest.mark.exhaustive_unless(lambda shape: shape[2] == 34, "the shape with several tiles")
@pytest.mark.parametrize("shape", [(1, 1, 5, 3, 3, False), (1, 1, 34, 34, 2, True), (1, 1, 3, 2, 33, False)])
def test_the_sanitizer_finds_nothing(shape):
    q, k, v, grad_output = on_device(*inputs(*shape[:5]))
    causal = shape[5]
    with sanitized() as reports:
        out, log_sum_exp = gpu.attention_forward(q, k, v, causal)
        gpu.attention_backward(grad_output, q, k, v, out, log_sum_exp, causal)
        _, weights = gpu.attention_forward_naive(q, k, v, causal)
        gpu.attention_backward_naive(grad_output, q, k, v, weights)
        gpu.split_heads(gpu.merge_heads(q.reshape(1, *q.shape)))
    assert len(reports) == 3 + 3 + 5 + 2
    for report in reports:
        assert report.ok, str(report)
        assert not report.notes, str(report)


# --- At real sizes, compiled: on a GPU, or the emulated one -----------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape",
    [(8, 4, 64, 64, 16, True), (2, 2, 300, 517, 32, False), (1, 2, 513, 513, 64, True)],
    ids=str,
)
def test_large_attention_against_torch(shape):
    q, k, v, grad_output = inputs(*shape[:5])
    expected = torchs(q, k, v, grad_output, shape[5])
    there = on_device(q, k, v)
    outputs = gpu.attention_forward(*there, shape[5])
    gradients = gpu.attention_backward(*on_device(grad_output), *there, *outputs, shape[5])
    for received, wanted in zip(to_host((*outputs, *gradients)), expected, strict=True):
        np.testing.assert_allclose(received, wanted, rtol=3e-5, atol=1e-5 * max(1, np.abs(wanted).max()))
    again = gpu.attention_backward(*on_device(grad_output), *there, *outputs, shape[5])
    for first, second in zip(to_host(gradients), to_host(again), strict=True):
        assert first.tobytes() == second.tobytes()


@pytest.mark.skipif(not device.SELECTION.emulated, reason="counts what the emulated GPU does")
def test_what_the_two_rungs_move_as_the_rows_grow_longer():
    """The table makes the naive one's memory grow with the square; the tiled one needs none for it."""
    moved = {}
    for length in (64, 128, 256):
        q, k, v = (device.zeros((1, 1, length, 32)) for _ in range(3))
        for rung in (gpu.attention_forward_naive, gpu.attention_forward):
            with counting() as counts:
                rung(q, k, v)
            moved[rung, length] = sum(each.least_bytes for each in counts)
    naive, tiled = (
        [moved[rung, length] for length in (64, 128, 256)]
        for rung in (gpu.attention_forward_naive, gpu.attention_forward)
    )
    # Queries, keys and values read, results and log-sum-exps written, once each
    assert tiled == [4 * length * (4 * 32 + 1) for length in (64, 128, 256)]
    # The table is written as scores, read and written as weights, and read to average the values.
    assert naive == [4 * (length * 4 * 32 + 4 * length**2) for length in (64, 128, 256)]


def test_there_is_a_kernel_for_each_head_dim():
    assert sorted(kernels_in(gpu_tiled)) == sorted(
        f"attention_{kind}_{head_dim}_kernel"
        for kind in ("forward", "backward_q", "backward_kv")
        for head_dim in gpu_tiled.HEAD_DIMS
    )
