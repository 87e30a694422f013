"""The disk cache of kernels: Numba compiles each combination of code, types and options once.

Numba's own ``cache=True`` checks when a function's file was last changed, but not what the function uses from
other files. Here the key covers everything that is compiled: bytecode, constants and global values, those of
called functions, types, options, versions, and the program's extensions of Numba. A kernel that uses anything
else is compiled as usual.
"""

import contextlib
import functools
import itertools
import os
import pickle
import sys
import weakref
import zlib

import llvmlite
import numba
import numba_cuda
import numpy as np
from numba.cuda import config, cudadrv
from numba.cuda.core import sigutils
from numba.cuda.core.caching import NullCache
from numba.cuda.dispatcher import _Kernel
from numba.cuda.serialize import dumps

from gpuless.emulator.run import cache
from gpuless.frontends.numba_cuda import registrations
from gpuless.frontends.numba_cuda.fingerprints import Fingerprint, Unknown, fingerprint

#: The parts of functions and classes when the first kernel that uses them was requested. Numba compiles them
#: once in a process, with the values that their globals had then.
_first = weakref.WeakKeyDictionary()


class Overloads(NullCache):
    """A dispatcher's cached kernels: its `CUDADispatcher._cache`."""

    def __init__(self, dispatcher):
        self._dispatcher, self._name = dispatcher, None

    def load_overload(self, sig, target_context):
        """Return the cached kernel of some types, None if there is none."""
        try:
            self._name = cache.digest(_versions(), *self._made_of(sigutils.normalize_signature(sig)[0]))
        except Exception:  # Unknown, or anything that a program's values raise when they are inspected
            self._name = None
            return None
        kept = cache.read(self._name)
        return self._rebuilt(kept, sig, target_context) if kept else None

    def _rebuilt(self, kept, sig, target_context):
        """Return a kernel, with attributes that Numba's own cache omits."""
        kernel = _Kernel._rebuild(**pickle.loads(zlib.decompress(kept)))
        kernel.target_context = target_context
        kernel.objectmode, kernel.py_func = False, self._dispatcher.py_func
        kernel.argtypes = sigutils.normalize_signature(sig)[0]
        kernel._type_annotation = _TypedLater(kernel, self._dispatcher.targetoptions)
        kernel.bind()  # connects it with Numba's memory statistics
        return kernel

    def save_overload(self, sig, kernel):
        """Cache a kernel, if possible."""
        if self._name is None or kernel.launch_config_sensitive:
            return
        try:
            states = dumps(kernel._reduce_states())
        except (pickle.PicklingError, RuntimeError, TypeError, AttributeError):
            return  # it refers to objects of this process
        cache.write(self._name, zlib.compress(states, 1))

    def with_lines(self, types, compiled):
        """Return PTX with source lines, from the cache or from the function `compiled`."""
        try:
            functions = [part for part in Fingerprint(self._dispatcher).parts if hasattr(part, "__code__")]
            places = [list(_places(function.__code__)) for function in functions]
            name = cache.digest("lines", _versions(), places, *self._made_of(types))
        except Exception:  # as above
            return compiled()
        kept = cache.read(name)
        if kept is None:
            kept = compiled().encode()
            cache.write(name, kept)
        return kept.decode()

    def _made_of(self, types):
        """Return everything on which a kernel's code depends."""
        given = registrations.fingerprints()
        for each in itertools.chain(*given):  # also for kernels without a fingerprint
            self._check_unchanged(each)
        kernel = Fingerprint(self._dispatcher)
        self._check_unchanged(kernel)
        return fingerprint(types), kernel.text, [[each.text for each in entries] for entries in given]

    def _check_unchanged(self, made_of):
        """Check all parts but the kernel's own function, which is compiled again for other types."""
        own = self._dispatcher.py_func
        _check_unchanged({part: value for part, value in made_of.parts.items() if part is not own})


def _places(code):
    """Yield the source positions of code, and of the functions in it."""
    yield code.co_filename, code.co_firstlineno, code.co_linetable
    for constant in code.co_consts:
        if hasattr(constant, "co_linetable"):
            yield from _places(constant)


class _TypedLater:
    """The types in a cached kernel: using them compiles it again."""

    def __init__(self, kernel, options):
        self._kernel, self._options = kernel, options

    @functools.cached_property
    def _annotation(self):
        return _Kernel(self._kernel.py_func, self._kernel.argtypes, **self._options)._type_annotation

    def __getattr__(self, name):
        return getattr(self._annotation, name)

    def __str__(self):
        return str(self._annotation)


def _versions():
    """Return the versions and settings of everything that takes part in compiling."""
    libraries = [cudadrv.libs.get_cudalib(name) for name in ("nvvm", "nvJitLink", "nvrtc")]
    libraries.append(cudadrv.libs.get_libdevice())
    stats = [(path, os.stat(path)) for path in libraries if path and os.path.exists(path)]
    options = {name: value for name, value in vars(config).items() if name.isupper()}
    device = cudadrv.devices.get_context().device.compute_capability
    return (
        sys.version,
        np.__version__,
        numba_cuda.__version__,
        numba.__version__,
        llvmlite.__version__,
        [(path, state.st_size, state.st_mtime_ns) for path, state in stats],
        sorted(map(str, options.items())),
        device,
    )


def take(dispatcher):
    """Remember the parts of a function that Numba is about to compile, for all kernels that call it."""
    with contextlib.suppress(Exception):  # as above
        _check_unchanged(Fingerprint(dispatcher).parts)


def _check_unchanged(parts):
    """Raise Unknown if Numba has compiled one of these with other values, or may have."""
    first = [_first.setdefault(function, made_of) for function, made_of in parts.items()]
    if first != list(parts.values()):
        raise Unknown("a global has another value")
