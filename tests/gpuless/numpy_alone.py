"""An environment with NumPy and pytest alone, made of what is installed, to test gpuless in."""

import importlib.metadata
import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import gpuless

HERE = Path(__file__).parent
#: What is there beside gpuless and its tests.
DISTRIBUTIONS = ("numpy", "pytest", "pluggy", "iniconfig", "packaging", "pygments")


def make(folder, *more):
    """Return the Python of a new environment in a folder, which has these distributions as well."""
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
    """Let a file or a folder be elsewhere too, unless it is: several distributions share some."""
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
