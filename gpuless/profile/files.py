"""Atomic writing of text files."""

import os
import tempfile
from pathlib import Path


def write_whole(path: str | os.PathLike, text: str) -> None:
    """Write a file atomically: nobody ever finds a part of it, even if the process is killed."""
    target = Path(path)
    if target.exists() and not target.is_file():  # a pipe or /dev/stdout, which can't be replaced
        target.write_text(text, encoding="utf-8")
        return
    target = target.resolve()  # replace a link's target, not the link
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        error.filename = os.fspath(path)  # instead of the temporary file's
        raise
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
