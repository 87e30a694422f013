"""The warps of a block that wait for each other, in IR: each is a fibre with its own stack.

At a barrier that others have not reached a warp switches to the next one, and it goes on when all have
arrived. A switch takes a dozen instructions.
"""

from gpuless.emulator.translate.layout import BARRIERS, OFFSET, STACK, named
from gpuless.emulator.translate.processor import MACHINE

# A new fibre's stack is prepared so that switching to it "returns" to `gpuless_begin`, with the block in rbx
# (x19) and the warp in rbp (w20).
_FUNCTIONS = {
    "x86_64": """
.p2align 4
.type gpuless_begin,@function
gpuless_begin:
movq %rbx, %rdi
movl %ebp, %esi
popq %rax
callq *%rax
ud2
""",
    "aarch64": """
.p2align 4
.type gpuless_switch,%function
gpuless_switch:
sub sp, sp, #160
stp x19, x20, [sp, #0]
stp x21, x22, [sp, #16]
stp x23, x24, [sp, #32]
stp x25, x26, [sp, #48]
stp x27, x28, [sp, #64]
stp x29, x30, [sp, #80]
stp d8, d9, [sp, #96]
stp d10, d11, [sp, #112]
stp d12, d13, [sp, #128]
stp d14, d15, [sp, #144]
mov x9, sp
str x9, [x0]
mov sp, x1
ldp x19, x20, [sp, #0]
ldp x21, x22, [sp, #16]
ldp x23, x24, [sp, #32]
ldp x25, x26, [sp, #48]
ldp x27, x28, [sp, #64]
ldp x29, x30, [sp, #80]
ldp d8, d9, [sp, #96]
ldp d10, d11, [sp, #112]
ldp d12, d13, [sp, #128]
ldp d14, d15, [sp, #144]
add sp, sp, #160
ret
.type gpuless_begin,%function
gpuless_begin:
mov x0, x19
mov w1, w20
blr x21
brk #1
""",
}
# The frame on a new fibre's stack: its size, and the offsets of the block, the warp, the function and the
# return address from its lower end.
_FRAME = {"x86_64": (32, 8, 16, 24, 0), "aarch64": (160, 0, 8, 16, 88)}

# Save the stack pointer, load another one and go on where that stack was left. It jumps, as the processor
# predicts the target of a `ret` from earlier calls, whatever the stack: at a barrier all fibres make the same
# calls and returns, if the switch makes none. It pushes, so there must be no red zone below the stack.
_JUMP = """\
leaq 7f(%rip), %rax
pushq %rbp
pushq %rbx
pushq %rax
movq %rsp, (%rdi)
movq %rsi, %rsp
popq %rax
popq %rbx
popq %rbp
jmpq *%rax
.p2align 4
7:"""
# What other fibres may have changed. Vector registers are missing: the callers keep nothing in them.
_CHANGED = "rax rcx rdx r8 r9 r10 r11 r12 r13 r14 r15 memory flags dirflag fpsr".split()


def _switch(own, other):
    """Return the IR that saves the stack pointer at `own` and switches to the stack pointer `other`."""
    if MACHINE != "x86_64":
        return f"call void @gpuless_switch(ptr {own}, ptr {other})"
    lines = _JUMP.replace("\n", r"\0A")
    changed = ",".join(f"~{{{name}}}" for name in _CHANGED)
    constraints = f"={{rdi}},={{rsi}},0,1,{changed}"
    return f'call {{ ptr, ptr }} asm sideeffect "{lines}", "{constraints}"(ptr {own}, ptr {other})'


def text(warps, passed):
    """Return the IR that runs a block of `warps` warps; `passed`: IR that runs when all reach a barrier."""
    size, block_at, warp_at, function_at, return_at = _FRAME[MACHINE]
    module_asm = "\n".join(f'module asm "{line}"' for line in _FUNCTIONS[MACHINE].strip().split("\n"))
    return module_asm + _FIBRES.format(
        warps=warps,
        passed=passed,
        to_warp=_switch("%own", "%stack"),
        to_scheduler=_switch("%own", "%scheduler"),
        from_scheduler=_switch("%at.scheduler", "%stack"),
        stack=STACK,
        frame=size,
        block_at=block_at,
        warp_at=warp_at,
        function_at=function_at,
        return_at=return_at,
        fields=4 * BARRIERS,
        **named(OFFSET, "at"),
    )


_FIBRES = """
declare void @gpuless_switch(ptr, ptr)
declare void @gpuless_begin()

; Switch to the next warp that has not ended; after the last one, to the scheduler.
define internal void @pass_on(ptr %ctx, i32 %warp, ptr %own) #2 {{
entry:
  %stacks = getelementptr i8, ptr %ctx, i64 {at_stacks}
  br label %look
look:
  %before = phi i32 [ %warp, %entry ], [ %i, %there ]
  %i = add i32 %before, 1
  %behind = icmp uge i32 %i, {warps}
  br i1 %behind, label %sweep, label %there
there:
  %at.stack = getelementptr ptr, ptr %stacks, i32 %i
  %stack = load ptr, ptr %at.stack
  %gone = icmp eq ptr %stack, null
  br i1 %gone, label %look, label %resume
resume:
  %at.warp = getelementptr i8, ptr %ctx, i64 {at_warp}
  store volatile i32 %i, ptr %at.warp
  {to_warp}
  ret void
sweep:
  %at.scheduler = getelementptr i8, ptr %ctx, i64 {at_scheduler}
  %scheduler = load ptr, ptr %at.scheduler
  {to_scheduler}
  ret void
}}

define internal void @give_way(ptr %ctx, i32 %warp) #1 {{
  %stacks = getelementptr i8, ptr %ctx, i64 {at_stacks}
  %own = getelementptr ptr, ptr %stacks, i32 %warp
  call void @pass_on(ptr %ctx, i32 %warp, ptr %own)
  ret void
}}

define internal void @made_progress(ptr %ctx) {{
  %at = getelementptr i8, ptr %ctx, i64 {at_progress}
  %old = load i32, ptr %at
  %new = add i32 %old, 1
  store i32 %new, ptr %at
  ret void
}}

declare i32 @sched_yield()

define internal void @yield(ptr %ctx, i32 %warp) #1 {{
  %unused = call i32 @sched_yield()
  call void @made_progress(ptr %ctx)
  call void @give_way(ptr %ctx, i32 %warp)
  ret void
}}

define internal void @arrive(ptr %ctx, i32 %number) {{
  %base = getelementptr i8, ptr %ctx, i64 {at_arrived}
  %at = getelementptr i32, ptr %base, i32 %number
  %old = load i32, ptr %at
  %new = add i32 %old, 32
  store i32 %new, ptr %at
  call void @made_progress(ptr %ctx)
  ret void
}}

define internal i1 @pass(ptr %ctx, i32 %number, i32 %expected) {{
  %base = getelementptr i8, ptr %ctx, i64 {at_arrived}
  %at = getelementptr i32, ptr %base, i32 %number
  %arrived = load i32, ptr %at
  %at.alive = getelementptr i8, ptr %ctx, i64 {at_alive}
  %alive = load i32, ptr %at.alive
  %everybody = shl i32 %alive, 5
  %all = icmp eq i32 %expected, 0
  %wanted = select i1 %all, i32 %everybody, i32 %expected
  %complete = icmp uge i32 %arrived, %wanted
  br i1 %complete, label %open, label %closed
open:
  store i32 0, ptr %at
  %generations = getelementptr i8, ptr %ctx, i64 {at_generation}
  %at.generation = getelementptr i32, ptr %generations, i32 %number
  %generation = load i32, ptr %at.generation
  %next = add i32 %generation, 1
  store i32 %next, ptr %at.generation
  %tallies = getelementptr i8, ptr %ctx, i64 {at_tally}
  %at.tally = getelementptr i32, ptr %tallies, i32 %number
  %tally = load i32, ptr %at.tally
  store i32 0, ptr %at.tally
  %outcomes = getelementptr i8, ptr %ctx, i64 {at_outcome}
  %at.outcome = getelementptr i32, ptr %outcomes, i32 %number
  store i32 %tally, ptr %at.outcome
  call void @made_progress(ptr %ctx)
{passed}
  ret i1 true
closed:
  ret i1 false
}}

define internal void @barrier(ptr %ctx, i32 %warp, i32 %number, i32 %expected) #1 {{
entry:
  %generations = getelementptr i8, ptr %ctx, i64 {at_generation}
  %at.generation = getelementptr i32, ptr %generations, i32 %number
  %mine = load i32, ptr %at.generation
  call void @arrive(ptr %ctx, i32 %number)
  br label %look
look:
  %open = call i1 @pass(ptr %ctx, i32 %number, i32 %expected)
  br i1 %open, label %end, label %wait
wait:
  call void @give_way(ptr %ctx, i32 %warp)
  %now = load i32, ptr %at.generation
  %passed = icmp ne i32 %now, %mine
  br i1 %passed, label %end, label %look
end:
  ret void
}}

define internal i32 @tally(ptr %ctx, i32 %warp, i32 %number, i32 %expected, i32 %count) #1 {{
  %tallies = getelementptr i8, ptr %ctx, i64 {at_tally}
  %at = getelementptr i32, ptr %tallies, i32 %number
  %old = load i32, ptr %at
  %new = add i32 %old, %count
  store i32 %new, ptr %at
  call void @barrier(ptr %ctx, i32 %warp, i32 %number, i32 %expected)
  %outcomes = getelementptr i8, ptr %ctx, i64 {at_outcome}
  %at.outcome = getelementptr i32, ptr %outcomes, i32 %number
  %outcome = load i32, ptr %at.outcome
  ret i32 %outcome
}}

define internal void @warp_life(ptr %ctx, i32 %warp) #1 {{
  call void @kernel(ptr %ctx, i32 %warp)
  %at.alive = getelementptr i8, ptr %ctx, i64 {at_alive}
  %alive = load i32, ptr %at.alive
  %fewer = sub i32 %alive, 1
  store i32 %fewer, ptr %at.alive
  call void @made_progress(ptr %ctx)
  %stacks = getelementptr i8, ptr %ctx, i64 {at_stacks}
  %own = getelementptr ptr, ptr %stacks, i32 %warp
  %unused = alloca ptr
  store ptr null, ptr %own
  call void @pass_on(ptr %ctx, i32 %warp, ptr %unused)
  unreachable
}}

define internal i32 @block(ptr %ctx) #1 {{
entry:
  %at.alive = getelementptr i8, ptr %ctx, i64 {at_alive}
  store i32 {warps}, ptr %at.alive
  %at.area = getelementptr i8, ptr %ctx, i64 {at_stack_area}
  %area = load ptr, ptr %at.area
  %stacks = getelementptr i8, ptr %ctx, i64 {at_stacks}
  %at.scheduler = getelementptr i8, ptr %ctx, i64 {at_scheduler}
  %at.progress = getelementptr i8, ptr %ctx, i64 {at_progress}
  %at.warp.number = getelementptr i8, ptr %ctx, i64 {at_warp}
  %barriers = getelementptr i8, ptr %ctx, i64 {at_arrived}
  call void @llvm.memset.p0.i64(ptr %barriers, i8 0, i64 {fields}, i1 false)
  br label %make
make:
  %w = phi i64 [ 0, %entry ], [ %w.next, %make ]
  %w.next = add i64 %w, 1
  ; skew the tops: otherwise all stacks would share the same cache lines
  %end = mul i64 %w.next, {stack}
  %skew = mul i64 %w, 832
  %skewed = sub i64 %end, %skew
  %low = sub i64 %skewed, {frame}
  %top = getelementptr i8, ptr %area, i64 %low
  %at.block = getelementptr i8, ptr %top, i64 {block_at}
  store ptr %ctx, ptr %at.block
  %at.warp = getelementptr i8, ptr %top, i64 {warp_at}
  store i64 %w, ptr %at.warp
  %at.function = getelementptr i8, ptr %top, i64 {function_at}
  store ptr @warp_life, ptr %at.function
  %at.return = getelementptr i8, ptr %top, i64 {return_at}
  store ptr @gpuless_begin, ptr %at.return
  %slot = getelementptr ptr, ptr %stacks, i64 %w
  store ptr %top, ptr %slot
  %made = icmp eq i64 %w.next, {warps}
  br i1 %made, label %sweep, label %make
sweep:
  %before = load i32, ptr %at.progress
  br label %each
each:
  %i = phi i64 [ 0, %sweep ], [ %i.next, %each ]
  %i.next = add i64 %i, 1
  %at.stack = getelementptr ptr, ptr %stacks, i64 %i
  %stack = load ptr, ptr %at.stack
  %gone = icmp eq ptr %stack, null
  br i1 %gone, label %each, label %resume
resume:
  %i32 = trunc i64 %i to i32
  store volatile i32 %i32, ptr %at.warp.number
  ; each warp switches to the next one, and the last one back here
  {from_scheduler}
  br label %look
look:
  %alive = load i32, ptr %at.alive
  %finished = icmp eq i32 %alive, 0
  br i1 %finished, label %end.block, label %ask
ask:
  %after = load i32, ptr %at.progress
  %still = icmp eq i32 %before, %after
  br i1 %still, label %stuck, label %sweep
stuck:
  ret i32 1
end.block:
  ret i32 0
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
