"""The simulator rejects what the compiler rejects, and nothing else, construct by construct."""

# First: this decides what numba.cuda is.
import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda, typeof
from simulator_constructs import CONSTRUCTS

from gpuless import UnsupportedPython, sanitize
from gpuless.compiler import jobs as compiler
from gpuless.compiler.jobs import InspectionError, Job, compile_jobs
from gpuless.simulator import foreign, judge

gpuless.select()

needs_compiler = pytest.mark.skipif(not judge.has_compiler(), reason="needs the CUDA compiler")


def verdicts():
    """Ask the compiler about all of them, in one go."""
    jobs = [Job(cuda.jit(each.function), tuple(map(typeof, each.arguments)), (8, 0)) for each in CONSTRUCTS]
    try:
        compile_jobs(jobs)
    except InspectionError:
        pass  # many are rejected; results are kept
    return [_compiles(job) for job in jobs]


def _compiles(job):
    try:
        return bool(compile_jobs([job]))
    except InspectionError:
        return False


@pytest.mark.exhaustive("the table's effects; it can change with a version of Numba only")
@needs_compiler
@pytest.mark.slow
def test_the_table_matches_the_compiler():
    wrong = [
        each.name for each, found in zip(CONSTRUCTS, verdicts(), strict=True) if found is not each.compiles
    ]
    assert not wrong


@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
@pytest.mark.parametrize("wrap", [lambda kernel: kernel, sanitize], ids=["plain", "sanitized"])
def test_the_simulator_agrees_with_the_table(construct, wrap, monkeypatch):
    asked = []

    def answer(kernel, arguments):
        asked.append(kernel)
        return None if construct.compiles else "Unknown attribute 'x' of type y"

    monkeypatch.setattr(judge, "has_compiler", lambda: True)
    monkeypatch.setattr(judge, "_ask", answer)
    monkeypatch.setattr(judge, "_passed", {})
    arguments = [
        cuda.to_device(each) if isinstance(each, np.ndarray) else each for each in construct.arguments
    ]
    launch = wrap(cuda.jit(construct.function))[1, 1]
    if construct.compiles:
        launch(*arguments)
    else:
        with pytest.raises(UnsupportedPython, match=f"kernel {construct.function.__name__}, line "):
            launch(*arguments)
    assert bool(asked) is construct.asked


# --- Asking ------------------------------------------------------------------------------------------------


@cuda.jit
def average_kernel(x, out):
    out[0] = x.mean()


@cuda.jit(device=True)
def spread(x):
    return x.flags.c_contiguous


@cuda.jit
def flags_kernel(x):
    i = cuda.grid(1)
    if spread(x):
        x[i] = 1


@cuda.jit
def copy_kernel(x, y):
    x[1:3] = y[2:4]


def launch(kernel, *arrays):
    kernel[1, 1](*map(cuda.to_device, arrays))


@needs_compiler
def test_the_compiler_is_called_once_for_each_kernel_and_types(monkeypatch):
    floats, asked = np.ones(4, np.float32), []
    ask = compiler._ask_workers
    monkeypatch.setattr(compiler, "_ask_workers", lambda jobs: asked.append(len(jobs)) or ask(jobs))
    for _ in range(2):
        launch(average_kernel, floats, floats)
    assert asked == [1]
    for _ in range(2):
        with pytest.raises(UnsupportedPython):
            launch(copy_kernel, floats, floats)
    assert asked == [1, 1]
    monkeypatch.setattr(judge, "_ask", lambda kernel, arguments: asked.append(arguments[0].dtype))
    launch(average_kernel, np.ones(4), floats)
    assert asked == [1, 1, np.float64]


@needs_compiler
def test_an_error_of_the_compiler_names_the_line_and_the_reason():
    with pytest.raises(UnsupportedPython) as caught:
        launch(copy_kernel, np.zeros(4, np.float32), np.zeros(4, np.float32))
    line, reason = copy_kernel.py_func.__code__.co_firstlineno + 2, "it would need memory for a new array"
    assert str(caught.value) == (
        f"in kernel copy_kernel, line {line}: the compiler refuses this: {reason}\n    x[1:3] = y[2:4]"
    )
    with pytest.raises(UnsupportedPython, match=r"in device function spread, line \d+: the compiler refuses"):
        launch(flags_kernel, np.zeros(4))


def test_without_a_compiler_the_kernel_runs(monkeypatch):
    monkeypatch.setattr(judge, "has_compiler", lambda: False)
    monkeypatch.setattr(judge, "_passed", {})
    x, y = cuda.to_device(np.zeros(4)), cuda.to_device(np.arange(4.0))
    copy_kernel[1, 1](x, y)
    assert x.copy_to_host().tolist() == [0, 2, 3, 0]


def test_a_kernel_that_cannot_be_sent_to_the_compiler_runs(monkeypatch):
    def fails(jobs):
        raise InspectionError("cannot be sent")

    monkeypatch.setattr(judge, "has_compiler", lambda: True)
    monkeypatch.setattr(judge, "_passed", {})
    monkeypatch.setattr(compiler, "compile_jobs", fails)
    launch(copy_kernel, np.zeros(4), np.zeros(4))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "TypingError: Failed in a step\nUnknown attribute 'a' of type b\n\nFile",
            "Unknown attribute 'a' of type b",
        ),
        (
            "TypingError: Failed in a step\n- Resolution failure:\n"
            "No implementation of function Function(<f>) found for signature:\n \n >>> hash(float32)\n",
            "there is no hash(float32)",
        ),
        ("NumbaRuntimeError: NRT required but not enabled", "it would need memory for a new array"),
        ("KeyError: 'left'", "KeyError: 'left'"),
    ],
)
def test_the_reason_is_one_line(said, reason):
    message = f"k does not compile for compute capability 8.0: {said}"
    assert foreign.read_refusal(message).reason == reason
