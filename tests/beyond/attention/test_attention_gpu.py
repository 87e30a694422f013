import numpy as np
import pytest
from helpers import kernels_in
from launches import on_device, only_launches, sanitized, to_host
from test_attention import inputs, torchs

from cnn_numba import device
from cnn_numba.beyond.attention import gpu, gpu_tiled
from gpuless import counting


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


def test_too_long_rows_raise():
    q, out, rows = device.zeros((1, 1, 2, 65)), device.zeros((1, 1, 2, 65)), device.zeros((1, 1, 2))
    with pytest.raises(ValueError, match="head_dim must be at most 64 here, got 65"), only_launches() as ran:
        gpu.attention_forward(q, q, q, False, out, rows)
    assert not ran


def test_wrong_scratch_raises():
    q, rows = device.zeros((1, 2, 3, 4)), device.zeros((1, 2, 3))
    small = gpu.attention_scratch((1, 1, 3, 4), (1, 1, 3, 4))
    with pytest.raises(
        ValueError, match=r"averages must have at least 6 elements, got 3: make it with attention_scratch"
    ):
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
        gpu.split_heads(gpu.merge_heads(q.reshape(1, *q.shape)))
    assert len(reports) == 3 + 2
    for report in reports:
        assert report.ok, str(report)
        assert not report.notes, str(report)


# --- At real sizes, compiled: on a GPU, or the emulated one -----------------------------------------------


@pytest.mark.exhaustive_unless(
    lambda shape: shape[4] != 32,
    "one and four lanes a row in several blocks; two lanes in test_attention.py, with tails of rows and keys",
)
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
def test_memory_moves_no_table():
    for length in (64, 128, 256):
        q, k, v = (device.zeros((1, 1, length, 32)) for _ in range(3))
        with counting() as counts:
            gpu.attention_forward(q, k, v)
        # Queries, keys and values read, results and log-sum-exps written, once each
        assert sum(each.least_bytes for each in counts) == 4 * length * (4 * 32 + 1)


def test_there_is_a_kernel_for_each_head_dim():
    assert sorted(kernels_in(gpu_tiled)) == sorted(
        f"attention_{kind}_{head_dim}_kernel"
        for kind in ("forward", "backward_q", "backward_kv")
        for head_dim in gpu_tiled.HEAD_DIMS
    )
