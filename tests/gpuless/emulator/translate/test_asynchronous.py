"""Asynchronous copies and barriers in memory, against the values that each thread should see."""

import numpy as np
import pytest
from ptx_programs import results, run

from gpuless.emulator.run import faults

STORE = "st.global.u32 [%out], %x9;"
SHARED = ".shared .align 16 .b8 buffer[8192]; .shared .align 8 .b64 bar; .shared .align 8 .b64 other;"


# --- Copies -----------------------------------------------------------------------------------------------


def copied(instruction, size, block, wanted_sizes=None):
    """Return the bytes that each thread copies, over memory filled with nines."""
    rng = np.random.default_rng(size)
    source = rng.integers(0, 256, (block, size), np.uint8)
    sizes = np.array(wanted_sizes or [size] * block, np.uint32)
    out = np.zeros((block, size), np.uint8)
    words = size // 4
    text = f"""{SHARED}
.visible .entry f(.param .u64 p0, .param .u64 p1, .param .u64 p2)
{{ .reg .b32 %x<20>, %t; .reg .b64 %a<9>, %y; .reg .pred %p;
ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1]; ld.param.u64 %a2, [p2]; mov.u32 %t, %tid.x;
mul.wide.u32 %y, %t, 4; add.s64 %a1, %a1, %y; ld.global.u32 %x1, [%a1]; setp.eq.u32 %p, %x1, 0;
mul.wide.u32 %y, %t, {size}; add.s64 %a0, %a0, %y; add.s64 %a2, %a2, %y;
mov.u32 %x2, buffer; mad.lo.u32 %x2, %t, {size}, %x2; mov.u32 %x3, 0x09090909;
{"".join(f"st.shared.u32 [%x2+{4 * i}], %x3;" for i in range(words))}
{instruction}
{"".join(f"ld.shared.u32 %x4, [%x2+{4 * i}]; st.global.u32 [%a2+{4 * i}], %x4;" for i in range(words))}
ret; }}"""
    found = run(text, [source, sizes, out], block=(block, 1, 1))[-1]
    wanted = source.copy()
    for row, count in zip(wanted, sizes, strict=True):
        row[count:] = 0
    return found, wanted


@pytest.mark.parametrize("block", [64, 40])
@pytest.mark.parametrize("size", [4, 8, 16])
def test_copies_to_shared_memory(size, block):
    end = "cp.async.commit_group; cp.async.wait_group 0;"
    found, wanted = copied(f"cp.async.ca.shared.global [%x2], [%a0], {size}; {end}", size, block)
    assert (found == wanted).all()
    sizes = [i % (size + 1) for i in range(block)]
    copy = f"cp.async.ca.shared.global.L2::128B [%x2], [%a0], {size}, %x1; cp.async.wait_all;"
    found, wanted = copied(copy, size, block, sizes)
    assert (found == wanted).all()
    sizes = [size * (i % 3 > 0) for i in range(block)]
    found, wanted = copied(f"cp.async.ca.shared.global [%x2], [%a0], {size}, %p; {end}", size, block, sizes)
    assert (found == wanted).all()
    hint = "createpolicy.fractional.L2::evict_last.b64 %y, 1.0;"
    hint += f"cp.async.ca.shared.global.L2::cache_hint [%x2], [%a0], {size}, %x1, %y; {end}"
    found, wanted = copied(hint, size, block, sizes)
    assert (found == wanted).all()


@pytest.mark.parametrize("moved", ["add.u32 %x2, %x2, 4;", "add.s64 %a0, %a0, 4;"])
def test_a_copy_is_of_aligned_bytes(moved):
    with pytest.raises(faults.Fault, match="misaligned"):
        copied(f"{moved} cp.async.ca.shared.global [%x2], [%a0], 16; cp.async.wait_all;", 16, 32)


def test_a_copy_of_nothing_reads_nothing():
    """Programs give a wild address when they copy no byte, at the edge of an array."""
    found, wanted = copied(
        "mov.u64 %a0, 64; cp.async.cg.shared.global [%x2], [%a0], 16, 0;", 16, 32, [0] * 32
    )
    assert (found == wanted).all()


def test_copies_by_lanes_that_are_there():
    copy = "setp.ge.u32 %p, %t, 7; @%p bra MORE; cp.async.cg.shared.global [%x2], [%a0], 16;\nMORE:"
    found, wanted = copied(copy, 16, 32)
    assert (found[:7] == wanted[:7]).all()
    assert (found[7:] == 9).all()


# --- Barriers ---------------------------------------------------------------------------------------------

INIT = "setp.eq.u32 %p1, %t, 0; mov.u32 %x1, bar; mov.u32 %x2, other;"


def init(count):
    return f"{INIT} @%p1 mbarrier.init.shared.b64 [%x1], {count}; bar.sync 0;"


def wait(parity):
    return f"W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%x1], {parity};\n@!%p2 bra W;\n"


@pytest.mark.parametrize("how", ["try_wait", "test_wait"])
def test_threads_wait_for_each_other(how):
    """Ten phases: each thread writes, and reads what a thread of another warp has written."""
    block = 96
    body = init(block) + "mov.u32 %x3, 0; mov.u32 %x9, 0; mov.u32 %x4, buffer;\n"
    body += "LOOP: mad.lo.u32 %x5, %x3, 1000, %t; mad.lo.u32 %x6, %t, 4, %x4; st.shared.u32 [%x6], %x5;\n"
    body += "mbarrier.arrive.shared.b64 %y1, [%x1];\n"
    body += f"W1: mbarrier.{how}.shared.b64 %p2, [%x1], %y1;\n@!%p2 bra W1;\n"
    body += f"add.u32 %x5, %t, 41; rem.u32 %x5, %x5, {block}; mad.lo.u32 %x6, %x5, 4, %x4;"
    body += "ld.shared.u32 %x7, [%x6]; add.u32 %x9, %x9, %x7; mbarrier.arrive.shared.b64 %y1, [%x1];\n"
    body += f"W2: mbarrier.{how}.shared.b64 %p2, [%x1], %y1;\n@!%p2 bra W2;\n"
    body += "add.u32 %x3, %x3, 1; setp.lt.u32 %p3, %x3, 10; @%p3 bra LOOP;\n"
    found, _ = results(body + STORE, block=block, variables=SHARED)
    assert found == [45000 + 10 * ((i + 41) % block) for i in range(block)]


@pytest.mark.parametrize("how", ["try_wait", "test_wait"])
@pytest.mark.parametrize("last", ["waits", "arrives"])
def test_lanes_wait_for_one_that_goes_another_way(how, last):
    """Whichever way the warp goes first."""
    ways = {
        "waits": f"mbarrier.arrive.shared.b64 _, [%x1];\n{wait(0).replace('try_wait', how)} mov.u32 %x9, 5;",
        "arrives": "mbarrier.arrive.shared.b64 _, [%x1]; mov.u32 %x9, 7;",
    }
    body = init(64) + f"setp.eq.u32 %p3, %t, 3;\n@{'!' * (last == 'arrives')}%p3 bra FIRST;\n"
    first = next(way for way in ways if way != last)
    body += f"{ways[last]} bra END;\nFIRST: {ways[first]}\nEND: {STORE}"
    found, _ = results(body, block=64, variables=SHARED)
    assert found == [7 if i == 3 else 5 for i in range(64)]


def test_producers_and_consumers():
    """One warp fills two buffers in turn, three others use them: two barriers each, waits by parity."""
    block, rounds = 128, 9
    names = [".shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2];", SHARED]
    body = f"""{INIT} mov.u32 %x10, full; mov.u32 %x11, empty; mov.u32 %x12, buffer; mov.u32 %x9, 0;
@%p1 mbarrier.init.shared.b64 [%x10], 32; @%p1 mbarrier.init.shared.b64 [%x10+8], 32;
@%p1 mbarrier.init.shared.b64 [%x11], 96; @%p1 mbarrier.init.shared.b64 [%x11+8], 96;
bar.sync 0; mov.u32 %x3, 0; setp.ge.u32 %p4, %t, 32; and.b32 %x13, %t, 31;
@%p4 bra CONSUME;
PRODUCE: and.b32 %x4, %x3, 1; shl.b32 %x5, %x4, 3; add.u32 %x6, %x11, %x5; add.u32 %x7, %x10, %x5;
shr.u32 %x8, %x3, 1; xor.b32 %x8, %x8, 1; and.b32 %x8, %x8, 1;
PW: mbarrier.try_wait.parity.shared.b64 %p2, [%x6], %x8;
@!%p2 bra PW;
mad.lo.u32 %x14, %x4, 32, %x13; mad.lo.u32 %x14, %x14, 4, %x12; mad.lo.u32 %x15, %x3, 100, %x13;
st.shared.u32 [%x14], %x15; mbarrier.arrive.shared.b64 _, [%x7];
add.u32 %x3, %x3, 1; setp.lt.u32 %p3, %x3, {rounds};
@%p3 bra PRODUCE;
bra END;
CONSUME: and.b32 %x4, %x3, 1; shl.b32 %x5, %x4, 3; add.u32 %x6, %x11, %x5; add.u32 %x7, %x10, %x5;
shr.u32 %x8, %x3, 1; and.b32 %x8, %x8, 1;
CW: mbarrier.try_wait.parity.shared.b64 %p2, [%x7], %x8, 1000000;
@!%p2 bra CW;
xor.b32 %x14, %x13, 5; mad.lo.u32 %x14, %x4, 32, %x14; mad.lo.u32 %x14, %x14, 4, %x12;
ld.shared.u32 %x15, [%x14]; mad.lo.u32 %x9, %x9, 3, %x15; mbarrier.arrive.shared.b64 _, [%x6];
add.u32 %x3, %x3, 1; setp.lt.u32 %p3, %x3, {rounds};
@%p3 bra CONSUME;
END: {STORE}"""
    found, _ = results(body, block=block, variables="".join(names))
    wanted = []
    for i in range(block):
        total = 0
        for j in range(rounds if i >= 32 else 0):
            total = total * 3 + j * 100 + ((i & 31) ^ 5) & 0xFFFFFFFF
        wanted.append(total)
    assert found == wanted


def test_counts_of_a_barrier():
    """The pending count before each arrival; arrivals of several; and one thread that drops out."""
    body = init(100) + "mbarrier.arrive.noComplete.shared.b64 %y1, [%x1], 2;"
    body += "mbarrier.pending_count.b64 %x9, %y1;" + STORE
    assert results(body, variables=SHARED)[0] == [100 - 2 * i for i in range(32)]
    # 64 threads, the last 32 of which drop out in the first phase: the next one is over without them.
    body = init(64) + "setp.ge.u32 %p3, %t, 32;\n@%p3 bra DROP;\n"
    body += "mbarrier.arrive.shared.b64 %y1, [%x1];\nW1: mbarrier.try_wait.shared.b64 %p2, [%x1], %y1;\n"
    body += "@!%p2 bra W1;\nmbarrier.arrive.shared.b64 %y1, [%x1];\n"
    body += "mbarrier.pending_count.b64 %x9, %y1;\nW2: mbarrier.try_wait.shared.b64 %p2, [%x1], %y1;\n"
    body += "@!%p2 bra W2;\nbra END;\nDROP: mbarrier.arrive_drop.shared.b64 %y1, [%x1]; mov.u32 %x9, 7;\n"
    found, _ = results(body + "END: " + STORE, block=64, variables=SHARED)
    assert found == [32 - i for i in range(32)] + [7] * 32


def test_the_parity_shows_which_phase_is_over():
    body = init(1) + "mov.u32 %x9, 0;\n@!%p1 bra END;\n"
    for i in range(6):
        parity = i % 2
        ask = f"mbarrier.test_wait.parity.shared.b64 %p2, [%x1], {parity}; selp.u32 %x3, 1, 0, %p2;"
        body += ask + "mad.lo.u32 %x9, %x9, 2, %x3; mbarrier.arrive.shared.b64 _, [%x1];" + ask
        body += "mad.lo.u32 %x9, %x9, 2, %x3;\n"
    found, _ = results(body + f"mbarrier.inval.shared.b64 [%x1];\nEND: {STORE}", variables=SHARED)
    assert found[0] == 0b010101010101


def test_expected_bytes():
    """A bulk copy counts its bytes; the phase is over after these and the arrival."""
    source = np.arange(256, dtype=np.uint32)
    body = init(1) + "mov.u32 %x3, buffer;\n@!%p1 bra WAIT;\n"
    body += "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%x1], 1024;\n"
    body += "mbarrier.test_wait.parity.shared.b64 %p3, [%x1], 0; selp.u32 %x8, 5000, 0, %p3;"
    body += "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%x3], [%a0], 512, [%x1];"
    body += "add.u32 %x4, %x3, 512; add.s64 %y2, %a0, 512; mov.u32 %x5, 512;"
    body += "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%x4], [%y2], %x5, [%x1];\n"
    body += (
        "WAIT:\n" + wait(0) + "xor.b32 %x6, %t, 37; mad.lo.u32 %x6, %x6, 4, %x3; ld.shared.u32 %x9, [%x6];"
    )
    body += "@%p1 add.u32 %x9, %x9, %x8;" + STORE
    found, _ = results(body, [source], block=256, variables=SHARED)
    assert found == [i ^ 37 for i in range(256)]
    # Expected and completed by hand, too many and too few.
    body = (
        init(1) + "mov.u32 %x9, 0;\n@!%p1 bra END;\nmbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%x1], 48;"
    )
    ask = "mbarrier.test_wait.parity.shared.b64 %p2, [%x1], 0; selp.u32 %x3, 1, 0, %p2;"
    ask += "mad.lo.u32 %x9, %x9, 2, %x3;"
    for step in (
        "arrive.shared.b64 _, [%x1]",
        "complete_tx.shared.b64 [%x1], 16",
        "complete_tx.shared.b64 [%x1], 32",
    ):
        body += f"mbarrier.{step};{ask}"
    assert results(f"{body}\nEND: {STORE}", variables=SHARED)[0][0] == 0b001


def test_a_copy_of_too_many_bytes_is_a_fault():
    """The memory after shared memory belongs to others."""
    body = "mov.u32 %x3, buffer; setp.ne.u32 %p1, %t, 0;\n@%p1 bra END;\n mov.u32 %x5, 0xfffffff0;"
    body += "cp.async.bulk.global.shared::cta.bulk_group [%a0], [%x3], %x5; cp.async.bulk.commit_group;"
    body += f"cp.async.bulk.wait_group 0;\nEND: mov.u32 %x9, 5; {STORE}"
    with pytest.raises(faults.Fault, match="of shared memory, of which the block has 8192"):
        results(body, [np.full(1 << 17, 7, np.uint32)], variables=SHARED)


def test_copies_that_arrive_at_a_barrier():
    source = np.arange(100, 164, dtype=np.uint32)
    body = (
        init(64)
        + "mov.u32 %x3, buffer; mad.lo.u32 %x4, %t, 4, %x3; mul.wide.u32 %y2, %t, 4; add.s64 %y2, %y2, %a0;"
    )
    body += "cp.async.ca.shared.global [%x4], [%y2], 4; {copy}\n" + wait(0)
    body += "xor.b32 %x6, %t, 63; mad.lo.u32 %x6, %x6, 4, %x3; ld.shared.u32 %x9, [%x6];" + STORE
    for copy in (
        "cp.async.mbarrier.arrive.noinc.shared.b64 [%x1];",
        "cp.async.mbarrier.arrive.shared.b64 [%x1]; mbarrier.arrive.shared.b64 _, [%x1];",
    ):
        found, _ = results(body.replace("{copy}", copy), [source], block=64, variables=SHARED)
        assert found == [100 + (i ^ 63) for i in range(64)]


def test_lanes_have_their_own_barriers():
    """Eight barriers, one for the lanes of equal number modulo 8: a lane waits for the other warp's."""
    body = "mov.u32 %x3, buffer; and.b32 %x4, %t, 7; mad.lo.u32 %x1, %x4, 8, %x3; setp.lt.u32 %p1, %t, 8;"
    body += "@%p1 mbarrier.init.shared.b64 [%x1], 8; bar.sync 0; add.u32 %x5, %x3, 1024;"
    body += "mad.lo.u32 %x6, %t, 4, %x5;"
    body += "mul.lo.u32 %x7, %t, 3; st.shared.u32 [%x6], %x7; mbarrier.arrive.shared.b64 %y1, [%x1];\n"
    body += "W1: mbarrier.try_wait.shared.b64 %p2, [%x1], %y1;\n@!%p2 bra W1;\n"
    body += "xor.b32 %x8, %t, 40; mad.lo.u32 %x8, %x8, 4, %x5; ld.shared.u32 %x9, [%x8];"
    found, _ = results(body + STORE, block=64, variables=SHARED)
    assert found == [3 * (i ^ 40) for i in range(64)]


def test_a_barrier_that_nobody_completes_is_an_error():
    body = init(65) + "mbarrier.arrive.shared.b64 %y1, [%x1];\n"
    body += "W1: mbarrier.try_wait.shared.b64 %p2, [%x1], %y1;\n@!%p2 bra W1;\n mov.u32 %x9, 1;"
    with pytest.raises(faults.Fault):
        results(body + STORE, block=64, variables=SHARED)
