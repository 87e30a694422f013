"""What these tests need of pytest: nothing of the project around them, so that gpuless can leave it."""

import os
import signal
import sys
from importlib.machinery import PathFinder

import numpy as np
import pytest
import simulator_by_name
from exhaustive import mark_repetitions
from warm_compiler import cold_compiler, warm_compiler  # noqa: F401  fixtures

import gpuless

os.environ.update(simulator_by_name.environment(sys.argv[1:]))
SELECTION = gpuless.select()  # before a test imports numba.cuda
# What a script starts in the background ignores interrupts, and so would the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

EMULATED = "gpuless.counts.count", "gpuless.counts.counting"

# If kernels run elsewhere, `test_simulator` runs these in a process with the simulator.
collect_ignore_glob = ["programs/*", *([] if SELECTION.simulated else ["simulator/*"])]


@pytest.hookimpl(tryfirst=True)  # before pytest's own hook, which selects by marks
def pytest_collection_modifyitems(items):
    """Mark repetitions; without the emulated GPU skip the examples that need it."""
    mark_repetitions(items)
    for item in items:
        for mark in item.iter_markers("needs"):
            # Not `find_spec`: the simulator stands in for Numba.
            if PathFinder.find_spec(mark.args[0]) is None:
                item.add_marker(pytest.mark.skip(reason=f"needs {mark.args[0]}, which is not installed"))
        if item.name in EMULATED and not SELECTION.emulated:
            item.add_marker(pytest.mark.skip(reason="counts what the emulated GPU does"))


def pytest_configure(config):
    """Register the markers, in case there is no pyproject.toml; refuse a simulator's test among others.

    Now, as an error in a process of pytest-xdist would end in an internal one.
    """
    for file in simulator_by_name.files(config.args) if not SELECTION.simulated else ():
        wrong = f"{file.parent.name}/{file.name} tests the simulator, and {SELECTION}"
        raise pytest.UsageError(f"{wrong}: set GPULESS=simulator, or name no other tests beside it")
    config.addinivalue_line("markers", "needs(package): takes a package that gpuless does without")
    config.addinivalue_line("markers", "slow: takes more than a few seconds")
    config.addinivalue_line("markers", "exhaustive(covered): repeats what other tests prove")
    config.addinivalue_line("markers", "exhaustive_unless(kept, covered): the same, but for the cases kept")


@pytest.fixture
def rng():
    """Return a generator with the same seed in every test."""
    return np.random.default_rng(0)


@pytest.fixture
def no_kernels(tmp_path, monkeypatch):
    """Use an empty folder of kernels, and a Numba without extensions from programs.

    Extensions from programs of the test are removed after it.
    """
    from gpuless.frontends.numba_cuda import registrations

    def lists():
        found = [each for registry in registrations._all_registries() for each in vars(registry).values()]
        return [each for each in found if type(each) is list]

    monkeypatch.setenv("GPULESS_CACHE", str(tmp_path / "kept"))
    before = {id(each): registrations._growing(each) for each in lists()}
    registrations._found.update({id(each): (len(each), []) for each in lists()})
    yield
    registrations._found.update({id(each): (len(each), before.get(id(each), [])) for each in lists()})


@pytest.fixture
def found(no_kernels, monkeypatch):
    """Return a list with, for each requested kernel, whether it was found."""
    from gpuless.frontends.numba_cuda import overloads

    loaded, load = [], overloads.Overloads.load_overload

    def asked(self, *arguments):
        kernel = load(self, *arguments)
        loaded.append(kernel is not None)
        return kernel

    monkeypatch.setattr(overloads.Overloads, "load_overload", asked)
    return loaded
