"""Workers in a ring: in turns in one thread, and in processes; and the errors when one fails or waits."""

import numpy as np
import pytest

from cnn_course.chapters.many_gpus import ring


def arrays_of(size, length, rng):
    return [rng.standard_normal(length).astype(np.float32) for _ in range(size)]


def stop_in_the_middle(rank, size, array, send, receive):
    if rank == 1 and len(array) > 9:
        import os

        os._exit(3)
    ring_pass(rank, array, send, receive)


def fail_in_the_middle(rank, size, array, send, receive):
    if rank == 1 and len(array) > 9:
        raise ValueError(f"{len(array)} are too many")
    ring_pass(rank, array, send, receive)


def ring_pass(rank, array, send, receive):
    if rank % 2:
        receive()
        send(array)
    else:
        send(array)
        receive()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("length", [0, 1, 3, 8, 11])
def test_all_reduce_sums_arrays_of_any_length(size, length, rng):
    arrays = arrays_of(size, length, rng)
    journey = ring.run_together(ring.all_reduce, arrays)
    for array in journey.arrays:
        np.testing.assert_allclose(array, np.sum(arrays, axis=0, dtype=float), atol=1e-5)
        assert array.tobytes() == journey.arrays[0].tobytes()
    assert all(len(states) == 2 * size - 1 for states in journey.states)
    assert len(journey.sent) == 2 * (size - 1) * size
    sent = sum(journey.bytes_of(rank) for rank in range(size))
    assert sent == 2 * (size - 1) * 4 * length
    assert {note.start for note in journey.sent} <= set(range(length + 1))


def test_the_callers_arrays_are_left_alone(rng):
    arrays = arrays_of(3, 6, rng)
    before = [array.copy() for array in arrays]
    ring.run_together(ring.all_reduce, arrays)
    np.testing.assert_array_equal(arrays, before)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            lambda rank, size, array, send, receive: send(array),
            "worker 0 waits to send to worker 1; worker 1 waits to send to worker 2; "
            "worker 2 waits to send to worker 0",
        ),
        (
            lambda rank, size, array, send, receive: receive(),
            "worker 0 waits to receive from worker 2; worker 1 waits to receive from worker 0; "
            "worker 2 waits to receive from worker 1",
        ),
        (
            lambda rank, size, array, send, receive: receive() if rank == 1 else None,
            "worker 0 has ended; worker 1 waits to receive from worker 0; worker 2 has ended",
        ),
    ],
)
def test_a_deadlock_says_who_waits_for_whom(program, message):
    with pytest.raises(ring.Deadlock) as found:
        ring.run_together(program, [np.ones(2)] * 3)
    assert str(found.value) == message


def test_a_worker_that_never_stops_is_stopped():
    def for_ever(rank, size, array, send, receive):
        while True:
            ring_pass(rank, array, send, receive)

    with pytest.raises(ring.TooMuch, match="worker 0 has sent 40 times, and goes on"):
        ring.run_together(for_ever, [np.ones(2)] * 2)


def test_sent_arrays_are_copies():
    def change_after_sending(rank, size, array, send, receive):
        if rank == 0:
            send(array)
            array[:] = 7
        else:
            array[:] = receive()

    assert ring.run_together(change_after_sending, [np.ones(1), np.zeros(1)]).arrays == [[7.0], [1.0]]


def test_processes_come_to_the_same_bits(rng):
    arrays = arrays_of(3, 10_001, rng)
    here, there = ring.run_together(ring.all_reduce, arrays), ring.run_in_processes(ring.all_reduce, arrays)
    for ours, theirs in zip(here.arrays, there.arrays, strict=True):
        assert ours.tobytes() == theirs.tobytes()
    assert [note[:4] for note in there.sent] == [note[:4] for note in here.sent]
    assert all(0 <= note.begin <= note.end for note in there.sent)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (stop_in_the_middle, "^worker 1 has died$"),
        (fail_in_the_middle, "^worker 1 failed: ValueError: 12 are too many$"),
    ],
)
def test_a_failing_process_ends_all_others(program, message):
    with pytest.raises(RuntimeError, match=message):
        ring.run_in_processes(program, [np.ones(12)] * 2)


def test_no_process_is_started_for_a_deadlock(monkeypatch):
    monkeypatch.setattr(ring.subprocess, "Popen", None)
    with pytest.raises(ring.Deadlock):
        ring.run_in_processes(lambda rank, size, array, send, receive: send(array), [np.ones(2)] * 2)
