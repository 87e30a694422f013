"""Files that are written all or nothing, and what killed processes left of them."""

import errno
import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from cnn_numba.arguments import instance


@contextmanager
def written_whole(path: str | PathLike) -> Iterator[BinaryIO]:
    """Open a temporary file for bytes; it replaces `path` when it's complete, and is deleted otherwise.

    At any moment `path` is the old file or the new one. Pipes and devices are written to directly.
    """
    instance(path, "path", str, PathLike)
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # which says only that the file is there
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path.parent)) from None
    remove_leftovers(path.parent, f".{glob.escape(path.name)}.partial*")
    # Other processes may be writing the same file: each uses its own name, and the last one to finish wins.
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    try:
        if path.exists() and not path.is_file():
            with open(path, "wb") as file:
                yield file
            return
        with open(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        if error.errno and error.filename in (None, str(partial)):  # a full disk names no file
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # in a read-only folder this error would hide the one above
            partial.unlink()


def remove_leftovers(folder: Path, pattern: str, age: float = 24 * 60 * 60, folders: bool = False) -> None:
    """Remove the temporary files, or the temporary folders, that killed processes left in a folder.

    Those younger than `age` seconds stay: another process may still be writing them.
    """
    for leftover in folder.glob(pattern):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime >= age:
                shutil.rmtree(leftover, ignore_errors=True) if folders else leftover.unlink()
