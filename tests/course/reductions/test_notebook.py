"""What notebook 12 draws and counts: trees, shuffles, steps; and what its checks launch."""

import numpy as np
import pytest
from numba import cuda
from solutions import solution_of

from cnn_course.chapters.reductions import exercises as checks, pictures as reductions
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

EXERCISES = ("block_sums_kernel", "row_max_kernel", "histogram_kernel", "warp_softmax_kernel")


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


def test_step_table_adds_up_and_leaves_room_for_what_is_missing():
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


def test_step_picture_says_what_the_table_says():
    caption = step_picture(access_of(answers.tree_in_strides), "in strides", 2).caption
    assert caption == "In strides, step 2: warps at work: 1, lanes: 32, bank conflicts: 4-way."


def test_arrivals_are_counted_in_steps_of_the_last_digit(monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "picture", lambda fig, *_: drawn.append(fig))
    one = np.float32(1)
    reductions.arrival_picture([one, np.nextafter(one, np.float32(2)), one], 1.0)
    bars = [(round(bar.get_center()[0], 6), bar.get_height()) for bar in drawn[0].axes[0].patches]
    assert bars == [(0, 2), (1, 1)]


def test_the_checks_launch_few_threads():
    for name in EXERCISES:
        cases = getattr(checks, name).inputs()
        assert sum(int(np.prod(case.grid) * np.prod(case.block)) for case in cases) < 5000


def test_the_checks_reach_what_they_are_about():
    """Rows that are no multiple of a block, logits that overflow."""
    columns = {case.args[0].shape[1] for case in checks.row_max_kernel.inputs()}
    assert min(columns) < sums.WARP < sums.ROW_THREADS < max(columns)
    largest = [case.args[0].max(axis=1) for case in checks.warp_softmax_kernel.inputs()]
    assert max(map(np.max, largest)) > 89
    assert min(map(np.min, largest)) < -104  # exp of that is 0 in float32


def test_the_tree_of_the_solution_has_the_steps_that_the_text_tells():
    taken = steps(access_of(solution_of("reductions", "block_sums_kernel")))
    assert [step.warps for step in taken] == [2, 1, 1, 1, 1, 1, 1]
    assert [step.lanes for step in taken] == [64, 32, 16, 8, 4, 2, 1]
    assert sum(step.deliveries for step in taken) == 24
