"""Notebooks 04, 12 and 19: broken kernels fail as the text says, and their repairs are right."""

import ast
import linecache
import math
import re
from pathlib import Path

import numpy as np
import pytest
from fresh_python import run_pytest
from numba import cuda, float32, uint32

from cnn_course.chapters.debugging import exercises as debugging_gpu_code, pictures as debugging
from cnn_course.chapters.repairing_a_program import exercises as repairing_a_program
from cnn_course.engine import notebooks, plots
from cnn_course.engine.checks.kernels import KernelExercise, examine, inout, launch, normal, output
from cnn_numba.ops.conv.reference import conv_cpu

FOLDER = Path(__file__).parents[3] / "notebooks"
SHELVES = [
    {cell.id: cell for cell in notebooks.read(FOLDER / name).cells if cell.cell_type == "code"}
    for name in ("04_debugging.ipynb", "12_reductions.ipynb", "19_repairing_a_program.ipynb")
]
THREADS = 64


def kernel_in(cell_id):
    """Return the kernel that a cell defines, with the setup and the constants of all cells around it."""
    (cells,) = (cells for cells in SHELVES if cell_id in cells)
    namespace = {}
    for cell in cells.values():
        if "setup" in cell.metadata.get("tags", ()):
            exec(cell.source, namespace)
    for constant in re.findall(r"^[A-Z_]+ = \w+$", "\n".join(c.source for c in cells.values()), re.MULTILINE):
        exec(constant, namespace)
    source = cells[cell_id].source
    (definition,) = (n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef))
    name = f"<{cell_id}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    exec(compile(ast.Module([definition], []), name, "exec"), namespace)
    return namespace[definition.name]


def ones(size):
    return np.ones(size, np.float32)


BROKEN = [
    ("exception-kernel", launch((2, 2), (16, 16), np.ones((28, 28), np.float32), output((28, 28)))),
    ("negative-kernel", launch((2, 2), (16, 16), np.ones((17, 14), np.float32), output((17, 14)))),
    ("race-kernel", launch(1, THREADS, np.arange(THREADS, dtype=np.float32), 3, output(THREADS))),
    ("hang-kernel", launch(3, THREADS, ones(150), output(150))),
    ("garbage-kernel", launch(3, THREADS, ones(150), output(3))),
    ("lost-kernel", launch(2, THREADS, np.arange(100, dtype=np.int32) % 8, inout(np.zeros(8, np.int32)))),
    ("illegal-kernel", launch(2, 8, np.array([3, 1, 70_000_000, 0], np.int32), ones(5), output(4))),
    ("nan-kernel", launch(1, 2, np.full((2, 784), 255, np.float32), output((2, 784)))),
    ("conv-broken", launch(4, 256, ones(784), output(784))),
    ("pool-broken", launch(11, 256, ones(2704), output(676))),
    ("softmax-broken", launch((1, 1), (16, 16), np.ones((4, 13, 13), np.float32), output((4, 13, 13)))),
]
KINDS = {
    "exception-kernel": {"out of bounds"},
    "negative-kernel": {"negative index"},
    "race-kernel": {"missing barrier"},
    "hang-kernel": {"divergent barrier"},
    "garbage-kernel": {"uninitialised read"},
    "lost-kernel": {"lost update"},
    "illegal-kernel": {"out of bounds"},
    "nan-kernel": {"NaN produced"},
    "conv-broken": {"out of bounds"},
    "pool-broken": {"out of bounds"},
    "softmax-broken": {"out of bounds"},
}


@pytest.mark.parametrize(("cell_id", "case"), BROKEN, ids=[cell_id for cell_id, _ in BROKEN])
def test_a_broken_kernel_fails_as_the_text_says(cell_id, case):
    assert examine(kernel_in(cell_id), case).report.kinds == KINDS[cell_id]


def relief(image):
    shifted = np.zeros_like(image)
    shifted[1:, 1:] = image[:-1, :-1]
    return image - shifted


def smoothed(x, rounds):
    for _ in range(rounds):
        x = (np.append(x[0], x[:-1]) + x) / 2
    return x


def by_block(x):
    return x.reshape(-1, THREADS)


def convolved(image, weight):
    return np.array([conv_cpu(image, w) for w in weight])


# Sizes other than the notebook's, so that nothing in the kernels depends on them.
REPAIRED = [
    (
        "exception-repair",
        lambda rng: (launch((2, 3), (8, 4), 99 * normal(rng, (11, 13)), output((11, 13))),),
        lambda image: np.minimum(image * 1.5, 255),
    ),
    (
        "negative-repair",
        lambda rng: (launch((2, 3), (8, 4), normal(rng, (11, 13)), output((11, 13))),),
        relief,
    ),
    (
        "race-repair",
        lambda rng: (launch(1, THREADS, normal(rng, THREADS), np.int64(n), output(THREADS)) for n in (0, 5)),
        smoothed,
    ),
    (
        "hang-repair",
        lambda rng: (launch(2, THREADS, normal(rng, n), output(n)) for n in (65, 100, 128)),
        lambda x: x - np.repeat(x[::THREADS], THREADS)[: x.size],
    ),
    (
        "garbage-repair",
        lambda rng: (launch(2, THREADS, normal(rng, n), output(2)) for n in (65, 100, 128)),
        lambda x: by_block(np.append(x, np.zeros(128 - x.size, np.float32))).sum(axis=1),
    ),
    (
        "lost-repair",
        lambda rng: (
            launch(2, 40, rng.integers(0, 8, 77, dtype=np.int32), inout(np.arange(8, dtype=np.int32))),
        ),
        lambda levels, bins: bins + np.bincount(levels, minlength=8).astype(np.int32),
    ),
    (
        "conv-repair",
        lambda rng: (
            launch((2, 3), (8, 4), normal(rng, (13, 11)), normal(rng, (f, 3, 3)), output((f, 11, 9)))
            for f in (1, 3)
        ),
        convolved,
    ),
]


@pytest.mark.parametrize(
    ("cell_id", "cases", "reference"), REPAIRED, ids=[cell_id for cell_id, *_ in REPAIRED]
)
def test_a_repaired_kernel_is_right(cell_id, cases, reference, rng):
    kernel = kernel_in(cell_id)
    for case in cases(rng):
        outcome, report = examine(kernel, case)
        assert report.ok, report
        # float32, and one sum of some thirty numbers: six digits of the largest.
        expected = reference(*case.args)
        np.testing.assert_allclose(outcome.value, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_every_broken_kernel_has_a_repair():
    """Pooling, softmax and the NaN are exercises; the illegal address comes from the data."""
    topics = {cell_id.split("-")[0] for cell_id, _ in BROKEN} - {"softmax", "pool", "illegal", "nan"}
    assert topics == {cell_id.split("-")[0] for cell_id, *_ in REPAIRED}


@pytest.mark.parametrize("module", [debugging_gpu_code, repairing_a_program])
def test_the_checks_launch_few_threads(module):
    """A simulated thread takes about 20 us: a check should answer at once."""
    for exercise in vars(module).values():
        if isinstance(exercise, KernelExercise):
            cases = exercise.inputs()
            assert sum(math.prod(np.ravel([case.grid])) * np.prod(case.block) for case in cases) < 5000


def test_the_softmaxes_that_a_test_has_to_tell_apart():
    """Each wrong one fails the property it was made for, and others that it breaks."""
    given = [case.args for case in repairing_a_program.is_softmax.inputs()]
    names = [softmax.__name__ for softmax, _ in given]
    assert len(set(names) - {"_softmax_right", "_softmax_of_twice"}) == 10  # as the text says
    holds = [repairing_a_program.is_softmax.reference(*args) for args in given]
    assert holds == [name in ("_softmax_right", "_softmax_of_twice") for name in names]
    for softmax, maps in given:
        assert softmax(maps).shape == maps.shape


def test_pictures_mark_their_subject():
    """One cross for each thread that passes wrongly; the first NaN at its place."""
    outside = debugging.outside_picture(28, 28, 16, lambda row, column: (row <= 28) & (column <= 28))
    assert "the 57 that" in outside.caption
    spread = debugging.spread_picture({"images": [0, 0, 0], "weights": [0, 0.5, 1]})
    assert "images, weights" in spread.alt
    assert isinstance(debugging.spread_picture({"images": [0, 0]}), plots.Picture)  # nothing to point at


@pytest.mark.slow
def test_the_tests_to_copy_pass():
    """Notebook 19 runs them without comparing their output."""
    run = run_pytest("-q", "-p", "gpuless", "examples/test_smooth.py", cwd=FOLDER.parent)
    assert run.returncode == 0, run.stdout
    assert "9 passed" in run.stdout


@pytest.mark.gpu
def test_unsigned_indices_below_zero_match_the_text():
    @cuda.jit
    def below(x, out):
        i = uint32(x[0])
        out[0], out[1] = i - 1, uint32(i - 1)

    out = cuda.to_device(np.zeros(2, np.int64))
    below[1, 1](cuda.to_device(np.zeros(1, np.uint32)), out)
    assert out.copy_to_host().tolist() == [-1, 2**32 - 1]


@pytest.mark.gpu
def test_nan_spreads_except_through_max_and_min():
    @cuda.jit
    def meet(x, out):
        nan = x[0]
        out[0], out[1], out[2] = nan + float32(1), nan * float32(0), nan / nan
        out[3], out[4] = max(nan, float32(0)), min(nan, float32(0))

    out = cuda.device_array(5, np.float32)
    meet[1, 1](cuda.to_device(np.full(1, np.nan, np.float32)), out)
    assert np.isnan(out.copy_to_host()).tolist() == [True, True, True, False, False]
