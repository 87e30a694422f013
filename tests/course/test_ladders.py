"""Rungs counted and timed: the table, and what it says where nothing can be counted."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda

from cnn_numba import device
from cnn_numba.course import counting
from cnn_numba.ops.pool import gpu as pool

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


def rungs():
    x, out = cuda.to_device(np.arange(1024, dtype=np.float32)), cuda.device_array(128, np.float32)
    return {name: (kernel, 4, 32, (x, out)) for name, kernel in [("a", neighbours), ("b", strides)]}, out


@emulated
def test_counts_are_those_of_the_launch():
    table = counting.tally(rungs()[0], ["global bytes", "least bytes", "barriers"])
    assert [row[:4] for row in table.rows()] == [
        ("a", "1,024", "1,024", "0"),  # 128 numbers read and written
        ("b", "4,608", "4,608", "0"),  # a sector for each that is read
    ]
    assert table.counts["b"].global_loads.sectors_per_request == 32


@emulated
def test_the_table_says_whose_time_it_is():
    table = counting.tally(rungs()[0])
    assert "says nothing about a GPU" in repr(table)
    assert "time on this CPU" in repr(table)
    assert table._repr_html_().count("<tr>") == 3


def test_where_nothing_is_counted_there_are_times(monkeypatch):
    monkeypatch.setattr(device, "SELECTION", SimpleNamespace(emulated=False))
    monkeypatch.setattr(device, "hardware", lambda: True)
    table = counting.tally(rungs()[0])
    assert table.counts == {}
    assert [len(row) for row in table.rows()] == [2, 2]
    assert "time on the GPU" in repr(table)
    assert "counted on the emulated GPU alone" in repr(table)


def test_the_launches_compute():
    launches, out = rungs()
    counting.tally(launches)
    np.testing.assert_array_equal(out.copy_to_host(), 8 * np.arange(128))


def test_functions_of_the_package_are_rungs():
    x = cuda.to_device(np.ones((2, 3, 4, 6), np.float32))
    table = counting.tally({"pooled": lambda: pool.max_pool2d_forward(x, 2)}, ["global bytes"])
    assert table.names == ["pooled"]
    if device.SELECTION.emulated:
        (row,) = table.rows()
        assert int(row[1].replace(",", "")) >= x.nbytes


def test_a_function_that_launches_twice_is_refused():
    x = cuda.to_device(np.ones((2, 3, 4, 6), np.float32))

    def twice():
        pool.max_pool2d_forward(x, 2)
        pool.max_pool2d_forward(x, 2)

    with pytest.raises(ValueError, match="this function makes 2"):
        counting.tally({"pooled twice": twice})


def test_a_column_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no column 'speed'; there are instructions"):
        counting.tally(rungs()[0], ["speed"])
