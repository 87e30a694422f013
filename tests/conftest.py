import functools
import gc
import io
import os
import shutil
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

# Before numba is imported: its threads wait asleep. By default they wait in a busy loop, which is faster
# for training but takes the cores from torch and from other tests.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Before numpy is: after each product of matrices its threads look out for the next one in a busy loop, which
# takes several times the product's own time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Before PyTorch imports Triton, whose kernels are interpreted or compiled as this says then.
os.environ.setdefault("TRITON_INTERPRET", "1")

# What tests and their notebooks solve does not go into the reader's workbook.
os.environ["CNN_NUMBA_WORKBOOK"] = f"{tempfile.gettempdir()}/workbook-{os.getpid()}"
os.environ["CNN_NUMBA_TRUST_WORKBOOK"] = tempfile.gettempdir()

import simulator_by_name

os.environ.update(simulator_by_name.environment(sys.argv[1:]))

# Before anything imports numba.cuda: this selects what kernels run on.
import cnn_numba  # noqa: F401

# isort: split
import numpy as np
import pytest
from exhaustive import mark_repetitions
from helpers import check_signature, write_few_digits
from progress import StillRunning
from quick_code import compiled_plainly
from warm_compiler import warm_compiler  # noqa: F401  a fixture

from cnn_numba import device
from cnn_numba.train.callbacks import saving
from cnn_numba.train.checkpoint_contents import HISTORY_KEYS
from cnn_numba.train.records import plot_history
from cnn_numba.whole_files import written_whole

# What a script starts in the background ignores interrupts, and so would the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
collect_ignore_glob = ["programs/*"]
LEFT, FILE = pytest.StashKey(), pytest.StashKey()


def pytest_addoption(parser):
    """Know nbval's options, which running a notebook asks for, without its plugin, which comes too early.

    Notebooks are read with jsonschema, which works out a grammar for addresses in other alphabets where it
    finds one: more than a second in each process, and no notebook has such an address.
    """
    if find_spec("nbval"):
        sys.modules.setdefault("rfc3987_syntax", None)
        from nbval import plugin

        plugin.pytest_addoption(parser)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist's, which starts the processes
def pytest_cmdline_main(config):
    """Spread a run over up to four processes, unless it is of one file or the command line says how many."""
    unsaid = getattr(config.option, "numprocesses", 0) is None  # 0: pytest-xdist is switched off
    one_file = len(config.args) == 1 and Path(config.args[0].partition("::")[0]).is_file()
    if unsaid and not one_file and not hasattr(config, "workerinput"):
        config.option.numprocesses = "auto"
        config.option.maxprocesses = config.option.maxprocesses or 4
    if getattr(config.option, "numprocesses", 0) and not hasattr(config, "workerinput"):
        keep_bytecode(config)


def keep_bytecode(config):
    """Let the hundreds of processes of a whole run share the bytecode of what they import.

    An environment may say that Python is to write none. After an installation that has compiled nothing, such
    as `make`'s, each process would then compile Numba for itself: three seconds. What is written lies beside
    no source. The next run finds it: to compile the tests takes longer than to collect them. The bytecode
    of temporary files is removed at the end.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = config.rootpath / "build" / "bytecode"
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
        temporary = folder.joinpath(*Path(tempfile.gettempdir()).resolve().parts[1:])
        config.add_cleanup(lambda: shutil.rmtree(temporary, ignore_errors=True))


def pytest_configure(config):
    """Collect garbage less often; name long tests while they run, once a minute."""
    gc.set_threshold(50_000)  # collecting and compiling make small objects by the million, and keep most
    if not hasattr(config, "workerinput"):  # in pytest-xdist's workers nothing is printed
        config.pluginmanager.register(StillRunning())


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect no garbage while tests are collected: imported modules and found tests stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    """Exclude the objects of earlier files from garbage collection: it would take seconds each time.

    Most of them are what Numba keeps of compiled functions.
    """
    if item.config.stash.get(FILE, None) != item.path:
        item.config.stash[FILE] = item.path
        gc.freeze()


def pytest_sessionfinish():
    """Stop pytest from doing the same, which collects garbage until there is none."""
    gc.freeze()


def pytest_unconfigure():
    """Leave no workbook behind."""
    shutil.rmtree(os.environ["CNN_NUMBA_WORKBOOK"], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_make_scheduler(config, log):
    """Distribute whole files to the processes."""
    from scheduling import ByFile

    return ByFile(config, log)


@pytest.hookimpl(tryfirst=True)  # before pytest's own hook, which selects by marks
def pytest_collection_modifyitems(config, items):
    """Mark repetitions; skip tests of a GPU without one; if several processes run, start with slow tests."""
    mark_repetitions(items)
    if hasattr(config, "workerinput"):  # in a process of pytest-xdist
        import scheduling

        scheduling.sort(items)
    lacking = {"gpu": device.simulated(), "hardware": not device.hardware()}
    needs = {"gpu": "a GPU, be it emulated", "hardware": "a real GPU"}
    for item in items:
        for name in needs:
            if lacking[name] and item.get_closest_marker(name):
                reason = f"needs {needs[name]} ({device.SELECTION.reason})"
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_deselected(items):
    """Count the tests left to `make test-all`; all processes of a run find the same."""
    config = items[0].config
    left = sum(item.get_closest_marker("exhaustive") is not None for item in items)
    if left and "not exhaustive" in config.option.markexpr:
        config.stash[LEFT] = left
        if hasattr(config, "workerinput"):
            config.workeroutput["left"] = left


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_testnodedown(node):
    """Take the count of a process."""
    node.config.stash[LEFT] = getattr(node, "workeroutput", {}).get("left", 0)


def pytest_terminal_summary(terminalreporter, config):
    """Report what was left out."""
    if config.stash.get(LEFT, 0):
        terminalreporter.write_line(
            f"{config.stash[LEFT]} exhaustive tests, which repeat other proofs, are left to `make test-all`."
        )


@pytest.fixture
def rng():
    """Return a generator with the same seed in every test."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def launches_as_signed():
    """Fail if an operation launches a kernel with other types than those it is compiled and checked with.

    Numba compiles a kernel again for new types: a Python float would make it compute in float64,
    whatever its signature says.
    """

    def checked(launch):
        check_signature(launch.kernel, launch.arguments)
        launch.run()

    with device.observe_launches(checked):
        yield


@functools.cache
def some_curves():
    """Return a picture of curves, as a file's bytes."""
    picture = io.BytesIO()
    plot_history([dict.fromkeys(HISTORY_KEYS, 1)]).savefig(picture, format="png")
    return picture.getvalue()


@pytest.fixture(autouse=True)
def curves_are_drawn_once(request, monkeypatch):
    """Make training write one picture, since drawing takes longer; `curves` marks exceptions."""

    def write_curves(history, path):
        with written_whole(path) as file:
            file.write(some_curves())

    if not request.node.get_closest_marker("curves"):
        monkeypatch.setattr(saving, "plot_history", write_curves)


@pytest.fixture
def quickly_compiled(monkeypatch):
    """Compile quickly for the emulated GPU, for tests of results and not of speed."""
    with compiled_plainly(monkeypatch):
        yield


@pytest.fixture
def sixth_of_mnist(tmp_path, monkeypatch):
    """Give other processes only the first images of MNIST."""
    write_few_digits(tmp_path, 10_000, 2_000)
    monkeypatch.setenv("CNN_NUMBA_DATA", str(tmp_path))
