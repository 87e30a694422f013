"""The files that other tools read agree with the project."""

import json
import os
import re
import subprocess
import tempfile
import tomllib
import types
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").iterdir()
}
JOBS = WORKFLOWS["tests"]["jobs"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


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
    oldest, _ = PROJECT["requires-python"].removeprefix(">=").split(",<")
    assert oldest in JOBS["linux"]["strategy"]["matrix"]["python"]


def test_the_simulator_runs_with_each_supported_and_free_threaded_python():
    classifiers = tomllib.loads((ROOT / "gpuless" / "pyproject.toml").read_text())["project"]["classifiers"]
    named = re.findall(r"Python :: (3\.\d+)$", "\n".join(classifiers), re.MULTILINE)
    run = JOBS["numpy-alone"]["strategy"]["matrix"]["python"]
    assert run == [*named, *(f"{version}t" for version in named[-2:])]


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_files_called_by_a_workflow_exist(workflow):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]
    for command in [step["run"] for step in steps if "run" in step]:
        assert {word for word in re.findall(r"make (\w+)", command)} <= targets
        for path in re.findall(r"\S+\.py", command):
            assert (ROOT / path).is_file(), path
        for script in re.findall(r"\.ci/\w+", command):
            assert os.access(ROOT / script, os.X_OK)
        for extras in re.findall(r"--editable \"\.\[(.*)\]\"", command):
            assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_workflow_has_few_permissions_one_run_and_a_time_limit(workflow):
    about = WORKFLOWS[workflow]
    assert about["permissions"] in ({}, {"contents": "read"})
    assert "group" in about["concurrency"]
    for job in about["jobs"].values():
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/none@v1"))


def test_installations_from_a_clone_name_both_packages():
    """gpuless is not on the package index: pip must never ask there for it, as anybody may upload one."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = 0
    for path in map(Path, listed.splitlines()):
        kinds = (".py", ".md", ".yml", ".ipynb", ".txt", "")
        # The two pages install a project of the reader's.
        elsewhere = ("tests", "docs/emulated-gpu.md", "docs/numba-cuda-mlir.md")
        if path.suffix not in kinds or path.as_posix().startswith(elsewhere):
            continue
        text = " ".join((ROOT / path).read_text(encoding="utf-8").replace("- --", "--").split())
        for match in re.finditer(r"""--editable ['"]?\.(?=[\['"$`\s])""", text):
            found += 1
            said = text[: match.end()][-80:]
            assert said.removesuffix(match[0]).endswith("--editable ./gpuless "), f"{path}: {said}"
    assert found > 10


def test_the_container_installs_existing_files():
    copied = re.findall(r"^COPY \S+ (.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert copied.pop() == "."
    for path in " ".join(copied).split():
        assert (ROOT / path).is_file(), path
    readmes = {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml"}
    assert set(" ".join(copied).split()) == readmes | {f"gpuless/{name}" for name in readmes}
    for extras in re.findall(r"EXTRAS=(\S+)", DOCKERFILE):
        assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert DOCKERFILE.rindex("USER 1000") > DOCKERFILE.rindex("USER 0")


def test_the_devcontainer_and_binder_fit_the_rest():
    about = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    stages = re.findall(r"^FROM \S+ AS (\S+)", DOCKERFILE, re.MULTILINE)
    assert about["build"]["target"] in stages
    assert (ROOT / ".devcontainer" / about["build"]["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert about["remoteUser"] in DOCKERFILE
    assert f"EXPOSE {about['forwardPorts'][0]}\n" in DOCKERFILE
    _, *binder = (ROOT / ".binder" / "requirements.txt").read_text().splitlines()
    assert binder == ["--editable ./gpuless", "--editable .[cu13]"]


def test_the_version_is_the_same_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    wheels = re.findall(r"(?:gpuless|cnn_numba)-(.*?)-py3", (ROOT / "docs" / "installing.md").read_text())
    assert wheels == [PROJECT["version"]] * 2
    versions = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[:2] == ["Unreleased", PROJECT["version"]]


def test_pytest_alone_runs_all_tests():
    assert PYPROJECT["tool"]["pytest"]["ini_options"]["testpaths"] == [
        "cnn_numba",
        "cnn_course",
        "benchmarks",
        "gpuless",
        "tests",
    ]
    recipes = dict(re.findall(r"^(test(?:-all)?):.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    whole = "$(BIN)/python -m pytest"
    assert recipes == {"test": f"{whole} -m 'not exhaustive'", "test-all": whole}


def test_continuous_integration_runs_the_tests_that_make_test_leaves_out():
    run = (ROOT / ".ci" / "run").read_text()
    assert "\nmake test " in run
    assert " .venv/bin/python -m pytest -m exhaustive " in run


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
    monkeypatch.setattr(plugin, "keep_bytecode", lambda config: None)  # this run already has it
    config = types.SimpleNamespace(
        args=given, option=types.SimpleNamespace(numprocesses=asked, maxprocesses=None)
    )
    plugin.pytest_cmdline_main(config)
    assert config.option.numprocesses == processes
    assert config.option.maxprocesses == (4 if processes == "auto" else None)
    config.option = types.SimpleNamespace()  # -p no:xdist
    plugin.pytest_cmdline_main(config)
    assert not vars(config.option)


def test_bytecode_is_kept_for_the_next_run_except_that_of_temporary_files(request, monkeypatch, tmp_path):
    plugin = request.config.pluginmanager.getplugin(str(ROOT / "tests" / "conftest.py"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")
    cleanups = []
    plugin.keep_bytecode(types.SimpleNamespace(rootpath=tmp_path, add_cleanup=cleanups.append))
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ
    kept = Path(os.environ["PYTHONPYCACHEPREFIX"], "usr", "lib")
    temporary = Path(os.environ["PYTHONPYCACHEPREFIX"], *Path(tempfile.gettempdir()).parts[1:], "copy")
    kept.mkdir(parents=True)
    temporary.mkdir(parents=True)
    (cleanup,) = cleanups
    cleanup()
    assert (kept.exists(), temporary.exists()) == (True, False)
    assert tmp_path / "build" in kept.parents
