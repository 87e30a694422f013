"""Shared memory is 48 KB unless a kernel requests more."""

from emulated import check, cu

text = b".version 8.1\n.target sm_75\n.address_size 64\n"
text += b".visible .entry f() { .shared .b8 s[1000]; ret; }"
kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
dynamic = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
optin = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
most = check(cu.cuDeviceGetAttribute(optin, 0))


def launch(size):
    return cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, size, 0, 0, 0)[0].name.removeprefix("CUDA_")


def answer():
    limit = check(cu.cuFuncGetAttribute(dynamic, kernel))
    return limit, launch(limit), launch(limit + 1)


print(most, *answer())
for size in (60_000, most - 1000, 100, 0):
    check(cu.cuFuncSetAttribute(kernel, dynamic, size))
    assert answer() == (size, "SUCCESS", "ERROR_INVALID_VALUE")
for size in (most - 999, -1):
    assert cu.cuFuncSetAttribute(kernel, dynamic, size)[0].name == "CUDA_ERROR_INVALID_VALUE"
    assert answer()[0] == 0
# Shared memory limits the blocks on a multiprocessor.
none = text.replace(b".shared .b8 s[1000];", b"")
none = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(none)), b"f"))
for function, size, blocks in ((none, 0, 16), (none, most // 4, 4), (kernel, most // 4, 3)):
    assert check(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 64, size)) == blocks
