"""The published figures of two GPUs, with their `SOURCES`, and the place of a kernel under a roofline."""

from typing import NamedTuple

SOURCES = {
    "N": "NVIDIA's data sheets and white papers of the T4 (Turing) and the H100 PCIe (Hopper)",
    "G": "NVIDIA, CUDA C++ Programming Guide, table of compute capabilities; Turing and Hopper Tuning Guides",
    "J": "Jia and others, Dissecting the NVidia Turing T4 GPU via Microbenchmarking (2019)",
    "L": "Luo and others, Benchmarking and Dissecting the Nvidia Hopper GPU Architecture (2024); on the "
    "H800 PCIe",
    "C": "Chips and Cheese, Nvidia's H100: Funny L2, and Tons of Bandwidth (2023)",
}


class Gpu(NamedTuple):
    """The figures of one GPU; bytes, bytes a second, cycles of its clock."""

    name: str
    sms: int
    lanes: int
    """Float32 multiply-adds that an SM does in a cycle."""
    tensor_cores: int
    """Of an SM."""
    warps: int
    blocks: int
    on_chip: int
    """Shared memory and L1 cache of an SM together."""
    shared: int
    """The most of it that can be shared memory."""
    block_shared: int
    """The most that one block gets, by opt-in; 48 KB without."""
    l2: int
    memory: str
    bandwidth: float
    clock: float
    flops: float
    latency: dict
    """Cycles from a load to its value, by the memory that has it."""


KB, MB = 1024, 1024 * 1024

T4 = Gpu(
    *("T4", 40, 64, 8, 32, 16, 96 * KB, 64 * KB, 64 * KB, 4 * MB, "16 GB of GDDR6"),
    *(320e9, 1.590e9, 8.1e12, {"L1 cache": 32, "L2 cache": 188, "global memory": 296}),
)
H100 = Gpu(
    *("H100 PCIe", 114, 128, 4, 64, 32, 256 * KB, 228 * KB, 227 * KB, 50 * MB, "80 GB of HBM2e"),
    *(2.0e12, 1.755e9, 51e12),
    {"shared memory": 29, "L1 cache": 41, "L2 cache": 263, "global memory": 479},
)
GPUS = (T4, H100)


def placed(flops, bytes_moved, microseconds, peak, bandwidth, bound=min, scale=1e3):
    """Return operations per byte, the GFLOP/s that the roof allows, and the part of it that is reached."""
    intensity = flops / bytes_moved
    roof = bound(peak, intensity * bandwidth)
    return intensity, roof, flops / microseconds / scale / roof
