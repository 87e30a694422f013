"""`gpuless.profiling`: requests to the GPU, their start times, and launches that were modelled before."""

import json
from itertools import pairwise
from types import SimpleNamespace

import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda, float32

from gpuless.emulator.driver import graphs
from gpuless.profile import costs, watched
from gpuless.profile.dependence import dependence_of
from gpuless.profile.devices import DEVICES, device
from gpuless.profile.schedule import HIGH, LOW, Asked, Lane, schedule, tracks

if not gpuless.select().emulated:
    pytest.skip("runs kernels on the emulated GPU", allow_module_level=True)
pytest.importorskip("scipy", reason="solves linear programs")

N = 1 << 14


@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= float32(2)


@cuda.jit
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor


@cuda.jit
def halve_large(x, limit):
    i = cuda.grid(1)
    if i < x.size:
        while x[i] > limit:
            x[i] *= float32(0.5)


@cuda.jit
def take(x, order, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[order[i]]


@cuda.jit
def reverse_blocks(x):
    tile = cuda.shared.array(128, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i]
    cuda.syncthreads()
    x[i] = tile[127 - t]


@cuda.jit
def jump(x, y):
    tile = cuda.shared.array(128, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i]
    cuda.syncthreads()
    y[i] = x[int(tile[t ^ 1])]


def ones(n=N):
    return cuda.to_device(np.ones(n, np.float32))


def kernels(timeline):
    return [event for event in timeline.events if event.kind == "kernel"]


# --- What is seen -------------------------------------------------------------------------------------------


def test_launches_and_copies_are_recorded_and_executed():
    with gpuless.profiling("T4") as timeline:
        x = ones()
        double[N // 128, 128](x)
        scale[N // 128, 128](x, 3)
        found = x.copy_to_host()
    np.testing.assert_array_equal(found, np.full(N, 6, np.float32))
    on_gpu = [(event.kind, event.name) for event in timeline.events if event.stream != "host"]
    copies = [("copy", "host to device"), ("copy", "device to host")]
    assert on_gpu == [copies[0], ("kernel", "double"), ("kernel", "scale"), copies[1]]
    double_event, _ = kernels(timeline)
    assert double_event.report.grid == (N // 128, 1, 1)
    assert double_event.duration == double_event.report.microseconds - costs.STREAM_GAP
    assert [row.size for row in timeline.rows("copy")] == [4 * N, 4 * N]
    begins = [event.begin for event in timeline.events]
    assert begins == sorted(begins)
    assert max(event.end for event in timeline.events) == timeline.microseconds
    assert 0 < timeline.low < timeline.microseconds < timeline.high
    assert "depends on data" not in " ".join(timeline.unsure)


def test_a_nested_profile_is_not_part_of_it():
    x = ones()
    with gpuless.profiling("T4") as timeline:
        gpuless.profile(double[N // 128, 128], "T4")(x)
    assert timeline.events == []
    assert str(timeline) == "T4: no launches and no copies"


def test_each_gpu_has_a_timeline():
    x = ones()
    with gpuless.profiling(["T4", "A100"]) as found:
        double[N // 128, 128](x)
    assert [timeline.device.name for timeline in found] == ["T4", "A100 SXM"]
    assert [kernels(timeline)[0].report.device for timeline in found] == [each.device for each in found]


def test_a_graph_is_one_launch_with_smaller_gaps():
    x, stream = ones(), cuda.stream()
    double[N // 128, 128, stream](x)
    from cuda.core import Stream

    builder = Stream.from_handle(int(stream)).create_graph_builder()
    with gpuless.profiling("A100") as captured:
        builder.begin_building()
        for _ in range(20):
            double[N // 128, 128, builder](x)
        graph = builder.end_building().complete()
    assert not kernels(captured)
    with gpuless.profiling("A100") as replayed:
        graph.launch(Stream.from_handle(int(stream)))
        stream.synchronize()
    with gpuless.profiling("A100") as launched:
        for _ in range(20):
            double[N // 128, 128, stream](x)
        stream.synchronize()
    np.testing.assert_array_equal(x.copy_to_host(), np.full(N, 2.0**41, np.float32))
    assert len(kernels(replayed)) == len(kernels(launched)) == 20
    assert all(event.in_graph for event in kernels(replayed))
    assert replayed.gaps.graphs == pytest.approx(19 * costs.GRAPH_GAP)
    # A kernel of a microsecond, and ten for a launch: the GPU waits nearly all the time.
    assert launched.host_bound > 0.7
    assert launched.gaps.host > 10 * replayed.gaps.host
    assert launched.microseconds > 20 * costs.numba_launch([7])
    assert replayed.microseconds < launched.microseconds / 3


def test_streams_overlap_and_events_order_them():
    first, second, x, y = cuda.stream(), cuda.stream(), ones(), ones(1 << 22)
    event = cuda.event()
    with gpuless.profiling("T4") as apart:
        double[(1 << 22) // 128, 128, first](y)
        double[1, 128, second](x[:128])
    with gpuless.profiling("T4") as ordered:
        double[(1 << 22) // 128, 128, first](y)
        event.record(first)
        event.wait(second)
        double[1, 128, second](x[:128])
    for found, overlap in ((apart, False), (ordered, False)):
        large, small = kernels(found)
        assert large.stream == "stream 1"
        assert small.stream == "stream 2"
        assert (small.begin < large.end) == overlap  # the large one has all SMs
    assert kernels(apart)[1].begin < kernels(ordered)[1].begin + costs.CALL


def test_pinned_memory_is_faster_and_does_not_block_the_host():
    pageable, pinned = np.ones(1 << 20, np.float32), cuda.pinned_array(1 << 20, np.float32)
    x, stream = cuda.device_array(1 << 20, np.float32), cuda.stream()
    with gpuless.profiling("A100") as slow:
        x.copy_to_device(pageable, stream)
        double[1, 32, stream](x)
    with gpuless.profiling("A100") as fast:
        x.copy_to_device(pinned, stream)
        double[1, 32, stream](x)
    ((a,), (b,)) = (timeline.rows("copy") for timeline in (slow, fast))
    assert a.total > 2 * b.total
    launches = [next(e for e in t.events if e.name == "launch double") for t in (slow, fast)]
    assert launches[0].begin > a.total
    assert launches[1].begin < b.total


def test_an_interrupt_while_a_launch_is_looked_at_ends_the_program(monkeypatch):
    def interrupted(taken):
        raise KeyboardInterrupt

    monkeypatch.setattr(watched, "sample_of", interrupted)
    x, went_on = ones(), []

    def program():
        with gpuless.profiling("T4"):
            double[N // 128, 128](x)
            went_on.append(True)

    with pytest.raises(KeyboardInterrupt):
        program()
    assert not went_on


def test_a_graph_with_a_failing_node_has_ended(monkeypatch):
    class Fails:
        enabled = True

        @property
        def work(self):
            raise MemoryError

    calls = []
    watcher = SimpleNamespace(
        begin=lambda: calls.append("begin"),
        node=lambda *given: calls.append("node"),
        end=lambda: calls.append("end"),
    )
    monkeypatch.setattr(graphs.watching, "watcher", lambda: watcher)
    with pytest.raises(MemoryError):
        graphs.run_nodes({1: Fails(), 2: Fails()})
    assert calls == ["begin", "node", "end"]


def test_links_go_with_a_gpu_under_another_name():
    mine = device("V100", name="mine")
    assert costs.links_of(mine) == costs.links_of(device("V100"))
    assert costs.links_of(mine).peer > costs.links_of(device("V100", nvlink=0)).peer


def test_errors_of_the_model_are_raised_at_the_end(monkeypatch):
    def refuse(*given):
        raise ValueError("a block does not fit")

    monkeypatch.setattr(watched, "sample_of", refuse)
    x, found = ones(), []

    def program():
        with gpuless.profiling("T4"):
            double[N // 128, 128](x)
            double[N // 128, 128](x)
            found.append(x.copy_to_host())

    with pytest.raises(ValueError, match="a block does not fit"):
        program()
    np.testing.assert_array_equal(found[0], np.full(N, 4, np.float32))


def test_wrong_arguments_are_named():
    for wrong, message in (({"gpu": "T5"}, "'T5' is not known"), ({"gpu": []}, "gpu names no GPU")):
        with pytest.raises(ValueError, match=message), gpuless.profiling(**wrong):
            pass
    with pytest.raises(ValueError, match="samples must be positive, or None for all, got 0"):
        with gpuless.profiling("T4", samples=0):
            pass


def test_errors_of_the_program_are_raised_unchanged():
    with pytest.raises(KeyError), gpuless.profiling("T4") as timeline:
        raise KeyError
    assert timeline.events == []


# --- What is known of another launch ------------------------------------------------------------------------


def dependence(kernel, *arguments):
    from gpuless.emulator.run import recording

    taken = []
    with recording.taken_launches(taken.append):
        kernel[1, 128](*arguments)
    return dependence_of(taken[0].plain)


def test_dependence_on_data_is_found():
    x, order = ones(), cuda.to_device(np.arange(N, dtype=np.int32))
    assert not dependence(double, x).on_data
    assert not dependence(scale, x, 2.0).on_data
    assert not dependence(reverse_blocks, x).on_data  # the contents of shared memory have no effect
    assert dependence(halve_large, x, 1.0).on_data
    assert dependence(take, x, order, x).on_data
    assert dependence(jump, x, x).on_data  # through shared memory


def test_a_number_without_effect_on_the_launch_is_not_modelled_again(monkeypatch):
    modelled = counted(monkeypatch)
    x, y = ones(), ones(2 * N)
    with gpuless.profiling("T4"):
        for factor in (2.0, 3.0, 4.0):
            scale[N // 128, 128](x, factor)
        scale[N // 128, 128](y, 2.0)  # another size
        scale[N // 128, 128](y[:N], 2.0)
        scale[N // 128, 64](y[:N], 2.0)
    assert len(modelled) == 4


def test_kernels_that_depend_on_data_are_modelled_again_and_named(monkeypatch):
    modelled = counted(monkeypatch)
    x = ones()
    with gpuless.profiling("T4", samples=2) as timeline:
        for value in (1.0, 2.0**10, 2.0**20):
            x.copy_to_device(np.full(N, value, np.float32))
            halve_large[N // 128, 128](x, 1.0)
    assert len(modelled) == 2
    first, second, third = (event.duration for event in kernels(timeline))
    assert first < second == third
    said = "launches of halve_large that take the time of another one, though what they do depends on data: 1"
    assert said in timeline.unsure
    with gpuless.profiling("T4", samples=None) as timeline:
        for value in (1.0, 2.0**10, 2.0**20):
            x.copy_to_device(np.full(N, value, np.float32))
            halve_large[N // 128, 128](x, 1.0)
    first, second, third = (event.duration for event in kernels(timeline))
    assert first < second < third
    assert said not in timeline.unsure


def counted(monkeypatch):
    found, real = [], watched.sample_of
    monkeypatch.setattr(watched, "sample_of", lambda taken: found.append(taken) or real(taken))
    return found


# --- When it begins: worked out by hand ---------------------------------------------------------------------

A, B = Lane("a"), Lane("b")


def kernel(name, stream, duration, share=1.0, host=5.0, **about):
    return Asked("kernel", name, stream, host, duration, duration / 2, 2 * duration, share, **about)


def begins(asked):
    events, end = schedule(asked)
    return {event.name: event.begin for event in events if event.stream != "host"}, end


def test_a_stream_does_one_thing_after_the_other():
    found, end = begins([kernel("one", A, 100.0), kernel("two", A, 10.0)])
    one = 5 + costs.SUBMIT
    assert found == {"one": one, "two": one + 100 + costs.STREAM_GAP}
    assert end == found["two"] + 10


def test_the_gpu_waits_for_a_slow_host():
    found, end = begins([kernel("one", A, 1.0), kernel("two", A, 1.0)])
    assert found["two"] == 10 + costs.SUBMIT
    assert end == found["two"] + 1


def test_kernels_of_several_streams_share_the_sms():
    asked = [kernel("one", A, 100.0, 0.5), kernel("two", B, 50.0, 0.5), kernel("three", Lane("c"), 10.0, 0.2)]
    found, _ = begins(asked)
    assert found["two"] == 10 + costs.SUBMIT  # there is room
    assert found["three"] == found["two"] + 50  # there was none
    asked = [kernel("one", A, 100.0), kernel("two", B, 50.0)]
    found, _ = begins(asked)
    assert found["two"] == found["one"] + 100


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({}, {"fma": 1.0}, 60.0),
        ({"fma": 0.5}, {"fma": 0.5, "L2": 0.9}, 60.0),  # each unit has time for both
        ({"fma": 0.5, "DRAM": 0.9}, {"fma": 0.8}, 96.0),  # at 5/8 of its speed while the first runs
        ({"fma": 0.8}, {"fma": 0.8}, 135.0),  # at a quarter for 100 us; then alone
        ({"fma": 1.0}, {"fma": 1.0}, 155.0),  # at a twentieth, but not for ever
    ],
)
def test_kernels_beside_each_other_share_the_units(first, second, expected):
    asked = [kernel("one", A, 100.0, 0.5, 0.0, busy=first), kernel("two", B, 60.0, 0.5, 0.0, busy=second)]
    events, _ = schedule(asked)
    found = {event.name: event.duration for event in events}
    assert found == {"one": 100.0, "two": pytest.approx(expected)}


def test_a_report_has_the_busiest_sm_and_kernels_share_all_of_them():
    with gpuless.profiling("H100") as timeline:
        x = ones()
        double[66, 128](x)  # on every other SM
        double[N // 128, 128](x)  # 7.75 blocks for each
    few, many = (watched._busy_of(event.report) for event in kernels(timeline))
    few_report, many_report = (event.report for event in kernels(timeline))
    assert few["issue"] == pytest.approx(few_report.busy["issue"] / 2)
    assert 0.9 * many_report.busy["issue"] < many["issue"] <= many_report.busy["issue"]


def test_nodes_of_a_graph_follow_their_predecessors():
    nodes = [kernel("one", None, 10.0, 0.3), kernel("two", None, 20.0, 0.3, after=(0,))]
    nodes += [kernel("three", None, 5.0, 0.3, after=(0,)), kernel("four", None, 1.0, after=(1, 2))]
    asked = [Asked("graph", "", A, 2.5, nodes=tuple(nodes)), kernel("next", A, 1.0)]
    found, _ = begins(asked)
    one = 2.5 + costs.SUBMIT
    gap = costs.GRAPH_GAP
    two = one + 10 + gap
    assert found == {
        "one": one,
        "two": two,
        "three": two,
        "four": two + 20 + gap,
        "next": two + 20 + gap + 1 + costs.STREAM_GAP,
    }


def test_the_host_waits_and_continues():
    asked = [kernel("one", A, 100.0), Asked("wait", "", A), kernel("two", A, 1.0)]
    found, _ = begins(asked)
    assert found["two"] == found["one"] + 100 + costs.WAKE + 5 + costs.SUBMIT


def test_the_legacy_stream_waits_for_blocking_streams():
    legacy, apart = Lane("default", True, False), Lane("apart", False, False)
    asked = [
        kernel("one", A, 100.0, 0.1),
        kernel("free", apart, 500.0, 0.1),
        kernel("two", legacy, 10.0, 0.1),
    ]
    asked += [kernel("three", B, 1.0, 0.1), kernel("four", apart, 1.0, 0.1)]
    found, _ = begins(asked)
    assert found["two"] == found["one"] + 100 + costs.STREAM_GAP
    assert found["three"] == found["two"] + 10 + costs.STREAM_GAP
    assert found["free"] == 10 + costs.SUBMIT
    assert found["four"] == found["free"] + 500 + costs.STREAM_GAP


def test_an_event_makes_a_stream_wait():
    asked = [kernel("one", A, 100.0, 0.1), Asked("event", "", A, 1.0, event=7)]
    asked += [Asked("wait for event", "", B, 1.0, event=7), kernel("two", B, 1.0, 0.1)]
    found, _ = begins(asked)
    assert found["two"] == found["one"] + 100 + costs.STREAM_GAP


def test_ranges_combine_kernels_and_host():
    asked = [kernel("one", A, 100.0)]
    assert schedule(asked, LOW)[1] == 5 * costs.HOST_LOW + costs.SUBMIT + 50
    assert schedule(asked, HIGH)[1] == 5 * costs.HOST_HIGH + costs.SUBMIT + 200


def test_links_match_the_device():
    rates = {name: costs.links_of(device) for name, device in DEVICES.items()}
    assert rates["T4"].pinned < rates["A100 SXM"].pinned < rates["H100 SXM"].pinned
    assert all(links.pageable < links.pinned for links in rates.values())
    assert rates["A100 SXM"].peer > 10 * rates["A100 SXM"].pinned  # NVLink
    assert rates["L4"].peer < rates["L4"].pinned  # none


# --- What is shown ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timeline():
    x, stream = ones(), cuda.stream()
    with gpuless.profiling("H100") as found:
        y = ones(1 << 20)
        for _ in range(3):
            double[N // 128, 128, stream](x)
            reverse_blocks[N // 128, 128](x)
            double[(1 << 20) // 256, 256](y)
        y.copy_to_host()
    return found


def test_the_table_adds_up(timeline):
    text = str(timeline)
    assert text.startswith("H100 SXM: ")
    assert "modelled; between" in text
    rows = timeline.rows()
    assert [(row.name, row.calls) for row in rows] == [("double", 6), ("reverse_blocks", 3)]
    assert rows[0].total == sum(event.duration for event in kernels(timeline) if event.name == "double")
    assert rows[0].least < rows[0].mean < rows[0].most
    lines = text.splitlines()
    table = next(i for i, line in enumerate(lines) if line.startswith("kernel"))
    assert lines[table].split() == ["kernel", "share", "total", "calls", "mean", "least", "most"]
    assert lines[table + 1].split()[0] == "double"
    shares = [int(line.split()[1].rstrip("%")) for line in lines[table + 1 : table + 3]]
    assert sum(shares) in (99, 100, 101)
    busy = timeline.microseconds - sum(timeline.gaps)
    assert 0 < busy < timeline.microseconds
    assert timeline.host_bound == timeline.gaps.host / timeline.microseconds
    assert max(map(len, lines)) <= 110


def test_the_trace_is_one_that_perfetto_opens(timeline, tmp_path):
    path = tmp_path / "trace.json"
    timeline.save(path)
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    names, complete = {}, []
    for event in trace["traceEvents"]:
        assert {"ph", "pid", "tid", "ts", "name"} <= event.keys()
        assert type(event["pid"]) is type(event["tid"]) is int
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
            names.setdefault((event["pid"], event["tid"]), []).append(event["args"])
        else:
            assert event["ph"] == "X"
            assert event["cat"] in ("kernel", "copy", "set", "launch", "wait")
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            complete.append(event)
    assert len(complete) == len(timeline.events)
    assert all((event["pid"], event["tid"]) in names for event in complete)
    for track in names:  # events of a track do not overlap
        own = sorted((each["ts"], each["dur"]) for each in complete if (each["pid"], each["tid"]) == track)
        assert all(a + d <= b + 2e-3 for (a, d), (b, _) in pairwise(own))
    assert "modelled" in str(trace["otherData"])


def test_a_trace_that_cannot_be_written_leaves_nothing(timeline, tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text("before")
    from gpuless.profile import trace

    monkeypatch.setattr(trace.json, "dumps", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        timeline.save(path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]


def test_the_picture_has_a_row_for_the_host_and_each_stream(timeline):
    figure = timeline.plot()
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["host", "default stream", "stream 1"]
    assert "H100 SXM" in ax.get_title()
    assert figure.get_facecolor()[3] == 1  # opaque: readable on a dark page


def test_overlapping_nodes_of_a_graph_have_several_tracks():
    nodes = [kernel("one", None, 10.0, 0.3), kernel("two", None, 20.0, 0.3), kernel("three", None, 2.0, 0.3)]
    events, _ = schedule([Asked("graph", "", A, 2.5, nodes=tuple(nodes))])
    assert list(tracks(events)) == ["host", "a", "a (2)", "a (3)"]


def test_the_same_program_has_the_same_timeline():
    def profiled():
        x, stream = ones(), cuda.stream()
        with gpuless.profiling(["T4", "RTX 4090"]) as found:
            halve_large[N // 128, 128, stream](x, 0.1)
            x.copy_to_host(stream=stream)
            double[N // 128, 128](x)
        return found

    first, again = profiled(), profiled()
    for one, other in zip(first, again, strict=True):
        assert str(one) == str(other)
        assert (one.microseconds, one.low, one.high) == (other.microseconds, other.low, other.high)
        assert [event[:8] for event in one.events] == [event[:8] for event in other.events]
