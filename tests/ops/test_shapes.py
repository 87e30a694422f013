import numpy as np
import pytest
from helpers import strided
from hypothesis import given, settings, strategies as st

from cnn_numba import device
from cnn_numba.device.arrays import check_array, check_memory
from cnn_numba.ops.shapes import conv2d_window, output_size, pool2d_window, window2d

thorough = settings(deadline=None, derandomize=True, max_examples=40)


@thorough
@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 5), st.integers(0, 4))
def test_output_size_counts_positions(size, kernel_size, stride, padding):
    starts = range(0, size + 2 * padding - kernel_size + 1, stride)
    if starts:
        assert output_size(size, kernel_size, stride, padding) == len(starts)
    else:
        with pytest.raises(ValueError, match=f"a window of {kernel_size} does not fit into {size} elements"):
            output_size(size, kernel_size, stride, padding)


def test_mnist_cnn_ends_in_1600_features():
    # S0's listing pools once in its head and twice in its code, and declares 9216.
    size = output_size(28, 3)
    size = output_size(size, 2, 2)
    assert 64 * output_size(size, 3) ** 2 == 7744
    size = output_size(output_size(size, 3), 2, 2)
    assert 64 * size**2 == 1600


def test_windows_name_both_axes_in_order():
    window = window2d((9, 20), (3, 4), (2, 5), (1, 0))
    assert window == (3, 4, 2, 5, 1, 0, 5, 4)
    assert (window.kernel_h, window.stride_w, window.padding_h, window.out_h, window.out_w) == (3, 5, 1, 5, 4)
    assert conv2d_window((2, 3, 9, 20), (8, 3, 3, 4), (2, 5), (1, 0)) == window
    assert pool2d_window((2, 3, 9, 20), (3, 4), (2, 5), (1, 0)) == window
    assert pool2d_window((2, 3, 9, 20), (3, 4), None, 0)[-2:] == (3, 5)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: pool2d_window((3, 4, 5), 1, 1, 0), r"input_shape must be \(N, C, H, W\), got \(3, 4, 5\)"),
        (
            lambda: pool2d_window((3, 0, 5, 5), 1, 1, 0),
            r"input_shape must not be empty, got .*\(3, 0, 5, 5\)",
        ),
        (lambda: window2d((0, 5), 1, 1, 1), "images must have pixels, got 0 x 5"),
        (
            lambda: window2d((2, 9), 3, 1, 0),
            r"window of \(3, 3\) does not fit into an image of \(2, 9\) with padding \(0, 0\)",
        ),
        (
            lambda: window2d((9, 2), (1, 5), 1, 1),
            r"window of \(1, 5\) does not fit into an image of \(9, 2\) with padding \(1, 1\)",
        ),
        (
            lambda: conv2d_window((1, 1, 5, 5), (1, 3, 3), 1, 0),
            r"weight_shape must be \(C_out, C_in, K_h, K_w\), got \(1, 3, 3\)",
        ),
        (
            lambda: conv2d_window((1, 2, 5, 5), (4, 3, 3, 3), 1, 0),
            r"weight_shape must be \(C_out, 2, K_h, K_w\), got \(4, 3, 3, 3\): input_shape has C_in = 2",
        ),
        (
            lambda: conv2d_window((1, 1, 5, 5), (1, 1, 3, 3), 1, 2**30),
            "padding 1073741824 makes images of 2147483653 x 2147483653, more than 2147483647 pixels",
        ),
        (lambda: pool2d_window((1, 1, 2**16, 2**16), 3, 1, 1), "images of 65538 x 65538, more than"),
        (lambda: pool2d_window((1, 1, 5, 5), 3, 1, 2), "at most half of kernel_size, got padding 2 .* 3"),
        (lambda: pool2d_window((1, 1, 5, 5), (4, 1), 1, (2, 1)), r"got padding \(2, 1\) .* \(4, 1\)"),
    ],
)
def test_windows_reject(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_check_array_accepts():
    array = np.zeros((2, 3), np.float32)
    check_array("x", array, (2, 3))
    check_array("x", array, (None, 3))
    check_array("x", array, None)
    check_array("x", np.zeros((2, 3), np.int32), (2, None), np.int32)


@pytest.mark.parametrize(
    ("array", "shape", "error", "match"),
    [
        ([1.0, 2.0], (2,), TypeError, r"x must be an array, got list: \[1\.0, 2\.0\]"),
        (
            np.zeros(2),
            (2,),
            TypeError,
            r"x must have dtype float32, got float64: convert it with \.astype\(np\.float32\)$",
        ),
        (
            device.zeros(2),
            (2,),
            TypeError,
            r"x is an array on the device, shape \(2,\): copy it with .*to_host",
        ),
        (
            np.ma.zeros(2, np.float32),
            (2,),
            TypeError,
            r"x must be a plain array, got MaskedArray: np\.asarray makes one, or filled\(\) of a masked",
        ),
        (
            np.zeros((2, 2), np.float32).view(np.matrix),
            None,
            TypeError,
            "x must be a plain array, got matrix",
        ),
        (np.zeros(2, np.float32), (3,), ValueError, r"x must have shape \(3,\), got \(2,\)"),
        (np.zeros(2, np.float32), (2, 1), ValueError, r"x must have shape \(2, 1\), got \(2,\)"),
        (np.zeros((2, 4), np.float32), (None, 3), ValueError, r"shape \(any, 3\), got \(2, 4\)"),
        (
            np.zeros((4, 2), np.float32).T,
            (2, 4),
            ValueError,
            r"C-contiguous, got shape \(2, 4\) with strides \(4, 8\): convert it with np\.ascontiguousarray$",
        ),
        (strided(np.zeros((2, 3), np.float32)), None, ValueError, r"C-contiguous, got shape \(2, 3\)"),
    ],
)
def test_check_array_rejects(array, shape, error, match):
    with pytest.raises(error, match=match):
        check_array("x", array, shape)


@pytest.mark.parametrize("wrong", [np.zeros((2, 2)), np.zeros((2, 2), np.float32).T])
def test_no_copy_is_advised_of_an_array_that_is_written(wrong):
    with pytest.raises((TypeError, ValueError), match=r"^out must ") as caught:
        check_array("out", wrong, None, writeable=True)
    assert "convert" not in str(caught.value)  # the result would be in the copy


@pytest.mark.parametrize("place", [np.zeros, device.zeros])
def test_outputs_share_no_memory(place):
    memory = place(8)
    a, b, c = memory[:4], memory[4:], memory[3:5]
    check_memory({"a": a}, {"b": b, "c": None})
    check_memory({"a": a}, {"b": b, "c": b})  # inputs may be one
    check_memory({"a": a}, {"b": memory[:4]}, may_be=["b"])
    check_memory({"a": c}, {"b": memory[4:4]})  # nothing is shared with an empty array
    check_memory({"a": memory[:0]}, {"b": memory})
    for written, read, may_be, match in (
        ({"a": a}, {"b": b, "c": c}, (), r"a must not share memory with c \(shapes \(4,\) and \(2,\)\)"),
        ({"a": a}, {"b": a}, (), r"a must not share memory with b \("),
        ({"a": a, "b": b, "c": c}, {}, (), r"a must not share memory with c \("),
        ({"a": b, "c": c}, {}, (), r"a must not share memory with c \("),
        (
            {"a": c},
            {"b": memory[3:4]},
            ["b"],
            r"with b unless it is exactly that \(shapes \(2,\) and \(1,\)\)",
        ),
        ({"a": a}, {"b": a.reshape(2, 2)}, ["b"], "with b unless it is exactly that"),
        ({"a": a, "c": a}, {"b": a}, ["b"], r"a must not share memory with c \("),
    ):
        with pytest.raises(ValueError, match=match):
            check_memory(written, read, may_be)


def test_read_only_outputs_are_rejected():
    out = np.zeros(3, np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out must be writeable"):
        check_array("out", out, (3,), writeable=True)
