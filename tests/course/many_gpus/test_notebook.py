"""Notebook 24: its text about outputs and records, and its pictures."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import stored

from benchmarks import workers as benchmark
from cnn_course.chapters.many_gpus import exercises as check, pictures, ring, scaling, times, workers
from cnn_course.chapters.many_gpus.exercises.ring_all_reduce import _ledger, _same_bits
from cnn_course.engine import notebooks
from cnn_course.engine.checks.evidence import Wrong

ROOT = Path(__file__).parents[3]
NOTEBOOK = ROOT / "notebooks" / "24_many_gpus.ipynb"
RECORD = json.loads((ROOT / "benchmarks" / "workers.json").read_text())


def shown(cell_id):
    return stored.all_shown(NOTEBOOK.name, cell_id)


# --- stored outputs ----------------------------------------------------------------------------------------


def test_parts_weighted_by_their_size_make_the_whole_gradient():
    half, weighted = shown("parts").splitlines()
    assert half.endswith("a lot")
    assert weighted.endswith("rounding")


def test_processes_added_up_and_sent_only_what_is_needed():
    assert "numbers: right" in shown("processes")
    assert "same bits: True" in shown("processes")
    assert re.findall(r"([\d.]+) arrays", shown("processes")) == ["1.50"] * 4


def test_the_killed_worker_is_named_and_the_losses_equal_those_of_one_worker():
    assert "worker 1 of 2 was killed" in shown("train-two")
    assert "--resume" in shown("train-two")
    assert shown("resume").strip() == "epochs compared: 3; all losses differ by less than 0.0001: True"


# --- what a ring, a tree and a star take: against a schedule of single messages ----------------------------


def finished(messages, latency, bandwidth):
    """Simulate messages (step, sender, receiver, bytes): step by step, one at a time through a port."""
    clock = 0.0
    for step in sorted({message[0] for message in messages}):
        ends, out, into = [clock], {}, {}
        for _, sender, receiver, size in (message for message in messages if message[0] == step):
            begin = max(clock, out.get(sender, 0), into.get(receiver, 0))
            end = begin + latency + size / bandwidth
            out[sender] = into[receiver] = end
            ends.append(end)
        clock = max(ends)
    return clock


@pytest.mark.parametrize("size", [1, 2, 3, 8, 12])
def test_the_formulas_match_simulated_messages(size):
    link = 3e-6, 1e9
    n = 24_000 * size
    around = [(step, r, (r + 1) % size, n / size) for step in range(2 * (size - 1)) for r in range(size)]
    assert scaling.ring_seconds(size, n, *link) == pytest.approx(finished(around, *link))
    star = [(0, r, 0, n) for r in range(1, size)] + [(1, 0, r, n) for r in range(1, size)]
    assert scaling.naive_seconds(size, n, *link) == pytest.approx(finished(star, *link))
    up, gap = [], 1
    while gap < size:
        up += [(gap, r + gap, r, n) for r in range(0, size - gap, 2 * gap)]
        gap *= 2
    down = [(10_000 - step, receiver, sender, n) for step, sender, receiver, n in up]
    assert scaling.tree_seconds(size, n, *link) == pytest.approx(finished(up + down, *link))


def chunk_times(size):
    """Return the time of the ring if a message takes 1 and `send` waits until it is received."""
    steps = [[] for _ in range(size)]

    def noted(rank, size, array, send, receive):
        def note(call, what):
            def noting(*chunk):
                steps[rank].append(what)
                return call(*chunk)

            return noting

        ring.all_reduce(rank, size, array, note(send, "send"), note(receive, "receive"))

    ring.run_together(noted, [np.ones(size) for _ in range(size)])
    clocks = [0] * size
    while any(steps):
        for rank, right in ((rank, (rank + 1) % size) for rank in range(size)):
            if steps[rank][:1] == ["send"] and steps[right][:1] == ["receive"]:
                clocks[rank] = clocks[right] = max(clocks[rank], clocks[right]) + 1
                del steps[rank][0], steps[right][0]
    return max(clocks)


def test_a_blocking_ring_takes_twice_as_long():
    (text,) = (cell.source for cell in notebooks.read(NOTEBOOK).cells if "time of 12 chunks" in cell.source)
    assert (chunk_times(4), check.ring_seconds.reference(4, 4, 0, 1)) == (12, 6)
    assert "For four workers that is the time of 12 chunks instead of 6." in text


def test_the_best_training_is_the_least_over_the_batch_sizes():
    recorded = {
        "runs": [
            {"batch_size": 8, "lr": 1, "steps": [100, 100]},
            {"batch_size": 8, "lr": 2, "steps": [50, None]},
            {"batch_size": 64, "lr": 1, "steps": [20, 30]},
        ]
    }
    assert scaling.best_steps(recorded) == {8: 100, 64: 25}
    free = scaling.Link(0.0, 1e30, "")
    assert scaling.best_training(1, 1.0, 4, free, recorded) == (pytest.approx(800), 8)
    assert scaling.best_training(16, 1.0, 4, free, recorded) == (pytest.approx(100), 8)
    assert scaling.best_training(64, 1.0, 4, free, recorded) == (pytest.approx(25), 64)


# --- records -----------------------------------------------------------------------------------------------


def test_every_batch_size_and_rate_is_recorded():
    runs = scaling.recorded()["runs"]
    assert [(run["batch_size"], run["lr"]) for run in runs] == [
        (batch_size, lr) for batch_size in scaling.BATCH_SIZES for lr in scaling.RATES
    ]
    assert (scaling.recorded()["target"], scaling.recorded()["judged"]) == (scaling.TARGET, scaling.JUDGED)


@pytest.mark.exhaustive(
    "test_training.py: our losses equal PyTorch's; the same file: how what is recorded is judged"
)
def test_a_recorded_training_takes_as_many_steps_again():
    (run,) = (run for run in scaling.recorded()["runs"] if (run["batch_size"], run["lr"]) == (64, 3e-3))
    assert scaling.steps_to_target(64, 3e-3, seed=1) == pytest.approx(run["steps"][1], rel=0.35)


def test_the_record_of_workers_matches_the_benchmark():
    assert RECORD["benchmark"] == "workers"
    assert {len(seconds) for seconds in RECORD["step_seconds"].values()} == {6}
    sums = {int(size): seconds for size, seconds in RECORD["sum_seconds"].items()}
    assert {key: RECORD[key] for key in benchmark.link_of(sums)} == benchmark.link_of(sums)
    assert pictures.ARENA in sums
    table = benchmark.table(RECORD)
    assert "2 workers, 1 thread each" in table
    assert "all-reduce of 900,136 bytes" in table


def test_latency_and_bandwidth_come_back_out_of_a_ring_s_times():
    times = {size: [scaling.ring_seconds(2, size, 2e-4, 3e9), 1.0] for size in (0, 900_136, 2**24)}
    link = benchmark.link_of(times)
    assert link["latency"] == pytest.approx(2e-4)
    assert link["bandwidth"] == pytest.approx(3e9)
    assert link["estimated_sum_seconds"] == pytest.approx(times[900_136][0])


# --- training in processes ---------------------------------------------------------------------------------


def test_the_few_digits_are_the_first_of_mnist(tmp_path, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(tmp_path / "cache"))
    workers.write_few_digits(tmp_path)
    few, all_of_them = workers.load("mnist", tmp_path), workers.load("mnist")
    np.testing.assert_array_equal(few.train_images, all_of_them.train_images[: workers.TRAINED_ON])
    np.testing.assert_array_equal(few.test_labels, all_of_them.test_labels[: workers.JUDGED_BY])


def test_a_training_that_fails_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(workers.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(workers, "options", lambda epochs: ["--epochs", "0"])
    with pytest.raises(RuntimeError, match=r"(?s)has failed.*--epochs"):
        workers.train(1, 0)


def test_lines_for_a_page_have_no_folder_of_this_machine():
    line = "cnn-numba: go on with: train --out /" + "tmp/x/run " + 20 * "and more "
    lines = workers.wrapped(line, Path("/" + "tmp/x"))
    assert "FOLDER/run" in " ".join(lines)
    assert max(map(len, lines)) <= 100


# --- the check of the ring ---------------------------------------------------------------------------------


def test_a_sum_in_another_order_on_each_worker_is_detected():
    def everyone_by_itself(rank, size, array, send, receive):
        own, total = array.copy(), array
        for _ in range(size - 1):
            incoming = receive() if rank % 2 else None
            send(own)
            own = receive() if incoming is None else incoming
            total += own

    with pytest.raises(Wrong) as found:
        _same_bits(everyone_by_itself)
    assert found.value.mistake == "other bits"
    _same_bits(ring.all_reduce)


def test_a_wrong_sum_is_described_part_by_part():
    def twice(rank, size, array, send, receive):
        ring.all_reduce(rank, size, array, send, receive)
        if rank == 1:
            array[4] += 10.0 ** (2 * 3 + 2)

    (line,) = _ledger(twice)
    assert line == (
        "With 3 workers and 6 numbers, entry 4 of worker 1 has worker 0's once, worker 1's once, "
        "worker 2's twice."
    )


def test_a_ring_of_copies_is_not_drawn(monkeypatch):
    def of_copies(rank, size, array, send, receive):
        copy = array.copy()
        ring.all_reduce(rank, size, copy, send, receive)
        array[:] = copy

    for answer, drawn in ((of_copies, ring.all_reduce), (ring_of_slices, ring_of_slices)):
        monkeypatch.setattr(ring.workbook, "answer", lambda *names, answer=answer, otherwise: answer)
        assert ring.yours() is drawn


def ring_of_slices(rank, size, array, send, receive):
    ring.all_reduce(rank, size, array, send, receive)


# --- pictures ----------------------------------------------------------------------------------------------


def test_picture_descriptions_match_the_data():
    journey = ring.run_together(ring.all_reduce, [np.full(3, 10.0**rank) for rank in range(3)])
    alt = pictures.ring_picture(journey).alt
    assert "0 at the beginning, 3 after the first phase" in alt
    assert "and 9 at the end" in alt
    link = scaling.Link(0.0, 1e9, "")
    with pytest.raises(StopIteration):
        pictures.methods_picture({"a": 1e6, "b": 1e9}, link)
    alt = pictures.methods_picture({"a": 1e6, "b": 1e9}, scaling.LINKS["Ethernet, 10 Gbit/s"]).alt
    assert "ring 21.2; tree 16.2; worker 0 in the middle 1.66e+03 on the left" in alt
    kept = workers.kept_timeline()
    assert "the shortest of those recorded" in times.timeline_picture(kept).caption
    assert "Worker 1: backward until 42, bucket 0 from 19 to 47" in times.timeline_picture(kept).alt
    assert "bucket 0: linear2 and linear1, 824,872 bytes" in times.timeline_picture(kept).caption


def test_all_recorded_steps_are_shown_with_median_and_spread():
    kept = workers.kept_timeline()
    found = times.durations(kept)
    assert list(found) == [
        *("forward", "backward", "bucket 0 under way", "bucket 1 under way", "waiting at the end")
    ]
    assert {len(values) for values in found.values()} == {6}
    shown = times.steps_picture(kept)
    low, middle, high = np.quantile(found["backward"], [0, 0.5, 1])
    assert f"backward {middle:.1f} ({low:.1f} to {high:.1f})" in shown.alt
    assert "3 steps of 2 workers" in shown.caption
    assert shown.caption.endswith("in 6 of 6.")


def test_the_record_s_rounds_overlap_and_the_fastest_steps_are_apart():
    rounds, least = RECORD["step_seconds"], RECORD["least_step_seconds"]
    assert max(map(min, rounds.values())) < min(map(max, rounds.values()))
    alone = rounds["1 worker, 1 thread"]
    assert (round(1e3 * min(alone)), round(1e3 * max(alone))) == (20, 76)
    two, one, threads = (
        least[name] for name in ("2 workers, 1 thread each", "1 worker, 1 thread", "1 worker, 2 threads")
    )
    assert two < threads < one
    assert 0.45 < two / one < 0.55
    alt = times.measured_picture(RECORD).alt
    assert "1 worker, 1 thread 48.6 (19.9 to 76.3), the fastest step 19.4" in alt
    assert "by the formula 0.7" in alt


def test_the_kept_timeline_shows_a_transfer_under_the_backward_pass():
    events = workers.kept_timeline()["events"]
    for step in workers.kept_timeline()["steps"]:
        for worker in (0, 1):
            mine = [e for e in events if (e["worker"], e["step"]) == (worker, step)]
            (bucket,) = (event for event in mine if event.get("bucket") == 0)
            (conv1,) = (event for event in mine if event.get("layer") == "conv1")
            assert bucket["start"] < conv1["start"] < bucket["end"]


def test_the_stored_steps_differ_and_bucket_0_always_left_early():
    (cell,) = (cell for cell in notebooks.read(NOTEBOOK).cells if cell.id == "timeline")
    said = cell.outputs[0].data["text/plain"]
    assert "Bucket 0 left during the backward pass in 6 of 6." in said
    ranges = [[float(number) for number in found] for found in re.findall(r"\(([\d.]+) to ([\d.]+)\)", said)]
    assert len(ranges) == 5
    assert max(high / low for low, high in ranges) > 3
