"""A pool stays within its limit."""

from emulated import check, cu

attribute = cu.CUmemPool_attribute
used, high = attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT, attribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH
properties = cu.CUmemPoolProps()
properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
properties.maxSize = 1000
pool = check(cu.cuMemPoolCreate(properties))


def amounts():
    return [int(check(cu.cuMemPoolGetAttribute(pool, which))) for which in (used, high)]


first = check(cu.cuMemAllocFromPoolAsync(600, pool, 0))
assert cu.cuMemAllocFromPoolAsync(401, pool, 0)[0].name == "CUDA_ERROR_OUT_OF_MEMORY"
second = check(cu.cuMemAllocFromPoolAsync(400, pool, 0))
assert amounts() == [1000, 1000]
check(cu.cuMemFreeAsync(first, 0))
assert amounts() == [400, 1000]
check(cu.cuMemAllocFromPoolAsync(500, pool, 0))
check(cu.cuMemAllocAsync(2000, 0))  # of the default pool
assert amounts() == [900, 1000]
