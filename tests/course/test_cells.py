"""A check after a failed cell: it must not judge the result of an earlier run."""

import json
import os
import subprocess
import sys

import pytest
from helpers import PROGRAMS

from cnn_course.engine.checks import cells

RIGHT = "def double(x):\n    return x + x"
WRONG = "def double(x):\n    return x * x"
STORIES = {
    "mended": [RIGHT],
    "syntax": [RIGHT, "# mine\ndef double(x):\n    return (x + x"],
    "indented": [RIGHT, "def double(x):\n    y = x\n      return y"],
    "misspelt": [RIGHT, "dfe double(x):\n    return x + x"],
    "wrong before": [WRONG, "def double(x) -> \n    return x + x"],
    "decorated": [RIGHT, "@cuda.jti\ndef double(x):\n    return x + x"],
    "no colon": [RIGHT, "def double(x)\n    return x + x"],
    "unclosed": [RIGHT, "def double(x):\n    '''Never ends.\n    return x + x"],
    "mended after": [RIGHT, "def double(x):\n    return (x + x", RIGHT],
    "fails after the definition": [WRONG, RIGHT + "\n\n1 / 0"],
    "fails again": ["def double(x):\n    return ((", RIGHT, "def double(x):\n    return )"],
    "another cell": [RIGHT, "def other(x):\n    return (("],
    "used, not defined": [RIGHT, "double(3"],
    "defined in another way": [RIGHT, "def double(x):\n    return ((", "double = lambda x: 2 * x"],
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Return the verdicts at the end of all stories, which run in one shell."""
    folder = tmp_path_factory.mktemp("cells")
    file = folder / "stories.json"
    file.write_text(json.dumps(STORIES))
    environment = os.environ | {"IPYTHONDIR": str(folder)}
    command = [sys.executable, PROGRAMS / "tells_stories_of_cells.py", file]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(file.read_text())


@pytest.mark.parametrize(
    ("story", "words"),
    {
        "syntax": ("SyntaxError: '(' was never closed.", "Line 3 of the cell: `return (x + x`"),
        "indented": ("IndentationError: unexpected indent", "Line 3 of the cell: `return y`"),
        "misspelt": ("SyntaxError: invalid syntax", "Line 1 of the cell"),
        "wrong before": ("SyntaxError", "Fix that first, and run the cell again"),
        "decorated": ("NameError: name 'cuda' is not defined",),
        "no colon": ("SyntaxError: expected ':'", "Line 1 of the cell: `def double(x)`"),
        "unclosed": ("SyntaxError",),
        "fails again": ("SyntaxError",),
    }.items(),
    ids=str,
)
def test_a_failed_cell_is_reported_instead_of_a_verdict(verdicts, story, words):
    status, mistake, text = verdicts[story]
    assert (status, mistake) == ("wrong", "cell failed")
    assert "Your last run of the cell above failed with" in text
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    "story",
    [
        "mended",
        "mended after",
        "fails after the definition",
        "another cell",
        "used, not defined",
        "defined in another way",
    ],
)
def test_the_defined_function_is_judged(verdicts, story):
    assert verdicts[story][0] == "solved", verdicts[story]


def test_outside_of_ipython_nothing_is_watched():
    cells.watch()
    assert cells.failure_of("double", lambda x: x) is None
