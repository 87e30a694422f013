"""The data sets as plain arrays, and their division into batches.

The original files are read once (see `files`); the arrays are then cached in an ``.npz`` file.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from cnn_numba import extras
from cnn_numba.arguments import MOST_ELEMENTS, check_indices, instance, integer, shown
from cnn_numba.data import files as data_files
from cnn_numba.data.files import working_folder
from cnn_numba.data.sources import ARRAYS, SOURCES, source_of
from cnn_numba.ops.shapes import HOST, layout_advice
from cnn_numba.ops.specs import Spec
from cnn_numba.whole_files import remove_leftovers

DATASETS = tuple(SOURCES)
# Change this number with the format of the cached arrays: they are then converted again.
_CACHE_FORMAT = 3
_ARRAYS = Spec(
    "train_images:uint8[N C H W], train_labels:int32[N], test_images:uint8[M C H W], test_labels:int32[M]"
)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A labelled set of images in memory, as `load` returns it.

    Raises
    ------
    TypeError, ValueError
        If an array has another dtype or shape than below, there are more images than labels, or fewer, or a
        label is negative or not the number of a class.

    Examples
    --------
    >>> blank, zero = np.zeros((4, 1, 2, 3), np.uint8), np.zeros(4, np.int32)
    >>> dataset = Dataset("blank", blank, zero, blank[:2], zero[:2], classes=("nothing",))
    >>> dataset
    Dataset('blank', 4 for training and 2 for testing, each of shape (1, 2, 3), 1 class)
    >>> dataset.image_shape
    (1, 2, 3)
    """

    name: str
    train_images: np.ndarray  #: (N, C, H, W), uint8; for a text its `Windows`, which are also the labels
    train_labels: np.ndarray  #: (N,), int32
    test_images: np.ndarray
    test_labels: np.ndarray
    mean: float | tuple = 0.0  #: One for all channels or one for each; subtracted from ``image / 255``
    std: float | tuple = 1.0  #: The same; divides the result
    classes: tuple = ()  #: The name of each label

    def __post_init__(self) -> None:
        pairs = (self.train_images, self.train_labels), (self.test_images, self.test_labels)
        instance(self.classes, "classes", tuple, list)
        # The windows of a text are its images and its labels.
        if all(images is labels and not isinstance(images, np.ndarray) for images, labels in pairs):
            return
        _ARRAYS(HOST, *pairs[0], *pairs[1])
        for split, (images, labels) in zip(("train", "test"), pairs, strict=True):
            channels, height, width = images.shape[1:]  # pixels are not looked at: that takes longer
            if channels == height > 7 and width <= 4:
                advice = layout_advice(images.shape, width)
                raise ValueError(f"{split}_images must have shape (N, C, H, W), got {images.shape}{advice}")
            count, kind = (len(self.classes), "classes") if self.classes else (MOST_ELEMENTS, "")
            check_indices(labels, count, f"{split}_labels", ValueError, kind)

    def __repr__(self) -> str:
        counts = f"{len(self.train_images)} for training and {len(self.test_images)} for testing"
        classes = f"{len(self.classes) or 'unnamed'} class{'es' * (len(self.classes) != 1)}"
        return f"Dataset({shown(self.name)}, {counts}, each of shape {self.image_shape}, {classes})"

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape (C, H, W) of one image."""
        return self.train_images.shape[1:]


def classes(name: str) -> tuple[str, ...]:
    """Return the names of a data set's labels.

    Examples
    --------
    >>> classes("cifar10")[3]
    'cat'
    """
    return source_of(name).classes


def image_shape(name: str) -> tuple[int, ...]:
    """Return the shape (C, H, W) of a data set's images, (T,) of a text's windows.

    Examples
    --------
    >>> image_shape("cifar10")
    (3, 32, 32)
    """
    return source_of(name).image_shape


def load(
    name: str | None = None,
    data_dir: str | PathLike | None = None,
    log: Callable[[str], object] | None = None,
) -> Dataset:
    """Load a data set as arrays, converting its files on the first call.

    Parameters
    ----------
    name : {"mnist", "fashion-mnist", "cifar10", "made-pictures", "course-text"}, optional
        By default one of the two MNISTs, by the checksums of the files; unknown files count as MNIST.
    data_dir : path, optional
        A folder with the original files: a torchvision root, or for the two MNISTs the files themselves,
        packed or not, and for CIFAR-10 its Python or binary batches or an archive of them. By default the
        folder in the environment variable ``CNN_NUMBA_DATA``, then for MNIST the checkout's ``data/mnist``.
        Missing files are downloaded once. The made pictures are drawn.
    log : callable, optional
        Called with one line of text before something slow, and about recognised files.

    Raises
    ------
    DataError
        A ValueError: the data set is missing and cannot be downloaded, its files are damaged or of another
        data set, or the cache cannot be written.

    Examples
    --------
    >>> mnist = load("mnist")
    >>> mnist.train_images.shape, mnist.train_images.dtype, mnist.train_labels[:5].tolist()
    ((60000, 1, 28, 28), dtype('uint8'), [5, 0, 4, 1, 9])
    """
    asked = "mnist" if name is None else name
    source = source_of(asked)
    if source.read:
        return source.read(data_dir)
    log = log or (lambda line: None)
    folder = data_files.data_folder(asked, data_dir)
    files = None if folder is None else data_files.find_files(asked, folder)
    cache = _cache_root()
    remove_leftovers(cache, "*/.partial-*", folders=True)
    cached = cache / asked / _cache_key(files, source)
    converted = _read_cache(cached, source)
    if converted is None:
        if files:
            converted = data_files.convert(name, files, log)
        else:
            from cnn_numba.data.downloading import download  # slow to import

            converted = download(asked, cached.parent, log)
        _write_cache(cached, *converted)
    arrays, recognised = converted
    settled = data_files.settle(name, recognised, folder)
    source = SOURCES[settled]
    if name is None and folder not in (None, data_files.committed_folder()):
        log(
            f"{folder} holds {source.title}, recognised by its checksums"
            if recognised
            else f"{folder} holds files of unknown checksums, taken for {source.title}"
        )
    return Dataset(settled, **arrays, mean=source.mean, std=source.std, classes=source.classes)


def needs_download() -> bool:
    """Return whether `load` would download MNIST, for lack of its files and cached arrays."""
    source = SOURCES["mnist"]
    cached = _cache_root() / "mnist" / _cache_key(None, source)
    return data_files.data_folder("mnist", None) is None and _read_cache(cached, source) is None


def _cache_root():
    if os.environ.get("CNN_NUMBA_CACHE"):
        return Path(os.environ["CNN_NUMBA_CACHE"]).expanduser()
    if extras.in_checkout():
        return data_files.CHECKOUT / "data" / "cache"
    return Path.home() / ".cache" / "cnn-numba"


def _cache_key(files, source):
    """Return a file name that depends on the source of the arrays: changed files are converted again."""
    drawn = "".join(source.digests) if source.write else ""  # changes with the drawing
    key = hashlib.sha256(f"{_CACHE_FORMAT}{drawn}".encode())
    for path in [] if files is None else files.values():
        stat = path.stat()
        key.update(f"|{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}".encode())
    return f"{'download' if files is None else 'files'}-{key.hexdigest()[:16]}.npz"


def _read_cache(cached, source):
    """Return the cached arrays and what they were recognised as, or None if they are missing or damaged."""
    try:
        with zipfile.ZipFile(cached) as archive:
            arrays = {name: _read_member(archive, f"{name}.npy") for name in (*ARRAYS, "recognised")}
        recognised = str(arrays.pop("recognised")) or None
        data_files.check(arrays, source, {})
    except Exception:  # damaged files raise anything, even errors of Python's tokenizer
        return None
    return (arrays, recognised) if recognised in (None, *SOURCES) else None


def _read_member(archive, name):
    """Read an array and its file to the end, where `zipfile` compares the CRC-32; np.load may stop before."""
    with archive.open(name) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read():
            raise ValueError("more bytes than the array's header says")
    return array


def _write_cache(cached, arrays, recognised):
    """Write the file `cached`, all of it or nothing, even if several processes do so."""
    with working_folder(cached.parent) as working:
        np.savez(working / cached.name, **arrays, recognised=recognised or "")
        os.replace(working / cached.name, cached)


def batches(
    count: int, batch_size: int, generator: np.random.Generator | None = None
) -> Iterator[np.ndarray]:
    """Divide the indices 0 .. count - 1 into batches, shuffled if a generator is given.

    Parameters
    ----------
    count : int
        The number of samples.
    batch_size : int
        The number of samples in a batch; the last one may be smaller, and no sample is left out.
    generator : numpy.random.Generator, optional
        Draws one permutation; None keeps the order.

    Yields
    ------
    ndarray, shape (n,), int64

    Examples
    --------
    >>> [indices.tolist() for indices in batches(5, 2)]
    [[0, 1], [2, 3], [4]]
    """
    count, batch_size = integer(count, "count"), integer(batch_size, "batch_size", minimum=1)
    if generator is not None:
        instance(generator, "generator", np.random.Generator)
    order = np.arange(count) if generator is None else generator.permutation(count)
    order = order.astype(np.int64, copy=False)
    return (order[start : start + batch_size] for start in range(0, count, batch_size))
