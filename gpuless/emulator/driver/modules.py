"""Modules of PTX, kernels, and launches."""

import ctypes
import math
import re
import struct
import sys
from functools import partial

from gpuless.emulator import counting, host, ptx
from gpuless.emulator.driver.device import MULTIPROCESSORS, device
from gpuless.emulator.driver.graphs import Work
from gpuless.emulator.driver.streams import enqueue
from gpuless.emulator.driver.table import (
    ASSERT,
    COOPERATIVE_LAUNCH_TOO_LARGE,
    INVALID_PTX,
    INVALID_VALUE,
    NO_BINARY_FOR_GPU,
    NOT_FOUND,
    NOT_SUPPORTED,
    DriverError,
    Handles,
    driver_function,
    put_handle,
    put_int,
)
from gpuless.emulator.launch import Kernel
from gpuless.emulator.module import function_address, lay_out
from gpuless.emulator.registers import estimate
from gpuless.limits import SHARED_LIMIT, LaunchError, check_launch

MAX_THREADS, MAX_SHARED = 1024, 101376
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
KERNEL = struct.Struct("<Q7I4xQQQQ")  # ``CUDAKERNEL_NODE_PARAMS``
_libraries, _kernels = Handles(), Handles()


class Library:
    """Loaded PTX: its variables in the emulated GPU's memory, its kernels."""

    def __init__(self, text):
        try:
            self.source = ptx.parse(text)
        except ptx.PtxError as error:
            raise DriverError(INVALID_PTX, str(error)) from None
        variables = [v for v in self.source.variables.values() if v.space in ("global", "const")]
        self.places, self.size = lay_out(variables, ("global", "const"))
        self.address = device().arena.allocate(self.size) if self.size else 0
        self.variables = {variable.name: variable for variable in variables}
        self.kernels = {}
        try:
            self._initialise()
        except DriverError:
            self.free()
            raise

    def _initialise(self):
        for variable in self.variables.values():
            at = self.address + self.places[variable.name]
            content = bytearray(variable.initial.ljust(variable.size, b"\0"))
            for offset, text in variable.pointers:
                content[offset : offset + 8] = self._address_of(text).to_bytes(8, "little")
            ctypes.memmove(at, bytes(content), variable.size)

    def _address_of(self, text):
        """Return the address that an initialiser means: a variable (and how far from it), or a function."""
        name, offset = re.fullmatch(r"(.*?)([+-]\w+)?", text, re.S).groups()
        if name in self.places:
            return self.address + self.places[name] + int(offset or "0", 0)
        if name in self.source.functions and not offset:
            return function_address(self.source, name)
        raise DriverError(INVALID_PTX, f"{text} is no address that a variable can begin with")

    def kernel(self, name):
        """Return the handle of a kernel."""
        function = self.source.functions.get(name)
        if function is None or not function.kernel:
            raise DriverError(NOT_FOUND)
        if name not in self.kernels:
            kernel = Kernel(self.source, name, self.address)
            if kernel.static_shared > SHARED_LIMIT:  # no compiler makes machine code of it
                detail = (
                    f"{kernel.static_shared} bytes of static shared memory, and a GPU allows {SHARED_LIMIT}"
                )
                raise DriverError(INVALID_PTX, detail)
            self.kernels[name] = _kernels.add(kernel)
        return self.kernels[name]

    def free(self):
        """Give the memory back."""
        for handle in self.kernels.values():
            _kernels.remove(handle)
        if self.address:
            device().arena.free(self.address)


_NO_PTX = 'this is machine code of a GPU; the emulated GPU runs PTX (cuda.core: compile("ptx"), not "cubin")'


def _text(image):
    """Return the PTX at an address."""
    if ctypes.string_at(image, 4) == b"\x7fELF" or ctypes.string_at(image, 4) == b"\x50\xed\x55\xba":
        raise DriverError(NO_BINARY_FOR_GPU, _NO_PTX)
    return ctypes.string_at(image).decode(errors="replace")  # there may be any bytes in comments


@driver_function("cuLibraryLoadData", types="ppppupp" + "u")
def _library_load(found, image, *_):
    put_handle(found, _libraries.add(Library(_text(image))))


@driver_function("cuModuleLoadData", types="pp")
def _module_load(found, image):
    put_handle(found, _libraries.add(Library(_text(image))))


@driver_function("cuModuleLoadDataEx", types="ppupp")
def _module_load_ex(found, image, *_):
    put_handle(found, _libraries.add(Library(_text(image))))


@driver_function("cuLibraryUnload", "cuModuleUnload", types="p")
def _unload(handle):
    _libraries.remove(handle).free()


@driver_function("cuLibraryGetModule", types="pp")
def _get_module(found, handle):
    put_handle(found, handle)


@driver_function("cuLibraryGetKernel", "cuModuleGetFunction", types="ppc")
def _get_kernel(found, handle, name):
    put_handle(found, _libraries[handle].kernel(name.decode()))


@driver_function("cuLibraryGetKernelCount", types="pp")
def _kernel_count(found, handle):
    put_int(found, sum(function.kernel for function in _libraries[handle].source.functions.values()))


@driver_function("cuKernelGetFunction", types="pp")
def _kernel_function(found, handle):
    put_handle(found, handle)


@driver_function("cuLibraryGetGlobal", "cuLibraryGetManaged", "cuModuleGetGlobal", types="pppc")
def _get_global(found, size, handle, name):
    library, name = _libraries[handle], name.decode()
    if name not in library.places:
        raise DriverError(NOT_FOUND)
    put_handle(found, library.address + library.places[name])
    put_handle(size, library.variables[name].size)


@driver_function("cuFuncGetName", "cuKernelGetName", types="pp")
def _get_name(found, handle):
    kernel = _kernels[handle]
    kernel.c_name = ctypes.create_string_buffer(kernel.name.encode())
    put_handle(found, ctypes.addressof(kernel.c_name))


@driver_function("cuFuncGetParamInfo", "cuKernelGetParamInfo", types="pzpp")
def _parameter_info(handle, number, offset, size):
    kernel = _kernels[handle]
    parameters = kernel.function.parameters
    if number >= len(parameters):
        raise DriverError(INVALID_VALUE)
    put_handle(offset, kernel.places[parameters[number].name])
    put_handle(size, parameters[number].size)


def _attribute(kernel, attribute):
    shared = kernel.static_shared
    constants = lay_out(kernel.source.variables.values(), ("const",))[1]
    known = {
        0: MAX_THREADS,
        1: shared,
        2: constants,
        3: kernel.local_size,
        4: estimate(kernel.function) if attribute == 4 else 0,
        5: 80,
        6: 80,
        8: MAX_SHARED - shared,
    }
    return known.get(attribute, 0)


@driver_function("cuFuncGetAttribute", types="pip")
def _function_attribute(found, attribute, handle):
    put_int(found, _attribute(_kernels[handle], attribute))


@driver_function("cuKernelGetAttribute", types="pipi")
def _kernel_attribute(found, attribute, handle, number):
    put_int(found, _attribute(_kernels[handle], attribute))


@driver_function("cuFuncSetAttribute", "cuFuncSetCacheConfig", types="pii")
def _set_attribute(handle, attribute, value):
    if attribute == _DYNAMIC_SHARED:
        _allow_shared(_kernels[handle], value)


def _allow_shared(kernel, dynamic):
    """Let a kernel have more shared memory than it may have without asking."""
    if dynamic + kernel.static_shared > MAX_SHARED:
        raise DriverError(INVALID_VALUE, f"a block may have {MAX_SHARED} bytes of shared memory at most")
    kernel.more_shared = max(0, dynamic + kernel.static_shared - SHARED_LIMIT)


@driver_function("cuKernelSetAttribute", types="iipi")
def _set_kernel_attribute(attribute, value, handle, number):
    _set_attribute(handle, attribute, value)


@driver_function("cuKernelSetCacheConfig", types="pii")
def _set_cache_config(handle, value, number):
    _ = _kernels[handle]


@driver_function("cuFuncLoad", types="p")
def _function_load(handle):
    _ = _kernels[handle]


@driver_function("cuFuncIsLoaded", types="pp")
def _function_is_loaded(found, handle):
    put_int(found, 1)


def _resident(block, shared):
    """Return how many blocks a multiprocessor holds at once."""
    return max(0, min(16, 2048 // max(block, 1), 102400 // (shared + 1024)))


@driver_function("cuOccupancyMaxActiveBlocksPerMultiprocessor", types="ppiz")
def _occupancy(found, handle, block, shared):
    put_int(found, _resident(block, shared + _kernels[handle].static_shared))


@driver_function("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", types="ppizu")
def _occupancy_with_flags(found, handle, block, shared, flags):
    put_int(found, _resident(block, shared + _kernels[handle].static_shared))


@driver_function("cuOccupancyMaxPotentialBlockSize", types="ppppzi")
def _best_block(grid, block, handle, shared_of, shared, limit):
    put_int(grid, 2 * MULTIPROCESSORS)
    put_int(block, min(limit, MAX_THREADS) if limit else MAX_THREADS)


# --- Launches -----------------------------------------------------------------------------------------------


def _arguments(kernel, pointers, extra):
    """Return the buffer of a kernel's arguments: from pointers to them, or as a whole."""
    if not kernel.function.parameters:
        return b""
    if pointers:
        buffer = bytearray(kernel.parameter_size)
        listed = kernel.function.parameters
        for variable, pointer in zip(
            listed, (ctypes.c_uint64 * len(listed)).from_address(pointers), strict=True
        ):
            at = kernel.places[variable.name]
            buffer[at : at + variable.size] = ctypes.string_at(pointer, variable.size)
        return bytes(buffer)
    if not extra:
        raise DriverError(INVALID_VALUE)
    given = {}
    while True:
        key, value = (ctypes.c_uint64.from_address(extra + 8 * i).value for i in (0, 1))
        if key == 0:
            break
        given[key] = value
        extra += 16
    size = ctypes.c_uint64.from_address(given[2]).value
    return ctypes.string_at(given[1], size)


def _check_cluster(sides):
    if max(sides) > 1:
        raise DriverError(NOT_SUPPORTED, "on the emulated GPU each block is a cluster by itself")


def launch(handle, grid, block, shared, stream, pointers, extra, cooperative=False):
    """Check a launch, and do it in its stream."""
    enqueue(stream, launching(handle, grid, block, shared, pointers, extra, cooperative))


def launching(handle, grid, block, shared, pointers, extra, cooperative=False):
    """Check a launch; return the `Work` that it is."""
    kernel = _kernels[handle]
    _check_cluster(kernel.function.limits.get("reqnctapercluster", (1,)))
    threads = math.prod(block)
    try:
        # More shared memory has to be asked for, by an attribute of the kernel.
        asked = max(0, kernel.static_shared + shared - SHARED_LIMIT) <= kernel.more_shared
        check_launch(grid, block, 0 if asked else kernel.static_shared + shared)
    except LaunchError as error:
        raise DriverError(INVALID_VALUE, f"this cannot be launched: {error}") from None
    most = kernel.function.limits.get("maxntid")
    if most and threads > math.prod(most):
        detail = f"a block has {threads} threads, and the kernel's bounds allow {math.prod(most)}"
        raise DriverError(INVALID_VALUE, f"this cannot be launched: {detail}")
    if cooperative:
        resident = MULTIPROCESSORS * _resident(threads, shared + kernel.static_shared)
        if grid[0] * grid[1] * grid[2] > resident:
            raise DriverError(COOPERATIVE_LAUNCH_TOO_LARGE)
    arguments = _arguments(kernel, pointers, extra)
    try:
        kernel.code(block, arguments, counting.asked() is not None)
    except ptx.PtxError as error:
        raise DriverError(INVALID_PTX, str(error)) from None
    run = partial(_run, kernel, grid, block, arguments, shared, cooperative)
    kept = []
    return Work(run, "kernel", partial(_parameters, handle, grid, block, shared, arguments, kept), kept)


def _parameters(handle, grid, block, shared, arguments, kept):
    """Return the parameters of a node: its own arguments, not the caller's."""
    if not kept:  # whoever has asked before still knows where they are
        kernel, own = _kernels[handle], ctypes.create_string_buffer(arguments)
        places = [ctypes.addressof(own) + kernel.places[each.name] for each in kernel.function.parameters]
        kept += own, (ctypes.c_uint64 * len(places))(*places)
    return KERNEL.pack(handle, *grid, *block, shared, ctypes.addressof(kept[1]), 0, handle, 0)


def _run(kernel, grid, block, arguments, shared, cooperative):
    try:
        failed = device().workers.launch(
            kernel, grid, block, arguments, shared, cooperative, counting.asked()
        )
    finally:
        host.flush()
    if failed:
        print("\n".join(failed), file=sys.stderr, flush=True)
        raise DriverError(ASSERT, failed[0])


@driver_function("cuLaunchKernel", types="puuuuuuuppp")
def _launch_kernel(handle, gx, gy, gz, bx, by, bz, shared, stream, pointers, extra):
    launch(handle, (gx, gy, gz), (bx, by, bz), shared, stream, pointers, extra)


@driver_function("cuLaunchCooperativeKernel", types="puuuuuuupp")
def _launch_cooperative(handle, gx, gy, gz, bx, by, bz, shared, stream, pointers):
    launch(handle, (gx, gy, gz), (bx, by, bz), shared, stream, pointers, None, True)


_COOPERATIVE, _CLUSTER = 2, 4  # of ``CUlaunchAttributeID``


@driver_function("cuLaunchKernelEx", types="pppp")
def _launch_ex(config, handle, pointers, extra):
    numbers = (ctypes.c_uint32 * 7).from_address(config)
    stream, attributes = (ctypes.c_uint64.from_address(config + at).value for at in (32, 40))
    count = ctypes.c_uint32.from_address(config + 48).value
    cooperative = False
    for i in range(count):
        at = attributes + 72 * i
        kind = ctypes.c_uint32.from_address(at).value
        if kind == _COOPERATIVE:
            cooperative = bool(ctypes.c_int.from_address(at + 8).value)
        if kind == _CLUSTER:
            _check_cluster((ctypes.c_uint32 * 3).from_address(at + 8))
    launch(handle, tuple(numbers[:3]), tuple(numbers[3:6]), numbers[6], stream, pointers, extra, cooperative)
