"""Loads from arrays with a stride known only at the launch: neighbours or not, forwards or backwards."""

import numpy as np
import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("about how the emulated GPU reads", allow_module_level=True)

from numba import cuda
from ptx_programs import run

from gpuless.emulator.run import faults

BLOCKS = [(64, 1), (16, 4), (8, 8), (7, 9)]
of_each_block = pytest.mark.parametrize("block", BLOCKS, ids=str)

# Thread (x, y) loads at `x * stride + y * pitch` bytes after the start, if x is below a limit, or if
# its bit of the limit is set.
LOAD = """
.visible .entry f(.param .u64 data, .param .u64 out, .param .u64 start, .param .u64 stride, .param .u64 pitch,
                  .param .u64 limit)
{{
    .reg .b32 %r<9>; .reg .b64 %rd<19>; .reg .b64 %v; .reg .pred %p<3>;
    ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd3, [start];
    ld.param.u64 %rd4, [stride]; ld.param.u64 %rd5, [pitch]; ld.param.u64 %rd16, [limit];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x;
    cvt.s64.s32 %rd6, %r1; cvt.s64.s32 %rd7, %r2;
    mov.u64 %v, 77;
    {condition}
    @%p1 bra OFF;
    {product}
    ld.global.u{bits} %v, [%rd12];
OFF:
    mad.lo.s32 %r4, %r2, %r3, %r1; mul.wide.s32 %rd13, %r4, 8; add.s64 %rd14, %rd2, %rd13;
    st.global.u64 [%rd14], %v;
    ret;
}}
"""
CONDITIONS = {
    "below": "setp.ge.s64 %p1, %rd6, %rd16;",
    "picked": "mad.lo.s32 %r5, %r2, %r3, %r1; shr.u64 %rd17, %rd16, %r5; and.b64 %rd17, %rd17, 1;"
    "setp.eq.s64 %p1, %rd17, 0;",
}
PRODUCTS = {
    "mul": "mul.lo.s64 %rd8, %rd6, %rd4; mul.lo.s64 %rd9, %rd7, %rd5; add.s64 %rd10, %rd8, %rd9;"
    "add.s64 %rd11, %rd10, %rd3; add.s64 %rd12, %rd1, %rd11;",
    "mad": "mad.lo.s64 %rd8, %rd6, %rd4, %rd3; mad.lo.s64 %rd9, %rd7, %rd5, %rd8; add.s64 %rd12, %rd1, %rd9;",
    "minus": "neg.s64 %rd15, %rd6; mul.lo.s64 %rd8, %rd15, %rd4; mul.lo.s64 %rd9, %rd7, %rd5;"
    "sub.s64 %rd10, %rd9, %rd8; add.s64 %rd11, %rd10, %rd3; add.s64 %rd12, %rd11, %rd1;",
    "halved": "shl.b64 %rd15, %rd6, 1; mul.lo.s64 %rd8, %rd15, %rd4; mul.lo.s64 %rd9, %rd7, %rd5;"
    "shl.b64 %rd9, %rd9, 1; add.s64 %rd10, %rd8, %rd9; add.s64 %rd11, %rd10, %rd3;"
    "add.s64 %rd12, %rd11, %rd1;",
}


def loaded(block, bits, start, stride, pitch, limit=1 << 30, product="mul", size=8192, condition="below"):
    """Return what the threads load, and what they should, both as (y, x)."""
    (columns, rows), data = block, np.random.default_rng(3).integers(0, 256, size, np.uint8)
    out = np.zeros((rows, columns), np.uint64)
    text = LOAD.format(bits=bits, product=PRODUCTS[product], condition=CONDITIONS[condition])
    numbers = start, stride, pitch, limit
    _, found = run(text, [data, out], block=(*block, 1), numbers=numbers)
    factor = 2 if product == "halved" else 1

    def number(x, y):
        on = x < limit if condition == "below" else limit >> (y * columns + x) & 1
        at = start + factor * (x * stride + y * pitch)
        return int.from_bytes(data[at : at + bits // 8].tobytes(), "little") if on else 77

    return found.tolist(), [[number(x, y) for x in range(columns)] for y in range(rows)]


@of_each_block
@pytest.mark.parametrize("bits", [8, 32, 64])
@pytest.mark.parametrize("steps", [1, 2, 3, 0, -1, -2])
def test_numbers_a_stride_apart(block, bits, steps):
    size = bits // 8
    found, expected = loaded(block, bits, 4096, steps * size, 24)
    assert found == expected


@pytest.mark.exhaustive_unless(
    lambda block: block[0] in (64, 7), "blocks with rows as wide as a warp and with odd ones"
)
@of_each_block
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("stride", [2, 4, 12, -8])
def test_any_computation_of_the_address(block, product, stride):
    found, expected = loaded(block, 16, 4096, stride, 40, product=product)
    assert found == expected


@of_each_block
@pytest.mark.parametrize("limit", [0, 1, 3, 20])
@pytest.mark.parametrize("stride", [4, 8, -4, 1 << 40])
def test_inactive_lanes_load_nothing(block, limit, stride):
    # They would load outside the array, which would be a fault.
    if stride == 1 << 40:
        limit = min(limit, 1)
    start = 0 if stride > 0 else 4 * max(limit - 1, 0)
    found, expected = loaded(block, 32, start, stride, 0, limit, size=max(limit * abs(stride) % (1 << 40), 4))
    assert found == expected


@of_each_block
@pytest.mark.parametrize("bits", [8, 32, 64])
@pytest.mark.parametrize("steps", [1, 2, 3, -1, -2])
def test_any_lanes_at_the_edge_of_memory(block, bits, steps, rng):
    # A page between two inaccessible ones: threads with numbers outside it are inactive, and some others.
    (columns, rows), size, page = block, bits // 8, 4096
    width, pitch = steps * size * (columns - 1), 3 * size
    for start in (-2 * size - min(width, 0), page - 3 * size - max(width, 0), page - width // 2 - 4 * size):
        start -= start % size
        inside = [
            0 <= start + x * steps * size + y * pitch <= page - size
            for y in range(rows)
            for x in range(columns)
        ]
        assert any(inside)
        for chance in (1, 0.6):
            picked = [here and rng.random() < chance for here in inside]
            limit = sum(1 << i for i, on in enumerate(picked) if on)
            limit -= limit >> 63 << 64  # numbers of kernels are signed
            found, expected = loaded(
                block, bits, start, steps * size, pitch, limit, size=page, condition="picked"
            )
            assert found == expected


@pytest.mark.exhaustive_unless(
    lambda block: block[0] in (64, 7), "blocks with rows as wide as a warp and with odd ones"
)
@of_each_block
@pytest.mark.parametrize("stride", [1 << 16, 1 << 21, -(1 << 16)])
def test_lanes_far_apart(block, stride):
    columns = block[0]
    found, expected = loaded(
        block, 32, 0 if stride > 0 else -stride * (columns - 1), stride, 4, size=abs(stride) * columns + 4096
    )
    assert found == expected


@pytest.mark.parametrize("stride", [6, 2, 1, -3])
@pytest.mark.parametrize("block", [(32, 1), (16, 2)])
def test_a_stride_that_is_no_multiple_of_the_size_is_a_fault(block, stride):
    with pytest.raises(faults.Fault, match="misaligned"):
        loaded(block, 32, 4096, stride, 64)


@pytest.mark.parametrize("stride", [4, 8, 1 << 20, 1 << 50])
@pytest.mark.parametrize("block", [(32, 1), (16, 2)])
def test_strides_that_lead_out_of_the_array_are_a_fault(block, stride):
    with pytest.raises(faults.Fault, match="illegal"):
        loaded(block, 32, 1 << 28, stride, 64)


@pytest.mark.parametrize("layout", ["columns", "transposed", "gaps"])
@pytest.mark.parametrize("block", [(32, 4), (16, 16), (8, 8)], ids=str)
def test_views_of_numba(layout, block, rng):
    @cuda.jit
    def smooth(x, out):
        j, i = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            total = x[i, j]
            for k in range(1, 4):
                total += x[i, j + k] - x[i - k, j]
            out[i, j] = total

    whole = rng.integers(0, 100, (80, 120)).astype(np.float32)
    view = {
        "columns": lambda a: a[:40, 1:91:2],
        "transposed": lambda a: a.T[:40, :45],
        "gaps": lambda a: a[::2, ::3][:, :40],
    }[layout]
    x, out = view(whole), np.zeros((37, 30), np.float32)
    smooth[(4, 10), block](view(cuda.to_device(whole)), out)
    rows, columns = np.indices(out.shape)
    expected = x[:37, :30].copy()
    for k in range(1, 4):
        expected += x[rows, columns + k] - x[rows - k, columns]
    np.testing.assert_array_equal(out, expected)
