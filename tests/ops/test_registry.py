"""Operations are registered in the backends, and found there."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from cnn_numba.ops.backends import Operations, backend

CORE = {"activation", "conv", "dense", "fused", "gather", "loss", "pool", "update"}


def test_added_operations_are_imported_once_on_request():
    calls = []
    added = [lambda: calls.append(1) or {"norm": "its norm", "conv": "another"}]
    found = Operations({"conv": "its conv"}, added)
    assert (found.names(), calls) == ({"conv"}, [])
    assert (found.norm, found.norm, found.conv, calls) == ("its norm", "its norm", "its conv", [1])
    assert found.names() == {"conv", "norm"}
    with pytest.raises(AttributeError, match="there is no operation pool, only conv, norm"):
        found.pool  # noqa: B018


def test_replaced_operations_are_kept():
    found = Operations({"conv": "its conv"}, [lambda: {"norm": "its norm", "pool": "its pool"}])
    mine = found.replace(conv="mine", norm="mine too")
    assert (mine.conv, mine.pool, mine.norm) == ("mine", "its pool", "mine too")
    assert (found.conv, found.norm) == ("its conv", "its norm")


def test_a_backend_is_the_same_each_time():
    assert backend("cpu") == backend("cpu")
    given = backend("cpu")._replace(ops=SimpleNamespace())
    assert backend(given) is given


def test_importing_the_package_imports_no_kernels_beyond_the_core():
    """Nor those of the core: a backend is imported when a model is built on it."""
    program = "import sys, cnn_numba; cnn_numba.mnist_cnn(1); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = [name.split(".") for name in done.stdout.split() if name.startswith("cnn_numba.")]
    assert {name[2] for name in modules if name[-1] == "cpu" and name[1] == "ops"} == CORE
    assert not [name for name in modules if name[1] == "beyond" and name[-1] in ("cpu", "gpu", "reference")]
