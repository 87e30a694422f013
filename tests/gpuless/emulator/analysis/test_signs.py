"""Negative indices that count from the end of an array, as a choice by their sign."""

import numpy as np
import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("about how the emulated GPU reads", allow_module_level=True)

from ptx_programs import HEAD, run

from gpuless.emulator import ptx
from gpuless.emulator.analysis.signs import with_masks
from gpuless.emulator.translate.module import ModuleTranslator

SIZE = 100
#: Thread i reads number `start + step * i`, from the end if that is negative.
READ = """
.visible .entry f(.param .u64 data, .param .u64 out, .param .u64 start, .param .u64 step, .param .u64 size)
{{
    .reg .b32 %r<9>; .reg .b64 %rd<19>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [out];
    ld.param.u32 %r6, [start]; ld.param.u32 %r7, [step]; ld.param.u64 %rd5, [size];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x;
    mad.lo.s32 %r4, %r2, %r3, %r1;
    mad.lo.s32 %r5, %r4, %r7, %r6;
    cvt.s64.s32 %rd6, %r5;
    {choice}
    add.s64 %rd8, %rd7, %rd6; shl.b64 %rd9, %rd8, 2; add.s64 %rd10, %rd1, %rd9;
    ld.global.u32 %r8, [%rd10];
    mul.wide.u32 %rd11, %r4, 4; add.s64 %rd12, %rd2, %rd11; st.global.u32 [%rd12], %r8;
    ret;
}}
"""
CHOICES = {
    "s32": "setp.lt.s32 %p1, %r5, 0; selp.b64 %rd7, %rd5, 0, %p1;",
    "s64": "setp.lt.s64 %p1, %rd6, 0; selp.b64 %rd7, %rd5, 0, %p1;",
    "twice": "setp.lt.s32 %p1, %r5, 0; selp.b64 %rd13, %rd5, 0, %p1; selp.b64 %rd14, %rd13, 0, %p1;"
    "add.s64 %rd7, %rd14, 0;",
    "later": "setp.lt.s32 %p1, %r5, 0; mov.u32 %r5, 7; selp.b64 %rd7, %rd5, 0, %p1;",
    # Not such a choice: a predicate changed meanwhile, the opposite.
    "set again": "setp.lt.s32 %p1, %r4, 0; setp.lt.s32 %p1, %r5, 0; selp.b64 %rd7, %rd5, 0, %p1;",
    "otherwise": "setp.lt.s32 %p1, %r5, 0; not.pred %p2, %p1; selp.b64 %rd7, 0, %rd5, %p2;",
    "guarded": "setp.lt.s32 %p1, %r5, 0; mov.u64 %rd7, 0; setp.eq.s32 %p2, %r5, %r5;"
    "@%p2 selp.b64 %rd7, %rd5, 0, %p1;",
}
#: (start, step): no lane below zero, all, some, and some without the first lane.
RANGES = [(0, 1), (-64, 1), (-20, 1), (30, -1), (-5, 0), (63, -2)]


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize(("start", "step"), RANGES)
@pytest.mark.parametrize("block", [(64, 1), (16, 4), (7, 9)], ids=str)
def test_lanes_read_at_their_index(choice, start, step, block):
    threads = block[0] * block[1]
    data, out = np.arange(SIZE, dtype=np.uint32), np.zeros(threads, np.uint32)
    text = READ.format(choice=choice)
    _, found = run(text, [data, out], block=(*block, 1), numbers=(start, step, SIZE))
    assert found.tolist() == [(start + step * i) % SIZE for i in range(threads)]


def opcodes(choice):
    """Return the names of a kernel's instructions, with and without masks for choices."""
    function = ptx.parse(HEAD + READ.format(choice=choice)).functions["f"]
    return [[each.opcode[0] for each in one.body] for one in (with_masks(function), function)]


@pytest.mark.parametrize("name", CHOICES)
def test_only_a_choice_by_sign_becomes_a_mask(name):
    masked, before = opcodes(CHOICES[name])
    assert (masked != before) == (name in ("s32", "s64", "twice", "later", "guarded"))
    assert ("selp" in masked) == (masked == before)


#: The sum of what each round chooses by the sign of the number of the round before.
ROUNDS = """
.visible .entry f(.param .u64 out)
{
    .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u64 %rd2, 0;
    setp.ne.u32 %p1, %r1, %r1;
    bra LOOP;
AGAIN:
    setp.lt.s32 %p2, %r3, 0;
    add.u32 %r2, %r2, 1;
    setp.eq.u32 %p3, %r2, 10;
    @%p3 bra END;
LOOP:
    sub.s32 %r4, %r1, 7; add.s32 %r3, %r4, %r2;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra AGAIN;
    selp.b64 %rd3, 100, 0, %p2;
    add.s64 %rd2, %rd2, %rd3;
    bra AGAIN;
END:
    mul.wide.u32 %rd4, %r1, 8; add.s64 %rd5, %rd1, %rd4; st.global.u64 [%rd5], %rd2;
    ret;
}
"""


def test_the_sign_comes_from_the_compared_number():
    (found,) = run(ROUNDS, [np.zeros(32, np.uint64)])
    assert found.tolist() == [sum(100 for n in range(9) if i - 7 + n < 0) for i in range(32)]


@pytest.mark.parametrize(
    ("choice", "one_by_one"), [(CHOICES["s32"], False), (CHOICES["otherwise"], True)], ids=["mask", "choice"]
)
def test_lanes_with_a_mask_count_as_neighbours(choice, one_by_one):
    text = READ.format(choice=choice).replace("mad.lo.s32 %r5, %r4, %r7, %r6", "add.s32 %r5, %r4, %r6")
    text = ModuleTranslator(ptx.parse(HEAD + text), "f", (64, 1, 1)).translate()
    assert ("= load <32 x i32>" not in text) == one_by_one


def test_a_thread_id_is_never_negative():
    choice = "setp.lt.s32 %p1, %r1, 0; selp.b64 %rd7, 12345678, 1, %p1;"
    text = ModuleTranslator(ptx.parse(HEAD + READ.format(choice=choice)), "f", (64, 1, 1)).translate()
    assert "12345678" not in text
