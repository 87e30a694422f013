"""Build the book: ``python docs/book/build.py [--live] [FOLDER]``, into ``build/book`` unless told otherwise.

Sphinx wants all pages below one folder. They are laid out there as they lie in the repository, so that the
links between them stay what they are. With ``--live`` cells run in its pages; that takes npm (see `bundle`).
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

import bundle
import commands
import live
import nbformat
import numpy as np
import reference
from nbformat.v4 import new_markdown_cell
from sphinx.cmd.build import main as sphinx

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAD = ROOT / "cnn_course" / "chapters" / "mnist_cnn"
TRAINED = ROOT / "cnn_numba" / "pretrained" / "mnist_cnn.npz"
PAGES = (
    "notebooks/*.ipynb",
    "notebooks/README.md",
    "docs/*.md",
    "docs/images/*",
    "gpuless/README.md",
    "CONTRIBUTING.md",
)


#: What moves only where Python runs, and what the book says below its still picture.
MOVING = {
    r"\bexplore\(|^explorer$": "The picture's sliders move in JupyterLab or Colab; here it stands still.",
    r"^DigitPad\(": "Here the pad is a still picture; [Draw a digit](../draw.md) has one that works.",
}


def still(cell):
    """Return what is to be said below a cell, as cells: none or one."""
    notes = [note for code, note in MOVING.items() if re.search(code, cell.source, re.MULTILINE)]
    if cell.cell_type != "code" or not notes:
        return []
    return [new_markdown_cell(f"_{notes[0]}_", id=f"{cell.id}-still")]


#: What stands below an exercise that a page cannot check.
_NEEDS_COMPILER = (
    "_This exercise needs what a browser lacks, the compiler or threads: do it"
    " [in Colab](https://colab.research.google.com/github/cnn-numba/cnn-numba/blob/main/notebooks/{file})"
    " or [on your computer](../index.md)._"
)


def enliven(notebook, file, runs):
    """Mark the cells that run in the page, for `page/live.mjs`; say of other exercises where they do."""
    shown = []
    for cell in notebook.cells:
        shown.append(cell)
        if cell.id in runs:
            cell.metadata.tags = [*cell.metadata.get("tags", ()), f"live-{cell.id}"]
        elif "exercise-stub" in cell.metadata.get("tags", ()):
            shown.append(new_markdown_cell(_NEEDS_COMPILER.format(file=file), id=f"{cell.id}-elsewhere"))
    notebook.cells = shown


def chapter(path, runs=None):
    """Return a notebook as the book shows it: without what is for Colab, which has a button here.

    `runs` has the cells that run in the page, None where none do.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.id != "colab"]
    notebook.metadata.language_info["pygments_lexer"] = "ipython3"
    notebook.cells[0].source = re.sub(r"\[!\[Open in Colab\].*\n\n", "", notebook.cells[0].source)
    for cell in notebook.cells:
        if "setup" in cell.metadata.get("tags", ()):
            cell.metadata.tags = [*cell.metadata.tags, "hide-input"]
    notebook.cells = [shown for cell in notebook.cells for shown in (cell, *still(cell))]
    if runs is not None:
        enliven(notebook, path.name, runs)
    return notebook


def lay_out(source, runs):
    """Copy what the book is made of; `runs` has the cells that run in its pages, by notebook."""
    for pattern in PAGES:
        for path in filter(Path.is_file, ROOT.glob(pattern)):
            place = source / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".ipynb":
                nbformat.write(chapter(path, runs.get(path.stem)), place)
            else:
                shutil.copy2(path, place)
    (source / "api").mkdir()
    for name, text in {**reference.pages(), "commands": commands.page()}.items():
        (source / "api" / f"{name}.rst").write_text(text, encoding="utf-8")
    for path in (HERE / "pages").iterdir():
        shutil.copy2(path, source)


def lay_out_pad(static):
    """Put beside the page with the drawing pad what it loads: the pad of the notebooks, and the network."""
    static.mkdir(exist_ok=True)
    for name in ("pad.js", "pad.css"):
        shutil.copy2(PAD / name, static)
    with np.load(TRAINED) as checkpoint:
        (static / "mnist_cnn.bin").write_bytes(checkpoint["parameters"].astype("<f4").tobytes())


#: Chapters of the first edition, and where what they held begins now.
EARLIER = {
    "02b_the_machine": "10_the_machine",
    "04_shared_memory_and_tiling": "11_shared_memory_and_tiling",
    "05_pooling_and_reductions": "05_pooling_and_softmax",
    "06_dense_is_matmul": "06_dense_layers",
    "06b_convolution_as_matmul": "14_convolution_as_matmul",
    "07b_backward_kernels": "08_backward_kernels",
    "08_mnist_cnn": "09_mnist_cnn",
    "08b_other_parts": "20_other_parts",
    "09_launches_and_graphs": "15_launches_and_graphs",
    "10_mixed_precision": "16_mixed_precision",
    "10b_tensor_cores": "17_tensor_cores",
    "11_debugging": "04_debugging",
    "11b_repairing_a_program": "19_repairing_a_program",
    "12_colour_images": "21_colour_images",
    "13_sequences": "22_sequences",
    "13b_attention": "23_attention",
    "14_many_gpus": "24_many_gpus",
    "15_other_roads": "25_other_roads",
    "15b_frameworks_and_engines": "26_frameworks_and_engines",
}
_MOVED = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Moved</title>
<meta http-equiv="refresh" content="0; url={stem}.html"><link rel="canonical" href="{stem}.html"></head>
<body><p>This chapter is now <a href="{stem}.html">{stem}</a>.</p></body></html>
"""


def redirect(folder):
    """Write a page under each chapter's earlier name that leads to the new one."""
    for before, stem in EARLIER.items():
        (folder / f"{before}.html").write_text(_MOVED.format(stem=stem), encoding="utf-8")


def build(folder, with_live_cells=False):
    """Write the book into a folder; return Sphinx's exit status."""
    source, work = folder / "source", ROOT / "build" / "page"
    runs, script = {}, ""
    for before in (source, folder / "html" / "_static" / "page"):
        shutil.rmtree(before, ignore_errors=True)
    if with_live_cells:
        course, script = bundle.write(source / "static" / "page", work)
        runs = {stem: live.live(found) for stem, found in live.outcomes(course).items()}
    lay_out(source, runs)
    lay_out_pad(source / "static")
    options = [
        "--conf-dir",
        HERE,
        "--doctree-dir",
        folder / "doctrees",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
    ]
    options += ["--define", f"live_script={script}"]
    options += ["--define", f"html_static_path={HERE / 'static'},{source / 'static'}"]
    status = sphinx([*map(str, options), "-b", "html", str(source), str(folder / "html")])
    for path in ROOT.glob("notebooks/*.ipynb"):  # what is downloaded is the notebook itself
        shutil.copy2(path, folder / "html" / "_sources" / "notebooks")
    redirect(folder / "html" / "notebooks")
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the book.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "book")
    parser.add_argument("--live", action="store_true", help="let cells run in the pages")
    options = parser.parse_args()
    sys.exit(build(options.folder, options.live))
