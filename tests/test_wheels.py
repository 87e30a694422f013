"""The wheels and sdists of both packages: nothing is missing in them, and nothing too much."""

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cnn_numba.data import load

pytest.importorskip("hatchling", reason="`make install` brings what the packages are built with")
ROOT = Path(__file__).parents[1]
PROJECTS = {"gpuless": ROOT / "gpuless", "cnn_numba": ROOT}
NAMES = {path.name for path in (ROOT / "gpuless").glob("*.py")}
DATA = {"cnn_numba/data/course.txt": ROOT / "data" / "text" / "course.txt"}


def build(project, folder, target):
    """Return the file that hatchling makes of a project."""
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
    """Return what the wheel must hold, by the files of the clone."""
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


def test_a_wheel_says_what_it_needs(package, wheel):
    said = metadata(wheel)
    needed = [line for line in said.get_all("Requires-Dist") if "extra ==" not in line]
    assert (f"gpuless=={said['Version']}" in needed) == (package == "cnn_numba")
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


def test_the_packages_know_that_there_is_no_clone(tmp_path):
    for package, project in PROJECTS.items():
        with zipfile.ZipFile(build(project, tmp_path / package, "wheel")) as archive:
            archive.extractall(tmp_path / "site-packages")
    program = """
import os, cnn_numba, gpuless
from cnn_numba import extras
from cnn_numba.pretrained import MNIST_CNN, TEXT_TRANSFORMER
from cnn_numba.data.datasets import load, needs_download

print(os.path.dirname(cnn_numba.__file__), os.path.dirname(gpuless.__file__))
print(len(load("course-text").train_images), MNIST_CNN.is_file(), TEXT_TRANSFORMER.is_file())
print(needs_download("mnist"), extras.install("cu13"))
"""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CNN_NUMBA_")}
    printed = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=variables | {"PYTHONPATH": str(tmp_path / "site-packages"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout.splitlines()
    assert printed[0].split() == [str(tmp_path / "site-packages" / name) for name in ("cnn_numba", "gpuless")]
    windows = len(load("course-text").train_images)
    assert printed[1:] == [f"{windows} True True", "True pip install 'cnn-numba[cu13]'"]
