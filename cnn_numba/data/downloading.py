"""Missing data sets: MNIST is downloaded from its mirrors, two sets by torchvision, and one is drawn."""

import errno
import hashlib
import http.client
import socket
import threading
import urllib.error
import urllib.request
import zlib

from cnn_numba import extras
from cnn_numba.data.files import convert, find_files, unpacked, working_folder
from cnn_numba.data.sources import IDX_STEMS, SOURCES, DataError

_NETWORK_SECONDS = 4.0
# Errors of a disk, never of a network.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)


def download(name, cache, log):
    """Draw or download a data set, and return the result of `convert`; DataError if that fails.

    The files are in the folder `cache` until they are converted, and then removed.
    """
    source = SOURCES[name]
    with working_folder(cache) as working:
        if source.mirrors:
            _from_mirrors(source, working, log)
        elif source.write:
            log(f"Drawing {source.title} (once) ...")
            source.write(working)
        else:
            _by_torchvision(name, source, working, log)
        return convert(name, find_files(name, working), log)


def _by_torchvision(name, source, working, log):
    if not source.url:
        fix = f"name the folder with {source.folder} in it: --data-dir FOLDER"
        raise DataError(f"{source.title} is not here", fix)
    try:
        extras.need("torchvision", f"Downloading {source.title}")
    except extras.MissingPackage as error:
        raise DataError(str(error), "or give a folder with its files: --data-dir FOLDER") from None
    fix = (
        "connect to the network once, or copy the data set from elsewhere and name its folder "
        f"(the one with {source.folder} in it): --data-dir FOLDER"
    )
    log(f"Downloading {source.title} (once) ...")
    if problem := _network_problem(source.url):
        raise DataError(f"cannot download {source.title} from {source.url}: {problem}", fix)
    try:
        from torchvision import datasets
    except OSError as error:  # from a broken installation; not one of writing to the working folder
        raise ImportError(f"torchvision does not import: {error}") from error
    kind = datasets.CIFAR10 if name == "cifar10" else datasets.FashionMNIST
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(5 * _NETWORK_SECONDS)
    try:
        kind(working, download=True)
    except (OSError, RuntimeError) as error:
        if getattr(error, "errno", None) in _DISK_ERRORS:
            raise
        reason = " ".join(str(error).split())
        problem = f"the download of {source.title} from {source.url} failed: {reason}"
        raise DataError(problem, fix) from None
    finally:
        socket.setdefaulttimeout(timeout)


def _from_mirrors(source, working, log):
    """Download four packed files into a folder, each from the first mirror that has it."""
    log(f"Downloading {source.title} (once, 12 MB) ...")
    mirrors, problems = list(source.mirrors), {}
    for stem, digest in zip(IDX_STEMS.values(), source.digests, strict=True):
        content = None
        while mirrors and content is None:
            try:
                content = _fetched(mirrors[0] + f"{stem}.gz", digest)
            except (OSError, EOFError, ValueError, zlib.error, http.client.HTTPException) as error:
                problems[mirrors.pop(0)] = (
                    getattr(error, "reason", None) or error
                )  # don't try this mirror again
        if content is None:
            answers = "; ".join(f"{mirror}: {problem}" for mirror, problem in problems.items())
            raise DataError(
                f"{source.title} is not here and cannot be downloaded ({answers})",
                "connect to the network once, or name a folder with its four files, such as data/mnist of a "
                "clone of the repository, by --data-dir or the environment variable CNN_NUMBA_DATA",
            )
        (working / stem).write_bytes(content)


def _fetched(url, digest):
    """Return the unpacked content of `url`; ValueError if it doesn't answer or has another SHA-256."""
    if problem := _network_problem(url):
        raise ValueError(problem)
    with urllib.request.urlopen(url, timeout=5 * _NETWORK_SECONDS) as answer:
        content = unpacked(answer.read())
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{url.rpartition('/')[2]} has the wrong SHA-256")
    return content


def _network_problem(url):
    """Return why `url` does not answer within a few seconds, or None if it does."""
    outcome = [f"no answer within {_NETWORK_SECONDS:.0f} seconds"]

    def probe():
        try:
            request = urllib.request.Request(url, method="HEAD")
            urllib.request.urlopen(request, timeout=_NETWORK_SECONDS).close()
            outcome[0] = None
        except urllib.error.HTTPError:
            outcome[0] = None  # It answers, though not to HEAD: the download will show what it has.
        except (OSError, http.client.HTTPException) as error:
            outcome[0] = str(getattr(error, "reason", error)) or type(error).__name__

    # In a thread, because a name lookup has no timeout; a daemon, so that it can't block the exit.
    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(_NETWORK_SECONDS + 0.5)
    return outcome[0]
