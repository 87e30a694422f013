"""The files that other tools read agree with the project."""

import re
import tomllib
import types
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]


def commands(job):
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def test_pre_commit_runs_the_ruff_of_the_project():
    (ruff,) = [line for line in PROJECT["optional-dependencies"]["test"] if line.startswith("ruff")]
    hooks = [hook for source in HOOKS if source["repo"] == "local" for hook in source["hooks"]]
    assert [hook["id"] for hook in hooks] == ["ruff-check", "ruff-format"]
    for hook in hooks:
        assert hook["additional_dependencies"] == [ruff]
        assert "jupyter" in hook["types_or"]


def test_linux_does_what_ci_does():
    assert commands("linux") == [".ci/run"]
    assert PROJECT["requires-python"].removeprefix(">=") in JOBS["linux"]["strategy"]["matrix"]["python"]


@pytest.mark.parametrize("job", JOBS)
def test_what_the_workflow_calls_is_there(job):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in commands(job):
        assert {word for word in re.findall(r"make (\w+)", command)} <= targets
        for path in re.findall(r"\S+\.py", command):
            assert (ROOT / path).is_file(), path
        for extras in re.findall(r"--editable \"\.\[(.*)\]\"", command):
            assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()


def test_the_version_is_the_same_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    versions = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[:2] == ["Unreleased", PROJECT["version"]]


def test_pytest_alone_tests_all_that_is_tested():
    assert PYPROJECT["tool"]["pytest"]["ini_options"]["testpaths"] == ["cnn_numba", "gpuless", "tests"]
    recipes = dict(re.findall(r"^(test(?:-all)?):.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    whole = "$(BIN)/python -m pytest"
    assert recipes == {"test": f"{whole} -m 'not exhaustive'", "test-all": whole}


def test_continuous_integration_tests_what_make_test_leaves_out():
    run = (ROOT / ".ci" / "run").read_text()
    assert "\nmake test " in run
    assert "\n.venv/bin/python -m pytest -m exhaustive " in run


@pytest.mark.parametrize(
    ("given", "asked", "processes"),
    [
        (["cnn_numba", "gpuless", "tests"], None, "auto"),
        (["tests/conftest.py"], None, None),
        (["tests/conftest.py::test_one"], None, None),
        (["tests"], 0, 0),
        (["tests"], 3, 3),
    ],
)
def test_a_run_is_spread_over_processes_unless_it_is_of_one_file(
    request, monkeypatch, given, asked, processes
):
    monkeypatch.chdir(ROOT)
    plugin = request.config.pluginmanager.getplugin(str(ROOT / "tests" / "conftest.py"))
    monkeypatch.setattr(plugin, "keep_bytecode", lambda config: None)  # it is this run's already
    config = types.SimpleNamespace(
        args=given, option=types.SimpleNamespace(numprocesses=asked, maxprocesses=None)
    )
    plugin.pytest_cmdline_main(config)
    assert config.option.numprocesses == processes
    assert config.option.maxprocesses == (4 if processes == "auto" else None)
    config.option = types.SimpleNamespace()  # -p no:xdist
    plugin.pytest_cmdline_main(config)
    assert not vars(config.option)
