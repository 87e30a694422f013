"""The table of results: entries are written and read, and invalid ones are named."""

import html
import json

import pytest

from cnn_course.chapters.capstone import results
from cnn_course.chapters.capstone.results import Result
from cnn_course.engine.history import Entry, Step


def entry(factor, what="your swaps"):
    steps = (
        Step(gpu, time / factor, time / factor / 2, 2 * time / factor, "conv_weight", 0.5)
        for gpu, time in (("T4", 13_200.0), ("H100 SXM", 10_000.0))
    )
    return Entry(what, tuple(steps))


COURSE = entry(1, "the course's step")


def result(name="Ada", factor=10, swaps=("conv_weight", "bias")):
    return Result(name, swaps, COURSE, entry(1, "kernels of Part I"), entry(factor))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_WORKBOOK", str(tmp_path / "workbook"))
    monkeypatch.setattr(results, "_course", lambda: COURSE)
    return tmp_path / "workbook"


def written(path, one):
    """Write somebody's entry to a file, as if it came from another workbook."""
    own = results.export(one)
    path.parent.mkdir(exist_ok=True)
    return own.replace(path)


def exported(folder):
    results.export(result())
    return json.loads((folder / "capstone_entry.json").read_text())


def test_an_entry_survives_export_and_import(folder):
    path = results.export(result())
    assert results.read(path.read_bytes()) == result()
    assert path == folder / "capstone_entry.json"
    assert result().ratio == pytest.approx({"T4": 10, "H100 SXM": 10})


def test_the_table_has_the_shortest_step_first(tmp_path):
    assert repr(results.table()) == "The table is empty."
    results.add_entry(written(tmp_path / "ada.json", result("Ada", 10)))
    results.add_entry(written(tmp_path / "grace.json", result("<b>Grace</b>", 10)))
    results.export(result("Zuse", 20))
    found = results.table()
    assert [one.name for one in found.results] == ["Zuse", "<b>Grace</b>", "Ada"]
    assert found.rows()[1] == ("Zuse", "2", "13.2", "0.66", "0.5", "20")
    assert repr(found).splitlines()[-1].startswith("Modelled; sorted by the T4.")
    assert "&lt;b&gt;Grace" in found._repr_html_()
    assert "<b>Grace" not in found._repr_html_()


def test_a_second_entry_of_a_name_takes_the_place_of_the_first(tmp_path):
    for factor in (3, 9):
        results.add_entry(written(tmp_path / "ada.json", result(factor=factor)))
    (one,) = results.table().results
    assert one.ratio["T4"] == pytest.approx(9)


def test_your_entry_is_one_even_after_another_name():
    for name in (results.NOBODY, "Ada"):
        results.export(result(name))
    assert [one.name for one in results.table().results] == ["Ada"]


def test_an_entry_of_others_needs_a_name(tmp_path):
    with pytest.raises(ValueError, match="the entry has no name yet but 'Your name'"):
        results.add_entry(written(tmp_path / "theirs.json", result(results.NOBODY)))
    assert results.table().results == []


def test_files_of_a_class_are_imported_and_bad_ones_named(tmp_path):
    files = tmp_path / "class"
    for place, one in {
        "ada.json": result("Ada"),
        "ada2.json": result("Ada", 12),
        "grace.json": result("Grace", 11),
        "nobody.json": result(results.NOBODY),
    }.items():
        written(files / place, one)
    written(files / "zuse" / "capstone_entry.json", result("Zuse", 5))
    (files / "cut.json").write_bytes((files / "ada.json").read_bytes()[:300])
    found = results.add_entries([files, files / "ada.json", tmp_path / "missing.json"])
    assert [one.name for one in found.results] == ["Ada", "Grace", "Zuse"]
    notes = "\n".join(found.notes())
    assert f"Look at {files / 'ada.json'}: {files / 'ada2.json'} has the same name" in notes
    assert f"Look at {files / 'cut.json'}: an entry must be JSON." in notes
    assert f"Look at {files / 'nobody.json'}: the entry has no name yet" in notes
    assert f"Look at {tmp_path / 'missing.json'}: No such file or directory." in notes
    assert len(found.notes()) == 5
    assert html.escape(found.notes()[1]) in found._repr_html_()


def test_an_entry_of_another_model_is_named(tmp_path):
    other = result("Grace")._replace(course=entry(1.1, "the course's step"))
    results.add_entry(written(tmp_path / "grace.json", other))
    results.export(result())
    assert results.table().notes()[1].endswith("modelled by another version of the course: Grace.")


def test_other_files_are_left_out_of_the_table_and_named(folder):
    results.export(result())
    (folder / "results").mkdir()
    (folder / "results" / "other.json").write_text("{}")
    found = results.table()
    assert [one.name for one in found.results] == ["Ada"]
    assert found.notes()[1].startswith("Look at other.json: an entry must have")


BAD = {
    "more": (lambda plain: plain | {"code": "import os"}, "and nothing else"),
    "less": (lambda plain: {"name": "Ada"}, "an entry must have"),
    "list": (lambda plain: [plain], "an entry must have"),
    "format": (lambda plain: plain | {"format": "2"}, "format must be"),
    "no name": (lambda plain: plain | {"name": " "}, "name must be a line of 1 to 40 letters"),
    "long name": (lambda plain: plain | {"name": "a" * 41}, "name must be a line"),
    "two lines": (lambda plain: plain | {"name": "a\nb"}, "name must be a line"),
    "name": (lambda plain: plain | {"name": 3}, "name must be a line"),
    "parts": (lambda plain: plain | {"swaps": ["os.system"]}, "swaps must be a list of parts"),
    "no list": (lambda plain: plain | {"swaps": "bias"}, "swaps must be a list of parts"),
    "no texts": (lambda plain: plain | {"swaps": [[]]}, "swaps must be a list of parts"),
    "twice": (lambda plain: plain | {"swaps": ["bias", "bias"]}, "must not name a part twice"),
    "step": (lambda plain: plain | {"first": {"what": "x", "steps": []}}, "steps must be a list"),
    "gpus": (
        lambda plain: plain | {"last": plain["last"] | {"steps": plain["last"]["steps"][:1]}},
        "of the same GPUs",
    ),
    "too large": (
        lambda plain: (
            plain
            | {"last": {"what": "x", "steps": [step | {"high": 10**400} for step in plain["last"]["steps"]]}}
        ),
        "high must be a number",
    ),
    "too fast": (
        lambda plain: (
            plain
            | {
                "last": plain["last"]
                | {
                    "steps": [
                        step | {"microseconds": 5, "low": 4, "high": 9} for step in plain["last"]["steps"]
                    ]
                }
            }
        ),
        "at least 10 microseconds",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_an_invalid_entry_raises_and_is_not_kept(folder, tmp_path, change, message):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(change(exported(folder))))
    with pytest.raises(ValueError, match=message):
        results.add_entry(path)
    assert not (folder / "results").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"import os", "an entry must be JSON"),
        (b"\xff\xfe", "an entry must be JSON"),
        (b"[" * 9000, "an entry must be JSON"),
        (b" " * 20_001, "at most 20,000 bytes"),
    ],
)
def test_invalid_json_raises(content, message):
    with pytest.raises(ValueError, match=message):
        results.read(content)


@pytest.mark.parametrize("name", ["", "   ", "a\nb", "a" * 41, 3])
def test_a_name_must_be_a_line(name):
    with pytest.raises(ValueError, match="name must be a line of 1 to 40 letters"):
        results.result_of(name, None)
