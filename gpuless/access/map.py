"""What a kernel's accesses cost: sectors, coalescing, bank conflicts, reuse.

The 32 lanes of a warp execute an instruction together. Costs are counted per request: one instruction,
executed once, by one warp, on one array.

**Global memory** moves in sectors of 32 bytes. A request moves every sector in which it touches a byte. Its
*efficiency* is the bytes asked for divided by the bytes moved. Bytes that several lanes ask for count once,
so it is at most 100 %, and 4 / 32 if all lanes read one float32. An atomic counts its sectors once, as L2
does the arithmetic.

**Shared memory** has 32 banks, each of which delivers a word of 4 bytes at a time; the word at address a lies
in bank ``a // 4 % 32``. The *degree* of a request is the number of different words it needs from its busiest
bank: at 1 there is no conflict, at 32 the lanes are served one after the other. Lanes that want the same word
are served together, and so are elements of 1 or 2 bytes in the same word. Elements of 8 bytes are served half
a warp at a time, those of 16 bytes a quarter; the degree is that of the worst part. Atomics on one word don't
conflict, but they wait for each other: they are *serialised*, by the number of lanes that want the word. The
*wavefronts* of a request are how often shared memory delivers for it, for either reason.

**The minimum** is each distinct element read, moved once, and each distinct element written, moved once.
``x[i] += 1`` is a read and a write; so is an atomic in `AccessMap.reads` and `AccessMap.writes`.

No caches are modelled: on a real GPU, the cost of a second request for a sector depends on whether L1 or L2
still holds it. Accesses to local and constant arrays are counted, but don't make requests.
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from gpuless.access import tables
from gpuless.access.recording import traced
from gpuless.access.requests import Requests, requests_of
from gpuless.access.trace import ATOMIC, READ, WRITE, Trace, combine
from gpuless.limits import SECTOR
from gpuless.simulator.kernel import Observed

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
        For a trace, its map. For a kernel, an object launched like it:
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
        The instruction, if all requests are of one.
    requests, bytes_asked, sectors, wavefronts : int
    most_sectors : int
        The most that one request moves.
    degree : int
        Of the worst request: 1 without conflicts; 0 if the array is not shared.
    serialised : int
        The most lanes of a warp that update one word of a shared array atomically; 0 without such atomics.
    minimum : int
        Bytes of the distinct elements read plus those of the distinct elements written.
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
        """Bytes asked for divided by bytes moved, from 0 to 1; NaN if nothing moved."""
        return self.bytes_asked / self.bytes_moved if self.sectors else float("nan")

    @property
    def sectors_per_request(self) -> float:
        """How many sectors a warp's request moves on average."""
        return self.sectors / self.requests if self.requests else float("nan")

    @property
    def times_minimum(self) -> float:
        """Bytes moved divided by the fewest possible."""
        return self.bytes_moved / self.minimum if self.minimum else float("nan")


class AccessMap:
    """What the accesses of one launch cost; the module explains how it is counted."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @functools.cached_property
    def requests(self) -> Requests:
        """All requests to global and shared arrays: `Requests`."""
        return requests_of(self.trace)

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
            Count only these; all by default.

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
            Count only this block. By default, all blocks are summed, also for shared arrays.

        Returns
        -------
        ndarray of int64, shape of the array
        """
        return self._counts(array, (READ, ATOMIC), block)

    def writes(self, array: str | int, block: int | tuple[int, ...] | None = None) -> np.ndarray:
        """Return how often each element is written; parameters as for `reads`."""
        return self._counts(array, (WRITE, ATOMIC), block)

    def touches(self, array: str | int, block: int | tuple[int, ...] | None = None) -> np.ndarray:
        """Return a mask of the trace's rows that touch an array; parameters as for `reads`."""
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
        """The fewest bytes that global memory has to move: see the module."""
        return sum(traffic.minimum for traffic in self.arrays if traffic.space == "global")

    @property
    def efficiency(self) -> float:
        """Bytes asked of global memory divided by bytes moved; NaN if nothing moved."""
        asked = int(self.requests.bytes_asked[self.requests.sectors > 0].sum())
        return asked / self.bytes_moved if self.sectors else float("nan")

    @property
    def degree(self) -> int:
        """The degree of the worst bank conflict: 1 if there is none, 0 without shared memory."""
        return int(self.requests.degree.max(initial=0))

    @property
    def serialised(self) -> int:
        """The most lanes of a warp that update one shared word atomically; 0 without such atomics."""
        return int(self.requests.serialised.max(initial=0))

    def __str__(self):
        return tables.text(self)

    def _repr_html_(self):
        return tables.as_html(self)
