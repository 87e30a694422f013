"""The features of this computer's processor."""

import functools
import platform

import llvmlite.binding as llvm

#: The architecture, by one name on all operating systems.
MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


def target():
    """Return what machine code depends on: processor, features, platform, and LLVM's version."""
    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_host_cpu_name(), features, llvm.get_process_triple(), llvm.llvm_version_info


@functools.cache
def masks_loads(bits):
    """Return whether the processor has masked loads of vectors of integers of this width."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx512bw") or (bits >= 32 and features.get("avx2")))


@functools.cache
def embeds_rounding():
    """Return whether 512-bit vector instructions have a rounding mode, which AVX-512 has."""
    return bool(llvm.get_host_cpu_features().get("avx512f"))
