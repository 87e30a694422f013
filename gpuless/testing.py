"""What ``pytest -p gpuless`` adds to a run: tests of Numba-CUDA code find the GPU that `select` chooses."""

import pytest

from gpuless.running import inherit


def pytest_addoption(parser):
    """Let the command line choose."""
    group = parser.getgroup("gpuless", "Numba-CUDA without a GPU")
    text = "what kernels run on; also as GPULESS in the environment"
    # Test suites have options of their own, and --gpu is a likely one.
    group.addoption("--gpuless", choices=["emulator", "simulator", "hardware"], help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    """Select before anything of the suite is imported, which may be `numba.cuda`."""
    _select(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    """Select where the plugin is loaded late: by a conftest.py, or in a process of pytest-xdist.

    Once tests are collected this is not called: nobody has asked for it then, and gpuless is but one of the
    packages that are tested.
    """
    _select(session.config)


def pytest_report_header(config):
    """Tell what kernels run on, and why."""
    return f"gpuless: {config.stash[_SELECTION]}" if _SELECTION in config.stash else None


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
