"""Each exercise of the course: its stub, its solution (from the notebook alone) and its wrong answers."""

import ast
import functools
import importlib
import linecache
import re
import zlib
from pathlib import Path

import pytest
from advice import advice_of, obeyed
from wrong_answers import Derived, answers_to, cell_of, functions_in

from cnn_course.chapters.capstone import watching
from cnn_course.chapters.other_roads import roads
from cnn_course.engine import notebooks
from cnn_course.engine.checks import exercise, kernels
from cnn_course.engine.checks.evidence import call
from cnn_course.engine.checks.exercise import CheckFailed, Exercise, StandIn
from cnn_course.engine.checks.kernels import KernelExercise
from cnn_numba import device

FOLDER = Path(__file__).parents[2] / "notebooks"


class Found:
    """An exercise of a notebook, with its check and its wrong answers."""

    def __init__(self, path, notebook, cells):
        self.path, self.cells = path, cells
        topic = path.stem.partition("_")[2]
        self.setup = tuple(cell.source for cell in notebook.cells if "setup" in cell.metadata.get("tags", ()))
        self.check = getattr(importlib.import_module(f"cnn_course.chapters.{topic}.exercises"), cells.name)
        self.answers = importlib.import_module(f"{topic}.answers")
        self.wrong = answers_to(self.check, self.answers)
        self.right = getattr(self.answers, "RIGHT", {}).get(cells.name, {})

    def run(self, source):
        """Return the function that the source defines, after the notebook's imports."""
        namespace = dict(executed(self.setup))
        execute(source, namespace)
        return namespace[self.cells.name]

    def source_of(self, answer):
        """Return the cell with a wrong answer: derived from the solution, or as written."""
        if isinstance(answer, Derived):
            return answer.source(self.cells.solution)
        return cell_of(answer, self.answers)


def execute(code, namespace):
    """Run code in a namespace. As in a notebook, the source of what it defines can be looked up."""
    name = f"<cell-{zlib.crc32(code.encode())}>"
    linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
    exec(compile(code, name, "exec"), namespace)


@functools.cache
def executed(cells):
    """Return the namespace that a notebook's setup cells leave; they run once for all its answers."""
    namespace = {}
    for code in cells:
        execute(code, namespace)
    return namespace


FOUND = [
    Found(path, notebook, cells)
    for path in sorted(FOLDER.glob("*.ipynb"))
    for notebook in [notebooks.read(path)]
    for cells in notebooks.exercises(notebook)
]
NAMES = [found.cells.name for found in FOUND]
ANSWERS = [(found, answer) for found in FOUND for answer in found.wrong]


def named(answers):
    """Return names for parameters."""
    return [f"{found.cells.name}-{answer.mistake}" for found, answer in answers]


each_exercise = pytest.mark.parametrize("found", FOUND, ids=NAMES)


VERDICTS = {}


def verdict_on(found, source):
    """Return a check's verdict on an answer. It is the same for the same code, whatever its comments."""
    answer = found, ast.dump(ast.parse(source))
    if answer not in VERDICTS:
        VERDICTS[answer] = found.check(found.run(source))
    return VERDICTS[answer]


def first_of_its_notebook(found):
    """Return the first exercise of the notebook that an exercise is in."""
    return next(each for each in FOUND if each.path == found.path)


@pytest.fixture
def checkable(found):
    """Skip exercises in languages that are missing."""
    languages = getattr(found.check, "languages", ())
    if languages and all(reasons := [roads.missing(language) for language in languages]):
        pytest.skip(" ".join(reasons))


@pytest.fixture
def launched(checkable, monkeypatch):
    """Skip the test also where a check watches the driver, which the simulator lacks."""
    if device.simulated():
        reason = "the check watches copies in the driver, and the simulator has none"
        monkeypatch.setattr(watching, "copies_refused", lambda refused: pytest.skip(reason))


@each_exercise
def test_stub_is_not_solved_yet(found):
    verdict = found.check(found.run(found.cells.stub))
    assert verdict.status == "unsolved"
    assert "not solved yet" in str(verdict)


@each_exercise
@pytest.mark.usefixtures("checkable")
def test_stub_raises_in_strict_mode(found, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_STRICT", "1")
    with pytest.raises(CheckFailed, match=rf"not solved yet: {found.cells.name}"):
        found.check(found.run(found.cells.stub))


# A launch of these in quickly compiled code takes longer than compiling it well.
LARGE = {"choose_launch"}


@pytest.fixture
def compiled_for_its_launches(found, request):
    if found.cells.name not in LARGE:
        request.getfixturevalue("quickly_compiled")


@each_exercise
@pytest.mark.usefixtures("launched", "compiled_for_its_launches")
def test_solution_solves(found, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_STRICT", "1")
    assert verdict_on(found, found.cells.solution).status == "solved"


@each_exercise
def test_there_are_at_least_five_wrong_answers_of_different_kinds(found):
    assert len({answer.mistake for answer in found.wrong}) >= 5


@pytest.mark.exhaustive_unless(
    lambda found, answer: answer is first_of_its_notebook(found).wrong[0],
    "one of each notebook; functions that make each exercise's mistakes are recognised by name",
)
@pytest.mark.parametrize(("found", "answer"), ANSWERS, ids=named(ANSWERS))
@pytest.mark.usefixtures("launched")
def test_wrong_answer_is_rejected_by_name(found, answer):
    verdict = found.check(found.run(found.source_of(answer)))
    assert (verdict.status, verdict.mistake) == ("wrong", answer.mistake), verdict


def sources(*mistakes):
    """Return (exercise, source) of the wrong answers with some mistakes, as parameters."""
    chosen = [
        pair for pair in ANSWERS if pair[1].mistake in mistakes and isinstance(pair[0].check, KernelExercise)
    ]
    derived = [(found, answer) for found, answer in chosen if isinstance(answer, Derived)]
    return [
        pytest.param(found, answer.source(found.cells.solution), id=name)
        for (found, answer), name in zip(derived, named(derived), strict=True)
    ]


def one_of_each(mistakes, parameters):
    """Return the mark that keeps the first exercise with each of these mistakes."""
    kept = [
        next(each.values for each in parameters if each.id.endswith(f"-{mistake}")) for mistake in mistakes
    ]
    return pytest.mark.exhaustive_unless(
        lambda found, source: (found, source) in kept,
        "one of each mistake; for all exercises the advice is written by the same functions",
    )


WITH_FLOAT64 = sources("float64")


@pytest.mark.gpu
@pytest.mark.usefixtures("quickly_compiled")
@one_of_each(["float64"], WITH_FLOAT64)
@pytest.mark.parametrize(("found", "source"), WITH_FLOAT64)
def test_the_advice_against_float64_solves_the_exercise(found, source):
    verdict = verdict_on(found, obeyed(verdict_on(found, source), source))
    assert verdict.status == "solved", verdict


MISSING = "writes past the edge", "reads past the edge", "negative index", "missing barrier", "lost update"
MISSING_SOMETHING = sources(*MISSING)


@pytest.mark.usefixtures("quickly_compiled")
@one_of_each(MISSING, MISSING_SOMETHING)
@pytest.mark.parametrize(("found", "source"), MISSING_SOMETHING)
def test_the_missing_code_that_is_named_solves_the_exercise(found, source):
    verdict = verdict_on(found, source)
    if advice_of(verdict):
        verdict = verdict_on(found, obeyed(verdict, source))
        assert verdict.status == "solved", verdict
    else:  # the observation and a question
        assert "missing" not in verdict.message.replace("Is a barrier missing, is", "")


@pytest.fixture
def each_function_is_called_once(found, monkeypatch):
    """Make an exercise call its functions once for each case, for all mistakes together.

    It compares each with all others, which would repeat hundreds of calls.
    """
    cases, outcomes = found.check.inputs(), {}

    def known(function, case, run=None):
        key = getattr(function, "function", function), run, id(case)  # the function of a stand-in
        if all(case is not each for each in cases):
            return call(function, case, run)
        if key not in outcomes:
            outcomes[key] = call(function, case, run)
        return outcomes[key]

    monkeypatch.setattr(type(found.check), "inputs", lambda check: cases)
    for module in (exercise, kernels):
        monkeypatch.setattr(module, "call", known)


@each_exercise
@pytest.mark.usefixtures("checkable", "each_function_is_called_once")
def test_mistakes_differ_from_the_reference_and_from_their_neighbours(found):
    mistakes = [(name, each) for name, (_, *functions) in found.check.mistakes.items() for each in functions]
    recognised = [found.check(StandIn(function)).mistake for _, function in mistakes]
    assert recognised == [name for name, _ in mistakes]


@each_exercise
def test_every_named_mistake_has_a_wrong_answer(found):
    single = {name for name in found.check.mistakes if " + " not in name}
    assert single <= {answer.mistake for answer in found.wrong}


@each_exercise
def test_inputs_are_varied_and_the_same_every_time(found):
    first, second = found.check.inputs(), found.check.inputs()
    assert repr(first) == repr(second)
    assert len({repr(given) for given in first}) == len(first) >= 5


def test_every_check_belongs_to_an_exercise_of_a_notebook():
    for path in FOLDER.glob("*.ipynb"):
        module = importlib.import_module(f"cnn_course.chapters.{path.stem.partition('_')[2]}.exercises")
        declared = {name for name, value in vars(module).items() if isinstance(value, Exercise)}
        assert declared == {cells.name for cells in notebooks.exercises(notebooks.read(path))}


def test_every_answer_belongs_to_an_exercise():
    for answers in {found.answers for found in FOUND}:
        written = {function.exercise for function in functions_in(answers)}
        named = written.union(getattr(answers, "WRONG", ()), getattr(answers, "RIGHT", ()))
        assert named <= {found.cells.name for found in FOUND if found.answers is answers}


def test_answers_to_known_mistakes_are_beside_the_exercise():
    for found in FOUND:
        written = {one.mistake for one in functions_in(found.answers) if one.exercise == found.cells.name}
        others = written.union(getattr(found.answers, "WRONG", {}).get(found.cells.name, ()))
        assert not others & found.check.mistakes.keys()


@each_exercise
def test_check_cell_calls_the_check_on_the_learners_function(found):
    name = found.cells.name
    assert re.fullmatch(rf"check\.{name}\({name}\)", found.cells.check)
