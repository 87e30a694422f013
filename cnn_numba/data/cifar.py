"""CIFAR-10's files: their names, published checksums and formats.

The set comes in two versions, each a folder or an archive of it. A Python batch is a pickle, which could run
code: its checksum is compared before it is read, and the reader builds only arrays. A binary batch is a
sequence of records: a byte for the label, then the planes of red, green and blue.

A ValueError says what is wrong with a file; `cnn_numba.data.files` puts the file's name before it.
"""

import contextlib
import hashlib
import io
import pickle
import tarfile
from typing import Any, NamedTuple

import numpy as np

SHAPE = 3, 32, 32
RECORD = 1 + 3 * 32 * 32
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


class Version(NamedTuple):
    """One version of a set: its folder and archive, the ending of its files, and the images in each."""

    folder: str
    archive: str | None
    ending: str
    images: int


PYTHON = Version("cifar-10-batches-py", "cifar-10-python.tar.gz", "", 10_000)
BINARY = Version("cifar-10-batches-bin", "cifar-10-binary.tar.gz", ".bin", 10_000)

#: MD5 by file name: of the archives from https://www.cs.toronto.edu/~kriz/cifar.html, of the Python batches
#: from torchvision. None is published for a single binary batch.
MD5 = {
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


def check_md5(file: str, content: bytes) -> None:
    """Check the published checksum of a file, if there is one."""
    if file in MD5 and hashlib.md5(content, usedforsecurity=False).hexdigest() != MD5[file]:
        raise ValueError(f"({len(content)} bytes) is truncated or changed: its MD5 is not the published one")


def unpacked(version: Version, content: bytes) -> dict[str, bytes]:
    """Return the content of the batches in an archive, by name."""
    file = io.BytesIO(content)
    with _reading("an archive of CIFAR-10"), tarfile.open(fileobj=file, mode="r:gz") as archive:
        names = {batch: f"{version.folder}/{batch}{version.ending}" for batch in BATCHES}
        members: Any = {batch: archive.extractfile(name) for batch, name in names.items()}
        return {batch: member.read() for batch, member in members.items()}


def read(version: Version, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the images (N, 3, 32, 32), uint8, and the labels (N,), int32, of one batch."""
    images, labels = _read_records(content) if version.ending else _read_pickle(content)
    if len(images) != version.images:
        raise ValueError(f"holds {len(images)} images: {version.images} were expected")
    if not 0 <= labels.min() <= labels.max() <= 9:
        raise ValueError(f"holds labels from {labels.min()} to {labels.max()}, outside 0..9")
    return images, labels


def _read_records(content):
    if len(content) % RECORD:
        size = f"{len(content)} bytes, not a multiple of {RECORD}"
        raise ValueError(f"is truncated or not a binary batch: {size}")
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    return np.ascontiguousarray(records[:, 1:]).reshape(-1, *SHAPE), records[:, 0].astype(np.int32)


def _read_pickle(content):
    with _reading("a Python batch"):
        batch = _Arrays(io.BytesIO(content), encoding="latin1").load()
        images, labels = np.asarray(batch["data"]), np.asarray(batch["labels"])
        if images.dtype != np.uint8 or labels.dtype.kind != "i" or len(images) != len(labels):
            raise ValueError("it holds other arrays")
        return np.ascontiguousarray(images.reshape(-1, *SHAPE)), labels.astype(np.int32)


@contextlib.contextmanager
def _reading(what):
    """Turn any error into a ValueError: damaged archives and pickles raise errors of many types."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"is damaged or not {what}: {error}") from None


class _Arrays(pickle.Unpickler):
    """Unpickles NumPy arrays, and refuses all other functions that a pickle names."""

    _KNOWN = frozenset({"_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer", "encode"})

    def find_class(self, module, name):
        if module.partition(".")[0] in ("numpy", "_codecs") and name in self._KNOWN:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")
