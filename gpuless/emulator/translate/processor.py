"""What the processor of this computer can do."""

import functools

import llvmlite.binding as llvm


def target():
    """Return what machine code is made for, and by which compiler."""
    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_host_cpu_name(), features, llvm.get_process_triple(), llvm.llvm_version_info


@functools.cache
def masks_loads(bits):
    """Return whether a load of a vector of integers can leave out some of them, without a branch for each."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx512bw") or (bits >= 32 and features.get("avx2")))


@functools.cache
def embeds_rounding():
    """Return whether an instruction for vectors of 512 bits can say how its result is rounded."""
    return bool(llvm.get_host_cpu_features().get("avx512f"))
