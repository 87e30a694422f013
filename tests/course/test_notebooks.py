"""The notebooks run from top to bottom: as shipped, and with every exercise solved.

The second run leaves out cells that no exercise affects: `solved_cells`.
"""

import contextlib
import importlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.font_manager  # noqa: F401  (builds its cache here, and not with a message inside a notebook)
import numpy as np
import pytest
import solved_cells
import warm_kernels
from jupyter_client.provisioning import local_provisioner
from nbval.plugin import IPyNbFile, NbCellError

from cnn_course.engine import notebooks
from cnn_course.engine.checks.kernels import examine
from cnn_numba.ops.conv.reference import conv_cpu

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Seconds of processor time for one notebook, on a machine where `yardstick` takes YARD. The longest, 08,
# trains for most of them.
LIMIT, YARD = 200, 0.2
# Variables that a reader's environment does not have.
OURS = (
    *("CNN_NUMBA_STRICT", "TRITON_INTERPRET"),
    *("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST_WORKER"),
)

each_notebook = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])


@pytest.fixture(scope="session")
def forge():
    """Return the process that kernels are forked from, None if they are new processes."""
    if not sys.platform.startswith("linux"):
        yield None
        return
    made = warm_kernels.Forge({key: value for key, value in os.environ.items() if key not in OURS})
    yield made
    made.close()


@pytest.fixture
def bearable(forge, monkeypatch):
    """Return a context with LIMIT for kernels and other processes, and more on a slow machine."""
    if forge:
        monkeypatch.setattr(local_provisioner, "launch_kernel", forge.launch_kernel)

    def spent():
        times = os.times()
        return times.children_user + times.children_system + (forge.spent if forge else 0)

    @contextlib.contextmanager
    def watched():
        yards, start = [yardstick()], spent()
        yield
        yards.append(yardstick())
        assert spent() - start < LIMIT * max(1, np.mean(yards) / YARD)

    return watched


def yardstick():
    """Return the processor time of some arithmetic in Python and of 64 MB of new memory.

    A virtual machine with shared processors may be several times as slow as another, or as an hour ago.
    """
    begun = time.process_time()
    np.ones(1 << 23).sum() + sum(range(10_000_000))
    return time.process_time() - begun


@pytest.fixture(autouse=True)
def no_workbook(tmp_path, monkeypatch):
    """Start each notebook with nothing solved."""
    monkeypatch.setenv("CNN_NUMBA_WORKBOOK", str(tmp_path / "workbook"))


@pytest.mark.exhaustive_unless(
    lambda path: path.stem.startswith("00_"),
    "the first page; cells of the others in each test_notebook.py, solutions in test_exercises.py",
)
@pytest.mark.slow
@each_notebook
def test_runs_as_shipped_with_the_stored_outputs(path, bearable, monkeypatch, request):
    """The errors of `pytest --nbval`, cell by cell."""
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(request.config.option, "nbval_sanitize_with", Path(__file__).with_name("nbval.cfg"))
    monkeypatch.setattr(request.config.option, "nbval_cell_timeout", 600)
    failures = []
    file = IPyNbFile.from_parent(request.session, path=path)
    cells = list(file.collect())
    with bearable():
        file.setup()
        try:
            for cell in cells:
                try:
                    cell.runtest()
                except NbCellError as error:
                    failures.append(cell.repr_failure(pytest.ExceptionInfo.from_exception(error)))
        finally:
            file.teardown()
        assert not failures, "\n\n".join(failures)[-8000:]


@pytest.mark.exhaustive_unless(
    lambda path: path.stem.startswith("02_"),
    "the chapter of the first kernels, and each solution in test_exercises.py",
)
@pytest.mark.slow
@each_notebook
def test_runs_in_strict_mode_with_every_exercise_solved(path, bearable, monkeypatch, request):
    if path.stem.startswith("08"):  # as shipped it reads all of the test images
        request.getfixturevalue("sixth_of_mnist")
    monkeypatch.setenv("CNN_NUMBA_STRICT", "1")
    notebook = notebooks.solved(notebooks.read(path))
    notebook.cells = solved_cells.belonging(notebooks.read(path), notebook)
    with bearable():
        notebooks.execute(notebook, path.parent)
    for cell in notebook.cells:
        if cell.id.endswith("-check"):
            (output,) = cell.outputs
            assert output.data["text/plain"].startswith("✔ solved"), cell.id


@pytest.mark.exhaustive_unless(
    lambda path: path.stem.startswith("02_"),
    "the exercises of kernels; test_exercises.py: each stub, outside a notebook",
)
@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS[1:3], ids=["of NumPy", "of kernels"])
@pytest.mark.usefixtures("bearable")
def test_unsolved_exercises_raise_in_strict_mode(path, monkeypatch):
    """Strict mode reaches the kernel: the test above is really strict."""
    monkeypatch.setenv("CNN_NUMBA_STRICT", "1")
    notebook = notebooks.read(path)
    checks = [index for index, cell in enumerate(notebook.cells) if cell.id.endswith("-check")]
    keep = [cell for cell in notebook.cells if "setup" in cell.metadata.get("tags", ())]
    notebook.cells = [*keep, *notebook.cells[checks[0] - 1 : checks[0] + 1]]
    with pytest.raises(Exception, match=re.compile("CheckFailed.*not solved yet", re.DOTALL)):
        notebooks.execute(notebook, path.parent)


_FIRST_CELLS = """
import sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for source in {sources!r}:
    shell.run_cell(source).raise_error()
from numba import cuda

print(type(cuda.jit(lambda: None)).__name__)
"""


@pytest.mark.exhaustive("test_notebook_lint.py: in every notebook the package is imported before numba.cuda")
@each_notebook
def test_the_first_cells_select_a_device(path):
    """A reader's kernel is a new process; the simulator must be selected before `numba.cuda` is imported."""
    code = [cell for cell in notebooks.read(path).cells if cell.cell_type == "code"]
    first = next(number for number, cell in enumerate(code) if "setup" in cell.metadata.get("tags", ()))
    script = _FIRST_CELLS.format(sources=[cell.source for cell in code[: first + 1]])
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_ENABLE_CUDASIM"}
    run = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", script],
        env=environment | {"GPULESS": "simulator"},
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert run.stdout.splitlines()[-1] == "Kernel"


# --- cells that repeat a function of the package -----------------------------------------------------------


def conv_inputs():
    rng = np.random.default_rng(5)
    shapes = [((3, 4), (2, 2)), ((7, 5), (4, 3)), ((5, 7), (5, 7)), ((1, 9), (1, 4)), ((33, 20), (5, 6))]
    return [(rng.normal(size=image), rng.normal(size=kernel)) for image, kernel in shapes]


REPEATED = [
    ("01_convolution_on_the_cpu", cell_id, function, conv_cpu, conv_inputs)
    for cell_id, function in (
        ("ladder-numpy", "conv_windows"),
        ("ladder-njit", "conv_njit"),
        ("ladder-order", "conv_rows"),
        ("ladder-prange", "conv_threads"),
        ("ladder-picture", "conv_scipy"),
    )
]


@pytest.mark.parametrize(
    ("stem", "cell_id", "name", "package", "inputs"), REPEATED, ids=[name for _, _, name, _, _ in REPEATED]
)
def test_a_cell_matches_the_package(stem, cell_id, name, package, inputs):
    function = defined_in_cell(stem, cell_id, name)
    for args in inputs():
        np.testing.assert_allclose(function(*args), package(*args), rtol=1e-12, atol=1e-12)


def defined_in_cell(stem, cell_id, name):
    """Return a function that a cell defines, after the notebook's cells tagged `setup`."""
    cells = notebooks.read(ROOT / "notebooks" / f"{stem}.ipynb").cells
    setup = [cell.source for cell in cells if "setup" in cell.metadata.get("tags", ())]
    (source,) = (cell.source for cell in cells if cell.id == cell_id)
    # The definition ends where two blank lines do.
    definition = source.split("\n\n\n")[0]
    namespace = {}
    for code in (*setup, definition):
        exec(compile(code, f"<{cell_id}>", "exec"), namespace)
    return namespace[name]


# Notebook NN_topic keeps in topic/repeated_kernels.py a list KERNELS of tuples: the cell's id, the
# kernel's name in the cell, the package's kernel, and a function from a generator to the launches
# (`cnn_course.engine.checks.kernels.launch`) in which the two must agree.
REPEATED_KERNELS = [
    (path.stem, *entry)
    for path in PATHS
    for topic in [path.stem.partition("_")[2]]
    if Path(__file__).with_name(topic).joinpath("repeated_kernels.py").exists()
    for entry in importlib.import_module(f"{topic}.repeated_kernels").KERNELS
]


@pytest.mark.parametrize(
    ("stem", "cell_id", "name", "package", "launches"),
    REPEATED_KERNELS,
    ids=[f"{stem.partition('_')[0]}-{name}" for stem, _, name, _, _ in REPEATED_KERNELS],
)
def test_a_kernel_in_a_cell_matches_the_packages_kernel(stem, cell_id, name, package, launches, rng):
    kernel = defined_in_cell(stem, cell_id, name)
    for case in launches(rng):
        ours, theirs = examine(kernel, case).outcome, examine(package, case).outcome
        assert (ours.error, theirs.error) == (None, None)
        np.testing.assert_equal(ours.value, theirs.value)


def test_every_cell_that_repeats_the_package_is_compared():
    tagged = {
        (path.stem, cell.id)
        for path in PATHS
        for cell in notebooks.read(path).cells
        if "same-as-package" in cell.metadata.get("tags", ())
    }
    assert tagged == {(stem, cell_id) for stem, cell_id, *_ in REPEATED + REPEATED_KERNELS}
