"""The host's side of a GPU, real or simulated: arrays, streams, launches."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda

from cnn_numba import device
from cnn_numba.device import arrays, health, selection
from cnn_numba.device.arrays import extent
from cnn_numba.device.health import Finding
from cnn_numba.device.usable import driver_status
from cnn_numba.ops import shapes
from cnn_numba.ops.specs import Spec
from gpuless import Selection


@cuda.jit
def add_kernel(x, value):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += value


# --- Arrays ------------------------------------------------------------------------------------------------


def test_arrays_go_there_and_back(rng):
    x = rng.standard_normal((3, 4), dtype=np.float32)
    there = device.to_device(x)
    assert device.is_device_array(there)
    assert not device.is_device_array(x)
    x[0, 0] = 99  # a copy
    assert device.to_host(there)[0, 0] != 99
    assert device.to_host(x) is x
    assert device.to_host(device.zeros((2, 3), np.int32)).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_any_layout_becomes_contiguous(rng):
    x = rng.standard_normal((4, 3))
    for view in (x.T, x[:, ::2], x[::-1], np.float32(3), x[None, None], x[:0]):
        there = device.to_device(view)
        assert there.is_c_contiguous()
        np.testing.assert_array_equal(device.to_host(there), view)


@pytest.mark.parametrize("to", ["host", "device"])
@pytest.mark.parametrize("source", ["host", "device"])
def test_copy_between_any_two_places(to, source, rng):
    values = rng.standard_normal((2, 5), dtype=np.float32)
    target = np.zeros_like(values) if to == "host" else device.zeros(values.shape)
    device.copy(target, values if source == "host" else device.to_device(values))
    np.testing.assert_array_equal(device.to_host(target), values)


def test_copying_nothing_is_no_error():
    device.copy(device.empty(0), np.empty(0, np.float32))
    assert device.to_host(device.empty((0, 3))).shape == (0, 3)


def test_overlap():
    x = device.zeros(8)

    def overlap(a, b):
        return arrays.overlap(extent(a), extent(b))

    assert overlap(x, x)
    assert overlap(x[:5], x[4:])
    assert not overlap(x[:4], x[4:])
    assert not overlap(x, device.zeros(8))
    assert not overlap(x[:0], x)
    assert not overlap(x[4:4], x)


def test_too_large_an_array_is_a_memory_error(monkeypatch):
    class Full:
        def device_array(self, shape, dtype):
            error = RuntimeError("Call to cuMemAlloc failed")
            error.code = SimpleNamespace(name="CUDA_ERROR_OUT_OF_MEMORY")
            raise error

    monkeypatch.setattr(arrays, "usable_cuda", Full)
    with pytest.raises(MemoryError, match=r"no room for float32 of shape \(1000, 1000\)"):
        device.empty((1000, 1000))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: out of memory"), "CUDA_ERROR_OUT_OF_MEMORY"),
        (ValueError("of CUDA_ERROR_OUT_OF_MEMORY nothing"), "of CUDA_ERROR_OUT_OF_MEMORY nothing"),
        (SystemExit(2), "2"),  # whose code is a number
    ],
)
def test_a_driver_error_is_known_by_its_name(error, status):
    assert driver_status(error) == status


def test_pinned_memory_is_an_array():
    buffer = device.pinned((2, 3), np.int64)
    buffer[:] = 7
    assert (buffer.shape, buffer.dtype) == ((2, 3), np.int64)


# --- Checks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.zeros((2, 3), np.float32), TypeError, r"x is an array on the host, shape \(2, 3\): copy it with"),
        ([[1.0]], TypeError, r"x must be an array on the device, got list: \[\[1.0\]\]"),
        (
            device.zeros((2, 3), np.float64),
            TypeError,
            r"x must have dtype float32, got float64: convert it with \.astype\(np\.float32\), on the host$",
        ),
        (device.zeros((2, 3), np.complex64), TypeError, r"x must have dtype float32, got complex64$"),
        (device.zeros((3, 2)), ValueError, r"x must have shape \(2, 3\), got \(3, 2\)"),
        (
            device.zeros((2, 6))[:, ::2],
            ValueError,
            r"x must be C-contiguous, got .*\): convert it with np\.ascontiguousarray, on the host$",
        ),
    ],
)
def test_wrong_arrays_are_named(array, error, message):
    with pytest.raises(error, match=message):
        device.arrays.check_device_array("x", array, (2, 3))


def test_a_masked_array_is_not_copied_without_its_mask():
    with pytest.raises(TypeError, match=r"a masked array, shape \(3,\), would lose its mask"):
        device.to_device(np.ma.zeros(3))


def test_an_array_of_another_gpu_is_named(monkeypatch):
    monkeypatch.setattr(device.arrays, "other_gpu", lambda array: 1)
    with pytest.raises(ValueError, match="x is on GPU 1, which is not the current one"):
        device.arrays.check_device_array("x", device.zeros(3), (3,))


def test_more_elements_than_the_kernels_count_are_rejected(monkeypatch):
    monkeypatch.setattr(device.arrays, "MOST_ELEMENTS", 5)
    device.arrays.check_device_array("x", device.zeros(5), (5,))
    with pytest.raises(ValueError, match="x has 6 elements; the kernels count up to 5"):
        device.arrays.check_device_array("x", device.zeros((2, 3)), (2, 3))


def test_outputs_are_checked_or_allocated():
    x, other = device.zeros(6), device.zeros(2)
    spec = Spec("x[n], part[m] -> out:int32[n], short[m]")
    _, _, out, short = spec(shapes.DEVICE, x, other, None, None)
    assert device.is_device_array(out)
    assert (out.dtype, short.dtype) == (np.int32, np.float32)
    assert spec(shapes.DEVICE, x, other, out, short)[2:] == [out, short]
    with pytest.raises(ValueError, match=r"short must not share memory with x .*\(2,\) and \(6,\)"):
        spec(shapes.DEVICE, x, other, None, x[2:4])


# --- Streams -----------------------------------------------------------------------------------------------


def test_copied_host_arrays_may_change_at_once(monkeypatch):
    waits = []
    monkeypatch.setattr(arrays, "synchronize", lambda: waits.append(device.current_stream()))
    on = device.stream()
    with device.use_stream(on):
        there = device.to_device(np.zeros(2, np.float32))
        device.copy(there, np.ones(2, np.float32))
    assert waits == [on, on]


def test_the_innermost_with_sets_the_current_stream():
    outer, inner = device.stream(), device.stream()

    def fail():
        with device.use_stream(inner):
            assert device.current_stream() is inner
            raise KeyError

    with device.use_stream(outer):
        with pytest.raises(KeyError):
            fail()
        assert device.current_stream() is outer
    assert device.current_stream() == 0


def test_launches_and_copies_go_to_the_current_stream(monkeypatch):
    seen = []

    class Kernel:
        def __getitem__(self, configuration):
            seen.append(configuration)
            return lambda *arguments: seen.append(arguments)

    on = device.stream()
    with device.use_stream(on):
        device.launch(Kernel(), 2, (8, 4), 1.5, shared=64)
    assert seen == [((2, 1, 1), (8, 4, 1), on, 64), (1.5,)]


def test_time_raises_without_a_gpu(monkeypatch):
    for gpu in ("emulator", "simulator"):
        monkeypatch.setattr(selection, "SELECTION", Selection(gpu, "no driver"))
        with pytest.raises(RuntimeError, match=r"there is no GPU to be timed \(no driver\)"):
            device.seconds(lambda: None)


# --- Launches ----------------------------------------------------------------------------------------------


def test_a_launch_covers_all_elements():
    x = device.zeros(10)
    device.launch(add_kernel, device.blocks(x.size, 4), 4, x, np.float32(2))
    assert device.to_host(x).tolist() == [2.0] * 10


@pytest.mark.parametrize(("count", "grids"), [(0, []), (1, [1]), (4, [1]), (5, [2])])
def test_launch_for_each_uses_whole_blocks_and_launches_nothing_for_none(count, grids):
    launched = []
    with device.observe_launches(launched.append):
        device.launch_for_each(add_kernel, count, 4, "x", 2)
    assert [launch.grid for launch in launched] == grids
    assert all(launch.block == 4 and launch.arguments == ("x", 2) for launch in launched)


@pytest.mark.parametrize(("size", "threads", "expected"), [(0, 32, 0), (1, 32, 1), (32, 32, 1), (33, 32, 2)])
def test_blocks(size, threads, expected):
    assert device.blocks(size, threads) == expected


@pytest.mark.parametrize(
    ("grid", "block", "shared", "error", "message"),
    [
        (0, 32, 0, ValueError, r"grid \(0,\): x is 0 and must be at least 1 \(is an array empty\?\)"),
        ((1, -2), 32, 0, ValueError, r"grid \(1, -2\): y is -2"),
        ((1, 70000), 32, 0, ValueError, r"grid \(1, 70000\): y is 70000, and a GPU allows 65535"),
        (1, 1025, 0, ValueError, r"block \(1025,\): x is 1025, and a GPU allows 1024"),
        (1, (64, 32), 0, ValueError, r"block \(64, 32, 1\) has 2048 threads, and a GPU allows 1024"),
        (1, (1, 1, 65), 0, ValueError, r"z is 65, and a GPU allows 64"),
        (1, (1, 1, 1, 1), 0, ValueError, "a block has 1, 2 or 3 dimensions"),
        (2.5, 32, 0, TypeError, "the grid is made of integers, got 2.5; round up, with math.ceil"),
        (1, 32, 48 * 1024 + 1, ValueError, r"49152 bytes \(48 KB\) of shared memory, not 49153"),
    ],
)
def test_impossible_launches_are_named(grid, block, shared, error, message):
    x = device.zeros(4)
    with pytest.raises(error, match=message):
        device.launch(add_kernel, grid, block, x, np.float32(1), shared=shared)
    assert not device.to_host(x).any()


def test_grid_and_block_may_be_lists():
    x = device.zeros(4)
    device.launch(add_kernel, [1], [4], x, np.float32(1))
    assert device.to_host(x).tolist() == [1, 1, 1, 1]


def test_a_float_is_no_grid_even_if_the_same_integer_was_one():
    x = device.zeros(4)
    device.launch(add_kernel, 1, 4, x, np.float32(1))
    with pytest.raises(TypeError, match=r"the grid is made of integers, got 1\.0"):
        device.launch(add_kernel, 1.0, 4, x, np.float32(1))


def test_a_host_array_is_rejected():
    with pytest.raises(TypeError, match=r"add_kernel: an array of shape \(4,\) is on the host"):
        device.launch(add_kernel, 1, 4, np.zeros(4, np.float32), np.float32(1))


def test_too_many_registers_are_named():
    class Greedy:
        __name__ = "greedy_kernel"

        def __getitem__(self, configuration):
            def launch(*arguments):
                raise RuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested")

            return launch

    with pytest.raises(ValueError, match="greedy_kernel: a block of 1024 threads needs more registers"):
        device.launch(Greedy(), 1, 1024)


def test_a_gpu_that_does_not_fit_is_named_at_first_use(monkeypatch):
    wrong = Finding("driver", False, "supports CUDA 12.4, but the toolkit is CUDA 13.2", "update the driver")
    monkeypatch.setattr(selection, "SELECTION", Selection("hardware", "a GPU was found"))
    monkeypatch.setattr(health, "gpu_findings", lambda: [Finding("GPU", True, "Toy GPU"), wrong])
    device.usable_cuda.cache_clear()
    with pytest.raises(
        device.UnusableGpu, match=r"driver: supports CUDA 12.4, .* \(fix: update the driver\)"
    ):
        device.zeros(3)
