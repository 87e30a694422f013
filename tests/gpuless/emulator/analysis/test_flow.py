"""Control flow: random programs against Python, which runs one thread at a time, and traps."""

import random

import numpy as np
import pytest
from ptx_programs import results, run
from quick_code import compile_plainly
from random_programs import COUNTERS, ROW, Program, expected

from gpuless.emulator.run import cache, machine

SHAPES = [(32, 1, 1), (33, 1, 1), (1, 1, 1), (64, 1, 1), (256, 1, 1), (16, 16, 1), (8, 4, 2), (24, 1, 1)]
PROGRAMS = 40  # for each shape
GIVEN = [random.Random(5).choice([i, i * i, 3, 1 << 31, 0xFFFFFFFF]) for i in range(64)]


@pytest.mark.exhaustive_unless(
    lambda shape: shape in SHAPES[4::2], "the programs of eight warps, and of a block with planes"
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_programs(shape, monkeypatch):
    monkeypatch.setattr(cache, "read", lambda name: None)
    monkeypatch.setattr(cache, "write", lambda name, content: None)
    real = machine.compile_object
    for i in range(PROGRAMS):
        # Most are compiled quickly; some like real kernels, to test the optimiser's result.
        monkeypatch.setattr(machine, "compile_object", real if i % 12 == 0 else compile_plainly)
        seed = SHAPES.index(shape) + len(SHAPES) * i
        program, grid = Program(seed), 2
        rows, counters = expected(program, grid, shape, GIVEN)
        arrays = [np.array(GIVEN, np.uint32), np.zeros((len(rows), 2 * ROW), np.uint32)]
        _, found, counted = run(program.ptx, [*arrays, np.zeros(COUNTERS, np.uint32)], (grid, 1, 1), shape)
        assert found.tolist() == rows, (seed, program.ptx, program.source)
        assert counted.tolist() == counters, (seed, program.ptx, program.source)


# --- Traps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wide",
    [
        "mul.wide.u32 %y1, %x1, 4; add.s64 %y2, %a0, %y1;",
        "mad.wide.u32 %y2, %x1, 4, %a0;",
        "cvt.u64.u32 %y1, %x1; shl.b64 %y1, %y1, 2; add.s64 %y2, %a0, %y1;",
        "cvt.s64.s32 %y0, %x1; and.b64 %y1, %y0, 4294967295; shl.b64 %y1, %y1, 2; add.s64 %y2, %a0, %y1;",
    ],
)
@pytest.mark.parametrize("shift", [-1, -5, 3])
def test_an_unsigned_index_wraps_around_in_inactive_lanes(wide, shift):
    body = f"add.s32 %x1, %i, {shift}; mov.u32 %x2, 7; setp.ge.u32 %p1, %x1, 64;\n@%p1 bra OFF;\n"
    found, _ = results(
        f"{body}{wide} ld.global.u32 %x2, [%y2];\nOFF: st.global.u32 [%out], %x2;", [NUMBERS], 64, 2
    )
    assert found == [int(NUMBERS[i + shift]) if 0 <= i + shift < 64 else 7 for i in range(128)]


NUMBERS = np.arange(100, 164, dtype=np.uint32)
# From the index %y1, which may be negative, to the address %y5 of the element, as in Python.
_WRAPPED = {
    "plain": "shr.s64 %y2, %y1, 63; and.b64 %y3, %y2, 64; add.s64 %y4, %y1, %y3;"
    "shl.b64 %y6, %y4, 2; add.s64 %y5, %a0, %y6;",
    "the mask first": "shr.s64 %y2, %y1, 63; and.b64 %y3, 64, %y2; add.s64 %y4, %y3, %y1;"
    "mul.lo.s64 %y6, %y4, 4; add.s64 %y5, %y6, %a0;",
    "mad": "shr.s64 %y2, %y1, 63; and.b64 %y3, %y2, 64; add.s64 %y4, %y1, %y3; mad.lo.s64 %y5, %y4, 4, %a0;",
    "32 bits": "cvt.u32.u64 %x1, %y1; shr.s32 %x2, %x1, 31; and.b32 %x3, %x2, 64; add.s32 %x4, %x1, %x3;"
    "cvt.s64.s32 %y4, %x4; shl.b64 %y6, %y4, 2; add.s64 %y5, %a0, %y6;",
    "the sign alone": "and.b64 %y2, %y1, -9223372036854775808; shr.u64 %y3, %y2, 57; add.s64 %y4, %y1, %y3;"
    "shl.b64 %y6, %y4, 2; add.s64 %y5, %a0, %y6;",
    "the sign alone, 32 bits": "cvt.u32.u64 %x1, %y1; and.b32 %x2, %x1, -2147483648; shr.u32 %x3, %x2, 25;"
    "add.s32 %x4, %x1, %x3; cvt.s64.s32 %y4, %x4; shl.b64 %y6, %y4, 2; add.s64 %y5, %a0, %y6;",
    "chosen": "shr.s64 %y2, %y1, 63; and.b64 %y3, %y2, 64; add.s64 %y4, %y1, %y3; shl.b64 %y6, %y4, 2;"
    "setp.lt.u64 %p2, %a0, 8; selp.b64 %y7, %y6, %y6, %p2; mov.b64 %y8, %y7; add.s64 %y5, %a0, %y8;",
    "another block": "shr.s64 %y2, %y1, 63; and.b64 %y3, %y2, 64; add.s64 %y4, %y1, %y3; shl.b64 %y6, %y4, 2;"
    "mov.u32 %x5, 3;\nAGAIN: add.s64 %y5, %a0, %y6; sub.s32 %x5, %x5, 1; setp.ne.u32 %p2, %x5, 0;"
    "\n@%p2 bra AGAIN;\n",
}


_SHIFTS = [-5, -40, -64, 0]


@pytest.mark.exhaustive_unless(
    lambda wrapped, shift, stored: (
        (list(_WRAPPED.values()).index(wrapped) + _SHIFTS.index(shift) + stored) % 2 == 0
    ),
    "each way with each shift, and both loaded and stored by each way and with each shift",
)
@pytest.mark.parametrize("wrapped", _WRAPPED.values(), ids=_WRAPPED)
@pytest.mark.parametrize("shift", _SHIFTS)
@pytest.mark.parametrize("stored", [False, True])
def test_negative_indices_count_from_the_end(wrapped, shift, stored):
    # Warps are of one sign, of the other, and of both.
    body = f"cvt.s64.s32 %y1, %i; add.s64 %y1, %y1, {shift};{wrapped}"
    if stored:
        body += "add.s32 %x6, %i, 1000; st.global.u32 [%y5], %x6; st.global.u32 [%out], %x6;"
        _, (found,) = results(body, [NUMBERS], 64)
        assert found == [1000 + (i - shift) % 64 for i in range(64)]
    else:
        found, _ = results(body + "ld.global.u32 %x6, [%y5]; st.global.u32 [%out], %x6;", [NUMBERS], 64)
        assert found == [100 + (i + shift) % 64 for i in range(64)]


@pytest.mark.parametrize("shift", [-5, -40])
def test_negative_indices_of_inactive_lanes(shift):
    body = f"cvt.s64.s32 %y1, %i; add.s64 %y1, %y1, {shift}; mov.u32 %x6, 7; setp.lt.s64 %p1, %y1, 0;\n"
    body += f"@%p1 bra OFF;\n{_WRAPPED['plain']} ld.global.u32 %x6, [%y5];\nOFF: st.global.u32 [%out], %x6;"
    assert results(body, [NUMBERS], 64)[0] == [100 + i + shift if i + shift >= 0 else 7 for i in range(64)]


@pytest.mark.parametrize("shift", [-1, -40, 1])
@pytest.mark.parametrize("how", ["add.s32 %x3, %x2, %x4; ld.shared.u32 %x6, [%x3{}];"])
def test_inactive_lanes_may_address_shared_memory_before_its_start(shift, how):
    body = "shl.b32 %x4, %t, 2; mov.u32 %x2, s; add.s32 %x3, %x2, %x4; st.shared.u32 [%x3], %i; bar.sync 0;"
    body += f"mov.u32 %x6, 7; add.s32 %x1, %t, {shift}; setp.ge.u32 %p1, %x1, 64;\n@%p1 bra OFF;\n"
    offset = f"+{4 * shift}" if shift > 0 else str(4 * shift)
    found, _ = results(
        body + how.format(offset) + "\nOFF: st.global.u32 [%out], %x6;",
        block=64,
        variables=".shared .align 4 .b8 s[256];",
    )
    assert found == [i + shift if 0 <= i + shift < 64 else 7 for i in range(64)]


def test_an_index_of_8_bits_wraps_around_in_active_lanes():
    table = np.arange(1000, 1256, dtype=np.uint32)
    body = "add.s32 %x1, %t, 250; cvt.u64.u8 %y1, %x1; shl.b64 %y1, %y1, 2; add.s64 %y2, %a0, %y1;"
    found, _ = results(body + "ld.global.u32 %x2, [%y2]; st.global.u32 [%out], %x2;", [table], 64)
    assert found == [1000 + (i + 250) % 256 for i in range(64)]


def test_a_narrow_number_is_cut_from_a_wide_register():
    body = "mov.u32 %x1, %lanemask_lt; cvt.u32.u8 %x2, %x1; cvt.s32.s8 %x3, %x1; shl.b32 %x3, %x3, 8;"
    found, _ = results(body + "xor.b32 %x2, %x2, %x3; st.global.u32 [%out], %x2;")
    low = [((1 << i) - 1) & 255 for i in range(32)]
    assert found == [(n ^ (n - 256 * (n > 127)) << 8) & 0xFFFFFFFF for n in low]


def test_distances_that_wrap_around_a_register():
    # All lanes of the product seem to be a multiple of 2 ** 35 apart from lane 0 of each warp.
    body = "shl.b32 %x1, %t, 29; shr.u32 %x2, %x1, 29; st.global.u32 [%out], %x2;"
    assert results(body, block=64)[0] == [i & 7 for i in range(64)]


def test_shifts_by_the_width_or_more():
    body = "shl.b32 %x1, 5, %t; mov.u32 %x9, -8; shr.u32 %x2, %x9, %t; "
    body += "shr.s32 %x3, %x9, %t; add.s32 %x4, %x1, %x2;"
    found, _ = results(body + "add.s32 %x4, %x4, %x3; st.global.u32 [%out], %x4;", block=64)
    high = (1 << 32) - 8
    assert found == [((5 << i if i < 32 else 0) + (high >> i) + (-8 >> i)) & 0xFFFFFFFF for i in range(64)]


def test_divisions_by_zero_in_inactive_lanes():
    body = "mov.u32 %x2, 99; setp.eq.u32 %p1, %t, 0;\n@%p1 bra OFF;\n"
    body += "div.s32 %x2, 1000, %t; rem.s32 %x3, 1000, %t; cvt.u64.u32 %y1, %t; div.u64 %y2, 5000, %y1;"
    body += (
        "cvt.u32.u64 %x4, %y2; add.s32 %x2, %x2, %x3; add.s32 %x2, %x2, %x4;\nOFF: st.global.u32 [%out], %x2;"
    )
    assert results(body)[0] == [99, *(1000 // i + 1000 % i + 5000 // i for i in range(1, 32))]


def test_scopes_of_registers():
    body = """mov.u32 %x1, %t; { .reg .b32 %x1; .reg .pred %p1; mov.u32 %x1, 5; setp.eq.u32 %p1, %x1, 5;
    { .reg .b32 %x1; mov.u32 %x1, 9; } @%p1 add.s32 %x2, %x1, 1; } add.s32 %x3, %x1, %x2;
    { .reg .b32 %x1; mov.u32 %x1, 100; add.s32 %x3, %x3, %x1; } st.global.u32 [%out], %x3;"""
    assert results(body)[0] == [i + 6 + 100 for i in range(32)]


def test_ordered_and_unordered_comparisons():
    nan, body = "0f7FC00000", "and.b32 %x1, %t, 1; cvt.rn.f32.u32 %x2, %x1; setp.eq.u32 %p1, %x1, 0;"
    body += f"selp.b32 %x2, {nan}, %x2, %p1; mov.u32 %x3, 0;"
    for i, how in enumerate(("ne", "neu", "lt", "ltu", "num", "nan")):
        body += f"setp.{how}.f32 %p2, %x2, 0f40000000; @%p2 or.b32 %x3, %x3, {1 << i};"
    assert results(body + "st.global.u32 [%out], %x3;")[0] == [0b101010, 0b011111] * 16


@pytest.mark.parametrize("choice", ["%ntid.x, 32", "%tid.y, 0"])
def test_a_choice_between_equal_constants_is_written(choice):
    body = f"""setp.ge.u32 %p2, %t, 8; setp.eq.u32 %p3, %c, 1;
    @%p2 bra A;
    selp.b32 %x1, {choice}, %p3; bra B;
    A: mov.u32 %x1, 9;
    B: st.global.u32 [%out], %x1;"""
    assert results(body)[0] == [int(choice.split()[1])] * 8 + [9] * 24


def test_round_down_makes_a_power_of_two():
    # How expf splits its operand: a sum with 1.5 * 2 ** 23 rounded down has the floor in its lowest bits.
    body = "cvt.rn.f32.s32 %x1, %t; fma.rm.f32 %x2, %x1, 0fBF400000, 0f4B400000; and.b32 %x3, %x2, 255;"
    found, _ = results(body + "st.global.u32 [%out], %x3;")
    assert found == [(-(3 * i) // 4) & 255 for i in range(32)]


@pytest.mark.parametrize("step", [1, 2, 3, 40])
def test_masked_loads_end_with_the_array(step):
    numbers = np.arange(4096, dtype=np.uint32)  # 16 KB: memory right after it must not be read
    first = 4096 - 20 * step
    body = f"setp.ge.u32 %p1, %t, 20;\n@%p1 bra OFF;\nmul.lo.s32 %x1, %t, {step}; add.s32 %x1, %x1, {first};"
    body += "mul.wide.u32 %y1, %x1, 4; add.s64 %y2, %a0, %y1; ld.global.u32 %x2, [%y2];"
    found, _ = results(body + "\nst.global.u32 [%out], %x2;\nOFF:", [numbers])
    assert found == [first + step * i for i in range(20)] + [0] * 12


def test_an_unset_register():
    body = "setp.lt.u32 %p1, %t, 9;\n@%p1 mov.u32 %x1, 4;\nadd.s32 %x2, %x1, %x9; xor.b32 %x3, %x2, %x2;"
    assert results(body + "st.global.u32 [%out], %x3;")[0] == [0] * 32


def test_a_carry_in_some_lanes():
    body = "sub.s32 %x1, 0, %t; add.cc.u32 %x2, %x1, 4; addc.cc.u32 %x3, 7, 0; addc.u32 %x4, 0, 0;"
    body += "sub.cc.u32 %x5, %t, 4; subc.u32 %x6, 0, 0; shl.b32 %x3, %x3, 4; xor.b32 %x3, %x3, %x6;"
    found, _ = results(body + "xor.b32 %x3, %x3, %x2; st.global.u32 [%out], %x3;")
    assert found == [
        ((7 + ((-i & 0xFFFFFFFF) + 4 >> 32)) << 4 ^ -(i < 4) ^ (4 - i)) & 0xFFFFFFFF for i in range(32)
    ]


def test_control_flow_without_a_source_form():
    """Two ways into a loop, and a jump from one branch into the other."""
    body = """and.b32 %x1, %t, 7; mov.u32 %x2, 0; and.b32 %x5, %t, 1; setp.eq.u32 %p1, %x5, 0;
    @%p1 bra SECOND;
    FIRST: add.s32 %x2, %x2, 10; setp.eq.u32 %p2, %x1, 5;
    @%p2 bra OUT;
    SECOND: add.s32 %x2, %x2, 1; setp.eq.u32 %p3, %x1, 0;
    @%p3 bra DONE;
    sub.s32 %x1, %x1, 1; and.b32 %x6, %x1, 1; setp.eq.u32 %p4, %x6, 1;
    @%p4 bra FIRST;
    bra SECOND;
    OUT: add.s32 %x2, %x2, 1000;
    DONE: st.global.u32 [%out], %x2;"""

    def thread(i):
        left, total, at = i & 7, 0, "FIRST" if i & 1 else "SECOND"
        while True:
            if at == "FIRST":
                total += 10
                if left == 5:
                    return total + 1000
            total += 1
            if left == 0:
                return total
            left -= 1
            at = "FIRST" if left & 1 else "SECOND"

    assert results(body, block=64)[0] == [thread(i) for i in range(64)]


@pytest.mark.parametrize("block", [32, 40, 64])
def test_a_branch_on_a_load_of_some_lanes(block):
    # The others have loaded nothing, and their own condition is always false.
    body = """and.b32 %x1, %i, 3; setp.eq.u32 %p1, %x1, 1; mov.u32 %x4, 7;
    @!%p1 bra MEET;
    ld.global.u32 %x2, [%out];
    add.u32 %x2, %x2, %i;
    MEET:
    and.b32 %x3, %x2, 4; setp.ne.u32 %p2, %x3, 0; and.pred %p3, %p1, %p2;
    @!%p3 bra END;
    mov.u32 %x4, 8;
    END: st.global.u32 [%out], %x4;"""
    # Each finds 0 there.
    assert results(body, block=block)[0] == [8 if i & 3 == 1 and i & 4 else 7 for i in range(block)]


@pytest.mark.parametrize("seed", range(12))
def test_arbitrary_control_flow(seed):
    """Blocks that branch anywhere, by a lane's value, several times."""
    rng, count = random.Random(seed), 9
    blocks = [
        (rng.randrange(99), rng.choice([1, 2, 3]), rng.randrange(count), rng.randrange(count))
        for _ in range(count)
    ]
    body = "mov.u32 %x1, %i; mov.u32 %x2, 30;\n"
    for i, (add, bit, yes, no) in enumerate(blocks):
        body += f"B{i}: mad.lo.s32 %x1, %x1, 5, {add}; sub.s32 %x2, %x2, 1; "
        body += "setp.eq.s32 %p1, %x2, 0;\n@%p1 bra END;\n"
        body += f"shr.u32 %x3, %x1, {bit}; and.b32 %x3, %x3, 1; setp.ne.u32 %p2, %x3, 0;\n"
        body += f"@%p2 bra B{yes};\nbra B{no};\n" if seed % 3 else f"@%p2 bra B{yes};\n"
    body += "END: st.global.u32 [%out], %x1;"

    def thread(i):
        number, at = i, 0
        for _ in range(30):
            if at == count:
                break
            add, bit, yes, no = blocks[at]
            number = (number * 5 + add) & 0xFFFFFFFF
            at = yes if number >> bit & 1 else no if seed % 3 else at + 1
        return number

    assert results(body, block=48, grid=2)[0] == [thread(i) for i in range(96)]
