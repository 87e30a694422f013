"""Machine code on disk, so that later processes need not compile again.

The name of a file is a hash of all that its content depends on: the PTX, the shape of a block, the processor,
LLVM, and the sources of the emulator and its frontends. A file begins with a digest of its name and content,
so a damaged one is compiled again. It is moved into place as a whole, so several processes may share the
folder. As its content is executed, a folder or file that another user can write to is not used.
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

#: Bytes that the folder may hold; above it the least recently used files are deleted.
LIMIT = 1 << 29
_DIGEST = hashlib.sha256().digest_size
_DAY = 86400
_OURS = ".gpuless"  # the suffix of our files: the folder may hold others

#: The emulator, and the frontends, which find compiled kernels on disk and rebuild them.
_FOLDERS = [Path(__file__).parents[2] / name for name in ("emulator", "frontends")]

# Numba numbers functions and arrays in the order of their compilation, which differs between processes.
_NUMBERED = re.compile(r"\b_(?:Z|cudapy_)[\w$]*")
#: Directives that name lines of the source.
LINES = re.compile(r"^\s*\.(?:loc|file)\b[^\n]*", re.M)


def folder():
    """Return the cache's folder: ``GPULESS_CACHE``, or in the user's cache folder."""
    return Path(os.environ.get("GPULESS_CACHE") or platformdirs.user_cache_dir("gpuless", False)).expanduser()


def key(ptx, *rest):
    """Return a cache key for what depends on PTX and the rest.

    Mangled names count only by the order in which they appear, and source lines don't count.
    """
    names = {}
    texts = (LINES.sub("", ptx), *map(str, rest))
    return digest(
        *(_NUMBERED.sub(lambda name: names.setdefault(name[0], f"_Z{len(names)}"), text) for text in texts)
    )


def digest(*parts):
    """Return a hash of these and of the emulator's sources."""
    return hashlib.sha256(repr([_sources(), *parts]).encode()).hexdigest()


@functools.cache
def _sources():
    """Return a digest of the sources that compile: a changed emulator is another compiler."""
    whole = hashlib.sha256()
    for place in _FOLDERS:
        for path in sorted(place.rglob("*.py")):
            whole.update(path.read_bytes())
    return whole.hexdigest()


def read(name):
    """Return the content stored under a name; None if there is none, or if it is damaged."""
    try:
        path = _place() / (name + _OURS)
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            _refuse(path, doubt(state))
            digest, content = file.read(_DIGEST), file.read()
        if time.time() - state.st_mtime > _DAY:
            os.utime(path)  # mark it as recently used
    except OSError:
        return None
    return content if _seal(name, content) == digest else None


def write(name, content):
    """Store bytes under a name; if that fails, only warn."""
    try:
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
    except OSError as error:
        _warn(f"compiled kernels cannot be kept in {folder()}: {error.strerror}")


def _seal(name, content):
    return hashlib.sha256(name.encode() + content).digest()


def _place():
    """Return the folder; create it if necessary.

    Raises OSError if that fails, or if another user can write to it.
    """
    place = Path(os.path.realpath(folder()))
    place.mkdir(0o700, parents=True, exist_ok=True)
    _refuse(place, doubt_folder(place))
    return place


def _refuse(path, reason):
    """If there is a reason not to use a folder or a file, warn and raise an OSError."""
    if reason:
        _warn(f"compiled kernels in {path} are not used: {reason}")
        raise PermissionError(path)


_warned = set()


def _warn(problem):
    """Warn once for each folder."""
    if folder() not in _warned:
        _warned.add(folder())
        warnings.warn(
            f"{problem}. Each process compiles kernels again; set GPULESS_CACHE to a folder with free space, "
            "that only you may write to (chmod 700), or delete what is not yours",
            RuntimeWarning,
            stacklevel=1,
        )


@functools.cache
def _make_room(place):
    """Once in a process: delete the least recently used files above the limit, and old partial files."""
    found = []
    for entry in os.scandir(place):
        if not entry.name.endswith(_OURS):
            continue
        with contextlib.suppress(FileNotFoundError):  # another process has deleted it
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
