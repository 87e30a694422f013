"""Data-parallel training in processes, under torchrun and without: numbers, lost workers, and their lines."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import write_few_digits

from cnn_numba.data import load
from cnn_numba.nn.models import mnist_cnn
from cnn_numba.train.checkpoint import load_checkpoint
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import Adam
from cnn_numba.train.phases import Phase

pytest.importorskip("torch")

SCRIPT = str(Path(__file__).with_name("one_of_many.py"))
IMAGES, BATCH = 330, 33  # ten steps per epoch, shares of 17 and 16
LONG = 900  # seconds that a stalled machine may take


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Return the environment of a process with a few images of MNIST and no GPU.

    Each worker would need its own.
    """
    data = tmp_path / "data"
    data.mkdir()
    write_few_digits(data, IMAGES, 50)
    monkeypatch.setenv("CNN_NUMBA_DATA", str(data))
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    load("mnist")  # converts the files, which several at once would do
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    folder = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def start(environment, size, what, rank, *options):
    """Start workers without torchrun; the event hits this rank before step 5."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    where = {"WORLD_SIZE": str(size), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    command = [sys.executable, SCRIPT, what, str(rank), "5", "train", "--batch-size", str(BATCH), *options]
    return [
        subprocess.Popen(
            command,
            env={**environment, **where, "RANK": str(each)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for each in range(size)
    ]


def ended(process):
    """Return the exit status of a process, and its stderr."""
    errors = process.communicate(timeout=LONG)[1]
    return process.returncode, errors


# This one comes first: it compiles, in this process, what later workers find in the cache.
@pytest.mark.slow
def test_under_torchrun_a_killed_worker_costs_an_epoch_at_most(environment, tmp_path):
    out, timeline = tmp_path / "run", tmp_path / "timeline.json"
    out.mkdir()
    # The folder holds the checkpoint of an earlier run: it must be moved, and not used for this one.
    dataset, model = load("mnist"), mnist_cnn(BATCH)
    expected = fit(model, dataset, Adam(model, lr=3e-3), epochs=4, out=out, progress=False)
    options = "--epochs", "4", "--batch-size", str(BATCH), "--out", str(out), "--timeline", str(timeline)
    torchrun = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"
    done = subprocess.run(
        [sys.executable, *torchrun, SCRIPT, "SIGKILL", "1", "25", "train", *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("cnn-numba: worker")]
    again = f"torchrun --nproc-per-node 2 -m cnn_numba train --resume --out {out}"
    assert re.fullmatch(
        r"cnn-numba: worker 1 of 2 was killed \(process \d+\); the last checkpoint is "
        rf"{re.escape(str(out))}/checkpoint\.npz, after epoch 2; go on with: {re.escape(again)}",
        line,
    ), line
    assert "Traceback" not in done.stderr
    assert f"Resuming {out}/checkpoint.npz at epoch 3, step 1" in done.stdout
    assert sorted(path.name for path in out.glob("earlier-*")) == ["earlier-1"]
    assert load_checkpoint(out / "earlier-1" / "checkpoint.npz").progress["history"] == expected
    # To the rounding of sums in another order, which 40 steps of Adam multiply.
    history = json.loads((out / "history.json").read_text())
    for ours, theirs in zip(history, expected, strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], abs=2e-4)
        assert ours["test_loss"] == pytest.approx(theirs["test_loss"], abs=2e-4)
    assert_timeline(json.loads(timeline.read_text()))


def assert_timeline(record):
    layers = [["linear2", "linear1"], ["conv2", "conv1"]]
    assert [bucket["layers"] for bucket in record["buckets"]] == layers
    assert sum(bucket["bytes"] for bucket in record["buckets"]) == 4 * 225_034
    assert (record["workers"], record["batch_size"], record["model"]) == (2, BATCH, "mnist_cnn")
    assert len(record["steps"]) == 3
    events = record["events"]
    assert min(event["start"] for event in events) == 0
    assert all(event["start"] <= event["end"] for event in events)
    for worker in range(2):
        for step in record["steps"]:
            mine = [event for event in events if (event["worker"], event["step"]) == (worker, step)]
            sums = [event for event in mine if event["kind"] == "reduce"]
            spans = {Phase(e["kind"], e["layer"]): e for e in mine if e not in sums}
            assert len(spans) + len(sums) == len(mine)
            last, end = [Phase("backward", names[-1]) for names in layers], Phase("wait")
            kinds = [Phase(kind) for kind in ("gather", "forward", "loss")]
            phases = [*kinds, Phase("backward", "linear2"), last[-1], end, Phase("update")]
            assert [phase for phase in spans if phase in phases] == phases
            for event in sums:
                assert spans[last[event["bucket"]]]["end"] <= event["start"]
                assert event["end"] <= spans[end]["end"] + 1e-3


@pytest.mark.exhaustive("the one that is killed under torchrun is given up as well")
def test_all_others_give_up_a_hung_worker(environment, tmp_path):
    workers = start(environment, 3, "SIGSTOP", 2, "--timeout", "3", "--out", str(tmp_path / "run"))
    try:
        for worker in workers[:2]:
            status, errors = ended(worker)
            assert status == 1
            (line,) = [line for line in errors.splitlines() if line.startswith("cnn-numba: worker")]
            assert re.fullmatch(
                r"cnn-numba: worker 2 of 3 has sent no heartbeat for \d+ s \(process \d+ on \S+\); no "
                r"checkpoint of this run has been written yet",
                line,
            )
            assert "Traceback" not in errors
    finally:
        workers[2].kill()
        workers[2].communicate()


@pytest.mark.exhaustive("the worker that is killed under torchrun is named as well")
def test_a_killed_first_worker_is_named_by_the_others(environment, tmp_path):
    workers = start(environment, 2, "SIGKILL", 0, "--out", str(tmp_path / "run"))
    assert ended(workers[0])[0] == -signal.SIGKILL
    begun = time.monotonic()
    status, errors = ended(workers[1])
    assert time.monotonic() - begun < 30
    assert status == 1
    assert re.fullmatch(r"cnn-numba: worker 0 of 2 was killed \(process \d+\); no checkpoint.*\n", errors)


@pytest.mark.exhaustive(
    "test_workers.py: what a worker that ends says to the others; a killed one in processes"
)
def test_an_exception_on_one_worker_ends_the_others_with_its_message(environment, tmp_path):
    workers = start(environment, 2, "error", 1, "--out", str(tmp_path / "run"))
    assert "something is wrong here" in ended(workers[1])[1]
    status, errors = ended(workers[0])
    assert status == 1
    expected = (
        "cnn-numba: worker 1 of 2 has ended: ValueError: something is wrong here; no checkpoint of this run"
    )
    assert errors.splitlines()[-1].startswith(expected)
    assert "Traceback" not in errors


@pytest.mark.exhaustive(
    "test_workers.py: interrupted workers tell how to go on; test_training.py: an interrupt saves"
)
def test_ctrl_c_on_one_worker_stops_all_after_the_same_step_and_saves(environment, tmp_path):
    out = tmp_path / "run"
    first, second = start(environment, 2, "SIGINT", 1, "--out", str(out))
    status, errors = ended(first)
    assert status == 130
    assert re.search(r"^cnn-numba: interrupted at epoch 1, step [56]; saved in ", errors.splitlines()[-1])
    assert ended(second) == (130, "")
    assert load_checkpoint(out / "checkpoint.npz").progress["workers"] == 2


def listening(first):
    """Return the addresses at which a process and its children listen, as in /proc."""
    sockets = {}
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                sockets[f"socket:[{inode}]"] = local.partition(":")[0]
    family, found = {first}, set()
    for process in sorted(map(int, (path.name for path in Path("/proc").glob("[0-9]*")))):
        with contextlib.suppress(OSError):  # it has ended
            parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
            if process in family or parent in family:
                family.add(process)
                found |= {sockets.get(os.readlink(each)) for each in Path(f"/proc/{process}/fd").iterdir()}
    return found - {None}


@pytest.mark.exhaustive("the first test here: workers under torchrun; this line differs in where they meet")
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
def test_the_line_for_a_shared_machine_opens_no_port(environment, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "many-workers.md").read_text()
    (line,) = [block for block in re.findall("```bash\n(.*?)```", page, re.DOTALL) if "store_type" in block]
    line = line.strip().replace("torchrun", f"{sys.executable} -m torch.distributed.run", 1)
    line += f" --epochs 10 --batch-size {BATCH} --device cpu --out {tmp_path / 'run'}"
    with open(tmp_path / "log", "w") as log:
        training = subprocess.Popen(
            ["bash", "-c", line], env=environment, stdout=log, stderr=log, start_new_session=True
        )
    seen = set()
    while training.poll() is None:
        seen |= listening(training.pid)
        time.sleep(0.05)
    assert training.returncode == 0, (tmp_path / "log").read_text()
    assert load_checkpoint(tmp_path / "run" / "checkpoint.npz").progress["workers"] == 2
    assert seen == {"0100007F"}  # 127.0.0.1, its bytes reversed
