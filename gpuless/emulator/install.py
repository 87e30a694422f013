"""Put the emulated GPU in the place of the hardware."""

from gpuless.emulator import driver
from gpuless.emulator.driver.linking import join


def install():
    """Let this process have an emulated GPU; before `numba.cuda` is imported."""
    driver.install()
    from numba.cuda import codegen
    from numba.cuda.cudadrv.driver import _Linker

    _Linker.complete = _link_to_ptx
    codegen.CUDACodeLibrary.get_cubin = _without_machine_code(codegen.CUDACodeLibrary.get_cubin)


def _without_machine_code(get_cubin):
    """Let Numba link anew what its cache on disk has as the machine code of a GPU."""

    def get_code(library, cc=None):
        cc = library._ensure_cc(cc)
        known = library._cubin_cache.get(cc)
        if known is not None and known.code_type != "ptx":
            del library._cubin_cache[cc]
        return get_cubin(library, cc)

    return get_code


#: Its functions are the emulator's own.
_PROVIDED = "libcudadevrt.a"


def _link_to_ptx(linker):
    """Finish a link with PTX, where Numba would have the machine code of a GPU."""
    from cuda.core import ObjectCode
    from numba.cuda.cudadrv.driver import Linker, LinkerError

    codes = [code for code in linker._object_codes if code.name != _PROVIDED]
    pieces = [code.code.decode() for code in codes if code.code_type == "ptx"]
    rest = [code for code in codes if code.code_type != "ptx"]
    linker._info_log = linker._error_log = ""
    if rest:
        if not linker._has_ltoir:
            kinds = ", ".join(sorted({f"{code.name} ({code.code_type})" for code in rest}))
            raise LinkerError(f"the emulated GPU runs PTX and links no machine code: {kinds}")
        linker.linker = Linker(*rest, options=linker._get_linker_options(ptx=True))
        pieces.insert(0, linker.linker.link("ptx").code.decode())
        linker.close()
    else:
        linker.linker = codes
    linker._complete = True
    return ObjectCode.from_ptx(join(pieces).encode() + b"\0")
