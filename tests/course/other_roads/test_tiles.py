"""Tiles in notebook 25: the kernel in our interpreter, and compiled by NVIDIA's compiler if installed."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cnn_course.chapters.other_roads import roads
from cnn_course.chapters.other_roads.roads import tiles
from cnn_course.engine import notebooks
from cnn_numba import device

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "25_other_roads.ipynb"
CONSTANTS = (64, 64, 32)


def cell(cell_id):
    (found,) = (cell for cell in notebooks.read(NOTEBOOK).cells if cell.id == cell_id)
    return found


def text():
    """Return the kernel of the notebook."""
    source = cell("tiles-kernel").source
    return source[source.index("@ct.kernel") :]


@pytest.fixture
def ct():
    return tiles.language()


@pytest.fixture
def kernel(ct):
    names = {"ct": ct}
    exec(text(), names)
    return names["product_by_tiles"]


def matrices(m, depth, n):
    rng = np.random.default_rng(m + depth + n)
    left = rng.standard_normal((m, depth)).astype(np.float32)
    return left, rng.standard_normal((depth, n)).astype(np.float32), np.full((m, n), np.nan, np.float32)


SHAPES = [(28, 21, 28), (1, 1, 1), (33, 70, 45), (16, 32, 64)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tile", [(16, 16, 16), (32, 8, 64)])
def test_the_kernel_multiplies(ct, kernel, shape, tile):
    a, b, out = matrices(*shape)
    ct.launch(None, (-(-shape[0] // tile[0]), -(-shape[2] // tile[1])), kernel, (a, b, out, *tile, False))
    np.testing.assert_allclose(out, a @ b, atol=2e-5)


def test_tf32_rounds_to_a_thousandth(ct, kernel):
    a, b, out = matrices(28, 21, 28)
    ct.launch(None, (2, 2), kernel, (a, b, out, 16, 16, 16, True))
    assert 1e-5 < abs(out - a @ b).max() / abs(a @ b).max() < 1e-3


def test_missing_padding_is_detected(ct):
    """cuTile promises nothing of it."""
    names = {"ct": ct}
    exec(text().replace(", padding_mode=ct.PaddingMode.ZERO", ""), names)
    a, b, out = matrices(28, 21, 28)
    ct.launch(None, (2, 2), names["product_by_tiles"], (a, b, out, 16, 16, 16, False))
    assert np.isnan(out).all()


def test_tiles_are_powers_of_two_within_their_array(ct):
    x = np.zeros((4, 6), np.float32)
    with pytest.raises(ValueError, match=r"power of two along each axis, got \(2, 3\)"):
        ct.load(x, (0, 0), (2, 3))
    with pytest.raises(IndexError, match=r"tile \(0, 3\) of shape \(4, 2\) is outside \(4, 6\)"):
        ct.load(x, (0, 3), (4, 2))
    with pytest.raises(ValueError, match="the array has 2 axes"):
        ct.load(x, (0,), (4,))
    with pytest.raises(IndexError, match="outside"):
        ct.store(x, (-1, 0), ct.full((2, 2), 0, ct.float32))


def test_our_interpreter_supports_all_of_the_kernel(ct):
    used = {
        node.attr
        for node in ast.walk(ast.parse(text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ct"
    }
    assert used <= set(vars(ct))
    assert {"bid", "load", "mma", "store", "num_tiles"} <= used


def test_the_stored_output_matches_the_record(monkeypatch, kernel):
    """The compiler is not installed with this project."""
    monkeypatch.setattr(tiles, "PACKAGES", ("no-such-package",))
    stored = "".join(output.text for output in cell("tiles-compile").outputs)
    assert stored.splitlines() == tiles.report(kernel).splitlines()
    assert stored.startswith("recorded with cuda-tile 1.7.0 and tileiras 13.5.37\n")
    assert "10.0 tf32: 4 UTCHMMA 160 LDGSTS 10 BAR" in stored


def test_an_assembler_that_does_not_know_a_gpu_gives_one_line(monkeypatch, kernel):
    def compiled(kernel, constants, cc):
        if cc == 90:
            raise RuntimeError(
                "cuTile does not compile `product_by_tiles`:\nTraceback\nno sm_90\nUnknown location"
            )
        return {"FFMA": 7}

    monkeypatch.setattr(tiles, "assembler", lambda: "13.2.86")
    monkeypatch.setattr(tiles, "compiled", compiled)
    lines = tiles.report(kernel).splitlines()
    assert lines[:3] == [
        "compiled by tileiras 13.2.86",
        "8.0 float32: 7 FFMA",
        "9.0 float32: refused: no sm_90",
    ]


# --- where NVIDIA's compiler is ----------------------------------------------------------------------------

needs_compiler = pytest.mark.skipif(not tiles.assembler(), reason="pip install 'cuda-tile[tileiras]'")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("cc", [80, 90, 100])
def test_tensor_cores_are_found_by_tf32(tf32, cc):
    if cc == 90 and tiles.assembler().startswith("13.2."):
        pytest.skip("this assembler does not know an H100")
    found = tiles.instructions_in(tiles.exported(text(), "product_by_tiles", (*CONSTANTS, tf32), cc))
    if tiles.version("cuda-tile") == "1.7.0" and tiles.assembler() == "13.5.37":
        assert {name: found[name] for name in tiles.TELLING if found[name]} == tiles.RECORDED[tf32, cc]
    unit = {80: "HMMA", 90: "HGMMA", 100: "UTCHMMA"}[cc]
    assert (found["FFMA"] + found["FMUL"] >= 1024, found[unit] > 0) == (not tf32, tf32)


@needs_compiler
def test_errors_of_cutile_are_shown_in_its_words():
    with pytest.raises(RuntimeError, match=r"cuTile does not compile `product_by_tiles`:[\s\S]*power of two"):
        tiles.exported(text(), "product_by_tiles", (64, 64, 24, False))


def ptx_of(bytecode, cc, folder):
    """Return what cuTile's assembler passes to ptxas, with a fake ptxas in its folder."""
    import nvidia.cu13 as toolkit

    (home,) = (path for path in map(Path, toolkit.__path__) if (path / "bin" / "tileiras").is_file())
    (folder / "bin").mkdir()
    shutil.copy(home / "bin" / "tileiras", folder / "bin")
    for name in ("lib", "nvvm"):
        (folder / name).symlink_to(home / name)
    keep = folder / "kernel.ptx"
    script = f'for file in "$@"; do case $file in *.ptx) cp "$file" {keep};; esac; done\n'
    ptxas = folder / "bin" / "ptxas"
    ptxas.write_text(f'#!/bin/sh\n{script}exec {home / "bin" / "ptxas"} "$@"\n')
    ptxas.chmod(0o755)
    (folder / "kernel.tileir").write_bytes(bytecode)
    command = [folder / "bin" / "tileiras", f"--gpu-name=sm_{cc}", "kernel.tileir", "-o", "kernel.cubin"]
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "TMPDIR": str(folder)})
    return keep.read_bytes()


@needs_compiler
@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a script stands in for ptxas")
@pytest.mark.parametrize(("tf32", "bound"), [(False, 2e-6), (True, 1e-3)])
def test_the_compiled_kernel_runs_on_the_emulated_gpu(tf32, bound, tmp_path):
    if (reason := roads.missing("CUDA C++")) or device.hardware():
        pytest.skip(reason or "the emulated GPU takes PTX for any architecture that it knows")
    from cuda.core import ObjectCode

    from cnn_course.chapters.other_roads.roads.cuda_cpp import CudaCpp

    road = CudaCpp("")
    ptx = ptx_of(tiles.exported(text(), "product_by_tiles", (32, 32, 32, tf32)), 80, tmp_path)
    road.code = ObjectCode.from_ptx(ptx)
    threads = int(re.search(rb"\.reqntid (\d+)", ptx)[1])
    for shape in [*SHAPES, (100, 130, 70)]:
        arrays = a, b, _ = matrices(*shape)
        d_arrays = list(map(road.array, arrays))
        arguments = [part for x in d_arrays for part in (x, *map(int, x.shape), x.shape[1], 1)]
        grid = -(-shape[0] // 32), -(-shape[2] // 32)
        road.launch("product_by_tiles", grid, threads, *arguments)
        exact = a.astype(np.float64) @ b
        assert abs(road.host(d_arrays[2]) - exact).max() <= bound * abs(exact).max() * 1.0001, shape
