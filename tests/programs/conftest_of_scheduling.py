"""The conftest.py of a suite that is distributed by file."""

import scheduling


def pytest_xdist_make_scheduler(config, log):
    return scheduling.ByFile(config, log)


def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        scheduling.sort(items)
