"""Compile kernels for real GPUs, in a separate process: ``python -m gpuless.compiler.worker``.

A process whose `numba.cuda` is the simulator has no compiler, and numba decides that once, at import. So
`gpuless.compiler.jobs` starts this one without the simulator. It reads a pickled request from standard input
and writes a JSON list, a result for each job, to standard output. It needs no GPU and no driver.
"""

import functools
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpuless import frontends
from gpuless.frontends import signatures
from gpuless.limits import SHARED_LIMIT

_USAGE = {
    "registers": r"Used (\d+) registers",
    "shared": r"(\d+) bytes smem",
    "local": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
}


#: The first toolkit whose disassembler writes source files with the lines.
_WITH_LINES = 13, 2

#: The disassembler's options for a listing, and the function that reads its output.
_MACHINE_CODE = {
    "SASS": (["--emit-json", "--print-line-info", "--print-code", "--no-dataflow"], json.loads),
    "control codes": (
        ["--print-instruction-encoding", "--print-code", "--print-line-info-inline"],
        bytes.decode,
    ),
}


def main():
    """Serve one request."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what modules print when they are imported must not mix with the results
    request = pickle.load(sys.stdin.buffer)
    sys.path[:] = request["path"]
    with results:
        json.dump(_serve(request["jobs"]), results)


def _serve(jobs):
    missing = _missing()
    if missing:
        return {"missing": missing}
    frontends.prepare_compilers()
    nvdisasm = _nvdisasm() if any(job["listing"] in _MACHINE_CODE for job in jobs) else None
    with ThreadPoolExecutor(1) as disassembler:
        return [_finish(result) for result in [_attempt(job, nvdisasm, disassembler) for job in jobs]]


def _missing():
    """Return an error message if the compiler is incomplete, "" otherwise."""
    try:
        from cuda.bindings import nvjitlink, nvvm

        if not frontends.present():
            return "numba-cuda is not installed"
        nvvm.version(), nvjitlink.version()
    except Exception as error:
        return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


def _nvdisasm():
    """Return the path of NVIDIA's disassembler; None if there is none, or it is too old."""
    from cuda.pathfinder import find_nvidia_binary_utility

    path = find_nvidia_binary_utility("nvdisasm")
    if path is None:
        return None
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return None
    release = re.search(r"release (\d+)\.(\d+)", said)
    return path if release and tuple(map(int, release.groups())) >= _WITH_LINES else None


def _attempt(job, nvdisasm, disassembler):
    try:
        return _compile(job, nvdisasm, disassembler)
    except Exception as error:
        # Any error is possible in a user's kernel, and must not stop the other jobs.
        return {"error": type(error).__name__, "message": str(error)}


def _finish(result):
    if "sass" in result:
        result["sass"] = result["sass"].result()
    return result


def _compile(job, nvdisasm, disassembler):
    kernel = _kernel(job)
    if kernel.targetoptions.get("device"):
        raise ValueError("a device function has no registers of its own: inspect a kernel that calls it")
    cc = tuple(job["cc"])
    compiler = frontends.compiler_of(kernel)
    arguments = compiler.arguments_of(kernel, job["signature"])
    options = _options(kernel, job["options"])
    # From Hopper on numba compiles for the "a" variant of the GPU it runs on.
    target = (*cc, "a") if cc >= (9, 0) else cc
    codes = compiler.codes_of(kernel, arguments, target, options)
    arch = "sm_" + "".join(map(str, target))
    cubin, log = _link(codes, arch, options, "cubin")
    log = log.partition("\ninfo ")[0]  # the rest is about kernels of a linked library
    result = {name: int((re.findall(pattern, log) or ["0"])[-1]) for name, pattern in _USAGE.items()}
    if result["shared"] > SHARED_LIMIT:  # from Hopper on the assembler allows it
        raise _too_much_shared(result["shared"])
    result["arguments"] = [signatures.as_written(argument) for argument in arguments]
    result["launch_bounds"] = options["launch_bounds"]
    if job["listing"] in _MACHINE_CODE and nvdisasm:
        result["sass"] = disassembler.submit(_disassemble, nvdisasm, cubin, job["listing"])
    elif not job["listing"]:
        result["ptx"] = ""
    else:
        result["ptx"] = _ptx(codes, arch, options)
    return result


def _ptx(codes, arch, options):
    """Return the parts of a kernel that are PTX or can be compiled to it."""
    known = [code.decode().rstrip("\0") for kind, code in codes if kind == "PTX"]
    codes = [(kind, code) for kind, code in codes if kind == "LTOIR"]  # no other becomes PTX
    if codes:
        known.insert(0, _link(codes, arch, options, "ptx")[0].decode().rstrip("\0"))
    return "\n".join(known)


def _kernel(job):
    """Return a kernel, from its module or, if that needs a GPU, from the copy."""
    for pickled in filter(None, (job["kernel"], job["copy"])):
        try:
            return _unpickled(pickled)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # without a GPU, a module may raise SystemExit, or pytest's Skipped
            reason = error
    raise ValueError(f"a module that it uses cannot be imported: {type(reason).__name__}: {reason}")


_unpickled = functools.cache(pickle.loads)  # the same kernel for all GPUs


def _options(kernel, asked):
    """Return the compiler's options: those asked for, or else those of the kernel's decorator."""
    return {name: kernel.targetoptions.get(name) if value is None else value for name, value in asked.items()}


def _link(codes, arch, options, output):
    """Return (cubin or PTX, the assembler's log)."""
    from cuda.bindings import nvjitlink

    flags = [f"-arch={arch}", "-lineinfo", "-verbose", "-Xptxas=-v"]
    flags += ["-lto"] if any(kind == "LTOIR" for kind, _ in codes) else []
    flags += ["-ptx"] if output == "ptx" else []
    flags += [f"-maxrregcount={options['max_registers']}"] if options["max_registers"] else []
    linker = nvjitlink.create(len(flags), flags)
    try:
        for kind, code in codes:
            nvjitlink.add_data(linker, getattr(nvjitlink.InputType, kind), code, len(code), "kernel")
        nvjitlink.complete(linker)
    except nvjitlink.nvJitLinkError:
        log = _text(linker, nvjitlink.get_error_log_size, nvjitlink.get_error_log)
        raise _refusal(log) from None
    size = getattr(nvjitlink, f"get_linked_{output}_size")(linker)
    code = bytearray(size)
    getattr(nvjitlink, f"get_linked_{output}")(linker, code)
    log = _text(linker, nvjitlink.get_info_log_size, nvjitlink.get_info_log)
    nvjitlink.destroy(linker)
    return bytes(code), log


def _refusal(log):
    """Return the error for code that the assembler refuses: its first complaint, of what may be thousands."""
    if shared := re.search(r"uses too much shared data \(0x([0-9a-f]+) bytes", log):
        return _too_much_shared(int(shared[1], 16))
    first = next((" ".join(line.split()) for line in log.splitlines() if "; error" in line), log)
    if targets := re.findall(r"requires \.target sm_(\d+)(\d)", log):
        major, minor = max(targets, key=lambda target: int("".join(target)))
        first = f"it needs compute capability {major}.{minor} or higher ({first})"
    return RuntimeError(first)


def _too_much_shared(used):
    return ValueError(
        f"its shared arrays take {used} bytes, and a block can have {SHARED_LIMIT} (48 KB): "
        "use a smaller tile"
    )


def _text(linker, get_size, get_text):
    text = bytearray(get_size(linker))
    get_text(linker, text)
    return text.decode(errors="replace").rstrip("\0")


def _disassemble(nvdisasm, cubin, listing):
    options, read = _MACHINE_CODE[listing]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        run = subprocess.run([nvdisasm, *options, str(path)], capture_output=True, check=True)
        return read(run.stdout)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # Numba's clean-up would take a tenth of a second
