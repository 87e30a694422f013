r"""Plausible wrong answers to the course's exercises, written as learners write them.

Most are the solution but for a slip. The solution stands in the notebook alone, and such an answer is what is
replaced in it, ``(old, new)``, or a list of replacements, which are made one after the other::

    ("b[k, column]", "b[column, k]")
    [("out[row, column] = total", ""), ("total +=", "out[row, column] =")]

Where an exercise knows a mistake, its answers stand beside it, in `mistakes` of
``cnn_course/chapters/TOPIC/exercises.py`` or ``exercises/EXERCISE.py``; all others in ``WRONG`` of
``TOPIC/answers.py``, by exercise and by the mistake that the check must come to. An answer that is another
program is a text, the lines after the docstring, or the whole cell where it has a docstring itself; or a
function in ``answers.py``, marked by `wrong`. Right answers that are not the solution, ``RIGHT`` by exercise
and name, are written alike.

What is replaced must occur exactly once, or as often as a third element says,
``("cuda.syncthreads()", "", 2)``, and only whole names count: ``lr * v`` is not found in ``lr * velocity``.
Further lines begin where the line does in which the replaced text begins; where that text begins with spaces,
its line is that much deeper than the further ones::

    ("total = float32(0)", "total = float32(0)\ncuda.syncthreads()")  # a line more
    ("    out[i] = total", "    out[i] = total\ncuda.syncthreads()")  # a line more, after the block

All else that an answer needs, such as ``np`` and ``TILE``, comes from the notebook's setup cells.
"""

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass

from cnn_course.engine.in_page import Cell, _names as names_of, _parts as parts
from cnn_numba import device


def wrong(exercise, mistake, emulated=False):
    """Mark a function as a wrong answer.

    Parameters
    ----------
    exercise : str
        Name of the exercise.
    mistake : str
        The `Verdict.mistake` that the check must come to.
    emulated : bool, optional
        Whether only the emulated GPU shows it: elsewhere no time is modelled, no launch waits for its blocks.
    """

    def mark(function):
        if device.SELECTION.emulated or not emulated:
            function.exercise, function.mistake = exercise, mistake
        return function

    return mark


@dataclass(frozen=True)
class Derived:
    """A wrong answer that is the solution but for a change."""

    exercise: str
    mistake: str
    change: str | tuple | list

    def source(self, solution):
        """Return the answer's source.

        Raises
        ------
        ValueError
            If a replacement does not apply, or if what comes out is no answer.
        """
        try:
            source = changed(solution, self.change)
            if ast.dump(ast.parse(source)) == ast.dump(ast.parse(solution)):
                raise ValueError("it is the solution")
            if "@cuda.jit" in solution and "@cuda.jit" not in source:
                raise ValueError("it is no kernel, and the solution is one")
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"{self.mistake!r}, derived from {self.exercise}: {error}") from None
        return source


def answers_to(check, module):
    """Return an exercise's wrong answers: beside its mistakes, and of a topic's module `answers`."""
    name, others = check.name, getattr(module, "WRONG", {}).get(check.name, {})
    derived = [
        Derived(name, mistake, change)
        for mistake, changes in (*check.slips.items(), *others.items())
        for change in changes
    ]
    return derived + [function for function in functions_in(module) if function.exercise == name]


def cell_of(function, module):
    """Return a function of a module that is a wrong answer as a cell: below what it needs of the module.

    It has the name of the exercise there.
    """
    (wanted,) = [name for name, value in vars(module).items() if value is function]
    text = re.sub(r"^@wrong\(.*\n", "", inspect.getsource(module), flags=re.MULTILINE)
    statements = [statement for _, statement in parts(Cell("answers", "setup", text))]
    needed, before = {wanted}, set()
    while needed != before:
        before = needed
        chosen = [each for each in statements if names_of(each).given & needed]
        needed = needed.union(*(names_of(each).needed for each in chosen))
    return re.sub(rf"\b{wanted}\b", function.exercise, "\n".join(chosen))


def functions_in(module):
    """Return the module's functions that are wrong answers."""
    return [value for value in vars(module).values() if hasattr(value, "mistake")]


def changed(solution, change):
    """Return another cell, or a solution with another body, with one replacement or a list of them."""
    if isinstance(change, str) and '"""' in change:
        return textwrap.dedent(change).strip()
    if isinstance(change, str):
        head, docstring, _ = solution.split('"""')
        return f'{head}"""{docstring}"""\n{textwrap.indent(textwrap.dedent(change), "    ")}'
    for replacement in change if isinstance(change, list) else [change]:
        solution = replaced(solution, *replacement)
    return solution


def replaced(source, old, new, times=1):
    """Return `source` with `new` in place of `old`, which must occur `times` times."""
    first = old.splitlines()[0]
    margin = len(first) - len(first.lstrip())
    places = []
    for match in re.finditer(re.escape(first.lstrip()), source):
        start = match.start() - margin
        line = source[source.rfind("\n", 0, match.start()) + 1 :]
        line_break = "\n" + " " * (len(line) - len(line.lstrip()) - margin)
        whole = line_break.join(old.splitlines())
        end = start + len(whole)
        if source.startswith(whole, start) and not any(_within_a_name(source, k) for k in (start, end)):
            places.append((start, end, line_break))
    if len(places) != times:
        raise ValueError(f"{old!r} is there {len(places)} times, not {times}")
    for start, end, line_break in reversed(places):
        source = source[:start] + line_break.join(new.splitlines()) + source[end:]
    return source


def _within_a_name(source, position):
    return re.fullmatch(r"\w\w", source[position - 1 : position + 1]) is not None


def lines_of(found, change):
    """Return all lines that the check of an exercise says of its solution with a change."""
    verdict = found.check(found.run(changed(found.cells.solution, change)))
    assert verdict.status == "wrong", verdict
    return [verdict.message, *verdict.details]
