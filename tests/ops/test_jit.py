"""The kernels of all cpu backends: their cache, and vectors of another width."""

import errno
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from helpers import PROGRAMS
from numba import int64
from numba.core.caching import CacheImpl, FunctionCache
from numba.core.registry import CPUDispatcher

import cnn_numba
from cnn_numba.ops.shared import compiling as jit
from cnn_numba.ops.shared.jit import serial_jit
from cnn_numba.ops.shared.simd import WIDTH

SOURCE = Path(cnn_numba.__file__).parent


@pytest.fixture
def package(tmp_path):
    """Return a copy of the package's code."""
    copy = tmp_path / "cnn_numba"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.npz"))
    return copy


def run(script, package):
    """Return the output lines of a script that imports the package, or a copy of it."""
    script = f"import cnn_numba; print(cnn_numba.__file__)\n{script}"
    done = subprocess.run([sys.executable, "-c", script], cwd=package.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    where, *lines = done.stdout.splitlines()
    assert where == str(package / "__init__.py")
    return lines


def replace(path, before, after):
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


@pytest.mark.slow
def test_a_changed_part_of_the_kernels_is_compiled_again(package):
    """Numba's cache detects a change of a function's file, but not of functions called in other files."""
    script = (
        "import numpy as np; from cnn_numba.ops.activation.cpu import gelu_forward;"
        "print(round(float(gelu_forward(np.ones(1, np.float32))[0]), 4))"
    )
    assert run(script, package) == ["0.8413"]
    replace(package / "ops" / "shared" / "elementary.py", "np.float32(1) - tail)", "np.float32(2) - tail)")
    assert run(script, package) == ["1.8413"]


def test_the_cache_depends_on_each_file_whose_functions_others_compile():
    used = set()
    for path in {*SOURCE.rglob("cpu*.py"), *jit._PARTS}:
        module = importlib.import_module(".".join(path.relative_to(SOURCE.parent).with_suffix("").parts))
        compiled = (each for each in vars(module).values() if isinstance(each, CPUDispatcher))
        used |= {Path(each.py_func.__code__.co_filename) for each in compiled} - {path}
    assert SOURCE / "ops" / "dense" / "cpu.py" in used
    assert used <= set(jit._PARTS)


def compiled_function():
    @serial_jit
    def twice(x):
        return 2 * x

    return twice


@pytest.fixture
def unwarned():
    jit._warn.cache_clear()
    yield
    jit._warn.cache_clear()


def test_a_full_disk_leaves_kernels_compiled_and_warns_once(monkeypatch, unwarned):
    def save(cache, signature, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(FunctionCache, "save_overload", save)
    message = r"are not kept in .* \(No space left on device\).*CACHE_DIR"
    with pytest.warns(RuntimeWarning, match=message) as seen:
        assert [compiled_function()(3), compiled_function()(1.5)] == [6, 3.0]
    assert len(seen) == 1


def test_without_a_cache_folder_kernels_still_compile(monkeypatch, unwarned):
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    with pytest.warns(RuntimeWarning, match="are not kept in .* no locator available"):
        twice = compiled_function()
    assert twice(3) == 6


def test_compiled_functions_are_kept(monkeypatch, tmp_path, unwarned):
    monkeypatch.setattr(jit, "_CACHE", tmp_path)
    first, second = compiled_function(), compiled_function()
    assert [first(3), second(4)] == [6, 8]
    assert (first.stats.cache_misses, second.stats.cache_hits) == ({(int64,): 1}, {(int64,): 1})
    assert {path.suffix for path in tmp_path.glob("serial/**/*.nb*")} == {".nbi", ".nbc"}


@pytest.mark.exhaustive("test_start.py: the loss of a step, compiled and loaded")
@pytest.mark.slow
def test_functions_give_the_same_bits_compiled_and_loaded(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    bits = (PROGRAMS / "bits_of_results.py").read_text()
    compiled = run(bits, SOURCE)
    assert run(bits, SOURCE) == compiled
    for folder in tmp_path.glob("kernels-*/parallel"):
        shutil.rmtree(folder)
    assert run(bits, SOURCE) == compiled  # where the functions they call are loaded


@pytest.mark.exhaustive("test_dense.py: products with the vectors that this processor has")
@pytest.mark.slow
def test_vectors_of_every_width_multiply_alike(package):
    """The vectors are 16 floats wide with AVX-512, else 8: this machine has one, a copy gets the other."""
    results = of_both_widths("one_product.py", package)
    np.testing.assert_allclose(results[8], results[16], rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive("test_training.py: training with the vectors that this processor has")
@pytest.mark.slow
def test_vectors_of_every_width_train_alike(package):
    results = of_both_widths("three_steps.py", package)
    assert results[8] == pytest.approx(results[16], rel=1e-5)
    assert results[8][2] < results[8][0]


def of_both_widths(program, package):
    """Return the numbers that a program prints, by vector width."""
    other = {8: 16, 16: 8}[WIDTH]
    simd = package / "ops" / "shared" / "simd.py"
    simd.write_text(re.sub("^WIDTH = .*$", f"WIDTH = {other}", simd.read_text(), flags=re.MULTILINE))
    results = {}
    for folder in (SOURCE, package):
        width, *numbers = run((PROGRAMS / program).read_text(), folder)[0].split()
        results[int(width)] = [float(number) for number in numbers]
    assert set(results) == {8, 16}
    return results


def test_a_cache_that_others_may_write_to_is_not_used(tmp_path, monkeypatch):
    folder = tmp_path / "numba"
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
    assert jit._folder("kernels") == folder / "kernels"
    assert (folder / "kernels").stat().st_mode & 0o777 == 0o700
    for path in (folder / "kernels", folder):  # the advised chmod 700 only helps for new files
        path.chmod(0o777)
        warning = rf"NUMBA_CACHE_DIR={folder} are not used: other users may write to it \({path}\)"
        with pytest.warns(RuntimeWarning, match=warning):
            assert jit._folder("kernels") == Path(jit.__file__).parent / "__pycache__" / "kernels"
        path.chmod(0o700)


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match=rf"NUMBA_CACHE_DIR={tmp_path}/file are not used: File exists \("):
        assert jit._folder("kernels") == Path(jit.__file__).parent / "__pycache__" / "kernels"
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("os.access", lambda path, mode: False)  # for root every folder is writeable
    with pytest.warns(RuntimeWarning, match=rf"are not used: you can't write to it \({tmp_path}/kernels\)"):
        jit._folder("kernels")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ["PASSIVE", "1000"]),
        ({"OMP_WAIT_POLICY": "active"}, ["active", "None"]),
        ({"GOMP_SPINCOUNT": "7"}, ["PASSIVE", "7"]),
    ],
)
def test_threads_wait_awake_for_a_moment_unless_the_user_decides(given, found):
    names = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
    script = "import os, cnn_numba.ops.shared.compiling\n"
    script += "".join(f"print(os.environ.get({name!r}))\n" for name in names)
    environment = {name: value for name, value in os.environ.items() if name not in names} | given
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == found, done.stderr
