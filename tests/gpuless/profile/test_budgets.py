"""Budgets of modelled times: the fixture `modelled_time` of ``pytest -p gpuless``, and its record."""

import json
import runpy
from types import SimpleNamespace

import gpuless

# isort: split
import numpy as np
import pytest
from fresh_python import program_text
from numba import cuda
from test_running import PYTEST, call, call_warm, emulated

from gpuless.profile.budgets import ModelledTime, OverBudget, read_record, record_of, write_records
from gpuless.profile.files import write_whole


def report(microseconds, gpu="T4"):
    class Report(SimpleNamespace):
        def __str__(self):
            return "the whole report"

    return Report(microseconds=microseconds, device=SimpleNamespace(name=gpu), limiter=f"{gpu}'s DRAM")


@pytest.fixture
def file(tmp_path):
    return record_of(tmp_path / "test_it.py")


def recorded(file, *reports, test="test_a", **named):
    times = {}
    ModelledTime(test, file, times).check(reports, **named)
    write_records(times)


def test_at_most_a_factor_above_the_record(file):
    assert file.name == "test_it.modelled.json"
    recorded(file, report(10.0), report(4.0, "A100 SXM"))
    ModelledTime("test_a", file).check([report(10.99), report(4.39, "A100 SXM")])
    ModelledTime("test_a", file).check(report(1.0))  # faster is no failure
    ModelledTime("test_a", file).check(report(14.9), factor=1.5)
    with pytest.raises(OverBudget) as error:
        ModelledTime("test_a", file).check([report(9.0), report(6.0, "A100 SXM")])
    assert str(error.value).startswith(
        "test_a on the A100 SXM: 6 us modelled, 1.50 times the 4 us recorded in test_it.modelled.json; "
        "1.1 times is allowed"
    )
    assert "recorded   A100 SXM's DRAM\nnow        A100 SXM's DRAM" in str(error.value)


def test_a_missing_record_fails_and_says_what_to_do(file):
    for known in (False, True):
        with pytest.raises(
            OverBudget, match=r"no modelled time of test_a on the T4 .* run pytest with --record"
        ):
            ModelledTime("test_a", file).check(report(1.0))
        if not known:
            recorded(file, report(1.0), test="test_b")
            recorded(file, report(1.0, "L4"))


def test_records_keep_those_of_other_tests(file):
    recorded(file, report(10.0), name="first")
    recorded(file, report(5.0), test="test_b")
    recorded(file, report(7.0, "L4"), name="first")
    recorded(file, report(11.0), name="first")
    times = {
        test: {gpu: each["microseconds"] for gpu, each in by_gpu.items()}
        for test, by_gpu in read_record(file).items()
    }
    assert times == {"test_a: first": {"T4": 11.0, "L4": 7.0}, "test_b": {"T4": 5.0}}
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_checks_of_one_test_have_names(file):
    recorded(file, report(10.0))
    budget = ModelledTime("test_a", file)
    budget.check(report(10.0))
    with pytest.raises(
        ValueError, match="test_a is checked twice on the T4: give each check of a test a name"
    ):
        budget.check(report(10.0))
    with pytest.raises(ValueError, match="factor must be positive, got 0"):
        budget.check(report(10.0), factor=0)
    with pytest.raises(ValueError, match="there is no report to check"):
        budget.check([])


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"times": {}}',
        '{"modelled times": []}',
        '{"modelled times": {"test_a": {"T4": {"limiter": "DRAM"}}}}',
        '{"modelled times": {"test_a": {"T4": {"limiter": "DRAM", "microseconds": 0}}}}',
    ],
)
def test_an_invalid_record_file(file, text):
    file.write_text(text)
    with pytest.raises(ValueError, match=r"holds no modelled times .* remove it"):
        ModelledTime("test_a", file).check(report(1.0))


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    target, link = tmp_path / "real", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, "after")
    assert target.read_text() == "after"
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "\ud800")
    assert target.read_text() == "after"
    assert sorted(tmp_path.iterdir()) == [link, target]
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(tmp_path / "nowhere" / "file", "")
    assert caught.value.filename == str(tmp_path / "nowhere" / "file")


SUITE = program_text("suite_with_budgets.py")


def compile_beforehand(path):
    """Cache the kernel's machine code on disk, so that no process of the test starts a compiler."""
    copy = runpy.run_path(str(path))["copy"]
    x = cuda.to_device(np.zeros(256, np.float32))
    gpuless.profile(copy[1, 256], ["T4", "A100"])(x, x)


@emulated
def test_a_suite_with_budgets(tmp_path):
    pytest.importorskip("scipy", reason="solves linear programs")
    (tmp_path / "test_it.py").write_text(SUITE)
    compile_beforehand(tmp_path / "test_it.py")
    file = tmp_path / "test_it.modelled.json"
    pytest.importorskip("xdist")
    assert call_warm(*PYTEST, "--record-modelled-times", "-p", "xdist", "-n", "2", cwd=tmp_path)[0] == 0
    known = json.loads(file.read_text())["modelled times"]
    assert sorted(known) == [
        "TestOne::test_copy",
        "TestOther::test_copy",
        "test_copy[262144]",
        "test_copy[65536]",
    ]
    assert sorted(known["test_copy[65536]"]) == ["A100 SXM", "T4"]
    known["test_copy[65536]"]["T4"]["microseconds"] /= 1.06
    del known["TestOne::test_copy"]
    file.write_text(changed := json.dumps({"modelled times": known}))
    status, printed, _ = call_warm(*PYTEST, cwd=tmp_path)
    assert status == 1
    assert "2 failed, 2 passed" in printed
    assert "test_copy[65536] on the T4: " in printed
    assert "1.06 times the " in printed
    assert "run pytest with --record-modelled-times" in printed
    assert "Error" not in printed  # no traceback from us
    assert file.read_text() == changed


@emulated
def test_the_simulator_models_nothing(tmp_path):
    (tmp_path / "test_it.py").write_text(SUITE)
    status, printed, _ = call(*PYTEST, "--gpuless", "simulator", cwd=tmp_path)
    assert status == 0
    assert "4 skipped" in printed
