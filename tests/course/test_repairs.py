"""The search for a repair of a kernel ends after a number of tries, however fast the machine is."""

import time

import pytest

# isort: split
import cnn_numba  # noqa: F401  (before numba.cuda: this selects what kernels run on)

# isort: split
from numba import cuda

from cnn_course.engine.checks.repairs import TRIES, Repairs


@cuda.jit
def shifted(x, y):
    i = cuda.grid(1)
    y[i] = x[i, 0]
    y[i] += x[i + 1, i]


def searches(is_right):
    """Return the lines before which a barrier is found missing, search by search, and the tries."""
    tried = []

    def passes(kernel):
        tried.append(kernel)
        return is_right(len(tried))

    repairs = Repairs(shifted, passes)
    return [repairs.barriers([5], "x") for _ in range(TRIES)], len(tried)


def test_all_searches_for_a_kernel_end_after_so_many_tries():
    found, tried = searches(lambda count: False)
    assert not any(found)
    assert tried == TRIES


def test_a_repair_is_found_however_slow_the_machine_is(monkeypatch):
    clock = iter(range(0, 10**6, 1000))
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    found, _ = searches(lambda count: count == 3)
    assert len(found[0]) == 1


@pytest.mark.parametrize("spent", [0, TRIES - 1])
def test_a_repair_is_reduced_to_what_is_needed(spent):
    """With the last try too: a guard has no unneeded condition."""
    repairs = Repairs(shifted, lambda kernel: True)
    repairs._tries = spent
    (guard,) = repairs.guard([5], "x")
    assert guard.new == "if i < x.shape[1]:"


@cuda.jit
def halving(x):
    t, half = cuda.threadIdx.x, x.size
    while half > 0:
        if t < half:
            x[t] += x[t + half]
        half //= 2


def test_no_guard_keeps_a_loop_from_its_end():
    """A guard around `half //= 2` would make the loop endless: such kernels run until they are stopped."""
    places = [(line, where) for line, where, _ in Repairs(halving, None)._around(6, ["t + half < x.size"])]
    assert (5, "around it") not in places
    assert (5, "around it and the lines below it") not in places
    assert (6, "around it") in places
