"""Write small PTX kernels, and run them on the emulated GPU, without Numba and without a driver."""

import ctypes
import functools

import numpy as np

from gpuless.emulator import ptx
from gpuless.emulator.analysis.variables import lay_out
from gpuless.emulator.run import launch, memory

WIDTHS = {
    "u8": 8,
    "s8": 8,
    "u16": 16,
    "s16": 16,
    "b16": 16,
    "f16": 16,
    "bf16": 16,
    "u32": 32,
    "s32": 32,
    "b32": 32,
}
WIDTHS |= {"f32": 32, "f16x2": 32, "bf16x2": 32, "u64": 64, "s64": 64, "b64": 64, "f64": 64, "pred": 1}
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
STORE = """
.visible .entry f(.param .u64 p0)
{
    .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [p0];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    BODY
    ret;
}
"""
#: A body for it: waiting for a number that never comes.
WAIT = """L: ld.acquire.gpu.global.u32 %r3, [%rd3+128]; setp.eq.u32 %p1, %r3, 0; @%p1 bra L;"""
DECLARED = ".extern .func (.param .b32 ended) cudaCGSynchronize(.param .b64 grid, .param .b32 flags);"


@functools.cache
def workers():
    """Return the threads that run blocks, and their memory."""
    return launch.Workers(memory.Arena(1 << 30), 2)


class DeviceArray:
    """A temporary array in the emulated GPU's memory."""

    def __init__(self, array):
        array = np.ascontiguousarray(array)
        self.dtype, self.shape, self.nbytes = array.dtype, array.shape, array.nbytes
        self.address = workers().arena.allocate(array.nbytes)
        ctypes.memmove(self.address, array.ctypes.data, array.nbytes)

    def read(self):
        """Return its contents."""
        raw = ctypes.string_at(self.address, self.nbytes)
        return np.frombuffer(raw, self.dtype).reshape(self.shape)

    def free(self):
        """Free its memory."""
        workers().arena.free(self.address)


def run(text, arrays, grid=(1, 1, 1), block=(32, 1, 1), shared=0, kernel="f", numbers=(), together=False):
    """Run a kernel whose parameters are addresses of arrays, then numbers of 64 bits; return the arrays.

    `together`: whether the launch is cooperative.
    """
    module = ptx.parse(text if text.startswith(".version") else HEAD + text)
    variables = _load_variables(module)
    compiled = launch.Kernel(module, kernel, variables)
    held = [DeviceArray(array) for array in arrays]
    arguments = b"".join(array.address.to_bytes(8, "little") for array in held)
    arguments += b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    try:
        workers().launch(compiled, grid, block, arguments, shared, together)
        return [array.read() for array in held]
    finally:
        if variables:
            workers().arena.free(variables)
        for array in held:
            array.free()


def _load_variables(module):
    """Put the variables of a module into memory with their initial values; return the address, or 0."""
    places, size = lay_out(module.variables.values(), ("global", "const"))
    if not size:
        return 0
    base = workers().arena.allocate(size)
    for name, place in places.items():
        content = bytearray(module.variables[name].initial.ljust(module.variables[name].size, bytes(1)))
        for offset, other in module.variables[name].pointers:
            content[offset : offset + 8] = (base + places[other]).to_bytes(8, "little")
        ctypes.memmove(base + place, bytes(content), len(content))
    return base


def elementwise(instructions, types, results, count):
    """Return a kernel that applies instructions to number i of each array, in thread i; types as of PTX.

    An instruction's operands are written %d, %a, %b, %c, and each has an array for its %d, of the type in
    `results`; a predicate is stored as 0 or 1.
    """
    names = "abc"[: len(types)]
    outs = ["u32" if result == "pred" else result for result in results]
    lines = [f".param .u64 p{i}" for i in range(len(types) + len(outs))]
    body = [".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;"]
    body += [f".reg .b{max(16, WIDTHS[type_])} %{name};" for name, type_ in zip(names, types, strict=True)]
    body += [
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;",
        "mad.lo.s32 %r4, %r1, %r2, %r3;",
    ]
    body += [f"setp.ge.u32 %p1, %r4, {count};", "@%p1 bra END;"]
    for i, (name, type_) in enumerate(zip(names, types, strict=True)):
        body += [f"ld.param.u64 %rd1, [p{i}];", f"mul.wide.u32 %rd2, %r4, {WIDTHS[type_] // 8};"]
        body += ["add.s64 %rd3, %rd1, %rd2;", f"ld.global.{_loaded(type_)} %{name}, [%rd3];"]
    for i, (instruction, result, out) in enumerate(zip(instructions, results, outs, strict=True)):
        body += [f".reg .{'pred' if result == 'pred' else f'b{max(16, WIDTHS[result])}'} %d{i};"]
        body += [instruction.replace("%d", f"%d{i}") + ";"]
        body += [f"ld.param.u64 %rd1, [p{len(types) + i}];", f"mul.wide.u32 %rd2, %r4, {WIDTHS[out] // 8};"]
        body += ["add.s64 %rd3, %rd1, %rd2;"]
        if result == "pred":
            body += [f"selp.u32 %r5, 1, 0, %d{i};", "st.global.u32 [%rd3], %r5;"]
        else:
            body += [f"st.global.{_loaded(out)} [%rd3], %d{i};"]
    return f".visible .entry f({', '.join(lines)})\n{{\n" + "\n".join(body) + "\nEND: ret;\n}\n"


def _loaded(type_):
    return type_ if type_ in ("u8", "s8") else f"b{WIDTHS[type_]}"


def apply(instruction, types, result, *values):
    """Return the results of an instruction for numbers, given as bits: in lanes, and as a scalar."""
    (found,) = apply_all([instruction], types, [result], *values)
    return found


def apply_all(instructions, types, results, *values):
    """Return the result of `apply` for each of several instructions, in one kernel.

    The second time each block computes one number in all its lanes, which scalar code does.
    """
    dtypes = [np.dtype(f"u{WIDTHS[type_] // 8}") for type_ in types]
    arrays = [np.array(column, dtype) for column, dtype in zip(values, dtypes, strict=True)]
    count = len(arrays[0])
    for result in results:
        arrays.append(np.zeros(count, np.uint32 if result == "pred" else np.dtype(f"u{WIDTHS[result] // 8}")))
    text = elementwise(instructions, types, results, count)
    lanes = run(text, arrays, (-(-count // 64), 1, 1), (64, 1, 1))[len(types) :]
    uniform = text.replace("mad.lo.s32 %r4, %r1, %r2, %r3;", "mov.u32 %r4, %r1;")
    scalar = run(uniform, arrays, (count, 1, 1), (32, 1, 1))[len(types) :]
    return [(one.tolist(), other.tolist()) for one, other in zip(lanes, scalar, strict=True)]


def threads(body, count=2, before="", variables=""):
    """Return a kernel: in thread i, %i is i, %t its place in the block, and %a0 to %a8 the parameters.

    %out is the address of the thread's 32 bits in the last one; %x and %y are free, of 32 and of 64 bits, and
    %p are predicates.
    """
    given = ", ".join(f".param .u64 p{i}" for i in range(count))
    loads = " ".join(f"ld.param.u64 %a{i}, [p{i}];" for i in range(count))
    return f"""{variables}
{before}
.visible .entry f({given})
{{
.reg .b32 %x<60>; .reg .b64 %y<60>; .reg .pred %p<20>; .reg .b32 %i, %t, %n, %c; .reg .b64 %a<9>, %out;
{loads}
mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x; mov.u32 %c, %ctaid.x; mad.lo.s32 %i, %c, %n, %t;
mul.wide.u32 %out, %i, 4; add.s64 %out, %a{count - 1}, %out;
{body}
ret;
}}
"""


def results(body, arrays=(), block=32, grid=1, shared=0, **written):
    """Return the result of each thread of `threads` in the last array, and the other arrays."""
    out = np.zeros(block * grid, np.uint32)
    text = threads(body, len(arrays) + 1, **written)
    *others, found = run(text, [*arrays, out], (grid, 1, 1), (block, 1, 1), shared)
    return found.tolist(), [other.tolist() for other in others]
