"""A launch line by line: which lanes run a line together, its cost, and how both are shown."""

import io
import itertools

import numpy as np
import pytest
from numba import cuda, float32, int32
from PIL import Image

from cnn_course.engine.stepper import step
from cnn_course.engine.stepper.words import number
from gpuless.simulator import LaunchStopped

ALL = list(range(32))


@cuda.jit
def windows_kernel(x, out):
    tile = cuda.shared.array(40, float32)  # 1
    t = cuda.threadIdx.x
    if t < x.size:  # 3
        tile[t] = x[t]
    else:  # 5
        tile[t] = float32(0)
    cuda.syncthreads()  # 7
    total = float32(0)
    for k in range(t % 3):  # 9
        if k == 1:
            continue  # 11
        total += tile[t + k]
    out[t] = total  # 13


@pytest.fixture(scope="module")
def windows():
    x, out = cuda.to_device(np.arange(1, 37, dtype=np.float32)), cuda.device_array(40, np.float32)
    return step(windows_kernel)[1, 40](x, out)


def lines_of(stepper, kernel):
    """Return for each step its line, counted from `def`, and the lanes that run it or wait there."""
    first = kernel.py_func.__code__.co_firstlineno + 1
    return [(each.line - first, each.lanes("runs", "waits")) for each in stepper.steps]


def at(stepper, kernel, line, occurrence=0):
    """Return a step by its line, counted from that of `def`."""
    first = kernel.py_func.__code__.co_firstlineno + 1
    return [each for each in stepper.steps if each.line == first + line][occurrence]


def test_a_warp_whose_lanes_part_and_meet_again(windows):
    windows.show(1)
    lanes = list(range(8))  # threads 32 to 39; t % 3 is 2, 0, 1, 2, 0, 1, 2, 0
    once, twice = [0, 2, 3, 5, 6], [0, 3, 6]
    assert lines_of(windows, windows_kernel) == [
        *((line, lanes) for line in (1, 2, 3)),
        (4, [0, 1, 2, 3]),
        (6, [4, 5, 6, 7]),
        *((line, lanes) for line in (7, 8, 9)),
        (10, once),
        (12, once),
        (9, once),
        (10, twice),
        (11, twice),
        (9, twice),
        (13, lanes),
    ]
    assert [set(each.states[8:]) for each in windows.steps] == [{""}] * 15
    assert at(windows, windows_kernel, 4).states[:8] == ("runs",) * 4 + ("off",) * 4


def test_registers_are_those_after_the_line_and_changes_are_marked(windows):
    windows.show(1)
    added = at(windows, windows_kernel, 12)
    # x[t] is t + 1; lanes 4 to 7 have loaded zeros.
    assert added.registers["total"][:8] == [33, 0, 35, 36, 0, 0, 0, 0]
    assert added.changed == {"total": {0, 2, 3}}
    assert added.registers["k"][:8] == [0, None, 0, 0, None, 0, 0, None]
    again = at(windows, windows_kernel, 9, 1)
    assert again.registers["k"][:8] == [1, None, 0, 1, None, 0, 1, None]
    assert again.changed == {"k": {0, 3, 6}}
    assert at(windows, windows_kernel, 2).registers == {"t": [*range(32, 40), *[None] * 24]}


def test_accesses_and_their_costs(windows):
    def costs(step):
        return [(each.array, each.kind, each.sectors, each.degree) for each in step.accesses]

    windows.show(0)
    loads = at(windows, windows_kernel, 4)
    assert costs(loads) == [("x", "reads", 4, 0), ("tile", "writes", 0, 1)]
    assert loads.accesses[0].elements == {lane: (lane,) for lane in ALL}
    assert loads.accesses[0].places == {lane: lane // 8 for lane in ALL}
    windows.show(1)
    loads = at(windows, windows_kernel, 4)
    assert costs(loads) == [("x", "reads", 1, 0), ("tile", "writes", 0, 1)]
    assert loads.accesses[1].places == {lane: lane for lane in range(4)}  # word 32 is in bank 0
    assert (loads.accesses[0].bytes_asked, loads.accesses[0].expression) == (16, "x[t]")
    assert costs(at(windows, windows_kernel, 9)) == []


def test_a_warp_sees_loads_of_others_after_the_barrier(windows):
    def tile(line):
        (shared,) = at(windows, windows_kernel, line).shared
        return shared.values.tolist()

    windows.show(0)
    assert tile(1) == [None] * 40
    own = [lane + 1 for lane in ALL]
    assert tile(4) == tile(7) == own + [None] * 8
    assert tile(8) == [*own, 33, 34, 35, 36, 0, 0, 0, 0]
    windows.show(1)
    assert tile(4) == [None] * 32 + [33, 34, 35, 36] + [None] * 4
    (shared,) = at(windows, windows_kernel, 4).shared
    assert shared.written.nonzero()[0].tolist() == [32, 33, 34, 35]
    assert not shared.read.any()
    (shared,) = at(windows, windows_kernel, 12).shared
    assert shared.read.nonzero()[0].tolist() == [32, 34, 35, 37, 38]


def test_who_waits_at_the_barrier(windows):
    windows.show(0)
    barrier = at(windows, windows_kernel, 7)
    assert barrier.at_barrier
    assert set(barrier.states) == {"waits"}
    assert windows.texts[4].endswith("The barrier: warp 0 waits; warp 1 has yet to come.")
    windows.show(1)
    assert set(at(windows, windows_kernel, 7).states[:8]) == {"runs"}
    assert windows.texts[5].endswith("The barrier: all warps have arrived and continue.")


def test_lines_are_described_in_words(windows):
    windows.show(1)
    first = windows_kernel.py_func.__code__.co_firstlineno + 1
    texts = [text.split(". ", 1)[1] for text in windows.texts]
    assert texts[2] == (
        f"Lanes 0 to 7 active. Here the lanes part: lanes 0 to 3 to line {first + 4}; lanes 4 to 7 to line "
        f"{first + 6}."
    )
    assert texts[3] == (
        "Lanes 0 to 3 active; lanes 4 to 7 sit it out. Reads x[t] in 4 lanes: 1 sector, 16 of 32 bytes used. "
        "Writes tile[t] in 4 lanes (shared): no bank conflict."
    )
    assert windows.texts[9] == (
        f"Line {first + 12}: `total += tile[t + k]`. Lanes 0, 2 to 3 and 5 to 6 active; lanes 1, 4 and 7 "
        "sit it out. Reads tile[t + k] in 5 lanes (shared): no bank conflict. total: 33, 35, 36."
    )
    assert repr(windows).splitlines()[9] == f"10. {windows.texts[9]}"


@cuda.jit
def edge_kernel(image, out):
    tile = cuda.shared.array((2, 4), int32)  # 1
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)  # 3
    if row >= image.shape[0] or column >= image.shape[1]:
        return  # 5
    tile[ty, tx] = image[row, column]
    out[row, column] = (  # 7
        tile[ty, tx] + 1
    )


def test_a_block_of_two_axes_at_the_edge():
    image = np.arange(15, dtype=np.int32).reshape(3, 5)
    out = cuda.to_device(np.zeros((3, 5), np.int32))
    stepper = step(edge_kernel, block=(1, 1))[(2, 2), (4, 2)](cuda.to_device(image), out)
    assert out.copy_to_host().tolist() == (image + 1).tolist()
    # Of the block's 4 x 2 threads only the one at column 4 and row 2 is in the image.
    everyone, others = list(range(8)), list(range(1, 8))
    assert lines_of(stepper, edge_kernel) == [
        *((line, everyone) for line in (1, 2, 3, 4)),
        (5, others),
        (6, [0]),
        (7, [0]),
    ]
    assert stepper.steps[5].states[:8] == ("runs",) + ("done",) * 7
    assert [each.elements for each in stepper.steps[5].accesses] == [{0: (2, 4)}, {0: (0, 0)}]
    assert stepper.steps[2].registers["column"][:8] == [4, 5, 6, 7] * 2
    assert stepper.steps[2].registers["row"][:8] == [2] * 4 + [3] * 4
    assert "edge_kernel, block (1, 1), warp 0: 7 steps." in stepper.film().caption


@cuda.jit(device=True)
def larger(one, other):
    if one > other:
        return one
    return other


@cuda.jit
def largest_kernel(x, out):
    t = cuda.threadIdx.x
    out[t] = larger(x[t], x[3 - t]) + larger(x[t], float32(2))


def test_steps_go_into_device_functions_and_come_back():
    x = cuda.to_device(np.array([0, 1, 2, 3], np.float32))
    out = cuda.device_array(4, np.float32)
    stepper = step(largest_kernel)[1, 4](x, out)
    assert out.copy_to_host().tolist() == [5, 4, 4, 6]
    inner = larger.py_func.__code__.co_firstlineno + 1
    outer = largest_kernel.py_func.__code__.co_firstlineno + 1
    steps = [
        (
            each.line - (inner if each.function.__name__ == "larger" else outer),
            each.back_from,
            each.lanes("runs"),
        )
        for each in stepper.steps
    ]
    lanes = [0, 1, 2, 3]
    assert steps == [
        (1, "", lanes),
        (2, "", lanes),
        *((1, "", lanes), (2, "", [2, 3]), (3, "", [0, 1])),
        (2, "larger", lanes),
        *((1, "", lanes), (2, "", [3]), (3, "", [0, 1, 2])),
        (2, "larger", lanes),
    ]
    assert [[each.expression for each in step.accesses] for step in stepper.steps if step.accesses] == [
        ["x[t]", "x[3 - t]"],
        ["x[t]"],
        ["out[t]"],
    ]
    assert stepper.steps[2].registers["one"][:4] == [0, 1, 2, 3]
    assert stepper.steps[6].registers["other"][:4] == [2, 2, 2, 2]
    assert stepper.texts[-1].startswith(
        f"Line {outer + 2}: `out[t] = larger(x[t], x[3 - t]) + larger(x[t], float32(2))`, back from larger."
    )


@cuda.jit
def rounds_kernel(out):
    t = cuda.threadIdx.x
    while True:  # 2
        for k in range(2):
            out[t] += k
        t += 2  # 5
        if t >= out.size:
            break
    out[0] = 7  # 8


def test_lanes_meet_in_each_round_of_nested_loops():
    stepper = step(rounds_kernel)[1, 3](cuda.to_device(np.zeros(4, np.int64)))
    both, first = [0, 1, 2], [0, 1]
    inner = [3, 4, 3, 4, 3, 5, 6]
    lines = [each for each in lines_of(stepper, rounds_kernel) if each[0] != 2]  # some Pythons stop there
    assert lines == [
        (1, both),
        *((line, both) for line in inner),
        (7, [2]),
        *((line, first) for line in inner),
        (7, first),
        (8, both),
    ]


@cuda.jit
def conflicts_kernel(x):
    tile = cuda.shared.array((32, 33), float32)
    count = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    tile[t, 0] = x[t]  # 4
    tile[0, t] = x[2 * t]
    tile[t // 2 * 2, t] = x[0]  # 6
    cuda.atomic.add(count, 0, 1)


def test_conflicts_of_banks_and_atomics_that_wait():
    stepper = step(conflicts_kernel)[1, 32](cuda.to_device(np.zeros(64, np.float32)))

    def costs(line):
        text = at(stepper, conflicts_kernel, line)
        return [(each.sectors, each.degree, each.serialised) for each in text.accesses]

    assert costs(4) == [(4, 0, 0), (0, 1, 0)]  # a row of 33 words: each lane in its own bank
    assert costs(5) == [(8, 0, 0), (0, 1, 0)]
    # Element [2i, t] is word 66i + t: banks 2i + t, that is 4i and 4i + 1, of which 8 are the same.
    assert costs(6) == [(1, 0, 0), (0, 2, 0)]
    assert costs(7) == [(0, 1, 32)]
    assert stepper.texts[-1].endswith(
        "Updates count in 32 lanes (shared): 32 lanes update one word, one after the other."
    )
    assert "2-way bank conflict" in stepper.texts[5]


@cuda.jit
def relu_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = float32(0) if x[i] <= float32(0) else x[i]  # 3


def test_accesses_of_a_line_stand_in_its_order():
    """Lane 0 needs its element once, the others twice; the writes come last."""
    x = cuda.to_device(np.array([-2, 3, 4], np.float32))
    stepper = step(relu_kernel)[1, 8](x, cuda.device_array(3, np.float32))
    assert [(each.kind, list(each.elements)) for each in stepper.steps[-1].accesses] == [
        ("reads", [0, 1, 2]),
        ("reads", [1, 2]),
        ("writes", [0, 1, 2]),
    ]
    assert stepper.steps[-1].states[:8] == ("runs",) * 3 + ("done",) * 5


@cuda.jit
def shuffle_kernel(out):
    t = cuda.threadIdx.x
    left = cuda.shfl_sync(0xFFFFFFFF, t, t ^ 1)
    out[t] = left


def test_lanes_that_exchange_values_do_not_wait_at_a_barrier():
    stepper = step(shuffle_kernel)[1, 32](cuda.device_array(32, np.int64))
    exchange = stepper.steps[1]
    assert (exchange.waits_for, exchange.at_barrier) == ("shfl_sync", False)
    assert set(exchange.states) == {"runs"}
    assert exchange.registers["left"] == [lane ^ 1 for lane in ALL]
    assert "The lanes exchange values (shfl_sync)." in stepper.texts[1]


def test_the_same_launch_is_shown_the_same_way(windows):
    x, out = cuda.to_device(np.arange(1, 37, dtype=np.float32)), cuda.device_array(40, np.float32)
    again = step(windows_kernel)[1, 40](x, out)
    for each in (windows, again):
        each.show(1, 9)
    assert windows.texts == again.texts
    assert windows.picture == again.picture
    assert windows.film(2, 5) == again.film(2, 5)


def test_a_film_has_a_frame_for_each_step(windows):
    windows.show(1)
    film = windows.film(2, 6)
    image = Image.open(io.BytesIO(film.png))
    frames = []
    for index in range(image.n_frames):
        image.seek(index)
        frames.append(np.asarray(image.convert("RGB"), np.int16))
    assert len(frames) == 4
    assert all((a != b).any() for a, b in itertools.pairwise(frames))
    for index, frame in enumerate(frames, 2):
        windows.show(1, index)
        picture = np.asarray(Image.open(io.BytesIO(windows.picture.png)).convert("RGB"), np.int16)
        assert abs(picture - frame).mean() < 1  # except for the palettes
    assert film.alt.startswith("4 frames, one for each step")
    assert film.caption.endswith("Blue lanes run the line, grey ones sit it out.")


def test_a_slider_goes_through_steps_and_warps(windows):
    windows.show(0)
    controls = windows.controls
    assert (controls.step.value, controls.step.max, controls.play.max) == (1, 14, 14)
    controls.back.click()
    assert windows.index == 0
    controls.step.value = 4
    controls.forward.click()
    assert windows.index == 4
    assert "warp 0 waits; warp 1 has yet to come" in controls._html.value
    assert 'role="alert"' in controls._html.value
    controls.warp.value = 1
    assert (windows.warp, windows.index, controls.step.value, controls.step.max) == (1, 0, 1, 15)
    controls.step.value = 15
    controls.forward.click()
    assert "Step 15 of 15: warp 1" in controls._html.value
    controls.warp.value = 0
    assert (windows.warp, windows.index, controls.step.max) == (0, 0, 14)


def test_the_stored_output_is_a_film_with_the_steps_in_words(windows):
    windows.show(1)
    bundle = windows._repr_mimebundle_()
    assert set(bundle) >= {"text/html", "text/plain", "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/plain"] == repr(windows)
    stored = bundle["text/html"]
    assert stored.count("<li>") == 15
    assert "<code>tile[t] = x[t]</code>. Lanes 0 to 3 active; lanes 4 to 7 sit it out." in stored
    assert stored.count("data:image/png") == 2
    assert "&lt; x.size" in stored


@cuda.jit
def long_kernel(x, rounds):
    for _ in range(rounds):
        x[0] += 1


def test_for_many_steps_a_still_picture_is_stored():
    stepper = step(long_kernel)[1, 1](cuda.to_device(np.zeros(1, np.float32)), 40)
    assert len(stepper.steps) == 81
    assert stepper._repr_mimebundle_()["text/html"].count("data:image/png") == 1
    with pytest.raises(ValueError, match="a film has 1 to 60 steps, got first=0 and last=None of 81 steps"):
        stepper.film()
    with pytest.raises(ValueError, match="got first=90 and last=None"):
        stepper.film(90)


@cuda.jit
def endless_kernel(x):
    while x[0] == 0:
        pass


@cuda.jit
def empty_kernel(x):
    """Do nothing yet."""
    ...


@cuda.jit
def documented_kernel(x):
    """Do nothing."""


def test_an_unwritten_kernel_has_one_line():
    x = cuda.to_device(np.zeros(1, np.float32))
    assert step(empty_kernel)[1, 1](x).texts[0].endswith("`...`. Lane 0 active.")
    assert step(documented_kernel)[1, 1](x).texts[0].endswith("`def documented_kernel(x):`. Lane 0 active.")


@pytest.mark.parametrize("warp", [2, -1, 0.5, "one"])
def test_a_warp_out_of_range_raises(warp):
    x, out = cuda.to_device(np.zeros(36, np.float32)), cuda.device_array(40, np.float32)
    with pytest.raises(ValueError, match=r"warp must be an integer from 0 to 1, got ('one'|-?[\d.]+)$"):
        step(windows_kernel, warp=warp)[1, 40](x, out)


def test_endless_loops_and_wrong_arguments_raise():
    x = cuda.to_device(np.zeros(1, np.float32))
    with pytest.raises(
        (ValueError, LaunchStopped), match="come to more than 1,000 lines: is a loop without end"
    ):
        step(endless_kernel, most=1000)[1, 1](x)
    with pytest.raises(ValueError, match=r"the grid .* has no such block"):
        step(long_kernel, block=1)[1, 1](x, 1)
    with pytest.raises(TypeError, match=r"expected a kernel made by cuda\.jit, got 3"):
        step(3)[1, 1](x)
    scope = {"cuda": cuda}
    exec("@cuda.jit\ndef sourceless(x):\n    x[0] = 1", scope)
    with pytest.raises(ValueError, match="there is no source of sourceless to step through"):
        step(scope["sourceless"])[1, 1](x)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(1.5), "1.5"),
        (np.uint8(255), "255"),
        (-0.0, "-0"),
        (np.inf, "inf"),
        (np.bool_(False), "False"),
    ],
)
def test_numbers_are_short(value, text):
    assert number(value) == text
