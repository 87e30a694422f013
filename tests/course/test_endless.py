"""An endless function is stopped, with the line that ran."""

import signal
import sys
import threading

import numpy as np
import pytest

from cnn_course.engine.checks import endless
from cnn_course.engine.checks.exercise import Exercise
from cnn_course.engine.checks.programs import ProgramExercise

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no alarms")

double = Exercise("double", reference=lambda x: 2 * x, cases=lambda rng: [(np.ones(3),), (np.ones(4),)])


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(endless, "LIMIT", 0.2)


def goes_on(x):
    k = 0
    while k < x.size:
        x[k] = 2 * x[k]
    return x


def test_an_endless_loop_is_named_with_the_line_that_ran():
    verdict = double(goes_on)
    assert verdict.mistake == "does not end"
    assert "was stopped after 0.2 seconds" in verdict.message
    assert verdict.details[0] in (
        "Line 3 of your function: `while k < x.size:`",
        "Line 4 of your function: `x[k] = 2 * x[k]`",
    )


def test_a_program_is_stopped_too():
    program = ProgramExercise("double", reference=double.reference, cases=double.cases)
    assert program(goes_on).mistake == "does not end"


def test_alarms_are_as_they_were():
    handler = signal.getsignal(signal.SIGALRM)
    double(goes_on)
    assert double(lambda x: x + x).status == "solved"
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_other_timers_keep_running():
    signal.setitimer(signal.ITIMER_REAL, 100)
    try:
        assert double(lambda x: x + x).status == "solved"
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 90
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_another_thread_has_no_limit():
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.append(double(lambda x: x + x)))
    thread.start()
    thread.join()
    assert verdicts[0].status == "solved"


def test_an_interrupt_by_the_learner_is_raised():
    def stopped(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        double(stopped)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_an_endless_loop_that_prints_keeps_little(capsys):
    def prints(x):
        while True:
            print("once more")

    assert double(prints).mistake == "does not end"
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "once more"
    assert "more lines, of all cases of the check" in last
