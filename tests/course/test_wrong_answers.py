"""Answers derived from a solution: changes, errors, and where answers are found."""

import textwrap
from types import SimpleNamespace

import pytest
from wrong_answers import Derived, answers_to, changed, replaced, wrong

SOLUTION = '''\
@cuda.jit
def step_kernel(values, velocity, out):
    """Take a step."""
    v = velocity[0]
    for i in range(out.size):
        if i > 0:
            out[i] = values[i] + v
    cuda.syncthreads()
'''


def source(change):
    return Derived("step_kernel", "no step", change).source(SOLUTION)


def test_an_answer_is_the_solution_but_for_the_replacement():
    assert source((" + v", "")) == SOLUTION.replace(" + v", "")


def test_replacements_are_made_one_after_the_other():
    assert "out[i] = v - v" in source([("values[i]", "v"), ("v + v", "v - v")])


def test_a_text_is_another_body():
    head = SOLUTION.partition("    v = ")[0]
    assert changed(SOLUTION, "\n        if out.size:\n            out[0] = 1\n    ").split() == [
        *head.split(),
        *"if out.size: out[0] = 1".split(),
    ]


def test_a_text_with_a_docstring_is_the_whole_cell():
    cell = 'def step(values):\n    """Take a step."""\n    return values\n'
    assert changed(SOLUTION, textwrap.indent(cell, "    ")) == cell.strip()


def test_only_whole_names_are_replaced():
    assert replaced("v = velocity * rev + v", "v", "w", 2) == "w = velocity * rev + w"


def test_further_lines_get_the_indent_of_the_first():
    lines = "if i > 0:\n    out[i] = values[i] + v"
    assert replaced(SOLUTION, lines, "if i > 1:\n    cuda.syncthreads()") == SOLUTION.replace(
        "        if i > 0:\n            out[i] = values[i] + v",
        "        if i > 1:\n            cuda.syncthreads()",
    )


def test_a_line_can_follow_a_block():
    deeper = "        out[i] = values[i] + v"
    assert replaced(SOLUTION, deeper, f"{deeper}\nv = 0") == SOLUTION.replace(
        "            out[i] = values[i] + v\n", "            out[i] = values[i] + v\n    v = 0\n"
    )


def test_a_line_can_leave_its_block():
    assert replaced("for k in x:\n    if k:\n        f()\n    g()\n", "    g()", "g()") == (
        "for k in x:\n    if k:\n        f()\ng()\n"
    )


def test_lines_of_another_depth_are_not_meant():
    with pytest.raises(ValueError, match="is there 0 times, not 1"):
        replaced(SOLUTION, "out[i] = values[i] + v\ncuda.syncthreads()", "")


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (("values[j]", "v"), r"'values\[j\]' is there 0 times, not 1"),
        (("i", "j"), "'i' is there 4 times, not 1"),
        ((" + v", "", 2), "' \\+ v' is there 1 times, not 2"),
        (("0", " 0", 2), "it is the solution"),
        (("i > 0:", "i >"), "invalid syntax"),
        (("@cuda.jit", ""), "it is no kernel, and the solution is one"),
    ],
)
def test_errors_name_the_answer(replacement, message):
    with pytest.raises(ValueError, match=f"'no step', derived from step_kernel: {message}"):
        source(replacement)


def test_answers_come_from_mistakes_a_dictionary_and_functions():
    @wrong("step_kernel", "another")
    def another(values, velocity, out):
        pass

    check = SimpleNamespace(name="step_kernel", slips={"first": [("v", "w", 2)]})
    others = {"step_kernel": {"second": [("v", "x", 2), [("v", "y", 2)]]}, "other_kernel": {"second": "pass"}}
    assert answers_to(check, SimpleNamespace(WRONG=others, another=another)) == [
        Derived("step_kernel", "first", ("v", "w", 2)),
        Derived("step_kernel", "second", ("v", "x", 2)),
        Derived("step_kernel", "second", [("v", "y", 2)]),
        another,
    ]
