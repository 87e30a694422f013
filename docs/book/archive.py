"""The archive with which the book's pages run kernels: gpuless' simulator and the course's checks.

It holds what a check imports, of each data set of the course the first images, and the code cells of the
notebooks. Its name has the hash of its content, so that no cache gives an older one.
"""

import gzip
import hashlib
import io
import json
import re
import zipfile
from pathlib import Path

import first_page

from cnn_course.engine import notebooks
from cnn_numba.data.sources import IDX_STEMS

ROOT = Path(__file__).parents[2]
PACKAGES = ("gpuless", "cnn_numba", "cnn_course", "benchmarks")
_WITH = re.compile(r".*\.py|cnn_course/.*\.json|cnn_numba/pretrained/mnist_cnn\.npz")
#: What only compiled kernels or a terminal need.
_WITHOUT = re.compile(
    r"gpuless/emulator/(driver|ptx)/"
    r"|gpuless/emulator/(analysis|run|translate)/(?!__init__|classes|layout|settings)"
    r"|gpuless/profile/(?!__init__)"
    r"|cnn_numba/cli/"
    r"|cnn_course/engine/(notebooks|export)\.py"
)
#: Of MNIST's training and test images; a notebook takes fewer where a simulator runs its kernels.
IMAGES = 256
CELLS = "notebooks/cells.json"
_KINDS = {"setup": "setup", "exercise-stub": "stub", "exercise-check": "check"}
_TIME = (1980, 1, 1, 0, 0, 0)  # the same for each file, so that the same tree makes the same archive


def contents():
    """Return the files of the archive: their bytes, by their paths."""
    files = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.*")):
            name = path.relative_to(ROOT).as_posix()
            if _WITH.fullmatch(name) and not _WITHOUT.match(name):
                files[name] = path.read_bytes()
    for stem in IDX_STEMS.values():
        packed = (ROOT / "data" / "mnist" / f"{stem}.gz").read_bytes()
        files[f"data/mnist/{stem}"] = first_images(gzip.decompress(packed), IMAGES)
    cells = {path.stem: code_cells(notebooks.read(path)) for path in sorted(ROOT.glob("notebooks/*.ipynb"))}
    cells[first_page.NAME] = first_page.cells()
    files[CELLS] = json.dumps(cells, ensure_ascii=False).encode()
    return files


def first_images(content, count):
    """Return an IDX file with the first entries of another: their number stands in bytes 4 to 8."""
    axes = content[3]
    lengths = [int.from_bytes(content[i : i + 4], "big") for i in range(4, 4 + 4 * axes, 4)]
    header = 4 + 4 * axes
    entry = (len(content) - header) // lengths[0]
    return content[:4] + count.to_bytes(4, "big") + content[8 : header + count * entry]


def code_cells(notebook):
    """Return the code cells of a notebook, each as id, kind and source."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.id != "colab":
            kinds = [_KINDS[tag] for tag in cell.metadata.get("tags", ()) if tag in _KINDS]
            found.append((cell.id, kinds[0] if kinds else "code", cell.source))
    return found


def write(folder):
    """Write the archive into a folder; return its path."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in contents().items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED, 9)
    path = Path(folder) / f"course-{hashlib.sha256(packed.getvalue()).hexdigest()[:16]}.zip"
    path.write_bytes(packed.getvalue())
    return path
