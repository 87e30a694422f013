import html.parser
import math

# First: this decides what numba.cuda is.
import gpuless

# isort: split
import numpy as np
import pytest
from fresh_python import python
from numba import complex128, cuda, float32, float64, int8, int32
from simulator_kernels import CASES

from gpuless import access_map, plot_access, record
from gpuless.access import READ
from gpuless.access.trace import distinct

gpuless.select()
pytestmark = pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPerformanceWarning")


def zeros(*shape, dtype=np.float32):
    return cuda.to_device(np.zeros(shape, dtype))


@cuda.jit
def transpose_kernel(x, y):
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    y[tx, ty] = x[ty, tx]


@cuda.jit
def strided_kernel(x, y, stride, offset):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i * stride + offset]


@cuda.jit
def increment_kernel(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


def strided(count, stride, offset, dtype=np.float32, threads=32):
    x, y = zeros(count * stride + offset + 1, dtype=dtype), zeros(count, dtype=dtype)
    return access_map(strided_kernel)[-(-count // threads), threads](x, y, stride, offset)


# --- Global memory -----------------------------------------------------------------------------------------


def test_rows_and_columns_of_a_matrix():
    # A row of 32 float32 is 128 bytes: 4 sectors. A column lies in 32 rows: 32 sectors, 4 bytes used of each.
    access = access_map(transpose_kernel)[1, (32, 32)](zeros(32, 32), zeros(32, 32))
    rows, columns = access.total("x"), access.total("y")
    assert (rows.requests, rows.sectors, rows.sectors_per_request, rows.efficiency) == (32, 128, 4, 1)
    assert (columns.requests, columns.sectors, columns.sectors_per_request) == (32, 1024, 32)
    assert columns.efficiency == 1 / 8
    assert (rows.minimum, rows.times_minimum) == (4096, 1)
    assert (columns.minimum, columns.times_minimum) == (4096, 8)
    assert (access.bytes_moved, access.minimum) == ((128 + 1024) * 32, 8192)
    assert access.efficiency == 8192 / (1152 * 32)
    assert set(access.requests.sectors[access.requests.kind == 1]) == {32}


@pytest.mark.parametrize(
    ("stride", "offset", "dtype", "sectors", "efficiency"),
    [
        (1, 0, np.float32, 4, 1),
        (2, 0, np.float32, 8, 1 / 2),
        (8, 0, np.float32, 32, 1 / 8),
        (100, 0, np.float32, 32, 1 / 8),
        # Bytes 4 to 131: one sector more.
        (1, 1, np.float32, 5, 128 / 160),
        (1, 8, np.float32, 4, 1),
        (1, 0, np.float64, 8, 1),
        (2, 0, np.float64, 16, 1 / 2),
        (1, 1, np.float64, 9, 256 / 288),
        (1, 0, np.int8, 1, 1),
        (0, 3, np.float32, 1, 4 / 32),
    ],
)
def test_strides_and_offsets(stride, offset, dtype, sectors, efficiency):
    read = strided(32, stride, offset, dtype).total("x")
    assert (read.requests, read.sectors, read.most_sectors) == (1, sectors, sectors)
    assert read.efficiency == efficiency


def test_partial_warps():
    # 70 threads in blocks of 48: warps of 32 and 16, then 22 and none. From element 48 on: byte 192, aligned.
    access = strided(70, 1, 0, threads=48)
    requests = access.requests
    written = requests.kind == 1
    assert requests.block[written].tolist() == [0, 0, 1]
    assert requests.warp[written].tolist() == [0, 1, 0]
    assert requests.lanes[written].tolist() == [32, 16, 22]
    assert requests.bytes_asked[written].tolist() == [128, 64, 88]
    assert requests.sectors[written].tolist() == [4, 2, 3]
    assert access.total("y").minimum == 280


def test_an_increment_is_a_read_and_a_write():
    access = access_map(increment_kernel)[1, 32](zeros(32))
    assert [(each.access, each.sectors) for each in access.arrays] == [("read", 4), ("write", 4)]
    assert (access.bytes_moved, access.minimum) == (256, 256)
    np.testing.assert_array_equal(access.reads("x"), np.ones(32))
    np.testing.assert_array_equal(access.writes("x"), np.ones(32))
    assert access.total("x").access == "read and write"
    assert access.total("x", "write").sectors == 4
    assert access.total("x", "atomic").sectors == 0
    assert math.isnan(access.total("x", "atomic").efficiency)


@cuda.jit
def atomic_kernel(x):
    cuda.atomic.add(x, cuda.threadIdx.x % 2, 1)


def test_an_atomic_moves_its_sectors_once():
    access = access_map(atomic_kernel)[1, 32](zeros(4, dtype=np.int32))
    (traffic,) = access.arrays
    assert (traffic.access, traffic.requests, traffic.sectors, traffic.bytes_asked) == ("atomic", 1, 1, 8)
    assert access.reads("x").tolist() == access.writes("x").tolist() == [16, 16, 0, 0]


@cuda.jit
def nchw_kernel(x, y):
    j = cuda.threadIdx.x
    acc = float32(0)
    for c in range(x.shape[1]):
        for a in range(3):
            for b in range(3):
                acc += x[0, c, a, j + b]
    y[j] = acc


@cuda.jit
def nhwc_kernel(x, y):
    j = cuda.threadIdx.x
    acc = float32(0)
    for c in range(x.shape[3]):
        for a in range(3):
            for b in range(3):
                acc += x[0, a, j + b, c]
    y[j] = acc


def test_convolution_of_channels_first_and_last():
    # One warp makes 32 pixels of a 3 x 3 convolution of 8 channels; rows are 40 wide, so that they begin with
    # a sector. NCHW: 32 neighbours, 4 sectors at b = 0, 5 at b = 1 and 2: 8 * 3 * 14 sectors.
    first = access_map(nchw_kernel)[1, 32](zeros(1, 8, 3, 40), zeros(32))
    assert first.total("x").requests == 72
    assert first.total("x").sectors == 8 * 3 * (4 + 5 + 5) == 336
    # NHWC: a pixel's 8 channels are one sector, so each of the 72 requests moves 32.
    last = access_map(nhwc_kernel)[1, 32](zeros(1, 3, 40, 8), zeros(32))
    assert last.total("x").requests == 72
    assert last.total("x").sectors == 72 * 32
    assert last.total("x").efficiency == 1 / 8
    # Both read the same 8 * 3 * 34 elements, the inner ones of a row three times.
    for access in first, last:
        assert access.total("x").minimum == 8 * 3 * 34 * 4
    expected = np.array([1, 2] + [3] * 30 + [2, 1] + [0] * 6)
    np.testing.assert_array_equal(first.reads("x"), np.broadcast_to(expected, (1, 8, 3, 40)))
    np.testing.assert_array_equal(last.reads("x"), np.broadcast_to(expected[:, None], (1, 3, 40, 8)))


@cuda.jit
def loop_kernel(x, y):
    for i in range(cuda.threadIdx.x % 3):
        y[cuda.threadIdx.x] += x[i]


def test_lanes_that_leave_a_loop_early():
    # 21 of 32 lanes have a number that is not a multiple of 3, and 10 leave the remainder 2.
    access = access_map(loop_kernel)[1, 32](zeros(3), zeros(32))
    read = access.requests.array == access.number("x")
    assert access.requests.lanes[read].tolist() == [21, 10]
    assert access.requests.sectors[read].tolist() == [1, 1]


def test_transposed_arrays_and_views():
    matrix = cuda.to_device(np.zeros((32, 32), np.float32))
    access = access_map(transpose_kernel)[1, (32, 32)](matrix.T, zeros(32, 32))
    # Numba's transpose is a copy.
    assert access.total("x").sectors_per_request == 4
    arena = zeros(33)
    access = access_map(increment_kernel)[1, 32](arena[1:])
    assert access.total("x", "read").sectors == 5


# --- Shared memory -----------------------------------------------------------------------------------------


@cuda.jit
def tile_kernel(x, y):
    tile = cuda.shared.array((32, 32), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    tile[ty, tx] = x[ty, tx]
    cuda.syncthreads()
    y[ty, tx] = tile[tx, ty]


@cuda.jit
def padded_kernel(x, y):
    tile = cuda.shared.array((32, 33), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    tile[ty, tx] = x[ty, tx]
    cuda.syncthreads()
    y[ty, tx] = tile[tx, ty]


@pytest.mark.parametrize(("kernel", "degree"), [(tile_kernel, 32), (padded_kernel, 1)])
def test_a_tile_with_and_without_padding(kernel, degree):
    access = access_map(kernel)[1, (32, 32)](zeros(32, 32), zeros(32, 32))
    read, write = access.total("tile", "read"), access.total("tile", "write")
    assert (read.requests, read.degree, read.wavefronts) == (32, degree, 32 * degree)
    assert (write.requests, write.degree, write.wavefronts) == (32, 1, 32)
    assert access.degree == degree
    assert access.total("x").sectors_per_request == access.total("y").sectors_per_request == 4
    assert read.sectors == 0


def shared_kernel(kind, stride, modulus=1024):
    @cuda.jit
    def kernel(y):
        s = cuda.shared.array(1024, kind)
        t = cuda.threadIdx.x
        s[t * stride % modulus] = 0
        cuda.syncthreads()
        y[t] = s[t * stride % modulus].real

    return kernel


@pytest.mark.parametrize(
    ("kind", "stride", "degree", "wavefronts"),
    [
        (float32, 1, 1, 1),
        (float32, 2, 2, 2),
        (float32, 3, 1, 1),
        (float32, 8, 8, 8),
        (float32, 32, 32, 32),
        (float32, 0, 1, 1),
        # Half a warp of 8-byte elements fills the 32 banks once; with stride 2, twice.
        (float64, 1, 1, 2),
        (float64, 2, 2, 4),
        (float64, 0, 1, 2),
        (complex128, 1, 1, 4),
        # Four bytes to a word.
        (int8, 1, 1, 1),
        (int8, 128, 8, 8),
    ],
)
def test_bank_conflicts(kind, stride, degree, wavefronts):
    modulus = 1024
    access = access_map(shared_kernel(kind, stride, modulus))[1, 32](zeros(32))
    read = access.total("s", "read")
    assert (read.degree, read.wavefronts) == (degree, wavefronts)


def test_lanes_with_the_same_word_are_served_together():
    # Words 0 to 7, four lanes each.
    access = access_map(shared_kernel(float32, 1, 8))[1, 32](zeros(32))
    assert access.degree == 1
    assert access.reads("s")[:9].tolist() == [4] * 8 + [0]


@cuda.jit
def histogram_kernel(x):
    bins = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    bins[t] = 0
    bins[t + 32] = 0
    cuda.syncthreads()
    cuda.atomic.add(bins, t % 4, 1)
    cuda.syncthreads()
    x[t] = bins[t]


def test_atomics_on_one_word_wait_for_each_other():
    access = access_map(histogram_kernel)[1, 32](zeros(32, dtype=np.int32))
    # Four words in four banks, eight lanes each: no bank conflict.
    atomic = access.total("bins", "atomic")
    assert (atomic.degree, atomic.serialised, atomic.wavefronts) == (1, 8, 8)
    assert access.total("bins", "read").serialised == 0
    assert access.requests.serialised.tolist() == [0, 0, 8, 0, 0]
    text = str(access)
    assert "no bank conflicts; atomics serialised, up to 8 lanes at one word" in text
    assert "none, 8 lanes serialised" in text


@cuda.jit
def atomics_in_one_bank_kernel(x):
    bins = cuda.shared.array(1024, int32)
    t = cuda.threadIdx.x
    for k in range(32):
        bins[32 * t + k] = 0
    cuda.syncthreads()
    cuda.atomic.add(bins, 32 * (t // 2), 1)
    x[t] = bins[t]


def test_atomics_on_different_words_of_a_bank_are_a_conflict():
    access = access_map(atomics_in_one_bank_kernel)[1, 32](zeros(32, dtype=np.int32))
    atomic = access.total("bins", "atomic")
    assert (atomic.degree, atomic.serialised, atomic.wavefronts) == (16, 2, 32)
    assert "16-way, 2 lanes serialised" in str(access)


def test_single_requests_are_available():
    access = access_map(tile_kernel)[1, (32, 32)](zeros(32, 32), zeros(32, 32))
    requests = access.requests
    column = (requests.array == access.number("tile")) & (requests.kind == READ)
    assert requests.degree[column].tolist() == [32] * 32
    assert requests.warp[column].tolist() == list(range(32))
    assert {access.trace.sites[site].expression for site in requests.site[column]} == {"tile[tx, ty]"}


def test_a_block_can_be_chosen():
    access = access_map(histogram_kernel)[(3, 2), 32](zeros(32, dtype=np.int32))
    assert access.reads("bins")[:5].tolist() == [54, 54, 54, 54, 6]
    assert access.reads("bins", block=4)[:5].tolist() == [9, 9, 9, 9, 1]
    np.testing.assert_array_equal(access.writes("bins", block=(1, 1)), access.writes("bins", block=4))
    with pytest.raises(ValueError, match=r"block 6 is not in the grid \(3, 2, 1\)"):
        access.reads("bins", block=6)
    with pytest.raises(ValueError, match=r"block \(3, 0\) is not in the grid"):
        access.reads("bins", block=(3, 0))


@cuda.jit
def scattered_kernel(x, indices, y):
    s = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    for k in range(indices.shape[1]):
        s[indices[i, k] % 256] = x[indices[i, k]]
    y[i] = s[t]


def test_scattered_accesses_are_counted_as_by_hand(rng):
    indices = rng.integers(0, 500, (100, 3))
    indices[rng.random((100, 3)) < 0.3] = 7
    access = access_map(scattered_kernel)[2, 50](zeros(500), cuda.to_device(indices), zeros(100))
    sectors = asked = wavefronts = degree = 0
    for block in range(2):
        for warp in (slice(0, 32), slice(32, 50)):
            for wanted in indices[50 * block : 50 * block + 50][warp].T.tolist():
                sectors += len({index * 4 // 32 for index in wanted})
                asked += 4 * len(set(wanted))
                words = {index % 256 for index in wanted}
                worst = max(sum(word % 32 == bank for word in words) for bank in range(32))
                wavefronts, degree = wavefronts + worst, max(degree, worst)
    x, s = access.total("x"), access.total("s", "write")
    assert (x.requests, x.sectors, x.bytes_asked) == (12, sectors, asked)
    assert (s.requests, s.wavefronts, s.degree) == (12, wavefronts, degree)
    np.testing.assert_array_equal(access.reads("x"), np.bincount(indices.ravel(), minlength=500))
    assert x.minimum == 4 * len(np.unique(indices))


# --- What is said about it ---------------------------------------------------------------------------------


def test_lines_match_the_source():
    access = access_map(tile_kernel)[1, (32, 32)](zeros(32, 32), zeros(32, 32))
    said = [(each.site.expression, each.access) for each in access.lines]
    assert said == [
        ("x[ty, tx]", "read"),
        ("tile[ty, tx]", "write"),
        ("tile[tx, ty]", "read"),
        ("y[ty, tx]", "write"),
    ]
    assert sum(each.sectors for each in access.lines) == access.sectors


def test_the_report_is_readable():
    access = access_map(tile_kernel)[1, (32, 32)](zeros(32, 32), zeros(32, 32))
    text = str(access)
    assert text.startswith("tile_kernel[1, (32, 32)]: 8192 B moved, 1.0 times the minimum")
    assert "bank conflicts up to 32-way" in text
    assert max(map(len, text.split("\n"))) <= 120
    opened = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attributes: opened.append(tag)
    parser.handle_endtag = lambda tag: opened.reverse() or opened.remove(tag) or opened.reverse()
    page = access._repr_html_()
    parser.feed(page)
    assert not opened
    # The page's own colours, in a light and in a dark theme.
    assert "color:" not in page.replace("currentColor", "")
    assert "background" not in page


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kernel_has_a_map(case):
    arguments = [
        cuda.to_device(value) if isinstance(value, np.ndarray) else value
        for value in case.arguments(np.random.default_rng(0))
    ]
    access = access_map(case.kernel)[case.grid, case.block, 0, case.dynamic](*arguments)
    assert case.kernel.__name__ in str(access)
    counted = [info.space in ("global", "shared") for info in access.trace.arrays]
    rows = [access.trace.array == i for i in np.flatnonzero(counted)]
    assert access.requests.lanes.sum() == np.sum(rows)
    assert ((access.requests.lanes >= 1) & (access.requests.lanes <= 32)).all()
    assert (
        access.requests.bytes_asked <= np.where(access.requests.sectors, access.requests.sectors * 32, 512)
    ).all()


def test_a_trace_is_accepted():
    trace = record(increment_kernel)[2, 32](zeros(40))
    assert access_map(trace).total("x").sectors == 10
    assert access_map(trace).trace is trace


@cuda.jit
def idle_kernel(x):
    if cuda.threadIdx.x > 100:
        x[0] = 1


@pytest.mark.needs("matplotlib")
def test_a_kernel_that_touches_nothing():
    access = access_map(idle_kernel)[1, 32](zeros(3, 2))
    assert "no traffic" in str(access)
    assert len(access.requests) == access.sectors == access.degree == access.minimum == 0
    assert math.isnan(access.efficiency)
    assert access.reads("x").shape == (3, 2)
    plot_access(access, "x")


@pytest.mark.needs("matplotlib")
def test_errors_name_the_wrong_argument():
    access = access_map(increment_kernel)[1, 32](zeros(32))
    with pytest.raises(ValueError, match="no array 'z', only 'x'"):
        access.total("z")
    with pytest.raises(ValueError, match="got 'fetch'"):
        access.total("x", "fetch")
    with pytest.raises(ValueError, match="got 'lane'"):
        plot_access(access, "x", by="lane")


# --- The figure --------------------------------------------------------------------------------------------


@pytest.mark.exhaustive_unless(
    lambda shape, by: by == "thread" or shape in ((70,), (5, 3), (2, 3, 4)),
    "by threads all shapes; the other two by one shape of each number of axes",
)
@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("by", ["thread", "warp", "block"])
@pytest.mark.parametrize("shape", [(1,), (7,), (70,), (5, 3), (2, 3, 4), (4, 1, 1), (80, 90)])
def test_any_shape_is_drawn(shape, by):
    x = cuda.to_device(np.zeros(shape, np.float32))

    @cuda.jit
    def kernel(x):
        flat = x.reshape(x.size)
        i = cuda.grid(1)
        if i < flat.size:
            flat[i] += flat[0]

    figure = plot_access(access_map(kernel)[-(-x.size // 64), 64](x), "x", by=by)
    titles = [ax.get_title() for ax in figure.axes[:2]]
    assert titles == ["read by", "written by"]
    assert ("drawn" in figure.get_suptitle()) == (len(shape) > 2 or shape == (70,))
    figure.canvas.draw()


@pytest.mark.needs("matplotlib")
def test_colours_show_the_reader_and_numbers_the_count():
    access = access_map(nchw_kernel)[1, 32](zeros(1, 1, 3, 40), zeros(32))
    read, written = plot_access(access, "x", by="warp").axes[:2]
    assert [text.get_text() for text in written.texts] == ["nobody"]
    assert [text.get_text() for text in read.texts[:4]] == ["1", "2", "3", "3"]
    image = read.images[0].get_array()
    assert image.shape == (3, 40, 3)
    # Read once is paler than read three times; nobody reads the last six columns.
    assert image[0, 0].sum() > image[0, 5].sum()
    assert (image[:, 34:] == image[0, 39]).all()


@pytest.mark.needs("matplotlib")
def test_a_block_of_the_figure():
    access = access_map(increment_kernel)[2, 32](zeros(64))
    image = plot_access(access, "x", block=1, by="block").axes[1].images[0].get_array()
    assert len(np.unique(image[0], axis=0)) == len(np.unique(image[1], axis=0)) == 1
    assert not np.array_equal(image[0], image[1])


def test_the_simulator_does_without_matplotlib():
    assert python("import sys, gpuless; print('matplotlib' in sys.modules)").strip() == "False"


@pytest.mark.parametrize("scale", [1, 2**40])
def test_distinct_rows_match_numpy(rng, scale):
    columns = rng.integers(0, 4, (3, 200)) * [[1], [scale], [scale]]
    columns[1] = np.sort(columns[1])
    ours = distinct(*columns)
    rows, first, which, counts = np.unique(
        columns, axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    np.testing.assert_array_equal(ours.columns, rows)
    np.testing.assert_array_equal(ours.first, first)
    np.testing.assert_array_equal(ours.which, which.ravel())
    np.testing.assert_array_equal(ours.counts, counts)


def test_nothing_has_no_distinct_rows():
    nothing = np.zeros(0, np.int32)
    assert [len(part) for part in distinct(nothing, nothing)] == [2, 0, 0, 0]
