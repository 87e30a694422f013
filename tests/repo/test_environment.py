import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from numba import cuda
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cnn_numba import device
from gpuless import nvidia

ROOT = Path(__file__).parents[2]
PROJECT, GPULESS = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in (".", "gpuless")
)
CONDA_NAMES = {"torch": "pytorch"}
# Only in the conda file: the interpreter, the installer, and the packages of the CUDA extras; PoCL
# has other versions there.
CONDA_ONLY = {"python", "pip", "cuda-version", "cuda-nvdisasm", "pocl"}
PIP_ONLY = {"pocl-binary-distribution"}
EVERYTHING = ("torch", "roads", "test")


def requirements(*extras):
    """Return the requirements of both packages, each once, without the two packages themselves."""
    # Where both name a package, the bounds of cnn-numba.
    lines = GPULESS["dependencies"] + GPULESS["optional-dependencies"]["numba"] + PROJECT["dependencies"]
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    found = {requirement.name: requirement for requirement in map(Requirement, lines)}
    return [requirement for name, requirement in found.items() if name != "gpuless"]


def conda_packages():
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    packages = (Requirement(entry.replace("=13", "==13")) for entry in entries if isinstance(entry, str))
    return {package.name: package.specifier for package in packages}


def test_conda_and_pip_name_the_same_packages():
    names = {CONDA_NAMES.get(requirement.name, requirement.name) for requirement in requirements(*EVERYTHING)}
    assert conda_packages().keys() - CONDA_ONLY == names - PIP_ONLY


@pytest.mark.parametrize("requirement", requirements(*EVERYTHING), ids=lambda requirement: requirement.name)
def test_conda_has_the_bounds_of_pip(requirement):
    if requirement.name in PIP_ONLY:
        pytest.skip("conda has it under another name, with other versions")
    name = CONDA_NAMES.get(requirement.name, requirement.name)
    assert conda_packages()[name] == requirement.specifier


def test_conda_installs_the_package_itself_and_the_same_python():
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in entries if isinstance(entry, dict)]
    assert pip == ["--editable ./gpuless", "--editable ."]
    assert conda_packages()["python"] == SpecifierSet(PROJECT["requires-python"])


@pytest.mark.parametrize("requirement", requirements(*EVERYTHING), ids=lambda requirement: requirement.name)
def test_every_package_is_bounded_above(requirement):
    assert any(bound.operator == "<" for bound in requirement.specifier)


@pytest.mark.parametrize("requirement", requirements(*EVERYTHING), ids=lambda requirement: requirement.name)
def test_installed_versions_match_the_requirements(requirement):
    if requirement.marker is not None and not requirement.marker.evaluate():
        pytest.skip(f"not for this platform: {requirement.marker}")
    assert requirement.specifier.contains(version(requirement.name))


def test_numpy_stays_below_2_5():
    # numba-cuda 0.30 names np.row_stack, which NumPy 2.5 removed. Only a compile for a real GPU would notice.
    (numpy,) = [requirement for requirement in requirements() if requirement.name == "numpy"]
    assert not numpy.specifier.contains("2.5.0")
    assert not conda_packages()["numpy"].contains("2.5.0")
    assert Version(version("numpy")) < Version("2.5")


@pytest.mark.skipif(device.simulated(), reason="the simulator stands in for numba-cuda")
def test_numba_cuda_comes_from_the_package_numba_cuda():
    # numba still holds an old numba.cuda; numba-cuda takes its place through a .pth file.
    assert "numba_cuda" in cuda.__file__


def test_the_cuda_extras_exclude_each_other():
    extras = PROJECT["optional-dependencies"]
    for extra in ("cu12", "cu13"):
        assert extras[extra] == [f"gpuless[{extra}]=={PROJECT['version']}"]
        toolkit = map(Requirement, GPULESS["optional-dependencies"][extra])
        (numba_cuda,) = [requirement for requirement in toolkit if requirement.name == "numba-cuda"]
        assert numba_cuda.extras == {extra}
        (plain,) = [requirement for requirement in requirements() if requirement.name == "numba-cuda"]
        assert numba_cuda.specifier == plain.specifier
        project, torch = map(Requirement, extras[f"torch-{extra}"])
        assert (project.name, project.extras, torch.name) == ("cnn-numba", {extra, "torch"}, "torch")


def test_gpuless_takes_either_compiler_or_none():
    names = {Requirement(line).name for line in GPULESS["dependencies"]}
    (ours,) = map(Requirement, PROJECT["optional-dependencies"]["mlir"])
    assert names == {"numpy"}
    _, theirs, disassembler = map(Requirement, GPULESS["optional-dependencies"]["mlir-cu13"])
    assert (theirs.name, theirs.extras, theirs.specifier) == ("numba-cuda-mlir", {"cu13"}, ours.specifier)
    assert str(disassembler) in map(str, map(Requirement, GPULESS["optional-dependencies"]["cu13"]))


def test_the_two_packages_are_of_one_version_and_ask_for_the_same():
    assert f"gpuless[numba]=={PROJECT['version']}" in PROJECT["dependencies"]
    for key in ("version", "license", "urls"):
        assert GPULESS[key] == PROJECT[key]
    assert PROJECT["requires-python"].startswith(f"{GPULESS['requires-python']},")
    ours = {Requirement(line).name: line for line in PROJECT["dependencies"]}
    for line in GPULESS["optional-dependencies"]["numba"] + GPULESS["optional-dependencies"]["pictures"]:
        assert ours.get(Requirement(line).name, line) == line
    (numpy,) = map(Requirement, GPULESS["dependencies"])  # without a compiler there is no upper bound
    assert {str(numpy.specifier)} == set(ours["numpy"].removeprefix("numpy").split(",")) - {"<2.5"}
    assert (ROOT / "gpuless" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_base_installs_no_torch():
    names = {requirement.name for requirement in requirements("cu13")}
    assert "numba-cuda" in names
    assert not names & {"torch", "torchvision"}


def test_the_data_page_lists_every_checksum():
    page = (ROOT / "data" / "README.md").read_text()
    for line in (ROOT / "data" / "mnist" / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        size = (ROOT / "data" / "mnist" / name).stat().st_size
        size = f"{size:,}" if size >= 10_000 else size
        assert f"| `{name}` | {size} | `{digest}` |" in page


@pytest.fixture(autouse=True)
def this_python(monkeypatch):
    """Give make a Python at once, without the script that looks for one."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)


def make(*arguments):
    done = subprocess.run(["make", "-C", ROOT, *arguments], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_make_lists_its_targets():
    listed = make("help")
    for target in ("train", "test", "lab", "lint", "bench", "notebooks"):
        assert f"make {target} " in listed


def test_every_target_of_make_installs_when_needed():
    rules = dict(re.findall(r"^([a-z]+): *(\S*) *##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {target for target, needs in rules.items() if needs == "$(BASE)"} == {"train"}
    assert {target for target, needs in rules.items() if needs != "$(ALL)"} == {"train", "help"}
    plan = make("--dry-run", "--assume-new=pyproject.toml", "train")
    steps = [
        "-m venv --clear .venv",
        "-m pip install --quiet --upgrade",
        "-m pip install --quiet --no-compile --editable ./gpuless --editable '.[",
        "touch",
        "cnn-numba train",
    ]
    assert sorted(steps, key=plan.index) == steps


TELLS_PIP = 'if [ "$2" = pip ]; then echo "$@"; fi\n'


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return a function that calls make with an interpreter that does nothing instead of Python."""
    for name in ("CUDA", "MAKEFLAGS"):  # from a make that runs these tests
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "gpuless").mkdir()
    for name in ("Makefile", "pyproject.toml", "gpuless/pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("python", "cnn-numba"):
        (tmp_path / ".venv" / "bin" / name).write_text(f"#!/bin/sh\n{TELLS_PIP}")
        (tmp_path / ".venv" / "bin" / name).chmod(0o755)

    def run(*arguments):
        """Return the packages that pip is asked to install."""
        told = make("-C", tmp_path, *arguments)
        assert "# " not in told  # comments are for readers of the Makefile
        return re.findall(r"--editable \./gpuless --editable \.(.*)", told)

    return run


@pytest.mark.exhaustive_unless(lambda cuda: cuda == (), "the default toolkit")
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no CUDA")
@pytest.mark.parametrize(
    ("cuda", "base", "everything"),
    [
        ((), "[cu13]", "[torch-cu13,mlir,roads,test,conformance,book,lint]"),
        (("CUDA=12",), "[cu12]", "[torch-cu12,mlir,roads,test,conformance,book,lint]"),
        (("CUDA=none",), "", "[torch,roads,test,conformance,book,lint]"),
    ],
)
def test_make_installs_in_two_stages_in_any_order(checkout, cuda, base, everything):
    assert checkout("train", *cuda) == [base]
    assert checkout("train") == []  # the choice of CUDA is remembered
    assert checkout("test") == [everything]
    assert checkout("train", "test") == []
    assert checkout("--assume-new=pyproject.toml", "train") == [base]
    assert checkout("--assume-new=pyproject.toml", "test") == [everything]


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no CUDA")
def test_make_installs_everything_at_once_if_everything_is_needed(checkout):
    assert checkout("test") == ["[torch-cu13,mlir,roads,test,conformance,book,lint]"]
    assert checkout("train") == []


@pytest.mark.exhaustive("the two stages: what they install is remembered")
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no CUDA")
def test_another_cuda_is_reinstalled(checkout):
    assert checkout("CUDA=12", "test") == ["[torch-cu12,mlir,roads,test,conformance,book,lint]"]
    assert checkout("CUDA=13", "train") == ["[cu13]"]
    assert checkout("train") == []
    assert checkout("test") == ["[torch-cu13,mlir,roads,test,conformance,book,lint]"]


@pytest.mark.exhaustive_unless(
    lambda changed: changed != "pyproject.toml", "the project that the other one is beside"
)
@pytest.mark.parametrize("changed", ["pyproject.toml", "gpuless/pyproject.toml"])
def test_an_installation_is_out_of_date_when_a_project_changes(checkout, tmp_path, changed):
    checkout("test")
    later = time.time() + 60
    os.utime(tmp_path / changed, (later, later))
    assert len(checkout("train")) == 1
    assert len(checkout("test")) == 1


def test_an_environment_without_its_python_is_rebuilt(checkout, tmp_path):
    checkout("test")
    python = tmp_path / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/no/such/python")
    other = tmp_path / "other-python"
    other.write_text(f"#!/bin/sh\nrm -f '{python}'\ncp '{other}' '{python}'\n{TELLS_PIP}")
    other.chmod(0o755)
    assert len(checkout(f"PYTHON={other}", "train")) == 1
    assert not python.is_symlink()
    assert checkout("train") == []


@pytest.mark.parametrize(("user", "allowed"), [("0", True), ("1000", False)])
def test_make_lab_allows_root_to_root_only(tmp_path, monkeypatch, user, allowed):
    (tmp_path / "id").write_text(f"#!/bin/sh\necho {user}\n")
    (tmp_path / "id").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert ("--allow-root" in make("--dry-run", "lab")) == allowed


def test_make_lab_is_reachable_in_a_container_and_passes_options_on(monkeypatch):
    monkeypatch.setenv("container", "podman")
    plan = make("--dry-run", "lab", "ARGS=--port 9999 --debug")
    assert "--no-browser --ip=0.0.0.0 --port 9999 --debug\n" in plan


def reached(address):
    """Return a server's answer, as text."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read().decode()


@pytest.mark.slow
def test_make_lab_opens_the_first_notebook(tmp_path, monkeypatch):
    for name in ("CUDA", "MAKEFLAGS"):  # from a make that runs these tests
        monkeypatch.delenv(name, raising=False)
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / name))
    here = [f"BIN={Path(sys.executable).parent}", "ALL=", "ARGS=--no-browser --port 0"]
    with open(tmp_path / "log", "w") as log:
        lab = subprocess.Popen(
            ["make", "-C", ROOT, "lab", *here], stdout=log, stderr=log, start_new_session=True
        )
    try:
        found = None
        end = time.monotonic() + 300
        while not found:
            said = (tmp_path / "log").read_text()
            if lab.poll() is not None or time.monotonic() > end:
                pytest.fail(f"JupyterLab does not start:\n{said[-4000:]}")
            found = re.search(r"http://127\.0\.0\.1:(\d+)(/\S+)\?token=(\w+)", said)
            time.sleep(0.2)
        port, page, token = found.groups()
        assert page == "/lab/tree/00_start_here.ipynb"
        assert "<title>JupyterLab</title>" in reached(f"http://127.0.0.1:{port}{page}?token={token}")
        listed = json.loads(reached(f"http://127.0.0.1:{port}/api/contents?token={token}"))["content"]
        assert {path.name for path in (ROOT / "notebooks").glob("*.ipynb")} <= {
            file["name"] for file in listed
        }
        with pytest.raises(urllib.error.HTTPError, match="403"):
            reached(f"http://127.0.0.1:{port}/api/contents")
    finally:
        os.killpg(lab.pid, signal.SIGTERM)
        lab.wait(120)
    with pytest.raises(ProcessLookupError):  # nothing is left: make waits for its children
        os.killpg(lab.pid, signal.SIGKILL)


def test_make_names_an_unsupported_python():
    refused = make("--assume-new=pyproject.toml", "PYTHON=no-such-python", "install")
    assert "Python 3.11 to 3.14 is needed" in refused
    assert "and no-such-python is not there; install one" in refused


def pretend(folder, **versions):
    """Write programs into a folder that behave like Pythons of these versions."""
    for name, number in versions.items():
        program = folder / name.replace("_", ".")
        numbers = tuple(map(int, number.split(".")))
        program.write_text(
            f"#!{sys.executable} -SE\nimport sys\nsys.version_info = {numbers}\n"
            f"if sys.argv[1] == '-V': print('Python {number}')\n"
            "if sys.argv[1] == '-c': exec(sys.argv[2])\n"
        )
        program.chmod(0o755)


@pytest.fixture
def only_these(tmp_path, monkeypatch):
    """Return a function that creates the only Pythons that make finds."""
    for tool in ("sh", "make", "sed", "expand", "uname", "id", "touch", "rm", "echo"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYTHON", raising=False)

    def planned(**versions):
        pretend(tmp_path, **versions)
        return make("--dry-run", "--assume-new=pyproject.toml", "install")

    return planned


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        ({"python3": "3.15.0", "python3_12": "3.12.1", "python3_13": "3.13.0"}, "python3.13"),
        ({"python3": "3.15.0", "python3_11": "3.11.0", "python3_14": "3.14.2"}, "python3.14"),
        ({"python3": "3.12.1", "python3_14": "3.14.2"}, "python3"),
        ({"python3": "3.9.0", "python": "3.11.7"}, "python"),
    ],
)
def test_make_takes_the_newest_python_that_works(only_these, versions, chosen):
    assert f"|| {chosen} -m venv" in only_these(**versions)


@pytest.mark.parametrize(("versions", "is_"), [({"python3": "3.15.0"}, "Python 3.15.0"), ({}, "not there")])
def test_make_says_why_no_python_works(only_these, versions, is_):
    only_these(**versions)
    assert (
        "make: Python 3.11 to 3.14 is needed (numba-cuda has no wheels for 3.15), and "
        f"python3 is {is_}; install one and name it" in make("--assume-new=pyproject.toml", "install")
    )


def test_the_supported_versions_match_the_requirements():
    (first, end), numpys = nvidia._WORKING["Python"], nvidia._WORKING["NumPy"]
    assert PROJECT["requires-python"] == f">={nvidia.dotted(first)},<{nvidia.dotted(end)}"
    assert f"not {first} <= sys.version_info < {end})" in (ROOT / "Makefile").read_text()
    (numpy,) = [requirement for requirement in requirements() if requirement.name == "numpy"]
    assert numpy.specifier == SpecifierSet(f">={nvidia.dotted(numpys[0])},<{nvidia.dotted(numpys[1])}")
