"""One training run at a time in a folder."""

import contextlib
import errno
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cnn_numba.train.records import FILES
from cnn_numba.whole_files import remove_leftovers

#: The file that is locked while a training run writes to its folder; it names the process.
LOCK = ".training"
# The errors of a file system without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class FolderInUse(OSError):
    """Another training run writes to the folder; the message says which."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, created if necessary, against other training runs; remove the temporary files in it.

    The lock is the kernel's and ends with the process. On a file system without locks, the process named in
    the file holds the lock until it is known to be gone. Raises FolderInUse if another run has locked it, an
    OSError that names the folder if it can't be written to.
    """
    path = folder / LOCK
    with created(folder, "out"), _locked(path) as file:
        try:
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            about = {"host": socket.gethostname(), "process": os.getpid(), "since": since}
            with contextlib.suppress(OSError):  # a full disk: the lock works without the text
                file.truncate(0)
                file.write(json.dumps(about).encode())
            for name in FILES:
                remove_leftovers(folder, f".{name}.partial*", age=0)
            yield
        finally:
            path.unlink(missing_ok=True)  # before the lock ends: afterwards it may be the next run's


@contextlib.contextmanager
def created(folder: Path, name: str) -> Iterator[None]:
    """Create a folder, which can be written to; remove it at the end if it is still empty.

    Otherwise raise an OSError; `name` is the folder's in the message.
    """
    made = [each for each in (folder, *folder.parents) if not os.path.exists(each)]  # which never raises
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            what = f"must be a folder that can be written to, got {folder}: {error.strerror}"
            raise type(error)(f"{name} {what}") from None
        yield
    finally:
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()


def _locked(path):
    """Return the file, opened and locked."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)  # a run that failed may have removed it just now
        file = open(path, "a+b", buffering=0, opener=_open)
        try:
            _lock(file, path)
            # The previous run may have removed the file after we opened it: lock the new one.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _open(path, flags):
    """Open the file without following links: one in another user's folder may point to any file of ours."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _lock(file, path):
    try:
        import fcntl  # which Windows lacks

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(path, _holder(file)) from None
    except (ImportError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        holder = _holder(file)
        if not _is_gone(holder):
            raise _in_use(path, holder, f"; if that one is gone for certain, delete {path}") from None


def _holder(file):
    """Return the text of the run that holds the lock as a dict; empty if it has not written it yet."""
    file.seek(0)
    try:
        holder = json.load(file)
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _is_gone(holder):
    """Return whether no process is named, or it has ended; on another host it counts as running."""
    try:
        host, process = holder["host"], int(holder["process"])
        if host == socket.gethostname() and os.name != "nt":
            os.kill(process, 0)
    except (LookupError, TypeError, ValueError, OverflowError, ProcessLookupError):
        return True
    except PermissionError:  # another user's process
        pass
    return False


def _in_use(path, holder, advice=""):
    known = {"process": "?", "host": "?", "since": "?"} | holder
    who = "process {process} on {host}, since {since}".format(**known)
    return FolderInUse(
        f"another training run writes to {path.parent} ({who}): wait until it ends, or give another folder "
        f"(--out on the command line){advice}"
    )
