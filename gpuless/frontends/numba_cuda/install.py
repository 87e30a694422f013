"""Replacements in numba-cuda that make it hand its kernels to the emulated GPU, as PTX."""

import functools
import importlib.util
import sys
import threading

from gpuless.frontends.handover import take_over, taken_over
from gpuless.importing import after_import, is_awaited


def install():
    """Make numba-cuda compile for the emulated GPU, from its first import on."""
    after_import("numba.cuda", _replace)


def keep_kernels():
    """Make numba-cuda cache a real GPU's kernels on disk, like those of the emulated GPU."""
    after_import("numba.cuda", _keep)


def present():
    """Return whether numba-cuda can be imported."""
    return importlib.util.find_spec("numba_cuda") is not None


def installed():
    """Return whether kernels that this process launches, now or later, run on the emulated GPU."""
    return taken_over("numba.cuda") or is_awaited("numba.cuda", _replace)


def simulated():
    """Return whether the imported `numba.cuda` is Numba's simulator."""
    config = sys.modules.get("numba.cuda.core.config") or sys.modules["numba"].config
    return bool(config.ENABLE_CUDASIM)


def _replace(cuda):
    """Make Numba hand over PTX instead of machine code, and look for the driver again."""
    if not present() or not take_over("numba.cuda"):  # without numba-cuda, this is Numba's older `numba.cuda`
        return
    from numba.cuda.codegen import CUDACodeLibrary
    from numba.cuda.dispatcher import CUDADispatcher

    from gpuless.frontends.numba_cuda.hurry import compile_to_ptx_once, hurry
    from gpuless.frontends.numba_cuda.inlined import tell_inlined_places

    tell_inlined_places()
    hurry()
    compile_to_ptx_once()
    _keep(cuda)
    CUDADispatcher.add_overload = _remembered(CUDADispatcher.add_overload)
    CUDACodeLibrary.get_cubin = _without_machine_code(CUDACodeLibrary.get_cubin)
    CUDACodeLibrary.get_cufunc = _one_at_a_time(CUDACodeLibrary.get_cufunc)


def _keep(cuda):
    """Cache all kernels on disk, if that was not done before."""
    if not present():
        return
    from numba.cuda.dispatcher import CUDADispatcher

    if hasattr(CUDADispatcher.__init__, "__wrapped__"):
        return
    CUDADispatcher.__init__ = _with_overloads(CUDADispatcher.__init__)
    CUDADispatcher.compile_device = _taken(CUDADispatcher.compile_device)


def _with_overloads(init):
    """Make a dispatcher look for its kernels on disk."""

    @functools.wraps(init)
    def __init__(dispatcher, *args, **options):
        from gpuless.frontends.numba_cuda.overloads import Overloads

        init(dispatcher, *args, **options)
        dispatcher._cache = Overloads(dispatcher)

    return __init__


def _taken(compile_device):
    """Note the values of globals with which a function is compiled."""

    def compile_once(dispatcher, args, return_type=None):
        from gpuless.frontends.numba_cuda import overloads

        if args not in dispatcher.overloads:
            overloads.take(dispatcher)
        return compile_device(dispatcher, args, return_type)

    return compile_once


def _without_machine_code(get_cubin):
    """Make Numba link again the kernels that its own disk cache has as machine code."""
    from gpuless.frontends.numba_cuda.origins import remember_code

    def get_code(library, cc=None):
        cc = library._ensure_cc(cc)
        known = library._cubin_cache.get(cc)
        if known is not None and known.code_type != "ptx":
            del library._cubin_cache[cc]
        code = get_cubin(library, cc)
        remember_code(library, code.code.decode())
        return code

    return get_code


def _one_at_a_time(get_cufunc):
    """Make a thread that launches a kernel wait while another loads it: Numba refuses to load it twice."""
    lock = threading.RLock()

    def get_function(library):
        with lock:
            return get_cufunc(library)

    return get_function


def _remembered(add_overload):
    """Note the function, options and types of a kernel."""
    from gpuless.frontends.numba_cuda.origins import remember_types

    def add(dispatcher, kernel, types):
        remember_types(kernel._codelibrary, dispatcher, types)
        return add_overload(dispatcher, kernel, types)

    return add
