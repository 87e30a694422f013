"""Machine code on disk: what one process has compiled is there for all later ones.

A file is named after all that its content follows from: the PTX, the shape of a block, the processor, LLVM,
and the sources of the emulator and its frontends. It begins with a digest of its name and content, so that a
damaged one is compiled again, and it is put in its place whole, so that several processes may use the folder
at once. What is in it runs: a folder or a file that another user may have written to is not used.
"""

import contextlib
import functools
import hashlib
import os
import re
import tempfile
import time
import warnings
from pathlib import Path

import platformdirs

from gpuless.trust import doubt, doubt_folder

#: Bytes that the folder may hold; above it the files that nobody has used for longest go.
LIMIT = 1 << 29
_DIGEST = hashlib.sha256().digest_size
_DAY = 86400
_OURS = ".gpuless"  # how our files' names end; the folder may be one where others have theirs

#: The emulator, and the frontends, which say how kernels from disk are found and put together again.
_FOLDERS = [Path(__file__).parents[2] / name for name in ("emulator", "frontends")]

# Numba numbers its functions and arrays as they come, which differs from process to process.
_NUMBERED = re.compile(r"\b_(?:Z|cudapy_)[\w$]*")
_NO_CODE = re.compile(r"^\s*\.(?:loc|file)\b[^\n]*", re.M)


def folder():
    """Return where machine code is kept: ``GPULESS_CACHE``, or the user's folder for caches."""
    return Path(os.environ.get("GPULESS_CACHE") or platformdirs.user_cache_dir("gpuless", False)).expanduser()


def key(ptx, *rest):
    """Return the name of what follows from PTX and the rest.

    `ptx`: names in it count in the order in which they appear, and where its source stands does not count;
    `rest`: names among them count as they do in the PTX.
    """
    names = {}
    texts = (_NO_CODE.sub("", ptx), *map(str, rest))
    return digest(
        *(_NUMBERED.sub(lambda name: names.setdefault(name[0], f"_Z{len(names)}"), text) for text in texts)
    )


def digest(*parts):
    """Return the name of what follows from these, and from the emulator."""
    return hashlib.sha256(repr([_sources(), *parts]).encode()).hexdigest()


@functools.cache
def _sources():
    """Return a digest of the sources of what compiles, which is another compiler once they change."""
    whole = hashlib.sha256()
    for place in _FOLDERS:
        for path in sorted(place.rglob("*.py")):
            whole.update(path.read_bytes())
    return whole.hexdigest()


def read(name):
    """Return what is kept under a name; None where there is nothing, or nothing sound."""
    try:
        path = _place() / (name + _OURS)
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            _refuse(path, doubt(state))
            digest, content = file.read(_DIGEST), file.read()
        if time.time() - state.st_mtime > _DAY:
            os.utime(path)  # it is in use
    except OSError:
        return None
    return content if _seal(name, content) == digest else None


def write(name, content):
    """Keep bytes under a name, where that can be done."""
    with contextlib.suppress(OSError):
        place = _place()
        _make_room(place)
        handle, partial = tempfile.mkstemp(_OURS, ".partial-", place)
        try:
            with open(handle, "wb") as file:
                file.write(_seal(name, content) + content)
            os.replace(partial, place / (name + _OURS))
        except OSError:
            os.unlink(partial)
            raise


def _seal(name, content):
    return hashlib.sha256(name.encode() + content).digest()


def _place():
    """Return the folder, made where there is none.

    Raises OSError if that cannot be done, or somebody else may put files into it.
    """
    place = Path(os.path.realpath(folder()))
    place.mkdir(0o700, parents=True, exist_ok=True)
    _refuse(place, doubt_folder(place))
    return place


_refused = set()


def _refuse(path, reason):
    """If there is a reason not to use a folder or a file, say it once and raise an OSError."""
    if not reason:
        return
    if folder() not in _refused:
        _refused.add(folder())
        warnings.warn(
            f"compiled kernels in {path} are not used: {reason}. Each process compiles kernels again; set "
            "GPULESS_CACHE to a folder that only you may write to (chmod 700), or delete what is not yours",
            RuntimeWarning,
            stacklevel=1,
        )
    raise PermissionError(path)


@functools.cache
def _make_room(place):
    """Once in a process: let go what nobody has used for longest, and what was left half-written."""
    found = []
    for entry in os.scandir(place):
        if not entry.name.endswith(_OURS):
            continue
        state = entry.stat()
        left = entry.name.startswith(".partial-") and time.time() - state.st_mtime > _DAY
        found.append((0.0 if left else state.st_mtime, state.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    for used, size, path in sorted(found):
        if used and total <= LIMIT:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        total -= size
