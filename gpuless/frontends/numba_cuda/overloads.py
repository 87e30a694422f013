"""What Numba has compiled, on disk: a kernel whose code, types and options are known is not compiled again.

Numba's own ``cache=True`` asks when a function's file was changed last, and knows nothing of what the
function takes from other files. Here the name of what is kept follows from all that is compiled: bytecode,
constants and global values, those of the functions it calls, types, options, versions, and what the
program has taught Numba. A kernel with anything else in it is compiled as usual.
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

#: What functions and classes were made of when a kernel that needs them was first asked for. Numba compiles
#: them once in a process, and keeps the values that their globals had.
_taken = weakref.WeakKeyDictionary()


class Overloads(NullCache):
    """The kernels of one dispatcher, where `CUDADispatcher` looks for compiled ones."""

    def __init__(self, dispatcher):
        self._dispatcher, self._name = dispatcher, None

    def load_overload(self, sig, target_context):
        """Return the kernel of these types, None if there is none."""
        try:
            self._name = cache.digest(_versions(), *self._made_of(sigutils.normalize_signature(sig)[0]))
        except Exception:  # Unknown, or whatever the values of a program may raise when they are looked at
            self._name = None
            return None
        kept = cache.read(self._name)
        return self._rebuilt(kept, sig, target_context) if kept else None

    def _rebuilt(self, kept, sig, target_context):
        """Return a kernel, with what Numba's own cache leaves out."""
        kernel = _Kernel._rebuild(**pickle.loads(zlib.decompress(kept)))
        kernel.target_context = target_context
        kernel.objectmode, kernel.py_func = False, self._dispatcher.py_func
        kernel.argtypes = sigutils.normalize_signature(sig)[0]
        kernel._type_annotation = _TypedLater(kernel, self._dispatcher.targetoptions)
        kernel.bind()  # which connects it with the counters of memory
        return kernel

    def save_overload(self, sig, kernel):
        """Keep a kernel, where that can be done."""
        if self._name is None or kernel.launch_config_sensitive:
            return
        try:
            states = dumps(kernel._reduce_states())
        except (pickle.PicklingError, RuntimeError, TypeError, AttributeError):
            return  # it refers to what is only in this process
        cache.write(self._name, zlib.compress(states, 1))

    def with_lines(self, types, compiled):
        """Return PTX that names the lines of its instructions, from disk or as a function compiles it."""
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
        """Return all that a kernel follows from."""
        given = registrations.fingerprints()
        for each in itertools.chain(*given):  # those of kernels without a fingerprint too
            self._insist_on_first(each)
        kernel = Fingerprint(self._dispatcher)
        self._insist_on_first(kernel)
        return fingerprint(types), kernel.text, [[each.text for each in entries] for entries in given]

    def _insist_on_first(self, made_of):
        """Do so but for the kernel's own function, which is compiled again for each of its types."""
        own = self._dispatcher.py_func
        _insist_on_first({part: value for part, value in made_of.parts.items() if part is not own})


def _places(code):
    """Return where the source of code is, and of the functions in it."""
    yield code.co_filename, code.co_firstlineno, code.co_linetable
    for constant in code.co_consts:
        if hasattr(constant, "co_linetable"):
            yield from _places(constant)


class _TypedLater:
    """The types in a kernel from disk: asking for them compiles it once more."""

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
    """Return what compiles, as far as kernels depend on it."""
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
    """Remember what a function is made of that Numba is about to compile, for all kernels that call it."""
    with contextlib.suppress(Exception):  # as above
        _insist_on_first(Fingerprint(dispatcher).parts)


def _insist_on_first(parts):
    """Raise Unknown if Numba has compiled one of these with other values in it, or may have."""
    first = [_taken.setdefault(function, made_of) for function, made_of in parts.items()]
    if first != list(parts.values()):
        raise Unknown("a global has another value")
