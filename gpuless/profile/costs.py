"""The cost of launches and copies, apart from kernels: the host's work, gaps, buses.

The source of each number stands beside it:

- NC: G. Markall in NVIDIA/numba-cuda, pull request 288 (June 2025): 6.6, 10.6 and 14.1 us per launch with no,
  one and two arrays, and numba/numba, issue 3003, where a third array costs as much as the second;
- CC: NVIDIA/cuda-python, pull request 1390 (December 2025): 2.6 us per launch of `cuda.core`, with prepared
  arguments;
- G: measured on an H100 (benchmarks/modelled/gaps-h100.json): gaps between kernels of 1 to 73 us are 1.0 us
  shorter in a graph than in a stream; in a graph CUPTI reports gaps of 0.1 us;
- CG: A. Gray, "Getting Started with CUDA Graphs" (NVIDIA, 2019), on a V100: a kernel of 2.9 us takes 3.8 us
  in a stream that the host keeps full, 3.4 us in a graph, and 9.6 us if the host waits for each;
- SL: H. Bansal and others, "Constant Time Launch for Straight-Line CUDA Graphs" (NVIDIA, 2024): a repeated
  launch of a graph takes the host 2.5 us; before CUDA 12.6, 2 us and 0.2 us per node;
- NB: bandwidths published by users and NVIDIA: 11 GB/s from pinned memory over PCIe 3 on a Titan X
  (forums.developer.nvidia.com, 148400), 24.8 over PCIe 4 on an A100 (the same, 352186), 55.6 over PCIe 5 on
  an H100 (developer.nvidia.com/blog, "NVbandwidth", 2025); between two RTX 4090, 20.7 in each direction
  (tinygrad/open-gpu-kernel-modules, issue 6);
- HB: M. Harris, "How to Optimize Data Transfers in CUDA C/C++" (NVIDIA, 2012): pageable memory has about half
  the bandwidth of pinned memory;
- W: NVIDIA's white papers and data sheets;
- R: recorded here, by timing how Numba prepares arguments;
- A: assumed.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuless.profile.devices import Device

# --- The host, in microseconds ------------------------------------------------------------------------------

#: Numba's launch of a kernel without arguments, and what each array and each number or tuple adds.
NUMBA_LAUNCH = 6.6  # NC
NUMBA_ARRAY = 3.8  # NC: (14.1 - 6.6) / 2
NUMBA_NUMBER = 0.9  # R: a quarter of an array's cost
#: A launch by another compiler, whose arguments are unknown.
OTHER_LAUNCH = 4.0  # CC: with the arguments
#: The launch of a graph.
GRAPH_LAUNCH = 2.5  # SL
#: Instantiating a graph: a constant, and a cost per node.
INSTANTIATE, INSTANTIATE_NODE = 20.0, 1.0  # A
#: Any other driver call from Python: copies, sets, events.
CALL = 2.5  # A: as CC
#: From the end of the GPU's work until a waiting host goes on.
WAKE = 5.0  # CG: 9.6 us minus the kernel and a launch of 2 us
#: Four of five published costs of the host lie between these multiples: A, by the machines in NC.
HOST_LOW, HOST_HIGH = 0.6, 1.7
#: Times of copies lie between 1 / this and this multiple, four times out of five: A, by the sources below.
COPY_RANGE = 1.3

# --- The GPU, in microseconds -------------------------------------------------------------------------------

#: From the host's launch of a kernel or graph to its beginning on an idle GPU.
SUBMIT = 2.0  # CG, with `WAKE`
#: From the end of a kernel to the beginning of the next, in a stream and in a graph.
STREAM_GAP, GRAPH_GAP = 1.1, 0.1  # G; CG, on a V100: 0.9 and 0.5
#: From the beginning of a copy on the bus to its first byte.
BUS_LATENCY = 1.5  # A: a small copy takes 1.3 to 2 us in the profiler


class Links(NamedTuple):
    """Bandwidth, in GB/s, between a GPU and the host's pinned or pageable memory, or another GPU."""

    pinned: float
    pageable: float
    peer: float


_PCIE3 = Links(11.0, 5.5, 10.0)  # NB; pageable: HB; between GPUs: A, as PCIe 4
_PCIE4 = Links(24.8, 11.0, 20.7)  # NB; pageable: HB
_PCIE5 = Links(55.6, 14.0, 46.0)  # NB; pageable: A, bounded by the host's copy to pinned memory
_NVLINK_SHARE = 0.92  # of NVLink's bandwidth on paper, in one direction: A
_PCIE = {(7, 0): _PCIE3, (7, 5): _PCIE3, (8, 0): _PCIE4, (8, 6): _PCIE4, (8, 9): _PCIE4}  # W


def links_of(device: Device) -> Links:
    """Return the bandwidths of a GPU's copies."""
    found = _PCIE.get(device.cc, _PCIE5)
    return found._replace(peer=device.nvlink * _NVLINK_SHARE) if device.nvlink else found


def numba_launch(sizes: list[int]) -> float:
    """Return the microseconds that a launch by Numba takes the host.

    `sizes`: how many parameters of the kernel each argument becomes; arrays become seven or more.

    >>> round(numba_launch([7, 7]), 1), round(numba_launch([]), 1)
    (14.2, 6.6)
    """
    return NUMBA_LAUNCH + sum(NUMBA_ARRAY if size >= 7 else NUMBA_NUMBER for size in sizes)


def copy_time(device: Device, size: int, source: str, target: str, peer: bool = False) -> float:
    """Return the microseconds of a copy over the bus or within the GPU.

    `source`, `target`: "device", "pinned" or "pageable"; `peer`: between two GPUs.

    >>> from gpuless.profile.devices import device
    >>> round(copy_time(device("T4"), 11_000_000, "pinned", "device"))
    1002
    """
    links = links_of(device)
    if source == target == "device":
        rate = links.peer if peer else device.dram * device.dram_share / 2  # half for reading
    elif "pageable" in (source, target):
        rate = links.pageable
    else:
        rate = links.pinned
    return BUS_LATENCY + size / rate / 1e3


def set_time(device: Device, size: int) -> float:
    """Return the microseconds for filling `size` bytes of a GPU's memory."""
    return BUS_LATENCY + size / (device.dram * device.dram_share) / 1e3
