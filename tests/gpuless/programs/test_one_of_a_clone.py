"""A test of such a repository that passes, and one that fails."""

import gpuless


def test_runs_on_the_emulated_gpu(one):
    assert gpuless.select().emulated
    assert one == 1


def test_fails():
    assert False  # noqa: B011
