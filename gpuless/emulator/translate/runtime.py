"""The loops over the blocks of a grid and the warps of a block, in IR.

Each worker thread calls `run`, which takes blocks until none is left. The warps of a block run one after the
other; if the kernel has barriers, as `fibres`.
"""

from gpuless.emulator.translate import fibres
from gpuless.emulator.translate.layout import LAUNCH, OFFSET, POISON, named


def text(warps, barriers, shared, passed=""):
    """Return the IR that runs a kernel whose blocks have `warps` warps.

    `barriers`: whether warps wait for each other; `shared`: bytes of static shared memory; `passed`: IR that
    runs when all have reached a barrier.
    """
    copies = "\n".join(_copy(*each) for each in _COPIED.items())
    # A frame may be larger than the guard page below a stack: probe it page by page.
    probed = 'nounwind "probe-stack"="inline-asm"'
    head = f"attributes #0 = {{ {probed} }}\nattributes #1 = {{ {probed} noinline noredzone }}\n"
    head += "attributes #2 = { nounwind noredzone }\n!0 = !{}\n"
    head += '!1 = !{!"branch_weights", i32 1, i32 1000000}\n'
    places = named(LAUNCH, "at") | named(OFFSET, "ctx")
    block = fibres.text(warps, passed) if barriers else _NO_BARRIERS.format(warps=warps, **places)
    poison = _POISON.format(static=shared, poison=POISON, **places)
    return head + block + poison + _RUN.format(copies=copies, **places)


#: The fields that are copied from a launch to a block's record.
_COPIED = {"params": "i64", "globals": "i64", "workspace": "i64"}
_COPIED |= dict.fromkeys(("nctaid.x", "nctaid.y", "nctaid.z", "dynamic_smem_size"), "i32")


def _copy(name, type_):
    short = name.replace(".", "_")
    return f"""  %from.{short} = getelementptr i8, ptr %launch, i64 {LAUNCH[name]}
  %{short} = load {type_}, ptr %from.{short}
  %to.{short} = getelementptr i8, ptr %ctx, i64 {OFFSET[name]}
  store {type_} %{short}, ptr %to.{short}"""


_NO_BARRIERS = """
define internal i32 @block(ptr %ctx) {{
entry:
  %at.warp = getelementptr i8, ptr %ctx, i64 {ctx_warp}
  br label %next
next:
  %warp = phi i32 [ 0, %entry ], [ %more, %next ]
  store volatile i32 %warp, ptr %at.warp
  call void @kernel(ptr %ctx, i32 %warp)
  %more = add i32 %warp, 1
  %done = icmp eq i32 %more, {warps}
  br i1 %done, label %end, label %next
end:
  ret i32 0
}}
"""

# Fill shared memory with a pattern, so that reads of uninitialised numbers are noticed.
_POISON = """
define internal void @poison(ptr %ctx) {{
entry:
  %at.dynamic = getelementptr i8, ptr %ctx, i64 {ctx_dynamic_smem_size}
  %dynamic = load i32, ptr %at.dynamic
  %more = zext i32 %dynamic to i64
  %size = add i64 %more, {static}
  %at.shared = getelementptr i8, ptr %ctx, i64 {ctx_shared}
  %shared = load ptr, ptr %at.shared
  %none = icmp eq i64 %size, 0
  br i1 %none, label %end, label %next
next:
  %i = phi i64 [ 0, %entry ], [ %following, %next ]
  %at = getelementptr i8, ptr %shared, i64 %i
  store <16 x i32> splat (i32 {poison}), ptr %at, align 64
  %following = add i64 %i, 64
  %left = icmp ult i64 %following, %size
  br i1 %left, label %next, label %end
end:
  ret void
}}
"""

_RUN = """
declare i32 @__sigsetjmp(ptr, i32) returns_twice
declare i64 @pthread_self()

define i32 @run(ptr %launch, ptr %ctx) {{
entry:
  %at.thread = getelementptr i8, ptr %ctx, i64 {ctx_thread}
  %at.jump = getelementptr i8, ptr %ctx, i64 {ctx_jump}
  %at.ended = getelementptr i8, ptr %ctx, i64 {ctx_ended}
  %fault = call i32 @__sigsetjmp(ptr %at.jump, i32 0) returns_twice
  %landed = icmp ne i32 %fault, 0
  br i1 %landed, label %end, label %begin
begin:
  %self = call i64 @pthread_self()
  store i64 0, ptr %at.ended
  %at.launch = getelementptr i8, ptr %ctx, i64 {ctx_launch}
  store volatile ptr %launch, ptr %at.launch
  store volatile i64 %self, ptr %at.thread
{copies}
  %at.blocks = getelementptr i8, ptr %launch, i64 {at_blocks}
  %blocks = load i64, ptr %at.blocks
  %at.chunk = getelementptr i8, ptr %launch, i64 {at_chunk}
  %chunk = load i64, ptr %at.chunk
  %at.next = getelementptr i8, ptr %launch, i64 {at_next}
  %at.stop = getelementptr i8, ptr %launch, i64 {at_stop}
  %wide.x = zext i32 %nctaid_x to i64
  %wide.y = zext i32 %nctaid_y to i64
  %x.at = getelementptr i8, ptr %ctx, i64 {ctx_ctaid_x}
  %y.at = getelementptr i8, ptr %x.at, i64 4
  %z.at = getelementptr i8, ptr %x.at, i64 8
  br label %take
take:
  %first = atomicrmw add ptr %at.next, i64 %chunk monotonic
  %some = icmp ult i64 %first, %blocks
  br i1 %some, label %some.left, label %end
some.left:
  %after = add i64 %first, %chunk
  %fewer = icmp ult i64 %after, %blocks
  %last = select i1 %fewer, i64 %after, i64 %blocks
  br label %each
each:
  %number = phi i64 [ %first, %some.left ], [ %following, %go.on ]
  %x = urem i64 %number, %wide.x
  %rest = udiv i64 %number, %wide.x
  %y = urem i64 %rest, %wide.y
  %z = udiv i64 %rest, %wide.y
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
  store i32 %x32, ptr %x.at
  store i32 %y32, ptr %y.at
  store i32 %z32, ptr %z.at
  call void @poison(ptr %ctx)
  %stuck = call i32 @block(ptr %ctx)
  %failed = icmp ne i32 %stuck, 0
  br i1 %failed, label %end, label %each.end
each.end:
  %ended = load i64, ptr %at.ended
  %ended.more = add i64 %ended, 1
  store volatile i64 %ended.more, ptr %at.ended
  %following = add i64 %number, 1
  %stop = load volatile i32, ptr %at.stop
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %end, label %go.on
go.on:
  %more = icmp ult i64 %following, %last
  br i1 %more, label %each, label %take
end:
  %outcome = phi i32 [ %fault, %entry ], [ 0, %take ], [ %stuck, %each ], [ 0, %each.end ]
  store volatile i64 0, ptr %at.thread
  ret i32 %outcome
}}
"""
