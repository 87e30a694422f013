"""Memory: allocations, copies, sets, pools, attributes of pointers."""

import ctypes
import struct
from functools import partial

from gpuless.emulator.driver import watching
from gpuless.emulator.driver.device import _CONTEXT, device
from gpuless.emulator.driver.errors import DriverError, Result, check_choice, check_flags, refuse_if
from gpuless.emulator.driver.graphs import Work
from gpuless.emulator.driver.streams import DEFAULT, enqueue, refuse_in_capture
from gpuless.emulator.driver.table import Handles, driver_function, put_handle, put_int
from gpuless.emulator.driver.watching import Copy

DEVICE, HOST, MANAGED = "device", "host", "managed"
_kinds, _registered = {}, {}
_pinned = {}  # flags of pinned host memory, by address
_MAPPED, _IO = 2, 4  # CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_IOMEMORY


def allocate(size, kind=DEVICE):
    """Return the address of new memory."""
    refuse_if(size == 0)
    address = device().arena.allocate(size)
    _kinds[address] = kind
    return address


@driver_function("cuMemFree", "cuMemFreeHost", types="p")
def free(address):
    """Free memory."""
    if address:
        refuse_if(address not in _kinds)
        del _kinds[address]
        _pinned.pop(address, None)
        for pool in _pools:
            pool.used -= pool.held.pop(address, 0)
        device().arena.free(address)


@driver_function("cuMemAlloc", types="pz")
def _alloc(found, size):
    put_handle(found, allocate(size))


@driver_function("cuMemAllocManaged", types="pzu")
def _alloc_managed(found, size, flags):
    check_choice(flags, 1, 2)
    put_handle(found, allocate(size, MANAGED))


@driver_function("cuMemAllocPitch", types="ppzzu")
def _alloc_pitch(found, pitch, width, height, element):
    check_choice(element, 4, 8, 16)
    step = -(-width // 512) * 512
    put_handle(found, allocate(step * height))
    put_handle(pitch, step)


@driver_function("cuMemAllocHost", types="pz")
def _alloc_host(found, size):
    _host_alloc(found, size, 0)


@driver_function("cuMemHostAlloc", types="pzu")
def _host_alloc(found, size, flags):
    check_flags(flags, 7)  # portable and mapped, as all memory here is, and write-combined, a hint
    address = allocate(size, HOST)
    _pinned[address] = flags
    put_handle(found, address)


@driver_function("cuMemHostRegister", types="pzu")
def _register(address, size, flags):
    check_flags(flags, 0xF)
    if flags & _MAPPED:
        detail = "kernels cannot reach memory that the emulated GPU has not allocated (cuda.mapped_array has)"
        raise DriverError(Result.NOT_SUPPORTED, detail)
    refuse_if(flags & _IO, Result.NOT_SUPPORTED, "the emulated GPU reaches no memory of other devices")
    refuse_if(not address or not size)
    if any(address < at + length and at < address + size for at, length in _registered.items()):
        raise DriverError(Result.HOST_MEMORY_ALREADY_REGISTERED)
    _registered[address] = size


@driver_function("cuMemHostUnregister", types="p")
def _unregister(address):
    refuse_if(_registered.pop(address, None) is None, Result.HOST_MEMORY_NOT_REGISTERED)


@driver_function("cuMemHostGetDevicePointer", types="ppu")
def _device_pointer(found, address, flags):
    check_flags(flags)
    refuse_if(device().arena.find(address or 0) is None)
    put_handle(found, address)


@driver_function("cuMemHostGetFlags", types="pp")
def _host_flags(found, address):
    allocation = device().arena.find(address or 0)
    refuse_if(allocation is None or allocation.address not in _pinned)
    put_int(found, _pinned[allocation.address])


@driver_function("cuMemGetAddressRange", types="ppp")
def _range(base, size, address):
    allocation = device().arena.find(address or 0)
    refuse_if(allocation is None)
    put_handle(base, allocation.address)
    put_handle(size, allocation.size)


# --- Pools --------------------------------------------------------------------------------------------------


#: Attributes of a pool: those that programs may set, and numbers of bytes.
_REUSE, _THRESHOLD = (1, 2, 3), 4
_RESERVED, _RESERVED_HIGH, _USED, _USED_HIGH = 5, 6, 7, 8
_PROPERTIES = struct.Struct("<4iQQH54x")  # ``CUmemPoolProps``


class _Pool:
    """A pool for allocations in stream order, with at most `most` bytes, 0 for no limit."""

    def __init__(self, most=0):
        self.held, self.most, self.used, self.highest = {}, most, 0, 0
        self.attributes = {**dict.fromkeys(_REUSE, 1), _THRESHOLD: 0}

    def allocate(self, size):
        """Return the address of new memory."""
        if self.most and self.used + size > self.most:
            raise DriverError(
                Result.OUT_OF_MEMORY, f"the pool may have {self.most} bytes, {self.used} are in use"
            )
        address = allocate(size)
        self.held[address] = size
        self.used += size
        self.highest = max(self.highest, self.used)
        return address


_pools = Handles()
_DEFAULT_POOL = _pools.add(_Pool())


@driver_function("cuMemAllocAsync", types="pzp")
def _alloc_async(found, size, stream):
    _alloc_pool(found, size, _DEFAULT_POOL, stream)


@driver_function("cuMemAllocFromPoolAsync", types="pzpp")
def _alloc_pool(found, size, pool, stream):
    refuse_in_capture(stream)  # a graph would have to own the memory
    put_handle(found, _pools[pool].allocate(size))


@driver_function("cuMemFreeAsync", types="pp")
def _free_async(address, stream):
    refuse_in_capture(stream)
    free(address or 0)


@driver_function("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool", types="pi")
def _default_pool(found, number):
    put_handle(found, _DEFAULT_POOL)


@driver_function("cuMemPoolCreate", types="pp")
def _pool_create(found, address):
    properties = _PROPERTIES.unpack(ctypes.string_at(address, _PROPERTIES.size))
    kind, handles, place, number, _, most, usage = properties
    check_choice(kind, 1, 2)
    check_choice(place, *range(1, 7))
    if (kind, handles, place, number, usage) != (1, 0, 1, 0, 0):
        detail = "a pool of the emulated GPU has memory of device 0, which no other process reaches"
        raise DriverError(Result.NOT_SUPPORTED, detail)
    put_handle(found, _pools.add(_Pool(most)))


@driver_function("cuMemPoolDestroy", types="p")
def _pool_destroy(pool):
    refuse_if(pool == _DEFAULT_POOL)
    _pools.remove(pool)


@driver_function("cuMemPoolSetAttribute", types="pip")
def _pool_set(pool, attribute, value):
    pool = _pools[pool]
    if attribute in _REUSE:
        pool.attributes[attribute] = ctypes.c_int.from_address(value).value
    elif attribute == _THRESHOLD:
        pool.attributes[attribute] = ctypes.c_uint64.from_address(value).value
    else:
        check_choice(attribute, _RESERVED_HIGH, _USED_HIGH)
        check_choice(ctypes.c_uint64.from_address(value).value, 0)
        pool.highest = pool.used


@driver_function("cuMemPoolGetAttribute", types="pip")
def _pool_get(pool, attribute, value):
    pool = _pools[pool]
    known = pool.attributes | dict.fromkeys((_RESERVED, _USED), pool.used)  # nothing unused is reserved
    known |= dict.fromkeys((_RESERVED_HIGH, _USED_HIGH), pool.highest)
    check_choice(attribute, *known)
    (put_int if attribute in _REUSE else put_handle)(value, known[attribute])  # flags are ints


@driver_function("cuMemPoolTrimTo", types="pz")
def _pool_trim(pool, size):
    """Only check: a pool holds no unused memory."""
    _ = _pools[pool]


# --- Copies and sets ----------------------------------------------------------------------------------------


COPY = struct.Struct("<" + 2 * "4QI4x6Q" + "3Q")  # ``CUDA_MEMCPY3D``
SET = struct.Struct("<QQIIQQ")  # ``CUDA_MEMSET_NODE_PARAMS``
_UNIFIED = 4  # of ``CUmemorytype``


def copying(target, source, size, peer=False):
    """Check a copy and return its `Work`."""
    _check_copy(target, source, size)
    ends = [(0, 0, 0, 0, _UNIFIED, 0, end, 0, 0, 0, 0) for end in (source or 0, target or 0)]
    parameters = partial(COPY.pack, *ends[0], *ends[1], size, 1, 1)
    # `_memcpy` checks again: when a graph runs, the memory may have been freed.
    about = Copy(target, source, size, peer)
    return Work(partial(_memcpy, target, source, size), "copy", parameters, about=about)


@driver_function("cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD", types="ppz")
def _memcpy_at_once(target, source, size, peer=False):
    work = copying(target, source, size, peer)
    watching.watcher().work(DEFAULT, work)
    watching.watcher().synchronize(DEFAULT)
    work.run()


def _memcpy(target, source, size):
    _check_copy(target, source, size)
    if size:
        device().arena.prepare(target, size)
        ctypes.memmove(target, source, size)


@driver_function("cuMemcpyAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", types="ppzp")
def _memcpy_async(target, source, size, stream):
    enqueue(stream, copying(target, source, size))


@driver_function("cuMemcpyPeer", types="ppppz")
def _memcpy_peer(target, _, source, __, size):
    _memcpy_at_once(target, source, size, peer=True)


@driver_function("cuMemcpyPeerAsync", types="ppppzp")
def _memcpy_peer_async(target, _, source, __, size, stream):
    enqueue(stream, copying(target, source, size, peer=True))


def _check_copy(target, source, size):
    """Refuse a copy from or to memory that isn't allocated, which would crash the process."""
    arena = device().arena
    for address in (target, source):
        if size and arena.base <= (address or 0) < arena.base + (1 << 40):
            allocation = arena.find(address)
            refuse_if(allocation is None or address + size > allocation.address + allocation.size)
        refuse_if(size and not address)


def setting(target, value, count, size):
    """Check that `count` numbers of `size` bytes can be set, and return the `Work`."""
    _check_copy(target, target, count * size)

    def fill():
        _check_copy(target, target, count * size)
        device().arena.prepare(target, count * size)
        pattern = value.to_bytes(size, "little")
        if len(set(pattern)) == 1:
            ctypes.memset(target, pattern[0], count * size)
        else:
            ctypes.memmove(target, pattern * count, count * size)

    parameters = partial(SET.pack, target or 0, 0, value, size, count, 1)
    return Work(fill, "set", parameters, about=Copy(target, target, count * size))


def _set(size, target, value, count, stream=None):
    if count:
        enqueue(stream, setting(target, value, count, size))


for _letter, _size in (("b", 1), ("h", 2), ("u", 4)):
    driver_function(f"cuMemsetD{8 * _size}", types=f"p{_letter}z")(partial(_set, _size))
    driver_function(f"cuMemsetD{8 * _size}Async", types=f"p{_letter}zp")(partial(_set, _size))


@driver_function("cuMemPrefetchAsync", types="pziup")
def _prefetch(address, size, *_):
    """Only check: memory doesn't move."""
    _check_managed(address, size)


def place_of(address):
    """Return where memory is: DEVICE, or on the host "pinned" or "pageable"."""
    allocation = device().arena.find(address or 0)
    if allocation is not None:
        return "pinned" if _kinds.get(allocation.address) == HOST else DEVICE
    return "pinned" if _is_registered(address or 0) else "pageable"


def _is_registered(address):
    return any(at <= address < at + size for at, size in _registered.items())


@driver_function("cuMemAdvise", types="pziip")
def _advise(address, size, advice, *_):
    """Only check: memory doesn't move."""
    check_choice(advice, *range(1, 7))
    _check_managed(address, size)


def _check_managed(address, size):
    allocation = device().arena.find(address or 0)
    if allocation is None or _kinds.get(allocation.address) != MANAGED:
        raise DriverError(Result.INVALID_VALUE, "only managed memory moves")
    refuse_if(not 0 < size <= allocation.address + allocation.size - address)


# --- Pointers -----------------------------------------------------------------------------------------------


def _attribute(attribute, address, found):
    allocation = device().arena.find(address)
    kind = _kinds.get(allocation.address, DEVICE) if allocation else None  # DEVICE: of a module or the heap
    if kind is None and _is_registered(address):
        kind = HOST
    start, size = (allocation.address, allocation.size) if allocation else (0, 0)
    handles = {
        1: _CONTEXT if kind else 0,  # the context
        3: address if allocation else 0,  # the address on the device
        4: address if kind and kind != DEVICE else 0,  # on the host
        **{7: start, 11: start, 12: size, 17: 0},
    }
    numbers = {
        2: 0 if kind is None else 1 if kind == HOST else 2,  # the type: host 1, device 2
        8: kind == MANAGED,
        9: 0 if kind else -2,  # the device
        13: kind is not None,
    }
    if attribute in handles:
        put_handle(found, handles[attribute])
    else:
        put_int(found, int(numbers.get(attribute, 0)))
    return kind


@driver_function("cuPointerGetAttribute", types="pip")
def _pointer_attribute(found, attribute, address):
    refuse_if(_attribute(attribute, address or 0, found) is None)


@driver_function("cuPointerGetAttributes", types="uppp")
def _pointer_attributes(count, attributes, places, address):
    for i in range(count):
        attribute = ctypes.c_int.from_address(attributes + 4 * i).value
        _attribute(attribute, address or 0, ctypes.c_uint64.from_address(places + 8 * i).value)


@driver_function("cuPointerSetAttribute", types="pip")
def _set_attribute(value, attribute, address):
    """Only check: copies always end before they return, which is what the attribute requests."""
    check_choice(attribute, 6)  # CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    refuse_if(address not in _kinds)
