"""Indices of 32 bits that wrap around within a warp: below zero they lead 16 GB away, not an element back."""

import contextlib

import numpy as np
import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("about the addresses of the emulated GPU", allow_module_level=True)

from numba import cuda, float32, uint32
from ptx_programs import run

from gpuless.emulator.driver.device import device
from gpuless.emulator.run.faults import Fault
from gpuless.emulator.run.memory import OutOfMemory
from gpuless.emulator.translate.layout import WORKER_SPAN

WILD = "CUDA_ERROR_ILLEGAL_ADDRESS.*thread \\(0, "
of_each_block = pytest.mark.parametrize("block", [(32, 2), (16, 4), (8, 4)], ids=str)


@pytest.fixture
def image(rng):
    return rng.standard_normal((20, 24), np.float32)


def launch(kernel, block, x):
    """Return the result of a kernel for an image on the device."""
    out = cuda.to_device(np.zeros(x.shape, np.float32))
    grid = tuple(-(-size // threads) for size, threads in zip(x.shape[::-1], block, strict=True))
    kernel[grid, block](x, out)
    return out.copy_to_host()


@cuda.jit
def left_kernel(x, out):
    col, row = cuda.grid(2)
    if row < x.shape[0] and col < x.shape[1]:
        out[row, col] = x[row, uint32(uint32(col) - uint32(1))]


@cuda.jit
def left_inside_kernel(x, out):
    col, row = cuda.grid(2)
    if row < x.shape[0] and col < x.shape[1]:
        left = uint32(uint32(col) - uint32(1))
        if left < x.shape[1]:
            out[row, col] = x[row, left]


VIEWS = {"rows": np.s_[4:8], "columns": np.s_[:, 2:20], "every second": np.s_[:, 1:21:2]}


@of_each_block
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_row_has_nothing_left_of_it(block, view, image):
    x = cuda.to_device(image)[view]
    with pytest.raises(Exception, match=WILD):
        launch(left_kernel, block, x)


@pytest.fixture
def every_worker_has_memory():
    """Make all memory that a worker may ever have usable."""
    arena, held = device().arena, []
    with contextlib.suppress(OutOfMemory):
        while True:
            held.append(arena.reserve())
    for address in held:
        arena.provide(address, WORKER_SPAN)
    yield
    for address in reversed(held):
        arena.release(address)


@of_each_block
@pytest.mark.usefixtures("every_worker_has_memory")
def test_a_lane_that_wraps_meets_no_workers_memory(block, image):
    with pytest.raises(Exception, match=WILD):
        launch(left_kernel, block, cuda.to_device(image))


@of_each_block
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_an_inactive_lane_may_wrap_around(block, view, image):
    expected = np.zeros_like(image[view])
    expected[:, 1:] = image[view][:, :-1]
    found = launch(left_inside_kernel, block, cuda.to_device(image)[view])
    np.testing.assert_array_equal(found, expected)


@cuda.jit
def read_kernel(x, y):
    i = uint32(cuda.grid(1))
    y[i] = x[uint32(i - uint32(1))]


@cuda.jit
def write_kernel(x, y):
    i = uint32(cuda.grid(1))
    y[uint32(i - uint32(1))] = x[i]


@cuda.jit
def add_kernel(x, y):
    i = uint32(cuda.grid(1))
    cuda.atomic.add(y, uint32(i - uint32(1)), x[i])


@pytest.mark.parametrize("kernel", [read_kernel, write_kernel, add_kernel], ids=["read", "write", "add"])
@pytest.mark.parametrize("threads", [4, 32])
def test_a_view_has_nothing_before_it(kernel, threads, rng):
    x, y = (cuda.to_device(np.zeros(128, np.float32)) for _ in range(2))
    with pytest.raises(Exception, match=WILD):
        kernel[1, threads](x[64:], y[64:])
    assert not y.copy_to_host()[:64].any()


def test_shared_memory(rng):
    @cuda.jit
    def shift(x, out):
        first, second = cuda.shared.array(64, float32), cuda.shared.array(64, float32)
        i = uint32(cuda.threadIdx.x)
        first[i], second[i] = x[i], x[i]
        cuda.syncthreads()
        left = uint32(i - uint32(1))
        if left < uint32(64):
            out[i] = first[left] + second[left]

    x, out = rng.standard_normal(64, np.float32), np.zeros(64, np.float32)
    shift[1, 64](x, out)
    np.testing.assert_array_equal(out, np.append(np.float32(0), 2 * x[:-1]))


#: Each thread of the first warp reads what lies 8 numbers after its own index less 8: some wrap around.
READ = """
.visible .entry f(.param .u64 p0, .param .u64 p1)
{
    .reg .b16 %h<2>; .reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [p0];
    ld.param.u64 %rd2, [p1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    BODY
    setp.lt.u32 %p1, %r1, 32;
    @!%p1 ret;
    ld.global.u32 %r5, [%rd6+32];
    st.global.u32 [%rd4], %r5;
    ret;
}
"""
SIGNED = "mul.wide.s32 %rd5, %r2, 4; add.s64 %rd6, %rd1, %rd5; add.s64 %rd6, %rd6, -8589934560;"
WIDENED = {
    "mul.wide.u32": "add.s32 %r2, %r1, -8; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd6, %rd1, %rd5;",
    "mad.wide.u32": "add.s32 %r2, %r1, -8; mad.wide.u32 %rd6, %r2, 4, %rd1;",
    "cvt.u64.u32": "add.s32 %r2, %r1, -8; cvt.u64.u32 %rd5, %r2; shl.b64 %rd5, %rd5, 2; "
    "add.s64 %rd6, %rd1, %rd5;",
    "and.b64": "cvt.u64.u32 %rd5, %r1; add.s64 %rd5, %rd5, -8; and.b64 %rd5, %rd5, 4294967295; "
    "shl.b64 %rd5, %rd5, 2; add.s64 %rd6, %rd1, %rd5;",
    "mul.wide.s32": "add.s32 %r2, %r1, 2147483640; " + SIGNED,
}


@pytest.mark.parametrize("body", WIDENED.values(), ids=WIDENED)
def test_every_conversion_to_a_wider_index(body):
    # Without wrapping around, all lanes would read numbers of the array.
    x = np.arange(64, dtype=np.uint32)
    with pytest.raises(Fault, match="illegal memory access") as caught:
        run(READ.replace("BODY", body), [x, np.zeros_like(x)], block=(64, 1, 1))
    assert caught.value.kind == "address"


def test_an_index_of_16_bits_that_wraps_around():
    body = (
        "cvt.u16.u32 %h1, %r1; add.s16 %h1, %h1, -8; mul.wide.u16 %r2, %h1, 4; cvt.u64.u32 %rd5, %r2; "
        "add.s64 %rd6, %rd1, %rd5;"
    )
    x = np.arange((1 << 16) + 8, dtype=np.uint32)
    _, found = run(READ.replace("BODY", body), [x, np.zeros(64, np.uint32)], block=(64, 1, 1))
    np.testing.assert_array_equal(found[:32], np.arange(-8, 24) % (1 << 16) + 8)
