"""Test gpuless with only NumPy and pytest installed.

``python numpy_alone.py`` runs the tests of the simulator and of the sanitizer in the Python that it is called
with, such as one that no compiler is made for; further arguments are pytest's. `make` makes an environment
of what is installed here.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import gpuless

HERE = Path(__file__).parent
#: The tests of the simulator, the sanitizer and the recordings.
FILES = sorted(
    [f"simulator/{path.name}" for path in HERE.glob("simulator/test_*.py")]
    + [
        "access/test_access.py",
        "access/test_lines.py",
        "sanitizer/test_sanitizer.py",
        "sanitizer/test_words.py",
    ]
    + ["test_simulate.py"]
)
#: What is installed beside gpuless and its tests.
DISTRIBUTIONS = ("numpy", "pytest", "pluggy", "iniconfig", "packaging", "pygments")


def make(folder, *more):
    """Return the Python of a new environment in a folder, with these distributions added."""
    venv.EnvBuilder(symlinks=os.name != "nt").create(folder)
    paths = {"base": str(folder), "platbase": str(folder), "installed_base": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", paths))
    for name in (*DISTRIBUTIONS, *more):
        found = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            link(Path(found.locate_file(top)), site / top)
    link(Path(gpuless.__file__).parent, site / "gpuless")
    return Path(sysconfig.get_path("scripts", "venv", paths)) / (
        "python.exe" if os.name == "nt" else "python"
    )


def link(source, target):
    """Link a file or a folder elsewhere, unless it is there: several distributions share some."""
    if target.exists() or target.is_symlink():
        return
    if os.name != "nt":
        target.symlink_to(source)
    elif source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


def run(python, *arguments, **options):
    """Run the Python of such an environment; return the process."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TMPDIR") if name in os.environ}
    environment = kept | {"PYTHONDONTWRITEBYTECODE": "1"} | options.pop("environment", {})
    command = [python, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=600, check=False, **options
    )


def main(arguments):
    """Run tests in this Python, by default all of `FILES`; return pytest's exit status."""
    import pytest

    files = [argument for argument in arguments if argument.endswith(".py")]
    options = [argument for argument in arguments if argument not in files]
    os.chdir(HERE)  # a program that a test starts would import the gpuless of the folder that it runs in
    # Ignore settings of folders above: they may need plugins and missing packages.
    apart = ["-c", os.devnull, "--rootdir", str(HERE), "--confcutdir", str(HERE), "-p", "no:cacheprovider"]
    return pytest.main([*apart, "--strict-markers", *options, *(files or FILES)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
