"""Calls of functions that CUDA provides, in IR; the host executes them (`run.host`)."""

import signal
from typing import NamedTuple

from gpuless.emulator.translate.layout import LAUNCH, OFFSET
from gpuless.emulator.translate.processor import MACHINE

#: The signal that stops a kernel; by default it does nothing.
STOP = signal.SIGURG


class Function(NamedTuple):
    """A function that CUDA provides: its number in requests, and the bytes of its results and parameters."""

    number: int
    results: int
    given: tuple


FUNCTIONS = {
    name: Function(number, *widths)
    for number, (name, *widths) in enumerate(
        (
            ("vprintf", 4, (8, 8)),
            ("__assertfail", 0, (8, 8, 4, 8, 8)),
            ("malloc", 8, (8,)),
            ("free", 0, (8,)),
            ("cudaCGGetIntrinsicHandle", 8, (4,)),
            ("cudaCGSynchronize", 4, (8, 4)),
        )
    )
}
#: The fields of a request: function, lanes, warp, the block's shape, pointer to results, pointers to
#: arguments. The host overwrites the first with an address that it could not read, or 0.
REQUEST = 16

# Python must run on the thread's own stack: a fibre makes the call there, below the scheduler's frames.
_ON_STACK = {
    "x86_64": """
.p2align 4
.type gpuless_on_stack,@function
gpuless_on_stack:
pushq %rbp
movq %rsp, %rbp
movq %rcx, %rsp
andq $-16, %rsp
callq *%rdx
movq %rbp, %rsp
popq %rbp
retq
""",
    "aarch64": """
.p2align 4
.type gpuless_on_stack,%function
gpuless_on_stack:
stp x29, x30, [sp, #-16]!
mov x29, sp
and x9, x3, #-16
mov sp, x9
blr x2
mov sp, x29
ldp x29, x30, [sp], #16
ret
""",
}
_CALL = """
declare i32 @raise(i32)

define internal void @call_host(ptr %ctx, ptr %request) #1 {{
  %at.host = getelementptr i8, ptr %ctx, i64 {host}
  %host = load ptr, ptr %at.host
  %at.scheduler = getelementptr i8, ptr %ctx, i64 {scheduler}
  %scheduler = load ptr, ptr %at.scheduler
  ; while Python runs, no signal may jump out of it
  %at.thread = getelementptr i8, ptr %ctx, i64 {thread}
  %thread = load i64, ptr %at.thread
  store volatile i64 0, ptr %at.thread
  call void {call}
  store volatile i64 %thread, ptr %at.thread
  ; a signal to stop the kernel was ignored meanwhile: raise it again
  %at.launch = getelementptr i8, ptr %ctx, i64 {launch}
  %launch = load ptr, ptr %at.launch
  %at.stop = getelementptr i8, ptr %launch, i64 {at_stop}
  %stop = load volatile i32, ptr %at.stop
  %wanted = icmp ne i32 %stop, 0
  br i1 %wanted, label %leave, label %end
leave:
  %unused = call i32 @raise(i32 {signal})
  br label %end
end:
  %wild = load i64, ptr %request
  %bad = icmp ne i64 %wild, 0
  br i1 %bad, label %touch, label %done
touch:
  %where = inttoptr i64 %wild to ptr
  %nothing = load volatile i8, ptr %where
  br label %done
done:
  ret void
}}
"""


def text(fibres):
    """Return the IR of a call of the host; `fibres`: whether each warp has its own stack."""
    places = {name: OFFSET[name] for name in ("host", "scheduler", "thread", "launch")}
    places |= {"at_stop": LAUNCH["stop"], "signal": int(STOP)}
    if not fibres:
        return _CALL.format(call="%host(ptr %ctx, ptr %request)", **places)
    lines = _ON_STACK[MACHINE].strip().split("\n")
    head = "".join(f'module asm "{line}"\n' for line in lines)
    head += "declare void @gpuless_on_stack(ptr, ptr, ptr, ptr)\n"
    call = "@gpuless_on_stack(ptr %ctx, ptr %request, ptr %host, ptr %scheduler)"
    return head + _CALL.format(call=call, **places)


def sizes(name):
    """Return the bytes of each parameter and each result of a provided function, None if unknown."""
    function = FUNCTIONS.get(name)
    return function and (function.given, (function.results,) if function.results else ())


def write_call(t, name, results, given):
    """Write the call of a provided function; return whether it exists.

    `results`, `given`: pointers to the results and the arguments of all lanes.
    """
    function = FUNCTIONS.get(name)
    if function is None:
        return False
    if name == "cudaCGSynchronize":
        t.module.uses_barriers = True
        t.line("call void @barrier(ptr %ctx, i32 %warp, i32 0, i32 0)")
    x, y, z = t.module.block
    t.slots["%request"] = f"[{REQUEST} x i64]"
    mask, warp = t.new(f"zext i32 {t.mask} to i64"), t.new("zext i32 %warp to i64")
    fields = [("i64", function.number), ("i64", mask), ("i64", warp), ("i64", x | y << 16 | z << 32)]
    fields += [("ptr", pointer) for pointer in (results or ["null"])[:1]]
    fields += [("ptr", pointer) for pointer in given]
    for i, (type_, value) in enumerate(fields):
        place = t.new(f"getelementptr i64, ptr %request, i64 {i}")
        t.line(f"store {type_} {value}, ptr {place}")
    t.line("call void @call_host(ptr %ctx, ptr %request)")
    t.module.uses_host = True
    return True
