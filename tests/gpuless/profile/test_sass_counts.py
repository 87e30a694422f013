"""How often machine code ran, where its predicates and its line numbers tell little."""

import gpuless

# isort: split
import pytest
from products import multiply_tiled, zeros

from gpuless.emulator.run import recording
from gpuless.profile import sass_counts
from gpuless.profile.devices import DEVICES
from gpuless.profile.flow import Block
from gpuless.profile.machine_code import all_machine_codes
from gpuless.profile.sass_counts import Anchor, count_machine_code
from gpuless.profile.windows import sample_of

if not gpuless.select().emulated:
    pytest.skip("runs kernels on the emulated GPU", allow_module_level=True)
pytest.importorskip("scipy", reason="solves linear programs")

WARPS, ROUNDS = 116, 256


def anchor(what, line):
    return Anchor(what, "product.py", line)


def test_predicated_stores_do_not_end_a_loop():
    """A loop stores its tile in one of two ways: by predicated stores, or in a block that is jumped over."""
    names = ("shared store", 1), ("shared store", 2), ("shared load", 3), ("fma", 4), ("barrier", 5)
    fours, ones, loads, fma, barrier = (anchor(*each) for each in names)
    blocks = [
        Block(0, 10, (1,), False),
        Block(10, 22, (3, 2), False),  # three stores of 16 bytes and four of 4, all predicated
        Block(22, 30, (3,), False),  # eight more of 4
        Block(30, 31, (4,), False),
        Block(31, 590, (6, 5), False),
        Block(590, 597, (1,), False),
        Block(597, 700, (7, 8), False),
        Block(700, 710, (8,), False),
        Block(710, 720, (), True),
    ]
    offered = {fours: {1: 48.0}, ones: {1: 16.0, 2: 32.0}, loads: {4: 1024.0}, fma: {4: 512.0}}
    offered[barrier] = {3: 1.0}
    rounds = float(WARPS * ROUNDS)
    wanted = {fours: 32 * rounds, ones: 16 * rounds, loads: 1024 * rounds, fma: 512 * rounds, barrier: rounds}
    program = sass_counts._Program(blocks, [*wanted], wanted, offered, {fours, ones}, WARPS)
    assert program.solve().counts[:6] / WARPS == pytest.approx([1, ROUNDS, 0, ROUNDS, ROUNDS, ROUNDS])


@pytest.mark.parametrize("wanted", [1.0, 1e6, 1e12])
def test_long_loops_are_counted_as_exactly_as_short_ones(wanted):
    """The solver takes very small costs for none, and so did that of one operation of many."""
    fma = anchor("fma", 1)
    blocks = [Block(0, 1, (1,), False), Block(1, 3, (1, 2), False), Block(3, 4, (), True)]
    program = sass_counts._Program(blocks, [fma], {fma: wanted}, {fma: {1: 1.0}}, set(), 1)
    assert program.solve().counts[1] == pytest.approx(wanted)


def test_a_load_on_a_line_without_loads_does_not_stop_a_loop():
    """A load that two branches share gets a line of the assembler's choice, even one where PTX has none."""
    launch, arguments = multiply_tiled[(8, 8), (16, 16)], (zeros(128, 128), zeros(128, 128), zeros(128, 128))
    taken = []
    with recording.taken_launches(taken.append):
        launch(*arguments)
    device = DEVICES["T4"]
    code = all_machine_codes([(launch.dispatcher, taken[0])], {device.code: None})[0][device.code].code
    sample = sample_of(taken[0])
    whole = count_machine_code(code, sample)
    loads = [at for at, step in enumerate(code.steps) if step.base == "LDG" and step.line]
    moved = {at: code.steps[at]._replace(line=code.steps[0].line) for at in loads[:1]}
    steps = [moved.get(at, step) for at, step in enumerate(code.steps)]
    assert count_machine_code(code._replace(steps=steps), sample).executed == pytest.approx(whole.executed)
