"""Run cells of the notebooks as a page does, in a Python with NumPy alone and without threads: see `live`.

``python -I -S alone.py COURSE NUMPY``: the unpacked archive, and a folder with NumPy and nothing else. Reads
``{notebook: {cell: source}}`` from its input, the solutions, and writes ``{notebook: {cell: outcome}}``.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import warnings

SECONDS = 4  # of processor time; in a page it takes three times as long


def main(course, numpy):
    """Run all cells; print the outcomes."""
    sys.path[:0] = [course, numpy]
    threading.Thread.start = _no_thread
    os.environ["CNN_NUMBA_WORKBOOK"] = tempfile.mkdtemp()
    from cnn_course.engine.in_page import Cell, Notebook

    class Once(Notebook):
        """Does not run again what has failed."""

        def _run_cell(self, cell):
            if cell.id in failed:
                raise failed[cell.id]
            try:
                return super()._run_cell(cell)
            except BaseException as error:
                failed[cell.id] = error
                raise

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _too_long)
    with open(f"{course}/notebooks/cells.json", encoding="utf-8") as file:
        notebooks = {stem: [Cell(*cell) for cell in cells] for stem, cells in json.load(file).items()}
    solutions, outcomes = json.load(sys.stdin), {}
    for stem, found in notebooks.items():
        outputs, failed = [], {}
        notebook = Once(found, lambda *output, told=outputs: told.append(output))
        outcomes[stem] = {}
        for cell in found:
            if cell.kind in ("stub", "code"):
                outcomes[stem][cell.id] = _outcome(notebook, cell, solutions[stem], outputs)
    json.dump(outcomes, sys.stdout)


def _outcome(notebook, cell, solutions, outputs):
    """Return "" for a cell that runs, "lacks PACKAGE" for one that needs more, else what is in its way."""
    outputs.clear()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        runs = notebook.run(cell.id, solutions)
    except _TooLong:
        return "takes too long"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if cell.kind == "stub" and runs and notebook.verdict.status != "solved":
        return str(notebook.verdict)
    lacking = [f"lacks {text}" for kind, text in outputs if kind == "missing"]
    errors = [text for kind, text in outputs if kind == "error"]
    return "" if runs else [*errors, *lacking][-1]


def _no_thread(self):
    raise RuntimeError("can't start new thread")  # as in a browser


class _TooLong(BaseException):
    pass


def _too_long(number, frame):
    raise _TooLong


if __name__ == "__main__":
    main(*sys.argv[1:])
