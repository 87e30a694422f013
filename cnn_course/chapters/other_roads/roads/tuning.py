"""The choices of an auto-tuner: tile sizes of tuned_product.cu, their resources, and which are right."""

from typing import NamedTuple

import numpy as np

from cnn_course.chapters.other_roads.roads import source
from cnn_course.chapters.other_roads.roads.cuda_cpp import CudaCpp
from cnn_course.chapters.other_roads.roads.machine_code import usage
from cnn_course.chapters.the_machine.gpus import H100, T4

PROGRAM = "tuned_product.cu"
#: TILE_M, TILE_N, TILE_K, PER_M and PER_N of the candidates.
CHOICES = (
    *((16, 16, 16, 1, 1), (32, 32, 16, 2, 2), (64, 64, 4, 2, 2), (64, 64, 16, 4, 4)),
    *((128, 64, 16, 8, 4), (64, 64, 8, 1, 1), (128, 128, 64, 4, 4)),
)


class Target(NamedTuple):
    """A GPU's figures for the model of time."""

    name: str
    cc: str
    sms: int
    bandwidth: float
    """Bytes a second, of global memory."""
    flops: float
    """Operations of float32 a second, of all multiprocessors together."""


TARGETS = tuple(
    Target(gpu.name, cc, gpu.sms, gpu.bandwidth, gpu.flops) for gpu, cc in ((T4, "7.5"), (H100, "9.0"))
)


class Candidate(NamedTuple):
    """One choice of tile sizes, and the resources that the compiler reports."""

    tile_m: int
    tile_n: int
    tile_k: int
    per_m: int
    per_n: int
    threads: int
    """Of a block."""
    registers: int
    """Of a thread."""
    shared: int
    """Bytes of a block."""

    @property
    def name(self):
        """Its tile, and a thread's part of it."""
        return f"{self.tile_m} x {self.tile_n} x {self.tile_k}, {self.per_m} x {self.per_n} a thread"

    @property
    def define(self):
        """The macros that the program is compiled with."""
        names = "TILE_M", "TILE_N", "TILE_K", "PER_M", "PER_N"
        return {name: str(value) for name, value in zip(names, self, strict=False)}


def candidates(cc: int = 90) -> list[Candidate]:
    """Compile all `CHOICES` for an architecture, and return them with their resources."""
    found = []
    for choice in CHOICES:
        tile_m, tile_n, _, per_m, per_n = choice
        one = Candidate(*choice, threads=tile_m // per_m * (tile_n // per_n), registers=0, shared=0)
        registers, shared = usage(source(PROGRAM), one.define, cc)
        found.append(one._replace(registers=registers, shared=shared))
    return found


def multiply(candidate: Candidate, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply two matrices with a candidate's kernel, compiled for the current device."""
    road = CudaCpp(source(PROGRAM), candidate.define)
    (m, depth), n = a.shape, b.shape[1]
    d_a, d_b, out = road.array(a), road.array(b), road.empty(m, n)
    grid = -(-n // candidate.tile_n), -(-m // candidate.tile_m)
    road.launch("product", grid, candidate.threads, d_a, d_b, out, m, n, depth)
    return road.host(out)


def is_right(candidate: Candidate) -> bool:
    """Return whether a candidate's kernel is right for two matrices whose sides are no multiples of a tile.

    Fresh memory holds NaN on the emulated GPU, so a missing load shows.
    """
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((70, 37), (37, 83)))
    return bool(np.allclose(multiply(candidate, a, b), a @ b, atol=1e-4))
