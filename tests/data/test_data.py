import contextlib
import errno
import functools
import gzip
import hashlib
import http.server
import io
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cnn_numba import data
from cnn_numba.data import (
    DataError,
    Dataset,
    batches,
    cifar,
    downloading,
    files as data_files,
    load,
    pictures,
)

STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
COMMITTED = Path(__file__).parents[2] / "data" / "mnist"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Give the test its own cache folder, so that none of its data sets gets into the real one."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(folder))
    monkeypatch.delenv("CNN_NUMBA_DATA", raising=False)
    return folder


def idx_bytes(array):
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes((0, 0, 8, array.ndim)) + lengths + array.tobytes()


def small_images(train=7, test=6, shape=(28, 28), seed=0):
    """Return the four arrays of a tiny data set in the order of STEMS."""
    rng = np.random.default_rng(seed)
    arrays = []
    for count in (train, test):
        arrays.append(rng.integers(0, 256, (count, *shape), dtype=np.uint8))
        arrays.append(rng.integers(0, 10, count, dtype=np.uint8))
    return arrays


def write_idx_folder(folder, arrays, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    for stem, array in zip(STEMS, arrays, strict=True):
        content = idx_bytes(array)
        (folder / (stem + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
    return folder


def python(*lines, **environment):
    """Run lines in a fresh interpreter; return what they print."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_known(monkeypatch, name, arrays):
    """Make these four arrays the ones by which the data set `name` is recognised."""
    digests = tuple(hashlib.sha256(idx_bytes(array)).hexdigest() for array in arrays)
    monkeypatch.setitem(data_files.SOURCES, name, data_files.SOURCES[name]._replace(digests=digests))


def files_under(folder):
    return [path for path in folder.rglob("*") if path.is_file() or path.name.startswith(".partial-")]


# --- MNIST -------------------------------------------------------------------------------------------------


def test_mnist_is_whole():
    mnist = load("mnist")
    assert mnist.name == "mnist"
    assert mnist.image_shape == (1, 28, 28)
    assert mnist.classes == tuple("0123456789")
    assert (mnist.mean, mnist.std) == (0.0, 1.0)
    for images, labels, count in (
        (mnist.train_images, mnist.train_labels, 60000),
        (mnist.test_images, mnist.test_labels, 10000),
    ):
        assert images.shape == (count, 1, 28, 28)
        assert images.dtype == np.uint8
        assert images.flags.c_contiguous
        assert labels.shape == (count,)
        assert labels.dtype == np.int32
    # Published class counts, and the well-known first digits.
    assert np.bincount(mnist.train_labels).tolist() == [
        *(5923, 6742, 5958, 6131, 5842),
        *(5421, 5918, 6265, 5851, 5949),
    ]
    assert mnist.test_labels[:5].tolist() == [7, 2, 1, 0, 4]


def test_mnist_equals_the_bytes_of_the_committed_files():
    mnist = load("mnist")
    for stem, array in zip(
        STEMS, (mnist.train_images, mnist.train_labels, mnist.test_images, mnist.test_labels), strict=True
    ):
        content = gzip.decompress((COMMITTED / f"{stem}.gz").read_bytes())
        expected = np.frombuffer(content, np.uint8, offset=16 if "images" in stem else 8)
        np.testing.assert_array_equal(array.ravel(), expected)


def test_committed_files_match_their_checksums():
    lines = (COMMITTED / "SHA256SUMS").read_text().split("\n")
    sums = dict(reversed(line.split()) for line in lines if line)
    assert sorted(sums) == sorted(f"{stem}.gz" for stem in STEMS)
    for name, digest in sums.items():
        assert hashlib.sha256((COMMITTED / name).read_bytes()).hexdigest() == digest


def test_cached_load_does_not_import_torch():
    load("mnist")
    printed = python(
        "import sys",
        "from cnn_numba.data import load",
        "lines = []",
        "load('mnist', log=lines.append)",
        "print('torch' in sys.modules, 'torchvision' in sys.modules, lines)",
    )
    assert printed == "False False []\n"


# --- Conversion and cache ----------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("name", "subfolder"),
    [("mnist", ""), ("mnist", "MNIST/raw"), ("fashion-mnist", ""), ("fashion-mnist", "FashionMNIST/raw")],
)
def test_load_reads_a_folder_in_either_layout(cache, tmp_path, name, subfolder, packed):
    arrays = small_images()
    write_idx_folder(tmp_path / "root" / subfolder, arrays, packed)
    lines = []
    for _ in range(2):
        loaded = load(name, data_dir=tmp_path / "root", log=lines.append)
        np.testing.assert_array_equal(loaded.train_images[:, 0], arrays[0])
        np.testing.assert_array_equal(loaded.train_labels, arrays[1])
        np.testing.assert_array_equal(loaded.test_images[:, 0], arrays[2])
        np.testing.assert_array_equal(loaded.test_labels, arrays[3])
        assert loaded.train_labels.dtype == np.int32
        assert len(loaded.classes) == 10
    # Converted once, then read from the cache.
    assert len(lines) == 1
    assert lines[0].endswith("to arrays (once) ...")
    assert [path.name for path in cache.iterdir()] == [name]
    assert not list(cache.rglob(".partial-*"))


def test_environment_variable_names_the_folder(cache, tmp_path, monkeypatch):
    write_idx_folder(tmp_path / "mine", small_images(train=4))
    monkeypatch.setenv("CNN_NUMBA_DATA", str(tmp_path / "mine"))
    assert len(load("mnist").train_images) == 4


def test_a_changed_source_is_converted_again(cache, tmp_path):
    folder = write_idx_folder(tmp_path / "root", small_images(seed=0))
    first = load("mnist", data_dir=folder)
    time.sleep(0.01)
    write_idx_folder(folder, small_images(seed=1))
    second = load("mnist", data_dir=folder)
    assert not np.array_equal(first.train_images, second.train_images)


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:140]),
        lambda path: path.write_bytes(path.read_bytes()[:-140]),
        lambda path: np.save(path.open("wb"), np.zeros(3)),
    ],
    ids=["missing", "empty", "truncated", "without its end", "another format"],
)
def test_a_damaged_cache_is_rebuilt(cache, tmp_path, damage):
    folder = write_idx_folder(tmp_path / "root", small_images())
    first = load("mnist", data_dir=folder)
    (victim,) = cache.rglob("*.npz")
    damage(victim)
    assert_rebuilt(first, folder)


@pytest.mark.parametrize("array", data_files.ARRAYS)
def test_a_bit_of_each_cached_array_counts(cache, tmp_path, array):
    folder = write_idx_folder(tmp_path / "root", small_images())
    first = load("mnist", data_dir=folder)
    (victim,) = cache.rglob("*.npz")
    content, bytes_of_array = bytearray(victim.read_bytes()), getattr(first, array).tobytes()
    content[content.index(bytes_of_array) + len(bytes_of_array) - 4] ^= 1
    victim.write_bytes(content)
    assert_rebuilt(first, folder)


def assert_rebuilt(first, folder):
    lines = []
    for _ in range(2):
        again = load("mnist", data_dir=folder, log=lines.append)
        for array in data_files.ARRAYS:
            np.testing.assert_array_equal(getattr(first, array), getattr(again, array))
        assert len(lines) == 1


@pytest.mark.exhaustive_unless(lambda step: step == 11, "every eleventh bit, and so one in most bytes")
@pytest.mark.filterwarnings("ignore:Data type alias")
@pytest.mark.parametrize("step", [11, 1])
@pytest.mark.parametrize("array", ["train_images", "train_labels"])
def test_every_bit_of_a_cached_header_counts(cache, tmp_path, array, step):
    # NumPy reads 256 KiB at a time: of a larger array it may leave bytes, and with them the checksum, unread.
    folder = write_idx_folder(tmp_path / "root", small_images(train=400))
    first = load("mnist", data_dir=folder)
    (victim,) = cache.rglob("*.npz")
    whole = victim.read_bytes()
    header = whole.index(getattr(first, array).tobytes()) - 128
    for bit in range(0, 8 * 128, step):  # NumPy's words for the damage are many, and some are the tokenizer's
        damaged = bytearray(whole)
        damaged[header + bit // 8] ^= 1 << bit % 8
        victim.write_bytes(damaged)
        again = load("mnist", data_dir=folder)
        np.testing.assert_array_equal(again.train_labels, first.train_labels)
        np.testing.assert_array_equal(again.train_images, first.train_images)


def test_a_cache_of_an_unknown_data_set_is_rebuilt(cache, tmp_path):
    folder = write_idx_folder(tmp_path / "root", small_images())
    first = load("mnist", data_dir=folder)
    (victim,) = cache.rglob("*.npz")
    with np.load(victim) as file:
        arrays = dict(file) | {"recognised": "imagenet"}
    np.savez(victim, **arrays)
    assert_rebuilt(first, folder)


def test_concurrent_first_loads_agree(cache, tmp_path):
    arrays = small_images(train=3000)
    folder = write_idx_folder(tmp_path / "root", arrays)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: load("mnist", data_dir=folder), range(8)))
    for result in results:
        np.testing.assert_array_equal(result.train_images[:, 0], arrays[0])
        np.testing.assert_array_equal(result.test_labels, arrays[3])
    assert len(list(cache.rglob("*.npz"))) == 1


def test_two_processes_may_convert_at_once(cache, tmp_path):
    folder = write_idx_folder(tmp_path / "root", small_images(train=500))
    line = (
        f"from cnn_numba.data import load; print(load('mnist', data_dir={str(folder)!r}).train_images.sum())"
    )
    with ThreadPoolExecutor(2) as pool:
        sums = list(pool.map(lambda _: python(line), range(2)))
    assert sums[0] == sums[1]
    assert len(list(cache.rglob("*.npz"))) == 1


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_cache_is_named(cache, tmp_path):
    cache.mkdir()
    cache.chmod(0o500)
    folder = write_idx_folder(tmp_path / "root", small_images())
    with pytest.raises(DataError, match="CNN_NUMBA_CACHE"):
        load("mnist", data_dir=folder)


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(tmp_path / "file"))
    folder = write_idx_folder(tmp_path / "root", small_images())
    with pytest.raises(DataError, match=r"cannot write to the cache folder .*CNN_NUMBA_CACHE"):
        load("mnist", data_dir=folder)


def count_writes(monkeypatch, fail_at=None, error=None):
    """Count the calls that write; one of them fails as on a full disk, after np.savez has started."""
    calls = []

    def counted(function):
        def wrapper(target, *arguments, **options):
            calls.append(function)
            if len(calls) - 1 == fail_at:
                if function.__name__ == "savez":
                    Path(target).write_bytes(b"half")
                raise error
            return function(target, *arguments, **options)

        return wrapper

    writing = ((Path, "mkdir"), (tempfile, "mkdtemp"), (np, "savez"), (os, "replace"))
    for owner, name in writing:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return calls


WRITES = 6  # folders and their parents, the arrays, the replacement


def test_every_write_is_counted(cache, tmp_path, monkeypatch):
    folder = write_idx_folder(tmp_path / "root", small_images())
    calls = count_writes(monkeypatch)
    load("mnist", data_dir=folder)
    assert len(calls) == WRITES
    assert len(files_under(cache)) == 1


@pytest.mark.parametrize("fail_at", range(WRITES))
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), os.strerror(errno.ENOSPC)),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), os.strerror(errno.EDQUOT)),
        (OSError("6272 requested and 512 written"), "6272 requested and 512 written"),  # NumPy's words
    ],
)
def test_a_disk_full_at_any_write_gives_one_line(cache, tmp_path, monkeypatch, fail_at, error, reason):
    folder = write_idx_folder(tmp_path / "root", small_images())
    count_writes(monkeypatch, fail_at, error)
    with pytest.raises(DataError) as caught:
        load("mnist", data_dir=folder)
    assert str(caught.value) == (
        f"cannot write to the cache folder {cache / 'mnist'} ({reason}); free space there, make it writable, "
        "or name another folder by the environment variable CNN_NUMBA_CACHE"
    )
    assert not files_under(cache)


@pytest.fixture
def small_disk(tmp_path):
    """Return the start of a command line that mounts a disk of 1 MB in a folder, and that folder."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=1m tmpfs '{disk}' && exec \"$@\""
    start = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    with contextlib.suppress(OSError):
        if subprocess.run([*start, "true"], capture_output=True).returncode == 0:
            return start, disk
    pytest.skip("no disk can be mounted here")


def test_a_small_disk_gives_one_line_and_is_left_empty(small_disk, tmp_path):
    start, disk = small_disk
    folder = write_idx_folder(tmp_path / "root", small_images(train=2000))
    lines = (
        "from cnn_numba.data.files import DataError, Path",
        "from cnn_numba.data import load",
        f"try: load('mnist', data_dir={str(folder)!r})",
        "except DataError as error: print(error)",
        f"print([path.name for path in Path({str(disk)!r}).rglob('*')])",
    )
    done = subprocess.run(
        [*start, sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        env=os.environ | {"CNN_NUMBA_CACHE": f"{disk}/cache", "TMPDIR": str(disk)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    message, left = done.stdout.splitlines()
    assert message.startswith(f"cannot write to the cache folder {disk}/cache/mnist (")
    assert left == "['cache', 'mnist']"


def test_the_folder_for_temporary_files_is_not_needed(cache, cifar10, tmp_path, monkeypatch):
    def gettempdir():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", gettempdir)
    folder, images, _ = cifar10
    np.testing.assert_array_equal(load("cifar10", data_dir=folder).train_images, images[:10])
    arrays = small_images()
    loaded = load("mnist", data_dir=write_idx_folder(tmp_path / "idx", arrays))
    np.testing.assert_array_equal(loaded.train_images[:, 0], arrays[0])


def test_a_file_that_cannot_be_read_is_named(cache, tmp_path, monkeypatch):
    folder = write_idx_folder(tmp_path / "root", small_images())
    (folder / "SHA256SUMS").touch()
    read_bytes = Path.read_bytes

    def refuse(path):
        if path.name == refused:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    for refused in (f"{STEMS[1]}.gz", "SHA256SUMS"):
        with pytest.raises(
            DataError, match=f"cannot read {folder / refused} .Permission denied.; put a fresh"
        ):
            load("mnist", data_dir=folder)


@pytest.mark.parametrize("kind", ["mnist", "cifar10"])
def test_leftovers_are_removed_after_a_day(cache, tmp_path, kind):
    folder = write_idx_folder(tmp_path / "root", small_images())
    with data_files.working_folder(cache / kind) as working:
        (working / "half").write_text("done")
        load("mnist", data_dir=folder)
        assert (working / "half").is_file()
        os.utime(working, (time.time() - 25 * 60 * 60,) * 2)
        load("mnist", data_dir=folder)
        assert not working.exists()
    assert len(files_under(cache)) == 1


# --- Which data set the files are --------------------------------------------------------------------------


@pytest.fixture
def two_known(monkeypatch, tmp_path):
    """Write a tiny MNIST and Fashion-MNIST, and make them known; return the folder of each."""
    folders = {}
    for seed, name in enumerate(("mnist", "fashion-mnist")):
        arrays = small_images(seed=seed)
        make_known(monkeypatch, name, arrays)
        folders[name] = write_idx_folder(tmp_path / name, arrays)
    return folders


def test_the_committed_files_are_known_as_mnist(cache):
    lines = []
    assert load(data_dir=COMMITTED.parent / "." / "mnist", log=lines.append).name == "mnist"
    assert load(data_dir=os.path.relpath(COMMITTED), log=lines.append).name == "mnist"
    assert lines == [
        "Converting MNIST to arrays (once) ...",
        f"{os.path.relpath(COMMITTED)} holds MNIST, recognised by its checksums",
    ]


def test_the_known_data_sets_have_different_files():
    known = [digest for source in data_files.SOURCES.values() for digest in source.digests]
    assert len(set(known)) == len(known) == 14


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_files_are_recognised_without_a_name(cache, tmp_path, two_known, name, packed):
    folder = write_idx_folder(tmp_path / "root", small_images(seed=name != "mnist"), packed)
    title = data_files.SOURCES[name].title
    lines = []
    for _ in range(2):
        loaded = load(data_dir=folder, log=lines.append)
        assert (loaded.name, loaded.classes) == (name, data.classes(name))
    said = f"{folder} holds {title}, recognised by its checksums"
    assert lines == [f"Converting {title} to arrays (once) ...", said, said]


def test_the_folder_of_the_environment_variable_is_recognised(cache, two_known, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_DATA", str(two_known["fashion-mnist"]))
    assert load().name == "fashion-mnist"


def test_one_known_file_is_enough(cache, two_known):
    folder = two_known["fashion-mnist"]
    for stem in STEMS[1:]:
        array = small_images(seed=7)[STEMS.index(stem)]
        (folder / f"{stem}.gz").write_bytes(gzip.compress(idx_bytes(array)))
    assert load(data_dir=folder).name == "fashion-mnist"


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(("asked", "held"), [("mnist", "fashion-mnist"), ("fashion-mnist", "mnist")])
def test_a_name_that_the_files_contradict_raises(cache, two_known, asked, held, cached):
    if cached:
        load(data_dir=two_known[held])
    before = files_under(cache) if cached else []
    lines = []
    with pytest.raises(DataError) as caught:
        load(asked, data_dir=two_known[held], log=lines.append)
    assert str(caught.value) == (
        f"{two_known[held]} does not hold {asked}: its files are those of {held}, by their checksums; choose "
        f"{held}, or give the folder that holds {asked}"
    )
    assert lines == []
    assert files_under(cache) == before
    assert load(held, data_dir=two_known[held]).name == held


def test_files_of_two_data_sets_raise(cache, two_known):
    folder = two_known["mnist"]
    shutil.copy(two_known["fashion-mnist"] / f"{STEMS[3]}.gz", folder)
    for name in (None, "mnist", "fashion-mnist"):
        with pytest.raises(
            DataError, match=rf"is a file of mnist, but .*{STEMS[3]}\.gz is a file of fashion"
        ):
            load(name, data_dir=folder)
    assert not files_under(cache)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_unknown_files_have_the_name_asked_for(cache, tmp_path, two_known, name):
    folder = write_idx_folder(tmp_path / "root", small_images(seed=9))
    lines = []
    for _ in range(2):
        assert load(name, data_dir=folder, log=lines.append).name == name
        assert load(data_dir=folder, log=lines.append).name == "mnist"
    assert f"{folder} holds files of unknown checksums, taken for MNIST" in lines


def test_recognised_files_are_not_hashed_again(cache, two_known, monkeypatch):
    load(data_dir=two_known["fashion-mnist"])
    monkeypatch.delattr(data_files, "_content")
    assert load(data_dir=two_known["fashion-mnist"]).name == "fashion-mnist"


# --- Lists of checksums ------------------------------------------------------------------------------------


def digest_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "line",
    [
        "{digest}  {name}",
        "{digest} *{name}",
        "{digest} {name}",
        "{digest}\t{name}",
        "{digest}  ./{name}",
        "\\{digest}  {name}",
        "{upper}  {name}",
        "{upper} *{name}\r",
        "# made by hand\n\n   \n{digest}  {name}\n\n# the end",
        "{zeroes}  another file of ours.gz\n{digest}  {name}",
        "\\{zeroes}  a\\nb\n{digest}  {name}",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("right", [True, False])
def test_every_form_of_a_line_is_compared(cache, tmp_path, line, encoding, right):
    folder = write_idx_folder(tmp_path / "root", small_images())
    victim = folder / f"{STEMS[1]}.gz"
    digest = digest_of(victim if right else folder / f"{STEMS[0]}.gz")
    text = line.format(digest=digest, upper=digest.upper(), zeroes="0" * 64, name=victim.name)
    (folder / "SHA256SUMS").write_bytes(f"{text}\n".encode(encoding))
    if right:
        assert len(load("mnist", data_dir=folder).train_images) == 7
    else:
        with pytest.raises(DataError, match=f"{victim.name} .* its SHA-256 is not the one in"):
            load("mnist", data_dir=folder)


def test_lines_with_undecodable_names_or_folders_are_ignored(cache, tmp_path):
    folder = write_idx_folder(tmp_path / "root", small_images())
    name = f"{STEMS[0]}.gz"
    (folder / "SHA256SUMS").write_bytes(
        b"%s  caf\xe9\n%s  other/%s\n" % (b"0" * 64, b"0" * 64, name.encode())
    )
    assert load("mnist", data_dir=folder).name == "mnist"


@pytest.mark.parametrize(
    ("content", "number", "shown"),
    [
        (b"\n# a comment\nabc  file\n", 3, "'abc  file'"),
        (b"%s\n" % (b"0" * 64), 1, f"'{'0' * 64}'"),
        (b"%s  file\n" % (b"0" * 63), 1, f"'{'0' * 63}  file'"),
        (b"%s  file\n" % (b"g" * 64), 1, f"'{'g' * 64}  file'"),
        ("0  file\n".encode("utf-16-le"), 1, r"'0\x00 \x00 \x00f\x00i\x00l\x00e\x00'"),
        (b"\x80\x81\xff", 1, r"'\ufffd\ufffd\ufffd'"),
    ],
)
def test_an_invalid_checksum_line_is_named(cache, tmp_path, content, number, shown):
    folder = write_idx_folder(tmp_path / "root", small_images())
    (folder / "SHA256SUMS").write_bytes(content)
    with pytest.raises(DataError) as caught:
        load("mnist", data_dir=folder)
    assert str(caught.value) == (
        f"{folder / 'SHA256SUMS'}, line {number}: {shown} is not a SHA-256 and the name of a file; correct "
        "the line, or make the list anew with sha256sum"
    )


# --- What is wrong with the files --------------------------------------------------------------------------


def truncate_packed(path):
    path.write_bytes(path.read_bytes()[:-20])


def truncate_inside(path):
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-5]))


def cut_inside_the_header(path):
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:6]))


def append_inside(path):
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"more"))


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def replace_by_text(path):
    path.write_bytes(b"<html>404 not found</html>")


def replace_by_packed_text(path):
    path.write_bytes(gzip.compress(b"<html>404 not found</html>"))


def empty_file(path):
    path.write_bytes(b"")


def a_packed_file_of(lengths, count):
    """Return 3 MB, say, that unpack to a thousand times as many."""
    header = bytes((0, 0, 8, len(lengths))) + b"".join(length.to_bytes(4, "big") for length in lengths)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
        file.write(header)
        for _ in range(count // 1_000_000):
            file.write(bytes(1_000_000))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((2_000_000, 28, 28), "says that it holds 2000000 x 28 x 28 bytes; it is not unpacked, as no set"),
        ((60_000, 2_000, 28), "says that it holds 60000 x 2000 x 28 bytes; it is not unpacked, as no set"),
        ((7, 28, 28), "is too long: it should hold 5504 bytes .* but holds more"),
        ((400_000_000,), "says that it holds 400000000 bytes; it is not unpacked"),
        ((), "is not an IDX file of bytes with 3 axes"),
    ],
)
def test_files_that_would_fill_the_memory_are_not_unpacked(cache, tmp_path, lengths, message):
    folder = write_idx_folder(tmp_path / "root", small_images())
    victim = folder / f"{STEMS[0]}.gz"
    victim.write_bytes(a_packed_file_of(lengths, 400_000_000))
    assert victim.stat().st_size < 4_000_000
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=f"{re.escape(str(victim))} {message}"):
            load("mnist", data_dir=folder)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", [STEMS[0], f"{STEMS[0]}.gz", "SHA256SUMS"])
def test_a_file_larger_than_any_is_not_read(cache, tmp_path, name):
    folder = write_idx_folder(tmp_path / "root", small_images())
    if name == STEMS[0]:
        (folder / f"{name}.gz").unlink()
    with open(folder / name, "wb") as file:
        file.truncate(2**40)  # a hole: it takes no space on the disk
    with pytest.raises(DataError, match=rf"{name} has 1,099,511,627,776 bytes, more than any file of these"):
        load("mnist", data_dir=folder)


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate_packed, "is truncated: its gzip stream ends early"),
        (truncate_inside, "is truncated: it should hold"),
        (cut_inside_the_header, "is truncated: it ends inside its header"),
        (append_inside, "is too long: it should hold"),
        (flip_a_byte, "is corrupted or not a gzip file"),
        (replace_by_text, "is corrupted or not a gzip file"),
        (replace_by_packed_text, "is not an IDX file .* starts with 3c 68 74 6d"),
        (empty_file, "is not an IDX file .* starts with nothing"),
    ],
)
def test_a_damaged_file_is_named(cache, tmp_path, stem, damage, message):
    folder = write_idx_folder(tmp_path / "root", small_images())
    victim = folder / f"{stem}.gz"
    damage(victim)
    with pytest.raises(DataError, match=message) as caught:
        load("mnist", data_dir=folder)
    assert str(caught.value).startswith(str(victim))
    assert str(caught.value).endswith(f"put a fresh copy of the original files into {folder}")
    assert "\n" not in str(caught.value)
    assert not list(cache.rglob("*.npz"))


def test_a_checksum_that_differs_is_named(cache, tmp_path):
    folder = write_idx_folder(tmp_path / "root", small_images())
    victim = folder / f"{STEMS[1]}.gz"
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  {victim.name}\n")
    with pytest.raises(DataError, match="is truncated or changed: its SHA-256 is not the one in") as caught:
        load("mnist", data_dir=folder)
    assert str(victim) in str(caught.value)


def test_the_committed_folder_is_restored_by_git(cache, tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    folder = shutil.copytree(COMMITTED, checkout / "data" / "mnist")
    truncate_packed(folder / f"{STEMS[3]}.gz")
    monkeypatch.setattr(data_files, "CHECKOUT", checkout)
    with pytest.raises(DataError, match=r"its SHA-256 is not.*git checkout -- data/mnist"):
        load("mnist")


@pytest.mark.parametrize("label", [10, 255])
@pytest.mark.parametrize("which", [1, 3])
def test_a_label_out_of_range_is_named(cache, tmp_path, which, label):
    arrays = small_images()
    arrays[which][2] = label
    folder = write_idx_folder(tmp_path / "root", arrays)
    with pytest.raises(DataError, match=f"holds label {label} at index 2, outside 0..9") as caught:
        load("mnist", data_dir=folder)
    assert str(folder / f"{STEMS[which]}.gz") in str(caught.value)


@pytest.mark.parametrize("counts", [(0, 6), (7, 0)])
def test_an_empty_set_is_named(cache, tmp_path, counts):
    folder = write_idx_folder(tmp_path / "root", small_images(*counts))
    with pytest.raises(DataError, match="is an empty set") as caught:
        load("mnist", data_dir=folder)
    assert STEMS[0 if counts[0] == 0 else 2] in str(caught.value)


def test_more_images_than_labels_is_named(cache, tmp_path):
    arrays = small_images()
    arrays[1] = arrays[1][:-2]
    folder = write_idx_folder(tmp_path / "root", arrays)
    with pytest.raises(DataError, match="holds 5 labels for the 7 images"):
        load("mnist", data_dir=folder)


def test_images_of_another_size_are_foreign(cache, tmp_path):
    folder = write_idx_folder(tmp_path / "root", small_images(shape=(8, 9)))
    with pytest.raises(DataError, match=r"holds images of shape \(1, 8, 9\).* but MNIST has \(1, 28, 28\)"):
        load("mnist", data_dir=folder)


def test_labels_in_the_place_of_images_are_foreign(cache, tmp_path):
    folder = write_idx_folder(tmp_path / "root", small_images())
    shutil.copy(folder / f"{STEMS[1]}.gz", folder / f"{STEMS[0]}.gz")
    with pytest.raises(
        DataError, match="is not an IDX file of bytes with 3 axes: it starts with 00 00 08 01"
    ):
        load("mnist", data_dir=folder)


def test_a_missing_file_is_named(cache, tmp_path):
    folder = write_idx_folder(tmp_path / "root", small_images())
    (folder / f"{STEMS[2]}.gz").unlink()
    with pytest.raises(DataError, match=f"MNIST lacks .*{STEMS[2]}"):
        load("mnist", data_dir=folder)


@pytest.mark.parametrize("name", data.DATASETS)
def test_a_folder_without_the_data_set_is_named(cache, tmp_path, name):
    with pytest.raises(DataError, match=f"{tmp_path} does not hold"):
        load(name, data_dir=tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_a_folder_that_does_not_exist_is_named(cache, tmp_path, monkeypatch, name):
    with pytest.raises(DataError, match=r"data_dir names .*nowhere, which is not a folder"):
        load(name, data_dir=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"data_dir names .*xxx, which is not a folder"):
        load(name, data_dir=tmp_path / ("x" * 5000))  # too long for any name of a file
    monkeypatch.setenv("CNN_NUMBA_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"CNN_NUMBA_DATA names .*nowhere, which is not a folder"):
        load(name)


@pytest.fixture
def mirrors(cache, tmp_path, monkeypatch):
    """Simulate a place outside a checkout, with these folders as mirrors; return the requests."""
    monkeypatch.setattr(data_files, "CHECKOUT", tmp_path / "site-packages")
    asked = []

    class Quietly(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *arguments):
            pass

    handler = functools.partial(Quietly, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def serve(*folders, name="mnist"):
            address = f"http://127.0.0.1:{server.server_port}"
            source = data_files.SOURCES[name]
            source = source._replace(mirrors=tuple(f"{address}/{folder}/" for folder in folders))
            monkeypatch.setitem(data_files.SOURCES, name, source)
            return asked

        yield serve
        server.shutdown()


@pytest.mark.parametrize("name", ["mnist", None])
def test_outside_a_checkout_mnist_is_downloaded_once(cache, mirrors, tmp_path, name):
    shutil.copytree(COMMITTED, tmp_path / "good")
    write_idx_folder(tmp_path / "other", small_images())
    asked, lines = mirrors("missing", "other", "good"), []
    assert data.datasets.needs_download()
    for _ in range(2):
        loaded = load(name, log=lines.append)
    assert lines == ["Downloading MNIST (once, 12 MB) ...", "Converting MNIST to arrays (once) ..."]
    assert not data.datasets.needs_download()
    assert loaded.name == "mnist"
    assert loaded.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    # The rest is not requested from a mirror that failed.
    first = f"{STEMS[0]}.gz"
    assert asked == [f"/missing/{first}", f"/other/{first}", *(f"/good/{stem}.gz" for stem in STEMS)]
    assert not list(cache.rglob("*ubyte*"))


def test_each_failing_mirror_is_named(cache, mirrors, tmp_path):
    write_idx_folder(tmp_path / "other", small_images())
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / f"{STEMS[0]}.gz").write_text("<html>Please log in</html>")
    mirrors("missing", "other", "html")
    with pytest.raises(DataError, match=r"name a folder .* --data-dir .* CNN_NUMBA_DATA") as caught:
        load("mnist")
    for reason in (
        rf"missing/{STEMS[0]}\.gz: File not found",
        rf"other/{STEMS[0]}\.gz: wrong SHA-256",
        rf"html/{STEMS[0]}\.gz: Not a gzipped",
        "the repository has them in data/mnist",
    ):
        assert re.search(reason, str(caught.value))
    assert not files_under(cache)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_without_a_network_and_a_checkout_a_download_is_one_line_quickly(cache, mirrors, monkeypatch, name):
    mirrors()
    # A local port where nobody listens refuses at once, with or without a network.
    source = data_files.SOURCES[name]._replace(mirrors=("http://127.0.0.1:9/", "http://127.0.0.1:9/b/"))
    monkeypatch.setitem(data_files.SOURCES, name, source)
    start = time.perf_counter()
    with pytest.raises(
        DataError, match=r" is not here and cannot be downloaded \(http://127.*--data"
    ) as caught:
        load(name)
    assert time.perf_counter() - start < 15  # of a busy machine; whoever retries takes longer
    assert "\n" not in str(caught.value)


def test_the_known_digests_match_the_committed_files():
    for stem, digest in zip(STEMS, data_files.SOURCES["mnist"].digests, strict=True):
        assert hashlib.sha256(gzip.decompress((COMMITTED / f"{stem}.gz").read_bytes())).hexdigest() == digest


def test_an_unknown_name_is_rejected():
    with pytest.raises(
        ValueError,
        match="no data set is called 'imagenet'; choose from mnist, fashion-mnist, cifar10, made-pictures, "
        "course-text",
    ):
        load("imagenet")


# --- CIFAR-10 and downloads --------------------------------------------------------------------------------


def tiny(monkeypatch, name, count=2):
    """Allow so few images in the batches of a data set in CIFAR-10's format, with any checksums."""
    source = data_files.SOURCES[name]
    versions = tuple(version._replace(images=count) for version in source.versions)
    changed = source._replace(versions=versions, digests=())
    monkeypatch.setitem(data_files.SOURCES, name, changed)


def batches_of(images, labels):
    """Cut twelve images into five batches to train with and one to test with, by their names."""
    return {
        name: (images[2 * i : 2 * i + 2], labels[2 * i : 2 * i + 2]) for i, name in enumerate(cifar.BATCHES)
    }


def records(images, labels):
    rows = np.concatenate([labels.astype(np.uint8)[:, np.newaxis], images.reshape(len(images), -1)], axis=1)
    return rows.tobytes()


@pytest.fixture
def twelve(monkeypatch):
    tiny(monkeypatch, "cifar10")
    rng = np.random.default_rng(3)
    return rng.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, 12)


@pytest.fixture
def cifar10(tmp_path, monkeypatch, twelve):
    """Write a tiny CIFAR-10 in torchvision's layout, and make its checksums the published ones."""
    folder = tmp_path / "root" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name, (images, labels) in batches_of(*twelve).items():
        # In the oldest protocol, like the real set: names of NumPy's modules and byte strings.
        content = pickle.dumps({"data": images.reshape(-1, 3072), "labels": labels.tolist()}, protocol=2)
        (folder / name).write_bytes(content)
        monkeypatch.setitem(cifar.MD5, name, hashlib.md5(content).hexdigest())
    return folder, *twelve


@pytest.fixture
def binary(tmp_path, twelve):
    """Write the same as binary batches."""
    folder = tmp_path / "binary" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, part in batches_of(*twelve).items():
        (folder / f"{name}.bin").write_bytes(records(*part))
    return folder, *twelve


def packed(folder, archive, monkeypatch):
    """Pack a folder into an archive beside it, remove it, and make its checksum the published one."""
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, folder.name)
    shutil.rmtree(folder)
    monkeypatch.setitem(cifar.MD5, archive.name, hashlib.md5(archive.read_bytes()).hexdigest())


def assert_is_the_twelve(loaded, images, labels):
    np.testing.assert_array_equal(loaded.train_images, images[:10])
    np.testing.assert_array_equal(loaded.train_labels, labels[:10])
    np.testing.assert_array_equal(loaded.test_images, images[10:])
    np.testing.assert_array_equal(loaded.test_labels, labels[10:])
    assert (loaded.mean, loaded.std) == (0.5, 0.5)
    assert loaded.train_images.flags.c_contiguous


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("version", ["cifar10", "binary"])
def test_cifar10_is_read_from_a_folder(cache, request, version, inside):
    folder, *twelve = request.getfixturevalue(version)
    assert_is_the_twelve(load("cifar10", data_dir=folder if inside else folder.parent), *twelve)


@pytest.mark.parametrize("version", ["cifar10", "binary"])
def test_cifar10_is_read_from_its_archive_and_not_unpacked(cache, request, monkeypatch, version):
    folder, *twelve = request.getfixturevalue(version)
    name = {"cifar10": "cifar-10-python.tar.gz", "binary": "cifar-10-binary.tar.gz"}[version]
    packed(folder, folder.parent / name, monkeypatch)
    assert_is_the_twelve(load("cifar10", data_dir=folder.parent), *twelve)
    assert os.listdir(folder.parent) == [name]
    (folder.parent / name).write_bytes((folder.parent / name).read_bytes()[:-9])
    with pytest.raises(DataError, match=rf"{name} .* bytes. is truncated or changed: its MD5 is not the"):
        load("cifar10", data_dir=folder.parent)


def make_known_to_torchvision(monkeypatch, folder):
    """Write the file of labels that torchvision also reads, and give it the tiny set's checksums."""
    from torchvision.datasets import CIFAR10

    meta = pickle.dumps({"label_names": list(data_files.SOURCES["cifar10"].classes)})
    (folder / "batches.meta").write_bytes(meta)
    monkeypatch.setattr(CIFAR10, "train_list", [[name, cifar.MD5[name]] for name in cifar.BATCHES[:5]])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", cifar.MD5["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": hashlib.md5(meta).hexdigest()})
    return CIFAR10


def test_cifar10_equals_what_torchvision_reads(cache, cifar10, monkeypatch):
    folder, *_ = cifar10
    theirs = make_known_to_torchvision(monkeypatch, folder)(folder.parent)
    ours = load("cifar10", data_dir=folder.parent)
    np.testing.assert_array_equal(theirs.data.transpose(0, 3, 1, 2), ours.train_images)
    assert theirs.targets == ours.train_labels.tolist()


def test_the_published_checksums_match_torchvision():
    from torchvision.datasets import CIFAR10

    theirs = dict(CIFAR10.train_list + CIFAR10.test_list) | {CIFAR10.filename: CIFAR10.tgz_md5}
    assert {name: cifar.MD5[name] for name in theirs} == theirs
    assert cifar.PYTHON[:2] == (CIFAR10.base_folder, CIFAR10.filename)


def test_a_damaged_cifar10_batch_is_named_and_never_unpickled(cache, cifar10):
    folder, *_ = cifar10
    (folder / "data_batch_3").write_bytes(b"cos\nabort\n(tR.")
    with pytest.raises(DataError, match=r"data_batch_3 \(14 bytes\) is truncated or changed: its MD5"):
        load("cifar10", data_dir=folder.parent)


def test_a_pickle_calls_nothing_even_with_the_right_checksum(cache, cifar10, monkeypatch):
    folder, *_ = cifar10
    content = b"cos\nabort\n(tR."
    (folder / "data_batch_3").write_bytes(content)
    monkeypatch.setitem(cifar.MD5, "data_batch_3", hashlib.md5(content).hexdigest())
    with pytest.raises(DataError, match=r"data_batch_3 is damaged or not a Python batch: it names os\.abort"):
        load("cifar10", data_dir=folder.parent)


def write_archive(path, contents, folder="cifar-10-batches-py"):
    with tarfile.open(path, "w:gz") as file:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path, whole: path.write_text("<html>"),
            "is damaged or not an archive of CIFAR-10: not a gzip file",
        ),
        (
            lambda path, whole: path.write_bytes(path.read_bytes()[:-99]),
            "is damaged or not an archive of CIFAR-10: .*end",
        ),
        (
            lambda path, whole: write_archive(path, {"data_batch_1": b""}),
            "is damaged or not an archive of CIFAR-10: .*-py/data_batch_2' not found",
        ),
        (
            lambda path, whole: write_archive(path, whole | {"test_batch": b"garbage"}),
            "is damaged or not a Python batch: ",
        ),
        (
            lambda path, whole: write_archive(path, whole | {"test_batch": pickle.dumps({"data": 1})}),
            "is damaged or not a Python batch: 'labels'",
        ),
        (
            lambda path, whole: write_archive(
                path,
                whole | {"test_batch": pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1]})},
            ),
            "is damaged or not a Python batch: it holds other arrays",
        ),
    ],
)
def test_a_damaged_archive_without_a_checksum_is_named(cache, cifar10, monkeypatch, damage, message):
    folder, *_ = cifar10
    archive = folder.parent / "cifar-10-python.tar.gz"
    whole = {name: (folder / name).read_bytes() for name in cifar.BATCHES}
    packed(folder, archive, monkeypatch)
    monkeypatch.delitem(cifar.MD5, archive.name)
    damage(archive, whole)
    with pytest.raises(DataError, match=f"^{archive} {message}.*; put a fresh copy") as caught:
        load("cifar10", data_dir=folder.parent)
    assert "\n" not in str(caught.value)


def test_a_label_without_a_class_names_the_archive(cache, cifar10, monkeypatch):
    folder, *_ = cifar10
    archive = folder.parent / "cifar-10-python.tar.gz"
    packed(folder, archive, monkeypatch)
    source = data_files.SOURCES["cifar10"]._replace(classes=("cat",))
    monkeypatch.setitem(data_files.SOURCES, "cifar10", source)
    with pytest.raises(DataError, match=rf"^{archive} holds label \d at index \d, outside 0\.\.0"):
        load("cifar10", data_dir=folder.parent)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda content: content[:-1],
            "is truncated or not a binary batch: 6145 bytes, not a multiple of 3073",
        ),
        (lambda content: content[:3073], "holds 1 images: 2 were expected"),
        (lambda content: bytes([10]) + content[1:], r"holds labels from \d to 10, outside 0\.\.9"),
    ],
)
def test_a_wrong_binary_batch_is_named(cache, binary, change, message):
    folder, *_ = binary
    path = folder / "data_batch_4.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=f"data_batch_4.bin {message}.*; put a fresh copy"):
        load("cifar10", data_dir=folder.parent)


@pytest.mark.parametrize(("version", "file"), [("cifar10", "test_batch"), ("binary", "test_batch.bin")])
def test_a_missing_cifar10_batch_is_named(cache, request, version, file):
    folder, *_ = request.getfixturevalue(version)
    (folder / file).unlink()
    with pytest.raises(DataError, match=rf"CIFAR-10 lacks .*{file};"):
        load("cifar10", data_dir=folder.parent)


def test_an_empty_folder_says_what_was_looked_for(cache, tmp_path):
    with pytest.raises(
        DataError,
        match=r"does not hold CIFAR-10: it needs data_batch_1, .*, test_batch in .*-batches-py or .*; or "
        r"cifar-10-python.tar.gz in .*; or data_batch_1.bin, .*, test_batch.bin in .*-batches-bin or ",
    ):
        load("cifar10", data_dir=tmp_path)


# --- The made pictures -------------------------------------------------------------------------------------


@pytest.mark.exhaustive(
    "course/colour_images/test_notebook.py draws and loads them, and `load` compares their checksums"
)
def test_the_made_pictures_are_the_same_bytes_everywhere(cache, monkeypatch, tmp_path):
    """SOURCES has the checksums of the drawn pictures: `load` compares them with every set that it draws."""
    pictures.write(tmp_path / "made-pictures")
    source = data_files.SOURCES["made-pictures"]

    def write(folder):
        shutil.copytree(tmp_path / "made-pictures", folder, dirs_exist_ok=True)

    monkeypatch.setitem(data_files.SOURCES, "made-pictures", source._replace(write=write))
    lines = []
    drawn = load("made-pictures", log=lines.append)
    assert lines == [
        "Drawing the made pictures (once) ...",
        "Converting the made pictures to arrays (once) ...",
    ]
    assert drawn.train_images.shape == (10_000, 3, 32, 32)
    assert drawn.test_images.shape == (2_000, 3, 32, 32)
    assert np.bincount(drawn.train_labels).tolist() == [1000] * 10
    assert drawn.classes == pictures.KINDS
    again = load("made-pictures", data_dir=tmp_path)
    np.testing.assert_array_equal(again.test_images, drawn.test_images)
    path = tmp_path / "made-pictures" / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match=r"test_batch.bin is truncated or changed: its SHA-256 differs"):
        load("made-pictures", data_dir=tmp_path)


def test_the_made_pictures_ignore_the_folder_of_the_others(cache, monkeypatch, tmp_path):
    tiny(monkeypatch, "made-pictures", 20)
    source = data_files.SOURCES["made-pictures"]
    monkeypatch.setattr(pictures, "BATCH", 20)
    monkeypatch.setitem(data_files.SOURCES, "made-pictures", source._replace(write=pictures.write))
    monkeypatch.setenv("CNN_NUMBA_DATA", str(tmp_path))
    assert load("made-pictures").train_images.shape == (100, 3, 32, 32)


def test_pictures_repeat_and_depend_on_the_seed():
    images, labels = pictures.draw(30, seed=5)
    again, other = pictures.draw(30, seed=5)[0], pictures.draw(30, seed=6)[0]
    np.testing.assert_array_equal(images, again)
    assert (images != other).mean() > 0.9
    assert labels.tolist() == [*range(10)] * 3


def test_a_name_lookup_that_hangs_does_not_hold_us_up(cache, monkeypatch):
    let_go = threading.Event()

    def hang(*arguments, **options):
        let_go.wait(30)
        raise OSError("let go")

    monkeypatch.setattr(downloading, "_NETWORK_SECONDS", 0.2)
    monkeypatch.setattr(downloading.urllib.request, "urlopen", hang)
    start = time.perf_counter()
    with pytest.raises(DataError, match="no answer within"):
        load("cifar10")
    assert time.perf_counter() - start < 15  # of a busy machine; whoever waits takes 30
    let_go.set()


def test_a_server_that_answers_nonsense_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"nonsense\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        found = downloading._network_problem(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert found == "nonsense\r\n"


def test_an_archive_is_downloaded_once(cache, cifar10, mirrors, tmp_path, monkeypatch):
    folder, images, _ = cifar10
    for place in ("good", "other"):
        (tmp_path / place).mkdir()
    (tmp_path / "other" / "cifar-10-python.tar.gz").write_text("<html>Please log in</html>")
    packed(folder, tmp_path / "good" / "cifar-10-python.tar.gz", monkeypatch)
    asked = mirrors("other", "good", name="cifar10")
    lines = []
    for _ in range(2):
        loaded = load("cifar10", log=lines.append)
        np.testing.assert_array_equal(loaded.train_images, images[:10])
    assert asked == ["/other/cifar-10-python.tar.gz", "/good/cifar-10-python.tar.gz"]
    assert lines == ["Downloading CIFAR-10 (once, 170 MB) ...", "Converting CIFAR-10 to arrays (once) ..."]
    assert not list(cache.rglob("cifar-10-python*"))


def test_a_set_without_an_archive_cannot_be_downloaded(cache, monkeypatch):
    source = data_files.SOURCES["cifar10"]._replace(versions=(cifar.BINARY._replace(archive=None),))
    monkeypatch.setitem(data_files.SOURCES, "cifar10", source)
    with pytest.raises(DataError, match=r"CIFAR-10 is not here; name the folder .* --data-dir"):
        load("cifar10")


class Answer(io.BytesIO):
    """Simulate the answer of a server that announces 100,000 bytes."""

    headers = {"Content-Length": "100000"}  # noqa: RUF012


@pytest.mark.parametrize("terminal", [False, True])
def test_a_download_has_a_progress_bar_on_a_terminal(monkeypatch, terminal):
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stderr)
    assert downloading._content(Answer(bytes(100_000)), "some.gz") == bytes(100_000)
    assert ("some.gz:   0%" in stderr.getvalue()) == terminal == bool(stderr.getvalue())
    with pytest.raises(ValueError, match="the connection ended after 99 of 100000 bytes"):
        downloading._content(Answer(bytes(99)), "some.gz")


def test_a_download_that_fills_the_disk_names_the_cache(cache, monkeypatch):
    def write(path, content):
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(downloading, "_fetched", lambda mirror, file, digest: b"whole")
    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(
        DataError, match=r"cache folder .* \(No space left on device\); free space .* CNN_NUMBA"
    ):
        load("fashion-mnist")
    assert not files_under(cache)


# --- Batches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "size"), [(10, 3), (9, 3), (1, 64), (0, 4), (5, 1)])
def test_batches_hold_every_sample_once(count, size):
    parts = list(batches(count, size, np.random.default_rng(1)))
    assert sorted(np.concatenate([*parts, np.zeros(0, int)])) == list(range(count))
    assert all(len(part) == size for part in parts[:-1])
    assert all(part.dtype == np.int64 for part in parts)
    again = list(batches(count, size, np.random.default_rng(1)))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize(
    ("count", "size", "error", "match"),
    [
        (-1, 4, ValueError, "count must be at least 0, got -1"),
        (10, 0, ValueError, "batch_size must be at least 1, got 0"),
        ("10", 4, TypeError, "count must be an int, got '10'"),
        (10, 4.0, TypeError, r"batch_size must be an int, got 4\.0"),
    ],
)
def test_batches_reject_wrong_sizes_at_once(count, size, error, match):
    with pytest.raises(error, match=match):
        batches(count, size)


def test_dataset_defaults():
    images, labels = np.zeros((2, 3, 4, 5), np.uint8), np.zeros(2, np.int32)
    dataset = Dataset("toy", images, labels, images, labels)
    assert (dataset.mean, dataset.std, dataset.classes, dataset.image_shape) == (0.0, 1.0, (), (3, 4, 5))
    assert repr(dataset) == (
        "Dataset('toy', 2 for training and 2 for testing, each of shape (3, 4, 5), unnamed classes)"
    )


IMAGES, LABELS = np.zeros((4, 1, 2, 3), np.uint8), np.zeros(4, np.int32)


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (
            {"train_labels": LABELS[:3]},
            ValueError,
            r"train_labels .* \(4,\), got \(3,\): train_images has N = 4",
        ),
        (
            {"test_labels": LABELS[:3]},
            ValueError,
            r"test_labels .* \(4,\), got \(3,\): test_images has M = 4",
        ),
        ({"train_images": IMAGES[0]}, ValueError, r"train_images .* \(N, C, H, W\), got \(1, 2, 3\)"),
        (
            {"train_images": IMAGES / 255},
            TypeError,
            r"^train_images must have dtype uint8, got float64: convert it with "
            r"np.round\(255 \* train_images\).astype\(np.uint8\)$",
        ),
        (
            {"test_images": IMAGES + 254.5},
            TypeError,
            r"convert it with np.round\(test_images\).astype\(np.uint8\)",
        ),
        (
            {"test_images": IMAGES.astype(int) + 254},
            TypeError,
            r"got int64: convert it with test_images.astype\(np.uint8\)",
        ),
        (
            {"train_images": IMAGES - 0.6},
            TypeError,
            "pixels are 0 to 255, these are -0.6 to -0.6; scale them to that range, or pass them before they "
            "are normalised$",
        ),
        (
            {"train_images": IMAGES - 0.42 + 3 * (np.arange(IMAGES.size).reshape(IMAGES.shape) % 2)},
            TypeError,
            "pixels are 0 to 255, these are -0.42 to 2.58; scale them to that range",
        ),
        (
            {"train_images": IMAGES + 1.0000001},
            TypeError,
            r"convert it with np.round\(255 \* train_images\).astype\(np.uint8\)$",
        ),
        (
            {"train_images": IMAGES + 255.00002},
            TypeError,
            r"convert it with np.round\(train_images\).astype\(np.uint8\)$",
        ),
        (
            {"train_images": IMAGES + np.nan},
            TypeError,
            "pixels are 0 to 255, these are nan to nan",
        ),
        (
            {"test_images": IMAGES > 0},
            TypeError,
            r"got bool: convert it with np.round\(255 \* test_images\).astype\(np.uint8\)$",
        ),
        (
            {"train_images": IMAGES.astype(np.uint16) + 999},
            TypeError,
            "got uint16: pixels are 0 to 255, these are 999 to 999",
        ),
        (
            {"train_images": IMAGES.astype(int) + 256},
            TypeError,
            "got int64: pixels are 0 to 255, these are 256 to 256",
        ),
        (
            {"train_images": IMAGES * np.nan},
            TypeError,
            "got float64: pixels are 0 to 255, these are nan to nan",
        ),
        (
            {
                "test_images": np.zeros((4, 28, 28, 1), np.uint8),
                "train_images": np.zeros((4, 28, 28, 1), np.uint8),
            },
            ValueError,
            r"^train_images must have shape \(N, C, H, W\), got \(4, 28, 28, 1\); images are NCHW, ",
        ),
        (
            {"train_labels": np.int32([0, 1, -1, -2])},
            ValueError,
            r"^train_labels must lie in 0\.\.\d+, got -1 at position 2$",
        ),
        (
            {"test_labels": np.int32([0, 1, 2, 0]), "classes": ("no", "yes")},
            ValueError,
            r"^test_labels must lie in 0\.\.1, got 2 at position 2: there are 2 classes$",
        ),
        ({"classes": None}, TypeError, "classes must be of type tuple or list, got None"),
        ({"train_labels": LABELS + 0.5}, TypeError, "train_labels must have dtype int32, got float64"),
        ({"train_images": [1] * 4}, TypeError, "train_images must be an array, got list"),
        ({"test_images": IMAGES[..., :2]}, ValueError, "test_images must "),
        ({"test_images": IMAGES[..., :2].copy()}, ValueError, r"test_images .*train_images has W = 3"),
    ],
)
def test_a_dataset_of_wrong_arrays_is_refused(wrong, error, match):
    arrays = {
        f"{split}_{kind}": IMAGES if kind == "images" else LABELS
        for split in ("train", "test")
        for kind in ("images", "labels")
    }
    with pytest.raises(error, match=match):
        Dataset("toy", **arrays | wrong)


def test_a_data_dir_that_is_no_path_is_named():
    with pytest.raises(TypeError, match="data_dir must be of type str or PathLike, got 3"):
        data.load("mnist", 3)


def test_images_are_not_their_own_labels():
    with pytest.raises(TypeError, match="train_labels must have dtype int32, got uint8"):
        Dataset("toy", IMAGES, IMAGES, IMAGES, IMAGES)
