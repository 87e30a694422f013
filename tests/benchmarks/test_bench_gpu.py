import dataclasses
import importlib
import inspect
import json
import types
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import accuracy, epoch, epoch_gpu, ops as bench_ops, plots as bench_plots, pytorch, records
from benchmarks.cases import CASES, Case, convolutions, poolings, products
from benchmarks.rungs import conv_constant, conv_naive, conv_tiled, matmul, max_pool
from cnn_numba import cli, device
from cnn_numba.data import batches, load
from cnn_numba.nn.models import mnist_cnn
from cnn_numba.train.graphs import GraphsUnavailable
from cnn_numba.train.recipes import PLAIN
from gpuless import nvidia
from gpuless.inspector import NoCompiler, inspect_kernels
from gpuless.nvidia import Driver, Gpu

TINY = (
    *convolutions("tiny", 2, 3, 5, 4, 2, 3, 1),
    *products("tiny", 2, 3, 5),
    *poolings("tiny", 1, 2, 4, 6),
)
ROOF = {"flops_per_second": 1e12, "bytes_per_second": 1e11}


def chosen(*rungs):
    """Return some rungs of the product."""
    return {rung: TINY[3].rungs[rung] for rung in rungs}


def of_each(cases):
    return pytest.mark.parametrize("case", cases, ids=[f"{case.operation}-{case.size}" for case in cases])


# --- What is measured --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "flops", "moved", "terms"),
    [
        # 80 outputs of 27 products; 120 + 54 + 80 numbers, whichever of the three is written.
        (TINY[0], 2 * 80 * 27, 4 * 254, 27),
        (TINY[1], 2 * 80 * 27, 4 * 254, 18),
        (TINY[2], 2 * 80 * 27, 4 * 254, 40),
        (TINY[3], 60, 4 * (6 + 15 + 10), 3),
        (TINY[4], 12 * 3, 4 * (48 + 12 + 12), 0),
        (TINY[5], 12 * 4, 4 * (48 + 12), 4),
    ],
)
def test_the_work_of_a_case_follows_its_formula(case, flops, moved, terms):
    assert (case.flops, case.bytes, case.terms) == (flops, moved, terms)


def test_cases_of_the_targets_are_measured():
    by_size = {(case.operation, case.size): case for case in CASES}
    assert len(by_size) == len(CASES)
    assert by_size["matmul", "large"].flops == 2 * 4096**3
    assert by_size["conv2d_forward", "medium"].inputs == ((64, 64, 56, 56), (64, 64, 3, 3))
    assert by_size["conv2d_forward", "medium"].outputs == ((64, 64, 56, 56),)


@of_each([case for case in TINY if case.rungs])
def test_a_ladder_has_every_rung_of_its_operation(case):
    backend = importlib.import_module(f"cnn_numba.ops.{case.folder}.gpu")
    # Not those on Tensor Cores, which compute something else: products of rounded operands.
    modules = backend, conv_constant, conv_naive, conv_tiled, matmul, max_pool
    functions = [pair for module in modules for pair in inspect.getmembers(module, inspect.isfunction)]
    rungs = {name: each for name, each in functions if name.startswith(f"{case.operation}_")}
    below = {  # the highest rung may be the operation itself
        f"{case.operation}_{rung}": function
        for rung, function in case.rungs.items()
        if function is not getattr(backend, case.operation, None)
    }
    assert rungs == below
    if case.operation == "conv2d_forward":
        assert case.rungs["implicit"] is backend.conv2d_forward


@of_each(TINY)
def test_contenders_compute_what_pytorch_computes(case, rng):
    inputs = [rng.standard_normal(shape, np.float32) for shape in case.inputs]
    expected = case.theirs(torch, *(torch.from_numpy(array).double() for array in inputs)).numpy()
    assert expected.shape == case.outputs[0]
    for function in case.contenders.values():
        out = device.to_device(np.full(case.outputs[0], np.nan, np.float32))
        case.ours(function, *map(device.to_device, inputs), out)()
        error = np.abs(device.to_host(out) - expected).max()
        assert error <= case.tolerance


def test_tolerance_holds_for_long_sums_and_is_below_one_product(rng):
    (case,) = products("long", 8, 4096, 8)
    a, b = rng.standard_normal((8, 4096), np.float32), rng.standard_normal((4096, 8), np.float32)
    # One after the other, as a kernel adds: the least exact way.
    running = np.cumsum(a[:, :, None] * b[None], axis=1, dtype=np.float32)[:, -1]
    error = np.abs(running - a.astype(np.float64) @ b).max()
    assert case.tolerance / 100 < error < case.tolerance
    assert case.tolerance < 0.01


def test_library_calls_set_tf32_and_restore_the_settings(monkeypatch):
    seen = []
    case = types.SimpleNamespace(
        theirs=lambda torch: seen.append(
            (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
        )
    )
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with bench_ops._library_settings():
        assert torch.backends.cudnn.benchmark
        for tf32 in (True, False):
            bench_ops._library_call(case, [], tf32)()
    assert seen == [(True, True), (False, False)]
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before
    assert not torch.backends.cudnn.benchmark


# --- The roof ----------------------------------------------------------------------------------------------


def test_bound_is_the_lower_of_the_two_roofs():
    assert bench_ops.bound(ROOF, flops=1000, traffic=1000) == 1e11
    assert bench_ops.bound(ROOF, flops=10_000, traffic=1000) == 1e12
    assert bench_ops.bound(ROOF, flops=10**9, traffic=1000) == 1e12


def test_rates():
    (matmul,) = products("tiny", 2, 3, 5)  # 60 operations on 124 bytes
    rates = bench_ops.rates(matmul, 1e-6, limit=1.2e8)
    assert rates == pytest.approx({"GFLOP/s": 0.06, "GB/s": 0.124, "share_of_roof": 0.5})


def test_roof_is_work_over_median_time(monkeypatch):
    launched = []
    monkeypatch.setattr(bench_ops, "COPIED", 4096)

    def seconds(function, repeats):
        function()
        return [3.0, 1.0, 2.0]

    monkeypatch.setattr(device, "seconds", seconds)
    with device.observe_launches(launched.append):
        roof = bench_ops.measure_roof()
    (_, peak_grid, peak_block, (iterations, *_), _), (_, copy_grid, copy_block, *_) = launched
    per_thread = 2 * iterations * bench_ops.UNROLLED * bench_ops.SUMS
    assert roof["flops_per_second"] == peak_grid * peak_block * per_thread / 2
    assert roof["bytes_per_second"] == 2 * 4 * 4096 / 2
    assert copy_grid * copy_block * 4 == 4096
    assert roof["seconds"]["copy"] == [3.0, 1.0, 2.0]


def test_roof_kernels_compute(rng):
    out = device.zeros(1)
    # Every sum stays at 2, and their total of 16 equals x: so it is written.
    device.launch(bench_ops.fma_peak_kernel, 1, 1, 0, np.float32(28), np.float32(0), out)
    assert device.to_host(out)[0] == sum(range(8))
    source = rng.standard_normal(1028, np.float32)
    target = device.to_device(np.full(1028, np.nan, np.float32))
    device.launch(bench_ops.copy_kernel, 2, bench_ops.THREADS, device.to_device(source), target)
    np.testing.assert_array_equal(device.to_host(target), source)


def test_roof_kernels_are_what_they_claim_in_machine_code():
    kernels = bench_ops.fma_peak_kernel, bench_ops.copy_kernel
    try:
        peak, copy = inspect_kernels([(kernel, kernel.py_func.signature) for kernel in kernels])
    except NoCompiler as error:
        pytest.skip(str(error))
    assert peak.mix["FMA"] == bench_ops.UNROLLED * bench_ops.SUMS
    assert peak.local_bytes == peak.spill_bytes == 0
    assert "global load" not in peak.mix
    if peak.language == "SASS":
        # The loop: from the first multiply-add to the branch back.
        kinds = [instruction.kind for instruction in peak.instructions]
        first = kinds.index("FMA")
        last = len(kinds) - 1 - kinds[::-1].index("FMA")
        assert kinds[first : last + 1].count("FMA") >= 0.95 * (last + 1 - first)
    assert copy.vector_widths == {"global load": {128: 1}, "global store": {128: 1}}


# --- Launches ----------------------------------------------------------------------------------------------


def test_launches_are_noted_and_can_be_made_again(rng):
    a, b = (device.to_device(rng.standard_normal(shape, np.float32)) for shape in ((3, 4), (4, 2)))
    out = device.to_device(np.full((3, 2), np.nan, np.float32))
    (case,), launch = products("tiny", 3, 4, 2), device.launch
    call = case.ours(case.contenders["naive"], a, b, out)
    (noted,) = bench_ops.launches_of(call, run=False)
    assert np.isnan(device.to_host(out)).all()
    assert noted.threads == 256
    assert bench_ops.signature(noted) == "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], bool, bool)"
    noted.run()
    np.testing.assert_allclose(device.to_host(out), device.to_host(a) @ device.to_host(b), rtol=1e-5)
    device.copy(out, np.full((3, 2), np.nan, np.float32))
    assert len(bench_ops.launches_of(call, run=True)) == 1
    assert np.isfinite(device.to_host(out)).all()
    assert device.launch is launch


# --- Timing, with a clock of our own -----------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """Let time pass only when a test says so; make the launch that keeps a GPU busy short."""
    clock = types.SimpleNamespace(now=0.0)

    def seconds(function, repeats=10, warm_up=3):
        begun = clock.now
        for _ in range(warm_up + repeats):
            function()
        return [(clock.now - begun) / (warm_up + repeats)] * repeats

    monkeypatch.setattr(device, "seconds", seconds)
    monkeypatch.setattr(bench_ops, "HOLD_ITERATIONS", 1)
    return clock


def test_contenders_are_sampled_in_turn(clock, monkeypatch):
    calls = []
    monkeypatch.setattr(bench_ops, "_multiply_add", lambda *arguments: calls.append("hold"))

    def contender(name, seconds):
        def call():
            calls.append(name)
            clock.now += seconds

        return call

    durations = {"short": 20e-6, "long": 0.1, "longest": 10.0}
    figures = bench_ops._in_turn({who: contender(who, seconds) for who, seconds in durations.items()})
    for who, seconds in durations.items():
        assert figures[who]["median"] == pytest.approx(seconds)
        assert figures[who]["seconds"] == pytest.approx([seconds] * len(figures[who]["seconds"]))
    # Three of 20 us make a sample of more than 50; half a second is enough for five of 0.1.
    assert [figures[who]["runs"] for who in durations] == [3, 1, 1]
    assert [len(figures[who]["seconds"]) for who in durations] == [20, 5, 3]
    # Nine samples to plan with; then in turn, each kept waiting until it is queued.
    in_turn = ["hold", *["short"] * 3, "hold", "long", "hold", "longest"]
    assert calls[18 : 18 + 3 * len(in_turn)] == 3 * in_turn


@pytest.fixture
def on_host(monkeypatch):
    """Let PyTorch see simulated arrays; they are copied, and not shared as on a GPU."""
    monkeypatch.setattr(bench_ops, "_tensor", lambda array: torch.from_numpy(device.to_host(array)))


def test_a_case_is_recorded_with_every_sample(clock, on_host, monkeypatch, capsys):
    case = dataclasses.replace(TINY[3], rungs=chosen("naive", "register_tiled"))

    def launch_for_a_millisecond(launch):
        launch.run()
        clock.now += 1e-3

    def library_call(case, tensors, tf32):
        def call():
            clock.now += 2e-3 if tf32 else 4e-3

        return call

    monkeypatch.setattr(bench_ops, "_library_call", library_call)
    monkeypatch.setattr(bench_ops, "MOST_REPEATS", 4)
    with device.observe_launches(launch_for_a_millisecond):
        result = bench_ops.bench_case(case, ROOF)
    assert json.loads(json.dumps(result)) == result
    assert (result["flops"], result["bytes"], result["measure"]) == (60, 124, "GFLOP/s")
    assert result["bound"] == bench_ops.bound(ROOF, 60, 124)
    # One launch each, and before it the one that keeps the GPU busy, which is not timed.
    expected = {"naive": 1e-3, "register_tiled": 1e-3, "PyTorch": 4e-3, "PyTorch, TF32": 2e-3}
    assert list(result["contenders"]) == list(expected)
    for who, figures in result["contenders"].items():
        assert figures["median"] == pytest.approx(expected[who])
        assert len(figures["seconds"]) == 4
        assert figures["GFLOP/s"] == pytest.approx(60 / figures["median"] / 1e9)
        assert figures["share_of_roof"] == pytest.approx(60 / figures["median"] / result["bound"])
    printed = capsys.readouterr().out
    assert all(who in printed for who in expected)


def test_a_wrong_rung_is_not_timed_and_an_unsupported_shape_is_skipped(clock, on_host, monkeypatch):
    case = TINY[4]

    def refuses(*arguments):
        raise ValueError("not with 4 x 6")

    def forgets(x, kernel_size, stride, padding, out, argmax):
        """Keep the old contents."""

    def wrong(x, kernel_size, stride, padding, out, argmax):
        right(x, kernel_size, stride, padding, out, argmax)
        device.copy(out, device.to_host(out) + np.float32(1e-6))

    right = case.contenders["naive"]
    contenders = {"refuses": refuses, "forgets": forgets, "wrong": wrong, "right": right}
    monkeypatch.setattr(Case, "contenders", contenders)
    calls, left_out = bench_ops._calls(case)
    assert list(calls) == ["right", "PyTorch"]
    assert left_out["refuses"] == {"refused": "not with 4 x 6"}
    assert "nan" in left_out["forgets"]["wrong"]
    assert left_out["wrong"]["wrong"].endswith("and 0 is allowed")


def test_records_of_the_gpu_name_it(monkeypatch):
    found = Driver((Gpu("Some GPU", (9, 0)),), (13, 2), "595.1", None)
    monkeypatch.setattr(nvidia, "driver", lambda: found)
    monkeypatch.setattr(nvidia, "toolkit", lambda: (13, 1))
    monkeypatch.setattr(device, "hardware", lambda: True)
    monkeypatch.setattr(bench_ops, "measure_roof", lambda: ROOF)
    monkeypatch.setattr(bench_ops, "bench_case", lambda case, roof: {"operation": case.operation})
    record = bench_ops.bench_ops(TINY[:2])
    assert record["benchmark"] == "ops"
    assert record["machine"]["gpu"] == {
        "name": "Some GPU",
        "compute_capability": "9.0",
        "driver": "595.1",
        "cuda_toolkit": "13.1",
    }
    assert record["results"] == [{"operation": case.operation} for case in TINY[:2]]
    assert "gpu" not in records.new_record("epoch")["machine"]


# --- Without a GPU -----------------------------------------------------------------------------------------


@pytest.mark.skipif(device.hardware(), reason="there is a GPU")
def test_without_a_gpu_the_compiler_is_asked_and_nothing_timed(monkeypatch, capsys):
    def seconds(*arguments):
        raise AssertionError("a time was taken")

    monkeypatch.setattr(device, "seconds", seconds)
    matmuls = [*products("tiny", 20, 30, 40), *products("large", 20, 30, 40)]
    cases = [*(dataclasses.replace(case, rungs=chosen("naive", "tiled")) for case in matmuls), TINY[4]]
    try:
        record = bench_ops.bench_ops(cases)
    except NoCompiler as error:
        pytest.skip(str(error))
    assert record["benchmark"] == "ops-static"
    assert record["compute_capability"] == "9.0"
    assert "gpu" not in record["machine"]
    assert json.loads(json.dumps(record["results"][0]["mix"])) == record["results"][0]["mix"]
    rows = {(row["operation"], row["contender"]): row for row in record["results"]}
    assert list(rows) == [
        ("matmul", "naive"),
        ("matmul", "tiled"),
        ("max_pool2d_forward", "naive"),
        ("max_pool2d_forward", "2x2"),
    ]
    tiled = rows["matmul", "tiled"]
    assert (tiled["kernel"], tiled["threads"]) == ("matmul_tiled_kernel", matmul.TILE**2)
    assert tiled["shared_bytes"] == 2 * matmul.TILE * (matmul.TILE + 1) * 4
    assert tiled["spill_bytes"] == 0
    assert tiled["mix"]["FMA"] >= matmul.TILE
    assert sum(tiled["mix"].values()) == tiled["instructions"]
    printed = capsys.readouterr().out
    assert printed.startswith("Nothing is timed: there is no GPU")
    assert "seconds" not in json.dumps(record)


# --- The epoch ---------------------------------------------------------------------------------------------


@pytest.fixture
def few_images(monkeypatch):
    """Limit the benchmarks to a few hundred images."""
    for module in (accuracy, epoch, epoch_gpu):
        monkeypatch.setattr(module, "dataset", lambda model: epoch._head(load("mnist"), 1300))


class FakeContender:
    def __init__(self, log, who, seconds):
        self.log, self.who, self.seconds = log, who, seconds

    def __call__(self, seed):
        self.log.append((self.who, seed))
        return self.seconds * seed

    def accuracy(self):
        return 0.9


def test_epochs_of_all_contenders_are_timed_in_turn(monkeypatch, few_images, capsys):
    log = []

    def unable():
        raise RuntimeError("no C compiler\nand so on")

    makers = {
        "ours, graph": lambda: FakeContender(log, "ours, graph", 0.5),
        "PyTorch, compiled": unable,
        "PyTorch": lambda: FakeContender(log, "PyTorch", 3.0),
    }
    asked = []
    monkeypatch.setattr(epoch_gpu, "_makers", lambda *arguments: asked.append(arguments) or makers)
    monkeypatch.setattr(records, "_gpu", lambda: {"name": "Some GPU"})
    record = epoch_gpu.bench_epoch(batch_sizes=(64, 256), repeats=3)
    assert [arguments[:2] for arguments in asked] == [("mnist_cnn", 64), ("mnist_cnn", 256)]
    assert json.loads(json.dumps(record)) == record
    assert (record["benchmark"], record["device"]) == ("epoch", "gpu")
    assert record["machine"]["gpu"] == {"name": "Some GPU"}
    assert not torch.backends.cudnn.benchmark
    for result in record["results"]:
        assert result["seconds"] == {"ours, graph": [0.5, 1.0, 1.5], "PyTorch": [3.0, 6.0, 9.0]}
        assert result["medians"] == {"ours, graph": 1.0, "PyTorch": 6.0}
        assert result["times_ours_with_graph"] == {"ours, graph": 1.0, "PyTorch": 6.0}
        assert result["accuracies"] == {"ours, graph": 0.9, "PyTorch": 0.9}
        assert result["unavailable"] == {"PyTorch, compiled": "RuntimeError: no C compiler"}
    # The turn with seed 0 is not among the samples.
    turns = [(who, seed) for seed in range(4) for who in ("ours, graph", "PyTorch")]
    assert log == 2 * turns
    assert "PyTorch, compiled does not work here: RuntimeError: no C compiler" in capsys.readouterr().out


@pytest.mark.parametrize("graph", [True, False])
def test_our_contender_times_the_second_epoch_and_requires_a_graph(monkeypatch, graph):
    calls = []

    def fit(model, data, optimizer, **options):
        calls.append((model, data, options))
        if failing:
            try:
                raise GraphsUnavailable("why")
            except GraphsUnavailable as error:
                options["log"](f"No CUDA graphs here ({error})")
        options["log"]("epoch 1/2: ...")
        return [{"seconds": 5.0, "test_accuracy": 0.5}, {"seconds": 2.0, "test_accuracy": 0.75}]

    monkeypatch.setattr(epoch_gpu, "fit", fit)
    failing, data = False, object()
    ours = epoch_gpu._makers("mnist_cnn", 2, data)["ours, graph" if graph else "ours, launches"]()
    assert ours(seed=7) == 2.0
    assert ours.accuracy() == 0.75
    model, given, options = calls[0]
    assert (model.device, model.batch_size, given) == ("gpu", 2, data)
    assert (options["epochs"], options["seed"], options["graph"]) == (2, 7, graph)
    failing = True
    with pytest.raises(RuntimeError, match=r"No CUDA graphs here \(why\)"):
        ours(seed=8)


def on_cpu(kind, data):
    """Return one of PyTorch's contenders, as far as it works on the CPU."""

    class OnCpu(kind):
        def make_optimizer(self, fused=None, capturable=None, **options):
            return pytorch.TorchTraining.make_optimizer(self, **options)

        def __init__(self):
            pytorch.TorchTraining.__init__(self, mnist_cnn(batch_size=64), data, RECIPE)
            self.graphs = {}

    return OnCpu()


RECIPE = PLAIN | {"batch_size": 64}


def test_captured_steps_are_replayed_with_their_own_indices(monkeypatch):
    data = epoch._head(load("mnist"), 160)
    captured, steps, replays = on_cpu(pytorch.Captured, data), [], []

    class Graph:
        def replay(self):
            # What a GPU would do with the recorded launches.
            fixed = next(fixed for fixed, graph in captured.graphs.values() if graph is self)
            replays.append(fixed.tolist())

    def step(self, indices):
        steps.append(len(indices))

    stream = types.SimpleNamespace(wait_stream=lambda other: None)
    fake = types.SimpleNamespace(
        Stream=lambda: stream,
        current_stream=lambda: stream,
        stream=lambda stream: nullcontext(),
        CUDAGraph=Graph,
        graph=lambda graph: nullcontext(),
    )
    captured.torch = types.SimpleNamespace(cuda=fake, from_numpy=torch.from_numpy)
    monkeypatch.setattr(pytorch.TorchTraining, "step", step)
    order = list(batches(160, 64, np.random.default_rng(0)))
    captured.epoch(order)
    captured.epoch(order)
    # Three to warm up and one to record, for each of the two sizes; all else is replayed.
    assert steps == [64] * 4 + [32] * 4
    assert replays == 2 * [indices.tolist() for indices in order]


@pytest.mark.parametrize("seed", [1, 2])
def test_pytorch_contender_times_the_second_epoch_with_the_same_order(monkeypatch, seed):
    data = epoch._head(load("mnist"), 200)
    moments = iter([0.0, 5.0, 10.0, 12.0])
    monkeypatch.setattr(epoch_gpu.time, "perf_counter", lambda: next(moments))
    theirs = epoch_gpu._Theirs.__new__(epoch_gpu._Theirs)
    theirs.training = on_cpu(pytorch.Eager, data)
    synchronised, orders = [], []
    theirs.training.torch = types.SimpleNamespace(
        cuda=types.SimpleNamespace(synchronize=lambda: synchronised.append(len(orders)))
    )
    theirs.training.epoch = lambda order: orders.append(np.concatenate(list(order)))
    assert theirs(seed) == 2.0
    assert synchronised == [0, 1, 1, 2]
    # As fit orders them.
    generator = np.random.default_rng([seed, 1])
    for order in orders:
        np.testing.assert_array_equal(order, np.concatenate(list(batches(200, 64, generator))))


# --- Plots -------------------------------------------------------------------------------------------------


@pytest.fixture
def synthetic(rng):
    """Return a record of made-up figures, such as bench_ops writes."""
    results = []
    for case in CASES:
        limit = bench_ops.bound(ROOF, case.flops, case.bytes)
        names = [*(case.rungs or ("ours",)), *case.libraries]
        contenders = {}
        for who in names:
            seconds = (case.flops / limit / rng.uniform(0.1, 0.9, 3)).tolist()
            median = float(np.median(seconds))
            contenders[who] = {"runs": 1, "seconds": seconds, "median": median}
            contenders[who] |= bench_ops.rates(case, median, limit)
        results.append(
            {"operation": case.operation, "size": case.size, "shape": case.text, "measure": case.measure}
            | {"flops": case.flops, "bytes": case.bytes, "bound": limit, "contenders": contenders}
        )
    results[0]["contenders"]["tiled"] = {"wrong": "off by up to 3, and 0.1 is allowed"}
    results[1]["contenders"]["constant"] = {"refused": "too many filters"}
    machine = {"gpu": {"name": "Made-up GPU"}}
    return {"benchmark": "ops", "date": "2001-02-03", "machine": machine, "roof": ROOF, "results": results}


@pytest.fixture
def synthetic_epochs():
    """Return a record of made-up epochs."""
    seconds = {"ours, graph": [1.0, 3.0, 2.0], "PyTorch": [4.0, 4.0, 5.0]}
    medians = {"ours, graph": 2.0, "PyTorch": 4.0}
    results = [
        {"batch_size": 64, "seconds": {"PyTorch": [4.0]}, "medians": {"PyTorch": 4.0}},
        {"batch_size": 256, "seconds": seconds, "medians": medians},
    ]
    machine = {"gpu": {"name": "Made-up GPU"}}
    record = {"benchmark": "epoch", "date": "2001-02-03", "machine": machine, "model": "mnist_cnn"}
    return record | {"results": results}


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_ladder_has_a_bar_for_each_rung_and_lines_for_pytorch(synthetic):
    figure = bench_plots.plot_ladder(synthetic, "conv2d_forward")
    assert figure.get_suptitle() == "conv2d_forward on Made-up GPU, 2001-02-03"
    results = [result for result in synthetic["results"] if result["operation"] == "conv2d_forward"]
    assert len(figure.axes) == len(results) == 4
    for axes, result in zip(figure.axes, results, strict=True):
        values = [result["contenders"][rung].get("GFLOP/s", 0) for rung in TINY[0].rungs]
        assert [bar.get_width() for bar in axes.patches] == values
        theirs = [result["contenders"][who]["GFLOP/s"] for who in TINY[0].libraries]
        assert [line.get_xdata()[0] for line in axes.lines] == theirs
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == list(TINY[0].rungs)
    assert "wrong result" in texts(figure.axes[0])
    assert "not for this shape" in texts(figure.axes[1])
    pooling = bench_plots.plot_ladder(synthetic, "max_pool2d_forward")
    assert pooling.axes[0].get_xlabel().startswith("GB/s")


def test_roofline_has_the_roof_and_a_point_for_each_rung(synthetic):
    axes = bench_plots.plot_roofline(synthetic).axes[0]
    roof, *points = axes.lines
    np.testing.assert_allclose(roof.get_ydata()[1:], ROOF["flops_per_second"] / 1e9)
    np.testing.assert_allclose(roof.get_ydata()[0], roof.get_xdata()[0] * ROOF["bytes_per_second"] / 1e9)
    expected = [
        (result["flops"] / result["bytes"], figures["GFLOP/s"])
        for result in synthetic["results"]
        for who, figures in result["contenders"].items()
        if "median" in figures and not who.startswith("PyTorch")
    ]
    received = [(*point.get_xdata(), *point.get_ydata()) for point in points]
    np.testing.assert_allclose(received, expected)
    filled = sum(point.get_markerfacecolor() != "none" for point in points)
    assert filled == len(synthetic["results"])
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_epochs_have_a_bar_at_the_median_and_a_dot_for_each_sample(synthetic_epochs):
    figure = bench_plots.plot_epochs(synthetic_epochs)
    assert figure.get_suptitle() == "An epoch of mnist_cnn on Made-up GPU, 2001-02-03"
    missing, whole = figure.axes
    assert [bar.get_width() for bar in whole.patches] == [2.0, 4.0]
    assert [list(line.get_xdata()) for line in whole.lines] == [[1.0, 3.0, 2.0], [4.0, 4.0, 5.0]]
    assert [bar.get_width() for bar in missing.patches] == [4.0]
    assert texts(missing)[0] == "not on this machine"


def test_the_picture_names_processor_time_and_the_share_of_images(synthetic_epochs):
    record = synthetic_epochs | {"images": 2000, "results": synthetic_epochs["results"][:1]}
    (result,) = record["results"]
    who = next(iter(result["seconds"]))
    result |= {"processor_seconds": {who: [0.5, 0.25]}, "processor_medians": {who: 0.375}}
    figure = bench_plots.plot_epochs(record)
    assert figure.get_suptitle().startswith("2,000 images of mnist_cnn on ")
    (axes,) = figure.axes
    assert axes.patches[0].get_width() == 0.375
    assert axes.get_xlabel() == "seconds of the processor"


def test_pictures_are_named_after_their_records(synthetic, synthetic_epochs, tmp_path):
    operations = ["matmul", "avg_pool2d_forward"]
    synthetic["results"] = [result for result in synthetic["results"] if result["operation"] in operations]
    (tmp_path / "some.json").write_text(json.dumps(synthetic))
    (tmp_path / "other.json").write_text(json.dumps(synthetic_epochs))
    out = tmp_path / "new" / "plots"
    written = bench_plots.plot_records([tmp_path / "some.json", tmp_path / "other.json"], out)
    names = [f"some-{name}.png" for name in [*operations, "roofline"]] + ["other.png"]
    assert written == [out / name for name in names]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_pictures_are_not_left_between_the_files_of_a_clone(synthetic_epochs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("epoch.json").write_text(json.dumps(synthetic_epochs))
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", "plot", "epoch.json"])
    assert not caught.value.code
    assert {path.name for path in tmp_path.iterdir()} == {"epoch.json", "runs"}
    assert Path("runs/plots/epoch.png").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"benchmark": "ops-static"}',
            "what the compiler made of the kernels, and no times; take them on",
        ),
        ('{"benchmark": "accuracy"}', "pictures of the records ops and epoch, not of accuracy"),
        ("[1, 2]", "pictures of the records ops and epoch, not of anything else"),
        ("no json", "is no JSON"),
    ],
)
def test_an_invalid_record_raises_before_anything_is_written(
    content, message, synthetic_epochs, tmp_path, capsys
):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(synthetic_epochs))
    bad.write_text(content)
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", "plot", str(good), str(bad), "--out", str(tmp_path / "plots")])
    assert caught.value.code == 1
    err = capsys.readouterr().err
    assert f"{bad}" in err
    assert message in err
    assert not (tmp_path / "plots").exists()


# --- The commands ------------------------------------------------------------------------------------------


@pytest.mark.skipif(device.hardware(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["epoch", "--device", "gpu"], "gpu: there is none to measure"),
        (["accuracy", "--device", "gpu"], "gpu: there is none to measure"),
        (["ops", "--plot", "plots"], "without a GPU nothing is timed, so there is nothing to draw"),
    ],
)
def test_commands_that_need_a_gpu_say_why_there_is_none(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", *arguments])
    captured = capsys.readouterr()
    assert caught.value.code == 2
    assert message in captured.err
    assert device.SELECTION.reason in captured.err
    assert captured.err.count("\n") == 1


def test_the_command_measures_epochs_on_the_chosen_device(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("cnn_numba.cli.shared.choose", lambda wish, timed: wish)
    monkeypatch.setattr(epoch_gpu, "bench_epoch", lambda **options: calls.append(("gpu", options)) or {})
    monkeypatch.setattr(epoch, "bench_epoch", lambda **options: calls.append(("cpu", options)) or {})
    for arguments in (["--device", "gpu"], ["--device", "gpu", "--batch-size", "32"], []):
        with pytest.raises(SystemExit):
            cli.main(["bench", "epoch", *arguments])
    usual = {"model": "mnist_cnn", "repeats": 3}
    assert calls == [("gpu", usual), ("gpu", usual | {"batch_sizes": (32,)}), ("cpu", usual)]


# --- On a GPU ----------------------------------------------------------------------------------------------


@pytest.mark.hardware
def test_ops_on_a_gpu(tmp_path):
    cases = [
        *convolutions("small", 4, 3, 20, 20, 8, 3, 1),
        *products("small", 64, 64, 64),
        *poolings("small", 4, 3, 20, 20),
    ]
    record = bench_ops.bench_ops(cases)
    assert record["machine"]["gpu"]["name"]
    assert record["roof"]["flops_per_second"] > 1e11
    for result in record["results"]:
        for figures in result["contenders"].values():
            assert "wrong" not in figures
            assert "refused" in figures or min(figures["seconds"]) > 0
    assert bench_plots.write(record, tmp_path, "ops")


@pytest.mark.hardware
def test_epochs_on_a_gpu(few_images, tmp_path):
    record = epoch_gpu.bench_epoch(batch_sizes=(64,), repeats=2)
    (result,) = record["results"]
    assert set(result["seconds"]) | set(result["unavailable"]) == set(epoch_gpu.CONTENDERS)
    assert set(result["unavailable"]) <= {"PyTorch, compiled"}
    # 21 steps per epoch, six epochs: far from trained, farther from guessing.
    assert min(result["accuracies"].values()) > 0.7
    assert bench_plots.write(record, tmp_path, "epoch")


@pytest.mark.hardware
def test_accuracy_on_a_gpu(few_images):
    record = accuracy.bench_accuracy(seeds=2, pytorch=True, device="gpu")
    assert record["machine"]["gpu"]["name"]
    assert min(record["means"]["ours"][-1], record["means"]["pytorch"][-1]) > 0.7
