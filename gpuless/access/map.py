"""What a kernel's accesses cost: sectors, coalescing, bank conflicts, reuse.

A warp's 32 lanes execute an instruction together. What follows from that is counted here, request by request:
a request is one instruction, executed once, by one warp, on one array.

**Global memory** moves in sectors of 32 bytes. A request moves every sector in which it touches a byte,
whole. Its *efficiency* is the bytes it asked for by the bytes moved, where bytes that several lanes ask for
count once: it cannot exceed 100 %, and a broadcast of one float32 has 4 / 32. An atomic counts its sectors
once, as L2 does the arithmetic.

**Shared memory** has 32 banks that deliver a word of 4 bytes each at a time; the word at address a lies in
bank ``a // 4 % 32``. The *degree* of a request is the number of different words it wants of one bank, at
worst: 1 is free of conflicts, 32 is served one lane after the other. Lanes that want the same word are
served together, and so are elements of 1 or 2 bytes in the same word. Elements of 8 bytes are served half a
warp at a time, those of 16 bytes a quarter, and the degree is that of the worst part. Atomics on one word
are no conflict, and yet one lane waits for the other: they are *serialised*, by the number of lanes that want
the same word. The *wavefronts* of a request are the times that shared memory had to deliver for it, for
either reason.

**The minimum** is each distinct element moved once for reading, and once for writing. ``x[i] += 1`` is a
read and a write, and so is an atomic to `AccessMap.reads` and `AccessMap.writes`.

No caches are modelled: what a second request for the same sector costs on a real GPU depends on whether L1
or L2 still holds it. Local and constant arrays have no requests here; their elements' reads and writes are
counted.
"""

from __future__ import annotations

import functools
import html
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from gpuless.access.recording import traced
from gpuless.access.trace import ATOMIC, FENCE, READ, WRITE, Trace, combine, distinct
from gpuless.limits import WARP
from gpuless.positions import describe_launch
from gpuless.simulator.kernel import Observed

SECTOR, BANKS, WORD = 32, 32, 4
_KIND_NAMES = {READ: "read", WRITE: "write", ATOMIC: "atomic"}


@overload
def access_map(kernel: Trace) -> AccessMap: ...
@overload
def access_map(kernel: Callable) -> Observed[AccessMap]: ...
def access_map(kernel: Any) -> AccessMap | Observed[AccessMap]:
    """Return what a launch's accesses cost.

    Parameters
    ----------
    kernel : kernel, function or Trace

    Returns
    -------
    AccessMap or object
        Of a trace its map; else what is to be launched as the kernel is:
        ``access_map(kernel)[grid, block](*arguments)`` returns an `AccessMap`.

    Examples
    --------
    >>> import gpuless
    >>> selection = gpuless.select()  # before numba.cuda is imported
    >>> from numba import cuda
    >>> @cuda.jit
    ... def every_other(x, y):
    ...     i = cuda.threadIdx.x
    ...     y[i] = x[2 * i]
    >>> x, y = cuda.to_device(np.zeros(64, np.float32)), cuda.device_array(32, np.float32)
    >>> access = access_map(every_other)[1, 32](x, y)
    >>> access.total("x").sectors, access.total("x").efficiency
    (8, 0.5)
    >>> access.total("y").sectors, access.total("y").efficiency
    (4, 1.0)
    """
    if isinstance(kernel, Trace):
        return AccessMap(kernel)
    return Observed(kernel, lambda launch, arguments: AccessMap(traced(launch, arguments)))


@dataclass(frozen=True)
class Requests:
    """The warps' requests as columns of equal length, in the order in which they began.

    Each column is an array, so that masks choose: ``requests.sectors[requests.block == 0]``.

    Attributes
    ----------
    array, kind, site, block, warp, interval, occurrence : ndarray of int
        As in `gpuless.access.trace`: `array` is a number in ``trace.arrays``, `site` one in
        ``trace.sites``, `kind` is READ, WRITE or ATOMIC; `warp` is the number of the warp in its block.
    lanes : ndarray of int
        How many threads took part.
    bytes_asked : ndarray of int
        Distinct bytes that they asked for.
    sectors : ndarray of int
        Sectors of 32 bytes moved; 0 if the array is not global.
    degree, wavefronts : ndarray of int
        Bank conflicts; 0 if the array is not shared.
    serialised : ndarray of int
        How many lanes an atomic has wait for each other at one word: 1 if none; 0 if it is no atomic on
        a shared array.
    """

    array: np.ndarray
    kind: np.ndarray
    site: np.ndarray
    block: np.ndarray
    warp: np.ndarray
    interval: np.ndarray
    occurrence: np.ndarray
    lanes: np.ndarray
    bytes_asked: np.ndarray
    sectors: np.ndarray
    degree: np.ndarray
    wavefronts: np.ndarray
    serialised: np.ndarray

    def __len__(self):
        return len(self.array)


@dataclass(frozen=True)
class Traffic:
    """The sum of several requests.

    Attributes
    ----------
    array : str
        Name.
    space : str
        "global" or "shared".
    access : str
        "read", "write", "atomic", or several of them.
    site : Site or None
        The instruction, if all are of one.
    requests, bytes_asked, sectors, wavefronts : int
    most_sectors : int
        Of one request.
    degree : int
        Of the worst request: 1 without conflicts; 0 if the array is not shared.
    serialised : int
        How many lanes of a warp update one word of a shared array atomically, at worst; 0 without such
        atomics.
    minimum : int
        Bytes of the distinct elements, those read and those written.
    """

    array: str
    space: str
    access: str
    site: object
    requests: int
    bytes_asked: int
    sectors: int
    most_sectors: int
    degree: int
    wavefronts: int
    serialised: int
    minimum: int

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors."""
        return self.sectors * SECTOR

    @property
    def efficiency(self) -> float:
        """Bytes asked for by bytes moved, between 0 and 1; NaN if nothing moved."""
        return self.bytes_asked / self.bytes_moved if self.sectors else float("nan")

    @property
    def sectors_per_request(self) -> float:
        """How many sectors a warp's request moves on average."""
        return self.sectors / self.requests if self.requests else float("nan")

    @property
    def times_minimum(self) -> float:
        """Bytes moved by the fewest possible."""
        return self.bytes_moved / self.minimum if self.minimum else float("nan")


class AccessMap:
    """What the accesses of one launch cost; the module says how it is counted.

    Parameters
    ----------
    trace : Trace
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @functools.cached_property
    def requests(self) -> Requests:
        """All requests to global and shared arrays: `Requests`."""
        return _requests(self.trace)

    @functools.cached_property
    def arrays(self) -> list[Traffic]:
        """One `Traffic` for each array and each access to it (read, write, atomic)."""
        return self._grouped(with_sites=False)

    @functools.cached_property
    def lines(self) -> list[Traffic]:
        """One `Traffic` for each instruction and array, in the order of the source."""
        return sorted(
            self._grouped(with_sites=True), key=lambda traffic: (traffic.site[:2], traffic.site.offset)
        )

    def total(self, array: str | int, access: str | None = None) -> Traffic:
        """Return an array's traffic.

        Parameters
        ----------
        array : str or int
            Name, or number in ``trace.arrays``.
        access : {"read", "write", "atomic"}, optional
            Only this; all by default.

        Returns
        -------
        Traffic

        Raises
        ------
        ValueError
            If there is no such array or access.
        """
        if access is not None and access not in _KIND_NAMES.values():
            raise ValueError(f"access is 'read', 'write' or 'atomic', got {reprlib.repr(access)}")
        chosen = self.requests.array == self.number(array)
        if access:
            chosen &= self.requests.kind == {name: kind for kind, name in _KIND_NAMES.items()}[access]
        return self._traffic(self.number(array), chosen, access)

    def reads(self, array: str | int, block: int | tuple[int, ...] | None = None) -> np.ndarray:
        """Return how often each element is read.

        Parameters
        ----------
        array : str or int
            Name, or number in ``trace.arrays``.
        block : int or tuple of int, optional
            Of this block only. Shared arrays, of which each block has its own, are summed over all otherwise.

        Returns
        -------
        ndarray of int64, shape of the array
        """
        return self._counts(array, (READ, ATOMIC), block)

    def writes(self, array: str | int, block: int | tuple[int, ...] | None = None) -> np.ndarray:
        """Return how often each element is written; parameters as for `reads`."""
        return self._counts(array, (WRITE, ATOMIC), block)

    def touches(self, array: str | int, block: int | tuple[int, ...] | None = None) -> np.ndarray:
        """Return which rows of the trace touch an array, as a mask; parameters as for `reads`."""
        mask = self.trace.array == self.number(array)
        return mask if block is None else mask & (self.trace.block == self._block_number(block))

    def _counts(self, array, kinds, block):
        mask = self.touches(array, block) & np.isin(self.trace.kind, kinds)
        shape = self.trace.arrays[self.number(array)].shape
        size = int(np.prod(shape))
        return np.bincount(self.trace.element[mask], minlength=size).reshape(shape)

    def number(self, array: str | int) -> int:
        """Return an array's number in ``trace.arrays``.

        Parameters
        ----------
        array : str or int
            Name or number.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If there is no such array, or several of that name.
        """
        names = [info.name for info in self.trace.arrays]
        if isinstance(array, (int, np.integer)) and 0 <= array < len(names):
            return int(array)
        if array not in names:
            raise ValueError(
                f"the kernel uses no array {array!r}, only {', '.join(map(repr, names)) or 'none'}"
            )
        if names.count(array) > 1:
            numbers = [i for i, name in enumerate(names) if name == array]
            raise ValueError(f"several arrays are called {array!r}: give one of the numbers {numbers}")
        return names.index(array)

    def _block_number(self, block):
        grid, index = tuple(self.trace.grid), np.atleast_1d(block).tolist()
        shape = grid if len(index) > 1 else (int(np.prod(grid)),)
        index += [0] * (len(shape) - len(index))
        try:
            return int(np.ravel_multi_index(index, shape, order="F"))  # x varies fastest
        except ValueError:
            raise ValueError(f"block {block} is not in the grid {grid}") from None

    def _grouped(self, with_sites):
        requests = self.requests
        columns = [requests.array, requests.kind] + ([requests.site] if with_sites else [])
        groups = sorted(set(zip(*(column.tolist() for column in columns), strict=True)))
        result = []
        for group in groups:
            chosen = np.logical_and.reduce([c == v for c, v in zip(columns, group, strict=True)])
            site = self.trace.sites[group[2]] if with_sites else None
            result.append(self._traffic(group[0], chosen, _KIND_NAMES[group[1]], site, *group[2:]))
        return result

    def _traffic(self, array, chosen, access, site=None, site_number=None):
        requests, info = self.requests, self.trace.arrays[array]
        kinds = np.unique(requests.kind[chosen]).tolist()
        rows = (self.trace.array == array) & np.isin(self.trace.kind, kinds)
        if site_number is not None:
            rows &= self.trace.site == site_number
        touched = np.unique(combine(self.trace.kind[rows].astype(np.int64), self.trace.element[rows]))
        return Traffic(
            array=info.name,
            space=info.space,
            access=access or " and ".join(_KIND_NAMES[kind] for kind in kinds),
            site=site,
            requests=int(chosen.sum()),
            bytes_asked=int(requests.bytes_asked[chosen].sum()),
            sectors=int(requests.sectors[chosen].sum()),
            most_sectors=int(requests.sectors[chosen].max(initial=0)),
            degree=int(requests.degree[chosen].max(initial=0)),
            wavefronts=int(requests.wavefronts[chosen].sum()),
            serialised=int(requests.serialised[chosen].max(initial=0)),
            minimum=len(touched) * info.dtype.itemsize,
        )

    @property
    def sectors(self) -> int:
        """All sectors moved between the GPU and its global memory."""
        return int(self.requests.sectors.sum())

    @property
    def bytes_moved(self) -> int:
        """Bytes of these sectors."""
        return self.sectors * SECTOR

    @property
    def minimum(self) -> int:
        """The fewest bytes that global memory had to move: see the module."""
        return sum(traffic.minimum for traffic in self.arrays if traffic.space == "global")

    @property
    def efficiency(self) -> float:
        """Bytes asked of global memory by bytes moved; NaN if nothing moved."""
        asked = int(self.requests.bytes_asked[self.requests.sectors > 0].sum())
        return asked / self.bytes_moved if self.sectors else float("nan")

    @property
    def degree(self) -> int:
        """The worst bank conflict: 1 if there is none, 0 without shared memory."""
        return int(self.requests.degree.max(initial=0))

    @property
    def serialised(self) -> int:
        """How many lanes of a warp update one shared word atomically, at worst; 0 without such atomics."""
        return int(self.requests.serialised.max(initial=0))

    def _tables(self):
        """Return the tables as (heading, columns, rows)."""
        tables = []
        for heading, traffics in (("", self.arrays), (" by line", self.lines)):
            for space, columns, cells in (
                ("global", _GLOBAL_COLUMNS, _global_cells),
                ("shared", _SHARED_COLUMNS, _shared_cells),
            ):
                rows = [_what(each) + cells(each) for each in traffics if each.space == space]
                if rows:
                    tables.append((f"{space} memory{heading}", ("", "", *columns), rows))
        return tables

    @property
    def _title(self):
        launch = describe_launch(self.trace.kernel, self.trace.grid, self.trace.block_shape)
        parts = []
        if self.sectors:
            parts.append(
                f"{_bytes(self.bytes_moved)} moved, {self.bytes_moved / self.minimum:.1f} times the minimum, "
                f"{100 * self.efficiency:.3g}% of it asked for"
            )
        if self.degree:
            parts.append(
                "no bank conflicts" if self.degree == 1 else f"bank conflicts up to {self.degree}-way"
            )
        if self.serialised > 1:
            parts.append(f"atomics serialised, up to {self.serialised} lanes at one word")
        return f"{launch}: {'; '.join(parts) or 'no traffic'}"

    def __str__(self):
        lines = [self._title]
        for heading, columns, rows in self._tables():
            lines += ["", heading, *_aligned([columns, *rows])]
        return "\n".join(lines)

    def _repr_html_(self):
        # Colours come from the page, so that it reads well on light and on dark.
        parts = [f"<p><b>{html.escape(self._title)}</b></p>"]
        for heading, columns, rows in self._tables():
            head = "".join(_html_cell("th", text, i) for i, text in enumerate(columns))
            body = "".join(
                f"<tr>{''.join(_html_cell('td', text, i) for i, text in enumerate(row))}</tr>" for row in rows
            )
            parts.append(
                f"<p style='margin-bottom:0.2em'>{heading}</p>"
                f"<table style='border-collapse:collapse'><tr>{head}</tr>{body}</table>"
            )
        return f"<div>{''.join(parts)}</div>"


_GLOBAL_COLUMNS = ("requests", "sectors", "per request", "efficiency", "moved", "minimum")
_SHARED_COLUMNS = ("requests", "wavefronts", "per request", "conflicts")


def _what(traffic):
    if traffic.site is None:
        return (traffic.array, traffic.access)
    return (f"{traffic.site.line}: {traffic.site.expression or traffic.array}", traffic.access)


def _global_cells(traffic):
    return (
        str(traffic.requests),
        str(traffic.sectors),
        f"{traffic.sectors_per_request:.1f}",
        f"{100 * traffic.efficiency:.3g}%",
        _bytes(traffic.bytes_moved),
        _bytes(traffic.minimum),
    )


def _shared_cells(traffic):
    conflicts = "none" if traffic.degree <= 1 else f"{traffic.degree}-way"
    if traffic.serialised > 1:
        conflicts += f", {traffic.serialised} lanes serialised"
    each = traffic.wavefronts / traffic.requests
    return str(traffic.requests), str(traffic.wavefronts), f"{each:.1f}", conflicts


def _bytes(count):
    for unit, size in (("MB", 2**20), ("KB", 2**10)):
        if count >= 10 * size:
            return f"{count / size:.0f} {unit}"
    return f"{count} B"


def _aligned(rows):
    """Return the rows as lines with columns below each other: text to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            text.ljust(width) if i < 2 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _html_cell(tag, text, column):
    side = "left" if column < 2 else "right"
    style = f"text-align:{side};padding:0.2em 0.7em;border-top:1px solid currentColor"
    text = html.escape(text)
    return f"<{tag} style='{style}'>{f'<code>{text}</code>' if text and column == 0 else text}</{tag}>"


# --- Counting ----------------------------------------------------------------------------------------------


def _requests(trace):
    """Group the trace's rows into the warps' requests."""
    counted = np.array([info.space in ("global", "shared") for info in trace.arrays] + [False])
    rows = np.flatnonzero(counted[trace.array] & (trace.kind != FENCE))
    columns = {name: getattr(trace, name)[rows].astype(np.int64) for name in _KEY if name != "warp"}
    columns["warp"] = trace.thread[rows] // WARP
    _, first, group = np.unique(
        combine(*(columns[name] for name in _KEY)), return_index=True, return_inverse=True
    )
    # In the order of their first access.
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    group, first = rank[group], first[order]
    count = len(first)

    address, size = trace.address[rows], trace.itemsize[rows]
    space = np.array([info.space for info in trace.arrays] + [""])[trace.array[rows]]
    elements = np.unique(combine(group, address), return_index=True)[1]
    bytes_asked = np.bincount(group[elements], weights=size[elements], minlength=count).astype(np.int64)
    shared = space == "shared"
    degree, _ = _conflicts(trace, rows, group, count, shared, apart=False)
    _, wavefronts = _conflicts(trace, rows, group, count, shared, apart=True)
    return Requests(
        **{name: columns[name][first] for name in _KEY},
        lanes=np.bincount(group, minlength=count),
        bytes_asked=bytes_asked,
        sectors=_sectors(group, address, size, count, space == "global"),
        degree=degree,
        wavefronts=wavefronts,
        serialised=_serialised(trace, rows, group, count, shared),
    )


_KEY = ("array", "kind", "site", "block", "warp", "interval", "occurrence")


def _sectors(group, address, size, count, chosen):
    """Return how many distinct sectors each request touches."""
    group, address, size = group[chosen], address[chosen], size[chosen]
    # An element that is not aligned, a field of a record say, can lie in two of them.
    sectors = np.concatenate([address // SECTOR, (address + size - 1) // SECTOR])
    requests, _ = distinct(np.concatenate([group, group]), sectors).columns
    return np.bincount(requests, minlength=count)


def _conflicts(trace, rows, group, count, chosen, apart):
    """Return the degree of each request's bank conflicts, and its wavefronts.

    With `apart`, the lanes of an atomic count as if each wanted a word of its own.
    """
    rows, group = rows[chosen], group[chosen]
    size, lane = trace.itemsize[rows], trace.thread[rows] % WARP
    words = np.maximum(size // WORD, 1)
    part = lane * words // WARP  # of the warp: halves for 8 bytes, quarters for 16
    own = np.where(trace.kind[rows] == ATOMIC, lane + 1, 0) * apart
    expanded = np.repeat(np.arange(len(rows)), words)
    within = np.arange(len(expanded)) - np.repeat(np.cumsum(words) - words, words)
    word = trace.address[rows][expanded] // WORD + within
    wanted = distinct(group[expanded], part[expanded], word % BANKS, word, own[expanded]).columns
    banks = distinct(*wanted[:3])
    parts = distinct(*banks.columns[:2])
    worst = np.zeros(len(parts.first), np.int64)
    np.maximum.at(worst, parts.which, banks.counts)
    degree = np.zeros(count, np.int64)
    request = parts.columns[0]
    np.maximum.at(degree, request, worst)
    return degree, np.bincount(request, weights=worst, minlength=count).astype(np.int64)


def _serialised(trace, rows, group, count, chosen):
    """Return how many lanes of each atomic request want one word, at worst."""
    chosen = chosen & (trace.kind[rows] == ATOMIC)
    rows, group = rows[chosen], group[chosen]
    words = distinct(group, trace.address[rows] // WORD)
    serialised = np.zeros(count, np.int64)
    np.maximum.at(serialised, words.columns[0], words.counts)
    return serialised
