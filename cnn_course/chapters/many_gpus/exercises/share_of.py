"""`share_of`: the images of each worker."""

import functools
from collections import Counter

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, avoids


@functools.cache  # a check asks for the same shares hundreds of times, which is slow for a million images
def _shares(n, size):
    """Distribute the images one by one, and return where each worker's share begins and ends."""
    counts = Counter(image % size for image in range(n))
    ends = np.cumsum([counts[rank] for rank in range(size)])
    return [(int(end) - counts[rank], int(end)) for rank, end in enumerate(ends)]


def _in_blocks_of(block):
    """Return a mistake's function: it cuts into blocks of one length."""
    return lambda n, rank, size: (min(rank * block(n, size), n), min((rank + 1) * block(n, size), n))


def _rest_to(chosen):
    def function(n, rank, size):
        counts = [n // size + (n % size if other == chosen % size else 0) for other in range(size)]
        return sum(counts[:rank]), sum(counts[: rank + 1])

    return function


def _begun(n, rank, size, more):
    """Return a share that begins as if the previous workers had `more` extra images."""
    first = rank * (n // size) + more
    return first, first + n // size + (rank < n % size)


share_of = Exercise(
    "share_of",
    reference=lambda n, rank, size: _shares(n, size)[rank],
    cases=lambda rng: [
        *((n, rank, size) for n, size in ((1, 1), (7, 3), (64, 2), (11, 4)) for rank in range(size)),
        *((2, rank, 4) for rank in range(4)),
        *((0, 1, 3), (60_000, 6, 7), (1_000_003, 999, 1000)),
    ],
    properties=(avoids("array_split"),),
    mistakes={
        "rest left out": (
            "No worker gets the remainder: the first `{n} % {size}` workers take one more image each.",
            _in_blocks_of(lambda n, size: n // size),
            [("+ min(rank, rest)", ""), ("each + (rank < rest)", "each")],
        ),
        "rounded up": (
            "You round up the share. Then the last workers get fewer images than the others, or none: 11 "
            "images in blocks of 3 leave 2 for the fourth. The first `{n} % {size}` take one more, and all "
            "others `{n} // {size}`.",
            _in_blocks_of(lambda n, size: -(-n // size)),
            [
                ("each, rest = divmod(n, size)", "each = -(-n // size)"),
                ("rank * each + min(rank, rest)", "min(rank * each, n)"),
                ("first + each + (rank < rest)", "min(first + each, n)"),
            ],
        ),
        "rest to the last": (
            "The last worker gets the whole remainder, and the others wait. Spread it over the first "
            "workers.",
            _rest_to(-1),
            [
                ("+ min(rank, rest)", ""),
                ("first + each + (rank < rest)", "n if rank == size - 1 else first + each"),
            ],
        ),
        "rest to the first": (
            "Worker 0 gets the whole remainder, and the others wait. Spread it over the first workers.",
            _rest_to(0),
            [("min(rank, rest)", "(rest if rank else 0)"), ("rank < rest", "rest if rank == 0 else 0")],
        ),
        "the last ones more": (
            "Your last workers take one image more. Let the first `{n} % {size}` workers do so.",
            lambda n, rank, size: tuple(n - edge for edge in reversed(_shares(n, size)[size - 1 - rank])),
            [("min(rank, rest)", "max(0, rank - (size - rest))"), ("(rank < rest)", "(rank >= size - rest)")],
        ),
        "cut at fractions": (
            "You cut at `{n} * {rank} // {size}`, as exercise 3 cuts its chunks. Shares differ by at most "
            "one, but the first workers aren't the ones with one more: of 7 images for 3 workers, worker 2 "
            "has 3. Let the first `{n} % {size}` workers take one more.",
            lambda n, rank, size: (n * rank // size, n * (rank + 1) // size),
            [
                ("each, rest = divmod(n, size)", ""),
                ("rank * each + min(rank, rest)", "n * rank // size"),
                ("first + each + (rank < rest)", "n * (rank + 1) // size"),
            ],
        ),
        "begin not moved": (
            "Your shares overlap: count the extra images of the workers before you, `min({rank}, {n} % "
            "{size})`.",
            lambda n, rank, size: (
                rank * (n // size),
                rank * (n // size) + np.diff(_shares(n, size)[rank])[0],
            ),
            ("+ min(rank, rest)", ""),
        ),
        "end not moved": (
            "The end is one too early for the workers that take one image more: add 1 to it where `{rank} < "
            "{n} % {size}`.",
            lambda n, rank, size: (_shares(n, size)[rank][0], _shares(n, size)[rank][0] + n // size),
            ("first + each + (rank < rest)", "first + each"),
        ),
        "length returned": (
            "You return the first image and the number of images. Return first and end, as in a slice.",
            lambda n, rank, size: (_shares(n, size)[rank][0], int(np.diff(_shares(n, size)[rank])[0])),
            ("first + each", "each"),
        ),
        "last one inside": (
            "Your end is the last image itself. As in a slice, the end is the one after it.",
            lambda n, rank, size: (_shares(n, size)[rank][0], _shares(n, size)[rank][1] - 1),
            ("(rank < rest)", "(rank < rest) - 1"),
        ),
        "all take one more": (
            "Every worker takes one image more, so the shares overlap. Only the first `{n} % {size}` do.",
            lambda n, rank, size: (_shares(n, size)[rank][0], _shares(n, size)[rank][0] + n // size + 1),
            ("(rank < rest)", "1"),
        ),
        "one more too often": (
            "One worker too many takes one image more: the first `{n} % {size}` are those with `{rank}` "
            "*below* that number.",
            lambda n, rank, size: (
                _shares(n, size)[rank][0],
                _shares(n, size)[rank][0] + n // size + (rank <= n % size),
            ),
            ("(rank < rest)", "(rank <= rest)"),
        ),
        "begin too late": (
            "Your begin counts too many extra images: the workers before this one take `min({rank}, {n} % "
            "{size})` of them.",
            lambda n, rank, size: _begun(n, rank, size, n % size),
            lambda n, rank, size: _begun(n, rank, size, rank),
            lambda n, rank, size: _begun(n, rank, size, max(rank, n % size)),
            ("min(rank, rest)", "rest"),
            ("min(rank, rest)", "rank"),
            ("min(rank, rest)", "max(rank, rest)"),
        ),
    },
)
