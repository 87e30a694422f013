"""Loads and stores at addresses with one number that a loop changes, and of lanes at any place."""

import random

import numpy as np
import pytest
from ptx_programs import run

from gpuless.emulator import ptx
from gpuless.emulator.run import cache, faults
from gpuless.emulator.translate import processor
from gpuless.emulator.translate.module import ModuleTranslator

# Each lane whose bit of `lanes` is set adds up the numbers at its place, `step` bytes further on in each of
# the rounds; then it stores the sum at its other place.
KERNEL = """
.visible .entry f(.param .u64 data, .param .u64 places, .param .u64 out, .param .u64 step, .param .u64 rounds,
                  .param .u64 lanes)
{{
    .reg .b32 %r<9>; .reg .b64 %rd<29>; .reg .b{width} %v<3>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [places]; ld.param.u64 %rd3, [out];
    ld.param.u64 %rd4, [step]; ld.param.u64 %rd5, [rounds]; ld.param.u64 %rd6, [lanes];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd7, %r1, 8; add.s64 %rd8, %rd2, %rd7; ld.global.u64 %rd9, [%rd8];
    shr.u64 %rd10, %rd6, %r1; and.b64 %rd11, %rd10, 1; setp.eq.s64 %p1, %rd11, 0;
    mov.u{width} %v1, 0; mov.u64 %rd12, 0;
    @%p1 bra END;
AGAIN:
    {address}
    ld.global.u{bits} %v2, [%rd20]; add.u{width} %v1, %v1, %v2;
    add.s64 %rd12, %rd12, 1; setp.lt.s64 %p2, %rd12, %rd5;
    @%p2 bra AGAIN;
    {store}
    st.global.u{bits} [%rd21], %v1;
END:
    ret;
}}
"""
ADDRESSES = {
    "wide": "mad.lo.s64 %rd13, %rd12, %rd4, %rd9; shl.b64 %rd14, %rd13, {shift}; add.s64 %rd20, %rd1, %rd14;",
    "product": "add.s64 %rd13, %rd9, %rd12; mul.lo.s64 %rd14, %rd13, {size}; add.s64 %rd15, %rd4, -1;"
    "mul.lo.s64 %rd16, %rd12, %rd15; shl.b64 %rd17, %rd16, {shift}; add.s64 %rd18, %rd14, %rd1;"
    "add.s64 %rd20, %rd18, %rd17;",
    "less": "mul.lo.s64 %rd13, %rd12, %rd4; neg.s64 %rd14, %rd9; sub.s64 %rd15, %rd13, %rd14;"
    "shl.b64 %rd16, %rd15, {shift}; add.s64 %rd20, %rd16, %rd1;",
    "unsigned": "mul.lo.s64 %rd13, %rd12, %rd4; add.s64 %rd14, %rd13, %rd9; cvt.u32.u64 %r2, %rd14;"
    "mul.wide.u32 %rd15, %r2, {size}; add.s64 %rd20, %rd1, %rd15;",
    "signed": "mul.lo.s64 %rd13, %rd12, %rd4; add.s64 %rd14, %rd13, %rd9; cvt.u32.u64 %r2, %rd14;"
    "cvt.s64.s32 %rd15, %r2; shl.b64 %rd16, %rd15, {shift}; add.s64 %rd20, %rd16, %rd1;",
    "cut": "mul.lo.s64 %rd13, %rd12, %rd4; add.s64 %rd14, %rd13, %rd9; and.b64 %rd15, %rd14, 4294967295;"
    "shl.b64 %rd16, %rd15, {shift}; add.s64 %rd20, %rd1, %rd16;",
}
STORES = {
    "apart": "shl.b64 %rd22, %rd9, {shift}; add.s64 %rd21, %rd3, %rd22;",
    "narrow": "cvt.u32.u64 %r3, %rd9; mul.wide.u32 %rd22, %r3, {size}; add.s64 %rd21, %rd3, %rd22;",
}
PLACES = {
    "same": lambda i, rng: 5,
    "neighbours": lambda i, rng: i,
    "backwards": lambda i, rng: 40 - i,
    "rows": lambda i, rng: i // 11 * 13 + i % 11,
    "window": lambda i, rng: rng.randrange(64) + 3,
    "just beyond a window": lambda i, rng: 64 * (i == 9) + i % 3,
    "far": lambda i, rng: rng.randrange(1500),
}
SIZE = 2000


@pytest.fixture(params=["512 bits", "less"])
def features(request, monkeypatch):
    """Use vectors of 512 bits, if the processor has them, or not."""
    if request.param == "less":
        monkeypatch.setattr(processor, "embeds_rounding", lambda: False)
        key = cache.key  # on disk such machine code is separate
        monkeypatch.setattr(cache, "key", lambda *parts: key(*parts, "less"))
    return request.param


def summed(address, store, bits, places, lanes=(1 << 32) - 1, step=7, rounds=5):
    """Return the stored and the expected sums."""
    dtype, size = np.dtype(f"u{bits // 8}"), bits // 8
    data = np.random.default_rng(1).integers(0, 99, SIZE).astype(dtype)
    parts = {"shift": size.bit_length() - 1, "size": size, "bits": bits, "width": max(bits, 16)}
    text = KERNEL.format(
        address=ADDRESSES[address].format(**parts), store=STORES[store].format(**parts), **parts
    )
    given = [data, np.array(places, np.uint64), np.zeros(SIZE, dtype)]
    *_, found = run(text, given, numbers=(step, rounds, lanes))
    wanted = np.zeros(SIZE, dtype)
    for lane, place in enumerate(places):
        if lanes >> lane & 1 and place < SIZE:
            wanted[place] = sum(int(data[place + step * i]) for i in range(rounds)) % (1 << bits)
    return found.tolist(), wanted.tolist()


LANES = [(1 << 32) - 1, 0x7FFF0FF0, 1 << 13]


@pytest.mark.exhaustive_unless(
    lambda address, form, lanes: (
        (list(ADDRESSES).index(address) + list(PLACES).index(form) + LANES.index(lanes)) % 3 == 0
    ),
    "each address with all places and all lanes, and all places with all lanes",
)
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("form", PLACES)
@pytest.mark.parametrize("address", ADDRESSES)
def test_lanes_sum_the_elements_at_their_places(address, form, lanes, features):
    rng = random.Random(form)
    places = [PLACES[form](i, rng) for i in range(32)]
    for bits, store in ((32, "apart"), (32, "narrow"), (64, "narrow")):
        found, wanted = summed(address, store, bits, places, lanes)
        assert found == wanted, (bits, store)


@pytest.mark.parametrize("bits", [8, 16])
def test_numbers_of_few_bits(bits, features):
    for form in PLACES:
        rng = random.Random(form)
        found, wanted = summed("wide", "apart", bits, [PLACES[form](i, rng) for i in range(32)])
        assert found == wanted, form


@pytest.mark.parametrize("address", ["wide", "product", "less"])
def test_inactive_lanes_may_have_wild_addresses(address, features):
    for elsewhere in (1 << 40, 1 << 29, (1 << 62) + 3):
        places = [i if i % 5 else elsewhere for i in range(32)]
        lanes = sum(1 << i for i in range(32) if i % 5)
        found, wanted = summed(address, "apart", 32, places, lanes)
        assert found == wanted, elsewhere


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_wild_address_of_one_lane_is_found(address, features):
    for elsewhere in ((1 << 31) - 9, (1 << 32) - (1 << 24), 1 << 28):
        places = [i if i != 7 else elsewhere for i in range(32)]
        with pytest.raises(faults.Fault, match="illegal memory access"):
            summed(address, "apart", 32, places, rounds=2)


def test_nothing_is_read_beyond_the_last_element(features):
    """A window is not read beyond the last requested number: there is no memory after it."""
    data = np.arange(1024, dtype=np.uint32)  # a page
    places = [1023 - 31 * 7 // 4 + i * 7 // 4 for i in range(32)]
    text = KERNEL.format(
        address=ADDRESSES["wide"].format(shift=2), store=STORES["apart"].format(shift=2), bits=32, width=32
    )
    *_, found = run(text, [data, np.array(places, np.uint64), data * 0], numbers=(0, 2, (1 << 32) - 1))
    assert [found[place] for place in places] == [2 * place for place in places]


def test_a_vector_unchanged_by_a_loop_is_known():
    text = KERNEL.format(
        address=ADDRESSES["wide"].format(shift=2), store=STORES["apart"].format(shift=2), bits=32, width=32
    )
    header = ".version 8.0\n.target sm_80\n.address_size 64\n"
    module = ModuleTranslator(ptx.parse(header + text), "f", (32, 1, 1))
    analysis = module.translator(module, module.kernel, "kernel").analysis
    loop = next(iter(analysis.flow.loop_ends))
    assert "%rd20" in analysis.sums.names
    assert analysis.sums.steady("%rd20", loop)
    assert not analysis.sums.steady("%rd20", 0)
    assert not analysis.sums.steady("%rd12", loop)
