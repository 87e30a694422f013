"""Compile kernels for real GPUs, without having one, in a process with NVIDIA's compiler.

In this process `numba.cuda` may be the simulator, which cannot compile. So kernels are pickled and sent to
`gpuless.compiler.worker`: a module's kernels by name, a notebook's with the globals that they use.
"""

import functools
import importlib
import io
import json
import os
import pickle
import reprlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import NamedTuple

from gpuless.frontends import compiler_of, cuda, make_kernel

OPTIONS = ("fastmath", "launch_bounds", "max_registers")
#: Further options of a decorator that the compiler needs.
_DECLARED = ("device", "inline", "forceinline")
_JOBS_PER_WORKER = 20
#: The modules that may be simulated.
_CUDAS = "numba.cuda", "numba_cuda_mlir.cuda"
#: Errors whose names say nothing: ValueError is the worker's own, RuntimeError the assembler's.
_GENERAL = "ValueError", "RuntimeError"
_FIX = "install the CUDA compiler (no GPU needed): pip install 'gpuless[cu13]'"


class InspectionError(RuntimeError):
    """A kernel could not be compiled."""


class NoCompiler(InspectionError):
    """There is no CUDA compiler on this machine."""


class Refusal(InspectionError):
    """The compiler rejects a kernel."""


class Job(NamedTuple):
    """A kernel to compile for an architecture."""

    kernel: object
    signature: object
    cc: tuple
    options: tuple = tuple((name, None) for name in OPTIONS)
    """Pairs of name and value; None means the value in the kernel's decorator."""
    listing: str = "PTX"
    """The listing to return: "SASS", "control codes" for SASS with these, "PTX", or "" for none. Without a
    disassembler it is PTX."""


# The worker's results, by `_key`.
_cache = {}


def compile_jobs(jobs):
    """Compile kernels, many of them in several processes, and cache the results.

    Returns the worker's result for each `Job`, a dict: registers, spill_stores, ... and "sass" or "ptx",
    which is "" without a listing. Raises `InspectionError` if the compiler rejects a kernel or is missing.
    """
    keys = [_key(job) for job in jobs]
    new = {key: job for key, job in zip(keys, jobs, strict=True) if key not in _cache}
    if new:
        _cache.update(zip(new, _ask_workers([_message(key, job) for key, job in new.items()]), strict=True))
    results = [_cache[key] for key in keys]
    _raise_errors(jobs, results)
    return results


def python_function(kernel):
    """Return the Python function of a kernel, real or simulated; raise TypeError for anything else."""
    _compiler(kernel)
    return kernel.py_func


def types_of(kernel, arguments):
    """Return the types that a kernel's compiler gives to arguments; raise TypeError if one has none."""
    return _compiler(kernel).types_of(arguments)


def _compiler(kernel):
    if (compiler := compiler_of(kernel)) is None:
        raise TypeError(f"expected a kernel, a function with @cuda.jit, got {reprlib.repr(kernel)}")
    return compiler


# --- sending kernels ---------------------------------------------------------------------------------------


@functools.cache
def _cloudpickle():
    """Return Numba's module that pickles functions; raise NoCompiler if it is not installed."""
    try:
        return importlib.import_module("numba.cloudpickle")
    except ImportError:
        raise NoCompiler(f"there is no CUDA compiler here: Numba is not installed; {_FIX}") from None


@functools.cache
def _pickler():
    """Return a pickler of kernels and device functions, which turns simulated ones into real ones."""

    class Pickler(_cloudpickle().CloudPickler):
        def __init__(self, stream, by_name):
            super().__init__(stream)
            self.by_name = by_name

        def reducer_override(self, obj):
            if isinstance(obj, ModuleType) and obj.__name__ in _CUDAS and _is_simulated(obj):
                return importlib.import_module, (_CUDAS[0],)  # whichever of them is simulated
            if id(obj) in _simulated_names():
                return getattr, (cuda(), _simulated_names()[id(obj)])
            if getattr(obj, "__cuda_ndarray__", False) and not isinstance(obj, type):
                raise pickle.PicklingError("an array on the GPU is a global of it; make it an argument")
            compiler = compiler_of(obj)
            if compiler is None:
                return super().reducer_override(obj)
            function = python_function(obj)
            if self.by_name and _importable(obj, function):
                return _import_kernel, (function.__module__, function.__qualname__)
            return make_kernel, (compiler.PACKAGE, function, decorator_options(obj))

    return Pickler


@functools.cache
def _simulated_names():
    """Return the names of simulated objects in `numba.cuda`, by id; the worker looks up the real ones."""
    return {id(value): name for name, value in vars(cuda()).items() if _is_simulated(value)}


def _is_simulated(value):
    value = getattr(value, "jit", value) if isinstance(value, ModuleType) else value
    return str(getattr(value, "__module__", "")).startswith("gpuless")


def _importable(kernel, function):
    """Return whether another process can import the kernel."""
    module = sys.modules.get(function.__module__)
    if module is None or module.__name__ == "__main__" or module.__spec__ is None:
        return False
    return getattr(module, function.__qualname__, None) is kernel


def decorator_options(kernel):
    """Return the options of ``@cuda.jit`` that the compiler needs, such as "device" of a device function."""
    options = dict(getattr(kernel, "targetoptions", {}))
    # numba's own simulated kernels remember these two as attributes.
    options.setdefault("device", getattr(kernel, "_device", False))
    options.setdefault("fastmath", getattr(kernel, "_fastmath", False))
    return {name: options[name] for name in (*_DECLARED, *OPTIONS) if options.get(name)}


def _import_kernel(module, name):
    return getattr(__import__(module, fromlist=[name]), name)


def _pickle(kernel, by_name=True):
    stream = io.BytesIO()
    _pickler()(stream, by_name).dump(kernel)
    return stream.getvalue()


def _copy(kernel):
    """Pickle a kernel with everything that it uses; return None if that's impossible.

    The worker cannot import modules that need a GPU, such as to copy arrays to it; the simulator can.
    """
    module = sys.modules.get(python_function(kernel).__module__)
    try:
        if module:
            _cloudpickle().register_pickle_by_value(module)
        return _pickle(kernel, by_name=False)
    except (pickle.PicklingError, TypeError, RecursionError):
        return None
    finally:
        if module:
            _cloudpickle().unregister_pickle_by_value(module)


def _key(job):
    """Return a key of everything that a result depends on."""
    function = python_function(job.kernel)
    try:
        kernel = _pickle(job.kernel)
    except (pickle.PicklingError, TypeError, RecursionError) as error:
        raise InspectionError(f"{function.__name__} cannot be sent to the compiler: {error}") from None
    try:
        edited = os.stat(function.__code__.co_filename).st_mtime_ns  # the name of a kernel hides changes
    except OSError:
        edited = None
    return kernel, str(job.signature), job.cc, job.options, job.listing, edited


def _message(key, job):
    return job._asdict() | {"kernel": key[0], "copy": _copy(job.kernel), "options": dict(job.options)}


# --- the worker --------------------------------------------------------------------------------------------


def _ask_workers(messages):
    """Divide jobs among processes; one process does a few jobs before a second has started."""
    workers = min(importlib.import_module("numba").get_num_threads(), -(-len(messages) // _JOBS_PER_WORKER))
    share = -(-len(messages) // workers)
    shares = [messages[start : start + share] for start in range(0, len(messages), share)]
    with ThreadPoolExecutor(workers) as pool:
        return [result for results in pool.map(_ask_worker, shares) for result in results]


def _ask_worker(messages):
    if sys.platform == "darwin":
        raise NoCompiler(
            "kernels cannot be inspected on macOS: NVIDIA has no CUDA compiler for it; "
            "inspect them on Linux or Windows, a free online notebook for instance"
        )
    command = [sys.executable, "-m", "gpuless.compiler.worker"]
    request = pickle.dumps({"path": sys.path, "jobs": messages})
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0", "GPULESS": "hardware"}
    run = subprocess.run(command, input=request, capture_output=True, env=environment, check=False)
    if run.returncode:
        raise InspectionError(f"the compiler's process failed:\n{run.stderr.decode(errors='replace')}")
    results = json.loads(run.stdout)
    if isinstance(results, dict):
        raise NoCompiler(f"there is no CUDA compiler here: {results['missing']}; {_FIX}")
    return results


def _raise_errors(jobs, results):
    """Raise one error that names every kernel that was refused, and for which architectures."""
    refused, messages = {}, {}
    for job, result in zip(jobs, results, strict=True):
        if "error" not in result:
            continue
        kind = "" if result["error"] in _GENERAL else f"{result['error']}: "
        message = kind + result["message"].strip()
        # Numba's second message has another indentation.
        reason = python_function(job.kernel).__name__, " ".join(message.split())
        messages.setdefault(reason, message)
        refused.setdefault(reason, []).append("{}.{}".format(*job.cc))
    if refused:
        by_compiler = any(result.get("error", "ValueError") != "ValueError" for result in results)
        raise (Refusal if by_compiler else InspectionError)(
            "\n".join(
                f"{reason[0]} does not compile for compute capability {', '.join(ccs)}: {messages[reason]}"
                for reason, ccs in refused.items()
            )
        )
