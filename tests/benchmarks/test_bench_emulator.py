import json
from pathlib import Path

import pytest

from benchmarks import emulator, simulator_kernels
from cnn_numba.device import SELECTION

needs_the_emulator = pytest.mark.skipif(not SELECTION.emulated, reason="no GPU is emulated here")


@needs_the_emulator
def test_every_kernel_is_timed_the_given_number_of_times():
    from benchmarks import emulator_kernels

    samples = emulator_kernels.measure(repeats=2)
    assert all(len(times) == 2 and min(times) > 0 for times, _ in samples.values())
    assert {unit for _, unit in samples.values()} == {"ns an element", "GFLOP/s a core"}


@needs_the_emulator
def test_a_product_is_computed_by_many_threads_at_a_time():
    from benchmarks import emulator_kernels

    launch, work, _ = emulator_kernels.launches()["product, 64 x 64 tiles"]
    # Twenty and more on a quiet machine: one thread at a time would be a hundredth of it. A busy machine can
    # stop any launch for half a second, but not all.
    assert any(work / emulator_kernels._seconds(launch) > 2e9 for _ in range(40))


@needs_the_emulator
def test_a_short_launch_is_timed_in_a_row():
    from benchmarks import emulator_kernels

    launched = []
    emulator_kernels._seconds(lambda: launched.append(1))
    assert len(launched) == 1
    assert 0 < emulator_kernels._seconds(lambda: launched.append(1), altogether=0.02) < 0.02
    assert len(launched) > 2


@needs_the_emulator
def test_a_thousand_times_faster_than_the_simulator():
    samples = simulator_kernels.measure(repeats=9, blocks=1 << 12)
    samples.pop("first launch")
    # In the simulator a thread takes 2 microseconds or more, here a few nanoseconds.
    assert all(min(times) < 0.1 for times in samples.values()), samples


def test_measurements_are_printed_and_recorded(monkeypatch, capsys):
    answers = {
        "simulator_kernels.measure(blocks=16384)": {"first launch": [1.0], "some": [0.004, 0.001, 0.002]},
        "simulator_kernels.measure()": {"first launch": [1.0], "some": [2.0]},
        "emulator_kernels.measure()": {"product": ([10.0, 30.0, 20.0], "GFLOP/s a core")},
        "emulator_kernels.compilation()": {"kernels": 2, "numba": 3.0, "own": 1.0},
        "emulator_kernels.epoch()": {"wall": 60.0, "processor": 110.0},
    }
    monkeypatch.setattr(emulator, "_run", lambda measured, **environment: answers[measured])
    monkeypatch.setattr(
        emulator, "answer_of", lambda arguments, **environment: {"first launch": [1], "some": [4000]}
    )
    record = emulator.bench_emulator(rounds=2)
    (threads,) = record["threads"]
    assert threads["medians"] == {"emulated": 2.0, "simulated": 2000.0, "numba": 4e6}
    assert [len(times) for times in threads["samples"].values()] == [2, 2, 2]
    assert record["work"][0]["median"] == 20
    assert record["compilation"] == {"first": answers["emulator_kernels.compilation()"]} | {
        "later": answers["emulator_kernels.compilation()"]
    }
    assert record["epoch"]["wall"] == 60
    assert "epoch" not in emulator.bench_emulator(rounds=1, epoch=False)
    output = capsys.readouterr().out
    assert "2.00 ns per thread" in output
    assert "60.0 s" in output


def test_the_page_has_the_figures_of_the_record():
    root = Path(__file__).parents[2]
    record = json.loads((root / "benchmarks" / "emulator.json").read_text())
    assert emulator.markdown(record) in (root / "docs" / "emulated-gpu.md").read_text()
