"""Two training runs in one folder: the second raises, and leftovers of a killed one are no obstacle."""

import errno
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_training import run

from cnn_numba.train.checkpoint import load_checkpoint
from cnn_numba.train.lock import LOCK, FolderInUse, locked
from cnn_numba.whole_files import written_whole

HELD = re.compile(
    r"another training run writes to .* \(process (\d+) on (.*), since \d{4}-\d\d-\d\d [\d:]{8}\)"
)


@pytest.fixture
def other(tmp_path):
    """Return a process that has locked the folder."""
    code = (
        "import sys, time; from pathlib import Path; from cnn_numba.train.lock import locked\n"
        "with locked(Path(sys.argv[1])): print('locked', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        yield process
        process.kill()


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_training_raises_and_names_the_first(tmp_path, other, resume):
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(FolderInUse) as refused:
        run(tmp_path, resume=resume)
    pid, host = HELD.match(str(refused.value)).groups()
    assert (int(pid), host) == (other.pid, socket.gethostname())
    assert "\n" not in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before == [LOCK]


def test_a_training_within_a_training_raises_too(tmp_path):
    refused = []

    def train_again(step, loss):
        if step == 2:
            with pytest.raises(FolderInUse) as error:
                run(tmp_path)
            refused.append(str(error.value))

    run(tmp_path, epochs=1, on_step=train_again)
    assert f"process {os.getpid()} on" in refused[0]
    assert load_checkpoint(tmp_path / "checkpoint.npz").progress["epoch"] == 1
    assert not (tmp_path / LOCK).exists()


def test_a_killed_training_holds_no_lock_and_its_leftovers_are_removed(tmp_path, other):
    other.send_signal(signal.SIGKILL)
    other.wait()
    for name in (".checkpoint.npz.partial-0123abcd", ".history.json.partial", ".mine.partial-0123abcd"):
        (tmp_path / name).touch()
    assert json.loads((tmp_path / LOCK).read_text())["process"] == other.pid
    run(tmp_path, epochs=1)
    assert [path.name for path in tmp_path.glob(".*")] == [".mine.partial-0123abcd"]


def test_waiting_for_a_removed_file_locks_the_new_one(tmp_path, monkeypatch):
    """The earlier run ends between the opening and the locking of its file."""
    lock, times = fcntl.flock, []

    def flock(file, how):
        if not times:
            (tmp_path / LOCK).unlink()
        times.append(how)
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(tmp_path), pytest.raises(FolderInUse), locked(tmp_path):
        pass
    assert len(times) == 3


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("text")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match=re.escape(LOCK)):
        run(tmp_path / "out")
    assert (tmp_path / "mine").read_text() == "text"


# --- Where a file system has no locks ----------------------------------------------------------------------


@pytest.fixture
def no_locks(monkeypatch):
    def flock(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)


def test_without_locks_a_live_process_blocks_the_training(tmp_path, no_locks, other):
    with pytest.raises(FolderInUse) as refused:
        run(tmp_path)
    assert HELD.match(str(refused.value)).group(1) == str(other.pid)
    assert str(refused.value).endswith(f"if that one is gone for certain, delete {tmp_path / LOCK}")
    other.kill()
    other.wait()
    run(tmp_path, epochs=1)
    assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ('{"host": "elsewhere", "process": 1, "since": "today"}', False),
        ("", True),
        ("half a", True),
        ("[]", True),
        ('{"host": 3}', True),
        (f'{{"host": "{socket.gethostname()}", "process": "many"}}', True),
        (f'{{"host": "{socket.gethostname()}", "process": {10**30}}}', True),
    ],
)
def test_without_locks_the_contents_of_the_file_count(tmp_path, no_locks, text, gone):
    (tmp_path / LOCK).write_text(text)
    if gone:
        run(tmp_path, epochs=1)
    else:
        with pytest.raises(FolderInUse, match="process 1 on elsewhere, since today"):
            run(tmp_path)


def test_other_errors_of_locking_are_raised(tmp_path, monkeypatch):
    def flock(file, how):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="Input/output error"):
        run(tmp_path)


# --- Files that are written whole --------------------------------------------------------------------------


def test_concurrent_writers_never_leave_a_partial_file(tmp_path):
    path, done = tmp_path / "file", threading.Event()
    texts = [bytes([letter]) * 100_000 for letter in b"abcd"]

    def write(text):
        while not done.is_set():
            with written_whole(path) as file:
                for part in range(0, len(text), 10_000):
                    file.write(text[part : part + 10_000])

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    seen, end = set(), time.monotonic() + 60
    while (len(seen) < 300 and time.monotonic() < end) or not seen:
        if path.exists():
            seen.add((path.stat().st_ino, path.stat().st_mtime_ns))
            assert path.read_bytes() in texts
    done.set()
    for writer in writers:
        writer.join()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_old_leftovers_are_removed_by_the_next_write(tmp_path):
    for name, age in ((".file.partial", 90_000), (".file.partial-old", 90_000), (".file.partial-new", 60)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    (tmp_path / ".file.partial-folder").mkdir()  # a user's: we leave files only
    os.utime(tmp_path / ".file.partial-folder", (0, 0))
    with written_whole(tmp_path / "file") as file:
        file.write(b"text")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".file.partial-folder", ".file.partial-new", "file"]


def test_a_pipe_stays_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()), daemon=True)
    reader.start()
    with written_whole(tmp_path / "pipe") as file:
        file.write(b"text")
    reader.join(60)
    assert read == [b"text"]
    assert (tmp_path / "pipe").is_fifo()
    if Path("/dev/full").is_char_device():
        (full := tmp_path / "pipe").unlink()
        full.symlink_to("/dev/full")  # the link, because the file to replace is in this folder
        with pytest.raises(OSError, match=r"No space left on device: '.*pipe'"):
            with written_whole(full) as file:
                file.write(b"text")
        assert full.is_char_device()


def refuse(path=None, *_, **__):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))


def test_a_read_only_folder_is_named_instead_of_the_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(OSError, match=r"out must be a folder .*, got .*/runs: Read-only file system"):
        run(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_read_only_folder_names_the_file(tmp_path, monkeypatch):
    """No file can be created in the folder, nor removed: the first error is the important one."""
    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with pytest.raises(OSError, match=r"Read-only file system: '.*/file'"):
        with written_whole(tmp_path / "file"):
            pass


def test_a_full_disk_names_the_file(tmp_path):
    with pytest.raises(OSError, match=r"No space left on device: '.*file'"):
        with written_whole(tmp_path / "file"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        with written_whole(tmp_path / "file") as file:
            file.write(b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
