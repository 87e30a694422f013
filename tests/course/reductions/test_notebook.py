"""Notebook 12: trees, shuffles, scans, its text, and the launches of its checks."""

import inspect
import re

import numpy as np
import pytest
import stored
from numba import cuda
from solutions import solution_of

from cnn_course.chapters.reductions import exercises as checks, ours, pictures as reductions, scans
from cnn_course.chapters.reductions.exercises import sums
from cnn_course.chapters.reductions.pictures import (
    Step,
    shuffle_picture,
    step_picture,
    step_table,
    steps,
)
from cnn_course.engine import plots
from gpuless import access_map
from reductions import answers

EXERCISES = ("block_sums_kernel", "row_max_kernel", "scan_kernel", "compact_kernel")


@cuda.jit
def copy_kernel(x, out):
    if cuda.grid(1) == 0:
        out[0] = x[0]


def access_of(kernel):
    x, out = cuda.to_device(np.ones(128, np.float32)), cuda.device_array(1, np.float32)
    return access_map(kernel)[1, 128](x, out)


def test_steps_tell_scattered_threads_from_bank_conflicts():
    by_remainder, in_strides = map(
        steps, map(access_of, (answers.tree_by_remainder, answers.tree_in_strides))
    )
    assert [step.lanes for step in by_remainder] == [step.lanes for step in in_strides]
    assert [step.warps for step in by_remainder] == [4, 4, 4, 4, 4, 2, 1]
    assert [step.warps for step in in_strides] == [2, 1, 1, 1, 1, 1, 1]
    assert [step.degree for step in by_remainder] == [1] * 7
    assert in_strides[1] == Step(warps=1, lanes=32, degree=4, deliveries=12)


def test_without_shared_memory_there_are_no_steps():
    assert steps(access_of(copy_kernel)) == []


def test_step_table_adds_up_and_leaves_room_for_missing_entries():
    table = step_table(
        {
            "in strides": access_of(answers.tree_in_strides),
            "none": access_of(copy_kernel),
        }
    )
    heading, warps, deliveries, *missing = table.splitlines()
    assert heading.split() == ["step", *map(str, range(1, 8)), "in", "all"]
    assert warps.split() == ["in", "strides", "warps", "at", "work", *"2111111", "8"]
    assert deliveries.split()[-1] == "69"
    assert [line.split()[-1] for line in missing] == ["0", "0"]
    assert len({len(line) for line in table.splitlines()}) == 1


def test_three_exchanges_between_eight_lanes(monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "picture", lambda fig, *_: drawn.append(fig))
    shuffle_picture()
    (ax,) = drawn[0].axes
    assert (len(ax.lines), len(ax.patches)) == (2 * 24, 4 * 8)  # each lane has two lines that lead to it


@pytest.mark.parametrize(("taken", "sums"), [(0, 0), (1, 4), (2, 6), (3, 7)])
def test_the_trees_grow_step_by_step(taken, sums):
    for ax in reductions._trees(taken).axes:
        assert (len(ax.lines), len(ax.patches)) == (2 * sums, 8 * (1 + taken))


def test_the_tree_of_halves_keeps_its_threads_side_by_side():
    threads = [
        [text.get_text() for text in ax.texts if text.get_text()[:1].isdigit()]
        for ax in reductions._trees(3).axes
    ]
    assert threads == [list("0246040"), list("0123010")]


def test_step_picture_matches_the_table():
    caption = step_picture(access_of(answers.tree_in_strides), "in strides", 2).caption
    assert caption == "In strides, step 2: warps at work: 1, lanes: 32, bank conflicts: 4-way."


def test_arrivals_are_counted_in_steps_of_the_last_digit(monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "picture", lambda fig, *_: drawn.append(fig))
    one = np.float32(1)
    reductions.arrival_picture([one, np.nextafter(one, np.float32(2)), one], 1.0)
    bars = [(round(bar.get_center()[0], 6), bar.get_height()) for bar in drawn[0].axes[0].patches]
    assert bars == [(0, 2), (1, 1)]


def test_conflicts_stand_below_their_banks(monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "picture", lambda fig, *_, **__: drawn.append(fig))
    step_picture(access_of(answers.tree_in_strides), "in strides", 2)
    step_picture(access_of(answers.tree_by_remainder), "by remainder", 2)
    below = [
        [
            (round(text.get_position()[0] - 0.45), text.get_text())
            for text in ax.texts
            if text.get_color() == plots.RED
        ]
        for fig in drawn
        for ax in fig.axes
    ]
    assert below == [[(2 * k, "4") for k in range(16)], [(4 * k, "4") for k in range(8)], [], []]


def test_the_scans_drawn_are_right(monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "picture", lambda fig, *_: drawn.append(fig))
    scans.blocks_picture()
    texts = {(*text.get_position(),): text.get_text() for text in drawn[0].axes[0].texts}
    row = {y: [int(text) for (x, at), text in sorted(texts.items()) if at == -y and x < 13] for y in range(5)}
    assert row[4] == np.cumsum(row[0]).tolist()
    assert row[1] == np.cumsum(np.reshape(row[0], (3, 4)), axis=1).ravel().tolist()
    assert row[3] == np.cumsum(row[2]).tolist() == row[4][3::4]
    assert scans.rows_of_a_scan((3, 1, 4, 1, 5, 9, 2, 6))[-1].tolist() == [3, 4, 8, 9, 14, 23, 25, 31]


def test_a_list_without_its_zeros_is_pale_until_there_is_one(monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "picture", lambda fig, *_: drawn.append(fig))
    outputs = np.float32([0, 3, 0, 1])
    scans.compact_picture(outputs, np.zeros(2, np.float32))
    scans.compact_picture(outputs, np.float32([3, 1]))
    heights = [[bar.get_height() for bar in fig.axes[1].patches] for fig in drawn]
    colours = {fig.axes[1].patches[0].get_facecolor() for fig in drawn}
    assert heights == [[3, 1], [3, 1]]
    assert len(colours) == 2


def test_a_tree_sum_loses_a_hundredth_of_a_sequential_sum():
    errors = reductions.errors_of_sums([16, 2**18])
    one_by_one, tree = errors.values()
    assert one_by_one[1] > 100 * tree[1]
    assert max(tree) < 2**-24 < one_by_one[1]


@pytest.mark.parametrize("name", ["block_sums_kernel", "scan_kernel"])
def test_our_kernels_are_the_solutions(name):
    solution, mine = solution_of("reductions", name), getattr(ours, name)
    assert inspect.getsource(mine.py_func).strip() == inspect.getsource(solution.py_func).strip()
    assert ours.yours_or_ours(solution) is solution


# --- what the text says of the stored outputs --------------------------------------------------------------


def shown(cell_id):
    return stored.shown("12_reductions.ipynb", cell_id)


def test_many_numbers_per_thread_pay_off_most():
    *trees, many = stored.microseconds(shown("sums-modelled")).values()
    assert len(trees) == 4
    assert all(many[gpu] < 0.56 * times[gpu] for times in trees for gpu in range(3))
    assert 125 < many[0] < 150
    assert "many each     DRAM, line" in shown("sums-modelled")
    close = "tell apart: two rounds / in strides / tree; in strides / tree / by remainder (T4)."
    assert close in " ".join(shown("sums-modelled").split())


def test_counting_in_blocks_first_is_more_than_ten_times_as_fast():
    at_once, in_blocks = stored.microseconds(shown("histogram-modelled")).values()
    assert all(slow > 10 * fast for slow, fast in zip(at_once, in_blocks, strict=True))


def test_a_t4_scans_as_fast_as_it_reads_and_writes():
    scanned, added, whole = stored.microseconds(shown("scan-modelled")).values()
    assert scanned[0] < 1.25 * added[0]
    assert all(both < one + other + 30 for one, other, both in zip(scanned, added, whole, strict=True))
    assert "scan in each block     DRAM (T4)" in shown("scan-modelled")
    assert "instructions (A100, H100)" in shown("scan-modelled")


def test_most_hidden_outputs_are_zero():
    kept, count = (int(number.replace(",", "")) for number in re.findall(r"[\d,]{4,}", shown("kept"))[:2])
    assert kept < count / 3
    assert (8 * kept // 1000, 4 * count // 1000) == (312, 512)


def test_the_checks_launch_few_threads():
    for name in EXERCISES:
        cases = getattr(checks, name).inputs()
        assert sum(int(np.prod(case.grid) * np.prod(case.block)) for case in cases) < 5000


def test_the_checks_cover_the_edge_cases():
    """Rows that are no multiple of a block; one element, whole blocks, one element more."""
    columns = {case.args[0].shape[1] for case in checks.row_max_kernel.inputs()}
    assert min(columns) < sums.WARP < sums.ROW_THREADS < max(columns)
    sizes = [case.args[0].size for case in checks.scan_kernel.inputs()]
    assert min(sizes) == 1
    assert {size % sums.THREADS for size in sizes} >= {0, 1}
    assert max(sizes) > 2 * sums.THREADS


def test_the_tree_of_the_solution_has_the_steps_in_the_text():
    taken = steps(access_of(solution_of("reductions", "block_sums_kernel")))
    assert [step.warps for step in taken] == [2, 1, 1, 1, 1, 1, 1]
    assert [step.lanes for step in taken] == [64, 32, 16, 8, 4, 2, 1]
    assert sum(step.deliveries for step in taken) == 24
