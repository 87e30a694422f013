"""The conftest.py of a suite whose long tests are named soon."""

from progress import StillRunning


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(StillRunning(seconds=0.2))
