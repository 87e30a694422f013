"""What the book's pages need to run cells: packages of npm, pinned, and bundled with what is in `page`.

Nothing of others is committed: ``page/packages.json`` has names, versions and SHA-512, and npm fetches these
into ``build/page``. NumPy for Pyodide is in no registry: a page takes it from the release of Pyodide, by the
name and the SHA-256 in Pyodide's own lock file, or from ``CNN_NUMBA_PYODIDE_WHEELS``, a folder of wheels.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import archive

from cnn_course.engine.outline import NOTEBOOKS

HERE = Path(__file__).parent
PAGE = HERE / "page"
CORE = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")
LOCK = "pyodide-lock.json"
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
ESBUILD = f"@esbuild/{sys.platform}-{_MACHINES.get(platform.machine().lower(), platform.machine())}"
ORIGIN = "https://cdn.jsdelivr.net/pyodide/v{version}/full/"


def install(folder):
    """Let npm fetch the packages, unless they are there; return their folder."""
    packages = _packages()
    wanted = {"dependencies": {name: version for name, (version, _) in packages.items()}}
    found = {
        f"node_modules/{name}": {"version": version, "integrity": integrity}
        for name, (version, integrity) in packages.items()
    }
    lock = {"lockfileVersion": 3, "packages": {"": wanted, **found}}
    modules, kept = folder / "node_modules", folder / "package-lock.json"
    text = json.dumps(lock, indent=1)
    if not modules.is_dir() or not kept.is_file() or kept.read_text(encoding="utf-8") != text:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps(wanted), encoding="utf-8")
        kept.write_text(text, encoding="utf-8")
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=folder, check=True)
    return modules


def _packages():
    """Return version and SHA-512 of each package; of esbuild, which is a program, this machine's."""
    pinned = json.loads((PAGE / "packages.json").read_text(encoding="utf-8"))
    return {name: pinned[name] for name in pinned if not name.startswith("@esbuild/") or name == ESBUILD}


def write(target, work):
    """Write into a folder all that pages need; return the path of the archive, to ask what runs."""
    modules = install(work / "npm")
    target.mkdir(parents=True, exist_ok=True)
    course = archive.write(work)
    shutil.copy2(course, target)
    shutil.copy2(PAGE / "live.css", target)
    packages = _lay_out_pyodide(modules / "pyodide", target)
    worker = _bundle(modules, target, "worker.mjs", {})
    topics = {notebook.stem: notebook.topic for notebook in NOTEBOOKS}
    about = {"archive": course.name, "packages": packages, "worker": worker, "topics": topics}
    live = _bundle(modules, target, "live.mjs", about)
    _write_licences(modules, target / "licences.txt")
    return course, live


def _lay_out_pyodide(pyodide, target):
    """Put Pyodide's core into a folder; return where its packages come from, seen from there."""
    (target / "pyodide").mkdir()
    for name in CORE:
        shutil.copy2(pyodide / name, target / "pyodide")
    lock = json.loads((pyodide / LOCK).read_text(encoding="utf-8"))
    wheels = os.environ.get("CNN_NUMBA_PYODIDE_WHEELS")
    if wheels:
        (target / "wheels").mkdir()
        for each in lock["packages"].values():
            wheel = Path(wheels) / each["file_name"]
            if wheel.is_file():
                shutil.copy2(wheel, target / "wheels")
                each["sha256"] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (target / "pyodide" / LOCK).write_text(json.dumps(lock), encoding="utf-8")
    version = json.loads((pyodide / "package.json").read_text(encoding="utf-8"))["version"]
    return "wheels/" if wheels else ORIGIN.format(version=version)


def _bundle(modules, target, name, about):
    """Bundle a module, named by the hash of what comes out; return that name."""
    made = target / name
    command = [modules / ESBUILD / "bin" / "esbuild", PAGE / name, "--bundle", "--minify"]
    command += ["--format=esm", "--target=es2022", "--log-level=warning"]
    command += [f"--outfile={made}", f"--define:CONFIG={json.dumps(about)}"]
    environment = os.environ | {"NODE_PATH": str(modules)}
    subprocess.run([*map(str, command)], env=environment, check=True)
    named = made.with_stem(f"{made.stem}-{hashlib.sha256(made.read_bytes()).hexdigest()[:16]}")
    return made.rename(named).name


def _write_licences(modules, path):
    """Write the licences of what is bundled, which their texts ask for."""
    parts = []
    for name in _packages():
        about = json.loads((modules / name / "package.json").read_text(encoding="utf-8"))
        files = sorted((modules / name).glob("LICEN[CS]E*"))
        text = files[0].read_text(encoding="utf-8") if files else about["license"]
        parts.append(f"{name} {about['version']} ({about['license']})\n\n{text.strip()}\n")
    path.write_text("\n\n".join(parts), encoding="utf-8")
