"""Judge answers as a page of the book does: a test runs this in a page, and `judges_alone.py` beside it."""

import json

from cnn_course.engine.in_page import CHECKOUT, Cell, Notebook


def judge(answers):
    """Print the verdict on each answer (status, mistake and words) as a line of JSON."""
    cells = json.loads((CHECKOUT / "notebooks" / "cells.json").read_text(encoding="utf-8"))
    for stem, cell, source in answers:
        outputs = []
        notebook = Notebook(
            [Cell(*each) for each in cells[stem]], lambda *output, kept=outputs: kept.append(output)
        )
        notebook.run(cell, {cell: source} if source else {})
        verdict = notebook.verdict
        said = [verdict.status, verdict.mistake, str(verdict)] if verdict else [None, None, str(outputs)]
        print(json.dumps(said), flush=True)
