"""The wheels and sdists of both packages: nothing is missing, and nothing superfluous."""

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers import PROGRAMS
from PIL import Image, ImageDraw

from cnn_numba.data import load
from cnn_numba.extras import REPOSITORY

pytest.importorskip("hatchling", reason="`make install` brings what the packages are built with")
ROOT = Path(__file__).parents[2]
PROJECTS = {"gpuless": ROOT / "gpuless", "cnn_numba": ROOT}
NAMES = {path.name for path in (ROOT / "gpuless").glob("*.py")}
DATA = {"cnn_numba/beyond/text/course.txt": ROOT / "data" / "text" / "course.txt"}


def build(project, folder, target):
    """Return the file that hatchling builds from a project."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", folder, "--target", target],
        cwd=project,
        check=True,
        capture_output=True,
        timeout=300,
    )
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module", params=PROJECTS)
def package(request):
    return request.param


@pytest.fixture(scope="module")
def wheel(package, tmp_path_factory):
    with zipfile.ZipFile(build(PROJECTS[package], tmp_path_factory.mktemp("wheel"), "wheel")) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def sdist(package, tmp_path_factory):
    """Return the folder of an unpacked sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(PROJECTS[package], folder, "sdist")) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


def wanted(package):
    """Return the files that the wheel must hold, from those of the clone."""
    beside = {"README.md", "LICENSE", "pyproject.toml"}  # of gpuless, whose folder is the package
    files = {
        path.relative_to(ROOT).as_posix(): path
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name not in beside
    }
    return files | (DATA if package == "cnn_numba" else {})


def metadata(wheel):
    (text,) = (content for name, content in wheel.items() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(text)


def test_a_wheel_holds_the_package_and_nothing_else(package, wheel):
    files = {name: content for name, content in wheel.items() if ".dist-info/" not in name}
    assert files == {name: path.read_bytes() for name, path in wanted(package).items()}
    about = {name.partition(".dist-info/")[2] for name in wheel} - {""}
    assert about - {"entry_points.txt"} == {"METADATA", "WHEEL", "RECORD", "licenses/LICENSE"}


def test_a_wheel_names_its_requirements(package, wheel):
    said = metadata(wheel)
    needed = [line for line in said.get_all("Requires-Dist") if "extra ==" not in line]
    assert (f"gpuless[numba]=={said['Version']}" in needed) == (package == "cnn_numba")
    assert {"cu12", "cu13"} <= set(said.get_all("Provides-Extra"))
    assert said.get_payload().startswith(f"# {said['Name']}")
    command = b"cnn-numba = cnn_numba.cli:main" in b"".join(wheel.values())
    assert command == (package == "cnn_numba")


def test_an_sdist_makes_the_same_wheel(package, wheel, sdist, tmp_path):
    with zipfile.ZipFile(build(sdist, tmp_path, "wheel")) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == wheel
    beside = {"PKG-INFO", ".gitignore", "pyproject.toml", "README.md", "LICENSE"}
    more = {"CHANGELOG.md", "CITATION.cff"} if package == "cnn_numba" else {"py.typed"}
    assert {path.name for path in sdist.iterdir() if path.is_file()} - NAMES == beside | more


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder without a clone, and a function that runs Python there with both wheels unpacked."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for package, project in PROJECTS.items():
        with zipfile.ZipFile(build(project, folder / package, "wheel")) as archive:
            archive.extractall(folder / "site-packages")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CNN_NUMBA_")}
    variables |= {"PYTHONPATH": str(folder / "site-packages"), "HOME": str(folder)}
    # What is installed with `--editable`, as for the tests, has the clone in Python's path.
    beginning = f"import sys; sys.path = [path for path in sys.path if path != {str(ROOT)!r}]\n"

    def run(program, *arguments):
        return subprocess.run(
            [sys.executable, "-c", beginning + program, *map(str, arguments)],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return folder, run


def test_the_packages_know_that_there_is_no_clone(installed):
    folder, run = installed
    printed = run((PROGRAMS / "without_a_clone.py").read_text()).stdout.splitlines()
    assert printed[0].split() == [str(folder / "site-packages" / name) for name in ("cnn_numba", "gpuless")]
    assert printed[1:] == [f"{len(load('course-text').train_images)} True pip install 'cnn-numba[cu13]'"]
    message = f"the course is not in the installed package; it is in the repository: {REPOSITORY}"
    assert run("import cnn_numba.course").stderr.splitlines()[-1] == f"ModuleNotFoundError: {message}"


COMMAND = "from cnn_numba.cli import main; main()"


@pytest.mark.slow
def test_commands_answer_without_a_clone(installed):
    """The trained networks are in the package; of the benchmarks it is said where they are."""
    folder, run = installed
    picture = Image.new("L", (200, 200), 255)
    ImageDraw.Draw(picture).line([(50, 45), (150, 45), (90, 165)], fill=0, width=16, joint="curve")
    picture.save(folder / "seven.png")
    # In this copy of the package the kernels of the CPU are compiled again, which takes most of the time: one
    # command shows that they are, the other computes without them.
    done = run(COMMAND, "predict", "seven.png")
    assert (done.returncode, done.stdout[:14]) == (0, "seven.png: 7 (")
    done = run((PROGRAMS / "without_compiling.py").read_text() + COMMAND, "sample", "--length", 5)
    assert (done.returncode, done.stdout[:8], len(done.stdout)) == (0, "A kernel", len("A kernel") + 5 + 1)
    # Another folder of that name, which Python finds.
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "__init__.py").write_text("raise AssertionError")
    done = run(COMMAND, "bench", "startup")
    message = f"the benchmarks are not in the installed package; they are in the repository: {REPOSITORY}"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"cnn-numba: {message}\n")
    done = run(COMMAND, "bench", "startup", "--help")
    assert (done.returncode, done.stdout.split("[")[0]) == (0, "Usage: cnn-numba bench startup ")
