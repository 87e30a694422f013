"""Faults: a kernel ends with an error that says where, and the next one runs."""

import ctypes
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from driver_programs import run as run_program
from fresh_python import program_text, python, python_on_the_emulated_gpu
from ptx_programs import DECLARED, HEAD, STORE, WAIT, DeviceArray, apply, run, workers

from gpuless.emulator import ptx
from gpuless.emulator.ptx import PtxError
from gpuless.emulator.run import faults, launch
from gpuless.emulator.run.faults import Fault
from gpuless.emulator.run.threads import all_done
from gpuless.emulator.translate import layout
from gpuless.limits import RUNNING

GOOD = STORE.replace("BODY", "st.global.u32 [%rd3], %r1;")


def at_work(count=0):
    """Wait until blocks of this many workers run; return their records."""
    end = time.monotonic() + 60
    while len(found := [record for record in workers()._records if record.launch]) < count:
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


@pytest.fixture
def goes_on():
    """After any fault the next kernel runs."""
    yield
    (found,) = run(GOOD, [np.zeros(64, np.uint32)], block=(64, 1, 1))
    assert found.tolist() == list(range(64))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "setp.eq.u32 %p1, %r2, 3; @%p1 st.global.u32 [%rd3+1048576], %r1;",
            "past the end of an array of 256 bytes",
        ),
        (
            "ld.global.u32 %r3, [%rd3+-1048576]; st.global.u32 [%rd3], %r3;",
            "bytes before an array of 256 bytes",
        ),
        ("mov.u64 %rd4, 0; st.global.u32 [%rd4], %r1;", "illegal memory access"),
        ("mov.u64 %rd4, 12345680; st.u32 [%rd4], %r1;", "illegal memory access"),
        (
            "mul.lo.s64 %rd4, %rd3, 77777; ld.u32 %r3, [%rd4]; st.global.u32 [%rd3], %r3;",
            "illegal memory access",
        ),
        ("mul.lo.s64 %rd4, %rd3, 77777; st.u32 [%rd4], %r1;", "illegal memory access"),
        (
            "mov.u64 %rd4, 0x550000001230; ld.global.u32 %r3, [%rd4]; st.global.u32 [%rd3], %r3;",
            "reading 4 bytes at 0x550000001230, no address of the GPU's memory: is it the host's?",
        ),
    ],
    ids=["behind", "before", "null", "wild", "wild gather", "wild scatter", "host"],
)
@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"], ids=["", "barrier"])
def test_an_illegal_address(body, words, barrier, goes_on):
    with pytest.raises(Fault, match=words) as caught:
        run(
            STORE.replace("BODY", barrier + body), [np.zeros(64, np.uint32)], grid=(4, 1, 1), block=(64, 1, 1)
        )
    assert caught.value.kind == "address"
    assert "kernel f, block (" in str(caught.value)


def test_the_block_is_the_one_that_did_it(goes_on):
    body = "setp.eq.u32 %p1, %r2, 3; @%p1 st.global.u32 [%rd3+1048576], %r1;"
    with pytest.raises(Fault, match=r"block \(3, 0, 0\), thread \(0, 0, 0\)"):
        run(STORE.replace("BODY", body), [np.zeros(32, np.uint32)], grid=(5, 1, 1))


def test_a_trap(goes_on):
    body = "setp.eq.u32 %p1, %r2, 2; @%p1 trap;"
    with pytest.raises(Fault, match=r"a trap: kernel f, block \(2, 0, 0\)") as caught:
        run(STORE.replace("BODY", body), [np.zeros(32, np.uint32)], grid=(4, 1, 1))
    assert caught.value.kind == "trap"


def test_a_barrier_that_other_warps_never_reach(goes_on):
    body = "setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 1, 64; @!%p1 bar.sync 2, 64;"
    with pytest.raises(Fault, match="wait at barriers that others will not reach") as caught:
        run(STORE.replace("BODY", body), [np.zeros(64, np.uint32)], block=(64, 1, 1))
    assert caught.value.kind == "barrier"


LINEAR = "mad.lo.u32 %r1, %r1, 1664525, 1013904223; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3,"


def test_a_failing_block_ends_blocks_that_wait_for_it(monkeypatch, goes_on):
    """Block 1 waits for a number that block 0 fails to write, after some time."""
    monkeypatch.setattr(RUNNING, "kernel_seconds", 20)
    body = f"""setp.ne.u32 %p1, %r2, 0; @%p1 bra L; mov.u32 %r3, 0; M: {LINEAR} 100000000; @%p1 bra M;
        st.global.u32 [%rd3+1048576], %r1; st.global.u32 [%rd3+128], 1; {WAIT}"""
    with pytest.raises(Fault, match=r"block \(0, 0, 0\), thread \(0, 0, 0\)") as caught:
        run(STORE.replace("BODY", body), [np.zeros(64, np.uint32)], grid=(2, 1, 1))
    assert caught.value.kind == "address"


def test_a_launch_behind_a_longer_one_does_not_count_as_endless(monkeypatch):
    """Each block of the longer one takes a fraction of the limit, all together several times the limit."""
    monkeypatch.setattr(RUNNING, "kernel_seconds", 0.75)
    body = f"mov.u32 %r3, 0; L: {LINEAR} 200000; @%p1 bra L; st.global.u32 [%rd3], %r1;"
    with ThreadPoolExecutor(1) as other:
        longer = other.submit(run, STORE.replace("BODY", body), [np.zeros(32, np.uint32)], (8192, 1, 1))
        at_work(1)
        begun = time.monotonic()
        (found,) = run(GOOD, [np.zeros(64, np.uint32)], block=(64, 1, 1))
        assert time.monotonic() - begun > 0.75
        longer.result()
    assert found.tolist() == list(range(64))


def test_a_launch_behind_another_is_interrupted_at_once(monkeypatch, goes_on):
    """The other launch has all threads for blocks, and continues."""
    monkeypatch.setattr(RUNNING, "kernel_seconds", 20)
    interrupts = [KeyboardInterrupt()]

    def interrupted(tasks, seconds):
        if interrupts and threading.current_thread() is threading.main_thread():
            raise interrupts.pop()
        return all_done(tasks, seconds)

    with ThreadPoolExecutor(1) as other:
        longer = other.submit(run, STORE.replace("BODY", WAIT), [np.zeros(64, np.uint32)], (4096, 1, 1))
        (of_the_other,) = {record.launch for record in at_work(workers().count)}
        monkeypatch.setattr(launch, "all_done", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(GOOD, [np.zeros(64, np.uint32)], block=(64, 1, 1))
        stop = ctypes.c_uint32.from_address(of_the_other + layout.LAUNCH["stop"])
        assert not stop.value
        for record in at_work():
            faults.stop(record.address)  # as if it were still in a stopped launch
        time.sleep(0.1)
        assert {record.launch for record in at_work()} == {of_the_other}
        stop.value = 1
        for record in at_work():
            faults.stop(record.address)
        with pytest.raises(Fault):
            longer.result()


def test_two_launches_may_wait_for_each_other(monkeypatch):
    """Spinning blocks of one launch have all threads; the other gets additional ones."""
    monkeypatch.setattr(RUNNING, "kernel_seconds", 20)
    text = """.visible .entry f(.param .u64 p0, .param .u64 p1) {
        .reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .pred %p1; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
        st.volatile.global.u32 [%rd1], 1;
        L: ld.volatile.global.u32 %r1, [%rd2]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret; }"""
    kernel = launch.Kernel(ptx.parse(HEAD + text), "f")
    one, other = (DeviceArray(np.zeros(1, np.uint32)) for _ in range(2))
    begun = []
    with ThreadPoolExecutor(2) as threads:
        for first, second in ((one, other), (other, one)):
            given = first.address.to_bytes(8, "little") + second.address.to_bytes(8, "little")
            begun.append(threads.submit(workers().launch, kernel, (64, 1, 1), (512, 1, 1), given))
            at_work(workers().count)
        for launched in begun:
            launched.result()
    assert one.read().tolist() == other.read().tolist() == [1]
    one.free()
    other.free()


IN_SHARED = """.shared .align 16 .b8 s[128];
.visible .entry f(.param .u64 p0, .param .u64 p1)
{
    .reg .b32 %r<4>; .reg .b64 %rd<9>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3; mov.u64 %rd5, s; cvta.shared.u64 %rd6, %rd5; mul.wide.u32 %rd7, %r1, 1;
    BODY
    st.global.u32 [%rd4], %r2;
    ret;
}
"""


@pytest.mark.parametrize(
    ("body", "step", "byte", "thread"),
    [
        ("mad.lo.s64 %rd8, %rd7, %rd2, %rd5; st.shared.u32 [%rd8], %r1;", 4000, 8000, 2),
        (
            "mad.lo.s64 %rd8, %rd7, %rd2, %rd5; st.shared.u32 [%rd8], %r1;",
            (1 << 42) + 8000,
            (1 << 42) + 8000,
            1,
        ),
        ("mad.lo.s64 %rd8, %rd7, %rd2, %rd5; ld.shared.u32 %r2, [%rd8];", -4, -4, 1),
        ("mad.lo.s64 %rd8, %rd7, %rd2, %rd6; st.u32 [%rd8], %r1;", 4000, 8000, 2),
        ("add.s64 %rd8, %rd5, %rd2; ld.shared.u32 %r2, [%rd8];", 4096, 4096, 0),
        ("add.s64 %rd8, %rd5, %rd2; atom.shared.add.u32 %r2, [%rd8], 1;", 200000, 200000, 0),
        ("add.s64 %rd8, %rd5, %rd3; ld.shared.u32 %r2, [%rd8+8192];", 0, 8192, 0),
    ],
)
def test_shared_memory_beyond_the_request_is_a_fault(body, step, byte, thread, goes_on):
    """It is detected in another page of 4096 bytes."""
    text = IN_SHARED.replace("BODY", body).replace("ld.param.u64 %rd2, [p1];", f"mov.u64 %rd2, {step};")
    message = rf"at byte {byte} of shared memory, of which the block has 128: .* thread \({thread}, 0, 0\)"
    with pytest.raises(Fault, match=message):
        run(text.replace(", .param .u64 p1", ""), [np.zeros(64, np.uint32)], block=(64, 1, 1))


@pytest.mark.parametrize(("step", "thread"), [(40000, r"\d+"), (-400, r"\d+"), (1 << 30, "1")])
def test_a_wild_local_address_is_named_as_such(step, thread, goes_on):
    body = f""".local .align 8 .b8 own[128]; mov.u64 %rd4, own; mul.wide.u32 %rd5, %r1, 1;
        mad.lo.s64 %rd5, %rd5, {step}, %rd4; st.local.u32 [%rd5], %r1; ld.local.u32 %r3, [%rd5];
        st.global.u32 [%rd3], %r3;"""
    message = rf"writing 4 bytes outside of a thread's local memory: .* thread \({thread}, 0, 0\)"
    with pytest.raises(Fault, match=message):
        run(STORE.replace("BODY", body), [np.zeros(1024, np.uint32)], block=(1024, 1, 1))


def test_the_size_of_shared_memory_belongs_to_each_launch(goes_on):
    body = (
        "mov.u64 %rd5, more; add.s64 %rd8, %rd5, %rd3; st.shared.u32 [%rd8], %r1; ld.shared.u32 %r2, [%rd8];"
    )
    text = ".extern .shared .align 16 .b8 more[];" + IN_SHARED.replace(".shared .align 16 .b8 s[128];", "")
    text = text.replace("BODY", body).replace("mov.u64 %rd5, s; ", "mov.u64 %rd5, more; ")
    text = text.replace(", .param .u64 p1", "").replace("ld.param.u64 %rd2, [p1];", "")
    for size in (4096, 1 << 17, 4096, 4096):
        (found,) = run(text, [np.zeros(1024, np.uint32)], block=(1024, 1, 1), shared=size)
        assert found.tolist() == list(range(1024))
    with pytest.raises(Fault, match=r"byte 0 .* has 0 \(kernel\[grid, block, stream, bytes\]"):
        run(text, [np.zeros(1024, np.uint32)], block=(1024, 1, 1))
    with pytest.raises(Fault, match=r"byte 4096 .* has 64: "):
        run(text.replace("%rd5, %rd3;", "%rd5, 4096;"), [np.zeros(64, np.uint32)], shared=64)


def test_inactive_lanes_may_have_addresses_beyond_shared_memory():
    """A load for all lanes at once becomes a load for active lanes."""
    body = """mad.lo.s64 %rd8, %rd7, 120, %rd5; setp.lt.u32 %p1, %r1, 2; mov.u32 %r2, 9;
        st.shared.u32 [%rd5], 7; st.shared.u32 [%rd5+120], 8; bar.sync 0;
        @%p1 ld.shared.u32 %r2, [%rd8];"""
    text = (
        IN_SHARED.replace("BODY", body)
        .replace(", .param .u64 p1", "")
        .replace("ld.param.u64 %rd2, [p1];", "")
    )
    (found,) = run(text, [np.zeros(64, np.uint32)], block=(64, 1, 1))
    assert found.tolist() == [7, 8] + [9] * 62


def test_a_large_frame_does_not_step_over_the_end_of_a_stack():
    """The deep stack of warp 1 ends at the stack of warp 0, which waits at a barrier."""
    size, at = 1086, (0, *range(360, 456, 4))
    given = {number: "".join(f"st.param.b32 [c+{i}], {number};" for i in at) for number in ("%r1", "%r2")}
    used = "".join(f"ld.param.u32 %r4, [more+{i}]; add.u32 %r3, %r3, %r4;" for i in at[1:])
    call = """{{ .param .b32 a; .param .align 4 .b8 c[{size}]; .param .b32 b; st.param.b32 [a], {number};
        {given} call (b), g, (a, c); ld.param.b32 %r3, [b]; }}"""
    function = f""".func (.param .b32 out) g(.param .b32 n, .param .align 4 .b8 more[{size}]) {{
        .reg .b32 %r<5>; .reg .pred %p1; ld.param.u32 %r1, [n]; mov.u32 %r3, 0; setp.eq.u32 %p1, %r1, 0;
        @%p1 bra END; sub.u32 %r2, %r1, 1; {call.format(size=size, number="%r2", given=given["%r2"])}
        {used} bra GONE; END: bar.sync 0; GONE: st.param.b32 [out], %r3; ret; }}"""
    body = "setp.lt.u32 %p1, %r1, 32; selp.u32 %r1, 2, 11, %p1;"
    body += call.format(size=size, number="%r1", given=given["%r1"]) + "st.global.u32 [%rd3], %r3;"
    with pytest.raises(Fault, match=r"a stack overflow .* thread \(32, 0, 0\)"):
        run(function + STORE.replace("BODY", body), [np.zeros(64, np.uint32)], block=(64, 1, 1))


def test_a_block_of_1024_threads_has_the_full_local_memory():
    body = """.local .align 8 .b8 own[500000]; mov.u64 %rd4, own; mad.wide.u32 %rd5, %r1, 480, %rd4;
        st.local.u32 [%rd5], %r1; ld.local.u32 %r3, [%rd5]; st.global.u32 [%rd3], %r3;"""
    (found,) = run(STORE.replace("BODY", body), [np.zeros(1024, np.uint32)], block=(1024, 1, 1))
    assert found.tolist() == list(range(1024))


def test_a_kernel_that_prints_endlessly_is_stopped():
    """It calls its host nearly all the time."""
    assert run_program("a_kernel_that_prints_endlessly.py") == ["True"]


def test_an_interrupt_while_a_launch_is_stopped_waits_for_its_end(monkeypatch, goes_on):
    stop, waited = faults.stop, []

    def interrupted(workers, seconds):
        waited.append(seconds)
        if len(waited) == 1:
            time.sleep(0.2)  # the block runs
            raise KeyboardInterrupt("once")
        if len(waited) == 2:
            raise KeyboardInterrupt("again")
        monkeypatch.setattr(faults, "stop", stop)
        return all_done(workers, seconds)

    monkeypatch.setattr(launch, "all_done", interrupted)
    monkeypatch.setattr(faults, "stop", lambda record: None)  # until the block has noticed it
    with pytest.raises(KeyboardInterrupt, match="again"):
        run(STORE.replace("BODY", WAIT), [np.zeros(64, np.uint32)])
    monkeypatch.undo()
    try:
        assert not any(record.launch for record in workers()._records)
    finally:
        for record in workers()._records:
            stop(record.address)


def test_an_interrupt_while_a_block_is_run_again_stops_it(monkeypatch, goes_on):
    """It is run again to find out why it was stopped, and would not end then either."""
    monkeypatch.setattr(RUNNING, "kernel_seconds", 0.5)

    def interrupted(workers, seconds):
        if seconds == launch._STOPPED:
            monkeypatch.setattr(launch, "all_done", all_done)
            at_work(1)
            raise KeyboardInterrupt
        return all_done(workers, seconds)

    monkeypatch.setattr(launch, "all_done", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(STORE.replace("BODY", WAIT), [np.zeros(64, np.uint32)])
    assert not any(record.launch for record in workers()._records)


def test_a_block_that_begins_late_has_ended_none_before(monkeypatch):
    """Its record belonged to another block, of a launch that is over."""
    monkeypatch.setattr(launch, "_PERIOD", 0.01)
    meet = """{ .param .b64 grid; .param .b32 flags; .param .b32 ended; st.param.b64 [grid], 0;
        st.param.b32 [flags], 0; call (ended), cudaCGSynchronize, (grid, flags); }"""
    text = HEAD + DECLARED + STORE.replace("BODY", meet + "st.global.u32 [%rd3], %r1;")
    kernel, array = launch.Kernel(ptx.parse(text), "f"), DeviceArray(np.zeros(64, np.uint32))
    arguments = array.address.to_bytes(8, "little")
    code = kernel.code((32, 1, 1), arguments).code
    begins, late = code.run, iter([0, 0, 0.3])

    def begins_late(*addresses):
        time.sleep(next(late))
        return begins(*addresses)

    workers().launch(kernel, (3, 1, 1), (32, 1, 1), arguments, together=True)
    monkeypatch.setattr(code, "run", begins_late)
    workers().launch(kernel, (3, 1, 1), (32, 1, 1), arguments, together=True)
    assert array.read()[:32].tolist() == list(range(32))
    array.free()


def test_a_barrier_number_that_does_not_exist(goes_on):
    """If numbers differ, that of the first active lane counts."""
    body = "ld.global.u32 %r3, [%rd3]; setp.lt.u32 %p1, %r3, 7; @%p1 bra END; bar.sync %r3, 32;\nEND:"
    run(STORE.replace("BODY", body), [np.array([5] * 8 + [15] * 24, np.uint32)])
    for number in (16, 100_000, 0xFFFFFFFF):
        with pytest.raises(Fault, match=r"a barrier with a number above 15, .*: kernel f, block") as caught:
            run(STORE.replace("BODY", body), [np.array([5] * 8 + [number] * 24, np.uint32)])
        assert caught.value.kind == "trap"
    with pytest.raises(PtxError, match=r"a block has 16 barriers"):
        run(STORE.replace("BODY", "bar.sync 16;"), [np.zeros(32, np.uint32)])


def test_interrupts_may_come_at_any_moment():
    """The second during the handling of the first; also in a launch whose blocks wait for each other."""
    assert python_on_the_emulated_gpu(program_text("interrupts_may_come_at_any_moment.py")) == "stopped\n"


@pytest.mark.parametrize("bits", [32, 64])
def test_no_division_ends_the_process(bits):
    """The least number divided by -1 is out of range, and division by 0 gives anything."""
    least, most, kind = 1 << (bits - 1), (1 << bits) - 1, f"s{bits}"
    for name, wanted in (("div", least), ("rem", 0)):
        found = apply(f"{name}.{kind} %d, %a, %b", [kind, kind], kind, [least, least, 7], [most, 0, 0])
        assert [one[0] for one in found] == [wanted, wanted]


SHARED = """
.extern .shared .align 16 .b8 more[];
.visible .entry f(.param .u64 p0)
{
    .shared .align 4 .b8 s[128];
    .reg .b32 %r<9>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [p0];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 64, %r1;
    mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2;
    mov.u32 %r4, s; mad.lo.u32 %r4, %r1, 4, %r4;
    mov.u32 %r5, more; mad.lo.u32 %r5, %r1, 4, %r5;
    ld.shared.u32 %r6, [%r4]; ld.shared.u32 %r7, [%r5];
    st.global.u32 [%rd3], %r6; st.global.u32 [%rd3+128], %r7;
    st.shared.u32 [%r4], %r1; st.shared.u32 [%r5], %r1;
    ret;
}
"""


def test_shared_memory_holds_nothing_of_the_block_before():
    (found,) = run(SHARED, [np.zeros(64 * 20, np.uint32)], grid=(20, 1, 1), shared=128)
    assert set(found.tolist()) == {0x7FFF7FFF}


MISALIGNED = {
    "of all lanes": "add.s64 %rd4, %rd1, 2; ld.global.u32 %r3, [%rd4]; st.global.u32 [%rd3], %r3;",
    "of each lane": "st.global.u32 [%rd3+2], %r1;",
    "in one lane": "setp.eq.u32 %p1, %r1, 37; selp.b64 %rd4, 6, 0, %p1; add.s64 %rd4, %rd4, %rd1;"
    " ld.global.u32 %r3, [%rd4]; st.global.u32 [%rd3], %r3;",
    "where few are": "setp.eq.u32 %p1, %r1, 37; add.s64 %rd4, %rd3, 1; @%p1 st.global.u16 [%rd4], %r1;",
    "of vectors": "and.b64 %rd4, %rd3, -17; ld.global.v2.u32 {%r3, %r2}, [%rd4+4];"
    " st.global.u32 [%rd3], %r3;",
    "shared": "mov.u32 %r3, s; add.u32 %r3, %r3, 6; st.shared.u64 [%r3], %rd1;",
    "atomic": "add.s64 %rd4, %rd3, 3; red.global.add.u32 [%rd4], 1;",
    "generic": "mad.wide.u32 %rd4, %r1, 3, %rd1; st.u16 [%rd4], %r1;",
}


@pytest.mark.parametrize("name", MISALIGNED)
def test_a_misaligned_address(name, goes_on):
    text = STORE.replace("BODY", MISALIGNED[name]).replace("{\n", "{ .shared .align 8 .b8 s[64];\n", 1)
    thread = {"in one lane": 37, "where few are": 37, "generic": 1}.get(name, 0)
    with pytest.raises(Fault, match=rf"misaligned address, .* thread \({thread}, 0, 0\)") as caught:
        run(text, [np.zeros(128, np.uint32)], block=(64, 1, 1))
    assert caught.value.kind == "misaligned"


ALIGNED = {
    "what is off": "setp.eq.u32 %p1, %r2, 7; add.s64 %rd4, %rd3, 1; @%p1 st.global.u16 [%rd4], %r1;",
    "by the offset": "add.s64 %rd4, %rd3, 2; st.global.u32 [%rd4+2], %r1;",
    "lanes that are off": "and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0; mad.wide.u32 %rd4, %r1, 2, %rd1;"
    " @%p1 st.global.u32 [%rd4], %r1;",
    "a byte": "add.s64 %rd4, %rd3, 3; st.global.u8 [%rd4], %r1;",
}


@pytest.mark.parametrize("name", ALIGNED)
def test_an_aligned_address(name):
    run(STORE.replace("BODY", ALIGNED[name]), [np.zeros(128, np.uint32)], block=(64, 1, 1))


LINES = {
    "misaligned": (r"a misaligned address, reading 4 bytes at 0x.*2, no multiple of 4", "(0, 0, 0)"),
    "inlined": (
        r"reading 4 bytes at .*, 11999744 bytes past the end of an array of 256 bytes \(x\)",
        "(0, 6, 0)",
    ),
    "merged": (r"writing 4 bytes at .* \(x\)", "(0, 0, 0)"),
    "merged_from_elsewhere": (r"writing 4 bytes at .* \(x\)", "(0, 0, 0)"),
    "written": (r"writing 4 bytes at .*, 155999744 bytes past the end .* \(y\)", "(39, 0, 0)"),
    "added": (r"updating 4 bytes at .*, 399999744 bytes past the end .* \(x\)", "(7, 0, 0)"),
    "recursive": (r"a stack overflow", "(0, 0, 0)"),
    "debugged": (r"writing 4 bytes at .* \(x\)", "(0, 0, 0)"),
    "cell": (r"writing 4 bytes at .* \(x\)", "(0, 0, 0)"),
}


HELPERS = Path(__file__).parents[2]
INLINED = HELPERS / "inlined_functions.py"
# The file of a fault, and its lines, if it is not in `faulty_kernels`.
FILES = {
    "cell": ("<ipython-input-7-abc>", ["", "", "    x[cuda.grid(1) + 500_000] = 1  # a cell"]),
    "merged_from_elsewhere": (INLINED.name, INLINED.read_text().splitlines()),
}


@pytest.fixture(scope="module")
def messages():
    """Return the messages that Numba's users see for the kernels in `faulty_kernels`."""
    path = HELPERS / "faulty_kernels.py"
    return json.loads(
        python_on_the_emulated_gpu(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')")
    )


@pytest.mark.parametrize("name", LINES)
def test_a_fault_names_the_line_and_the_thread(messages, name):
    words, thread = LINES[name]
    first, *places = messages[name].splitlines()
    block = 2 if name == "written" else 0
    assert re.match(r"CUDAError CUDA_ERROR_(ILLEGAL_ADDRESS|LAUNCH_FAILED|MISALIGNED_ADDRESS): ", first)
    assert re.search(words, first), first
    assert first.endswith(f"kernel {name}, block ({block}, 0, 0), thread {thread}")
    shown = {
        "inlined": [
            "return x[i * 3_000_000] + 1  # read in a function",
            "y[i, j] = far(x, i + j - 5)  # call",
        ],
        "merged": ["x[i + 2_000_000] = 2  # inlined from above"],
        "merged_from_elsewhere": ["x[i + 1_000_000] = 1  # inlined from another file"],
        "written": ["y[cuda.threadIdx.x * 1_000_000] = 1  # write"],
        "added": ["cuda.atomic.add(x, cuda.threadIdx.x // 7 * 100_000_000, 1)  # atomic"],
        "recursive": ["return 1 if n == 0 else n * deeper(n + 1) + deeper(n + 2)  # recursion"],
        "debugged": ["x[cuda.threadIdx.x + 1_000_000] = 1  # with debug"],
        "cell": ["x[cuda.grid(1) + 500_000] = 1  # a cell"],
        "misaligned": ["x[cuda.grid(1)] = y[cuda.grid(1)]  # odd"],
    }[name]
    assert len(places) == len(shown)
    for place, text in zip(places, shown, strict=True):
        file, lines = FILES.get(name, ("faulty_kernels.py", messages["lines"]))
        number = next(i for i, line in enumerate(lines, 1) if text in line)
        assert re.fullmatch(rf"  (called from )?line {number} of .*{file}: {re.escape(text)}", place)


@pytest.mark.needs("ipykernel")
@pytest.mark.parametrize(
    "compiler", ["IPython.core.compilerop.CachingCompiler", "ipykernel.compiler.XCachingCompiler"]
)
def test_a_fault_in_a_cell_names_the_cell(compiler):
    """In IPython's terminal cells have names of their own, in JupyterLab they are files."""
    out = python_on_the_emulated_gpu(program_text("a_fault_in_a_cell.py"), COMPILER=compiler)
    assert out.splitlines() == ["  line 3 of cell In[2]: x[cuda.grid(1) + 1_000_000] = 1"] * 2


def test_a_fault_that_does_not_recur_names_what_is_known(messages):
    assert "block (0, 0, 0), among threads 0 to 0 of it" in messages["once"]
    assert "line " not in messages["once"]
    assert messages["aligned"] == ""


def test_a_failing_block_releases_blocks_at_its_barrier():
    """The others would wait for it at the barrier of the grid."""
    out = run_program("a_block_fails_before_the_barrier_of_the_grid.py")
    assert out == ["CUDA_ERROR_ILLEGAL_ADDRESS", "[2.0, 1.0]"]


SPIN = r"\n  line LINE of .*: while x\[0\] == 0:  # spin\n"
ENDLESS = {
    "endless": r"no block of kernel endless has ended for 0\.5 s: kernel endless, block \(3, 0, 0\), "
    rf"thread \(41, 0, 0\){SPIN}  \d+ of 3000 blocks had ended, \d+ had not started\.",
    "in a thread": SPIN + r"  3 of 4 blocks had ended, 0 had not started\.",
    "in a graph": SPIN + r"  3 of 4 blocks had ended, 0 had not started\.",
    "absent": r"kernel absent, block \(1, 0, 0\), thread \(0, 0, 0\) does not come there\n  line LINE of .*"
    r": while x\[0\] == 0:  # absent\n .* 7 blocks wait at grid.sync\(\)",
    "early": r"kernel early: 2 blocks wait at grid.sync\(\), to which others have not come before they ended",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_kernel_is_stopped(messages, name):
    mark = "# absent" if name == "absent" else "# spin"
    line = next(i for i, text in enumerate(messages["lines"], 1) if mark in text)
    assert messages[name].startswith("CUDAError CUDA_ERROR_LAUNCH_TIMEOUT: ")
    assert re.search(ENDLESS[name].replace("LINE", str(line)), messages[name]), messages[name]


def test_threads_wait_for_each_other(messages):
    """Lanes and warps, for a flag and for a lock; blocks, even for a later one."""
    added = sum(i for thread in range(64) for i in range(thread % 5))
    shifted = sum(range(64)) - 0 - 32 + 31 + 63
    wanted = {"lanes": [64, 32 * 64], "lanes until done": [added, shifted]}
    assert messages["waits"] == wanted | {
        "fenced": 42,
        "locked": 160,
        "all blocks": list(range(40)),
        "in order": 500,
    }


def test_threads_streams_processes_and_grids():
    """Sixteen Python threads with a stream each; a child, forked and spawned; the largest grid there is."""
    found = python_on_the_emulated_gpu(program_text("threads_streams_processes_and_grids.py")).splitlines()
    assert found[:3] == ["True", "forked: CUDA initialized before forking", "spawned: 64.0"]
    assert found[3:] == ["CUDA_ERROR_INVALID_VALUE", "stopped True"]


def test_the_process_ends_while_kernels_run():
    """A kernel in a daemon thread is stopped; a thread that the interpreter waits for may still launch."""
    begun = time.monotonic()
    assert python(program_text("the_process_ends_while_kernels_run.py"), GPULESS="emulator") == "64.0\n"
    assert time.monotonic() - begun < 60


def test_numba_survives_faults_and_ctrl_c():
    """A failing launch is a CUDA error; an endless one is stopped; the process continues."""
    failed, *rest = run_program("stopped_and_interrupted.py")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in failed
    assert rest == ["65.0", "interrupted True", "62.0"]
