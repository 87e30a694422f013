"""The course's text as numbers, one per character, and the windows of it that a network is trained on."""

import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from cnn_numba.arguments import instance, integer, shown
from cnn_numba.data.datasets import Dataset
from cnn_numba.data.sources import DataError
from cnn_numba.extras import CHECKOUT

#: The data set's name, for ``cnn-numba train --dataset``.
TEXT = "course-text"
#: All characters: the number of each is its index here.
VOCABULARY = "\n" + "".join(map(chr, range(32, 127)))
#: Characters that a network sees at once.
LENGTH = 64
# From one window of the training text to the next: 16 windows predict each character.
_STRIDE = 4
_CODES = np.array([*map(ord, VOCABULARY)])


@dataclass(frozen=True, eq=False)
class Windows:
    """The windows of a text, in place of a data set's images and labels.

    `text` holds the numbers of its characters, shape (L,), uint8; `length` is the length of a window,
    `stride` the distance from one to the next.

    Examples
    --------
    >>> windows = Windows(encode("abcdef"), length=3, stride=2)
    >>> len(windows), windows.shape
    (2, (2, 3))
    """

    text: np.ndarray
    length: int = LENGTH
    stride: int = _STRIDE

    def __len__(self) -> int:
        return max((len(self.text) - self.length - 1) // self.stride + 1, 0)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """Return the text, by which checksums tell two sets of windows apart."""
        return np.array(self.text, dtype=dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of windows, and of characters in each."""
        return len(self), self.length


def encode(text: str) -> np.ndarray:
    """Return the number of each character, uint8; ValueError if one is not in `VOCABULARY`.

    Examples
    --------
    >>> encode("a b").tolist(), decode(encode("a b"))
    ([66, 1, 67], 'a b')
    """
    instance(text, "text", str)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    numbers = np.searchsorted(_CODES, codes)
    if len(unknown := np.flatnonzero(_CODES.take(numbers, mode="clip") != codes)):
        where = f"got {shown(text[unknown[0]])} at index {unknown[0]}"
        raise ValueError(f"the text must be printable ASCII and newlines, {where}")
    return numbers.astype(np.uint8)


def decode(numbers: np.ndarray) -> str:
    """Return the characters with these numbers: the inverse of `encode`."""
    last = len(VOCABULARY) - 1
    return "".join(VOCABULARY[integer(number, "a character's number", maximum=last)] for number in numbers)


def read_text(path: str | PathLike | None = None) -> tuple[Windows, Windows]:
    """Read a text; every tenth paragraph is held out for the test.

    Parameters
    ----------
    path : path, optional
        A file with one paragraph per line, or a folder with such a course.txt; by default the course's.

    Returns
    -------
    train, test : Windows
        The test's windows don't overlap: each character is predicted once.

    Examples
    --------
    >>> train, test = read_text()
    >>> test.shape
    (219, 64)
    """
    if path is None:  # in a wheel the text is beside this file
        path = CHECKOUT / "data" / "text"
        path = path if path.is_dir() else Path(__file__).parent
    path = Path(path)
    path = path / "course.txt" if os.path.isdir(path) else path
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        encode(text)  # whose error has the place in the whole text
        paragraphs = text.splitlines(keepends=True)
        count, size = len(paragraphs), sum(map(len, paragraphs))
        held_out = "".join(paragraphs[9::10])
        del paragraphs[9::10]
        train, test = Windows(encode("".join(paragraphs))), Windows(encode(held_out), stride=LENGTH)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} can't be used as a text: {reason}") from None
    if not (len(train) and len(test)):
        raise DataError(
            f"{path} must have ten paragraphs or more, and hundreds of characters in each, got {size} "
            f"characters in {count} paragraph{'s' * (count != 1)}"
        )
    return train, test


def load_text(path: str | PathLike | None = None) -> Dataset:
    """Return a text as a data set, for `data.load`; argument and errors are those of `read_text`."""
    train, test = read_text(path)
    return Dataset(TEXT, train, train, test, test, classes=tuple(VOCABULARY))
