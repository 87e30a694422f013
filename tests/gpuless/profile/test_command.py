"""``python -m gpuless profile``: the program runs as it does alone, and the report comes after it."""

import json
import runpy

import gpuless

# isort: split
import pytest
from fresh_python import program_text
from test_running import GPULESS, PLAIN, call, call_warm, emulated

from gpuless.profile.command import main

pytestmark = emulated
pytest.importorskip("scipy", reason="solves linear programs")

PROGRAM = program_text("program_to_profile.py")
PROFILE = [*GPULESS, "profile", "--gpu"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Return the folder of a program with cached kernels: no process compiles them."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.py").write_text(PROGRAM)
    with gpuless.profiling(["T4", "L4", "RTX 4090"]):
        runpy.run_path(str(folder / "program.py"))
    return folder


# In a process without earlier imports the traceback also shows only the program.
@pytest.mark.parametrize(("what", "call"), [("raise", call), ("exit", call_warm)], ids=["raise", "exit"])
def test_a_program_runs_and_ends_as_it_does_alone(program, what, call):
    alone = call(*GPULESS, "program.py", what, "--json", cwd=program)
    status, printed, error = call(*PROFILE, "T4", "program.py", what, "--json", cwd=program)
    assert (status, error) == (alone[0], alone[2])
    own, table = printed.split("\n\n", 1)
    assert own + "\n" == alone[1]
    assert own.startswith("9.0 ['program.py', ")
    lines = [line.split() for line in table.splitlines()]
    assert lines[0][0] == "T4:"
    assert " modelled" in table.splitlines()[0]
    calls = {words[0]: words[4] for words in lines if words and words[0] in ("double", "add")}
    assert calls == {"double": "3", "add": "1"}


def test_one_launch_on_two_gpus(program):
    arguments = ["T4,RTX 4090", "--kernel", "double", "--launch", "2", "program.py"]
    status, printed, error = call_warm(*PROFILE, *arguments, cwd=program)
    assert (status, error) == (0, "")
    assert "\ndouble: launch 2 of 3\n\ndouble[128, 256] on T4: " in printed
    assert "\ndouble[128, 256] on RTX 4090: " in printed
    assert printed.count("\ngpu__time_duration.sum ") == 2
    assert call_warm(*PROFILE, *arguments, cwd=program)[1] == printed


def test_a_kernel_has_the_metrics_of_its_verdict_or_all(program):
    def printed(*options):
        text = call_warm(*PROFILE, "T4", "--kernel", "double", *options, "program.py", cwd=program)[1]
        *_, report, metrics = text.split("\n\n")
        assert "limited by  DRAM: " in report
        return [line.split()[0] for line in metrics.splitlines()[1:]], metrics.splitlines()[0]

    (few, title), (many, _) = printed(), printed("--all")
    assert title == f"Nsight Compute's metrics, modelled; --all prints all {len(many)}"
    assert [name for name in many if name in few] == few
    assert 5 < len(few) <= 12 < 40 < len(many)
    assert {"gpu__time_duration.sum", "dram__bytes.sum"} < set(few)
    assert "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio" in few
    assert "launch__occupancy_limit_blocks" not in few


def test_json_for_machines(program, tmp_path):
    status, printed, error = call_warm(*PROFILE, "T4,L4", "--json", "program.py", cwd=program)
    assert status == 0
    assert error.startswith("9.0 ['program.py'] __main__")
    known = json.loads(printed)
    assert known["modelled"] is True
    assert [timeline["gpu"] for timeline in known["timelines"]] == ["T4", "L4"]
    assert {row["name"]: row["calls"] for row in known["timelines"][0]["kernel"]} == {"double": 3, "add": 1}
    (tmp_path / "found.json").write_text("before")
    options = ["T4", "--kernel", "add", "--json", "found.json", "-c", PROGRAM, "exit"]
    status, printed, _ = call_warm(*PROFILE, *options, cwd=tmp_path)
    assert status == 7
    assert printed == "9.0 ['-c', 'exit'] __main__\n"
    (report,) = json.loads((tmp_path / "found.json").read_text())["reports"]
    assert report["kernel"] == "add"
    assert report["metrics"]["launch__grid_size"] == 256
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["program.py"], "name the GPU, before the program: --gpu T4"),
        (["program.py", "--gpu", "T4"], "name the GPU, before the program: --gpu T4"),
        (["--gpu", "T5", "program.py"], "argument --gpu: gpu 'T5' is not known"),
        (["--gpu", "T4"], "name the program to run: script.py, -m module, -c code or -"),
        (["--gpu", "T4", "-m"], "name the program to run: script.py, -m module, -c code or -"),
        (["--gpu", "T4", "--launch", "0", "a.py"], "argument --launch: must be a number from 1, got '0'"),
        (["--gpu", "T4", "--launch", "2", "a.py"], "it needs --kernel"),
        (["--gpu", "T4", "--all", "a.py"], "it needs --kernel"),
        (["--gpu", "T4,L4", "--trace", "t.json", "a.py"], "--trace is of one GPU"),
    ],
)
def test_wrong_arguments(arguments, words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--kernel", "triple", "program.py"], 1, "no kernel is called triple; launched are: double, add"),
        (["--kernel", "add", "--launch", "2", "program.py"], 1, "add is launched once, not 2"),
        (["no.py"], 2, "can't open file"),
    ],
)
def test_errors_of_the_command(program, arguments, status, words):
    found, printed, error = call_warm(*PROFILE, "T4", *arguments, cwd=program)
    assert found == status
    assert words in error
    assert "Traceback" not in error
    assert "modelled" not in printed


def test_a_trace_that_cannot_be_written_is_named_in_a_line(tmp_path):
    (tmp_path / "a.py").write_text("from numba import cuda\ncuda.to_device([1.0])")
    status, _, error = call_warm(*PROFILE, "T4", "--trace", "none/t.json", "a.py", cwd=tmp_path)
    assert status == 1
    assert error.endswith("python -m gpuless profile: none/t.json: No such file or directory\n")


def test_a_program_without_a_launch(tmp_path):
    (tmp_path / "profile.py").write_text("print('as it was')")
    assert call(*GPULESS, "profile.py", cwd=tmp_path)[1] == "as it was\n"
    assert (
        call(*PROFILE, "T4", "-m", "profile", cwd=tmp_path)[1]
        == "as it was\n\nT4: no launches and no copies\n"
    )
    assert call(*PLAIN, "profile.py", cwd=tmp_path)[1] == "as it was\n"
