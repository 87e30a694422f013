"""The source of each data set: its files, their checksums, and where to download them."""

from collections.abc import Callable
from typing import NamedTuple

from cnn_numba.arguments import shown
from cnn_numba.data import cifar, pictures

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
#: The four files of a set in MNIST's format, which may be packed.
IDX_STEMS = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


class DataError(ValueError):
    """A data set is missing or wrong: `problem` names the file, `fix` says what to do."""

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(f"{problem}; {fix}" if fix else problem)
        self.problem, self.fix = problem, fix


class Source(NamedTuple):
    """The source of a data set.

    `mirrors` are folders to download from: the four packed files, or the archive of the first version that
    has one, of `megabytes`. `digests` are the SHA-256 of the unpacked files: they check them, or distinguish
    the set from others with the same file names. A downloaded archive is checked only by `cifar.MD5`.
    `versions` are those of CIFAR-10's format. `write` draws the files of a drawn set. `read` loads a set that
    is not images (a text), from the argument `data_dir` of `load`, and replaces all of these.
    """

    title: str
    folder: str
    image_shape: tuple
    classes: tuple
    mean: float = 0.0
    std: float = 1.0
    mirrors: tuple = ()
    megabytes: int = 0
    digests: tuple = ()
    versions: tuple = ()
    write: Callable | None = None
    read: Callable | None = None


#: The data sets that `load` knows, by name; `cnn_numba.beyond` adds the course's text.
SOURCES = {
    "mnist": Source(
        title="MNIST",
        folder="MNIST/raw",
        image_shape=(1, 28, 28),
        classes=tuple("0123456789"),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://raw.githubusercontent.com/cnn-numba/cnn-numba/main/data/mnist/",
        ),
        megabytes=12,
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
        classes=tuple(
            "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(",")
        ),
        mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        megabytes=30,
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
        classes=tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        megabytes=170,
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
    """Return the source of the data set `name`; ValueError if it is unknown."""
    if not isinstance(name, str) or name not in SOURCES:
        raise ValueError(f"no data set is called {shown(name)}; choose from {', '.join(SOURCES)}")
    return SOURCES[name]
