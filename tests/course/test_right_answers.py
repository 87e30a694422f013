"""Unusual right answers, which a check must accept."""

import pytest
from test_exercises import FOUND
from wrong_answers import changed

from cnn_course.chapters.capstone.judging import KernelSwap

# Without a compiler a check judges by stored values, and rejects a stored 0.0.
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quickly_compiled")]

EACH = [(found, name, answer) for found in FOUND for name, answer in found.right.items()]
# Except kernels that are swapped into the step: modelling their speed takes long.
FIRST = {found.path: answer for found, _, answer in reversed(EACH) if not isinstance(found.check, KernelSwap)}


@pytest.mark.exhaustive_unless(
    lambda found, answer: answer is FIRST[found.path],
    "the first unusual answer of each notebook; all are judged by the functions that judge the solutions; "
    "capstone/test_swaps.py: other swaps, among them one that passes",
)
@pytest.mark.parametrize(
    ("found", "answer"),
    [(found, answer) for found, _, answer in EACH],
    ids=[f"{found.cells.name}-{name}" for found, name, _ in EACH],
)
def test_an_unusual_answer_is_right(found, answer):
    verdict = found.check(found.run(changed(found.cells.solution, answer)))
    assert verdict.status == "solved", verdict
