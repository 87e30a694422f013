"""Rungs counted and timed: the table, the picture, and both without counts."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda, float32

from benchmarks.rungs.matmul import matmul_naive, matmul_tiled
from cnn_course.engine.ladders import Ladder, Rung, climb, counted
from cnn_numba import device
from cnn_numba.ops.activation.gpu import relu_forward_naive, relu_forward_vectorized

emulated = pytest.mark.skipif(not device.SELECTION.emulated, reason="counts on the emulated GPU")


@cuda.jit
def neighbours(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i]


@cuda.jit
def strides(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[8 * i]


@cuda.jit
def dynamic_shared(out):
    tile = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    tile[31 - t] = t
    cuda.syncthreads()
    out[t] = tile[t]


def rungs():
    x, out = cuda.to_device(np.arange(1024, dtype=np.float32)), cuda.device_array(128, np.float32)
    return {name: (kernel, 4, 32, (x, out)) for name, kernel in [("a", neighbours), ("b", strides)]}, out


@pytest.fixture
def elsewhere(monkeypatch):
    """Kernels run as usual, and the package believes it has a GPU."""
    monkeypatch.setattr(device, "SELECTION", SimpleNamespace(emulated=False, simulated=False))
    monkeypatch.setattr(device, "hardware", lambda: True)


@emulated
def test_counts_match_the_launch():
    ladder = climb("copies", rungs()[0], ["bytes moved", "least bytes", "barriers"])
    assert ladder.column("bytes moved") == {"a": 1024, "b": 4608}  # 128 read and written; a sector for each
    assert ladder.column("least bytes") == ladder.column("bytes moved")
    assert ladder.rungs[1].counts[0].global_loads.sectors_per_request == 32
    assert [row[:4] for row in ladder.table()[1:]] == [
        ("a", "0.0 MB", "0.0 MB", "0"),
        ("b", "0.0 MB", "0.0 MB", "0"),
    ]
    assert all(rung.seconds > 0 for rung in ladder.rungs)


@emulated
def test_the_table_says_whose_time_it_is():
    ladder = climb("copies & more", rungs()[0])
    assert repr(ladder).startswith("copies & more\n")
    assert "says nothing about a GPU" in repr(ladder)
    assert ladder.table()[0][-1] == "time on this CPU"
    page = ladder._repr_html_()
    assert page.count("<tr>") == 3
    assert "<caption>copies &amp; more</caption>" in page
    assert "says nothing about a GPU" in page


def test_without_counts_there_are_only_times(elsewhere):
    ladder = climb("copies", rungs()[0])
    assert not ladder.has_counts
    assert ladder.column("instructions") == {}
    assert ladder.picture() is None
    assert [len(row) for row in ladder.table()] == [2, 2, 2]
    assert "time on this GPU" in repr(ladder)
    assert "Counts need the emulated GPU" in repr(ladder)


def test_the_launches_compute():
    launches, out = rungs()
    climb("copies", launches)
    np.testing.assert_array_equal(out.copy_to_host(), 8 * np.arange(128))


def test_without_times_there_are_only_counts():
    ladder = climb("copies", rungs()[0], ["bytes moved"], timed=False)
    assert [rung.seconds for rung in ladder.rungs] == [None, None]
    assert "time on" not in repr(ladder)
    assert "says nothing" not in repr(ladder)
    if device.SELECTION.emulated:
        assert ladder.column("bytes moved") == {"a": 1024, "b": 4608}


def test_a_rung_may_have_dynamic_shared_memory():
    out = cuda.device_array(32, np.float32)
    ladder = climb("shared", {"copied": (dynamic_shared, 1, 32, (out,), 128)}, ["deliveries"])
    np.testing.assert_array_equal(out.copy_to_host(), np.arange(32)[::-1])
    if device.SELECTION.emulated:
        assert ladder.column("deliveries") == {"copied": 2}


@emulated
def test_functions_of_the_package_are_rungs():
    x = device.to_device(np.ones(4096, np.float32))
    launchers = {"one": lambda: relu_forward_naive(x), "four": lambda: relu_forward_vectorized(x)}
    ladder = climb("ReLU", launchers, ["requests"])
    assert ladder.column("requests") == {"one": 2 * 4096 // 32, "four": 2 * 4096 // 128}
    fewer, more = ladder.column("instructions")["four"], ladder.column("instructions")["one"]
    assert fewer < more


@emulated
def test_launches_of_a_rung_are_summed_up():
    x = device.to_device(np.ones(1024, np.float32))

    def twice():
        relu_forward_naive(x)
        relu_forward_naive(x)

    ladder = climb("ReLU", {"once": lambda: relu_forward_naive(x), "twice": twice})
    assert ladder.column("launches") == {"once": 1, "twice": 2}
    assert ladder.column("bytes moved") == {"once": 8192, "twice": 2 * 8192}


def test_an_unknown_column_raises():
    with pytest.raises(ValueError, match="no column 'speed'; there are launches, instructions"):
        climb("copies", rungs()[0], ["speed"])


@emulated
def test_a_ladder_of_products_counts_what_notebook_06_predicts():
    """5 bytes for each multiply-add of the naive kernel; a quarter of a byte with tiles of 32 x 32."""
    a = device.to_device(np.ones((64, 32), np.float32))
    b = device.to_device(np.ones((32, 64), np.float32))
    work = {f.__name__: (lambda f=f: f(a, b)) for f in (matmul_naive, matmul_tiled)}
    ladder = climb("64 x 32 by 32 x 64", work)
    products, results = 64 * 64 * 32, 4 * 64 * 64
    assert list(ladder.column("bytes moved").values()) == [5 * products + results, products // 4 + results]
    fused = [rung.value("of them FMA") * rung.value("instructions") for rung in ladder.rungs]
    np.testing.assert_allclose(fused, products // 32)
    assert list(ladder.column("block barriers").values()) == [0, 4 * 2]  # four blocks, a step of two
    np.testing.assert_allclose(
        list(ladder.column("operations/byte").values()),
        [2 * products / moved for moved in ladder.column("bytes moved").values()],
    )
    picture = ladder.picture()
    assert "block barriers: 0, 8." in picture.alt
    assert picture.caption.startswith("64 x 32 by 32 x 64, counted at full size: instructions of warps")


def test_counted_adds_up_the_launches_of_a_kernel():
    x = device.zeros(1024)

    def work():
        for _ in range(3):
            relu_forward_naive(x)
        relu_forward_vectorized(x)

    ladder = counted(work)
    if not device.SELECTION.emulated:
        assert ladder.rungs == []
        assert "Counts need the emulated GPU" in repr(ladder)
        assert "<tr>" not in ladder._repr_html_()
        return
    names = ["relu_forward_naive_kernel", "relu_forward_vectorized_kernel"]
    assert ladder.column("launches") == dict(zip(names, (3, 1), strict=True))
    assert ladder.column("bytes moved") == dict(zip(names, (3 * 8192, 8192), strict=True))
    *_, total, note = repr(ladder).splitlines()
    assert total.split()[:3] == ["in", "all", "4"]
    assert note == "Counted at full size."


def test_a_ladder_without_bytes_has_no_intensity():
    still = SimpleNamespace(flops=0, bytes_moved=0)
    (row,) = Ladder("", [Rung("nothing", (still,))], ["operations/byte"]).table()[1:]
    assert row == ("nothing", "nan")
