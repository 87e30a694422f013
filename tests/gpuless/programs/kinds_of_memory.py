"""Kinds of memory."""

import numpy as np
from emulated import check, cu

kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
managed = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED


def kinds(pointer):
    answers = (cu.cuPointerGetAttribute(wanted, int(pointer)) for wanted in (kind, managed))
    return tuple(int(check(answer)) for answer in answers)


device, host = check(cu.cuMemAlloc(1000)), check(cu.cuMemHostAlloc(1000, 0))
everywhere = check(cu.cuMemAllocManaged(1000, 1))
assert kinds(device) == (2, 0) and kinds(host) == (1, 0) and kinds(everywhere) == (2, 1)
assert [int(x) for x in check(cu.cuMemGetAddressRange(int(device) + 999))] == [int(device), 1000]
assert cu.cuMemGetAddressRange(int(device) + 1000)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
array = np.zeros(100)
assert cu.cuPointerGetAttribute(kind, array.ctypes.data)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
check(cu.cuMemHostRegister(array.ctypes.data, array.nbytes, 0))
assert kinds(array.ctypes.data)[0] == 1
# No kernel reaches it, and no attribute says otherwise.
seen = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER
assert int(check(cu.cuPointerGetAttribute(seen, array.ctypes.data))) == 0
assert cu.cuMemHostGetDevicePointer(array.ctypes.data, 0)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
assert int(check(cu.cuMemHostGetDevicePointer(int(host), 0))) == int(host)
mapped = cu.cuMemHostRegister(array.ctypes.data, array.nbytes, cu.CU_MEMHOSTREGISTER_DEVICEMAP)
assert mapped[0] == cu.CUresult.CUDA_ERROR_NOT_SUPPORTED
for name in ("PAGEABLE_MEMORY_ACCESS", "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM"):
    attribute = getattr(cu.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_" + name)
    assert check(cu.cuDeviceGetAttribute(attribute, 0)) == 0
check(cu.cuMemHostUnregister(array.ctypes.data))
text = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .u32 variable;"
variable, _ = check(cu.cuModuleGetGlobal(check(cu.cuModuleLoadData(text)), b"variable"))
assert kinds(variable) == (2, 0)
for free, pointer in ((cu.cuMemFree, device), (cu.cuMemFreeHost, host), (cu.cuMemFree, everywhere)):
    check(free(pointer))
    assert free(pointer)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
