"""The workbook: right answers, and only these, are kept as files that stand alone."""

import ast
import importlib
import math
import py_compile
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numba import cuda, float32
from solutions import run, solution_of

import cnn_course as course
from cnn_course.chapters.convolution_on_the_gpu import exercises as convolution_on_the_gpu
from cnn_course.chapters.first_cuda_kernels import exercises as first_cuda_kernels
from cnn_course.chapters.mnist_cnn import exercises as mnist_cnn, own_backend
from cnn_course.engine import notebooks, workbook
from cnn_course.engine.outline import NOTEBOOKS
from cnn_course.engine.standalone import NotStandalone, standalone
from cnn_numba.data.files import CHECKOUT
from cnn_numba.ops.shared.warps import warp_max

TILE = 16
SHAPE = (TILE, 3)
SMALL = np.float32(1e-3)
LARGEST = math.inf
ARRAY = np.ones(3)


@cuda.jit(device=True)
def place(i):
    return i * TILE


elsewhere = place


@cuda.jit
def kernel(x, out: float32 = SMALL):
    """Use one of each."""
    tile = cuda.shared.array(SHAPE, float32)
    tile[0, 0] = x[elsewhere(0)] + math.exp(np.float32(0)) + warp_max(x[0])
    out[0] = min(tile[0, 0], LARGEST)


@cuda.jit
def kernel_on_an_array(x):
    x[0] = ARRAY[0]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_WORKBOOK", str(tmp_path / "workbook"))
    return tmp_path / "workbook"


# --- a source that stands alone ----------------------------------------------------------------------------


def test_a_source_brings_all_that_it_uses():
    namespace = {}
    exec(standalone(kernel.py_func), namespace)
    again = namespace["kernel"].py_func
    assert again.__code__.co_code == kernel.py_func.__code__.co_code
    assert again.__defaults__ == (SMALL,)
    for name in ("SHAPE", "cuda", "float32", "math", "np", "LARGEST"):
        assert namespace[name] is globals()[name] or namespace[name] == globals()[name]
    assert namespace["elsewhere"] is namespace["place"]
    assert namespace["warp_max"] is warp_max


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (kernel_on_an_array.py_func, "it uses `ARRAY`, a ndarray of its notebook"),
        (eval("lambda x: x"), "the source of `<lambda>` is not available"),
        (lambda x: undefined + x, "`<lambda>` is not written as a `def`"),  # noqa: F821
        ({"of a dict": lambda x: x}["of a dict"], "`<lambda>` is not written as a `def`"),
        (partial(max, 0), "it is not written as a `def`"),
    ],
)
def test_functions_that_cannot_stand_alone_say_why(function, reason):
    with pytest.raises(NotStandalone) as raised:
        standalone(function)
    assert reason in str(raised.value)


def test_a_closure_cannot_stand_alone():
    factor = 3

    def times(x):
        return factor * x

    with pytest.raises(NotStandalone, match="`times` uses `factor` of a function around it"):
        standalone(times)


# --- what is kept ------------------------------------------------------------------------------------------


def in_a_notebook(source, name):
    namespace = {"__name__": "__main__"}
    run(source, name, namespace)
    return namespace


RELU = """
from numba import cuda, float32

@cuda.jit
def relu_stride_kernel(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = float32(0) if x[i] <= float32(0) else x[i]
"""


ADAM = """
import numpy as np

def adam_step(parameters, gradients, m, v, step, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    m = beta1 * m + (1 - beta1) * gradients
    v = beta2 * v + (1 - beta2) * gradients**2
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return parameters - lr * m_hat / (np.sqrt(v_hat) + eps), m, v
"""


def test_a_green_check_keeps_the_answer_and_a_later_notebook_finds_it(folder):
    attempt = in_a_notebook(RELU, "relu")["relu_stride_kernel"]
    verdict = first_cuda_kernels.relu_stride_kernel(attempt)
    assert (verdict.status, verdict.details[-1]) == ("solved", "Kept in your workbook.")
    mine = workbook.answer("first_cuda_kernels", "relu_stride_kernel")
    x, out = np.array([-1, 2], np.float32), np.empty(2, np.float32)
    mine[1, 32](x, out)
    assert out.tolist() == [0, 2]
    assert own_backend.from_workbook().keys() == {"relu_stride_kernel"}


def test_a_wrong_answer_leaves_the_one_before(folder):
    first_cuda_kernels.relu_stride_kernel(in_a_notebook(RELU, "relu")["relu_stride_kernel"])
    (path,) = folder.iterdir()
    before = path.read_text()
    wrong = in_a_notebook(RELU.replace("<=", ">="), "wrong")["relu_stride_kernel"]
    verdict = first_cuda_kernels.relu_stride_kernel(wrong)
    assert verdict.status == "wrong"
    assert verdict.details[-1] == "Your workbook keeps the right answer from before."
    assert path.read_text() == before


def test_answers_from_outside_a_notebook_are_not_kept(folder):
    attempt = mnist_cnn.adam_step.reference
    assert mnist_cnn.adam_step(attempt).status == "solved"
    assert not folder.exists()


def test_an_answer_without_its_source_counts_as_solved(folder):
    source = "class One:\n    is_it = 1\n\n" + ADAM.replace("(1 - beta1) *", "(One.is_it - beta1) *")
    attempt = in_a_notebook(source, "odd")["adam_step"]
    message = mnist_cnn.adam_step(attempt).details[-1]
    assert message == (
        "Noted in your workbook as solved, without its source: it uses `One`, a type of its notebook."
    )
    assert sum(chapter.solved.get("adam_step", False) for chapter in course.progress().chapters) == 1
    assert workbook.answer("mnist_cnn", "adam_step", otherwise=7) == 7


def test_a_read_only_folder_is_reported_and_the_answer_stays_right(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CNN_NUMBA_WORKBOOK", str(tmp_path / "file"))
    verdict = first_cuda_kernels.relu_stride_kernel(in_a_notebook(RELU, "relu")["relu_stride_kernel"])
    assert verdict.status == "solved"
    assert verdict.details[-1].startswith("It could not be kept in your workbook")


def test_a_file_that_does_not_run_names_itself(folder):
    folder.mkdir()
    (folder / "convolution_on_the_gpu_conv2d_kernel.py").write_text("conv2d_kernel = 1 / 0\n")
    with pytest.raises(
        ValueError,
        match=r"conv2d_kernel\.py of your workbook does not run .*division by zero",
    ):
        workbook.answer("convolution_on_the_gpu", "conv2d_kernel")


@pytest.mark.parametrize("part", own_backend.PARTS, ids=[part.name for part in own_backend.PARTS])
def test_every_solution_of_a_part_of_the_network_can_be_kept(part, folder):
    chapter = importlib.import_module(f"cnn_course.chapters.{part.topic}.exercises")
    exercise = getattr(chapter, part.name)
    assert workbook.keep(exercise, solution_of(part.topic, part.name)) == "Kept in your workbook."
    assert workbook.answer(part.topic, part.name).py_func.__name__ == part.name


# --- somebody else's ---------------------------------------------------------------------------------------


@pytest.fixture
def untrusted(tmp_path, monkeypatch):
    """Return a folder with somebody else's answer, which leaves a trace when it runs."""
    monkeypatch.delenv("CNN_NUMBA_TRUST_WORKBOOK", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    folder = tmp_path / "theirs" / "workbook"
    folder.mkdir(parents=True)
    trace = tmp_path / "trace"
    text = f"open({str(trace)!r}, 'w').close()\ndef relu_stride_kernel(x, out):\n    pass\n"
    (folder / "first_cuda_kernels_relu_stride_kernel.py").write_text(text)
    return folder, trace


@pytest.fixture(params=["the variable", "the current folder"])
def opened(request, untrusted, tmp_path, monkeypatch):
    """Make somebody else's folder the workbook, in both possible ways."""
    monkeypatch.setattr(workbook, "CHECKOUT", tmp_path / "no checkout")
    if request.param == "the variable":
        monkeypatch.setenv("CNN_NUMBA_WORKBOOK", str(untrusted[0]))
    else:
        monkeypatch.delenv("CNN_NUMBA_WORKBOOK")
        monkeypatch.chdir(untrusted[0].parent)
    assert workbook.folder() == untrusted[0]
    return untrusted


def the_answer():
    return workbook.answer("first_cuda_kernels", "relu_stride_kernel")


def test_somebody_elses_answer_does_not_run_until_its_folder_is_named(opened, monkeypatch):
    folder, trace = opened
    message = f"relu_stride_kernel.py was not kept by a check .*CNN_NUMBA_TRUST_WORKBOOK={folder}, best in"
    for elsewhere in (None, folder / "training", folder.parents[1] / "mine"):
        if elsewhere:
            monkeypatch.setenv("CNN_NUMBA_TRUST_WORKBOOK", str(elsewhere))
        with pytest.raises(workbook.NotTrusted, match=message):
            the_answer()
        with pytest.raises(workbook.NotTrusted, match=message):
            own_backend.from_workbook()
    assert not trace.exists()
    for named in (folder, folder.parent):
        monkeypatch.setenv("CNN_NUMBA_TRUST_WORKBOOK", str(named))
        assert the_answer().__name__ == "relu_stride_kernel"
        trace.unlink()


def test_looking_at_somebody_elses_workbook_runs_nothing(opened):
    caption = course.progress().caption
    assert "1 of " in caption
    assert "1 of 14 kernels of the network are yours" in caption
    assert not opened[1].exists()


@pytest.mark.parametrize(
    "text",
    ["-" * 200_000 + "1", "x = a" + ".a" * 100_000, "lambda: " * 50_000 + "1", "(" * 500, "\0", "x = "],
)
def test_an_answer_with_a_syntax_error_counts_as_none(opened, text):
    (opened[0] / "first_cuda_kernels_relu_stride_kernel.py").write_text(text)
    assert "0 of 14 kernels of the network are yours" in course.progress().caption


def test_only_answers_kept_by_a_check_run(opened, tmp_path):
    kept = in_a_notebook(RELU, "relu")["relu_stride_kernel"]
    assert workbook.keep(first_cuda_kernels.relu_stride_kernel, kept) == "Kept in your workbook."
    assert the_answer().py_func.__name__ == "relu_stride_kernel"
    path = opened[0] / "first_cuda_kernels_relu_stride_kernel.py"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(workbook.NotTrusted):
        the_answer()


def test_bytecode_beside_an_answer_is_not_run(opened, monkeypatch):
    folder, trace = opened
    path = folder / "first_cuda_kernels_relu_stride_kernel.py"
    # Named, since the tests may keep their own bytecode elsewhere.
    beside = folder / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(path, beside, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    kept = in_a_notebook(RELU, "relu")["relu_stride_kernel"]
    workbook.keep(first_cuda_kernels.relu_stride_kernel, kept)
    assert beside.is_file()
    assert the_answer().py_func.__name__ == "relu_stride_kernel"
    assert not trace.exists()


def test_the_workbook_of_the_checkout_runs_as_its_other_files_do(untrusted, tmp_path, monkeypatch):
    monkeypatch.delenv("CNN_NUMBA_WORKBOOK")
    monkeypatch.setattr(workbook, "CHECKOUT", tmp_path / "checkout")
    (tmp_path / "checkout" / "notebooks").mkdir(parents=True)
    shutil.copytree(untrusted[0], tmp_path / "checkout" / "notebooks" / "workbook")
    assert the_answer().__name__ == "relu_stride_kernel"


def test_a_home_that_cannot_be_written_leaves_the_answer_right(opened, tmp_path):
    (tmp_path / "home").write_text("")
    kept = in_a_notebook(RELU, "relu")["relu_stride_kernel"]
    message = workbook.keep(first_cuda_kernels.relu_stride_kernel, kept)
    assert message.startswith("It could not be kept in your workbook")


@pytest.mark.parametrize(
    ("file", "topic", "name"),
    [
        ("08_adam_kernel.py", "mnist_cnn", "adam_kernel"),
        ("07b_bias_gradient_kernel.py", "backward_kernels", "bias_gradient_kernel"),
        ("04_conv_channels_kernel.py", "shared_memory_and_tiling", "conv_channels_kernel"),
        ("05_row_max_kernel.py", "reductions", "row_max_kernel"),
    ],
)
def test_a_workbook_of_the_first_edition_is_kept(folder, file, topic, name):
    folder.mkdir()
    (folder / file).write_text(f"def {name}(x):\n    return 'mine'\n")
    assert workbook.answer(topic, name)(1) == "mine"
    solved = [(n.topic, e) for n in NOTEBOOKS for e in n.exercises if workbook.is_solved(n, e)]
    assert solved == [(topic, name)]


# --- outline and progress ---------------------------------------------------------------------------------


def test_the_outline_matches_the_notebooks():
    from solutions import FOLDER

    stems = [chapter.stem for chapter in NOTEBOOKS]
    assert stems == sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for chapter in NOTEBOOKS:
        notebook = notebooks.read(FOLDER / f"{chapter.stem}.ipynb")
        assert notebook.cells[0].source.splitlines()[0] == f"# {chapter.number} · {chapter.title}"
        assert tuple(exercise.name for exercise in notebooks.exercises(notebook)) == chapter.exercises
        assert chapter.minutes == notebooks.minutes(notebook)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[notebook.stem for notebook in NOTEBOOKS])
def test_the_file_of_each_exercise_can_be_found(notebook):
    # `exercises.py` has them in the notebook's order; a package lists them with their files.
    chapter = CHECKOUT / "cnn_course" / "chapters" / notebook.topic
    files = [*chapter.glob("exercises.py"), *chapter.glob("exercises/*.py")]
    defined = {name: file.name for file in files for name in assigned_in(file) if name in notebook.exercises}
    if len(files) == 1:
        assert tuple(defined) == notebook.exercises
    else:
        listed = [f"{k}. `{name}`: {defined[name]}" for k, name in enumerate(notebook.exercises, 1)]
        docstring = ast.get_docstring(ast.parse((chapter / "exercises" / "__init__.py").read_text()))
        assert docstring.splitlines()[2:] == listed


def assigned_in(file):
    """Return the names that a file's top level assigns, in order."""
    nodes = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.Assign)]
    return [target.id for node in nodes for target in node.targets if isinstance(target, ast.Name)]


def test_progress_says_what_is_solved_and_what_comes_next(folder):
    before = course.progress()
    assert before.next == ("00", "brighten_kernel")
    folder.mkdir()
    (folder / "start_here_brighten_kernel.py").write_text("")
    kept = workbook.keep(
        convolution_on_the_gpu.conv2d_kernel, solution_of("convolution_on_the_gpu", "conv2d_kernel")
    )
    after = course.progress()
    assert (kept, after.next) == ("Kept in your workbook.", ("00", "count_kernel"))
    assert "2 of " in after.caption
    assert "1 of 14 kernels of the network are yours" in after.caption
    assert repr(after).splitlines()[0].endswith("■□")
    assert "<img" in after._repr_html_()
