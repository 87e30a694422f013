"""The GPUs whose times are modelled: what one SM does in a cycle, what the chip has of everything.

Where a number comes from stands beside it:

- W: NVIDIA's white paper on the architecture or the data sheet of the GPU;
- G: the CUDA C++ programming guide, "Arithmetic Instructions" and "Technical Specifications per Compute
  Capability";
- J18: Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, arXiv:1804.06826;
- J19: Jia et al., Dissecting the NVidia Turing T4 GPU via Microbenchmarking, arXiv:1903.07486;
- L24: Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, arXiv:2402.13499;
- C: Chips and Cheese, "Measuring GPU Memory Latency" (2021), "Microbenchmarking Nvidia's RTX 4090" (2022),
  "Nvidia's H100: Funny L2, and Tons of Bandwidth" (2023);
- V: chosen such that published times of kernels that do nothing but move memory come out, see
  `benchmarks/modelled`;
- A: assumed to be as on the nearest relative.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields, replace
from typing import Any

from gpuless.inspector.architectures import ARCHITECTURES, Architecture

KB, MB = 1 << 10, 1 << 20
_VOLTA = Architecture("Volta", 64, 32, 96 * KB, 0, 256, "1/2")  # G


@dataclass(frozen=True)
class Device:
    """A GPU, as the model sees it. Cycles are those of an SM; a partition is a quarter of an SM."""

    name: str
    cc: tuple
    """Compute capability."""
    sms: int
    clock: float
    """GHz that it runs at under load."""
    dram: float
    """GB/s that its memory has on paper."""
    dram_share: float
    """How much of that kernels get."""
    l2: int
    """Bytes of L2 that an SM's data can be in."""
    slices: int
    """Parts of L2 that work side by side."""
    slice_bytes: int
    """Bytes that one delivers in a cycle."""
    l1: int
    """Bytes of L1 and shared memory of an SM."""
    l1_bytes: int
    """Bytes that they deliver in a cycle."""
    lsu_lanes: int
    """Lanes whose loads and stores an SM takes in a cycle."""
    fma: float
    """Cycles for which a warp's float32 instruction keeps a partition's units busy; the following alike."""
    multiply: float
    """Integer multiplication."""
    alu: float
    """Other integer instructions, comparisons, logic."""
    float64: float
    special: float
    """Roots, sines, conversions."""
    l1_latency: int
    """Cycles from a load to its result where L1 has it; the following alike."""
    l2_latency: int
    dram_latency: int
    shared_latency: int
    compiled_for: tuple = ()
    """The compute capability whose machine code is looked at, where the compiler has none for `cc`."""
    l2_share: float = 0.77
    """How much of what its L2 has on paper kernels get: V, all GPUs."""
    launch: float = 2.5
    """Microseconds before the first block of a kernel begins and after the last one has ended: V."""
    block_start: int = 900
    """Cycles for which a block has a place on an SM before its first instruction and after its last: V."""
    rows: int = 0
    """How many published times the model has been held against."""
    error: float = 0.0
    """Its mean error on these."""

    @property
    def code(self) -> tuple:
        """The compute capability whose machine code is looked at."""
        return self.compiled_for or self.cc

    @property
    def sm(self) -> Architecture:
        """What an SM has room for."""
        return _VOLTA if self.cc == (7, 0) else ARCHITECTURES[self.cc]


# What the GPUs of an architecture have in common.
_ON_TURING: dict[str, Any] = {
    "cc": (7, 5),
    "l1": 96 * KB,  # W
    "l1_bytes": 64,  # J19, table 3.1
    "lsu_lanes": 16,  # W
    "fma": 2,  # G: 64 lanes of an SM in a cycle
    "multiply": 2,  # G
    "alu": 2,  # G
    "float64": 64,  # G: 2 lanes
    "special": 8,  # G: 16 lanes
    "l1_latency": 32,  # J19, table 3.1
    "l2_latency": 190,  # J19: 188
    "dram_latency": 430,  # V; J19 has 296 ns for the T4
    "shared_latency": 19,  # J19
    "slice_bytes": 32,  # J18, section 3.4
}
_ON_VOLTA: dict[str, Any] = {
    "cc": (7, 0),
    "compiled_for": (7, 5),  # CUDA 13 has no compiler for Volta
    "l1": 128 * KB,  # W
    "l1_bytes": 128,  # J18, table 3.1
    "lsu_lanes": 32,  # W
    "fma": 2,  # G
    "multiply": 2,  # G
    "alu": 2,  # G
    "float64": 4,  # G: 32 lanes
    "special": 8,  # G
    "l1_latency": 28,  # J18, table 3.1
    "l2_latency": 193,  # J18
    "dram_latency": 400,  # J18, section 3.5
    "shared_latency": 19,  # J18
    "slice_bytes": 32,  # J18: 64 bytes for each pair
}
_ON_AMPERE: dict[str, Any] = {  # GA100
    "cc": (8, 0),
    "l1": 192 * KB,  # W
    "l1_bytes": 128,  # W
    "lsu_lanes": 32,  # W
    "fma": 2,  # G
    "multiply": 2,  # G
    "alu": 2,  # G
    "float64": 4,  # G: 32 lanes
    "special": 8,  # G
    "l1_latency": 33,  # L24 has 38, by a chain of loads whose addresses have to be computed
    "l2_latency": 220,  # L24: 200 to 261, by the half of L2
    "dram_latency": 500,  # L24: 466
    "shared_latency": 23,  # L24 has 29, as above
    "slices": 80,  # W
    "slice_bytes": 64,  # W: 5120 bytes of the GPU in a cycle
    "l2": 20 * MB,  # W: 40 in two halves, each of which keeps what its own SMs ask for
}
_ON_GA10X: dict[str, Any] = {
    "cc": (8, 6),
    "l1": 128 * KB,  # W
    "l1_bytes": 128,  # W
    "lsu_lanes": 16,  # W
    "fma": 1,  # G: 128 lanes
    "multiply": 2,  # G: 64 lanes
    "alu": 2,  # G: 64 lanes
    "float64": 64,  # G: 2 lanes
    "special": 8,  # G
    "l1_latency": 33,  # A: GA100
    "l2_latency": 220,  # C: more than 100 ns behind L1 on an RTX 3090
    "dram_latency": 480,  # C
    "shared_latency": 25,  # A
    "slice_bytes": 32,  # A: Turing
}
_ON_ADA: dict[str, Any] = _ON_GA10X | {
    "cc": (8, 9),
    "l2_latency": 273,  # L24
    "dram_latency": 540,  # L24
    "slice_bytes": 32,  # A
}
_ON_HOPPER: dict[str, Any] = _ON_AMPERE | {
    "cc": (9, 0),
    "l1": 256 * KB,  # W
    "fma": 1,  # G: 128 lanes
    "float64": 2,  # G: 64 lanes
    "l2_latency": 260,  # L24
    "dram_latency": 560,  # L24 has 479 for the PCIe card; C more
    "shared_latency": 29,  # L24
    "slices": 96,  # C: 5.5 to 7 TB/s
    "l2": 25 * MB,  # W: 50 in two halves
}

# SMs, memory, its width and L2 of each GPU: W. Clocks: the boost of W, where no other source is given.
_ALL = (
    # The card with GDDR6, by its memory.
    Device("GTX 1650", sms=14, clock=1.80, dram=192, dram_share=0.86, l2=1 * MB, slices=8, **_ON_TURING),
    # Its 70 W allow no more than 1.35 GHz for long: J19, section 6. Share: V.
    Device("T4", sms=40, clock=1.35, dram=320, dram_share=0.84, l2=4 * MB, slices=32, **_ON_TURING),
    Device(
        "RTX 2080 Ti", sms=68, clock=1.635, dram=616, dram_share=0.88, l2=5632 * KB, slices=44, **_ON_TURING
    ),
    Device("V100", sms=80, clock=1.53, dram=900, dram_share=0.92, l2=6 * MB, slices=64, **_ON_VOLTA),
    # GeForce cards run above the boost of their data sheets: C.
    Device("RTX 3060", sms=28, clock=1.86, dram=360, dram_share=0.92, l2=3 * MB, slices=24, **_ON_GA10X),
    Device("RTX 3060 Ti", sms=38, clock=1.87, dram=448, dram_share=0.92, l2=4 * MB, slices=32, **_ON_GA10X),
    Device("RTX 3070 Ti", sms=48, clock=1.86, dram=608, dram_share=0.92, l2=4 * MB, slices=32, **_ON_GA10X),
    Device("RTX 3080", sms=68, clock=1.88, dram=760, dram_share=0.92, l2=5 * MB, slices=40, **_ON_GA10X),
    Device("RTX 3090", sms=82, clock=1.80, dram=936, dram_share=0.92, l2=6 * MB, slices=48, **_ON_GA10X),
    Device("A6000", sms=84, clock=1.74, dram=768, dram_share=0.92, l2=6 * MB, slices=48, **_ON_GA10X),
    Device("A10G", sms=80, clock=1.71, dram=600, dram_share=0.90, l2=6 * MB, slices=48, **_ON_GA10X),
    Device("A100 PCIe", sms=108, clock=1.41, dram=1555, dram_share=0.90, **_ON_AMPERE),
    Device("A100 SXM", sms=108, clock=1.41, dram=2039, dram_share=0.90, **_ON_AMPERE),
    # 72 W: L24 and others see about 1.6 GHz under load.
    Device("L4", sms=58, clock=1.6, dram=300, dram_share=0.90, l2=48 * MB, slices=48, **_ON_ADA),
    Device("RTX 4090", sms=128, clock=2.6, dram=1008, dram_share=0.92, l2=72 * MB, slices=96, **_ON_ADA),
    Device("H100 PCIe", sms=114, clock=1.70, dram=2039, dram_share=0.91, **_ON_HOPPER),
    Device("H100 SXM", sms=132, clock=1.755, dram=3352, dram_share=0.93, **_ON_HOPPER),
)
# How many published times of `benchmarks/modelled` the model was held against, and its mean error there.
_HELD_AGAINST = {"GTX 1650": (31, 0.13), "T4": (6, 0.23), "A6000": (5, 0.09)}
_HELD_AGAINST |= {"RTX 3060": (31, 0.09), "RTX 3080": (80, 0.16)}
DEVICES = {
    device.name: replace(device, rows=rows, error=error)
    for device in _ALL
    for rows, error in [_HELD_AGAINST.get(device.name, (0, 0.0))]
}
_SHORT = {
    "A100": "A100 SXM",
    "H100": "H100 SXM",
    "RTX A6000": "A6000",
    "TESLA T4": "T4",
    "TESLA V100": "V100",
}


def device(name: str | Device, /, **changes: Any) -> Device:
    """Return a GPU that is modelled, or one like it.

    Parameters
    ----------
    name : str
        One of `DEVICES`; "A100" and "H100" are the SXM modules.
    **changes
        Fields of `Device` that differ, such as ``clock=1.0``.

    Raises
    ------
    ValueError
        If the GPU is not known.
    TypeError
        If there is no such field.

    Examples
    --------
    >>> device("T4").sms, device("T4", clock=1.59, name="a T4 in winter").clock
    (40, 1.59)
    """
    found = name if isinstance(name, Device) else _find(name)
    unknown = changes.keys() - {field.name for field in fields(Device)}
    if unknown:
        raise TypeError(f"a device has no {', '.join(sorted(unknown))}: see gpuless.profile.Device")
    return replace(found, **changes)


def _find(name):
    short = str(name).upper().removeprefix("NVIDIA ").removeprefix("GEFORCE ")
    known = {each.upper(): each for each in DEVICES} | _SHORT
    if short in known:
        return DEVICES[known[short]]
    near = difflib.get_close_matches(short, known, 1)
    hint = f"; did you mean {known[near[0]]!r}?" if near else ""
    raise ValueError(f"gpu {name!r} is not known, only {', '.join(DEVICES)}{hint}")
