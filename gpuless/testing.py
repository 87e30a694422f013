"""What ``pytest -p gpuless`` adds to a run: tests of Numba-CUDA code run on the GPU that `select` chooses.

The fixture `modelled_time` gives launches a budget of modelled time on a GPU.
"""

import pytest

from gpuless.profile.budgets import OPTION, ModelledTime, OverBudget, record_of, write_records
from gpuless.running import inherit


def pytest_addoption(parser):
    """Let the command line choose."""
    group = parser.getgroup("gpuless", "Numba-CUDA without a GPU")
    text = "what kernels run on; also as GPULESS in the environment"
    # Not --gpu, which many test suites have as an option.
    group.addoption("--gpuless", choices=["emulator", "simulator", "hardware"], help=text)
    text = "write the times that tests check with `modelled_time`, instead of holding new ones against them"
    group.addoption(OPTION, action="store_true", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    """Select before the suite imports anything, as that may be `numba.cuda`."""
    _select(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    """Select if the plugin is loaded late: by a conftest.py, or in a process of pytest-xdist.

    Pytest doesn't call it once tests are collected: then gpuless is just one of the packages under test.
    """
    _select(session.config)


def pytest_report_header(config):
    """Return what kernels run on, and why."""
    return f"gpuless: {config.stash[_SELECTION]}" if _SELECTION in config.stash else None


# --- Budgets of modelled times ------------------------------------------------------------------------------


@pytest.fixture
def modelled_time(request):
    """Return a `ModelledTime`: it models a launch's time on a GPU and compares it with the recorded one.

    The test is skipped unless kernels run on the emulated GPU, which models need.
    """
    if not request.config.stash[_SELECTION].emulated:
        pytest.skip("modelled times need the emulated GPU")
    recording = request.config.getoption(OPTION)
    recorded = request.config.stash.setdefault(_RECORDED, {}) if recording else None
    return _ModelledTime(request.node.nodeid.partition("::")[2], record_of(request.path), recorded)


class _ModelledTime(ModelledTime):
    """Fails a test without a traceback of the check."""

    def check(self, *arguments, **named):
        try:
            super().check(*arguments, **named)
        except OverBudget as error:
            message = str(error)
        else:
            return
        pytest.fail(message, pytrace=False)


def pytest_sessionfinish(session):
    """Write the recorded times; a worker of pytest-xdist sends them to the first process."""
    recorded = session.config.stash.get(_RECORDED, {})
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["modelled times"] = recorded
    elif recorded:
        write_records(recorded)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Write the times that a worker of pytest-xdist has recorded."""
    write_records(getattr(node, "workeroutput", {}).get("modelled times", {}))


_RECORDED = pytest.StashKey()


# --- What kernels run on ------------------------------------------------------------------------------------

_SELECTION = pytest.StashKey()


def _select(config):
    if _SELECTION in config.stash:
        return
    try:
        config.stash[_SELECTION] = inherit(
            config.getoption("gpuless", None) or getattr(config.known_args_namespace, "gpuless", None)
        )
    except (RuntimeError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None
