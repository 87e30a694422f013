"""Wrong answers derived from a solution: what a replacement changes, and what is refused."""

import pytest
from wrong_answers import Derived, derive, replaced

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


def source(*replacements):
    (answer,) = derive("step_kernel", never_steps=("no step", *replacements))
    return answer.source(SOLUTION)


def test_an_answer_is_the_solution_under_its_own_name_but_for_the_replacements():
    changed = SOLUTION.replace("step_kernel", "never_steps").replace(" + v", "")
    assert source((" + v", "")) == changed


def test_replacements_are_made_one_after_the_other():
    assert "out[i] = v - v" in source(("values[i]", "v"), ("v + v", "v - v"))


def test_only_whole_names_are_replaced():
    assert replaced("v = velocity * rev + v", "v", "w", 2) == "w = velocity * rev + w"


def test_further_lines_begin_where_the_first_does():
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
def test_refusals_name_the_answer(replacement, message):
    with pytest.raises(ValueError, match=f"never_steps, derived from step_kernel: {message}"):
        source(replacement)


def test_answers_keep_their_order():
    answers = derive("step_kernel", first=("a", ("v", "w", 2)), second=("b", ("v", "x", 2)))
    assert answers == [
        Derived("step_kernel", "first", "a", (("v", "w", 2),)),
        Derived("step_kernel", "second", "b", (("v", "x", 2),)),
    ]
