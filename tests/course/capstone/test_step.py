"""The step by its parts: its time against the whole, swaps, the history, certificate, report."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from solutions import solution_of

from cnn_course.chapters.capstone import faster_kernels, first_kernels, modelling, report, results
from cnn_course.chapters.capstone.faster_kernels import SWAPS
from cnn_course.chapters.capstone.first_launchers import fingerprint, first_launchers
from cnn_course.chapters.capstone.modelling import NAMES, Launch, Modelled, known, model_part, recorded
from cnn_course.chapters.capstone.network import network_of
from cnn_course.chapters.capstone.parts import PARTS, STEP
from cnn_course.chapters.capstone.step import (
    COURSE,
    YOURS,
    best_step,
    course_path,
    first_step,
    record,
    your_step,
)
from cnn_course.chapters.mnist_cnn.own_backend import PARTS as KERNELS
from cnn_course.chapters.mnist_cnn.recorded import STEPS
from cnn_course.engine import history
from cnn_course.engine.standalone import standalone
from cnn_numba import data
from gpuless import frontends

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not frontends.installed(), reason="models launches of the emulated GPU"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_WORKBOOK", str(tmp_path))
    monkeypatch.setenv("CNN_NUMBA_TRUST_WORKBOOK", str(tmp_path))
    return tmp_path


@pytest.fixture
def solved(folder):
    """Write the solution of exercise 1 to the workbook."""
    source = standalone(faster_kernels.filter_gradient_kernel.py_func)
    (folder / "capstone_filter_gradient_kernel.py").write_text(source)


# --- the parts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [part for part in KERNELS if part.name != "momentum_kernel"])
def test_the_first_kernels_are_the_solutions_of_part_1(part):
    ours, theirs = getattr(first_kernels, part.name), solution_of(part.topic, part.name)
    assert fingerprint(ours) == fingerprint(theirs)


@pytest.mark.parametrize("name", ["filter_gradient_kernel", "forward_maps_kernel"])
def test_the_course_s_swaps_are_the_solutions_of_the_notebook(name):
    assert fingerprint(getattr(faster_kernels, name)) == fingerprint(solution_of("capstone", name))


def test_the_course_s_dense_layer_is_the_solution_of_the_notebook():
    (theirs,) = solution_of("capstone", "your_swaps")().values()
    kernel = theirs.__globals__["dense_warp_kernel"]
    assert fingerprint(kernel) == fingerprint(faster_kernels.dense_warp_kernel)


def test_every_kernel_of_the_step_belongs_to_a_part():
    kernels = {name for part in PARTS.values() for name in part.kernels}
    assert kernels == {part.name for part in KERNELS} - {"momentum_kernel"}
    assert {call.part for call in STEP} == PARTS.keys()


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_part_draws_five_sizes_or_more_with_its_arguments(part):
    drawn = [part.draw(np.random.default_rng(0), *size) for size in part.small]
    assert len({repr(each) for each in drawn}) == len(part.small) >= 5
    assert {len(each) for each in drawn} == {len(part.arguments)}


def test_a_part_is_shown_as_it_is_called():
    shown = {name: str(part) for name, part in PARTS.items()}
    expected = "dense_forward(x (3, 37), weight (5, 37), bias (5,), relu True, out (3, 5))"
    assert shown["dense_forward"] == expected
    assert "argmax (3, 2, 3) of int32, grad_input (3, 5, 7)" in shown["pool_backward"]
    assert shown["adam"].endswith("v (37,), settings 6 numbers)")


# --- modelling ---------------------------------------------------------------------------------------------


def test_all_of_the_course_s_launchers_are_on_record():
    for name, launcher in (*first_launchers({}).items(), *SWAPS):
        assert f"{name} {modelling.fingerprint_of(launcher)}" in recorded(), name


@pytest.mark.parametrize(
    ("name", "launcher"),
    [("loss", first_launchers({})["loss"]), ("dense_forward", faster_kernels.dense_by_warps)],
)
def test_the_record_matches_the_model(name, launcher):
    found, kept = model_part(name, launcher).launches, known(name, launcher).launches
    for ours, theirs in zip(found, kept, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.kernel == other.kernel
            np.testing.assert_allclose(one.times, other.times, rtol=0.01)


def test_the_parts_come_to_the_step_of_the_certificate():
    """That one is modelled as a whole, by `gpuless.profiling`."""
    whole = json.loads(STEPS.read_text(encoding="utf-8"))
    for ours, theirs in zip(first_step().times, whole, strict=True):
        assert ours.gpu == theirs["gpu"]
        assert ours.microseconds == pytest.approx(theirs["microseconds"], rel=0.005)
        assert (ours.low, ours.high) == pytest.approx((theirs["low"], theirs["high"]), rel=0.005)


def test_a_step_cannot_be_shorter_than_its_host_takes():
    nothing = {
        name: Modelled(((Launch("k", 10.0, ((0.1, 0.1, 0.1),) * 3),),) * len(calls))
        for name in PARTS
        for calls in [modelling.calls_of(name)]
    }
    for time in modelling.step_times(nothing):
        assert time.microseconds > 10 * len(STEP)
        assert time.busy == pytest.approx(0.1 * len(STEP))
        assert time.graph < time.microseconds / 5


def test_functions_without_source_are_modelled_each_time(monkeypatch):
    asked = []
    found = known("loss", first_launchers({})["loss"])
    monkeypatch.setattr(modelling, "model_part", lambda name, launcher: asked.append(name) or found)
    unknown = eval("lambda *arguments: None")
    for _ in range(2):
        known("loss", unknown)
    assert asked == ["loss", "loss"]


def test_modelled_times_survive_a_restart(monkeypatch, folder):
    found = known("loss", first_launchers({})["loss"])
    monkeypatch.setattr(modelling, "model_part", None)
    monkeypatch.setattr(modelling, "recorded", dict)
    launcher = faster_kernels.dense_by_warps
    for number in range(3):
        monkeypatch.setattr(modelling, "_known", {})
        modelling.note("loss", launcher, found._replace(results=(number,)))
    monkeypatch.setattr(modelling, "_known", {})
    assert known("loss", launcher) == found
    path = folder / "modelled.json"
    good = json.loads(path.read_text())
    for bad in (
        good | {"course": "another"},
        good | {"parts": {key: [] for key in good["parts"]}},
        good | {"parts": {"os": 3}},
        [],
        json.loads(path.read_text().replace('"cross_entropy_kernel", ', '"cross_entropy_kernel", -')),
    ):
        path.write_text(json.dumps(bad))
        assert modelling.kept() == {}
    path.write_text(json.dumps(good)[:-9])
    assert modelling.kept() == {}


# --- the step ----------------------------------------------------------------------------------------------


def test_without_a_swap_of_the_reader_the_course_s_swap_is_used():
    first = first_step()
    second = first.swapped("conv_weight")
    assert second.holders["conv_weight"].whose == COURSE
    assert second.own == your_step().own == []
    assert second.before is first
    assert second.times[0].microseconds < first.times[0].microseconds
    assert "○ the course's swap" in repr(second)


def test_the_table_of_parts_lines_up():
    heading, *rows = repr(first_step()).split("\n\n")[0].splitlines()
    assert len(rows) == len(PARTS)
    assert {len(row) for row in rows} == {len(heading)}


@pytest.mark.usefixtures("solved")
def test_the_reader_s_swap_comes_first():
    assert first_step().swapped("conv_weight").holders["conv_weight"].whose == YOURS
    assert your_step().own == ["conv_weight"]


@pytest.mark.usefixtures("solved")
def test_the_best_step_has_the_faster_swap_of_each_part(folder):
    assert best_step().holders["conv_weight"].whose == COURSE
    (folder / "capstone_filter_gradient_kernel.py").unlink()
    launcher = standalone(faster_kernels.filter_gradient_in_parts)
    own = "def your_swaps():\n    return {'conv_weight': filter_gradient_in_parts}\n"
    (folder / "capstone_your_swaps.py").write_text(f"{launcher}\n\n{own}")
    assert best_step().holders["conv_weight"].whose == YOURS
    assert best_step().holders["bias"].whose == COURSE


@pytest.mark.usefixtures("solved")
def test_of_two_swaps_for_a_part_the_faster_one_is_taken(folder):
    launcher = standalone(faster_kernels.filter_gradient_in_parts)
    own = "def your_swaps():\n    return {'conv_weight': filter_gradient_in_parts}\n"
    (folder / "capstone_your_swaps.py").write_text(f"{launcher}\n\n{own}")
    assert your_step().holders["conv_weight"].launcher.__name__ == "filter_gradient_in_parts"


def test_a_part_without_swaps_raises():
    with pytest.raises(ValueError, match=r"name must be one of conv_forward, .* got 'conv'"):
        first_step().swapped("conv")
    with pytest.raises(ValueError, match="that you or the course has a swap for, got 'adam'"):
        first_step().swapped("adam")


def test_pale_bars_show_the_time_saved(monkeypatch):
    drawn = []
    monkeypatch.setattr("cnn_course.engine.plots.picture", lambda fig, *_: drawn.append(fig))
    first_step().swapped("conv_weight").picture()
    (ax,) = drawn[0].axes
    pale, now = ([bar.get_width() for bar in bars] for bars in ax.containers)
    assert sum(width > 0 for width in pale) == 1
    assert max(pale) > max(now)


def test_each_swap_makes_a_t4_faster_and_the_last_step_matches_the_text():
    times = [step.times for step in course_path()]
    assert all(b[0].microseconds < a[0].microseconds for a, b in itertools.pairwise(times))
    ratios = [a.microseconds / b.microseconds for a, b in zip(times[0], times[-1], strict=True)]
    assert [round(ratio) for ratio in ratios] == [10, 20, 19]
    text = (data.files.CHECKOUT / "docs" / "teaching.md").read_text(encoding="utf-8")
    assert "from 13.3 ms to 1.29 on a T4, and from\n10.0 to 0.52 on an H100" in text
    said = [round(one[k].microseconds / 1000, 2) for k in (0, 2) for one in (times[0], times[-1])]
    assert said == pytest.approx([13.26, 1.29, 10.04, 0.52], abs=0.03)
    assert times[0][0].share == pytest.approx(0.71, abs=0.005)
    h100 = times[-1][2]
    assert h100.busy / h100.microseconds == pytest.approx(0.7, abs=0.005)


def test_the_input_gradient_has_more_than_half_after_exercise_2():
    step = course_path()[3]
    name, _, share, _ = step.rows()[0]
    assert name == "conv_input"
    assert 1 / (1 - share) == pytest.approx(2.2, abs=0.05)


def test_the_picture_describes_all_parts():
    picture = first_step().swapped("conv_weight").picture()
    assert all(part.title in picture.alt for part in PARTS.values())
    assert "Pale: the step before." in picture.caption


def test_the_network_with_the_swaps_is_right():
    mnist = data.load("mnist")
    network = network_of(best_step(), 16)
    found = network.check(mnist.train_images[:16], mnist.train_labels[:16])
    assert found.passed, found


# --- what is handed in -------------------------------------------------------------------------------------


def test_without_a_swap_nothing_is_recorded_and_the_course_s_steps_are_shown():
    picture = record("nothing")
    assert picture.caption.startswith("The course's step, until yours is there")
    assert history.entries() == []
    for make in (report.certificate, report.report):
        with pytest.raises(ValueError, match="there is no swap of yours in the step yet"):
            make("Ada")


@pytest.mark.usefixtures("solved")
def test_a_swap_is_recorded_after_the_kernels_of_part_1():
    picture = record("a block for each weight")
    assert picture.caption.startswith("Your step, from the first modelled time to the last")
    assert [entry.what for entry in history.entries()] == ["kernels of Part I", "a block for each weight"]
    assert history.ratio(history.entries()).keys() == {*NAMES}


@pytest.mark.usefixtures("solved")
def test_the_certificate_has_the_ratio_of_first_to_last(folder):
    found = report.certificate("Ada")
    text = (folder / "part_2.txt").read_text()
    assert text == repr(found)
    ratio = found.result.ratio["T4"]
    assert f"{ratio:.3g} times on T4" in text
    assert "1 part of 12 swapped for kernels of their own: convolution: filter gradient." in text
    assert "modelled" in text
    assert (folder / "part_2.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("solved")
def test_the_report_is_one_page_that_loads_nothing(folder):
    record("a block for each weight")
    path = report.report("Ada <script>", "conv_weight: <71%>\nlatency\n\n \nand more")
    page = path.read_text()
    assert path == folder / "capstone.html"
    assert "Ada &lt;script&gt;" in page
    assert "<script" not in page
    assert "http" not in page.replace("data:image", "")
    assert "def filter_gradient_kernel" in page
    assert "yours, a swap" in page
    assert page.count("modelled") >= 2
    assert "<p>conv_weight: &lt;71%&gt;<br>latency</p><p>and more</p>" in page
    assert "a block for each weight" in page
    assert "A layer of my own" not in page
    (folder / "capstone_your_layer.py").write_text("def your_layer():\n    return 'mine'\n")
    page = report.report("Ada").read_text()
    assert "<p>None were given.</p>" in page
    assert page.endswith(
        "<h3>A layer of my own</h3><pre>def your_layer():\n    return &#x27;mine&#x27;\n</pre>"
    )


@pytest.mark.usefixtures("solved")
def test_the_entry_of_a_step_is_accepted():
    result = results.result_of("Ada", your_step())
    assert results.read(Path(results.export(result)).read_bytes()) == result
    assert result.swaps == ("conv_weight",)
