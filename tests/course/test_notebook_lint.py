"""The rules of the course that a program can check, for every notebook; each rule can fail."""

import ast
import copy
import importlib
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

from cnn_course.engine import notebooks
from cnn_course.engine.checks.exercise import Exercise

FOLDER = Path(__file__).parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))

LONGEST_CELL = 25
LARGEST_FILE = 700_000
SHORTEST_ALT = 40
PARTS = ("text", "stub", "check", "hints", "solution")
TAGS = {
    "setup",
    "hide-input",
    "nbval-ignore-output",
    "same-as-package",
    "exercise",
    *(f"exercise-{part}" for part in PARTS[1:]),
}

# Launched as the reader leaves them: to see the mistake, on an image of 28 x 28; and broken by the course.
ALLOWED = {"brighten-run", "program-broken"}

PLACE = re.compile(r"(?<![\w.:/])/(home|root|Users|tmp|work|usr|opt|var|mnt|private|content)/|\b[A-Z]:\\")
TIMING = re.compile(r"\b\d[\d.,]*(e-?\d+)?\s?(ns|us|µs|ms|s|sec|seconds?|minutes?|min)\b")
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}", re.IGNORECASE)
AMERICAN = re.compile(r"\b(colors?|colored|normaliz\w+|optimiz\w+|centers?|centered|neighbors?|behaviors?)\b")
IMAGE = re.compile(r"<img\b[^>]*>")
QUESTION = re.compile(r"^One question to take with you: .+", re.MULTILINE)
# 10,000 has a comma, 2000 none; code and addresses are not prose.
NO_PROSE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.,}])(\d{5,}|\d(,|\{,\})\d{3}(?![\d{,]\d)|\d{1,3}([ \u00a0\u202f]\d{3})+)(?!\d)")
PNG = re.compile(r"data:image/\w+;base64,[\w+/=]+")


class Shelf:
    """A notebook, with what the rules read of it."""

    def __init__(self, path, notebook=None, text=None):
        self.path = path
        self.text = path.read_text(encoding="utf-8") if text is None else text
        self.notebook = notebook or nbformat.reads(self.text, as_version=4)
        self.cells = self.notebook.cells
        self.code = [cell for cell in self.cells if cell.cell_type == "code"]
        self.markdown = [cell for cell in self.cells if cell.cell_type == "markdown"]

    def outputs(self, cell):
        """Yield the outputs of a cell as text, without pixels."""
        for output in cell.outputs:
            texts = [output.get("text", ""), *output.get("data", {}).values()]
            yield from (PNG.sub("PNG", text) for text in texts if isinstance(text, str))


def tags(cell):
    return cell.metadata.get("tags", [])


# Each rule yields the violations.


def head(shelf):
    cell = shelf.cells[0]
    number = shelf.path.stem.partition("_")[0]
    wanted = {
        "a title with the file's number": rf"\A# {number} · \S",
        "two objectives or more": r"\*\*You will be able to\*\*\n(- .+\n){2,}",
        "prerequisites": r"^\*\*Before you start:\*\* \S",
        "minutes": r"^\*\*Time:\*\* about \d+ minutes",
        "a remark on the GPU": r"^\*\*GPU:\*\* \S",
    }
    yield from (
        f"head: no {what}" for what, how in wanted.items() if not re.search(how, cell.source, re.MULTILINE)
    )
    said, takes = re.search(r"about (\d+) minutes", cell.source), notebooks.minutes(shelf.notebook)
    if said and int(said[1]) != takes:
        yield f"head: {said[0]}; by the rule it takes {takes}"
    if takes > 90:
        yield f"head: {takes} minutes; a notebook takes at most 90"


def end(shelf):
    for title in ("## What you can do now", "## Further reading", "## Next"):
        if f"{title}\n" not in shelf.cells[-1].source:
            yield f"end: no {title!r}"
    if not QUESTION.search(shelf.cells[-1].source):
        yield "end: no open question"


def next_notebook(shelf):
    following = [path for path in PATHS if path.stem > shelf.path.stem]
    section = shelf.cells[-1].source.partition("## Next\n")[2]
    if following and f"]({following[0].name})" not in section:
        yield f"end: no link to {following[0].name}, which comes next"


def ids(shelf):
    seen = [cell.id for cell in shelf.cells]
    yield from (f"id {cell_id!r} occurs twice" for cell_id in {i for i in seen if seen.count(i) > 1})
    for cell_id in seen:
        if not re.fullmatch(r"[a-z][a-z0-9-]{2,40}", cell_id) or re.fullmatch(r"[0-9a-f-]+", cell_id):
            yield f"id {cell_id!r} is not a readable name"


def known_tags(shelf):
    yield from (
        f"{cell.id}: unknown tag {tag!r}" for cell in shelf.cells for tag in tags(cell) if tag not in TAGS
    )
    if not any("setup" in tags(cell) for cell in shelf.code):
        yield "no cell is tagged 'setup'"


def cell_length(shelf):
    for cell in shelf.code:
        lines = cell.source.count("\n") + 1
        if lines > LONGEST_CELL:
            yield f"{cell.id}: {lines} lines of code"


def stored_outputs(shelf):
    counts = [cell.execution_count for cell in shelf.code]
    if counts != list(range(1, len(counts) + 1)):
        yield f"not stored from one run from top to bottom: {counts}"
    for cell in shelf.code:
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                yield f"{cell.id}: an error or a warning is stored"


def places(shelf):
    for cell in shelf.cells:
        shown = list(shelf.outputs(cell)) if cell.cell_type == "code" else []
        for text in (cell.source, *shown):
            if found := PLACE.search(text):
                yield f"{cell.id}: a path of one machine: {text[found.start() : found.start() + 40]!r}"


def varying_outputs(shelf):
    for cell in shelf.code:
        if "nbval-ignore-output" in tags(cell):
            continue
        for text in shelf.outputs(cell):
            for what in (TIMING, ADDRESS):
                if found := what.search(text):
                    yield f"{cell.id}: {found[0]!r} differs between machines; tag the cell or leave it out"


def pictures(shelf):
    for cell in shelf.code:
        for output in cell.outputs:
            data = output.get("data", {})
            if any(kind.startswith("image/") for kind in data):
                yield f"{cell.id}: a bare image; show it with plots.picture"
            for image in IMAGE.findall(data.get("text/html", "")):
                alt = re.search(r'alt="([^"]*)"', image)
                if not alt or len(alt[1]) < SHORTEST_ALT:
                    yield f"{cell.id}: a picture without a proper description"
                if "<figcaption" not in data["text/html"]:
                    yield f"{cell.id}: a picture without a caption"
    for cell in shelf.markdown:
        if re.search(r"!\[\s*\]\(", cell.source):
            yield f"{cell.id}: an image without a description"


def exercises_complete(shelf):
    order = [cell.id for cell in shelf.cells]
    found = notebooks.exercises(shelf.notebook)
    if not 1 <= len(found) <= 8:
        yield f"{len(found)} exercises"
    for exercise in found:
        prefix = exercise.name.replace("_", "-")
        wanted = [f"{prefix}-{part}" for part in PARTS]
        start = order.index(wanted[1]) - 1
        if order[start : start + 5] != wanted:
            yield f"{prefix}: the cells {', '.join(wanted)} must follow one another"
            continue
        for cell, part in zip(shelf.cells[start : start + 5], PARTS, strict=True):
            tag = "exercise" if part == "text" else f"exercise-{part}"
            if tag not in tags(cell):
                yield f"{cell.id}: no tag {tag!r}"
        if not re.search(r"\babout \d+ lines?\b", exercise.text, re.IGNORECASE):
            yield f"{prefix}: the text does not say how many lines to write"
        if "Returns" not in exercise.text:
            yield f"{prefix}: the text does not say what is returned"
        if len(exercise.hints) != 2:
            yield f"{prefix}: {len(exercise.hints)} hints"
        if not exercise.solution:
            yield f"{prefix}: no solution"
        if exercise.solution.count("\n") >= LONGEST_CELL:
            yield f"{prefix}: a solution longer than a cell may be"


def checks_exist(shelf):
    module = importlib.import_module(f"cnn_course.chapters.{shelf.path.stem.partition('_')[2]}.exercises")
    for exercise in notebooks.exercises(shelf.notebook):
        if not isinstance(getattr(module, exercise.name, None), Exercise):
            yield f"{exercise.name}: {module.__name__} declares no such check"


def predictions(shelf):
    asked = [index for index, cell in enumerate(shelf.cells) if cell.source.startswith("**Predict.**")]
    if not asked:
        yield "nothing to predict"
    for index in asked:
        cell = shelf.cells[index]
        if "<details><summary>Answer</summary>" not in cell.source:
            yield f"{cell.id}: no folded answer"
        if not cell.id.startswith("predict-"):
            yield f"{cell.id}: the id of a question begins with predict-"


def late_answers(shelf):
    """A cell with an answer can be run again after all others: some exercises are solved then."""
    answers = {exercise.name for exercise in notebooks.exercises(shelf.notebook)}
    cells = [(cell, ast.parse(TransformerManager().transform_cell(cell.source))) for cell in shelf.code]
    for number, (cell, tree) in enumerate(cells):
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        read = {name.id for name in names} - own
        if not read & answers or {*tags(cell)} & {"exercise-stub", "exercise-check"}:
            continue
        # Another generator gives other numbers that are as good.
        for later, other in cells[number + 1 :]:
            yield from (
                f"{cell.id}: {later.id} makes something else of {name}"
                for name in sorted((read - answers - {"rng"}) & _assigned(other))
            )


def guarded_launches(shelf):
    """No wrong answer is launched where it could do harm: without a check or a tool."""
    answers = "|".join(exercise.name for exercise in notebooks.exercises(shelf.notebook))
    for cell in shelf.code:
        written = {*tags(cell)} & {"exercise-stub", "exercise-check"} or cell.id in ALLOWED
        if not written and '== "solved"' not in cell.source:
            yield from (
                f"{cell.id}: {launch[1]}" for launch in re.finditer(rf"^ *({answers})\[", cell.source, re.M)
            )


def _assigned(tree):
    """Return the names that a cell binds, not those inside its functions."""
    statements = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    names = [node for part in statements for node in ast.walk(part) if isinstance(node, ast.Name)]
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def folded_parts(shelf):
    for cell in shelf.markdown:
        opened, closed = (len(re.findall(tag, cell.source)) for tag in ("<details>", "</details>"))
        # Without blank lines folded text is not read as Markdown.
        proper = len(
            re.findall(r"<details><summary>[^<]+</summary>\n\n.+?\n\n</details>", cell.source, re.DOTALL)
        )
        if not opened == closed == proper:
            yield f"{cell.id}: <details> must be closed, with blank lines inside"


def links(shelf):
    for cell in shelf.markdown:
        for target in re.findall(r"\]\(([^)\s]+)\)", cell.source):
            if target.startswith(("http://", "https://")):
                continue
            if not (shelf.path.parent / target.split("#")[0]).exists():
                yield f"{cell.id}: {target} does not exist"


def spelling(shelf):
    for cell in shelf.markdown:
        yield from (f"{cell.id}: {found[0]!r} is not British" for found in AMERICAN.finditer(cell.source))


def thousands(shelf):
    for cell in shelf.markdown:
        for found in NUMBER.finditer(NO_PROSE.sub("", cell.source)):
            yield f"{cell.id}: {found[0]!r}; commas from five digits on, as in 10,000 and 2000"


def canonical_form(shelf):
    if shelf.text != notebooks.canonical(copy.deepcopy(shelf.notebook)):
        yield "not in canonical form: run python -m cnn_course.engine.notebooks --format on it"


def common_parts(shelf):
    wanted = notebooks.with_common_parts(copy.deepcopy(shelf.notebook), shelf.path)
    if [cell.source for cell in wanted.cells] != [cell.source for cell in shelf.cells]:
        yield "Colab's badge or cell or a link to the glossary is not as it should be: use --format as above"


def file_size(shelf):
    if len(shelf.text.encode()) > LARGEST_FILE:
        yield f"{len(shelf.text) / 1e3:.0f} kB"


RULES = [
    *(
        head,
        end,
        next_notebook,
        ids,
        known_tags,
        cell_length,
        stored_outputs,
        places,
        varying_outputs,
        pictures,
    ),
    *(
        exercises_complete,
        checks_exist,
        predictions,
        late_answers,
        guarded_launches,
        folded_parts,
        links,
        spelling,
        thousands,
        canonical_form,
        common_parts,
        file_size,
    ),
]


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_notebook_keeps_the_rules(path):
    shelf = Shelf(path)
    broken = {rule.__name__: list(rule(shelf)) for rule in RULES}
    assert {name: found for name, found in broken.items() if found} == {}


def test_solutions_pass_the_linter_and_the_formatter(tmp_path):
    for path in PATHS:
        found = notebooks.exercises(notebooks.read(path))
        code = "\n\n\n".join(exercise.solution for exercise in found) + "\n"
        (tmp_path / f"{path.stem}.py").write_text(code, encoding="utf-8")
    common = [
        "--no-cache",
        "--no-respect-gitignore",
        "--config",
        str(FOLDER.parent / "pyproject.toml"),
        str(tmp_path),
    ]
    # Kernels take the arguments of the formula.
    for command in (["check", "--ignore", "D,F821,PLR0913"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *command, *common]
        run = subprocess.run(command, text=True, capture_output=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(PATHS)} files already formatted" in run.stdout


def test_the_map_links_to_every_notebook():
    (table,) = (cell.source for cell in notebooks.read(PATHS[0]).cells if cell.id == "map-table")
    assert len(re.findall(r"^\| (?:\[)?\d\d ", table, re.MULTILINE)) == len(PATHS)
    ready = set(re.findall(r"\]\((\w+)\.ipynb\)", table)) | {PATHS[0].stem}
    assert ready == {path.stem for path in PATHS}


def test_the_readme_s_map_matches_the_notebooks():
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(.+?)\]\((\w+)\.ipynb\) \| (\d+) \| .+ \| (.+) \|$", table, re.MULTILINE)
    assert [stem for _, stem, _, _ in rows] == [path.stem for path in PATHS]
    for (title, _, minutes, before), path in zip(rows, PATHS, strict=True):
        source = notebooks.read(path).cells[0].source
        assert title.replace(" ", " · ", 1) in source
        assert f"**Time:** about {minutes} minutes" in source
        line = re.search(r"^\*\*Before you start:\*\*.*", source, re.MULTILINE)[0]
        numbers = re.findall(r"\]\((\d\d[a-z]?)_\w+\.ipynb\)", line)
        assert before == (", ".join(sorted(numbers)) or "nothing but NumPy")


# --- the rules themselves ----------------------------------------------------------------------------------


def _cell(shelf, kind=None, has=""):
    return next(c for c in shelf.cells if kind in (None, c.cell_type) and has in c.source)


def _spoil_source(old, new, kind="markdown"):
    def spoil(shelf):
        cell = _cell(shelf, kind, old)
        cell.source = cell.source.replace(old, new)

    return spoil


def _show(text, kind="text/plain"):
    def spoil(shelf):
        output = nbformat.v4.new_output("display_data", {kind: text})
        next(cell for cell in shelf.code if not tags(cell)).outputs = [output]

    return spoil


def _without(part):
    def spoil(shelf):
        shelf.cells.remove(next(cell for cell in shelf.cells if cell.id.endswith(part)))

    return spoil


def _set(attribute, value):
    def spoil(shelf):
        setattr(shelf.code[2], attribute, value)

    return spoil


def _warn(shelf):
    shelf.code[0].outputs = [nbformat.v4.new_output("stream", name="stderr", text="careful")]


def _twice(shelf):
    shelf.cells[3].id = shelf.cells[2].id


def _enlarge(shelf):
    shelf.text += "x" * LARGEST_FILE


def _take_away(shelf):
    name = notebooks.exercises(shelf.notebook)[0].name
    shelf.code[3].update(source=f"{name}(taken)", metadata={})
    shelf.code[-1].source = "taken = 2"


def _launch(shelf):
    shelf.code[3].update(source=f"{notebooks.exercises(shelf.notebook)[0].name}[1, 32]()", metadata={})


def _indent(shelf):
    shelf.text = shelf.text.replace("\n ", "\n  ")


SPOILED = [
    (head, _spoil_source("**Time:** about", "**Time:** roughly")),
    (head, _spoil_source("# 01", "# 07")),
    (head, _spoil_source("**Time:** about ", "**Time:** about 3")),
    (head, _spoil_source("**You will be able to**", "**Objectives**")),
    (head, _spoil_source("**GPU:**", "**Graphics:**")),
    (head, _spoil_source("**Before you start:**", "Before")),
    (end, _spoil_source("## Next", "## More")),
    (end, _spoil_source("One question to take with you:", "**An open question.**")),
    (next_notebook, _spoil_source("02_first_cuda_kernels.ipynb", "00_start_here.ipynb")),
    (ids, _set("id", "3f2a91bc")),
    (ids, _twice),
    (known_tags, lambda shelf: shelf.code[1].metadata.update(tags=["skip"])),
    (cell_length, _set("source", "x = 1\n" * 26)),
    (stored_outputs, _set("execution_count", None)),
    (stored_outputs, _warn),
    (places, _show("File /" + "home/somebody/x.py")),
    (places, _spoil_source("import numpy", "open('/" + "tmp/x')  # import numpy", "code")),
    (varying_outputs, _show("took 12.3 ms")),
    (varying_outputs, _show("<function f at 0x7f29bfeb0180>")),
    (pictures, _show("iVBORw0KGgo=", "image/png")),
    (pictures, _show('<figure><img src="x"><figcaption>c</figcaption></figure>', "text/html")),
    (pictures, _show(f'<img alt="{"words " * 20}" src="x">', "text/html")),
    (pictures, _spoil_source("## 1.", "![](window.png)\n\n## 1.")),
    (exercises_complete, _without("-hints")),
    (exercises_complete, _without("-solution")),
    (exercises_complete, _without("-check")),
    (exercises_complete, _spoil_source("<details><summary>Hint 2</summary>", "")),
    (exercises_complete, _spoil_source("about 8 lines", "some lines")),
    (checks_exist, lambda shelf: setattr(_cell(shelf, "code", "def conv_by_hand"), "id", "unheard-of-stub")),
    (predictions, _spoil_source("<details><summary>Answer</summary>", "<details>")),
    (late_answers, _take_away),
    (guarded_launches, _launch),
    (folded_parts, _spoil_source("</summary>\n\n", "</summary>\n")),
    (folded_parts, _spoil_source("</details>", "")),
    (links, _spoil_source("00_start_here.ipynb", "00_begin.ipynb")),
    (spelling, _spoil_source("## 1.", "The color of the center.\n\n## 1.")),
    *(
        (thousands, _spoil_source("## 1.", f"Some {number} digits.\n\n## 1."))
        for number in ("10000", "2,000", "$2{,}000$", "10 000", "1,384 448")
    ),
    (canonical_form, _indent),
    (common_parts, _without("colab")),
    (common_parts, _spoil_source("colab-badge", "badge")),
    (common_parts, _spoil_source("%run", "# %run", "code")),
    (file_size, _enlarge),
]


@pytest.mark.parametrize(
    ("rule", "spoil"), SPOILED, ids=[f"{r.__name__}-{i}" for i, (r, _) in enumerate(SPOILED)]
)
def test_rule_can_fail(rule, spoil):
    shelf = Shelf(FOLDER / "01_convolution_on_the_cpu.ipynb")
    spoil(shelf)
    assert list(rule(Shelf(shelf.path, shelf.notebook, shelf.text))) != []


def test_every_rule_is_shown_to_fail():
    assert {rule for rule, _ in SPOILED} == set(RULES)
