"""Notebook 14: its pictures, and what its open problem compares and rejects."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda, float32
from solutions import solution_of

from benchmarks.cases import CASES
from benchmarks.ops_modelled import roof_of
from benchmarks.rungs.conv_naive import conv2d_forward_naive
from cnn_course.chapters.convolution_as_matmul import exercises as convolution_as_matmul
from cnn_course.chapters.convolution_as_matmul.exercises import beat_conv2d_forward
from cnn_course.chapters.convolution_as_matmul.films import one_pair, two_pairs
from cnn_course.chapters.convolution_as_matmul.pictures import (
    busy_picture,
    im2col_picture,
    implicit_picture,
    ladder_picture,
)
from cnn_course.chapters.matrix_product import pictures as matmul_pictures
from cnn_course.engine import notebooks
from cnn_course.engine.checks import contest
from cnn_course.engine.ladders import modelled
from cnn_numba import device
from cnn_numba.ops.conv import cpu, gpu, reference
from cnn_numba.train.graphs import record
from gpuless import profile

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "14_convolution_as_matmul.ipynb"


@pytest.fixture
def drawn(monkeypatch):
    """Return the list of figures passed to `plots.picture`."""
    figures, picture = [], matmul_pictures.plots.picture
    monkeypatch.setattr(
        matmul_pictures.plots, "picture", lambda fig, *text: (figures.append(fig), picture(fig, *text))[1]
    )
    return figures


def test_im2col_picture_names_the_pixels_of_a_column(drawn):
    picture = im2col_picture(2, 3, 4, 2, position=4)
    assert "Position 4, row 1 and column 1 of the output" in picture.caption
    assert "24 pixels have become 48 numbers" in picture.caption
    assert "its framed column holds 5, 6, 9, 10, 17, 18, 21, 22." in picture.alt
    matrix = [int(text.get_text()) for text in drawn[0].axes[-1].texts]
    image = np.arange(24).reshape(2, 3, 4)
    columns = convolution_as_matmul.im2col_kernel.reference(image, 2)
    assert matrix == columns.ravel().tolist()


@pytest.mark.parametrize("position", [-1, 6])
def test_a_position_out_of_range_raises(position):
    with pytest.raises(ValueError, match=f"there are 6 positions, counted from 0; got {position}"):
        im2col_picture(2, 3, 4, 2, position)


def test_ladder_picture_gives_the_share_of_the_library():
    """A made-up record: the naive kernel a tenth as fast as PyTorch, one rung missing."""
    results = []
    for case in [case for case in CASES if case.operation == "matmul"]:
        rates = {rung: 10.0 * (place + 1) for place, rung in enumerate(case.rungs)}
        rates |= {"PyTorch": 100.0, "PyTorch, TF32": 400.0}
        contenders = {who: {"median": 1.0, "GFLOP/s": rate} for who, rate in rates.items()}
        contenders["split"] = {"refused": "too large"}
        results.append(
            {"operation": "matmul", "size": case.size, "shape": case.text, "measure": "GFLOP/s"}
            | {"contenders": contenders}
        )
    machine = {"gpu": {"name": "Made-up GPU"}}
    record = {"benchmark": "ops", "date": "2001-02-03", "machine": machine, "results": results}
    picture = ladder_picture(record)
    assert "on Made-up GPU, 2001-02-03" in picture.caption
    shares = "naive 10%, tiled 20%, register_tiled 30%, vectorised 40%"
    assert picture.caption.count(shares) == len(results)
    assert "split" not in picture.caption


def test_the_newest_record_of_the_operations_is_drawn(tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    for name, benchmark, day in [("a", "ops", 27), ("b", "ops", 29), ("c", "ops", 28), ("d", "epoch", 30)]:
        record = {"benchmark": benchmark, "date": f"2001-02-{day}"}
        (tmp_path / "benchmarks" / f"{name}.json").write_text(json.dumps(record))
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    drawn = []
    pictures = SimpleNamespace(ladder_picture=drawn.append)
    exec(text_of("record"), {"json": json, "Path": Path, "pictures": pictures})
    assert [record["date"] for record in drawn] == ["2001-02-29"]


def test_the_text_reads_the_newest_record():
    files = NOTEBOOK.parents[1].glob("benchmarks/*.json")
    records = [found for found in map(json.loads, map(Path.read_text, files)) if found["benchmark"] == "ops"]
    newest = max(records, key=lambda found: found["date"])
    rates = {
        result["size"]: {who: one.get("GFLOP/s", 0) for who, one in result["contenders"].items()}
        for result in newest["results"]
        if result["operation"] == "matmul"
    }
    large, layer = rates["large"], rates["course"]
    rungs = sorted((who for who in large if "PyTorch" not in who), key=large.get)
    assert rungs[-2:] == ["register_tiled", "vectorised"]
    assert (max(rungs, key=layer.get), min(rungs, key=layer.get)) == ("split", "register_tiled")
    said, gpu = text_of("record-after"), newest["machine"]["gpu"]["name"].split()[1]
    assert re.findall(r"an (\w+),", said) == [gpu]
    pairs = (large, "vectorised"), (layer, "split"), (layer, "register_tiled")
    assert re.findall(r"\d+%", said) == [f"{of[who] / of['PyTorch']:.0%}" for of, who in pairs]


def test_implicit_picture_counts_the_reads_of_a_tile(drawn):
    picture = implicit_picture(2, 5, 6, 3, 8, block=0, step=1)
    assert "a tile of 64 elements, for which 30 pixels are read" in picture.caption
    reads = [int(text.get_text()) for ax in drawn[0].axes[:2] for text in ax.texts]
    assert (len(reads), sum(reads)) == (30, 64)


def test_busy_picture_draws_at_most_all_squares(drawn):
    assert "few: 7 of 10; many: 10 of 10" in busy_picture({"few": 7, "many": 30}, 10, "a GPU").caption
    for ax, busy in zip(drawn[0].axes, (7, 10), strict=True):
        assert np.isclose(ax.images[0].get_array(), matmul_pictures.DARK).all(axis=-1).sum() == busy


def test_two_pairs_of_tiles_need_one_barrier_per_step_and_overlap_loads():
    assert [len(schedule(4)[1]) for schedule in (one_pair, two_pairs)] == [8, 4]
    bars = two_pairs(4)[0]
    multiplied = {bar.text: bar.begin for bar in bars if bar.lane == "multiply"}
    loaded = {bar.text: bar.begin for bar in bars if bar.lane == "load"}
    assert all(loaded[str(step + 1)] == multiplied[str(step)] for step in (1, 2, 3))
    tiles = {bar.text: bar.lane for bar in bars if bar.lane.startswith("tiles") and bar.text}
    assert list(tiles.values()) == ["tiles A", "tiles B"] * 2


# --- The open problem --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def entry():
    """Return the names that the notebook's own entry defines."""
    cells = {cell.id: cell.source for cell in notebooks.read(NOTEBOOK).cells}
    namespace = {}
    for name in ("setup", "sizes", "open-entry"):
        exec(compile(cells[name], f"<{name}>", "exec"), namespace)
    return namespace


compiled = pytest.mark.skipif(device.simulated(), reason="there is nothing to compare in the simulator")


@compiled
def test_the_notebooks_entry_is_right_and_slower(entry):
    standing = beat_conv2d_forward(entry["convolve"])
    status = "measured" if device.hardware() else "modelled"
    assert (standing.status, standing.mistake) == (status, "")
    assert standing.factor > 1
    assert f"{standing.factor:.3g} times" in standing.message
    assert f"◆ {status}" in repr(standing)
    assert f"◆ {status}" in standing._repr_html_()
    if status == "modelled":
        assert list(standing.ladder.times) == ["yours", "conv2d_forward"]
        yours, theirs = standing.ladder.microseconds("T4").values()
        assert standing.factor == yours / theirs
        assert re.search(
            r"compared with `conv2d_forward`: \S+ times as long on T4, .* on H100\.", standing.message
        )
        assert "limited by" in standing.details[3]
        assert sum("instructions of warps" in line for line in standing.details) == 2


@pytest.mark.skipif(not device.SELECTION.emulated, reason="modelled on the emulated GPU")
def test_an_entry_that_cannot_be_modelled_is_named(entry, monkeypatch):
    def refuse(rungs):
        raise RuntimeError("the lines of the kernel are not known")

    monkeypatch.setattr(contest, "modelled", refuse)
    standing = beat_conv2d_forward(entry["convolve"])
    assert (standing.status, standing.mistake) == ("wrong", "not modelled")
    assert "lines of the kernel" in standing.details[0]


def test_without_an_entry_nothing_is_measured(monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_STRICT", "1")  # an open problem is nobody's failure

    def convolve(x, weight, bias, out):
        """Fill out."""
        ...

    assert beat_conv2d_forward(convolve).status == "unsolved"
    monkeypatch.setattr(device, "simulated", lambda: True)
    assert "nothing to measure" in beat_conv2d_forward(lambda *arrays: arrays[-1].fill(0)).message


@cuda.jit
def fill_kernel(out, value):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = value


def of_the_package(x, weight, bias, out):
    gpu.conv2d_forward(x, weight, bias, out=out)


def of_the_package_after_a_launch(x, weight, bias, out):
    fill_kernel[1, 32](out.reshape(out.size), float32(0))
    conv2d_forward_naive(x, weight, bias, out=out)


def on_the_host(x, weight, bias, out):
    result = reference.conv2d_forward(*(array.copy_to_host() for array in (x, weight, bias)))
    out.copy_to_device(result.astype(np.float32))


@cuda.jit
def copy_kernel(source, target):
    i = cuda.grid(1)
    if i < target.size:
        target[i] = source[i]


def on_the_host_through_mapped_memory(x, weight, bias, out):
    seen = []
    for array in (x, weight, bias):
        flat = cuda.mapped_array(array.size, np.float32)
        copy_kernel[device.blocks(array.size, 256), 256](array.reshape(array.size), flat)
        device.synchronize()
        seen.append(np.array(flat).reshape(array.shape))
    result = cuda.mapped_array(out.size, np.float32)
    result[:] = cpu.conv2d_forward(*seen).ravel()
    copy_kernel[device.blocks(out.size, 256), 256](result, out.reshape(out.size))


def never(x, weight, bias, out):
    """Launch nothing."""
    int(out.size)


def a_part(x, weight, bias, out):
    fill_kernel[1, 32](out.reshape(out.size), float32(0))


def zeros(x, weight, bias, out):
    fill_kernel[device.blocks(out.size, 256), 256](out.reshape(out.size), float32(0))


def raising(x, weight, bias, out):
    fill_kernel[1, 32](out, bias.not_there)


@compiled
@pytest.mark.parametrize(
    ("cheat", "mistake"),
    [
        (of_the_package, "package's kernel"),
        (of_the_package_after_a_launch, "package's kernel"),
        (on_the_host, "computes on the host"),
        (never, "no launch"),
        (on_the_host_through_mapped_memory, "computes elsewhere"),
        (a_part, "never written"),
        (zeros, "wrong result"),
        (raising, "raises"),
    ],
)
def test_invalid_entries_are_rejected(cheat, mistake):
    standing = beat_conv2d_forward(cheat)
    assert (standing.status, standing.mistake, standing.factor) == ("wrong", mistake, None), standing


@compiled
def test_a_right_result_that_changes_its_input_is_rejected(entry):
    def convolve(x, weight, bias, out):
        entry["convolve"](x, weight, bias, out)
        fill_kernel[1, 32](bias, float32(0))

    assert beat_conv2d_forward(convolve).mistake == "changes input"


@compiled
def test_a_result_that_is_right_only_once_is_rejected(entry):
    """The numbers differ between rounds, and every round is checked."""
    kept = []

    def convolve(x, weight, bias, out):
        if not kept:
            entry["convolve"](x, weight, bias, out)
            kept.append(device.empty(out.shape, np.float32))
            device.copy(kept[0], out)
        fill_kernel[1, 1](out.reshape(out.size), float32(0))
        device.copy(out, kept[0])

    assert beat_conv2d_forward(convolve).mistake == "wrong result"


@compiled
def test_a_recorded_graph_of_the_package_is_rejected():
    """No call shows the package's launch: a graph makes it, beside a dummy launch."""
    arrays = [device.to_device(array) for array in beat_conv2d_forward.draw(np.random.default_rng(0))]
    result = device.empty((64, 64, 11, 11))

    def convolve_by_package():
        gpu.conv2d_forward(*arrays, out=result)

    stream = device.stream()
    with device.use_stream(stream):
        convolve_by_package()
        graph = record(convolve_by_package)

    def convolve(x, weight, bias, out):
        for ours, theirs in zip(arrays, (x, weight, bias), strict=True):
            copy_kernel[device.blocks(ours.size, 256), 256](
                theirs.reshape(ours.size), ours.reshape(ours.size)
            )
        device.synchronize()
        graph()
        stream.synchronize()
        copy_kernel[device.blocks(out.size, 256), 256](result.reshape(out.size), out.reshape(out.size))

    assert beat_conv2d_forward(convolve).mistake == "launched otherwise"


@pytest.mark.gpu
def test_a_sum_of_unsigned_numbers_of_32_bits_has_64():
    @cuda.jit
    def add(x, out):
        out[0] = x[0] + x[0]

    out = cuda.to_device(np.zeros(1, np.uint64))
    add[1, 1](cuda.to_device(np.full(1, 2**32 - 1, np.uint32)), out)
    assert out.copy_to_host()[0] == 2**33 - 2


# --- Modelled times ----------------------------------------------------------------------------------------


def text_of(name):
    (text,) = (cell.source for cell in notebooks.read(NOTEBOOK).cells if cell.id == name)
    return text


def modelled_in(name, rung):
    """Return the modelled microseconds of a rung on T4, A100 and H100, as printed by a cell."""
    (cell,) = (cell for cell in notebooks.read(NOTEBOOK).cells if cell.id == name)
    (line,) = re.findall(rf"^{rung} .* [mu]s \(.*$", cell.outputs[0]["data"]["text/plain"], re.MULTILINE)
    times = re.findall(r"([\d.]+) (ms|us) \(", line)
    return np.array([float(value) * {"ms": 1000, "us": 1}[unit] for value, unit in times])


def test_the_text_gives_the_modelled_times_that_the_cells_print():
    saved = 1 - modelled_in("unsigned-modelled", "unsigned") / modelled_in("unsigned-modelled", "signed")
    assert "a good third of the modelled time on T4 and A100" in text_of("unsigned-after")
    assert (saved[:2] > 1 / 3).all()
    last, before = modelled_in("modelled", "vectorised"), modelled_in("modelled", "register_tiled")
    assert (before > 1.25 * last).all()
    roofs = [roof_of(profile.device(name))["flops_per_second"] for name in ("T4", "A100", "H100")]
    shares = 2 * 2048**3 / (last / 1e6) / roofs
    assert "more than nine tenths of what the GPUs can do (modelled)" in text_of("ladder-after")
    assert "the product reaches 85% of what the GPU can do" in text_of("ladder-after")
    assert (shares[:2] > 0.9).all()
    assert shares[2] == pytest.approx(0.85, abs=0.005)
    rungs = ("naive", "tiled", "register_tiled", "vectorised", "split")
    times = np.array([modelled_in("ladder-layer", rung) for rung in rungs])
    assert "in 38 to 57% of the time of the next" in text_of("predict-layer")
    half = times[-1] / times[:-1].min(axis=0)
    assert [round(100 * half.min()), round(100 * half.max())] == [38, 57]
    faster = modelled_in("ladder-conv", "one thread a result") / modelled_in(
        "ladder-conv", "implicit product"
    )
    said = "{0:.0f} times as fast on a T4 and {2:.0f} times on an H100, but {1:.0f} on an A100 (modelled)"
    assert said.format(*faster) in text_of("ladder-conv-after")


@pytest.mark.skipif(not device.SELECTION.emulated, reason="modelled on the emulated GPU")
@pytest.mark.exhaustive("test_modelled_ladders.py: modelled times of other kernels")
def test_the_text_gives_the_modelled_times_of_the_solution():
    kernel, large = solution_of("convolution_as_matmul", "matmul_1x4_kernel"), 2048
    arguments = device.zeros((large, large)), device.zeros(large**2), large, device.zeros(large**2)
    ladder = modelled({"1 x 4": (kernel, (large // 128, large // 8), (32, 8), arguments)})
    said = "{:.3g} ms on a T4, {:.3g} ms on an A100 and {:.3g} ms on an H100 (modelled)"
    times = (time.microseconds / 1e3 for time in ladder.times["1 x 4"].values())
    assert said.format(*times) in text_of("unsigned-after")
