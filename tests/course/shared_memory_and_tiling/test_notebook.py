"""Notebook 11: its kernels against the repository's, its race, its pictures, the sizes in its checks."""

import io

import numpy as np
import pytest
from numba import cuda
from PIL import Image
from test_notebooks import ROOT, defined_in_cell

from benchmarks.rungs.conv_tiled import conv2d_forward_tiled, shared_bytes
from cnn_course.chapters.shared_memory_and_tiling import exercises as checks, pictures as tile_pictures
from cnn_course.chapters.shared_memory_and_tiling.exercises import common
from cnn_course.engine import notebooks
from gpuless import access_map, sanitize
from gpuless.inspector import NoCompiler, inspect_kernels

STEM = "11_shared_memory_and_tiling"
NOTEBOOK = notebooks.read(ROOT / "notebooks" / f"{STEM}.ipynb")
EXERCISES = checks.__all__


def normal(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def sizes():
    """Return what the notebook's cells tagged setup define."""
    namespace = {}
    for cell in NOTEBOOK.cells:
        if "setup" in cell.metadata.get("tags", ()):
            exec(cell.source, namespace)
    return namespace


# --- the kernels of the cells ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 3), (5, 21), (11, 7), (6, 18)])
def test_the_tiled_kernel_matches_the_package(shape, rng):
    kernel, (height, width) = defined_in_cell(STEM, "conv-tile", "conv_tile_kernel"), shape
    image, weight = cuda.to_device(normal(rng, *shape)), cuda.to_device(normal(rng, 3, 3))
    out = cuda.device_array((height - 2, width - 2), np.float32)
    assert sanitize(kernel)[(-(-(width - 2) // 16), -(-(height - 2) // 4)), (16, 4)](image, weight, out).ok
    package = conv2d_forward_tiled(image.reshape(1, 1, *shape), weight.reshape(1, 1, 3, 3))
    np.testing.assert_allclose(out.copy_to_host(), package.copy_to_host()[0, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 4, 5), (3, 9, 20)])
def test_the_kernel_with_sums_matches_the_package(shape, rng):
    kernel, (channels, height, width) = defined_in_cell(STEM, "conv-sums", "conv_sums_kernel"), shape
    x, weight = cuda.to_device(normal(rng, *shape)), cuda.to_device(normal(rng, 8, channels, 3, 3))
    out = cuda.device_array((8, height - 2, width - 2), np.float32)
    grid = -(-(width - 2) // 16), -(-(height - 2) // 4), 2
    assert sanitize(kernel)[grid, (16, 4)](x, weight, out).ok
    package = conv2d_forward_tiled(x.reshape(1, *shape), weight)
    np.testing.assert_allclose(out.copy_to_host(), package.copy_to_host()[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", ["forwards", "reversed"])
def test_the_race_spoils_one_triangle_of_each_tile(order, rng):
    image = normal(rng, 16, 8)
    out = np.full((8, 16), np.nan, np.float32)
    kernel = defined_in_cell(STEM, "hasty-kernel", "transpose_hasty_kernel")
    tile_pictures.in_order(kernel, order)[(1, 2), (8, 8)](image, out)
    row, column = np.indices(out.shape) % 8
    spoilt = row < column if order == "forwards" else row > column
    np.testing.assert_array_equal(np.isnan(out), spoilt)
    np.testing.assert_array_equal(out[~spoilt], image.T[~spoilt])


@pytest.mark.parametrize("order", ["forwards", "reversed", "shuffled"])
def test_the_barrier_repairs_it_in_every_order(order, rng):
    image, out = normal(rng, 13, 9), np.full((9, 13), np.nan, np.float32)
    kernel = defined_in_cell(STEM, "transpose-kernel", "transpose_kernel")
    tile_pictures.in_order(kernel, order)[(2, 2), (8, 8)](image, out)
    np.testing.assert_array_equal(out, image.T)


@pytest.mark.parametrize(
    ("cell_id", "name", "kinds"),
    [
        ("hasty-kernel", "transpose_hasty_kernel", {"missing barrier"}),
        ("transpose-kernel", "transpose_kernel", set()),
        ("guarded-kernel", "transpose_guarded_kernel", {"divergent barrier"}),
        ("no-halo-kernel", "blur_in_tiles_kernel", set()),
    ],
)
def test_the_sanitizer_finds_what_the_text_says(cell_id, name, kinds, rng):
    image, out = cuda.to_device(normal(rng, 13, 13)), cuda.device_array((13, 13), np.float32)
    assert sanitize(defined_in_cell(STEM, cell_id, name))[(2, 2), (8, 8)](image, out).kinds == kinds


def test_the_shared_memory_of_the_package_s_block_by_hand():
    assert shared_bytes(3, 3, 1, 1) == (34 * 10 + 9 * 16) * 4 == 1936


@pytest.mark.exhaustive("test_exercises.py: the solutions, compiled for the emulated GPU")
@pytest.mark.slow
def test_kernels_and_solutions_compile_for_a_gpu(rng):
    """The simulator may run Python that no GPU can."""
    one, two, three, four = (f"float32[{':, ' * n}::1]" for n in range(4))
    cells = [
        ("conv-kernel", "conv_kernel", (two,) * 3),
        ("transpose-naive", "transpose_naive_kernel", (two,) * 2),
        ("no-halo-kernel", "blur_in_tiles_kernel", (two,) * 2),
        ("transpose-kernel", "transpose_kernel", (two,) * 2),
        ("conv-tile", "conv_tile_kernel", (two,) * 3),
        ("conv-sums", "conv_sums_kernel", (three, four, three)),
        ("transpose-wide", "transpose_wide_kernel", (two,) * 2),
    ]
    kernels = [
        (defined_in_cell(STEM, cell_id, name), f"void({', '.join(types)})") for cell_id, name, types in cells
    ]
    solved = {
        "smooth_kernel": (one,) * 3,
        "smooth_any_kernel": (one,) * 3,
        "conv_spread_kernel": (two,) * 3,
        "conv_channels_kernel": (three, three, two),
        "conv_strided_kernel": (two,) * 3,
        "turn_kernel": (two,) * 2,
    }
    for exercise in notebooks.exercises(NOTEBOOK):
        namespace = sizes()
        exec(exercise.solution, namespace)
        kernels.append((namespace[exercise.name], f"void({', '.join(solved[exercise.name])})"))
    try:
        reports = inspect_kernels(kernels, ["8.0"])
    except NoCompiler as missing:
        pytest.skip(str(missing))
    assert {report.name: report.mix.get("FP64", 0) for report in reports} == {
        kernel.__name__: 0 for kernel, _ in kernels
    }


# --- the pictures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tile", "kernel_size", "words"),
    [
        ((16, 4), 3, "load 18 x 6 = 108 pixels, 64 of the tile (blue), 44 of its halo (yellow): 1.69 for"),
        ((8, 8), 5, "load 12 x 12 = 144 pixels, 64 of the tile (blue), 80 of its halo (yellow): 2.25 for"),
        ((32, 8), 1, "load 32 x 8 = 256 pixels, 256 of the tile (blue), 0 of its halo (yellow): 1 for"),
    ],
)
def test_tile_picture_counts_loads(tile, kernel_size, words):
    assert words in tile_pictures.tile_picture(tile, kernel_size).caption


def test_tile_picture_needs_a_window_with_a_middle():
    with pytest.raises(ValueError, match=r"kernel_size must be odd.*got 4"):
        tile_pictures.tile_picture((8, 8), 4)


@cuda.jit
def column_of_width_36(out):
    tile = cuda.shared.array((32, 36), np.float32)
    tile[cuda.threadIdx.x, 3] = 1
    out[cuda.threadIdx.x] = tile[cuda.threadIdx.x, 3]


def test_conflicts_by_hand_match_the_access_viewer():
    access = access_map(column_of_width_36)[1, 32](cuda.device_array(32, np.float32))
    assert access.degree == tile_pictures.conflict_degree(36) == 4


def test_bank_picture_names_the_banks_of_a_column():
    alt = tile_pictures.bank_picture([32, 33], rows=3, column=31).alt
    assert "rows of 32 the elements of column 31 lie in the banks 31, 31, 31" in alt
    assert "rows of 33 the elements of column 31 lie in the banks 31, 0, 1" in alt


def test_until_the_turn_is_solved_its_picture_is_pale():
    image = np.triu(np.full((8, 8), 255, np.float32))
    pale = pixels(tile_pictures.turned_picture(image, np.zeros_like(image)))
    solved = pixels(tile_pictures.turned_picture(image, np.rot90(image)))
    right = slice(solved.shape[1] // 2, None)
    assert pale[:, right].mean() > solved[:, right].mean() + 20
    assert len(np.unique(pale[:, right])) > 1


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture.png)).convert("L"), np.int16)


def test_roofline_is_the_lower_of_slope_and_roof():
    requested = {"left": 2.0, "right": 50.0}
    bandwidths = {"HBM": 1e11, "L2": 4e11}
    picture = tile_pictures.roofline_picture("GPU", 1e12, bandwidths, requested, 5)
    assert "left at 2, 800 GFLOP/s" in picture.alt
    assert "right at 50, 1,000 GFLOP/s" in picture.alt
    assert "HBM allows 500 GFLOP/s" in picture.caption


def test_a_tile_of_one_row_can_be_chosen():
    (source,) = (cell.source for cell in NOTEBOOK.cells if cell.id == "tile-explorer")
    assert "(64, 1)" in source
    assert "68 x 5 = 340 pixels" in tile_pictures.tile_picture((64, 1), 5).caption


# --- the checks --------------------------------------------------------------------------------------------


def test_notebook_and_checks_have_the_same_sizes():
    notebook = sizes()
    names = (
        "BLOCK",
        "RADIUS",
        "TILE_W",
        "TILE_H",
        "TAPS",
        "STRIDE",
        "STRIDED_W",
        "STRIDED_H",
        "WIDE",
        "SIDE",
        "ROWS",
    )
    for name in names:
        assert notebook[name] == getattr(common, name), name


@pytest.mark.parametrize("name", EXERCISES)
def test_the_checks_launch_few_threads_and_several_blocks(name):
    cases = getattr(checks, name).inputs()
    assert sum(int(np.prod(case.grid) * np.prod(case.block)) for case in cases) < 5000
    assert any(np.prod(case.grid) > 2 for case in cases)


def test_exercise_3_and_its_solution_differ_only_in_barriers():
    (exercise,) = (e for e in notebooks.exercises(NOTEBOOK) if e.name == "conv_channels_kernel")
    stub = [line for line in exercise.stub.split("\n") if not line.strip().startswith("...")]
    solution = exercise.solution.split("\n")
    assert [line for line in solution if "syncthreads" not in line] == stub
    assert len(solution) - len(stub) == 2
