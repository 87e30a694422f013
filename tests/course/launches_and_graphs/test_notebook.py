"""Notebook 15: launches, copies, recordings, occupancy, and records of benchmarks."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda
from solutions import solution_of

import gpuless
from cnn_course.chapters.launches_and_graphs import (
    exercises as check,
    modelled,
    pictures as speed_pictures,
    slow,
    tape,
)
from cnn_course.chapters.launches_and_graphs.exercises.cause_of import CAUSES
from cnn_course.chapters.launches_and_graphs.pictures import (
    occupancy_picture,
    overlap_timeline,
    recorded,
    step_timeline,
)
from cnn_course.chapters.launches_and_graphs.streams import LENGTHS, Pipeline, one_stream, taken
from cnn_course.engine import notebooks
from cnn_course.engine.ladders import Ladder, Rung
from cnn_course.engine.launch_lists import access_of, bus_traffic, listed
from cnn_numba import device
from cnn_numba.data import Dataset
from cnn_numba.data.files import CHECKOUT
from cnn_numba.nn.layers import CrossEntropyLoss, Flatten, Linear
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.activation.gpu import relu_forward_naive
from cnn_numba.ops.gather.gpu import advance, advance_kernel, gather_labels
from cnn_numba.train.optim import SGD
from cnn_numba.train.step import steps_of
from gpuless.profile import costs

NOTEBOOK = notebooks.read(CHECKOUT / "notebooks" / "15_launches_and_graphs.ipynb")
CELLS = {cell.id: cell.source for cell in NOTEBOOK.cells}
OUTPUTS = {cell.id: cell.outputs for cell in NOTEBOOK.cells if cell.cell_type == "code"}


def text_of(cell):
    """Return a text without its links."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", CELLS[cell])


@cuda.jit
def copy_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i]


# --- Launches ----------------------------------------------------------------------------------------------


def test_launches_of_a_kernel_are_added_up_and_run():
    x, out = device.to_device(np.arange(6, dtype=np.float32)), device.zeros(6)

    def work():
        device.launch(copy_kernel, 2, 4, x, out)
        device.launch(copy_kernel, (1, 1), (3, 1), x[:3], out[:3])
        device.launch(advance_kernel, 1, 1, device.zeros(1, np.int32))

    found = listed(work)
    assert [row[:3] for row in found.rows] == [("copy_kernel", 2, 11), ("advance_kernel", 1, 1)]
    assert [row.bytes for row in found.rows] == [2 * 4 * 6 + 2 * 4 * 3, 2 * 4]
    assert (found.launches, found.bytes) == (3, 80)
    np.testing.assert_array_equal(device.to_host(out), np.arange(6))


def test_launches_can_be_noted_without_running():
    cursor = device.zeros(1, np.int32)
    found = listed(lambda: advance(cursor), run=False)
    assert (found.launches, found.bytes) == (1, None)
    assert "bytes" not in repr(found)
    assert device.to_host(cursor)[0] == 0


def test_launching_is_put_back_after_an_error():
    before = device.launch
    with pytest.raises(ZeroDivisionError):
        listed(lambda: 1 / 0)
    assert device.launch is before


def test_the_access_map_of_a_function_that_launches_once():
    x = device.zeros(64)
    assert access_of(lambda: relu_forward_naive(x)).reads("x").sum() == 64
    with pytest.raises(ValueError, match="an access map needs one launch, and this function makes 2"):
        access_of(lambda: (relu_forward_naive(x), relu_forward_naive(x)))


# --- The bus -----------------------------------------------------------------------------------------------


def test_copies_within_host_or_device_cross_no_bus():
    x = device.zeros(3)
    with bus_traffic() as bus:
        device.copy(x, device.empty(3))
        device.to_host(np.zeros(3))
        device.copy(np.zeros(3), np.ones(3))
    assert repr(bus) == "no copies"


def test_copies_are_noted_in_both_directions():
    x = device.zeros((2, 3))
    with bus_traffic() as bus:
        device.zeros(4, np.int32)
        device.copy(x, np.ones((2, 3), np.float32))
        device.copy(np.zeros((2, 3), np.float32), x)
    assert [(crossing.direction, crossing.bytes) for crossing in bus] == [
        ("host to device", 16),
        ("host to device", 24),
        ("device to host", 24),
    ]


def resident_bytes(images, batch_size):
    """Count an order, two rates per step, two cursors and two totals."""
    return 8 * images + 8 * device.blocks(images, batch_size) + 8 + 16


def test_the_text_gives_the_bytes_of_a_training():
    apart = 60_000 * (4 * 784 + 4 + 4)  # pixels, label and loss of each image
    text = text_of("bus-after")
    assert f"that is {resident_bytes(60_000, 64):,} bytes over the bus instead of {apart:,}." in text


def test_resident_bytes_match_a_training(rng):
    images = rng.integers(0, 256, (5, 1, 1, 2), dtype=np.uint8)
    labels = np.array([0, 1, 0, 1, 0], np.int32)
    model = Sequential([Flatten(), Linear(2, 2)], (1, 1, 2), batch_size=2, device="gpu")
    dataset = Dataset("five", images, labels, images, labels)
    loss, sgd = CrossEntropyLoss(2, 2, "gpu"), SGD(model)
    steps = steps_of(model, loss, sgd, dataset, log=lambda line: None, graph=False)
    steps.take(2)  # the first one copies constants, once for all training runs
    with bus_traffic() as bus:
        steps.begin(np.arange(5), lrs=[0.1] * 3)
        for count in (2, 2, 1):
            steps.take(count)
        assert steps.totals.shape == (2,)
    assert bus.bytes == resident_bytes(5, 2)


# --- The tape ----------------------------------------------------------------------------------------------


def test_a_recording_repeats_launches_with_their_arguments():
    order, y = device.to_device(np.array([2, 0, 1])), device.zeros(1, np.int32)
    labels = device.to_device(np.array([10, 20, 30], np.int32))
    recording = tape.record(gather_labels, labels, order[:1], y)
    assert device.to_host(y)[0] == 0
    recording.replay()
    assert (len(recording), device.to_host(y)[0]) == (1, 30)


@pytest.mark.parametrize(
    ("what", "function"),
    [
        ("reads on the host", lambda x: device.to_host(x)),
        ("reads on the host", lambda x: x.copy_to_host()),
        ("copies from the host", lambda x: device.to_device(np.ones(2))),
        ("copies from the host", lambda x: device.copy(x, np.ones(3, np.float32))),
        ("copies from the host", lambda x: cuda.to_device(np.ones(2))),
        ("copies from the host", lambda x: x.copy_to_device(np.ones(3, np.float32))),
        ("copies from the host", lambda x: x.__setitem__(0, 1)),
        ("computes apart", lambda x: x + 1),
        ("allocates", lambda x: device.empty(3)),
        ("allocates", lambda x: device.zeros(3)),
        ("allocates", lambda x: cuda.device_array(3)),
        ("waits", lambda x: device.synchronize()),
        ("waits", lambda x: cuda.synchronize()),
        ("launched apart", lambda x: copy_kernel[1, 3](x, x)),
    ],
)
def test_operations_that_no_graph_can_hold_raise_only_while_recording(what, function):
    x = device.zeros(3)
    with pytest.raises(tape.CannotRecord) as refused:
        tape.record(function, x)
    assert refused.value.what == what
    if device.simulated() or what != "computes apart":  # which only the simulator's arrays allow
        function(x)


# --- Pictures ----------------------------------------------------------------------------------------------


def test_short_kernels_wait_for_launches_and_long_kernels_for_each_other():
    short = step_timeline(4, overhead=10, work=8, gap=1, graph=False)
    assert (short.end, short.busy) == (42, 8 / 42)
    long = step_timeline(4, overhead=10, work=80, gap=1, graph=False)
    assert long.end == 10 + 80 + 3
    assert step_timeline(4, overhead=10, work=80, gap=1, graph=True).end == long.end
    assert step_timeline(4, overhead=10, work=8, gap=1, graph=True).end == 10 + 8 + 3


def test_two_streams_are_as_fast_as_the_slowest_stage():
    for slowest in ("fill", "copy", "kernels"):
        durations = {"fill": 1, "copy": 1, "kernels": 1} | {slowest: 5}
        rows = overlap_timeline(6, **durations, streams=True)
        begins = [begin for begin, _ in rows[slowest]]
        assert np.diff(begins).tolist() == [5] * 5


@pytest.mark.parametrize("streams", [True, False])
def test_no_buffer_is_written_while_it_is_read(streams):
    rows = overlap_timeline(7, fill=2, copy=3, kernels=2, streams=streams)
    buffers = 2 if streams else 1
    for writer, reader in (("fill", "copy"), ("copy", "kernels")):
        for k in range(buffers, 7):
            assert rows[writer][k][0] >= sum(rows[reader][k - buffers])
        assert all(rows[reader][k][0] >= sum(rows[writer][k]) for k in range(7))


def test_occupancy_picture_names_the_limit():
    assert "places for 48 warps of an SM, of which 32 are taken" in occupancy_picture("8.6", 1024, 40, 0).alt
    assert "no block fits, and the launch fails. Limited by registers" in str(
        occupancy_picture("9.0", 1024, 80, 0)
    )


def epoch_record(**machine):
    result = {"batch_size": 64, "seconds": {"ours, graph": [1.0, 1.1]}, "medians": {"ours, graph": 1.05}}
    versions = {"python": "3.11", "numba": "0.68", "numba-cuda": "0.30", "torch": "2.15"}
    record = {"benchmark": "epoch", "date": "2027-01-02", "versions": versions, "model": "mnist_cnn"}
    return record | {"machine": machine, "results": [result]}


def test_records_are_grouped_by_where_they_were_measured(tmp_path):
    records = {
        "cpu": epoch_record(processor="a CPU", threads=2),
        "gpu": epoch_record(processor="a CPU", threads=2, gpu={"name": "a GPU"}),
        "other": {"benchmark": "startup", "machine": {}},
    }
    for name, record in records.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    (on_cpu,), (on_gpu,) = recorded(tmp_path, gpu=False), recorded(tmp_path, gpu=True)
    assert "benchmarks/cpu.json, taken on a CPU, 2 threads of a CPU, on 2027-01-02, with numba 0.68" in str(
        on_cpu
    )
    assert "benchmarks/gpu.json, taken on a GPU, on 2027-01-02" in str(on_gpu)


def test_the_roofline_of_the_operations_is_drawn(tmp_path):
    figures = {"median": 1e-3, "GFLOP/s": 3.0}
    case = {"operation": "matmul", "size": "course", "flops": 6, "bytes": 3, "contenders": {"naive": figures}}
    record = epoch_record(gpu={"name": "a GPU"}) | {"benchmark": "ops", "results": [case]}
    record["roof"] = {"flops_per_second": 1e12, "bytes_per_second": 1e11}
    (tmp_path / "ops-gpu.json").write_text(json.dumps(record))
    (picture,) = recorded(tmp_path, gpu=True)
    assert "under the roof" in picture.alt


def test_without_a_record_there_is_no_picture(tmp_path):
    assert recorded(tmp_path, gpu=True) == []


# --- Two streams -------------------------------------------------------------------------------------------


def ones(count):
    return [np.full(3, number + 1, np.float32) for number in range(count)]


def test_a_pipeline_records_which_steps_must_be_finished():
    run = taken(one_stream, ones(2))
    assert [(step.kind, sorted(step.after)) for step in run.steps] == [
        ("fill", []),
        ("copy", [0]),
        ("add", [0, 1]),
        ("fill", [0, 1, 2]),
        ("copy", [0, 1, 2, 3]),
        ("add", [0, 1, 2, 3, 4]),
    ]
    assert run.times() == [(0, 1), (1, 3), (3, 6), (6, 7), (7, 9), (9, 12)]
    assert (list(run.conflicts()), run.unfinished()) == ([], [])
    assert run.total().tolist() == [3, 3, 3]


def test_an_event_orders_only_later_steps():
    run = Pipeline(ones(2))
    upload, compute, sent = run.stream(), run.stream(), run.event()
    run.fill(0, 0)
    run.copy(0, upload)
    sent.record(upload)
    run.copy(1, upload)  # after the event
    sent.wait(compute)
    run.add(0, compute)
    assert sorted(run.steps[3].after) == [0, 1]
    assert [(a.kind, b.kind) for a, b in run.conflicts()] == []
    assert {step.kind for step in run.unfinished()} == {"copy", "add"}
    sent.synchronize()
    assert [step.kind for step in run.unfinished()] == ["copy", "add"]


def test_steps_that_may_conflict_are_named():
    run = Pipeline(ones(2))
    run.fill(0, 0)
    run.copy(0, run.stream())
    run.add(0, run.stream())
    run.fill(1, 0)
    meetings = [(earlier.kind, later.kind) for earlier, later in run.conflicts()]
    assert meetings == [("copy", "add"), ("copy", "fill")]
    picture = speed_pictures.schedule_picture(run)
    assert "2 pairs of steps may meet in a buffer" in picture.caption


def test_only_streams_of_the_pipeline_are_accepted():
    with pytest.raises(TypeError, match=r"expected a stream made by run.stream\(\), got 0"):
        Pipeline(ones(1)).copy(0, 0)


def test_slots_and_numbers_out_of_range_are_named():
    run = Pipeline(ones(3))
    with pytest.raises(IndexError, match="number must be an integer from 0 to 2, got 3"):
        run.fill(3, 0)
    for call in (lambda: run.fill(0, 2), lambda: run.copy(2, run.stream()), lambda: run.add(2, run.stream())):
        with pytest.raises(IndexError, match="slot must be an integer from 0 to 1, got 2"):
            call()
    with pytest.raises(IndexError, match=r"slot must be an integer from 0 to 1, got 0\.0"):
        run.fill(0, 0.0)


def test_the_best_solution_is_what_the_picture_of_two_streams_shows():
    rows = overlap_timeline(5, *LENGTHS.values(), streams=True)
    assert sum(rows["kernels"][-1]) == sum(LENGTHS.values()) + LENGTHS["add"] * 4


def test_a_window_makes_the_kernel_average():
    batch = np.arange(5, dtype=np.float32)
    wanted = [np.mean([min(i + k, 4) for k in range(3)]) for i in range(5)]
    np.testing.assert_allclose(taken(one_stream, [batch], window=3).total(), wanted)


# --- Modelled times ----------------------------------------------------------------------------------------

STEPS = modelled.recorded_steps()


def test_the_text_has_the_times_of_the_record():
    t4, a100, h100 = STEPS
    assert [step.gpu for step in STEPS] == ["T4", "A100", "H100"]
    (microseconds,) = {round(step.launches.microseconds) for step in STEPS}
    answer, after = text_of("predict-model"), text_of("real-graph-after")
    assert f"The host needs {t4.launches.microseconds / 10:.0f} µs for each" in answer
    assert f"10 launches take {microseconds} µs" in answer
    sliders = f"launches=[10, 5, 8, 24, 48], launch_us=[{t4.launches.microseconds / 10:.0f}, "
    assert sliders in text_of("explore-launches")
    assert (
        f"{t4.work:.0f} µs on the T4, {a100.work:.0f} on the A100 and {h100.work:.0f} on the H100" in answer
    )
    assert "An H100 takes a third of the time of a T4" in answer
    assert 2.5 < t4.work / h100.work < 3.5
    gains = [step.launches.microseconds / step.graph.microseconds for step in STEPS]
    assert f"{gains[2]:.1f} times as fast on the H100, {gains[1]:.1f} times on the A100" in after
    assert f"but only {gains[0]:.1f} times on the T4" in after
    assert max(t4.kernels, key=t4.kernels.get) == "conv2d_pool_windows_kernel"
    assert t4.kernels["conv2d_pool_windows_kernel"] / t4.work == pytest.approx(0.21, abs=0.005)


def test_recorded_steps_read_as_a_table_and_as_a_picture():
    assert "A100             350 us (210 to 595)            75%         71 us (44 to 173)" in repr(STEPS)
    picture = STEPS.picture()
    assert "H100 350 us launch by launch, 53 us as one graph" in picture.caption
    assert picture.caption.startswith("A step of 64 images, modelled, not measured: ")


@pytest.fixture
def only_a_t4(monkeypatch):
    monkeypatch.setattr(modelled, "GPUS", ("T4",))


@pytest.mark.gpu
def test_the_picture_of_streams_is_pale_until_there_are_any(only_a_t4):
    pale = modelled.streams_picture(lambda run: None)
    assert "4 batches with one stream and with two streams. T4 " in pale.caption
    yours = modelled.streams_picture(one_stream)
    one, two = map(int, re.search(r"with your streams. T4 (\d+) and (\d+) us", yours.caption).groups())
    assert one == two
    overlapped = int(re.search(r"and (\d+) us", pale.caption)[1])
    assert overlapped < 0.8 * one


def report_on(name):
    x = np.zeros(slow.SIZES[name], np.int32 if name == "count_kernel" else np.float32)
    blocks, threads, out = {
        "brightness_kernel": (128, 128, device.zeros(16_384)),
        "channel_sums_kernel": (32, 128, device.zeros(32)),
        "count_kernel": (4096, 256, device.zeros(10, np.int32)),
    }[name]
    return gpuless.profile(getattr(slow, name)[blocks, threads], "T4")(device.to_device(x), out)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "limiter", "advice"),
    [
        ("brightness_kernel", "L1 and shared memory", "a load moves 32 sectors per request, 4 would do"),
        ("channel_sums_kernel", "latency", "32 blocks leave 8 of 40 SMs without work"),
        ("count_kernel", "atomic operations", "atomic operations"),
    ],
)
def test_the_causes_of_the_exercise_match_the_reports(name, limiter, advice):
    report = report_on(name)
    assert report.limiter.startswith(limiter)
    assert f"`{slow.ANSWERS[name][1]}`" in report.limiter
    assert any(advice in line for line in report.advice)
    assert slow.ANSWERS[name][0] in CAUSES


def test_the_causes_in_the_text_match_the_exercise():
    assert re.findall(r'^\| `"(.+?)"`', text_of("cause-of-text"), re.MULTILINE) == list(CAUSES)


@pytest.mark.gpu
def test_the_text_gives_the_times_of_the_repair():
    repaired = solution_of("launches_and_graphs", "channel_sums")
    text = text_of("channel-sums-solution")
    t4 = slow.modelled_time(lambda: repaired(*slow.feature_maps()))
    assert f"On a T4 they take {t4:.0f} µs instead of {slow.given_time():.0f} (modelled)" in text


@pytest.mark.gpu
def test_sums_without_a_kernel_are_no_repair():
    verdict = check.channel_sums(lambda x, out: device.copy(out, device.to_host(x).sum(axis=(0, 2))))
    assert verdict.mistake == "no kernel"


def test_roofs_picture_gives_both_intensities_and_the_speed():
    asked = (SimpleNamespace(flops=flops, bytes_moved=1000, least_bytes=100) for flops in (4000, 0))
    rungs = [Rung(name, (counts,)) for name, counts in zip(("a_kernel", "b"), asked, strict=True)]
    picture = modelled.roofs_picture(Ladder("", rungs, []), {"a_kernel": 1e-3}, most=1)
    assert picture.caption.endswith(" a: 4 to 40 operations per byte, 4 TFLOP/s.")


# --- The text -----------------------------------------------------------------------------------------------


def test_the_text_about_short_launches_matches_the_counts():
    counted = OUTPUTS["list-real"][1].data["text/plain"]
    rows = re.findall(r"^(\S+) +(\d+) +([\d,]+) +([\d.,]+) M", counted, re.MULTILINE)
    (short,) = (row for row in rows if row[0] == "linear_cross_entropy_sums_kernel")
    assert int(short[2].replace(",", "")) < sum(int(row[2].replace(",", "")) for row in rows[:-1]) / 100
    text = f"Another, `{short[0]}`, does hardly any: it takes longer to launch than to run"
    assert text in text_of("real-after")
    assert all(step.kernels[short[0]] < step.launches.microseconds / len(step.kernels) for step in STEPS)
    millions = {name: float(flops.replace(",", "")) for name, _, _, flops in rows}
    assert 0.45 < millions["conv2d_pool_windows_kernel"] / sum(millions.values()) < 0.5


def test_the_text_about_the_roofs_matches_the_picture():
    shown = OUTPUTS["roofs"][0].data["text/plain"]
    marks = re.findall(r"(\w+): [\d.]+ to ([\d.]+) operations per byte, ([\d.]+) TFLOP/s", shown)
    least = {name: float(intensity) for name, intensity, _ in marks}
    slanted = [name for name in least if least[name] * modelled.A100_HBM < modelled.A100_PEAK]
    assert (len(least), slanted) == (4, [])
    for _, _, speed in marks:
        assert float(speed) * 1e12 < 0.8 * modelled.A100_PEAK
    text = text_of("roofs-after")
    assert text.startswith("All four have the flat roof above their full mark")


def test_the_launch_time_of_the_host_has_a_source():
    text = text_of("model-after")
    assert "6.6 µs for a launch without arguments, 14.1 with two arrays" in text
    assert "6.6, 10.6 and 14.1 us per launch with no,\n  one and two arrays" in costs.__doc__
