"""A suite with a long test."""

import time

import pytest


@pytest.mark.xdist_group("/one/process")
def test_slow():
    time.sleep(1)
