import gc
import html.parser
import inspect
import math
import pickle
import re
import time

# First: this decides what numba.cuda is.
import gpuless

# isort: split
import numpy as np
import planted_bugs
import pytest
import simulator_kernels
from fresh_python import program_text, python
from numba import cuda, float32, uint32
from planted_bugs import BUGS
from simulator_kernels import CASES

from gpuless import record, sanitize
from gpuless.access.recording import TracedMemory, run_traced
from gpuless.access.trace import ATOMIC, FENCE, READ, WRITE, combine
from gpuless.sanitizer.findings import KINDS
from gpuless.simulator import Launch
from gpuless.wrapping import WIDTH, wrapped

gpuless.select()
pytestmark = pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPerformanceWarning")
#: `test_simulator` gives these a process in which launches are stepped.
stepped = pytest.mark.skipif(not gpuless.select().simulated, reason="compares with a launch that is stepped")


def on_device(values):
    return [cuda.to_device(value) if isinstance(value, np.ndarray) else value for value in values]


def examine(case):
    return sanitize(case.kernel)[case.grid, case.block, 0, case.dynamic](
        *on_device(case.arguments(np.random.default_rng(0)))
    )


# --- Correct kernels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_false_alarm(case):
    report = examine(case)
    assert report.ok, str(report)
    assert report.orders == ("forwards", "reversed", "shuffled")
    assert "no findings" in str(report)


@stepped
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_arguments_hold_the_result_afterwards(case):
    before = case.arguments(np.random.default_rng(0))
    given = on_device(before)
    sanitize(case.kernel)[case.grid, case.block, 0, case.dynamic](*given)
    _, after = case.run()
    for value, expected in zip(given, after, strict=True):
        if isinstance(expected, np.ndarray):
            np.testing.assert_array_equal(value.copy_to_host(), expected)


def test_correct_kernels_have_no_notes_except_these():
    noted = {case.name: examine(case).notes for case in CASES}
    noted = {name: notes for name, notes in noted.items() if notes}
    # Sums of floats round differently in another order, and atomics assign places in any order.
    assert noted.keys() - {"warp_reduction"} == {"float_sum", "compaction", "same_flag"}
    assert noted["compaction"][0].startswith("8 of the 21 elements of kept are written, the others keep")
    assert noted["compaction"][1] == "kept differs when blocks and threads run reversed"
    assert "found at the same index, all the same value" in noted["same_flag"][0]
    assert noted["float_sum"][0].endswith(", by the rounding of sums")


# --- Planted bugs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bugs_are_found_and_named(bug):
    report = sanitize(bug.kernel)[bug.grid, bug.block, 0, bug.dynamic](*bug.device_arguments())
    # It is the only finding: its consequences are listed under it.
    assert report.kinds == bug.kinds, str(report)
    named = [finding for finding in report.findings if finding.kind in bug.kinds]
    if bug.array:
        assert bug.array in {finding.array for finding in named}, str(report)
    if bug.lines:
        lines = {finding.line for finding in named} | {finding.other_line for finding in named}
        assert bug.lines & lines, str(report)


def test_there_are_several_bugs_of_each_kind():
    counts = {kind: sum(kind in bug.kinds for bug in BUGS) for kind in KINDS}
    assert len(BUGS) >= 25
    assert all(counts[kind] >= 2 for kind in KINDS if kind != "depends on order"), counts


@pytest.mark.parametrize("case", planted_bugs.CORRECT, ids=lambda case: case.name)
def test_no_false_alarm_about_kernels_that_look_wrong(case):
    report = sanitize(case.kernel)[case.grid, case.block](*case.device_arguments())
    assert report.ok, str(report)


def finding_of(kernel, *arguments, grid=1, block=4, **options):
    report = sanitize(kernel, **options)[grid, block](*arguments)
    (finding,) = report.findings
    return finding


def test_a_race_names_both_threads_both_lines_and_the_element():
    bug = next(bug for bug in BUGS if bug.name == "reverse_without_barrier")
    finding = finding_of(bug.kernel, *bug.device_arguments(), block=16)
    first = bug.kernel.py_func.__code__.co_firstlineno
    assert finding.kind == "missing barrier"
    assert (finding.array, finding.index) == ("tile", (0,))
    assert (finding.thread, finding.other_thread) == ((15, 0, 0), (0, 0, 0))
    assert finding.block == finding.other_block == (0, 0, 0)
    assert (finding.line, finding.other_line) == (first + 5, first + 4)
    assert finding.site.text.startswith("y[t] = tile[B - 1 - t]")
    assert finding.site.expression == "tile[B - 1 - t]"
    assert finding.count == 16
    assert "thread 15 of block 0 reads tile[0]" in finding.message
    assert "thread 0 writes it" in finding.message
    assert "cuda.syncthreads() is missing" in finding.message


@cuda.jit
def reads_while_others_add(total, out):
    cuda.atomic.add(total, 0, 1)
    if cuda.threadIdx.x == 0:
        out[0] = total[0]


def test_a_plain_read_beside_atomics_needs_the_barrier():
    finding = finding_of(reads_while_others_add, np.zeros(1), np.zeros(1))
    assert finding.kind == "missing barrier"
    assert finding.site.text == "out[0] = total[0]"
    assert "thread 0 of block 0 reads total[0]" in finding.message
    assert "thread 1 updates it" in finding.message


def test_a_race_between_blocks_names_both_blocks():
    bug = next(bug for bug in BUGS if bug.name == "forgotten_block_index")
    finding = finding_of(bug.kernel, *bug.device_arguments(), grid=3)
    assert (finding.block, finding.other_block) == ((0, 0, 0), (1, 0, 0))
    assert finding.thread == finding.other_thread == (0, 0, 0)
    assert finding.count == 4


def test_two_and_three_dimensions_are_reported():
    bug = next(bug for bug in BUGS if bug.name == "padding_without_a_guard")
    report = sanitize(bug.kernel)[bug.grid, bug.block](*bug.device_arguments())
    assert "thread (0, 0) of block (0, 0) reads x[4, 0]" in str(report)
    assert "padding_without_a_guard[(2, 2), (4, 4)]: 1 finding\n" in str(report)


def test_a_divergence_names_the_barrier_and_the_threads():
    bug = next(bug for bug in BUGS if bug.name == "a_barrier_in_each_branch")
    finding = finding_of(bug.kernel, *bug.device_arguments(), block=16)
    assert (finding.thread, finding.other_thread) == ((0, 0, 0), (4, 0, 0))
    assert finding.other_line - finding.line == 2


@cuda.jit
def diverges_in_block_1(x):
    if cuda.blockIdx.x == 1 and cuda.threadIdx.x == 2:
        return
    cuda.syncthreads()


def test_a_divergence_names_the_block():
    finding = finding_of(diverges_in_block_1, cuda.to_device(np.zeros(1)), grid=3)
    assert finding.block == (1, 0, 0)
    assert finding.other_thread == (2, 0, 0)


def test_an_access_out_of_bounds_names_index_and_shape():
    bug = next(bug for bug in BUGS if bug.name == "missing_guard")
    report = sanitize(bug.kernel)[3, 8](*bug.device_arguments())
    (finding,) = report.findings
    assert finding.message == "thread 5 of block 2 writes y[21], and y has 21 elements"
    assert (finding.index, finding.block, finding.thread) == ((21,), (2, 0, 0), (5, 0, 0))
    assert finding.count == 3
    # The rest of the launch is done.
    assert report.orders == ("forwards",)


@cuda.jit
def read_before_kernel(x, y):
    i = uint32(cuda.grid(1))
    y[i] = x[i - uint32(1)]


@cuda.jit
def write_before_kernel(x, y):
    i = uint32(cuda.grid(1))
    y[i - uint32(1)] = x[i]


@cuda.jit
def add_before_kernel(x, y):
    i = uint32(cuda.grid(1))
    cuda.atomic.add(y, i - uint32(1), x[i])


@pytest.mark.parametrize(
    ("kernel", "words"),
    [(read_before_kernel, "reads x"), (write_before_kernel, "writes y"), (add_before_kernel, "updates y")],
    ids=["read", "write", "add"],
)
def test_an_unsigned_index_below_zero_is_out_of_bounds(kernel, words):
    # It has 64 bits, more than NumPy takes.
    report = sanitize(kernel)[1, 4](*(cuda.to_device(np.zeros(4, np.float32)) for _ in range(2)))
    (finding,) = report.findings
    name = words[-1]
    assert finding.message == f"thread 0 of block 0 {words}[{2**64 - 1}], and {name} has 4 elements"


@cuda.jit
def takes_row(x, o):
    i = cuda.grid(1)
    o[0] = i
    r = x[i]
    if i == 4:
        r[1] = r[7]
    cuda.atomic.add(r, 0, 1)
    o[i] = r[0]


@cuda.jit
def takes_slice(x, o):
    i = cuda.grid(1)
    o[0] = i
    o[i] = x[1 : uint32(3), i + 1].T[0]


@cuda.jit
def takes_rest(x, o):
    i = cuda.grid(1)
    o[0] = i
    o[i] = x[..., i + 1][0]


@cuda.jit
def unpacks_row(x, o):
    i = cuda.grid(1)
    o[0] = i
    _, b, _, _, _ = x[i]
    o[i] = b


@cuda.jit
def iterates_over_row(x, o):
    i = cuda.grid(1)
    o[0] = i
    for value in x[i]:
        o[i] = value


@cuda.jit
def copies_row(x, o):
    i = cuda.grid(1)
    o[0] = i
    x[i - i % 2, :] = x[i]


@cuda.jit
def writes_row(x, o):
    i = cuda.grid(1)
    o[0] = i
    x[i, :] = 1


@pytest.mark.parametrize(
    ("kernel", "access", "index"),
    [
        (takes_row, "reads x[4]", (4,)),
        (takes_slice, "reads x[1:3, 5]", (slice(1, 3), 5)),
        (takes_rest, "reads x[..., 5]", (..., 5)),
        (unpacks_row, "reads x[4]", (4,)),
        (iterates_over_row, "reads x[4]", (4,)),
        (copies_row, "reads x[4]", (4,)),
        (writes_row, "writes x[4, :]", (4, slice(None))),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_slice_out_of_bounds_is_reported_and_the_launch_continues(kernel, access, index):
    report = sanitize(kernel)[1, 5](*on_device([np.ones((4, 5)), np.zeros(5)]))
    finding = next(finding for finding in report.findings if finding.kind == "out of bounds")
    assert finding.message == f"thread 4 of block 0 {access}, and x has shape (4, 5)"
    assert (finding.index, finding.shape, finding.count) == (index, (4, 5), 1)
    race = next(finding for finding in report.findings if finding.array == "o")
    assert (race.kind, race.index) == ("write-write race", (0,))
    # An access to the part beyond is no access to the array, and gives garbage.
    assert (report.trace.thread[report.trace.array == 0] == 4).sum() == 0
    with pytest.raises(IndexError, match=r"index [45] is out of bounds for axis [01] with size [45]"):
        record(kernel)[1, 5](*on_device([np.ones((4, 5)), np.zeros(5)]))


@cuda.jit
def beyond_slice(x, o):
    r = x[cuda.grid(1), 2:4]
    o[0] = r[2]


@cuda.jit
def beyond_row(x, o):
    for r in x:
        o[0] = r[5]


@cuda.jit
def beyond_transposed(x, o):
    o[0] = x.T[4, 0]


@cuda.jit
def beyond_row_of_a_view(x, o):
    o[0] = x[1:][3][0]


@cuda.jit
def beyond_dynamic(x, o):
    s = cuda.shared.array(0, np.float64)
    s[4:][4] = x[0, 0]
    o[0] = s[4]


@cuda.jit
def beyond_the_same(x, o):
    o[0] = x[:][4, 0]


@pytest.mark.parametrize(
    ("kernel", "sentence", "shape"),
    [
        (beyond_slice, "reads element [2] of a view of x, and the view has 2 elements", (2,)),
        (beyond_row, "reads element [5] of a view of x, and the view has 4 elements", (4,)),
        (beyond_transposed, "reads element [4, 0] of a view of x, and the view has shape (4, 4)", (4, 4)),
        (beyond_row_of_a_view, "reads part [3] of a view of x, and the view has shape (3, 4)", (3, 4)),
        (beyond_dynamic, "writes element [4] of a view of s, and the view has 4 elements", (4,)),
        (beyond_the_same, "reads x[4, 0], and x has shape (4, 4)", (4, 4)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_index_of_a_view_is_reported_as_such(kernel, sentence, shape):
    given = on_device([np.ones((4, 4)), np.zeros(1)])
    finding = sanitize(kernel)[1, 1, 0, 64](*given).findings[0]
    assert finding.message == f"thread 0 of block 0 {sentence}"
    assert (finding.array, finding.shape) == ("s" if kernel is beyond_dynamic else "x", shape)
    assert finding.in_view == ("view" in sentence)


@cuda.jit
def takes_row_of_records(x, o):
    i = cuda.grid(1)
    r = x[i + 1]
    o[i] = r[0].a + r[1]["a"]


def test_a_row_of_records_out_of_bounds():
    x = np.zeros((4, 2), [("a", np.float32), ("b", np.int32)])
    finding = finding_of(takes_row_of_records, *on_device([x, np.zeros(4, np.float32)]))
    assert finding.message == "thread 3 of block 0 reads x[4], and x has shape (4, 2)"


@cuda.jit
def end_kernel(x, y):
    i = cuda.threadIdx.x
    y[i] = x[-1, i] + x[i, -2]


@cuda.jit
def not_the_end_kernel(x, y):
    i = cuda.threadIdx.x
    y[i] = x[i - 1, -1]


def test_a_literal_minus_one_is_intended():
    report = sanitize(end_kernel)[1, 4](cuda.to_device(np.zeros((4, 4))), cuda.device_array(4))
    assert report.ok, str(report)
    finding = finding_of(not_the_end_kernel, cuda.to_device(np.zeros((4, 4))), cuda.device_array(4))
    assert (finding.kind, finding.index) == ("negative index", (3, 3))


@cuda.jit
def skipping_kernel(x, y, scratch):
    i = cuda.threadIdx.x
    if i % 2:
        y[i] = x[i]
        scratch[i] = x[i]
        y[i] = scratch[i]


def test_only_uninitialised_outputs_are_reported_as_unwritten():
    x = np.ones(4, np.float32)
    report = sanitize(skipping_kernel)[1, 4](x, np.zeros(4, np.float32), cuda.device_array(9, np.float32))
    assert report.ok, str(report)
    finding = finding_of(skipping_kernel, x, cuda.device_array(4, np.float32), np.zeros(9, np.float32))
    assert finding.kind == "never written"
    assert finding.message.startswith("2 of the 4 elements of y are never written, the first is y[0]")


def test_views_of_one_arena_share_memory():
    arena = cuda.to_device(np.zeros(12, np.float32))
    report = sanitize(copy_kernel)[1, 6](arena[:6], arena[6:])
    assert report.ok, str(report)
    report = sanitize(copy_kernel)[1, 6](arena[:6], arena[3:9])
    assert report.kinds == {"missing barrier"}


@cuda.jit
def copy_kernel(x, y):
    i = cuda.threadIdx.x
    y[i] = x[i]


@cuda.jit
def add_to_arena(arena, part):
    i = cuda.threadIdx.x
    if i < 4:
        arena[i] = 1
    else:
        part[i] = 2


@stepped
def test_parts_of_one_arena_that_overlap_race():
    arena = cuda.to_device(np.zeros(12, np.float32))
    finding = finding_of(add_to_arena, arena, arena[::-1][4:], block=8)
    assert finding.kind == "write-write race"


@cuda.jit
def shuffled_only_kernel(order, out):
    t = cuda.threadIdx.x
    place = cuda.atomic.add(order, 0, 1)
    if place == 0 and t == 3:
        out[4] = 1
    out[t] = t


def test_other_orders_are_searched_if_they_differ():
    finding = finding_of(
        shuffled_only_kernel, np.zeros(1, np.int32), np.zeros(4, np.float32), grid=1, block=4
    )
    assert finding.kind == "out of bounds"
    assert (finding.thread, finding.index) == ((3, 0, 0), (4,))


@cuda.jit
def lock_kernel(lock, total, x):
    i = cuda.grid(1)
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    cuda.threadfence()
    total[0] += x[i]
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)


def test_a_lock_orders_the_guarded_accesses():
    arguments = on_device([np.zeros(1, np.int32), np.zeros(1), np.arange(8.0)])
    report = sanitize(lock_kernel)[2, 4](*arguments)
    assert report.ok, str(report)


@cuda.jit
def nan_kernel(x, y):
    i = cuda.threadIdx.x
    y[i] = x[i] + 1


def test_a_nan_passed_on_is_not_produced():
    x = np.array([1, np.nan, 3, np.nan], np.float32)
    report = sanitize(nan_kernel)[1, 4](x, cuda.device_array(4, np.float32))
    assert report.ok, str(report)


@cuda.jit
def fill_kernel(x, value):
    x[cuda.threadIdx.x] = value


@cuda.jit
def blank_kernel(x):
    x[cuda.threadIdx.x] = math.nan


def test_a_nan_written_on_purpose_is_not_reported():
    assert sanitize(fill_kernel)[1, 4](np.zeros(4), np.nan).ok
    assert sanitize(blank_kernel)[1, 4](np.zeros(4)).ok


def test_errors_of_other_kinds_are_raised():
    with pytest.raises(gpuless.UnsupportedPython, match="lists"):
        sanitize(cuda.jit(list_kernel))[1, 1](np.zeros(3))
    with pytest.raises(TypeError, match="expected a kernel"):
        sanitize(3)[1, 1]
    with pytest.raises(gpuless.LaunchError, match="x is 0"):
        sanitize(nan_kernel)[0, 1]


def list_kernel(x):
    x[0] = [1][0]


def test_host_arrays_get_their_results():
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    assert sanitize(nan_kernel)[1, 4](x, y).ok
    assert y.tolist() == [1, 2, 3, 4]


# --- Warps -------------------------------------------------------------------------------------------------


def bug_report(name):
    bug = next(bug for bug in BUGS if bug.name == name)
    return sanitize(bug.kernel)[bug.grid, bug.block](*bug.device_arguments())


def test_lanes_that_never_arrive_are_named():
    (finding,) = bug_report("ballot_under_a_guard").findings
    assert (finding.block, finding.thread, finding.other_thread) == ((1, 0, 0), (32, 0, 0), (36, 0, 0))
    assert finding.site.expression == "cuda.ballot_sync(ALL, x[i] > 0)"
    assert finding.message.startswith(
        "thread 32 of block 1 calls ballot_sync with mask 0xffffffff, which names lanes 4 to 31 of its warp"
    )
    (finding,) = bug_report("vote_in_a_branch_after_a_return").findings
    assert "2 warps; this is the first" in str(finding)


def test_lanes_that_wait_elsewhere_are_named():
    (finding,) = bug_report("shuffle_under_a_guard").findings
    assert (finding.block, finding.thread, finding.other_thread) == ((0, 0, 0), (0, 0, 0), (16, 0, 0))
    assert "in block 0, thread 0 (lane 0 of warp 0) waits at shfl_down_sync" in finding.message
    assert re.search(r"names lanes 16 to 31, and lane 16 waits at .* cuda.syncthreads\(\)$", finding.message)
    (finding,) = bug_report("masks_that_differ").findings
    assert re.search(
        r"with mask 0xd, which names lane 3, and lane 3 waits .* with mask 0xe$", finding.message
    )


def test_a_lane_outside_its_own_mask_is_named():
    (finding,) = bug_report("mask_without_the_caller").findings
    assert finding.thread == (16, 0, 0)
    assert "with mask 0xffff, which does not name it" in finding.message


@pytest.mark.parametrize(
    ("name", "thread", "reason"),
    [
        # Thread 32 takes the values of lanes 16, 8 and so on; only the last, of thread 33, is there.
        (
            "tree_in_a_partial_warp",
            32,
            "lane 16 by shfl_down_sync, and that lane does not exist: the block has 40",
        ),
        ("harmless_garbage_and_then_harm", 3, "lane 10 by shfl_down_sync, and that lane does not exist"),
        ("tree_after_a_return", 34, "lane 18 by shfl_down_sync, and that lane has finished"),
        (
            "broadcast_from_outside_the_mask",
            0,
            "lane 20 by shfl_sync, and that lane is not in the mask 0xffff",
        ),
    ],
)
def test_a_shuffle_from_an_absent_lane_is_named(name, thread, reason):
    (finding,) = bug_report(name).findings
    assert finding.thread == (thread, 0, 0)
    assert reason in finding.message


def test_garbage_of_a_shuffle_is_not_reported_as_nan():
    assert bug_report("butterfly_in_a_partial_warp").kinds == {"absent lane"}


def test_votes_after_a_return_are_noted():
    case = next(case for case in planted_bugs.CORRECT if case.name == "votes_after_a_return")
    report = sanitize(case.kernel)[case.grid, case.block](*case.device_arguments())
    (note,) = report.notes
    assert re.match(
        r"the mask of ballot_sync in line \d+ and any_sync .* names lanes that have finished", note
    )
    assert "lanes 18 to 31 of warp 0 of block 1" in note
    assert note.kind == "finished lanes"


def test_the_arguments_hold_results_computed_from_garbage():
    bug = next(bug for bug in BUGS if bug.name == "butterfly_in_a_partial_warp")
    x, out = bug.device_arguments()
    assert not sanitize(bug.kernel)[bug.grid, bug.block](x, out).ok
    assert np.isnan(out.copy_to_host()).tolist() == [False] * 16 + [True] * 8
    case = next(case for case in planted_bugs.CORRECT if case.name == "tree_of_eight_threads")
    x, out = case.device_arguments()
    assert sanitize(case.kernel)[case.grid, case.block](x, out).ok
    assert out.copy_to_host().tolist() == [28, 92, 156]


# --- What only other orders show ---------------------------------------------------------------------------

WITH_A_STATE = """
def kernel(x):
    seen.append(1)
    x[cuda.threadIdx.x] = len(seen)
"""


def test_other_orders_show_bugs_that_the_log_does_not():
    scope = {"cuda": cuda, "seen": []}
    exec(WITH_A_STATE, scope)
    finding = finding_of(scope["kernel"], cuda.to_device(np.zeros(4)))
    assert finding.kind == "depends on order"
    assert finding.message == "x differs when blocks and threads run reversed"


# --- What would help ---------------------------------------------------------------------------------------


@cuda.jit
def first_warp_without_syncwarp(x, out):
    values = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    values[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        values[t] = values[t] * 2
        out[t] = values[31 - t]


@cuda.jit
def two_warps_and_a_few_of_their_threads(x, out):
    """Threads of one warp meet first, and then those of two."""
    values = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    if t < 64:
        values[t] = x[t]
        out[t] = values[t ^ 1] + values[63 - t]


@cuda.jit
def half_the_block_without_barrier(x, out):
    values = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    if t < 64:
        values[t] = x[t]
        out[t] = values[63 - t]


@cuda.jit
def part_of_a_warp_without_barrier(x, out):
    values = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    if t < 16:
        values[t] = x[t]
        out[t] = values[15 - t]


@cuda.jit
def branch_for_all(x, out):
    values = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    if x.size > 1:
        values[t] = x[t]
        out[t] = values[out.size - 1 - t]


@cuda.jit
def one_arm_and_the_other(x, out):
    values = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    if t < 32:
        values[t] = x[t]
    elif t < 64:
        out[t] = values[63 - t]


@cuda.jit
def tree_without_a_barrier(x, out):
    values = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    values[t] = x[t]
    cuda.syncthreads()
    k = cuda.blockDim.x // 2
    while k:
        if t < k:
            values[t] += values[t + k]
        k //= 2
    out[t] = values[t]


@cuda.jit
def half_of_any_block_without_barrier(x, out):
    values = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    if t < cuda.blockDim.x // 2:
        values[t] = x[t]
        out[t] = values[cuda.blockDim.x // 2 - 1 - t]


@cuda.jit
def tree_of_one_warp_without_syncwarp(x, out):
    values = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    values[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        stride = 16
        while stride > 0:
            values[t] += values[t + stride]
            stride //= 2
    out[t] = values[t]


@cuda.jit
def rounds_that_all_share(x, out):
    values = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    for k in range(3):
        if k < x.size:
            out[t] = values[out.size - 1 - t] if k > 0 else 0
            values[t] = x[t] + k


@cuda.jit
def trees_of_each_warp_without_a_barrier(x, out):
    values = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    values[t] = x[t]
    for step in (16, 8, 4, 2, 1):
        if t % 32 < step:
            values[t] += values[t + step]
    out[t] = values[t]


@pytest.mark.parametrize(
    ("kernel", "block", "advice"),
    [
        # Right for blocks of every size, also where only one warp is inside.
        *(
            (
                tree_without_a_barrier,
                block,
                r"cuda.syncthreads\(\) is missing in each round of the loop, outside of `if t < k:` \(line "
                r"\d+\), which not every thread enters$",
            )
            for block in (4, 64, 128)
        ),
        (
            tree_without_a_barrier,
            32,
            r"cuda.syncthreads\(\) \(or cuda.syncwarp\(\), as the block is one warp\) is missing in each",
        ),
        (
            trees_of_each_warp_without_a_barrier,
            64,
            r": cuda.syncthreads\(\) is missing between the two$",
        ),
        (
            half_of_any_block_without_barrier,
            64,
            r"cuda.syncthreads\(\) is missing .* outside of `if t < cuda",
        ),
        (
            tree_of_one_warp_without_syncwarp,
            64,
            r"cuda.syncwarp\(\) is missing between the two; .*`if t < 32:`",
        ),
        (rounds_that_all_share, 64, r"cuda.syncthreads\(\) is missing between the two$"),
        # After the `if`, or before it: it need not be inside.
        (one_arm_and_the_other, 128, r"cuda.syncthreads\(\) is missing between the two$"),
        (
            first_warp_without_syncwarp,
            64,
            r"cuda.syncwarp\(\) is missing between the two; cuda.syncthreads\(\) must not stand inside of "
            r"`if t < 32:` \(line \d+\), which not every thread enters",
        ),
        (
            half_the_block_without_barrier,
            128,
            r"cuda.syncthreads\(\) is missing between the two, outside of `if t < 64:` \(line \d+\)",
        ),
        (
            two_warps_and_a_few_of_their_threads,
            128,
            r": cuda.syncthreads\(\) is missing between the two, outside of `if t < 64:`",
        ),
        (part_of_a_warp_without_barrier, 128, r"cuda.syncwarp\(\) is missing .* outside of `if t < 16:`"),
        # Every thread enters this one.
        (branch_for_all, 64, r"cuda.syncthreads\(\) is missing between the two$"),
    ],
)
def test_the_advised_barrier_is_possible_there(kernel, block, advice):
    x, out = np.arange(block, dtype=np.float32), cuda.device_array(block, np.float32)
    report = sanitize(kernel)[1, block](x, out)
    (race,) = [finding for finding in report.findings if finding.kind == "missing barrier"]
    assert re.search(advice, race.message), race.message


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (
            "counter_zeroed_by_all",
            r"updates s\[0\] in the .* thread 0 writes it: cuda.syncthreads\(\) is missing",
        ),
        ("counter_zeroed_by_all_blocks", r"writes count\[0\], and .* updates it; .* make it two launches$"),
        ("swap_with_the_neighbour", r"is missing between the two, unless an index is wrong: both read and"),
        ("odd_even_steps", r"in each round of the loop, outside of `if i \+ 1 < x.size and"),
        ("bitonic_steps", "in each round of the loop, outside of `if other > t:`"),
        ("doubled_through_a_wrong_index", r"both write x\[0\] .* is chance; is an index wrong\?$"),
        ("swap_over_blocks", "give each its own elements"),
        ("doubled_with_a_wrong_stride", "give each its own elements"),
    ],
)
def test_no_atomic_is_advised_if_none_helps(name, advice):
    finding = bug_report(name).findings[0]
    assert re.search(advice, finding.message), finding.message
    assert "use cuda.atomic" not in str(finding)


@stepped
def test_a_barrier_in_different_rounds_names_both():
    (finding,) = bug_report("barrier_in_another_round").findings
    assert (finding.thread, finding.other_thread) == ((0, 0, 0), (1, 0, 0))
    assert "in the round k = 0 of a loop, and thread 1 in the round k = 1: every" in finding.message
    with pytest.raises(gpuless.DivergenceError, match="in the round k = 1"):
        planted_bugs.barrier_in_another_round[1, 4](cuda.to_device(np.zeros(4)))


@cuda.jit
def shift_and_tile(x, y):
    tile = cuda.shared.array(8, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = t
    y[i] = tile[7 - t]
    if i + 1 < x.size:
        x[i] = x[i + 1]


def test_a_race_between_blocks_explains_no_other_race():
    report = sanitize(shift_and_tile)[2, 8](np.arange(16.0), cuda.device_array(16))
    assert [(finding.kind, finding.array) for finding in report.findings] == [
        ("race between blocks", "x"),
        ("missing barrier", "tile"),
    ]


@cuda.jit
def shift_over_blocks(x):
    i = cuda.grid(1)
    if i + 1 < x.size:
        x[i] = x[i + 1]


def test_no_barrier_is_advised_if_blocks_race_too():
    finding = finding_of(shift_over_blocks, np.arange(16.0), grid=2, block=8)
    assert finding.kind == "race between blocks"
    (within,) = finding.consequences
    assert within.kind == "missing barrier"
    assert within.message.endswith("no barrier helps, as other blocks do the same")


# --- One mistake, one finding ------------------------------------------------------------------------------


def test_a_nan_read_beyond_an_array_is_listed_under_that_access():
    (finding,) = bug_report("one_too_far").findings
    (nan,) = finding.consequences
    assert (finding.kind, nan.kind, nan.array, nan.index) == ("out of bounds", "NaN produced", "y", (7,))
    text = str(finding)
    assert "    and so perhaps: NaN produced: thread 7 of block 0 writes NaN to y[7]" in text


@cuda.jit
def two_mistakes(x, y):
    i = cuda.grid(1)
    if cuda.blockIdx.x == 0:
        y[i] = x[i + 100]
    else:
        y[i] = math.sqrt(x[i])


def test_a_nan_of_another_block_is_a_separate_finding():
    x = np.array([1, 1, 1, -1], np.float32)
    report = sanitize(two_mistakes)[2, 2](x, cuda.device_array(4, np.float32))
    assert [finding.kind for finding in report.findings] == ["out of bounds", "NaN produced"]
    assert report.findings[1].index == (3,)


@cuda.jit
def barrier_that_half_the_block_misses(x, y):
    tile = cuda.shared.array(16, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    if t < 8:
        cuda.syncthreads()
    y[t] = tile[15 - t]


@cuda.jit
def race_and_then_divergence(x, y):
    tile = cuda.shared.array(16, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    y[t] = tile[15 - t]
    cuda.syncthreads()
    if t < 8:
        cuda.syncthreads()


def test_a_race_explained_by_divergence_is_listed_under_it():
    x = np.ones(16, np.float32)
    finding = finding_of(barrier_that_half_the_block_misses, x, cuda.device_array(16, np.float32), block=16)
    assert finding.kind == "divergent barrier"
    assert [consequence.kind for consequence in finding.consequences] == ["missing barrier"]
    # One of an earlier interval is a separate mistake.
    report = sanitize(race_and_then_divergence)[1, 16](x, cuda.device_array(16, np.float32))
    assert [finding.kind for finding in report.findings] == ["divergent barrier", "missing barrier"]


def test_misplaced_outputs_are_listed_under_the_index():
    first, second = bug_report("swapped_axes").findings
    assert (first.consequences, [each.kind for each in second.consequences]) == ((), ["never written"])


# --- Words -------------------------------------------------------------------------------------------------


@cuda.jit
def half_written(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i]


@cuda.jit
def first_half_doubled(x):
    i = cuda.grid(1)
    x[i] *= 2


@cuda.jit
def counted(x, bins):
    cuda.atomic.add(bins, x[cuda.grid(1)], 1)


def test_elements_that_keep_their_values_are_noted():
    x, out = np.ones(5, np.float32), cuda.to_device(np.zeros((3, 4), np.float32))
    report = sanitize(half_written)[1, 8](x, out.reshape(12))
    assert report.ok
    assert report.notes == (
        "5 of the 12 elements of out are written, the others keep what they held, the first is out[5]: as "
        "meant, or does the grid not cover it all?",
    )
    (kept,) = pickle.loads(pickle.dumps(report.notes))
    assert (kept, kept.kind) == (report.notes[0], "partly written")
    assert "4 of the 8 elements of x" in sanitize(first_half_doubled)[1, 4](np.ones(8)).notes[0]
    # All elements, or only those that atomics choose: no finding.
    assert sanitize(half_written)[1, 8](x, np.zeros(5, np.float32)).notes == ()
    assert sanitize(counted)[1, 4](np.ones(4, np.int32), np.zeros(9, np.int32)).notes == ()


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("compaction_by_an_atomic", r"\d+ of the 30 elements of kept are written, the others stay garbage"),
        (
            "compaction_by_places",
            r"15 of the 30 elements of kept are .* the first is kept\[15\]: as meant, or is a",
        ),
        ("compaction_in_a_warp", r"\d+ of the 32 elements of kept are written, the others stay garbage"),
        (
            "lower_triangle",
            r"28 of the 49 elements of y are .* the first is y\[0, 1\]: as meant, or is a guard",
        ),
    ],
)
def test_outputs_that_are_left_out_on_purpose_are_noted(name, note):
    case = next(case for case in planted_bugs.CORRECT if case.name == name)
    report = sanitize(case.kernel)[case.grid, case.block](*case.device_arguments())
    assert report.ok, str(report)
    assert re.match(note, report.notes[0]), report.notes
    assert report.notes[0].kind == "partly written"


@cuda.jit
def float_by_zero(y):
    y[cuda.threadIdx.x] = 1.0 / 0


def test_a_float_divided_by_zero_is_infinite():
    y = np.zeros(2)
    assert sanitize(float_by_zero)[1, 2](y).ok
    assert np.isposinf(y).all()


def test_an_integer_divided_by_zero_is_reported():
    (finding,) = bug_report("quotient_of_integers").findings
    assert (finding.block, finding.thread) == ((0, 0, 0), (0, 0, 0))
    assert finding.site.text.startswith("y[i] = a[i] // b[i]")


@cuda.jit
def halved_index(x, y):
    t = cuda.threadIdx.x
    y[t] = x[t / 2]


@cuda.jit
def halved_range(x, y):
    for i in range(x.size / 2):
        y[i] = x[i]


@stepped
@pytest.mark.parametrize("launch", [lambda kernel: kernel, sanitize], ids=["plain", "sanitized"])
def test_a_float_for_an_integer_is_explained(launch):
    x, y = cuda.to_device(np.zeros(4)), cuda.to_device(np.zeros(4))
    with pytest.raises(
        IndexError, match=r"must be an integer; if it comes from `/`, .* use `//`\n.*x\[t / 2\]"
    ):
        launch(halved_index)[1, 4](x, y)
    with pytest.raises(
        TypeError, match=r"cannot be interpreted as an integer; if it comes from `/`, .* use `//`\n"
    ):
        launch(halved_range)[1, 1](x, y)


WITHOUT_SOURCE = """
def kernel(x, flag):
    i = cuda.grid(1)
    flag[0] = 1
    if i >= x.size:
        return
    x[i] = cuda.popc(cuda.ballot_sync(0xFFFFFFFF, True)) + x[i + 1]
"""


@stepped
def test_a_kernel_without_source_is_reported_without_source_lines():
    scope = {"cuda": cuda}
    exec(WITHOUT_SOURCE, scope)
    report = sanitize(scope["kernel"])[1, 8](np.ones(4, np.float32), np.zeros(1, np.int32))
    assert report.kinds == {"out of bounds", "missing barrier"}
    assert re.search(r"    line 7 of kernel$", str(report), re.MULTILINE)
    assert "(line 4)" in report.notes[1]
    with pytest.raises(IndexError, match=r"in kernel kernel, line 7\n  block 0"):
        cuda.jit(scope["kernel"])[1, 8](cuda.to_device(np.ones(4, np.float32)), np.zeros(1, np.int32))


# --- The report --------------------------------------------------------------------------------------------


def some_report():
    bug = next(bug for bug in BUGS if bug.name == "first_block_sums_too_early")
    return sanitize(bug.kernel)[bug.grid, bug.block](*bug.device_arguments())


def test_the_report_reads_well():
    text = str(some_report())
    assert text.startswith("first_block_sums_too_early[3, 16]: 1 finding\n1. race between blocks: ")
    assert re.search(r"line \d+ of first_block_sums_too_early: total \+= partial\[block\]", text)
    assert "2 elements; this is the first" in text
    lost = next(bug for bug in BUGS if bug.name == "histogram_without_atomic")
    assert str(sanitize(lost.kernel)[lost.grid, lost.block](*lost.device_arguments())).count("line ") == 1
    assert "0x" not in text
    assert "/" not in text


def unwrapped(text):
    """Return a report as one line."""
    return " ".join(text.split())


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.name)
def test_the_report_fits_into_an_output_and_breaks_no_code(planted):
    run = sanitize(planted.kernel)[planted.grid, planted.block, 0, planted.dynamic]
    report = run(*planted.device_arguments())
    lines = str(report).splitlines()
    source = {line.strip() for line in inspect.getsource(planted_bugs).splitlines()}
    assert all(len(line) <= WIDTH or line.strip() in source for line in lines)
    unbroken = [f"{number}. " + " ".join(f.lines(10_000)) for number, f in enumerate(report.findings, 1)]
    assert unwrapped(str(report)).startswith(unwrapped(" ".join([lines[0], *unbroken])))


def test_code_is_not_broken_across_lines():
    assert wrapped("make it `x[i] + 1`, of x[2, 3] in (4, 5)", 10) == [
        "make it",
        "`x[i] + 1`,",
        "of x[2, 3]",
        "in (4, 5)",
    ]


def test_the_report_in_a_notebook():
    class Checker(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.seen = [], []

        def handle_starttag(self, tag, attributes):
            self.seen.append(tag)
            if tag != "br":
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    for report in (
        some_report(),
        bug_report("shuffle_by_half_a_warp"),
        examine(CASES[0]),
        examine(next(c for c in CASES if c.name == "same_flag")),
    ):
        checker, page = Checker(), report._repr_html_()
        checker.feed(page)
        assert not checker.open
        assert ("table" in checker.seen) == bool(report.findings)
        # Colours are the page's own, light or dark.
        assert not re.search(r"color:|background|#[0-9a-f]{3}\b", page)


# --- The trace ---------------------------------------------------------------------------------------------


def trace_of(kernel, grid, block, *arguments):
    return record(kernel)[grid, block](*on_device(arguments))


@cuda.jit
def mixed_kernel(x, total):
    tile = cuda.shared.array((2, 4), float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[1, t] = x[i]
    cuda.syncthreads()
    for k in range(2):
        tile[1, t] += x[i + k]
    cuda.threadfence()
    cuda.atomic.add(total, 0, tile[1, t])


@cuda.jit
def shift_row(x, out):
    i = cuda.grid(1)
    out.flat[i] = x.flat[i + 1]
    for place, value in np.ndenumerate(x):
        if place == (0, 0):
            out.flat[0] = value


def test_accesses_of_a_row_are_logged_at_their_elements():
    x, out = np.arange(6, dtype=np.float32).reshape(2, 3).T, np.zeros((3, 2), np.float32)
    report = sanitize(shift_row)[1, 6](x, out)
    trace = report.trace
    rows = np.flatnonzero(trace.thread == 2)[:3]
    assert [trace.name(row) for row in rows] == ["x[1, 1]", "out[1, 0]", "x[0, 0]"]
    assert [trace.values[row] for row in rows] == [4, 4, 0]
    assert [trace.sites[trace.site[row]].text[:8] for row in rows] == ["out.flat", "out.flat", "for plac"]
    past, race = report.findings
    assert (past.kind, past.index, past.thread) == ("out of bounds", (3, 0), (5, 0, 0))
    assert (race.kind, race.array, race.index) == ("write-write race", "out", (0, 0))


def test_the_columns_of_a_trace():
    trace = trace_of(mixed_kernel, (2, 1), 4, np.arange(9, dtype=np.float32), np.zeros(1, np.float32))
    assert len(trace) == 2 * 4 * (2 + 2 * 3 + 3)
    assert [(info.name, info.space) for info in trace.arrays] == [
        ("x", "global"),
        ("total", "global"),
        ("tile", "shared"),
    ]
    one = (trace.block == 1) & (trace.thread == 2)
    assert trace.kind[one].tolist() == [READ, WRITE] + [READ, READ, WRITE] * 2 + [FENCE, READ, ATOMIC]
    assert trace.interval[one].tolist() == [0] * 2 + [1] * 9
    assert [trace.name(row) for row in np.flatnonzero(one)[:5]] == [
        "x[6]",
        "tile[1, 2]",
        "tile[1, 2]",
        "x[6]",
        "tile[1, 2]",
    ]
    assert trace.address[one][:5].tolist() == [24, 24, 24, 24, 24]
    assert trace.element[one][:5].tolist() == [6, 6, 6, 6, 6]
    assert trace.itemsize[one].tolist() == [4] * 8 + [0, 4, 4]
    assert trace.array[one][8] == -1
    assert not trace.negative.any()
    # Reading and writing tile in `tile[1, t] += ...` are two instructions.
    sites = [trace.sites[number] for number in trace.site[one]]
    assert len({(site.line, site.offset) for site in sites[2:5]}) == 3
    assert {site.line for site in sites[2:5]} == {sites[2].line}
    assert sites[3].expression == "x[i + k]"
    # The second round of the loop is another occurrence of the same instructions.
    assert trace.occurrence[one][:8].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert trace.values[np.flatnonzero(one)[1]] == 6


def lanes(trace, name):
    """Return the elements each warp instruction touches in an array, as the module of traces defines."""
    array = [info.name for info in trace.arrays].index(name)
    key = combine(trace.block, trace.thread // 32, trace.interval, trace.site, trace.occurrence)
    rows = trace.array == array
    return [sorted(trace.element[rows & (key == k)].tolist()) for k in np.unique(key[rows])]


@cuda.jit
def epochs_kernel(x):
    x[cuda.grid(1)] = 0
    cuda.syncwarp()
    x[cuda.grid(1)] = 1
    if cuda.laneid < 4:
        cuda.syncwarp(0xF)
        x[cuda.grid(1)] = 2


def test_epochs_count_the_barriers_a_lane_has_passed():
    trace = trace_of(epochs_kernel, 2, 8, np.zeros(16))
    assert trace.epoch.tolist() == list(trace.values) == 2 * ([0] * 8 + [1] * 8 + [2] * 4)


@cuda.jit
def column_kernel(x, y):
    i = cuda.grid(1)
    acc = float32(0)
    for k in range(x.shape[1]):
        acc += x[i, k]
    y[i] = acc


def test_lanes_of_one_instruction_can_be_grouped():
    trace = trace_of(column_kernel, 1, 40, np.zeros((40, 3), np.float32), np.zeros(40, np.float32))
    groups = lanes(trace, "x")
    assert groups[0] == list(range(0, 96, 3))
    assert groups[1] == list(range(1, 96, 3))
    assert groups[3] == list(range(96, 120, 3))
    assert len(groups) == 6
    # The first warp touches 12 sectors of 32 bytes at once where 4 would do.
    assert len({4 * element // 32 for element in groups[0]}) == 12


@cuda.jit
def layouts_kernel(x, y):
    x[1, 2] = y[1, 2] = 5
    x[1][2] = y[1:, 2:][0, 0] = 6


@pytest.mark.parametrize(
    ("make", "address"),
    [
        (lambda: np.zeros((3, 4)), 6 * 8),
        (lambda: np.zeros((3, 4), order="F"), 7 * 8),
        (lambda: np.zeros((4, 3)).T, 7 * 8),
        (lambda: np.zeros((6, 8))[1::2, 4:], (3 * 8 + 6) * 8),
        (lambda: np.zeros((3, 4))[::-1, ::-1], 5 * 8),
        (lambda: np.zeros((5, 3, 4), np.float32)[2], (24 + 6) * 4),
    ],
)
def test_elements_and_addresses_in_any_layout(make, address):
    x, y = make(), np.zeros((3, 4), np.int8)
    memory = TracedMemory()
    launch = Launch(layouts_kernel, 1, 1)
    run_traced(launch, [x, y], memory)
    assert gc.isenabled()
    trace = memory.trace(launch)
    assert x[1, 2] == y[1, 2] == 6
    assert trace.element.tolist() == [6] * 4
    assert trace.address.tolist() == [address, 6] * 2
    assert trace.arrays[0].shape == (3, 4)


@cuda.jit
def views_kernel(x, out):
    i = cuda.threadIdx.x
    row = x[i]
    column = x[:, 2]
    out[i] = row[1] + column[0] + x.T[3, 1] + x[1:, 1:][0, 0] + x.reshape((4, 3))[3, i]
    row[2:] = 0


def test_views_are_accesses_of_their_array():
    x = np.arange(12.0).reshape(3, 4)
    trace = trace_of(views_kernel, 1, 1, x, np.zeros(3))
    names = [trace.name(row) for row in range(len(trace))]
    assert names == ["x[0, 1]", "x[0, 2]", "x[1, 3]", "x[1, 1]", "x[2, 1]", "out[0]", "x[0, 2]", "x[0, 3]"]


@cuda.jit
def records_kernel(points):
    points[1].x = points[0]["hits"]
    points.x[0] += 1
    points["grad"][1, 0] = points[1].grad[1]
    points[2] = points[1]
    points[1:].inner.low[0] = points[2].inner.high


def test_fields_of_records_are_separate_arrays():
    inner = np.dtype([("low", np.uint8), ("high", np.int16)])
    points = np.zeros(3, [*planted_bugs.POINT.descr, ("inner", inner)])
    trace = trace_of(records_kernel, 1, 1, points)
    rows = [(int(trace.kind[row]), trace.name(row), int(trace.address[row])) for row in range(len(trace))]
    size, of = points.itemsize, points.dtype.fields
    assert rows == [
        (READ, "points.hits[0]", of["hits"][1]),
        (WRITE, "points.x[1]", size),
        (READ, "points.x[0]", 0),
        (WRITE, "points.x[0]", 0),
        (READ, "points.grad[1, 1]", size + of["grad"][1] + 4),
        (WRITE, "points.grad[1, 0]", size + of["grad"][1]),
        (READ, "points[1]", size),
        (WRITE, "points[2]", 2 * size),
        (READ, "points.inner.high[2]", 2 * size + of["inner"][1] + 1),
        (WRITE, "points.inner.low[1]", size + of["inner"][1]),
    ]
    assert trace.itemsize.tolist() == [8, 4, 4, 4, 4, 4, size, size, 2, 1]


@cuda.jit
def strange_indices_kernel(x, y):
    for value in y:
        x[(0,), 1] = value
    x[np.uint8(1), np.int64(-1)] = len(x)


@cuda.jit
def whole_kernel(x, y):
    x[:] = 0
    np.fmax(y, x, x)


def test_whole_arrays_at_once():
    x = np.ones(2)
    trace = trace_of(whole_kernel, 1, 1, x, np.full(3, 2.0)[:2])
    names = [(int(trace.kind[row]), trace.name(row)) for row in range(len(trace))]
    writes = [(WRITE, "x[0]"), (WRITE, "x[1]")]
    reads = [(READ, "y[0]"), (READ, "y[1]"), (READ, "x[0]"), (READ, "x[1]")]
    assert names == writes + reads + writes
    assert {site.text for site in trace.sites} == {"x[:] = 0", "np.fmax(y, x, x)"}


@cuda.jit
def hinted_kernel(x, y):
    i = cuda.threadIdx.x
    cuda.stcg(y, i, cuda.ldcs(x, i))
    if i == 1:
        x[:] = 0
        y.fill(x.sum())


def test_hints_and_methods_are_logged():
    trace = trace_of(hinted_kernel, 1, 2, np.ones(2), np.ones(2))
    names = [(int(trace.kind[row]), trace.name(row)) for row in range(len(trace))]
    assert names == [
        (READ, "x[0]"),
        (WRITE, "y[0]"),
        (READ, "x[1]"),
        (WRITE, "y[1]"),
        (WRITE, "x[0]"),
        (WRITE, "x[1]"),
        (READ, "x[0]"),
        (READ, "x[1]"),
        (WRITE, "y[0]"),
        (WRITE, "y[1]"),
    ]
    report = sanitize(hinted_kernel)[1, 3](*on_device([np.ones(2), np.ones(3)]))
    assert "thread 2 of block 0 reads x[2], and x has 2 elements" in str(report)
    report = sanitize(hinted_kernel)[1, 3](*on_device([np.ones(3), np.ones(2)]))
    assert "thread 2 of block 0 writes y[2], and y has 2 elements" in str(report)


def test_a_launch_without_accesses():
    trace = record(cuda.jit(lambda: None))[2, 2]()
    assert len(trace) == len(trace.occurrence) == len(trace.sites) == 0
    assert sanitize(cuda.jit(lambda: None))[2, 2]().ok


def test_recording_raises_like_a_launch():
    with pytest.raises(IndexError, match="index 21 is out of bounds"):
        record(planted_bugs.missing_guard)[3, 8](*on_device([np.zeros(21), np.zeros(21)]))


@cuda.jit
def table_kernel(x, y):
    table = cuda.const.array_like(simulator_kernels.TAPS)
    y[0] = TABLE[1] + table[2]


TABLE = np.arange(3, dtype=np.int32)


def test_constants_are_arrays_too():
    trace = trace_of(table_kernel, 1, 1, np.zeros(1), np.zeros(1))
    spaces = {info.name: info.space for info in trace.arrays}
    assert spaces.pop("TABLE") == "constant"
    assert sorted(spaces.values()) == ["constant", "global", "global"]


# --- With a real numba.cuda --------------------------------------------------------------------------------


@pytest.mark.exhaustive_unless(
    lambda every: every > 1, "every fifth; all of them are sanitized above, by the same function"
)
@pytest.mark.needs("numba")
@pytest.mark.parametrize("every", [5, 1])
def test_kernels_for_a_real_gpu_are_sanitized_as_python_functions(every):
    printed = python(
        program_text("kernels_for_a_real_gpu_are_sanitized.py"),
        GPULESS="hardware",
        EVERY=str(every),
    )
    # Only facts from `device_array` are missing there.
    assert printed.splitlines() == ["bins_not_zeroed", "CUDADispatcher"]


# --- What it costs -----------------------------------------------------------------------------------------


def best_of(count, *runs):
    """Return the shortest processor time of each, in turns: other processes may be running."""
    times = [[] for _ in runs]
    for _ in range(count):
        for run, mine in zip(runs, times, strict=True):
            start = time.process_time()
            run()
            mine.append(time.process_time() - start)
    return map(min, times)


@stepped
@pytest.mark.parametrize("name", ["tiled_matmul", "tree_reduction", "scale", "naive_conv2d"])
def test_the_cost_is_bounded(name):
    case = next(case for case in CASES if case.name == name)
    grid, arguments = {
        "tiled_matmul": ((4, 4), [np.ones((16, 32), np.float32)] * 1 + [np.ones((32, 16), np.float32)]),
        "tree_reduction": (16, [np.ones(1024, np.float32)]),
        "scale": (200, [np.ones(1600, np.float32)]),
        "naive_conv2d": ((4, 4), [np.ones((18, 18), np.float32), np.ones((3, 3), np.float32)]),
    }[name]
    out = {"tiled_matmul": (16, 16), "tree_reduction": 16, "scale": 1600, "naive_conv2d": (16, 16)}[name]
    given = on_device([*arguments, np.zeros(out, np.float32)])
    plain, sanitized = best_of(
        5,
        lambda: case.kernel[grid, case.block](*given),
        lambda: sanitize(case.kernel)[grid, case.block](*given),
    )
    # 4 to 10 on a quiet machine.
    assert sanitized < 20 * plain
