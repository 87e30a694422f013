"""Missing data sets: three are downloaded from their mirrors, and one is drawn."""

import hashlib
import http.client
import threading
import urllib.error
import urllib.request
import zlib

from tqdm import tqdm

from cnn_numba.data import cifar
from cnn_numba.data.files import convert, find_files, unpacked, working_folder
from cnn_numba.data.sources import IDX_STEMS, SOURCES, DataError

_NETWORK_SECONDS = 4.0


def download(name, cache, log):
    """Draw or download a data set, and return the result of `convert`; DataError if that fails.

    The files are in the folder `cache` until they are converted, and then removed.
    """
    source = SOURCES[name]
    with working_folder(cache) as working:
        if source.write:
            log(f"Drawing {source.title} (once) ...")
            source.write(working)
        else:
            _from_mirrors(source, working, log)
        return convert(name, find_files(name, working), log)


def _from_mirrors(source, working, log):
    """Download the packed files of a data set into a folder, each from the first mirror that has it."""
    packed = _packed(source) if source.mirrors else []
    if not packed:
        fix = f"name the folder with {source.folder} in it: --data-dir FOLDER"
        raise DataError(f"{source.title} is not here", fix)
    log(f"Downloading {source.title} (once, {source.megabytes} MB) ...")
    mirrors, problems = list(source.mirrors), {}
    for file, digest in packed:
        content = None
        while mirrors and content is None:
            try:
                content = _fetched(mirrors[0], file, digest)
            except (OSError, EOFError, ValueError, zlib.error, http.client.HTTPException) as error:
                # The other files are not requested from a mirror that has failed.
                problems[mirrors.pop(0) + file] = getattr(error, "reason", None) or error
        if content is None:
            answers = "; ".join(f"{url}: {problem}" for url, problem in problems.items())
            example = " (the repository has them in data/mnist)" if source is SOURCES["mnist"] else ""
            raise DataError(
                f"{source.title} is not here and cannot be downloaded ({answers})",
                f"connect to the network once, or name a folder that holds its files{example} or "
                f"{source.folder}, by --data-dir or the environment variable CNN_NUMBA_DATA",
            )
        (working / file).write_bytes(content)


def _packed(source):
    """Return the files to download, and the SHA-256 of what each contains; None for an archive."""
    if source.versions:
        return [(version.archive, None) for version in source.versions if version.archive][:1]
    return [(f"{stem}.gz", digest) for stem, digest in zip(IDX_STEMS.values(), source.digests, strict=True)]


def _fetched(mirror, file, digest):
    """Return a file of a mirror; ValueError if the mirror doesn't answer, or for another checksum."""
    if problem := _network_problem(mirror + file):
        raise ValueError(problem)
    with urllib.request.urlopen(mirror + file, timeout=5 * _NETWORK_SECONDS) as answer:
        content = _content(answer, file)
    if digest is None:
        cifar.check_md5(file, content)
    elif hashlib.sha256(unpacked(content)).hexdigest() != digest:
        raise ValueError("wrong SHA-256")
    return content


def _content(answer, file):
    """Return an answer's content, read behind a progress bar if stderr is a terminal."""
    size, pieces = int(answer.headers.get("Content-Length") or 0), []
    with tqdm(total=size or None, desc=file, unit="B", unit_scale=True, leave=False, disable=None) as bar:
        while piece := answer.read(1 << 16):
            pieces.append(piece)
            bar.update(len(piece))
    content = b"".join(pieces)
    if size and len(content) != size:  # unlike one `read` of everything, this raises nothing
        raise ValueError(f"the connection ended after {len(content)} of {size} bytes")
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
