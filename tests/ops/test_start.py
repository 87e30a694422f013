"""Before the first training step: imports, and functions that are compiled or loaded."""

import contextlib
import gc
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from helpers import PROGRAMS
from numba import njit, prange, vectorize

from cnn_numba.ops.shared import compiling as jit, libraries
from cnn_numba.ops.shared.jit import exact_jit, serial_jit

# Modules that a training on the CPU does not need.
LATER = [
    "gpuless.access",
    "gpuless.sanitizer",
    "gpuless.simulator",
    "http.client",
    "matplotlib",
    "numba.cuda",
    "tqdm",
]
# Modules that Numba needs to compile, but not to load.
COMPILER = ["numba.np.linalg", "scipy.linalg", "pycparser"]


def step(folder):
    """Take a step in a new process; return the number of machine codes, the loss, and the imports."""
    command = [sys.executable, PROGRAMS / "one_step.py"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    count, loss, *modules = done.stdout.split()
    return int(count), loss, set(modules)


def keep(folder):
    """Copy machine code to where other tests look for it; they would compile the same for ten seconds."""
    with contextlib.suppress(OSError):  # their cache may be read-only
        for index in folder.rglob("*.nbi"):
            place = jit._CACHE.parent / index.parent.relative_to(folder)
            place.mkdir(parents=True, exist_ok=True)
            if not (place / index.name).exists():
                # The index last, which names the others.
                for path in (*index.parent.glob(f"{index.stem}.*.nbc"), index):
                    shutil.copy(path, place / f"{path.name}.partial")
                    os.replace(place / f"{path.name}.partial", place / path.name)


@pytest.mark.slow
def test_only_functions_called_from_python_become_machine_code(tmp_path):
    tmp_path.chmod(0o700)
    compiled, loss, modules = step(tmp_path)
    kept = len([*tmp_path.rglob("*.nbc")])
    assert compiled == kept + 1 <= 17  # and Numba's own functions, which count references
    assert modules.issuperset(COMPILER[:1])
    loaded, again, modules = step(tmp_path)
    assert loaded <= compiled
    assert again == loss
    assert modules.isdisjoint([*COMPILER, *LATER])
    keep(tmp_path)


@serial_jit
def _sum_of_squares(n):
    values = _checked(n)
    total = 0
    for i in range(values):
        total += min(i * i, 100)
    return total


@exact_jit
def _checked(n):
    if n < 0:
        raise ValueError("n is negative", n)
    return n


@pytest.fixture
def new_functions(monkeypatch, tmp_path):
    """Return two functions of the same code: one that is compiled, and one that is loaded."""
    monkeypatch.setattr(jit, "_CACHE", tmp_path)
    return [serial_jit(_sum_of_squares.py_func) for _ in range(2)]


def test_a_part_raises_its_error_compiled_and_loaded(new_functions):
    for function in new_functions:
        assert function(3) == 5
        with pytest.raises(ValueError, match="n is negative") as raised:
            function(-7)
        assert raised.value.args == ("n is negative", -7)
    assert [sum(function.stats.cache_hits.values()) for function in new_functions] == [0, 1]


def test_objects_set_aside_during_compilation_are_restored(new_functions, monkeypatch):
    monkeypatch.setattr(libraries, "_set_aside", False)
    gc.unfreeze()
    new_functions[0](3)
    assert gc.get_freeze_count() == 0
    gc.freeze()  # like a program that then forks
    count = gc.get_freeze_count()
    try:
        new_functions[0](3.0 > 2)  # for another type
        assert abs(gc.get_freeze_count() - count) < 100  # some of them have ended
        monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("they are counted again"))
        new_functions[0](np.int8(3))
    finally:
        gc.unfreeze()


def test_other_functions_are_compiled_as_before(new_functions):
    """Numba's own functions, such as min, become parts when one of ours is the first to call them."""
    assert new_functions[0](20) == sum(min(i * i, 100) for i in range(20))

    @njit
    def smaller(a, b):
        return min(a, b)

    @njit(parallel=True)
    def sum_of_smaller(n):
        total = 0
        for i in prange(n):
            total += min(i, 10)
        return total

    @vectorize
    def smallest(a, b):
        return min(a, b)

    assert (smaller(3, 2), sum_of_smaller(20), smallest(4, 5)) == (2, 145, 4)
    assert smaller.overloads[smaller.signatures[0]].library.get_asm_str()
