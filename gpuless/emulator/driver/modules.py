"""Modules of PTX, kernels, and launches."""

import ctypes
import math
import re
import struct
import sys
from functools import partial

from gpuless.emulator import ptx
from gpuless.emulator.analysis import assembler
from gpuless.emulator.analysis.registers import estimate
from gpuless.emulator.analysis.variables import function_address, lay_out
from gpuless.emulator.driver.device import MULTIPROCESSORS, device
from gpuless.emulator.driver.errors import DriverError, Result, check_choice, check_flags, refuse_if
from gpuless.emulator.driver.graphs import Work
from gpuless.emulator.driver.options import Options, check_library_options
from gpuless.emulator.driver.streams import enqueue
from gpuless.emulator.driver.table import Handles, driver_function, driver_functions, put_handle, put_int
from gpuless.emulator.run import counting, host, recording
from gpuless.emulator.run.launch import Kernel
from gpuless.limits import LOCAL_LIMIT, THREADS_LIMIT, LaunchError, check_launch

KERNEL = struct.Struct("<Q7I4xQQQQ")  # ``CUDAKERNEL_NODE_PARAMS``
_libraries, _kernels = Handles(), Handles()


class Library:
    """A loaded module of PTX: its variables in the emulated GPU's memory, its kernels."""

    def __init__(self, text):
        try:
            self.source = ptx.parse(text)
        except ptx.PtxError as error:
            raise DriverError(Result.INVALID_PTX, str(error)) from None
        for reason in assembler.refusals(self.source):
            raise DriverError(Result.INVALID_PTX, f"ptxas: {reason}")
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
        """Return the address that an initialiser names: of a variable, plus an offset, or of a function."""
        name, offset = re.fullmatch(r"(.*?)([+-]\w+)?", text, re.S).groups()
        if name in self.places:
            return self.address + self.places[name] + int(offset or "0", 0)
        if name in self.source.functions and not offset:
            return function_address(self.source, name)
        raise DriverError(Result.INVALID_PTX, f"{text} is no address that a variable can begin with")

    def kernel(self, name):
        """Return the handle of a kernel."""
        function = self.source.functions.get(name)
        refuse_if(function is None or not function.kernel, Result.NOT_FOUND)
        if name not in self.kernels:
            self.kernels[name] = _kernels.add(Kernel(self.source, name, self.address))
        return self.kernels[name]

    def free(self):
        """Free the memory and the handles."""
        for handle in self.kernels.values():
            _kernels.remove(handle)
        if self.address:
            device().arena.free(self.address)


_NO_PTX = 'this is machine code of a GPU; the emulated GPU runs PTX (cuda.core: compile("ptx"), not "cubin")'


def _text(image):
    """Return the PTX at an address."""
    if ctypes.string_at(image, 4) in (b"\x7fELF", b"\x50\xed\x55\xba"):
        raise DriverError(Result.NO_BINARY_FOR_GPU, _NO_PTX)
    return ctypes.string_at(image).decode(errors="replace")  # comments may contain any bytes


def _load(found, image, options):
    """Load PTX with `Options`, which also take the error log."""
    try:
        library = Library(options.apply(_text(image)))
    except DriverError as error:
        options.report(error.detail)
        raise
    options.report()
    put_handle(found, _libraries.add(library))


@driver_function("cuLibraryLoadData", types="ppppuppu")
def _library_load(found, image, options, values, count, library_options, _, library_count):
    check_library_options(library_count, library_options)
    _load(found, image, Options(count, options, values))


driver_functions(
    {
        "cuModuleLoadData pp": lambda found, image: _load(found, image, Options()),
        "cuModuleLoadDataEx ppupp": lambda found, image, *options: _load(found, image, Options(*options)),
        "cuLibraryUnload cuModuleUnload p": lambda handle: _libraries.remove(handle).free(),
        "cuLibraryGetModule pp": lambda found, handle: put_handle(found, handle),
        "cuKernelGetFunction pp": lambda found, handle: put_handle(found, handle),
    }
)


@driver_function("cuLibraryGetKernel", "cuModuleGetFunction", types="ppc")
def _get_kernel(found, handle, name):
    put_handle(found, _libraries[handle].kernel(name.decode()))


@driver_function("cuLibraryGetKernelCount", types="pp")
def _kernel_count(found, handle):
    put_int(found, sum(function.kernel for function in _libraries[handle].source.functions.values()))


@driver_function("cuLibraryGetGlobal", "cuLibraryGetManaged", "cuModuleGetGlobal", types="pppc")
def _get_global(found, size, handle, name):
    library, name = _libraries[handle], name.decode()
    refuse_if(name not in library.places, Result.NOT_FOUND)
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
    refuse_if(number >= len(parameters))
    put_handle(offset, kernel.places[parameters[number].name])
    put_handle(size, parameters[number].size)


_DYNAMIC_SHARED, _CARVEOUT, _CLUSTER_SIDES = 8, 9, (11, 12, 13)  # of ``CUfunction_attribute``
#: Further attributes that a program may set: the default, the least and the greatest value.
_SETTABLE = {_CARVEOUT: (-1, -1, 100), 14: (0, 0, 1), 15: (0, 0, 2), 17: (0, 0, 2)}
_SETTABLE |= dict.fromkeys(_CLUSTER_SIDES, (0, 0, 1))


def _most_threads(kernel):
    """Return the most threads that a block of a kernel may have."""
    bounds = (kernel.function.limits.get(name, (THREADS_LIMIT,)) for name in ("maxntid", "reqntid"))
    return min(THREADS_LIMIT, *map(math.prod, bounds))


def _attribute(kernel, attribute):
    """Return an attribute by its number in ``CUfunction_attribute``."""
    if attribute in _SETTABLE:
        return kernel.attributes.get(attribute, _SETTABLE[attribute][0])
    major, minor = device().capability
    known = {
        0: lambda: _most_threads(kernel),
        1: lambda: kernel.static_shared,
        2: lambda: lay_out(kernel.source.variables.values(), ("const",))[1],
        3: lambda: kernel.local_size,
        4: lambda: estimate(kernel.function),
        5: lambda: int(re.search(r"\d+", kernel.source.target)[0]),  # version of the PTX
        6: lambda: 10 * major + minor,  # version of the machine code
        _DYNAMIC_SHARED: lambda: kernel.dynamic_limit,
        **dict.fromkeys((7, 10, 16), lambda: 0),
    }
    check_choice(attribute, *known, *_SETTABLE)
    return known[attribute]()


def _get_attribute(found, attribute, handle, number=0):
    put_int(found, _attribute(_kernels[handle], attribute))


driver_function("cuFuncGetAttribute", types="pip")(_get_attribute)
driver_function("cuKernelGetAttribute", types="pipi")(_get_attribute)


@driver_function("cuFuncSetAttribute", types="pii")
def _set_attribute(handle, attribute, value):
    kernel = _kernels[handle]
    if attribute in _CLUSTER_SIDES:
        _check_cluster([value])
    settable = _SETTABLE | {_DYNAMIC_SHARED: (0, 0, device().shared_limit - kernel.static_shared)}
    check_choice(attribute, *settable)
    _, least, most = settable[attribute]
    if not least <= value <= most:
        detail = f"attribute {attribute} of this function can be {least} to {most}, not {value}"
        raise DriverError(Result.INVALID_VALUE, detail)
    if attribute == _DYNAMIC_SHARED:
        kernel.dynamic_limit = value
    else:
        kernel.attributes[attribute] = value


@driver_function("cuKernelSetAttribute", types="iipi")
def _set_kernel_attribute(attribute, value, handle, number):
    _set_attribute(handle, attribute, value)


@driver_function("cuFuncSetCacheConfig", "cuKernelSetCacheConfig", types="pi")
def _set_cache_config(handle, value):
    check_choice(value, *range(4))
    _ = _kernels[handle]


@driver_function("cuFuncLoad", types="p")
def _function_load(handle):
    _ = _kernels[handle]


@driver_function("cuFuncIsLoaded", types="pp")
def _function_is_loaded(found, handle):
    put_int(found, 1)


def _resident(block, shared):
    """Return how many blocks are resident on a multiprocessor."""
    reserved = device().shared_reserved
    whole, taken = device().shared_limit + reserved, max(shared + reserved, 1)
    return max(0, min(16, 2048 // max(block, 1), whole // taken))


@driver_function("cuOccupancyMaxActiveBlocksPerMultiprocessor", types="ppiz")
def _occupancy(found, handle, block, shared):
    put_int(found, _resident(block, shared + _kernels[handle].static_shared))


@driver_function("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", types="ppizu")
def _occupancy_with_flags(found, handle, block, shared, flags):
    check_flags(flags, 1)
    put_int(found, _resident(block, shared + _kernels[handle].static_shared))


@driver_function("cuOccupancyMaxPotentialBlockSize", types="ppppzi")
def _best_block(grid, block, handle, shared_of, shared, limit):
    put_int(grid, 2 * MULTIPROCESSORS)
    most = _most_threads(_kernels[handle])
    put_int(block, min(limit, most) if limit else most)


# --- Launches -----------------------------------------------------------------------------------------------


def _arguments(kernel, pointers, extra):
    """Return the buffer of a kernel's arguments, given as pointers or as a buffer in `extra`."""
    parameters = kernel.function.parameters
    if not parameters:
        return b""
    if pointers:
        buffer = bytearray(kernel.parameter_size)
        listed = (ctypes.c_uint64 * len(parameters)).from_address(pointers)
        for variable, pointer in zip(parameters, listed, strict=True):
            at = kernel.places[variable.name]
            buffer[at : at + variable.size] = ctypes.string_at(pointer, variable.size)
        return bytes(buffer)
    refuse_if(not extra)
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
    refuse_if(max(sides) > 1, Result.NOT_SUPPORTED, "on the emulated GPU each block is a cluster by itself")


def launch(handle, grid, block, shared, stream, pointers, extra, cooperative=False):
    """Check a launch, and run it in its stream."""
    enqueue(stream, launching(handle, grid, block, shared, pointers, extra, cooperative))


def launching(handle, grid, block, shared, pointers, extra, cooperative=False):
    """Check a launch and return its `Work`."""
    kernel = _kernels[handle]
    _check_cluster(kernel.function.limits.get("reqnctapercluster", (1,)))
    threads = math.prod(block)
    try:
        _check_sizes(kernel, grid, block, shared)
    except LaunchError as error:
        raise DriverError(Result.INVALID_VALUE, f"this cannot be launched: {error}") from None
    if kernel.local_size > LOCAL_LIMIT:
        detail = f"a thread needs {kernel.local_size} bytes of local memory, and a GPU has {LOCAL_LIMIT}"
        raise DriverError(Result.LAUNCH_OUT_OF_RESOURCES, detail)
    if cooperative:
        resident = MULTIPROCESSORS * _resident(threads, shared + kernel.static_shared)
        refuse_if(grid[0] * grid[1] * grid[2] > resident, Result.COOPERATIVE_LAUNCH_TOO_LARGE)
    arguments = _arguments(kernel, pointers, extra)
    try:
        if not recording.asked():
            kernel.code(block, arguments, counting.compiled if counting.asked() is not None else None)
    except ptx.PtxError as error:
        raise DriverError(Result.INVALID_PTX, str(error)) from None
    run = partial(_run, kernel, grid, block, arguments, shared, cooperative)
    kept, about = [], partial(_taken, kernel, grid, block, arguments, shared, cooperative)
    return Work(
        run, "kernel", partial(_parameters, handle, grid, block, shared, arguments, kept), kept, about
    )


def _check_sizes(kernel, grid, block, shared):
    """Raise a `LaunchError` for blocks and grids that no GPU has or that the kernel does not allow."""
    # A program must request more shared memory by an attribute of the kernel.
    check_launch(grid, block, 0 if shared <= kernel.dynamic_limit else kernel.static_shared + shared)
    if shared > kernel.dynamic_limit:
        raise LaunchError(
            f"its dynamic shared memory was limited to {kernel.dynamic_limit} bytes, not {shared}"
        )
    threads, most = math.prod(block), math.prod(kernel.function.limits.get("maxntid", (THREADS_LIMIT,)))
    if threads > most:
        raise LaunchError(f"a block has {threads} threads, and the kernel's bounds allow {most}")
    required = kernel.function.limits.get("reqntid", block)
    if block != (*required, 1, 1)[:3]:
        raise LaunchError(f"the kernel requires blocks of {required}, not {block}")


def _parameters(handle, grid, block, shared, arguments, kept):
    """Return the parameters of a node, with its own copy of the arguments."""
    if not kept:  # callers may still use the addresses of the first copy
        kernel, own = _kernels[handle], ctypes.create_string_buffer(arguments)
        places = [ctypes.addressof(own) + kernel.places[each.name] for each in kernel.function.parameters]
        kept += own, (ctypes.c_uint64 * len(places))(*places)
    return KERNEL.pack(handle, *grid, *block, shared, ctypes.addressof(kept[1]), 0, handle, 0)


def _taken(*launched):
    return recording.TakenLaunch(device().workers, *launched)


def _run(kernel, grid, block, arguments, shared, cooperative):
    if take := recording.asked():
        take(_taken(kernel, grid, block, arguments, shared, cooperative))
        return
    try:
        failed = device().workers.launch(
            kernel, grid, block, arguments, shared, cooperative, counting.asked()
        )
    finally:
        host.flush()
    if failed:
        print("\n".join(failed), file=sys.stderr, flush=True)
        raise DriverError(Result.ASSERT, failed[0])


@driver_function("cuLaunchKernel", types="puuuuuuuppp")
def _launch_kernel(handle, gx, gy, gz, bx, by, bz, *rest):
    launch(handle, (gx, gy, gz), (bx, by, bz), *rest)


@driver_function("cuLaunchCooperativeKernel", types="puuuuuuupp")
def _launch_cooperative(handle, gx, gy, gz, bx, by, bz, shared, stream, pointers):
    launch(handle, (gx, gy, gz), (bx, by, bz), shared, stream, pointers, None, True)


# Of ``CUlaunchAttributeID``.
_COOPERATIVE = 2
_HINTS = (0, 1, 3, 5, 6, 8, 9, 10, 14, 16, 17, 18)  # about speed only
_CLUSTERS = (4, 11)  # sides of a cluster
_WITH_EVENTS = (7, 12, 13)  # about events during a launch, or changes of it


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
        elif kind in _CLUSTERS:
            _check_cluster((ctypes.c_uint32 * 3).from_address(at + 8))
        elif kind in _WITH_EVENTS:
            raise DriverError(Result.NOT_SUPPORTED, f"attribute {kind} of a launch, on the emulated GPU")
        else:
            check_choice(kind, *_HINTS)
    launch(handle, tuple(numbers[:3]), tuple(numbers[3:6]), numbers[6], stream, pointers, extra, cooperative)
