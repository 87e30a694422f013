"""Waits of threads: recognised under any name, and at their place in the source."""

import ast
import functools
import gc
import inspect
import linecache
import operator
import sys
import textwrap
import threading
import types
import weakref
from typing import NamedTuple

# First: this decides what numba.cuda is.
import gpuless

# isort: split
import numba.cuda as other_name
import numpy as np
import pytest
from numba import cuda, float32, int32, uint32
from numba.cuda import syncthreads, syncthreads as meet, threadIdx

from gpuless import DivergenceError, UnsupportedPython, simulate
from gpuless.access import record, record_lines
from gpuless.simulator import Launch, judge
from gpuless.simulator.coroutines import Coroutine
from gpuless.simulator.kernel import running_twins

gpuless.select()

N = 8
BACKWARDS = list(range(N))[::-1]


def run(kernel, *more, order="forwards"):
    """Return the result of a kernel of one block for 0, 1, 2, ..."""
    x = np.arange(N, dtype=np.float32)
    Launch(kernel, 1, N).run([x, *more], order=order)
    return x.tolist()


# --- Waits by other names ----------------------------------------------------------------------------------
# Each kernel writes the array backwards: without its wait it would read overwritten numbers.


@cuda.jit(device=True)
def turn(x, i):
    value = x[N - 1 - i]
    cuda.syncthreads()
    x[i] = value


@cuda.jit(device=True)
def keep(x, i):
    x[i] = x[i]


@cuda.jit
def by_its_name(x):
    value = x[N - 1 - cuda.threadIdx.x]
    cuda.syncthreads()
    x[cuda.threadIdx.x] = value


@cuda.jit
def imported(x):
    value = x[N - 1 - threadIdx.x]
    meet()
    x[threadIdx.x] = value


@cuda.jit
def of_another_module(x):
    value = x[N - 1 - threadIdx.x]
    other_name.syncthreads()
    x[threadIdx.x] = value


@cuda.jit
def assigned(x):
    wait = cuda.syncthreads
    value = x[N - 1 - threadIdx.x]
    wait()
    x[threadIdx.x] = value


@cuda.jit
def either_way(x):
    value = x[N - 1 - threadIdx.x]
    (cuda.syncthreads if x.size == N else cuda.threadfence)()
    x[threadIdx.x] = value


@cuda.jit
def a_count(x):
    value = x[N - 1 - threadIdx.x]
    count = max(cuda.syncthreads_count(int32(threadIdx.x < 3)), 1)
    x[threadIdx.x] = value * count / 3


@cuda.jit
def of_the_grid(x):
    grid = cuda.cg.this_grid()
    value = x[N - 1 - threadIdx.x]
    x[threadIdx.x] = value * grid.sync()


@cuda.jit
def of_the_grid_at_once(x):
    value = x[N - 1 - threadIdx.x]
    cuda.cg.this_grid().sync()
    x[threadIdx.x] = value


@cuda.jit
def a_shuffle(x):
    x[threadIdx.x] = cuda.shfl_xor_sync(0xFF, x[threadIdx.x], 7)


@cuda.jit
def a_device_function(x):
    turn(x, threadIdx.x)


helpers = types.ModuleType("helpers")
helpers.turn = turn


@cuda.jit
def a_device_function_of_a_module(x):
    helpers.turn(x, threadIdx.x)


@cuda.jit
def an_assigned_device_function(x):
    other = helpers.turn
    again = other
    again(x, threadIdx.x)


FUNCTIONS = keep, turn


class Functions(NamedTuple):
    keep: object
    turn: object


NAMED = Functions(keep, turn)


@cuda.jit
def one_of_a_tuple(x):
    FUNCTIONS[1](x, threadIdx.x)


@cuda.jit
def one_of_a_named_tuple(x):
    NAMED.turn(x, threadIdx.x)


@cuda.jit
def all_of_a_tuple(x):
    for function in (keep, turn, keep):
        function(x, threadIdx.x)


@cuda.jit
def within_the_kernel(x):
    def turn_here(i):
        value = x[N - 1 - i]
        cuda.syncthreads()
        x[i] = value

    turn_here(threadIdx.x)


@cuda.jit
def a_lambda_within(x):
    wait = lambda value: (value, cuda.syncthreads())[0]  # noqa: E731
    x[threadIdx.x] = wait(x[N - 1 - threadIdx.x])


@cuda.jit
def within_what_is_within(x):
    def outer(i):
        def inner(value):
            cuda.syncthreads()
            return value

        return inner(x[N - 1 - i])

    x[threadIdx.x] = outer(threadIdx.x)


@cuda.jit(device=True)
def apply(function, x, i):
    function(x, i)


@cuda.jit
def handed_on(x):
    apply(turn, x, threadIdx.x)
    apply(keep, x, threadIdx.x)


@cuda.jit(device=True)
def deeper(n):
    if n > 0:
        deeper(n - 1)
    cuda.syncthreads()


@cuda.jit
def calls_itself(x):
    value = x[N - 1 - threadIdx.x]
    deeper(3)
    x[threadIdx.x] = value


@cuda.jit(device=True)
def there(n):
    if n > 0:
        back(n - 1)


@cuda.jit(device=True)
def back(n):
    there(n)
    cuda.syncwarp()
    cuda.syncthreads()


@cuda.jit
def call_each_other(x):
    value = x[N - 1 - threadIdx.x]
    there(3)
    x[threadIdx.x] = value


@pytest.mark.parametrize("order", ["forwards", "reversed", "shuffled", "in step"])
@pytest.mark.parametrize(
    "kernel",
    [
        *(by_its_name, imported, of_another_module, assigned, either_way, a_count, a_shuffle),
        *(of_the_grid, of_the_grid_at_once),
        *(a_device_function, a_device_function_of_a_module, an_assigned_device_function),
        *(one_of_a_tuple, one_of_a_named_tuple, all_of_a_tuple, handed_on),
        *(within_the_kernel, a_lambda_within, within_what_is_within, calls_itself, call_each_other),
    ],
    ids=lambda kernel: kernel.py_func.__name__,
)
def test_a_wait_is_recognised_under_any_name(kernel, order, monkeypatch):
    monkeypatch.setattr(judge, "has_compiler", lambda: False)  # no compiler accepts some of these
    assert run(kernel, order=order) == BACKWARDS


@cuda.jit
def given(x, function):
    function(x, threadIdx.x)


@cuda.jit
def given_in_a_tuple(x, functions):
    functions[1](x, threadIdx.x)


def test_device_functions_that_wait_may_be_arguments():
    for order in ("forwards", "reversed"):
        assert run(given, turn, order=order) == BACKWARDS
        assert run(given, keep, order=order) == BACKWARDS[::-1]
        assert run(given_in_a_tuple, (keep, turn), order=order) == BACKWARDS
        assert run(given_in_a_tuple, (turn, keep), order=order) == BACKWARDS[::-1]


@cuda.jit
def two_imported_barriers(x):
    if threadIdx.x % 2:
        syncthreads()
    else:
        syncthreads()


def test_imported_barriers_are_distinguished():
    with pytest.raises(DivergenceError) as caught:
        run(two_imported_barriers)
    assert caught.value.other_site.line == caught.value.site.line - 2
    assert caught.value.site.function == "two_imported_barriers"


@cuda.jit(device=True)
def doubled(value):
    pair = cuda.float32x2(value, value)
    return max(float32(pair.x), abs(pair.y)) + value if value > 0 else np.float32(0)


@cuda.jit
def without_a_wait(x):
    i = threadIdx.x
    for k in range(x.size):
        keep(x, k)
    x[i] = doubled(x[i].real) + cuda.atomic.add(x, i, 0) * x.dtype.type(0)


def is_generator(kernel):
    """Return whether the running launch has a function as a generator."""
    return bool(running_twins().function(kernel.py_func).__code__.co_flags & inspect.CO_GENERATOR)


def test_functions_without_waits_are_no_generators():
    found = []

    def look(*_):
        found.append([is_generator(each) for each in (without_a_wait, keep, doubled, turn)])

    x = np.arange(1, N + 1, dtype=np.float32)
    Launch(without_a_wait, 1, N).run([x], observe=look)
    assert x.tolist() == [2.0 * i for i in range(1, N + 1)]
    assert found == [[False, False, False, True]] * N


def test_arrays_are_freed_at_once():
    run(a_device_function)
    x = np.arange(N, dtype=np.float32)
    alive = weakref.ref(x)
    gc.disable()
    try:
        Launch(a_device_function, 1, N).run([x])
        del x
        assert alive() is None
    finally:
        gc.enable()


# --- Where no wait is seen ---------------------------------------------------------------------------------


@cuda.jit
def called_by_python(x):
    operator.call(cuda.syncthreads)
    x[0] = 1


@cuda.jit
def called_by_python_before_another(x):
    operator.call(cuda.syncthreads)
    cuda.syncthreads()


@cuda.jit
def called_by_python_after_another(x):
    cuda.syncthreads()
    operator.call(cuda.ballot_sync, 0xFF, True)


@pytest.mark.parametrize(
    ("kernel", "line", "operation"),
    [
        (called_by_python, 2, "syncthreads"),
        (called_by_python_before_another, 2, "syncthreads"),
        (called_by_python_after_another, 3, "ballot_sync"),
    ],
    ids=lambda value: getattr(getattr(value, "py_func", None), "__name__", ""),
)
def test_an_unrecognised_wait_raises(kernel, line, operation, monkeypatch):
    monkeypatch.setattr(judge, "has_compiler", lambda: False)
    number = kernel.py_func.__code__.co_firstlineno + line
    pattern = rf"{operation} cannot wait here: the simulator has to see .*\n.*, line {number}: operator.call"
    with pytest.raises(UnsupportedPython, match=pattern):
        run(kernel)


@cuda.jit
def handed_to_python(x):
    operator.call(turn, x, threadIdx.x)


def test_a_waiting_function_cannot_be_passed_to_python(monkeypatch):
    monkeypatch.setattr(judge, "has_compiler", lambda: False)
    line = handed_to_python.py_func.__code__.co_firstlineno + 2
    pattern = rf"in kernel handed_to_python, line {line}: a function that waits cannot wait here: the simula"
    with pytest.raises(UnsupportedPython, match=pattern):
        run(handed_to_python)


# --- Without source ----------------------------------------------------------------------------------------


def without_source(text, **names):
    """Return the function that a text defines, without findable source."""
    scope = {"cuda": cuda, "N": N, **names}
    exec(textwrap.dedent(text), scope)
    return cuda.jit(scope["function"])


TURNED = """
def function(x):
    i = cuda.threadIdx.x
    for _ in range(3):
        value = x[N - 1 - i]
        cuda.syncthreads()
        x[i] = value
        cuda.syncthreads()
"""


@cuda.jit
def calls_function_without_source(x):
    no_source(x, cuda.threadIdx.x)
    for _ in range(2):
        cuda.syncthreads()
        turn(x, threadIdx.x)


no_source = without_source(
    """
    def function(x, i):
        value = x[N - 1 - i]
        cuda.syncwarp()
        x[i] = value
    """
)
CALLS_WHAT_WAITS = """
def function(x):
    helpers.turn(x, cuda.threadIdx.x)
"""


@pytest.mark.parametrize("order", ["forwards", "reversed", "shuffled", "in step"])
def test_functions_without_source_may_wait(order):
    before = threading.active_count()
    assert run(without_source(TURNED), order=order) == BACKWARDS
    assert run(without_source(CALLS_WHAT_WAITS, helpers=helpers), order=order) == BACKWARDS
    assert run(without_source(CALLS_WHAT_WAITS, helpers=NAMED), order=order) == BACKWARDS
    assert run(calls_function_without_source, order=order) == BACKWARDS
    assert threading.active_count() == before


def test_without_source_divergence_is_found_and_no_thread_stays():
    before = threading.active_count()
    uneven = without_source("def function(x):\n for k in range(cuda.threadIdx.x): cuda.syncthreads()\n")
    with pytest.raises(
        DivergenceError, match=r"thread 1 waits at a barrier .function, line 2. and thread 0 has fin"
    ):
        run(uneven)
    failing = without_source("def function(x):\n cuda.syncthreads()\n x[9 + cuda.threadIdx.x] = 1\n")
    with pytest.raises(IndexError, match=r"index 9 is out of bounds.*\n.*, line 3\n  block 0, thread 0"):
        run(failing)
    assert threading.active_count() == before


def test_without_source_and_threads_a_wait_raises(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert run(without_source("def function(x):\n x[cuda.threadIdx.x] = 3\n")) == [3] * N
    assert run(by_its_name) == BACKWARDS
    with pytest.raises(
        UnsupportedPython, match=r"function cannot wait here: the simulator has to see the call"
    ):
        run(without_source(TURNED))


# --- What was compiled when --------------------------------------------------------------------------------


def test_waits_are_those_at_compilation():
    names = {"cuda": cuda, "helper": keep}
    source = "def kernel(x, n):\n    helper(x, cuda.threadIdx.x)\n"
    linecache.cache["<of its time>"] = len(source), None, source.splitlines(True), "<of its time>"
    exec(compile(source, "<of its time>", "exec"), names)
    kernel = cuda.jit(names["kernel"])
    assert run(kernel, 1) == BACKWARDS[::-1]
    names["helper"] = turn
    assert run(kernel, 1) == BACKWARDS[::-1]
    assert run(kernel, 1.0) == BACKWARDS
    names["helper"] = keep
    assert run(kernel, 1.0) == BACKWARDS
    assert run(kernel, 2) == BACKWARDS[::-1]


# --- Lines and columns -------------------------------------------------------------------------------------


def plain_decorator(function):
    return function


if N:

    @plain_decorator
    @cuda.jit(
        fastmath=False,
    )
    @plain_decorator
    def decorated_and_indented(x):
        """A docstring."""
        i = threadIdx.x

        for k in range(2):
            x[i] = (
                x[i] * 2
                + x[k]
            )  # fmt: skip
            while x[i] < 0:
                x[i] += 1
        cuda.syncthreads()
        x[i] = cuda.shfl_down_sync(0xFF, x[i], 1) / 2 + x[i] ** 2 + turned(x, x[i])
        x[i] /= x[0]; x[0] //= 3  # fmt: skip  # noqa: E702


@cuda.jit(device=True)
def turned(x, value): return value + x[1] / 2 if cuda.any_sync(0xFF, value > 9) else x[0]  # fmt: skip


def closed_over(n):
    @cuda.jit
    def inner(x):
        for k in range(n):
            if x[k] >= 0 and cuda.syncthreads_or(int32(x[k] >= k)): x[k] += turned(x, x[k])  # fmt: skip  # noqa: E701

    return inner


def places_of_elements(function):
    """Return line and text of each element of `x` in a function, as its source has them."""
    lines, first = inspect.getsourcelines(function)
    source = "".join(linecache.getlines(function.__code__.co_filename))
    nodes = ast.walk(ast.parse(source))
    found = [node for node in nodes if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "x"]
    inside = range(first, first + len(lines))
    return {(each.lineno, ast.get_source_segment(source, each)) for each in found if each.lineno in inside}


def test_accesses_have_the_lines_of_the_source():
    for kernel, others in ((decorated_and_indented, [turned]), (closed_over(3), [turned])):
        x = cuda.to_device(np.arange(N, dtype=np.float32))
        trace = record(kernel)[1, N](x)
        expected = set().union(*(places_of_elements(each.py_func) for each in (kernel, *others)))
        assert {(site.line, site.expression) for site in trace.sites} <= expected
        missed = {line for line, _ in expected} - {site.line for site in trace.sites}
        assert len(missed) <= 1  # the body of a loop that is not entered


def test_lines_match_the_function_whether_it_waits_or_not():
    """Each statement is reached once in each round, and none belongs to inserted code."""
    x = cuda.to_device(np.arange(N, dtype=np.float32))
    lines = record_lines(closed_over(2))[1, N](x)
    first = closed_over(2).py_func.__code__.co_firstlineno
    for thread in lines.threads:
        numbers = [line.line - first for line in thread if line.depth == 0]
        assert numbers == [2, 3, 2, 3, 2, 2]
        assert {name for line in thread for name in line.variables} <= {"k", "n", "value"}
    assert {operation for operation in lines.waits.values()} == {"syncthreads_or", "any_sync"}


@cuda.jit
def fails_after_a_barrier(x):
    turn(x, threadIdx.x)
    x[threadIdx.x + 5] = 1


@pytest.mark.parametrize(
    ("kernel", "most", "error"),
    [
        (two_imported_barriers, 1000, DivergenceError),
        (fails_after_a_barrier, 1000, IndexError),
        (fails_after_a_barrier, 35, gpuless.LaunchError),
    ],
    ids=["divergence", "index", "lines"],
)
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_failing_launch_raises_its_own_error_while_lines_are_recorded(kernel, most, error, capfd):
    before = sys.gettrace()
    sys.settrace(lambda *_: None)  # like a debugger: waiting threads are ended while it is active
    try:
        with pytest.raises(error):
            record_lines(kernel, most=most)[1, N](cuda.to_device(np.zeros(N, np.float32)))
        gc.collect()
    finally:
        sys.settrace(before)
    assert capfd.readouterr().err == ""


# --- Loops without end -------------------------------------------------------------------------------------


@pytest.fixture
def short_limits():
    before = gpuless.set_limits(seconds=0.3)
    yield
    gpuless.set_limits(**before)


@cuda.jit
def a_while_in_a_branch(x):
    if threadIdx.x == 2:
        while x[0] == 0:
            x[1] = 1


@cuda.jit
def a_long_range(x):
    for k in range(1 << 62):
        x[1] = k


@cuda.jit
def a_long_unsigned_range(x):
    for k in range(uint32(0), uint32(4_000_000_000)):
        x[1] = k


@cuda.jit
def an_assigned_range(x):
    numbers = range(10**12)
    for _ in numbers:
        for k in range(3):
            x[k] = 1


@cuda.jit
def short_ranges(x):
    k = 0
    while k >= 0:
        for i in range(900):
            for j in range(900):
                x[0] = i + j


@cuda.jit(device=True)
def spins(x):
    while True:
        for k in range(3):
            x[k] = 1


@cuda.jit
def spins_elsewhere(x):
    spins(x)


@cuda.jit
def spins_within(x):
    def inner():
        while x[0] >= 0:
            pass

    inner()


@cuda.jit(device=True)
def fibonacci(n):
    """Take very long."""
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@cuda.jit
def takes_very_long(x):
    x[0] = fibonacci(70)


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize(
    ("kernel", "function", "lines"),
    [
        (a_while_in_a_branch, a_while_in_a_branch, [3]),
        (a_long_range, a_long_range, [2]),
        (a_long_unsigned_range, a_long_unsigned_range, [2]),
        (an_assigned_range, an_assigned_range, [3, 4]),
        (short_ranges, short_ranges, [3, 4, 5]),
        (spins_elsewhere, spins, [2, 3]),
        (spins_within, spins_within, [3]),
        (takes_very_long, fibonacci, [3]),
    ],
    ids=lambda value: getattr(getattr(value, "py_func", None), "__name__", ""),
)
def test_an_endless_loop_is_stopped_in_its_line(kernel, function, lines):
    with pytest.raises(gpuless.LaunchStopped, match=r"^no thread has finished in 0.3 s ") as stopped:
        run(kernel)
    place, code = stopped.value.place, function.py_func.__code__
    assert place.site.line - code.co_firstlineno in lines
    assert place.site.text == linecache.getline(__file__, place.site.line).strip()
    assert place.thread == ((2, 0, 0) if kernel is a_while_in_a_branch else (0, 0, 0))
    assert place.kernel == kernel.py_func.__name__


def test_endless_recursion_is_an_error():
    @cuda.jit(device=True)
    def down(x, n):
        down(x, n + 1)
        cuda.syncthreads()

    @cuda.jit
    def kernel(x):
        down(x, 0)

    with pytest.raises(
        RecursionError, match=r"(?s)maximum recursion depth exceeded.*in kernel kernel, device fun"
    ):
        run(kernel)
    assert run(by_its_name) == BACKWARDS


def test_loops_that_end_are_not_changed():
    @cuda.jit
    def kernel(x):
        total = 0
        for k in range(5000, 0, -2):
            total += k
        for k in range(uint32(3000)):
            total += k
        numbers = range(4000)
        for k in numbers:
            total += 1 if k in numbers else 0
        k = 0
        while k < 3000:
            k += 1
        else:
            total += 1
        for k, _ in enumerate(x):
            total += k
        x[threadIdx.x] = total + len(numbers)

    expected = sum(range(5000, 0, -2)) + sum(range(3000)) + 4000 + 1 + sum(range(N)) + 4000
    assert run(kernel) == [np.float32(expected)] * N


# --- Coroutines --------------------------------------------------------------------------------------------


def test_a_coroutine_has_the_context_of_its_caller_and_raises_in_it():
    def work():
        with np.errstate(divide="raise"):
            assert coroutine.wait(1) == 2
        raise KeyError("here")

    coroutine = Coroutine(work)
    assert coroutine.send(None) == 1
    with pytest.raises(KeyError, match="here"):
        coroutine.send(2)


def test_a_coroutine_that_never_began_ends():
    before = threading.active_count()
    coroutine = Coroutine(print, "never")
    coroutine.close()
    assert threading.active_count() == before


def test_a_kernel_with_an_assert_in_a_test_file_has_its_source():
    """pytest rewrites an assert, so its code differs from the source."""

    @cuda.jit
    def kernel(x, n):
        assert n > 0
        x[0] = n**-1  # 0 as Numba computes it, 0.5 in Python

    assert "@pytest_ar" in kernel.py_func.__globals__
    x = np.full(1, 7.0)
    simulate(kernel)[1, 1](x, 2)
    assert x[0] == 0


def test_a_wrapped_kernel_has_its_own_source():
    def other(x, n):
        """Its source is not the kernel's."""

    @cuda.jit
    @functools.wraps(other)
    def kernel(x, n):
        x[cuda.threadIdx.x] = n**-1

    x = np.full(2, 7.0)
    simulate(kernel)[1, 2](x, 2)
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize("left", ["#\n#\n", "def other(:\n", 'x = """'])
def test_a_changed_file_is_not_used_as_source(tmp_path, left):
    file = tmp_path / "changed.py"
    file.write_text("def fill(x):\n    x[0] = 1\n")
    scope = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    file.write_text(left)
    linecache.checkcache(str(file))
    x = np.zeros(1)
    simulate(scope["fill"])[1, 1](x)
    assert x[0] == 1
