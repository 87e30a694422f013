"""The history of the step's modelled time: kept in order, validated when read, drawn with the progress."""

import json

import pytest

import cnn_course as course
from cnn_course.engine import history
from cnn_course.engine.history import Entry, Step


def step(gpu="T4", microseconds=13_200.0, share=0.7):
    slowest = "conv2d_backward_weight_kernel"
    return Step(gpu, microseconds, 0.6 * microseconds, 2.5 * microseconds, slowest, share)


SLOW = step(), step("H100 SXM", 10_000.0)
FAST = step(microseconds=1_100.0), step("H100 SXM", 500.0)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_WORKBOOK", str(tmp_path))
    return tmp_path


def test_entries_are_kept_in_order_and_hold_no_date(folder):
    assert history.entries() == []
    history.begin(SLOW)
    history.add("a filter gradient of many blocks", FAST)
    found = history.entries()
    assert found == [Entry("certificate of Part I", SLOW), Entry("a filter gradient of many blocks", FAST)]
    text = (folder / "steps.json").read_text()
    history._keep(found)
    assert (folder / "steps.json").read_text() == text
    assert {*json.loads(text)[0]} == {"what", "steps"}


def test_the_same_times_again_are_no_new_entry():
    for name in ("first", "second"):
        history.add(name, SLOW)
    assert [entry.what for entry in history.entries()] == ["first"]


def test_nothing_modelled_is_no_entry(folder):
    assert history.begin(()) == history.add("nothing", ()) == []
    assert not (folder / "steps.json").exists()


def test_another_certificate_takes_the_place_of_the_first():
    history.begin(SLOW)
    history.add("faster", FAST)
    history.begin(FAST)
    assert [entry.what for entry in history.entries()] == ["certificate of Part I", "faster"]
    assert history.entries()[0].steps == FAST


def test_the_ratio_compares_the_first_and_the_last():
    assert history.ratio([]) == history.ratio([Entry("one", SLOW)]) == {}
    found = history.ratio([Entry("one", SLOW), Entry("two", FAST)])
    assert found == pytest.approx({"T4": 12, "H100 SXM": 20})
    assert history.ratio([Entry("one", SLOW), Entry("two", FAST[:1])]).keys() == {"T4"}


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"what": "x"}]', "[" * 10_000, '{"what": 1}'])
def test_a_file_that_cannot_be_read_is_no_history(folder, text):
    (folder / "steps.json").write_text(text)
    assert history.entries() == []
    history.add("anew", SLOW)
    assert len(history.entries()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"what": ""}, "what must be a line of 1 to 80 letters"),
        ({"what": "a\nb"}, "what must be a line"),
        ({"what": 3}, "what must be a line"),
        ({"steps": []}, "steps must be a list of at least one step"),
        ({"steps": [3]}, "a step must have gpu, microseconds"),
        ({"steps": [step()._asdict() | {"more": 1}]}, "and nothing else"),
        ({"steps": [step()._asdict() | {"low": "1"}]}, "low must be a number"),
        ({"steps": [step()._asdict() | {"high": float("nan")}]}, "high must be a number"),
        ({"steps": [step()._asdict() | {"high": True}]}, "high must be a number"),
        ({"steps": [step()._asdict() | {"low": 1e6}]}, "0 < low <= microseconds <= high"),
        ({"steps": [step()._asdict() | {"share": 2}]}, "a share of at most 1"),
        ({"steps": [step()._asdict() | {"gpu": "x" * 99}]}, "gpu must be a line"),
    ],
)
def test_an_entry_is_validated(change, message):
    with pytest.raises(ValueError, match=message):
        history.entry_of(history.as_plain(Entry("one", SLOW)) | change)


def test_an_entry_must_be_an_object():
    with pytest.raises(ValueError, match="an entry must be an object"):
        history.entry_of([1])


def test_a_damaged_file_is_renamed():
    history.add("one", SLOW)
    history.path().write_text(history.path().read_text()[:-20])
    assert history.entries() == []
    history.add("two", FAST)
    assert [entry.what for entry in history.entries()] == ["two"]
    assert '"one"' in history.path().with_name("steps.damaged.json").read_text()


def test_progress_shows_the_history():
    before = course.progress()
    assert "modelled" not in repr(before)
    history.begin(SLOW)
    one = course.progress()
    assert one.caption.endswith("Your step in ms, modelled: 13.2 on T4, 10 on H100 SXM.")
    history.add("a filter gradient of many blocks", FAST)
    both = course.progress()
    assert both.caption.endswith("Your step in ms, modelled: 13.2 to 1.1 on T4, 10 to 0.5 on H100 SXM.")
    lines = repr(both).splitlines()
    assert any(line.split() == "certificate of Part I 13.2 10".split() for line in lines)
    assert any(line.split() == "a filter gradient of many blocks 1.1 0.5".split() for line in lines)
    picture = both.picture()
    assert "Below, the step's modelled time on each GPU" in picture.alt
    assert "Below" not in before.picture().alt


def test_each_gpu_has_a_range_line_and_its_own_marker():
    from cnn_course.engine import plots, progress

    _, ax = plots.figure()
    progress.draw_history(ax, [Entry("one", SLOW), Entry("two", FAST[:1])])
    assert [line.get_marker() for line in ax.lines] == ["o", "s"]
    assert [list(line.get_xdata()) for line in ax.lines] == [[13.2, 1.1], [10.0]]
    (ranges, _) = ax.collections
    assert ranges.get_segments()[0][:, 0] == pytest.approx([7.92, 33])
