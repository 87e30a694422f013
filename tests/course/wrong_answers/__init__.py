r"""Plausible wrong answers to the course's exercises, written as learners write them.

A module for each notebook. Most answers are the solution but for a slip. The solution stands in the notebook
alone, and such an answer is derived from it: it has a name, the mistake that the check must come to, and
what is replaced::

    matmul_kernel = derive(
        "matmul_kernel",
        matmul_along_the_rows_of_b=("b transposed", ("b[k, column]", "b[column, k]")),
        matmul_overwrites=(
            "last product only",
            ("out[row, column] = total", ""),
            ("total +=", "out[row, column] ="),
        ),
    )

The replacements are made one after the other. What is replaced must occur exactly once, or as often as a
third element says, ``("cuda.syncthreads()", "", 2)``, and only whole names count: ``lr * v`` is not found in
``lr * velocity``. Further lines begin where the line does in which the replaced text begins; where that text
begins with spaces, its line is so much deeper than the further ones::

    ("total = float32(0)", "total = float32(0)\ncuda.syncthreads()")  # a line more
    ("    out[i] = total", "    out[i] = total\ncuda.syncthreads()")  # a line more, after the block

All else that an answer needs, such as ``np`` and ``TILE``, comes from the notebook's setup cells.

An answer that is another program than the solution is a function, marked by `wrong`.
"""

import ast
import re
from dataclasses import dataclass


def wrong(exercise, mistake):
    """Mark a function as a wrong answer.

    Parameters
    ----------
    exercise : str
        Name of the exercise.
    mistake : str
        The `Verdict.mistake` that the check must come to.
    """

    def mark(function):
        function.exercise, function.mistake, function.name = exercise, mistake, function.__name__
        return function

    return mark


@dataclass(frozen=True)
class Derived:
    """A wrong answer that is the solution but for some replacements."""

    exercise: str
    name: str
    mistake: str
    replacements: tuple

    def source(self, solution):
        """Return the answer's source: the solution's, changed, under the answer's name.

        Raises
        ------
        ValueError
            If a replacement does not apply, or if what comes out is no answer.
        """
        try:
            source = solution
            for replacement in self.replacements:
                source = replaced(source, *replacement)
            if ast.dump(ast.parse(source)) == ast.dump(ast.parse(solution)):
                raise ValueError("it is the solution")
            if "@cuda.jit" in solution and "@cuda.jit" not in source:
                raise ValueError("it is no kernel, and the solution is one")
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"{self.name}, derived from {self.exercise}: {error}") from None
        return replaced(source, f"def {self.exercise}", f"def {self.name}")


def derive(exercise, **answers):
    """Derive wrong answers from an exercise's solution.

    Parameters
    ----------
    exercise : str
        Name of the exercise.
    **answers : tuple
        By the answer's name: the `Verdict.mistake` that the check must come to, then the replacements,
        each ``(old, new)`` or ``(old, new, times)``.

    Returns
    -------
    list of Derived
    """
    return [
        Derived(exercise, name, mistake, tuple(replacements))
        for name, (mistake, *replacements) in answers.items()
    ]


def answers_in(module):
    """Return the module's wrong answers: the derived ones of each exercise, and the functions."""
    values = [value if isinstance(value, list) else [value] for value in vars(module).values()]
    return [answer for value in values for answer in value if hasattr(answer, "mistake")]


def replaced(source, old, new, times=1):
    """Return `source` with `new` in place of `old`, which must occur so many times."""
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
