# First: this decides what numba.cuda is.
import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda, float32

from gpuless import access_map, explore_access, plot_access

gpuless.select()


@cuda.jit
def shift_kernel(x, out, stride):
    tile = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t * stride]
    cuda.syncthreads()
    out[t] = tile[(t + 1) % cuda.blockDim.x]


@pytest.fixture
def explorer():
    launches = []

    def launch(threads, stride):
        launches.append((threads, stride))
        x = cuda.to_device(np.arange(96, dtype=np.float32))
        return access_map(shift_kernel)[1, threads](x, cuda.device_array(32, np.float32), stride)

    explorer = explore_access(launch, "tile", threads=[8, 32], stride=[1, 2, 3])
    explorer.launches = launches
    return explorer


def test_sliders_run_other_launches_once_each(explorer):
    assert explorer.launches == [(8, 1)]
    first = explorer._picture.value
    explorer.sliders["stride"].value = 3
    explorer.sliders["threads"].value = 32
    assert explorer.launches == [(8, 1), (8, 3), (32, 3)]
    assert explorer.access.reads("tile").sum() == 32
    assert explorer._picture.value != first
    explorer.sliders["threads"].value = 8
    explorer.sliders["stride"].value = 1
    assert explorer.launches == [(8, 1), (8, 3), (32, 3)]
    assert explorer._picture.value == first


def test_intervals_are_stepped_through(explorer):
    assert list(explorer.interval.options) == ["all", 0, 1]
    pictures = []
    for interval in ("all", 0, 1):
        explorer.interval.value = interval
        pictures.append(explorer._picture.value)
    assert len(set(pictures)) == 3
    explorer.sliders["stride"].value = 2
    assert explorer.interval.value == 1


def test_a_barrier_parts_writes_from_reads(explorer):
    def somebody(interval):
        axes = plot_access(explorer.access, "tile", interval=interval).axes[:2]
        return [not any(text.get_text() == "nobody" for text in ax.texts) for ax in axes]

    assert somebody(None) == [True, True]
    assert somebody(0) == [False, True]
    assert somebody(1) == [True, False]


def test_colours_can_tell_blocks_apart(explorer):
    before = explorer._picture.value
    explorer.by.value = "block"
    assert explorer._picture.value != before


def test_without_a_widget_there_is_a_picture(explorer):
    bundle = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == "Who reads and writes tile: threads = 8, stride = 1"
    assert bundle["text/html"].startswith('<img alt="Who reads and writes tile')
    assert "base64,iVBOR" in bundle["text/html"]


def test_a_choice_without_values_raises():
    with pytest.raises(ValueError, match="choice stride has no values"):
        explore_access(lambda stride: None, "x", stride=[])
