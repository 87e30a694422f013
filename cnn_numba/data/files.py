"""The original files of the data sets: found, checked, recognised, read, or downloaded.

MNIST lies in a checkout and comes from its mirrors elsewhere, torchvision downloads two sets, one is drawn.
How CIFAR-10's files are read is in `cnn_numba.data.cifar`.
"""

import contextlib
import errno
import gzip
import hashlib
import http.client
import io
import math
import os
import re
import shutil
import socket
import tempfile
import threading
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cnn_numba import extras
from cnn_numba.arguments import shown
from cnn_numba.data import cifar, pictures

CHECKOUT = extras.CHECKOUT
ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
_IDX_STEMS = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
# The header of an IDX file with three axes; and more entries than any set in MNIST's format has: EMNIST, the
# largest, has 814,255.
_LONGEST_HEADER = 16
_MOST = 1_000_000
_LARGEST = _LONGEST_HEADER + _MOST * 28 * 28
_NETWORK_SECONDS = 4.0
# What a disk says, and a network never does.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)


class DataError(ValueError):
    """A data set that is missing or not what it should be; the message names the file and the fix."""


class Source(NamedTuple):
    """What a data set is made of.

    `url` is where torchvision downloads it from, `mirrors` are folders of the four packed files; `digests`
    are the SHA-256 of its unpacked files, by which it is told from others with the same file names, or which
    they must have. `versions` are those of a set in CIFAR-10's format, and `write` makes the files of one
    that is drawn.
    """

    title: str
    folder: str
    image_shape: tuple
    mean: float
    std: float
    classes: tuple
    url: str | None = None
    mirrors: tuple = ()
    digests: tuple = ()
    versions: tuple = ()
    write: Callable | None = None


SOURCES = {
    "mnist": Source(
        title="MNIST",
        folder="MNIST/raw",
        image_shape=(1, 28, 28),
        mean=0.0,
        std=1.0,
        classes=tuple("0123456789"),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://raw.githubusercontent.com/cnn-numba/cnn-numba/main/data/mnist/",
        ),
        digests=(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    "fashion-mnist": Source(
        title="Fashion-MNIST",
        folder="FashionMNIST/raw",
        image_shape=(1, 28, 28),
        mean=0.0,
        std=1.0,
        classes=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-labels-idx1-ubyte.gz",
        digests=(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    "cifar10": Source(
        title="CIFAR-10",
        folder="cifar-10-batches-py",
        image_shape=(3, 32, 32),
        mean=0.5,
        std=0.5,
        classes=(
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        versions=(cifar.PYTHON, cifar.BINARY),
    ),
    "made-pictures": Source(
        title="the made pictures",
        folder="made-pictures",
        image_shape=cifar.SHAPE,
        mean=0.5,
        std=0.5,
        classes=pictures.KINDS,
        digests=(
            "90ff435d3fce2cd8633b8c8f94816c647c60cf6f6ba14171cb479d4a3396f4e9",
            "5275bc2db43548a415684ddfda2ab218a0c20b6966648d7fc26d2d3b10bad2ff",
            "a8ef3696f3db71904c58c9fac9e779a9d161ff5ac0821cc14f54ac2cb42926c3",
            "14940c32b321969e6a40c0b5a3d6c0e52b5bc19f9b1e3c6406d93b6440899579",
            "832713d0d892b5d4589127cd6643981c9897d1de1c970db4d9c9a88d82878b95",
            "0287252af0dd384317b6e2d72ef1d38bee8a601702c3f0c8de1e41d1c136cdfc",
        ),
        versions=(cifar.Version("made-pictures", None, ".bin", pictures.BATCH),),
        write=pictures.write,
    ),
}


def source_of(name):
    """Return what the data set `name` is made of; an unknown name is a ValueError."""
    if not isinstance(name, str) or name not in SOURCES:
        raise ValueError(f"no data set is called {shown(name)}; choose from {', '.join(SOURCES)}")
    return SOURCES[name]


# --- Where they are ---------------------------------------------------------------------------------------


def committed_folder():
    """Return the folder of the MNIST that comes with a checkout."""
    return CHECKOUT / "data" / "mnist"


def data_folder(name, data_dir):
    """Return the folder that must hold the original files, or None where they are downloaded."""
    chosen = data_dir or os.environ.get("CNN_NUMBA_DATA")
    if SOURCES[name].write and not data_dir:
        return None  # it is drawn, whatever else lies in the folder of the others
    if chosen:
        folder = Path(chosen).expanduser()
        if not os.path.isdir(folder):  # which answers where a Path's own raises: of a name that is too long
            origin = "--data-dir / data_dir" if data_dir else "the environment variable CNN_NUMBA_DATA"
            raise DataError(f"{origin} names {folder}, which is not a folder; give the one that holds {name}")
        return folder
    return committed_folder() if name == "mnist" and committed_folder().is_dir() else None


def find_files(name, folder):
    """Return the original files of a data set, as a dict from a short name to a path."""
    source, missing = SOURCES[name], []
    for place, names in _layouts(source, folder):
        found = {}
        for key, candidates in names.items():
            paths = [place / file for file in candidates]
            found[key] = next((path for path in paths if path.is_file()), None)
        if all(found.values()):
            return found
        if any(found.values()):
            missing = [str(place / names[key][-1]) for key, path in found.items() if path is None]
    if missing:
        raise DataError(f"{source.title} lacks {', '.join(missing)}; {_fix(folder)}")
    raise DataError(f"{folder} holds no {source.title}: {_wanted(source, folder)}; {_fix(folder)}")


def _layouts(source, folder):
    """Yield each place where a data set may lie, and the names that each of its files may have there."""
    if not source.versions:
        for place in (folder, folder / source.folder):
            yield place, {key: (f"{stem}.gz", stem) for key, stem in _IDX_STEMS.items()}
    for version in source.versions:
        for place in (folder / version.folder, folder):
            yield place, {batch: (batch + version.ending,) for batch in cifar.BATCHES}
        if version.archive:
            yield folder, {"archive": (version.archive,)}


def _wanted(source, folder):
    """Say what was looked for."""
    if not source.versions:
        names = ", ".join(_IDX_STEMS.values())
        return f"neither it nor {folder / source.folder} has the files {names}"
    batches = (", ".join(batch + version.ending for batch in cifar.BATCHES) for version in source.versions)
    folders = " or ".join(version.folder for version in source.versions)
    archives = "".join(f", nor is there {version.archive}" for version in source.versions if version.archive)
    return f"neither it nor a folder {folders} in it has the files {' or '.join(batches)}{archives}"


def _fix(folder):
    """Say how to get good files into `folder`."""
    if Path(folder) == committed_folder():
        return "restore the committed files with: git checkout -- data/mnist"
    return f"put a fresh copy of the original files into {folder}"


# --- Where new files are made -----------------------------------------------------------------------------


@contextlib.contextmanager
def working_folder(parent):
    """Make a folder for files under construction beside the cache; it is removed in the end.

    An OSError inside counts as one of writing.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            # Where there are no such locks, `remove_leftovers` gets none either and removes nothing.
            with contextlib.suppress(OSError, ImportError):
                stack.enter_context(_lock(parent, shared=True))
            working = tempfile.TemporaryDirectory(prefix=".partial-", dir=parent, ignore_cleanup_errors=True)
            yield Path(stack.enter_context(working))
    except OSError as error:
        raise DataError(
            f"cannot write to the cache folder {parent} ({error.strerror or error}); free space there, make "
            "it writable, or name another folder by the environment variable CNN_NUMBA_CACHE"
        ) from None


def remove_leftovers(cache):
    """Remove the working folders that killed processes left in the cache, unless a live one works beside."""
    for leftover in cache.glob("*/.partial-*"):
        with contextlib.suppress(OSError, ImportError), _lock(leftover.parent, shared=False):
            shutil.rmtree(leftover, ignore_errors=True)


@contextlib.contextmanager
def _lock(folder, shared):
    """Lock a folder, together with others or, if nobody has it, alone; the lock dies with its process."""
    import fcntl  # which Windows lacks

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


# --- Reading ----------------------------------------------------------------------------------------------


def convert(name, files, log):
    """Read the original files; return four arrays, and the data set that is recognised by checksums or None.

    `name` may be None for either of the two MNISTs.
    """
    folder = next(iter(files.values())).parent
    in_batches = name is not None and SOURCES[name].versions
    if in_batches:
        version, contents = _batches(SOURCES[name], files)
        recognised = name
    else:
        contents = {array: _content(path) for array, path in files.items()}
        recognised = _recognise(files, contents)
    source = SOURCES[settle(name, recognised, folder)]
    log(f"Converting {source.title} to arrays (once) ...")
    arrays = _convert_batches(version, files, contents) if in_batches else _convert_idx(files, contents)
    check(arrays, source, files)
    return arrays, recognised


def settle(name, recognised, folder):
    """Return the name of the data set in `folder`; one asked for that it is known not to be is an error."""
    if name and recognised and name != recognised:
        raise DataError(
            f"{folder} does not hold {name}: its files are those of {recognised}, by their checksums; choose "
            f"{recognised}, or give the folder that holds {name}"
        )
    return recognised or name or "mnist"


def _recognise(files, contents):
    """Return which data set has a file of this content, if any; files of different ones are an error."""
    known = {}
    for array, content in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        known |= {name: files[array] for name, source in SOURCES.items() if digest in source.digests}
    if len(known) > 1:
        whose = ", but ".join(f"{path} is a file of {name}" for name, path in known.items())
        raise DataError(f"{whose}; {_fix(next(iter(files.values())).parent)}")
    return next(iter(known), None)


def _content(path):
    """Return the bytes of a file that agrees with its checksum, unpacked if it ends in .gz."""
    content = _read(path)
    _check_sha256(path, content)
    if path.suffix != ".gz":
        return content
    try:
        with _naming(path):
            return _unpacked(content)
    except EOFError:
        raise DataError(f"{path} is truncated: its gzip stream ends early; {_fix(path.parent)}") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is corrupted or no gzip file: {error}; {_fix(path.parent)}") from None


def _unpacked(packed):
    """Return the content of a packed IDX file: what its header announces, and a bit of what is too much."""
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
        header = file.read(_LONGEST_HEADER)
        lengths = _announced(header)
        if lengths[0] > _MOST or math.prod(lengths) > _MOST * 28 * 28:
            raise ValueError(
                f"says that it holds {' x '.join(map(str, lengths))} bytes; it is not unpacked, as no set in "
                f"MNIST's format has more than {_MOST:,} images of 28 x 28"
            )
        return header + file.read(math.prod(lengths) + 1)


def _announced(header):
    """Return the lengths of the axes that the beginning of an IDX file tells; [0] if it is none."""
    end = 4 * (1 + header[3]) if header[:3] == bytes((0, 0, 8)) and len(header) > 3 else 0
    return [int.from_bytes(header[i : i + 4], "big") for i in range(4, min(end, len(header)), 4)] or [0]


def _read(path):
    try:
        if (size := path.stat().st_size) > _LARGEST:
            raise DataError(
                f"{path} has {size:,} bytes, more than any file of these sets; {_fix(path.parent)}"
            )
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror or error}); {_fix(path.parent)}") from None


def _check_sha256(path, content):
    """Compare the content of `path` with the SHA256SUMS beside it, if there is one."""
    sums = path.with_name("SHA256SUMS")
    if not sums.is_file():
        return
    expected = {digest for digest, file in _checksums(sums) if file == path.name}
    if expected - {hashlib.sha256(content).hexdigest()}:
        raise DataError(
            f"{path} ({len(content)} bytes) is truncated or changed: its SHA-256 is not the one in {sums}; "
            f"{_fix(path.parent)}"
        )


def _checksums(sums):
    """Yield (digest, file) for each line as `sha256sum` writes it, between blank lines and # comments."""
    content = _read(sums)
    # A shell of Windows may write UTF-16. A name that cannot be decoded is none of ours, and does no harm.
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    for number, line in enumerate(content.decode(encoding, "replace").split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        # A backslash in front marks a name with an escape in it; an asterisk, a file read as binary.
        match = re.fullmatch(r"\\?([0-9a-fA-F]{64})\s+\*?(.+)", line)
        if not match:
            raise DataError(
                f"{sums}, line {number}: {line[:80]!a} is not a SHA-256 and the name of a file; correct the "
                "line, or make the list anew with sha256sum"
            )
        yield match[1].lower(), os.path.normpath(match[2])


def _convert_idx(files, contents):
    """Read four IDX files, as MNIST and Fashion-MNIST have them."""
    arrays = {}
    for name, content in contents.items():
        lengths = _idx_lengths(files[name], content, dimensions=3 if "images" in name else 1)
        array = np.frombuffer(content, np.uint8)[len(content) - math.prod(lengths) :].reshape(lengths)
        arrays[name] = array[:, np.newaxis].copy() if "images" in name else array.astype(np.int32)
    return arrays


def _idx_lengths(path, content, dimensions):
    """Return the lengths of the axes from an IDX header: 0, 0, 8 (bytes), how many axes, their lengths."""
    header = content[: 4 * (1 + dimensions)]
    if header[:4] != bytes((0, 0, 8, dimensions)):
        raise DataError(
            f"{path} is not an IDX file of bytes with {dimensions} axes: it starts with "
            f"{header[:4].hex(' ') or 'nothing'}; {_fix(path.parent)}"
        )
    if len(header) < 4 * (1 + dimensions):
        raise DataError(f"{path} is truncated: it ends inside its header; {_fix(path.parent)}")
    lengths = _announced(header)
    expected = len(header) + math.prod(lengths)
    if lengths[0] == 0:
        raise DataError(f"{path} is an empty set: it says it holds 0 entries; {_fix(path.parent)}")
    if len(content) != expected:
        wrong, held = ("truncated", len(content)) if len(content) < expected else ("too long", "more")
        raise DataError(
            f"{path} is {wrong}: it should hold {expected} bytes ({' x '.join(map(str, lengths))} entries "
            f"and a header), but holds {held}; {_fix(path.parent)}"
        )
    return lengths


def _batches(source, files):
    """Return which version of CIFAR-10's format the files are, and each batch's content, checked."""
    contents = {}
    for key, path in files.items():
        contents[key] = _read(path)
        _check_sha256(path, contents[key])
        with _naming(path):
            cifar.check_md5(path.name, contents[key])
    endings = [path.name.removeprefix(key) for key, path in files.items()]
    version = next(v for v in source.versions if v.archive in endings or {v.ending} == set(endings))
    if "archive" in files:
        with _naming(files["archive"]):
            return version, cifar.unpacked(version, contents["archive"])
    for (key, path), digest in zip(files.items(), source.digests, strict=False):
        if hashlib.sha256(contents[key]).hexdigest() != digest:
            raise DataError(f"{path} is truncated or changed: its SHA-256 is another; {_fix(path.parent)}")
    return version, contents


def _convert_batches(version, files, contents):
    """Read five batches to train with and one to test with."""
    parts = {}
    for batch, content in contents.items():
        with _naming(files.get(batch) or files["archive"]):
            parts[batch] = cifar.read(version, content)
    *train, test = (parts[batch] for batch in cifar.BATCHES)
    images, labels = map(np.concatenate, zip(*train, strict=True))
    return dict(zip(ARRAYS, (images, labels, *test), strict=True))


@contextlib.contextmanager
def _naming(path):
    """Put a file's name before what is wrong with its content, and the fix behind it."""
    try:
        yield
    except ValueError as error:
        raise DataError(f"{path} {error}; {_fix(path.parent)}") from None


# --- Downloading ------------------------------------------------------------------------------------------


def download(name, cache, log):
    """Draw or download a data set; return what `convert` does, or say why that cannot be.

    The files themselves lie in the folder `cache` until they are converted, and are not kept.
    """
    source = SOURCES[name]
    if source.mirrors:
        return _from_mirrors(name, cache, log)
    if source.write:
        log(f"Drawing {source.title} (once) ...")
        with working_folder(cache) as working:
            source.write(working)
            return convert(name, find_files(name, working), log)
    if not source.url:
        raise DataError(
            f"{source.title} is not here; name the folder with {source.folder} in it: --data-dir FOLDER"
        )
    _need_torchvision(f"Downloading {source.title}")
    fix = (
        "connect to the network once, or copy the data set from elsewhere and name its folder "
        f"(the one with {source.folder} in it): --data-dir FOLDER"
    )
    log(f"Downloading {source.title} (once) ...")
    problem = _network_problem(source.url)
    if problem:
        raise DataError(f"cannot download {source.title} from {source.url}: {problem}; {fix}")
    from torchvision import datasets

    kind = datasets.CIFAR10 if name == "cifar10" else datasets.FashionMNIST
    timeout = socket.getdefaulttimeout()
    with working_folder(cache) as working:
        socket.setdefaulttimeout(5 * _NETWORK_SECONDS)
        try:
            kind(working, download=True)
        except (OSError, RuntimeError) as error:
            if getattr(error, "errno", None) in _DISK_ERRORS:
                raise
            reason = " ".join(str(error).split())
            raise DataError(
                f"the download of {source.title} from {source.url} failed: {reason}; {fix}"
            ) from None
        finally:
            socket.setdefaulttimeout(timeout)
        return convert(name, find_files(name, working), log)


def _from_mirrors(name, cache, log):
    """Download four packed files, each from the first mirror that has the right one."""
    source = SOURCES[name]
    log(f"Downloading {source.title} (once, 12 MB) ...")
    mirrors, problems = list(source.mirrors), {}
    with working_folder(cache) as working:
        for stem, digest in zip(_IDX_STEMS.values(), source.digests, strict=True):
            content = None
            while mirrors and content is None:
                try:
                    content = _fetched(mirrors[0] + f"{stem}.gz", digest)
                except _Unreachable as error:  # what has failed once is not asked again
                    problems[mirrors.pop(0)] = error
            if content is None:
                told = "; ".join(f"{mirror}: {problem}" for mirror, problem in problems.items())
                raise DataError(
                    f"{source.title} is not here and cannot be downloaded ({told}); connect to the network "
                    "once, or name a folder with its four files, such as data/mnist of a clone of the "
                    "repository, by --data-dir or the environment variable CNN_NUMBA_DATA"
                )
            (working / stem).write_bytes(content)
        return convert(name, find_files(name, working), log)


class _Unreachable(Exception):
    """Why a mirror does not give the file that it should."""


def _fetched(url, digest):
    """Return the unpacked content of `url`, which has this SHA-256."""
    if problem := _network_problem(url):
        raise _Unreachable(problem)
    try:
        with urllib.request.urlopen(url, timeout=5 * _NETWORK_SECONDS) as answer:
            content = _unpacked(answer.read())
    except (OSError, EOFError, ValueError, zlib.error, http.client.HTTPException) as error:
        raise _Unreachable(getattr(error, "reason", None) or error) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise _Unreachable(f"{url.rpartition('/')[2]} there is another file, by its SHA-256")
    return content


def _need_torchvision(purpose):
    try:
        extras.need("torchvision", purpose)
    except extras.MissingPackage as error:
        raise DataError(f"{error}; a folder with its files, --data-dir FOLDER, needs none") from None


def _network_problem(url):
    """Return why `url` does not answer within a few seconds, or None if it does."""
    outcome = [f"no answer within {_NETWORK_SECONDS:.0f} seconds"]

    def probe():
        try:
            request = urllib.request.Request(url, method="HEAD")
            urllib.request.urlopen(request, timeout=_NETWORK_SECONDS).close()
            outcome[0] = None
        except urllib.error.HTTPError:
            outcome[0] = None  # It answers, if only to this question with a no: torchvision finds out more.
        except OSError as error:
            outcome[0] = str(getattr(error, "reason", error))

    # In a thread, because a name lookup knows no timeout: a daemon that hangs does not hold up the exit.
    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(_NETWORK_SECONDS + 0.5)
    return outcome[0]


# --- What came of it --------------------------------------------------------------------------------------


def check(arrays, source, files):
    """Insist that the arrays are what `source` promises; an error names the file of `files` at fault."""
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        images_at, labels_at = (
            files.get(f"{split}_{kind}") or files.get("archive") or Path(f"{source.title} ({split} set)")
            for kind in ("images", "labels")
        )
        if images.dtype != np.uint8 or images.shape[1:] != source.image_shape:
            raise DataError(
                f"{images_at} holds images of shape {images.shape[1:]} and dtype {images.dtype}, but "
                f"{source.title} has {source.image_shape} and uint8; {_fix(images_at.parent)}"
            )
        if labels.dtype != np.int32 or labels.shape != images.shape[:1]:
            raise DataError(
                f"{labels_at} holds {len(labels)} labels for the {len(images)} images of {images_at}; "
                f"{_fix(labels_at.parent)}"
            )
        if not len(images):
            raise DataError(f"{images_at} holds no images; {_fix(images_at.parent)}")
        wrong = np.flatnonzero((labels < 0) | (labels >= len(source.classes)))
        if len(wrong):
            raise DataError(
                f"{labels_at} holds label {labels[wrong[0]]} at index {wrong[0]}, outside "
                f"0..{len(source.classes) - 1}; {_fix(labels_at.parent)}"
            )
