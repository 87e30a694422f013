"""Threads that wait for each other: random programs with a known outcome, and typical kernels."""

import numpy as np
import pytest
from ptx_programs import HEAD, results, run
from quick_code import compile_plainly
from waiting_programs import Program

import gpuless
from gpuless.emulator import ptx
from gpuless.emulator.analysis import flow, uniformity
from gpuless.emulator.run import cache, faults, launch, machine
from gpuless.limits import RUNNING

if not gpuless.select().emulated:
    pytest.skip("about how lanes of the emulated GPU wait", allow_module_level=True)

from numba import cuda

PROGRAMS = 25  # a part


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Start blocks that others wait for at once, and stop a kernel that hangs."""
    monkeypatch.setattr(launch, "_PERIOD", 0.01)
    monkeypatch.setattr(RUNNING, "kernel_seconds", 30)


@pytest.mark.exhaustive_unless(lambda part: part == 0, "the first 25 of 2,000")
@pytest.mark.slow
@pytest.mark.parametrize("part", range(80))
def test_random_programs(part, monkeypatch):
    monkeypatch.setattr(cache, "read", lambda name: None)
    monkeypatch.setattr(cache, "write", lambda name, content: None)
    real = machine.compile_object
    for seed in range(part * PROGRAMS, (part + 1) * PROGRAMS):
        # Most are compiled quickly; some like real kernels, to test the optimiser's result.
        monkeypatch.setattr(machine, "compile_object", compile_plainly if seed % 12 else real)
        program = Program(seed)
        memory = np.array(program.memory, np.uint32)
        (memory,) = run(program.ptx, [memory], (program.grid, 1, 1), (program.block, 1, 1))
        assert program.seen(memory.tolist()) == program.run(), (seed, program.ptx)


# --- Kernels -----------------------------------------------------------------------------------------------

FULL = 0xFFFFFFFF


def locked_rounds(meet):
    """Return a kernel whose threads take a lock in rounds, after a guard, and meet after each."""

    @cuda.jit
    def kernel(lock, total, n, rounds):
        i = cuda.threadIdx.x
        if i >= n:
            return
        for _ in range(rounds):
            while cuda.atomic.cas(lock, 0, 0, 1) != 0:
                pass
            cuda.threadfence()
            total[0] += 1
            cuda.threadfence()
            cuda.atomic.exch(lock, 0, 0)
            meet(i)

    return kernel


@cuda.jit(device=True)
def at_a_barrier(i):
    cuda.syncthreads()


@cuda.jit(device=True)
def at_a_barrier_of_the_warp(i):
    cuda.syncwarp()


@cuda.jit(device=True)
def at_a_vote(i):
    cuda.ballot_sync(FULL, i > 3)


@cuda.jit(device=True)
def at_a_shuffle(i):
    cuda.shfl_sync(FULL, i, 0)


@pytest.mark.parametrize("meet", [at_a_barrier, at_a_barrier_of_the_warp, at_a_vote, at_a_shuffle])
@pytest.mark.parametrize(("block", "n"), [(32, 32), (32, 20), (64, 64), (64, 50)])
def test_a_lock_behind_a_guard_in_rounds(meet, block, n):
    total = np.zeros(1, np.int64)
    locked_rounds(meet)[1, block](np.zeros(1, np.int32), total, n, 4)
    assert total.tolist() == [4 * n]


@pytest.mark.slow
def test_functions_in_which_lanes_wait():
    """Without optimisation they are called: lanes wait in one for a lane that has returned from it."""
    function = cuda.jit(device=True, debug=True, opt=False)

    @function
    def take(lock, slot):
        while cuda.atomic.cas(lock, slot, 0, 1) != 0:
            pass
        cuda.threadfence()

    @function
    def give(lock, slot):
        cuda.threadfence()
        cuda.atomic.exch(lock, slot, 0)

    @function
    def both(lock, total):
        take(lock, 0)
        take(lock, 1)
        total[0] += 1
        give(lock, 1)
        give(lock, 0)

    @function
    def of_the_first(x):
        return cuda.shfl_sync(FULL, x, 0)

    @cuda.jit(debug=True, opt=False)
    def kernel(lock, total, n):
        i = cuda.grid(1)
        if i >= n:
            return
        for m in range(3):
            if i % 3:
                both(lock, total)
            total[1 + i] += of_the_first(m)

    total = np.zeros(1 + 80, np.int64)
    kernel[2, 40](np.zeros(2, np.int32), total, 77)
    assert total.tolist() == [3 * sum(i % 3 > 0 for i in range(77))] + [3] * 77 + [0] * 3


@pytest.mark.parametrize("first", [0, 1])
def test_rounds_of_a_flag_behind_a_guard(first):
    @cuda.jit
    def kernel(flag, seen, n, rounds, first):
        i = cuda.threadIdx.x
        if i < n:
            for m in range(rounds):
                if i != first:
                    while cuda.atomic.add(flag, m, 0) == 0:
                        pass
                seen[m, i] = m
                cuda.threadfence()
                if i == first:
                    cuda.atomic.add(flag, m, 1)
                cuda.syncthreads()

    seen = np.full((3, 2), -1)
    kernel[1, 2](np.zeros(3, np.int32), seen, 2, 3, first)
    assert seen.tolist() == [[0, 0], [1, 1], [2, 2]]


WAITS = {
    "threadfence": lambda: cuda.threadfence(),
    "threadfence_block": lambda: cuda.threadfence_block(),
    "nanosleep": lambda: cuda.nanosleep(20),
    "syncwarp": lambda: cuda.syncwarp(0xFFFFFFFE),
}


@pytest.mark.parametrize("how", WAITS)
def test_a_flag_that_is_read_plainly(how):
    """The lane that sets it comes after the loop in which the others wait."""
    wait = cuda.jit(device=True)(WAITS[how])

    @cuda.jit
    def kernel(flag, seen):
        i = cuda.threadIdx.x
        if i > 0:
            while flag[0] == 0:
                wait()
        if i == 0:
            seen[0] = 5
            cuda.threadfence()
            flag[0] = 1
        cuda.syncthreads()
        seen[i + 1] = seen[0] + i

    seen = np.zeros(33, np.int32)
    kernel[1, 32](np.zeros(1, np.int32), seen)
    assert seen.tolist() == [5, *range(5, 37)]


def test_lanes_of_two_masks_meet_among_themselves():
    """The lower lanes shuffle while the upper ones wait for them, and then these do."""

    @cuda.jit
    def kernel(flag, seen, rounds):
        i = cuda.threadIdx.x
        if i < 16:
            for _ in range(rounds):
                seen[i] += cuda.shfl_sync(0xFFFF, i, 3)
                cuda.syncwarp(0xFFFF)
            cuda.threadfence()
            if i == 0:
                cuda.atomic.exch(flag, 0, 1)
        else:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
            for _ in range(rounds):
                seen[i] += cuda.shfl_sync(0xFFFF0000, i, 20)
                cuda.syncwarp(0xFFFF0000)
        cuda.syncwarp()

    seen = np.zeros(32, np.int32)
    kernel[1, 32](np.zeros(1, np.int32), seen, 4)
    assert seen.tolist() == [12] * 16 + [80] * 16


def test_lanes_absent_from_their_mask_do_not_block_forever():
    """Both sides of a branch name all lanes. CUDA defines no result, but here it ends."""

    @cuda.jit
    def kernel(lock, total):
        i = cuda.threadIdx.x
        for _ in range(3):
            if i < 9:
                cuda.syncwarp()
            else:
                cuda.syncwarp()
            while cuda.atomic.cas(lock, 0, 0, 1) != 0:
                pass
            total[0] += 1
            cuda.atomic.exch(lock, 0, 0)

    total = np.zeros(1, np.int32)
    kernel[1, 40](np.zeros(1, np.int32), total)
    assert total.tolist() == [120]


@cuda.jit(device=True)
def take_a_numbered_lock(lock):
    """Its last bit says whether it is taken, the others how often it was."""
    number = 0
    while True:
        found = cuda.atomic.cas(lock, 0, number, number | 1)
        if found == number:
            return number + 2
        number = found & ~1


@cuda.jit(device=True)
def take_a_place(lock):
    taken = 0
    while True:
        found = cuda.atomic.cas(lock, 0, taken, taken + 1)
        if found == taken and taken < 1:
            return 0
        taken = found if found < 1 else 0


@pytest.mark.parametrize("take", [take_a_numbered_lock, take_a_place])
@pytest.mark.parametrize(("blocks", "threads"), [(1, 32), (2, 33)])
def test_a_lock_tried_with_values_computed_from_it(take, blocks, threads):
    @cuda.jit
    def kernel(lock, total):
        then = take(lock)
        cuda.threadfence()
        total[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, then)

    total = np.zeros(1, np.int64)
    kernel[blocks, threads](np.zeros(1, np.int64), total)
    assert total.tolist() == [blocks * threads]


@pytest.mark.parametrize(("blocks", "threads"), [(1, 32), (2, 64)])
def test_threads_take_from_a_list_before_others_add_to_it(blocks, threads):
    """Finding it empty and leaving it so is no progress."""

    @cuda.jit
    def kernel(head, following, taken):
        i = cuda.grid(1)
        first = -1
        while i % 2:
            then = following[first] if first >= 0 else -1
            found = cuda.atomic.cas(head, 0, first, then)
            if found == first and first >= 0:
                taken[i // 2] = first
                return
            first = found
        while True:
            following[i] = first
            cuda.threadfence()
            found = cuda.atomic.cas(head, 0, first, i)
            if found == first:
                break
            first = found

    n = blocks * threads
    taken = np.full(n // 2, -1)
    kernel[blocks, threads](np.full(1, -1), np.full(n, -1), taken)
    assert sorted(taken.tolist()) == list(range(0, n, 2))


@pytest.mark.parametrize("compared", ["%x2, %x3", "%x2, %t"])
def test_a_loop_that_retries_with_the_found_value_does_not_wait(compared):
    """Like the maximum of floats: its lanes need not be separated from later ones."""
    text = f""".visible .entry f(.param .u64 p0)
    {{
    .reg .b32 %t, %x<5>; .reg .b64 %a; .reg .pred %p;
    ld.param.u64 %a, [p0]; mov.u32 %t, %tid.x; ld.global.u32 %x1, [%a];
    L: mov.u32 %x3, %x1; atom.global.cas.b32 %x2, [%a], %x3, %t; mov.b32 %x1, %x2;
    setp.ne.u32 %p, {compared};
    @%p bra L;
    ret;
    }}"""
    assert not flow.spinning_loops(flow.Flow(ptx.parse(HEAD + text).functions["f"]))
    waits = text.replace("mov.b32 %x1, %x2", "and.b32 %x1, %x2, 6")
    assert flow.spinning_loops(flow.Flow(ptx.parse(HEAD + waits).functions["f"]))


def test_registers_are_kept_in_memory_behind_a_lock():
    """As values they would be copied from block to block: 40 branches took LLVM half a minute."""
    body = """LOCK: atom.global.cas.b32 %x1, [%a0], 0, 1; setp.ne.u32 %p1, %x1, 0;
    @%p1 bra LOCK;
    atom.global.exch.b32 %x1, [%a0], 0; setp.lt.u32 %p2, %t, 9;
    @%p2 bra OVER;
    add.u32 %x2, %x2, 1;
    OVER: st.global.u32 [%out], %x2;"""
    text = """.visible .entry f(.param .u64 p0)
    {{
    .reg .b32 %t, %x<5>; .reg .b64 %a0, %out; .reg .pred %p<3>;
    ld.param.u64 %a0, [p0]; add.s64 %out, %a0, 8; mov.u32 %t, %tid.x; mov.u32 %x2, %t;
    {}
    ret;
    }}"""
    for lock, kept in ((body, True), (body[body.index("atom.global.exch") :], False)):
        function = ptx.parse(HEAD + text.format(lock)).functions["f"]
        found = uniformity.Analysis(function, (32, 1, 1), lambda name: None, lambda name: None)
        assert ("%x2" in found.restless) == kept


@pytest.mark.exhaustive_unless(lambda threads: threads == 40, "the second warp, most of which is not there")
@pytest.mark.parametrize("threads", [1, 2, 40])
def test_absent_threads_do_not_divide(threads):
    """Without optimisation there are many divisions, by values loaded only for existing threads."""

    @cuda.jit(debug=True, opt=False)
    def kernel(lock, total, n):
        i = cuda.grid(1)
        for r in range(3):
            while cuda.atomic.cas(lock, 0, 0, 1) != 0:
                pass
            total[0] += (i + r) % n
            cuda.atomic.exch(lock, 0, 0)

    total = np.zeros(1, np.int64)
    kernel[1, threads](np.zeros(1, np.int32), total, threads)
    assert total.tolist() == [3 * sum(range(threads))]


@pytest.mark.parametrize("blocks", [3, 70, 256])
def test_a_barrier_of_the_grid_made_by_hand(blocks):
    """One thread of each block waits for all blocks, the others for it."""

    @cuda.jit
    def kernel(count, x, n, rounds):
        t, i = cuda.threadIdx.x, cuda.grid(1)
        for r in range(rounds):
            if i < n:
                x[r + 1, i] = x[r, (i + 37) % n] + 1
            cuda.threadfence()
            cuda.syncthreads()
            if t == 0:
                cuda.atomic.add(count, 0, 1)
                while cuda.atomic.add(count, 0, 0) < (r + 1) * cuda.gridDim.x:
                    pass
            cuda.syncthreads()

    n = 64 * blocks - 9
    x = np.zeros((5, n), np.int64)
    kernel[blocks, 64](np.zeros(1, np.int32), x, n, 4)
    assert (x == np.arange(5)[:, None]).all()


# The code of grid_group::sync() in CUDA C++: block 0 adds the number that completes the highest bit.
GRID_GROUP = """
.func (.reg .b64 %counter) workspace() {
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; cvt.u64.u32 %rd1, %r1; cvt.u64.u32 %rd2, %r2;
    shl.b64 %rd1, %rd1, 32; or.b64 %counter, %rd1, %rd2; ret; }
.func sync() {
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<3>;
    barrier.sync 0; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;
    call (%rd1), workspace; add.s64 %rd1, %rd1, 4;
    mov.u32 %r2, %nctaid.x; sub.u32 %r3, 0x80000001, %r2; mov.u32 %r4, %ctaid.x;
    setp.ne.u32 %p2, %r4, 0; selp.b32 %r5, 1, %r3, %p2; atom.add.release.gpu.u32 %r6, [%rd1], %r5;
    WAIT: ld.acquire.gpu.u32 %r7, [%rd1]; xor.b32 %r8, %r6, %r7;
    setp.ge.s32 %p3, %r8, 0; @%p3 bra WAIT;
    END: barrier.sync 0; ret; }
.entry f(.param .u64 array) {
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [array]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ntid.x;
    mov.u32 %r8, %tid.x; mad.lo.u32 %r3, %r1, %r3, %r8; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd2, %rd1, %rd2;
    BODY
    ret; }
"""
NEIGHBOURS = """mov.u32 %r4, 0;
    ROUND: call sync;
    add.u32 %r5, %r1, 1; rem.u32 %r5, %r5, %r2; mov.u32 %r6, %ntid.x; mad.lo.u32 %r5, %r5, %r6, %r8;
    mul.wide.u32 %rd3, %r5, 4; add.s64 %rd3, %rd1, %rd3; ld.global.u32 %r6, [%rd3];
    call sync;
    st.global.u32 [%rd2], %r6; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 3; @%p1 bra ROUND;"""


@pytest.mark.parametrize("blocks", [1, 2, 20])
def test_the_barrier_of_the_grid_in_cuda_cpp(blocks):
    """Each block takes its neighbour's numbers, three times; each launch begins with a counter of 0."""
    array = np.arange(64 * blocks, dtype=np.uint32)
    for _ in range(2):
        (found,) = run(
            GRID_GROUP.replace("BODY", NEIGHBOURS), [array], (blocks, 1, 1), (64, 1, 1), together=True
        )
        np.testing.assert_array_equal(found, np.roll(array, -64 * 3))


def test_a_fault_after_the_grid_barrier_names_its_thread():
    """The block is run again alone to see which thread it was."""
    body = """call sync; call sync; call sync; setp.eq.u32 %p1, %r3, 163;
        @%p1 add.s64 %rd2, %rd2, 1048576; st.global.u32 [%rd2], %r3;"""
    with pytest.raises(faults.Fault, match=r"array of 1024 bytes.*block \(2, 0, 0\), thread \(35, 0, 0\)"):
        run(
            GRID_GROUP.replace("BODY", body),
            [np.zeros(256, np.uint32)],
            (4, 1, 1),
            (64, 1, 1),
            together=True,
        )


def test_only_a_cooperative_launch_has_a_workspace():
    """Without one this_grid().is_valid() is false; with one its first word is its size."""
    body = """call (%rd4), workspace; cvt.u32.u64 %r4, %rd4; setp.eq.u64 %p1, %rd4, 0; @%p1 bra DONE;
        ld.global.u32 %r4, [%rd4]; DONE: st.global.u32 [%rd2], %r4;"""
    for together, expected in ((False, 0), (True, 8), (False, 0)):
        (found,) = run(GRID_GROUP.replace("BODY", body), [np.ones(32, np.uint32)], together=together)
        assert (found == expected).all()
    with pytest.raises(ptx.PtxError, match="does not know the register %envreg3"):
        run(GRID_GROUP.replace("BODY", "mov.u32 %r1, %envreg3;"), [np.ones(32, np.uint32)])


@pytest.mark.parametrize("blocks", [3, 40])
def test_all_threads_see_a_value_read_by_one_after_a_barrier(blocks):
    """So a loop may wait in which only one thread reads the flag."""

    @cuda.jit
    def kernel(count, out):
        seen = cuda.shared.array(1, np.int32)
        t = cuda.threadIdx.x
        if t == 0:
            cuda.atomic.add(count, 0, 1)
        while True:
            if t == 0:
                seen[0] = cuda.atomic.add(count, 0, 0)
            cuda.syncthreads()
            if seen[0] == cuda.gridDim.x:
                break
            cuda.syncthreads()
        out[cuda.grid(1)] = seen[0]

    out = np.zeros(64 * blocks, np.int32)
    kernel[blocks, 64](np.zeros(1, np.int32), out)
    assert out.tolist() == [blocks] * (64 * blocks)


def test_a_lock_that_is_never_released_is_named(monkeypatch):
    """The line where lanes wait is named, though others are at a barrier meanwhile."""
    monkeypatch.setattr(RUNNING, "kernel_seconds", 1)

    @cuda.jit
    def kernel(lock, n):
        i = cuda.threadIdx.x
        if i < n:
            for _ in range(2):
                while cuda.atomic.cas(lock, 0, 0, 1) != 0:  # held
                    pass
                if i != 5:
                    cuda.atomic.exch(lock, 0, 0)
                cuda.syncthreads()

    with pytest.raises(Exception, match=r"(?s)LAUNCH_TIMEOUT.*no block of kernel kernel.*# held"):
        kernel[1, 32](np.zeros(1, np.int32), 20)


# --- Loops as compilers write them -------------------------------------------------------------------------


def test_other_warps_run_while_one_waits_in_a_loop_with_a_partial_branch():
    """Where these lanes meet the loop starts again."""
    body = """mov.u32 %x3, %warpid; setp.ne.u32 %p1, %x3, 0; mov.u32 %x9, 0; and.b32 %x1, %t, 3;
    setp.ne.u32 %p2, %x1, 0;
    @%p1 bra SET;
    L: ld.volatile.global.u32 %x2, [%a0]; setp.ne.u32 %p3, %x2, 0;
    @%p3 bra END;
    @%p2 bra L;
    mov.u32 %x9, 7; bra L;
    SET: st.volatile.global.u32 [%a0], 1;
    END: st.global.u32 [%out], %x9;"""
    found, _ = results(body, [np.zeros(1, np.uint32)], 64)
    assert found == [7, 0, 0, 0] * 8 + [0] * 32


# --- Functions in PTX --------------------------------------------------------------------------------------

FUNCTIONS = """.func (.param .b32 got) take(.param .b64 at, .param .b32 n) {
.reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .pred %p<3>; .local .align 4 .b8 own[8];
ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [n]; mov.u64 %rd2, own; st.local.u32 [%rd2], %r1;
setp.eq.u32 %p1, %r1, 7;
@%p1 st.param.b32 [got], 70;
@%p1 ret;
AGAIN: atom.global.cas.b32 %r2, [%rd1], 0, 1; setp.ne.u32 %p1, %r2, 0;
@%p1 bra AGAIN;
membar.gl; ld.local.u32 %r4, [%rd2]; rem.u32 %r5, %r4, 3;
WAYS: .branchtargets A, B, C;
brx.idx %r5, WAYS;
A: st.param.b32 [got], 1; ret;
B: st.param.b32 [got], 2; bra END;
C: st.param.b32 [got], 3;
END: ret;
}
.func (.param .b32 got) outer(.param .b64 at, .param .b32 n) {
.reg .b32 %r<3>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [n];
{ .param .b64 p0; .param .b32 p1; .param .b32 r; st.param.b64 [p0], %rd1; st.param.b32 [p1], %r1;
call (r), take, (p0, p1); ld.param.b32 %r2, [r]; } st.param.b32 [got], %r2;
}
"""


@pytest.mark.parametrize("name", ["take", "outer"])
@pytest.mark.parametrize("guard", ["", "@%p3 ", "@!%p3 "])
def test_a_function_that_takes_a_lock_is_called_twice_under_a_guard(name, guard):
    """It has its own memory, returns at several places, and jumps through a table."""
    call = """{{ .param .b64 p0; .param .b32 p1; .param .b32 r; st.param.b64 [p0], %a0;
    st.param.b32 [p1], {0}; st.param.b32 [r], 0; {1}call (r), {2}, (p0, p1); ld.param.b32 %x1, [r]; }}
    {1}add.u32 %x9, %x9, %x1; sub.u32 %x3, %x1, 1; setp.ge.u32 %p2, %x3, 9;
    @%p2 bra OVER{0};
    ld.global.u32 %x3, [%a0+4]; add.u32 %x3, %x3, {0}; st.global.u32 [%a0+4], %x3; membar.gl;
    atom.global.exch.b32 %x3, [%a0], 0;
    OVER{0}:\n"""
    body = "setp.lt.u32 %p3, %t, 20; mov.u32 %x9, 0; add.u32 %x2, %t, 1;\n"
    calls = call.format("%t", guard, name) + call.format("%x2", guard, name)
    body += calls.replace("OVER%", "OVER_") + "st.global.u32 [%out], %x9;"
    found, ((_, total),) = results(body, [np.zeros(2, np.uint32)], before=FUNCTIONS)
    there = [not guard or (i < 20) == (guard == "@%p3 ") for i in range(32)]
    one = [70 if i == 7 else 1 + i % 3 for i in range(33)]
    assert found == [(one[i] + one[i + 1]) * there[i] for i in range(32)]
    assert total == sum((i * (i != 7) + (i + 1) * (i != 6)) * there[i] for i in range(32))


def test_a_function_in_which_lanes_come_together_keeps_its_shared_memory():
    """Lanes come one by one to the barrier in it, as each has had a lock before."""
    function = """.func (.param .b32 out) other(.param .b32 n) {
    .reg .b32 %r<6>; .shared .align 4 .b8 mine[256]; ld.param.u32 %r1, [n]; mov.u32 %r2, mine;
    shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], %r1; bar.sync 0;
    xor.b32 %r3, %r3, 4; ld.shared.u32 %r4, [%r3]; st.param.b32 [out], %r4; ret; }"""
    body = """setp.ge.u32 %p1, %t, 60;
    @%p1 ret;
    LOCK: atom.global.cas.b32 %x1, [%a0], 0, 1; setp.ne.u32 %p1, %x1, 0;
    @%p1 bra LOCK;
    st.shared.u32 [s], %t; ld.shared.u32 %x2, [s]; atom.global.exch.b32 %x1, [%a0], 0;
    { .param .b32 p; .param .b32 r; st.param.b32 [p], %x2; call (r), other, (p); ld.param.b32 %x9, [r]; }
    st.global.u32 [%out], %x9;"""
    variables = ".shared .align 8 .b8 s[8];"
    found, _ = results(body, [np.zeros(1, np.uint32)], 64, before=function, variables=variables)
    assert found == [i ^ 1 if i < 60 else 0 for i in range(64)]


def test_functions_called_by_address_or_recursively_stay_functions():
    """As before: each returns to all lanes that have called it at once."""
    function = """.func (.param .b32 got) once(.param .b64 at, .param .b32 n) {
    .reg .b32 %r<6>; .reg .b64 %rd<2>; .reg .pred %p<2>; ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [n];
    AGAIN: atom.global.cas.b32 %r2, [%rd1], 0, 1; setp.ne.u32 %p1, %r2, 0;
    @%p1 bra AGAIN;
    ld.global.u32 %r3, [%rd1+4]; add.u32 %r3, %r3, %r1; st.global.u32 [%rd1+4], %r3; membar.gl;
    atom.global.exch.b32 %r2, [%rd1], 0; mov.u32 %r4, 5; setp.eq.u32 %p1, %r1, 0;
    @%p1 bra END;
    sub.u32 %r5, %r1, 1;
    { .param .b64 p0; .param .b32 p1; .param .b32 r; st.param.b64 [p0], %rd1; st.param.b32 [p1], %r5;
    call (r), once, (p0, p1); ld.param.b32 %r4, [r]; }
    END: add.u32 %r4, %r4, 1; st.param.b32 [got], %r4;
    }\n"""
    body = """rem.u32 %x1, %t, 4; mov.b64 %y9, once; proto: .callprototype (.param .b32 _) _ (.param .b64 _);
    { .param .b64 p0; .param .b32 p1; .param .b32 r; st.param.b64 [p0], %a0; st.param.b32 [p1], %x1;
    call (r), %y9, (p0, p1), proto; ld.param.b32 %x9, [r]; } st.global.u32 [%out], %x9;"""
    found, ((_, total),) = results(body, [np.zeros(2, np.uint32)], before=function)
    assert found == [6 + i % 4 for i in range(32)]
    assert total == 8 * (0 + 1 + 3 + 6)
