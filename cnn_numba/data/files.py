"""The original files of the data sets: found, checked, recognised and read (CIFAR-10's in `cifar`)."""

import contextlib
import gzip
import hashlib
import io
import math
import os
import re
import tempfile
import zlib
from pathlib import Path

import numpy as np

from cnn_numba import extras
from cnn_numba.arguments import instance
from cnn_numba.data import cifar
from cnn_numba.data.sources import ARRAYS, IDX_STEMS, SOURCES, DataError

CHECKOUT = extras.CHECKOUT
# In bytes, of an IDX file with three axes; and more images than the largest set in MNIST's format, EMNIST,
# has: 814,255.
_LONGEST_HEADER = 16
_MOST = 1_000_000
_LARGEST = _LONGEST_HEADER + _MOST * 28 * 28


def committed_folder():
    """Return the folder of a clone's MNIST."""
    return CHECKOUT / "data" / "mnist"


def data_folder(name, data_dir):
    """Return the folder that must hold the original files, or None if they are downloaded or drawn."""
    chosen = data_dir or os.environ.get("CNN_NUMBA_DATA")
    if SOURCES[name].write and not data_dir:
        return None
    if chosen:
        instance(chosen, "data_dir", str, os.PathLike)
        folder = Path(chosen).expanduser()
        if not os.path.isdir(folder):  # Path.is_dir raises if the name is too long
            origin = "--data-dir / data_dir" if data_dir else "the environment variable CNN_NUMBA_DATA"
            problem = f"{origin} names {folder}, which is not a folder"
            raise DataError(problem, f"give the one that holds {name}")
        return folder
    return committed_folder() if name == "mnist" and committed_folder().is_dir() else None


def find_files(name, folder):
    """Return the paths of the original files of a data set, by a short name."""
    source, missing, wanted = SOURCES[name], [], {}
    for parent, names in _layouts(source, folder):
        found = {}
        for key, candidates in names.items():
            paths = [parent / file for file in candidates]
            found[key] = next((path for path in paths if path.is_file()), None)
        if all(found.values()):
            return found
        if any(found.values()):
            missing = [str(parent / names[key][-1]) for key, path in found.items() if path is None]
        wanted.setdefault(", ".join(files[-1] for files in names.values()), []).append(str(parent))
    if missing:
        raise DataError(f"{source.title} lacks {', '.join(missing)}", _fix(folder))
    needed = "; or ".join(f"{files} in {' or '.join(parents)}" for files, parents in wanted.items())
    raise DataError(f"{folder} does not hold {source.title}: it needs {needed}", _fix(folder))


def _layouts(source, folder):
    """Yield each folder that may hold a data set, and the names that each of its files may have there."""
    if not source.versions:
        for parent in (folder, folder / source.folder):
            yield parent, {key: (f"{stem}.gz", stem) for key, stem in IDX_STEMS.items()}
    for version in source.versions:
        for parent in (folder / version.folder, folder):
            yield parent, {batch: (batch + version.ending,) for batch in cifar.BATCHES}
        if version.archive:
            yield folder, {"archive": (version.archive,)}


def _fix(folder):
    """Return how to get good files into `folder`."""
    if Path(folder) == committed_folder():
        return "restore the committed files with: git checkout -- data/mnist"
    return f"put a fresh copy of the original files into {folder}"


def _wrong(path, what):
    return DataError(f"{path} {what}", _fix(path.parent))


@contextlib.contextmanager
def working_folder(parent):
    """Make a temporary folder beside the cached arrays; turn an OSError into a DataError."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=".partial-", dir=parent, ignore_cleanup_errors=True
        ) as working:
            yield Path(working)
    except OSError as error:
        raise DataError(
            f"cannot write to the cache folder {parent} ({error.strerror or error})",
            "free space there, make it writable, or name another folder by the environment variable "
            "CNN_NUMBA_CACHE",
        ) from None


def convert(name, files, log):
    """Read the original files; return four arrays, and the data set recognised by checksums or None.

    `name` may be None for either of the two MNISTs.
    """
    contents = {key: _content(path) for key, path in files.items()}
    in_batches = name is not None and SOURCES[name].versions
    recognised = name if in_batches else _recognise(files, contents)
    source = SOURCES[settle(name, recognised, next(iter(files.values())).parent)]
    log(f"Converting {source.title} to arrays (once) ...")
    arrays = _convert_batches(source, files, contents) if in_batches else _convert_idx(files, contents)
    check(arrays, source, files)
    return arrays, recognised


def settle(name, recognised, folder):
    """Return the name of the data set in `folder`; DataError if it is known to be another than `name`."""
    if name and recognised and name != recognised:
        raise DataError(
            f"{folder} does not hold {name}: its files are those of {recognised}, by their checksums",
            f"choose {recognised}, or give the folder that holds {name}",
        )
    return recognised or name or "mnist"


def _recognise(files, contents):
    """Return the data set that the contents belong to, if any; DataError if they belong to several."""
    known = {}
    for array, content in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        known |= {name: files[array] for name, source in SOURCES.items() if digest in source.digests}
    if len(known) > 1:
        whose = ", but ".join(f"{path} is a file of {name}" for name, path in known.items())
        raise DataError(whose, _fix(next(iter(files.values())).parent))
    return next(iter(known), None)


def _content(path):
    """Return the bytes of a file, checked by its checksums, and unpacked if it is a packed IDX file."""
    content = _read(path)
    _check_sha256(path, content)
    try:
        with _naming(path):
            cifar.check_md5(path.name, content)
            return unpacked(content) if path.suffixes == [".gz"] else content
    except EOFError:
        raise _wrong(path, "is truncated: its gzip stream ends early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _wrong(path, f"is corrupted or not a gzip file: {error}") from None


def unpacked(packed):
    """Return the content of a packed IDX file up to the size in its header, and one byte more if any."""
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
    """Return the lengths of the axes in the header of an IDX file; [0] if it is another file."""
    end = 4 * (1 + header[3]) if header[:3] == bytes((0, 0, 8)) and len(header) > 3 else 0
    return [int.from_bytes(header[i : i + 4], "big") for i in range(4, min(end, len(header)), 4)] or [0]


def _read(path):
    try:
        if (size := path.stat().st_size) > _LARGEST:
            raise _wrong(path, f"has {size:,} bytes, more than any file of these sets")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror or error})", _fix(path.parent)) from None


def _check_sha256(path, content):
    """Check the content of `path` against the SHA256SUMS beside it, if any."""
    sums = path.with_name("SHA256SUMS")
    if not sums.is_file():
        return
    expected = {digest for digest, file in _checksums(sums) if file == path.name}
    if expected - {hashlib.sha256(content).hexdigest()}:
        what = f"({len(content)} bytes) is truncated or changed: its SHA-256 is not the one in {sums}"
        raise _wrong(path, what)


def _checksums(sums):
    """Yield (digest, file) for each line of `sha256sum`, skipping blank lines and # comments."""
    content = _read(sums)
    # A Windows shell may write UTF-16. A name that cannot be decoded is another file's.
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    for number, line in enumerate(content.decode(encoding, "replace").split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        # A leading backslash marks a name with escapes; an asterisk marks a file read as binary.
        match = re.fullmatch(r"\\?([0-9a-fA-F]{64})\s+\*?(.+)", line)
        if not match:
            problem = f"{sums}, line {number}: {line[:80]!a} is not a SHA-256 and the name of a file"
            raise DataError(problem, "correct the line, or make the list anew with sha256sum")
        yield match[1].lower(), os.path.normpath(match[2])


def _convert_idx(files, contents):
    """Read four IDX files, the format of MNIST and Fashion-MNIST."""
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
        begin = header[:4].hex(" ") or "nothing"
        raise _wrong(path, f"is not an IDX file of bytes with {dimensions} axes: it starts with {begin}")
    if len(header) < 4 * (1 + dimensions):
        raise _wrong(path, "is truncated: it ends inside its header")
    lengths = _announced(header)
    expected = len(header) + math.prod(lengths)
    if lengths[0] == 0:
        raise _wrong(path, "is an empty set: it says it holds 0 entries")
    if len(content) != expected:
        wrong, held = ("truncated", len(content)) if len(content) < expected else ("too long", "more")
        entries = " x ".join(map(str, lengths))
        what = f"it should hold {expected} bytes ({entries} entries and a header), but holds {held}"
        raise _wrong(path, f"is {wrong}: {what}")
    return lengths


def _convert_batches(source, files, contents):
    """Read five training batches and a test batch in CIFAR-10's format, or an archive of them."""
    for (key, path), digest in zip(files.items(), source.digests, strict=False):
        if hashlib.sha256(contents[key]).hexdigest() != digest:
            raise _wrong(path, "is truncated or changed: its SHA-256 differs")
    endings = [path.name.removeprefix(key) for key, path in files.items()]
    version = next(v for v in source.versions if v.archive in endings or {v.ending} == set(endings))
    if "archive" in files:
        with _naming(files["archive"]):
            contents = cifar.unpacked(version, contents["archive"])
    parts = {}
    for batch, content in contents.items():
        with _naming(files.get(batch) or files["archive"]):
            parts[batch] = cifar.read(version, content)
    *train, test = (parts[batch] for batch in cifar.BATCHES)
    images, labels = map(np.concatenate, zip(*train, strict=True))
    return dict(zip(ARRAYS, (images, labels, *test), strict=True))


@contextlib.contextmanager
def _naming(path):
    """Put a file's name before a ValueError's message, and the fix after it."""
    try:
        yield
    except ValueError as error:
        raise _wrong(path, error) from None


def check(arrays, source, files):
    """Check the arrays of a data set; the error names the wrong file of `files`."""
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        images_at, labels_at = (
            files.get(f"{split}_{kind}") or files.get("archive") or Path(f"{source.title} ({split} set)")
            for kind in ("images", "labels")
        )
        if images.dtype != np.uint8 or images.shape[1:] != source.image_shape:
            what = f"holds images of shape {images.shape[1:]} and dtype {images.dtype}"
            raise _wrong(images_at, f"{what}, but {source.title} has {source.image_shape} and uint8")
        if labels.dtype != np.int32 or labels.shape != images.shape[:1]:
            what = f"holds {len(labels)} labels for the {len(images)} images of {images_at}"
            raise _wrong(labels_at, what)
        if not len(images):
            raise _wrong(images_at, "holds no images")
        wrong = np.flatnonzero((labels < 0) | (labels >= len(source.classes)))
        if len(wrong):
            what = f"holds label {labels[wrong[0]]} at index {wrong[0]}, outside 0..{len(source.classes) - 1}"
            raise _wrong(labels_at, what)
