"""The GPUs whose times are modelled: what an SM does in a cycle, and how much of everything the chip has.

The source of each number stands beside it:

- W: NVIDIA's white paper on the architecture or the data sheet of the GPU;
- G: the CUDA C++ programming guide, "Arithmetic Instructions" and "Technical Specifications per Compute
  Capability";
- J18: Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, arXiv:1804.06826;
- J19: Jia et al., Dissecting the NVidia Turing T4 GPU via Microbenchmarking, arXiv:1903.07486;
- L24: Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, arXiv:2402.13499;
- C: Chips and Cheese, "Measuring GPU Memory Latency" (2021), "Microbenchmarking Nvidia's RTX 4090" (2022),
  "Nvidia's H100: Funny L2, and Tons of Bandwidth" (2023), "Nvidia's B200: Keeping the CUDA Juggernaut
  Rolling" (2025);
- V: fitted to published times, see `benchmarks/modelled`: those of kernels that only move memory, unless
  others are named;
- A: assumed to be as on the most similar GPU.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from gpuless.inspector.architectures import ARCHITECTURES, Architecture
from gpuless.profile.held_against import HELD_AGAINST

KB, MB = 1 << 10, 1 << 20
_VOLTA = Architecture("Volta", 64, 32, 96 * KB, 0, 256, "1/2")  # G


@dataclass(frozen=True)
class Device:
    """A GPU, as the model sees it. Cycles are an SM's; a partition is a quarter of an SM."""

    name: str
    cc: tuple
    """Compute capability."""
    sms: int
    clock: float
    """GHz under load."""
    dram: float
    """GB/s of its memory, on paper."""
    dram_share: float
    """The share of that which kernels get."""
    channels: int
    """Channels of its memory, each of which opens pages independently."""
    opening: float
    """Nanoseconds between two page openings of a channel."""
    l2: int
    """Bytes of L2 that can hold an SM's data."""
    slices: int
    """Parts of L2 that work in parallel."""
    slice_bytes: int
    """Bytes that a slice delivers in a cycle."""
    l1: int
    """Bytes of L1 and shared memory of an SM."""
    l1_bytes: int
    """Bytes that these deliver in a cycle."""
    lsu_lanes: int
    """Lanes whose loads and stores an SM accepts in a cycle."""
    fma: float
    """Cycles for which a warp's float32 instruction occupies a partition's units; the next four likewise."""
    multiply: float
    """Integer multiplication."""
    alu: float
    """Other integer instructions, comparisons, logic."""
    float64: float
    special: float
    """Roots, sines, conversions."""
    l1_latency: int
    """Cycles from a load to its result on a hit in L1; the next three likewise."""
    l2_latency: int
    dram_latency: int
    shared_latency: int
    compiled_for: tuple = ()
    """The compute capability whose machine code is read, if the compiler doesn't support `cc`."""
    l2_share: float = 0.77
    """The share of L2's bandwidth on paper which kernels get: V, all GPUs."""
    launch: float = 2.5
    """Microseconds before a kernel's first block begins and after its last block ends: V."""
    block_start: int = 550
    """Cycles for which a block is resident before its first instruction and after its last: V."""
    loads: float = 1.0
    """How many times longer a global load occupies L1 than its bytes suggest."""
    writing: float = 1.0
    """Cost of writing to memory, as a multiple of reading."""
    nvlink: float = 0
    """GB/s of its NVLink in one direction; 0: other GPUs are reached over PCIe."""
    rows: int = 0
    """How many published times the model has been compared with."""
    error: float = 0.0
    """The model's mean error on these."""

    @property
    def code(self) -> tuple:
        """The compute capability whose machine code is read."""
        return self.compiled_for or self.cc

    @property
    def sm(self) -> Architecture:
        """The limits of an SM."""
        return _VOLTA if self.cc == (7, 0) else ARCHITECTURES[self.cc]


# `Device.opening`, tRRD: Samsung's data sheet of the K4Z80325BC, 14 Gbit/s, table 91 (8 cycles of 0.572 ns);
# GPGPU-Sim's tested configuration of the V100.
_GDDR6, _HBM2 = 4.6, 3.5

# Values that the GPUs of an architecture share.
_ON_TURING: dict[str, Any] = {
    "cc": (7, 5),
    "l1": 96 * KB,  # W
    "l1_bytes": 64,  # J19, table 3.1
    "lsu_lanes": 16,  # W
    "loads": 1.45,  # V: the GTX 1650's product of integers, "Simple Matrix Matrix Multiplication"
    "fma": 2,  # G: 64 lanes of an SM in a cycle
    "multiply": 2,  # G
    "alu": 2,  # G
    "float64": 70,  # 2 lanes by G would make it 64: see GA10x
    "special": 8,  # G: 16 lanes
    "l1_latency": 32,  # J19, table 3.1
    "l2_latency": 190,  # J19: 188
    "dram_latency": 430,  # V; J19 has 296 ns for the T4
    "shared_latency": 19,  # J19
    "slice_bytes": 32,  # J18, section 3.4
    "opening": _GDDR6,
}
# Its memory stores error-correcting codes among the data, which slows writing most. V: the T4's ADD, RELU and
# sum v5.
_ON_T4: dict[str, Any] = _ON_TURING | {"writing": 1.48}
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
    "opening": _HBM2,
}
_ON_GA100: dict[str, Any] = {
    "cc": (8, 0),
    "l1": 192 * KB,  # W
    "l1_bytes": 128,  # W
    "lsu_lanes": 32,  # W
    "fma": 2,  # G
    "multiply": 2,  # G
    "alu": 2,  # G
    "float64": 4,  # G: 32 lanes
    "special": 8,  # G
    "l1_latency": 33,  # L24 has 38, for a chain of loads that includes address arithmetic
    "l2_latency": 220,  # L24: 200 to 261, by the half of L2
    "dram_latency": 500,  # L24: 466
    "shared_latency": 23,  # L24 has 29, as above
    "slice_bytes": 64,  # W: 5120 bytes of the GPU in a cycle
    "opening": _HBM2,
}
_ON_GA10X: dict[str, Any] = {
    "cc": (8, 6),
    "l1": 128 * KB,  # W
    "l1_bytes": 128,  # W
    "lsu_lanes": 16,  # W
    "fma": 1,  # G: 128 lanes
    "multiply": 2,  # G: 64 lanes
    "alu": 2,  # G: 64 lanes
    # 2 lanes by G would make it 64. V: the RTX 3080's convolutions with masks of three.
    "float64": 70,
    "special": 8,  # G
    "l1_latency": 33,  # A: GA100
    "l2_latency": 220,  # C: more than 100 ns more than L1 on an RTX 3090
    "dram_latency": 480,  # C
    "shared_latency": 25,  # A
    "slice_bytes": 32,  # A: Turing
    "opening": _GDDR6,
}
_ON_ADA: dict[str, Any] = _ON_GA10X | {
    "cc": (8, 9),
    "l2_latency": 273,  # L24
    "dram_latency": 540,  # L24
}
_ON_HOPPER: dict[str, Any] = _ON_GA100 | {
    "cc": (9, 0),
    "l1": 256 * KB,  # W
    "fma": 1,  # G: 128 lanes
    "float64": 2,  # G: 64 lanes
    "l2_latency": 260,  # L24
    "dram_latency": 560,  # L24 has 479 for the PCIe card; C more
    "shared_latency": 29,  # L24
}
# C: L1 as before, 150 ns to the half of L2 on the same die.
_ON_BLACKWELL = _ON_HOPPER | {"cc": (10, 0)}

# Values of each GPU: W, with the boost clock of W, unless noted. Channels of memory: one for 16 bits of
# GDDR6, 16 a stack of HBM2, 32 a stack of HBM3. Shares of bandwidth: V.
_OWN = "name", "sms", "clock", "dram", "dram_share", "channels", "l2", "slices"
_ALL: tuple[tuple, ...] = (
    # The version with GDDR6. GeForce cards run above the boost clock of their data sheets: C.
    (_ON_TURING, "GTX 1650", 14, 1.80, 192, 0.86, 8, 1 * MB, 8),
    # 70 W allow at most 1.35 GHz for long: J19, section 6.
    (_ON_T4, "T4", 40, 1.35, 320, 0.91, 16, 4 * MB, 32),
    (_ON_TURING, "RTX 2080 Ti", 68, 1.635, 616, 0.88, 22, 5632 * KB, 44),
    (_ON_VOLTA, "V100", 80, 1.53, 900, 0.92, 64, 6 * MB, 64),
    (_ON_GA10X, "RTX 3060", 28, 1.86, 360, 0.92, 12, 3 * MB, 24),
    (_ON_GA10X, "RTX 3060 Ti", 38, 1.87, 448, 0.92, 16, 4 * MB, 32),
    (_ON_GA10X, "RTX 3070 Ti", 48, 1.86, 608, 0.92, 16, 4 * MB, 32),
    (_ON_GA10X, "RTX 3080", 68, 1.88, 760, 0.92, 20, 5 * MB, 40),
    (_ON_GA10X, "RTX 3090", 82, 1.80, 936, 0.92, 24, 6 * MB, 48),
    (_ON_GA10X, "A6000", 84, 1.74, 768, 0.92, 24, 6 * MB, 48),
    (_ON_GA10X, "A10G", 80, 1.71, 600, 0.90, 24, 6 * MB, 48),
    # Their L2 has two halves, each of which caches its own SMs' data: W, C.
    (_ON_GA100, "A100 PCIe", 108, 1.41, 1555, 0.90, 80, 20 * MB, 80),
    (_ON_GA100, "A100 SXM", 108, 1.41, 2039, 0.90, 80, 20 * MB, 80),
    # 72 W: as far below its boost clock of 2.04 GHz as the T4, A.
    (_ON_ADA, "L4", 58, 1.73, 300, 0.90, 12, 48 * MB, 48),
    (_ON_ADA, "RTX 4090", 128, 2.6, 1008, 0.92, 24, 72 * MB, 96),  # clock: C
    # Slices: C has 5.5 to 7 TB/s. The SXM module boosts to 1.98 GHz, and runs at 1.78 under load.
    (_ON_HOPPER, "H100 PCIe", 114, 1.70, 2039, 0.91, 80, 25 * MB, 96),
    (_ON_HOPPER, "H100 SXM", 132, 1.755, 3352, 0.93, 160, 25 * MB, 96),
    (_ON_HOPPER, "H200", 132, 1.755, 4800, 0.93, 192, 25 * MB, 96),
    # SMs, L2 and latencies: C. Clock, slices, share: A, each of its two dies an H100 SXM.
    (_ON_BLACKWELL, "B200", 148, 1.755, 8000, 0.93, 256, 63 * MB, 192),
)
# GB/s in one direction: W. For cards and PCIe modules this needs a bridge, sold separately; it is assumed.
_NVLINK = {"V100": 150, "A100 SXM": 300, "A100 PCIe": 300, "H100 SXM": 450, "H100 PCIe": 300, "H200": 450}
_NVLINK |= {"B200": 900, "RTX 2080 Ti": 50, "RTX 3090": 56, "A6000": 56}

DEVICES: dict[str, Device] = {}
for _common, _name, *_row in _ALL:
    _own: dict[str, Any] = dict(zip(_OWN, (_name, *_row), strict=True))
    _rows, _error = HELD_AGAINST.get(_name, (0, 0.0))
    _own |= {"nvlink": _NVLINK.get(_name, 0), "rows": _rows, "error": _error}
    DEVICES[_name] = Device(**_common, **_own)
_SHORT = {
    "A100": "A100 SXM",
    "H100": "H100 SXM",
    "RTX A6000": "A6000",
    "TESLA T4": "T4",
    "TESLA V100": "V100",
}


# The model divides by these.
_POSITIVE = frozenset(
    "sms clock dram dram_share channels l2 l2_share slices slice_bytes l1 l1_bytes lsu_lanes".split()
)
# If only these change, it is still the GPU whose published times the model was compared with.
_SETTINGS = frozenset("name clock nvlink rows error".split())


def devices_of(gpu: str | Device | Iterable[str | Device]) -> tuple[list[Device], bool]:
    """Return the devices of one GPU or of several, and whether it was several."""
    if isinstance(gpu, (str, Device)):
        return [device(gpu)], False
    devices = [device(each) for each in gpu]
    if not devices:
        raise ValueError("gpu names no GPU at all")
    return devices, True


def device(name: str | Device, /, **changes: Any) -> Device:
    """Return a modelled GPU, or a variant of one.

    Parameters
    ----------
    name : str
        One of `DEVICES`; "A100" and "H100" are the SXM modules.
    **changes
        Fields of `Device` to change, such as ``clock=1.0``. Other hardware, such as ``sms=46``, sets `rows`
        and `error` to 0, and reports are unsure.

    Raises
    ------
    ValueError
        If the GPU is unknown, or a number that must be positive is not.
    TypeError
        If a field does not exist.

    Examples
    --------
    >>> device("T4").sms, device("T4", clock=1.59, name="a T4 in winter").clock
    (40, 1.59)
    """
    found = name if isinstance(name, Device) else _find(name)
    unknown = changes.keys() - {field.name for field in fields(Device)}
    if unknown:
        raise TypeError(f"a device has no {', '.join(sorted(unknown))}: see gpuless.profile.Device")
    bad = {name: changes[name] for name in _POSITIVE & changes.keys() if not changes[name] > 0}
    if bad:
        named = ", ".join(f"{name}={value!r}" for name, value in sorted(bad.items()))
        raise ValueError(f"a device needs positive numbers, got {named}")
    if any(changes[field] != getattr(found, field) for field in changes.keys() - _SETTINGS):
        changes = {"rows": 0, "error": 0.0} | changes
    return replace(found, **changes)


def _find(name):
    short = str(name).upper().removeprefix("NVIDIA ").removeprefix("GEFORCE ")
    known = {each.upper(): each for each in DEVICES} | _SHORT
    if short in known:
        return DEVICES[known[short]]
    near = difflib.get_close_matches(short, known, 1)
    hint = f"; did you mean {known[near[0]]!r}?" if near else ""
    raise ValueError(f"gpu {name!r} is not known, only {', '.join(DEVICES)}{hint}")
