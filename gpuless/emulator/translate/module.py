"""Assemble the IR of a kernel: the functions it calls, its variables, and the loop over blocks and warps.

First the PTX is rewritten (inlining, sign masks, contractions). Then a `Translator` writes each function.
"""

from dataclasses import replace

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.contractions import contracted
from gpuless.emulator.analysis.inlining import joined
from gpuless.emulator.analysis.lanes import UNIFORM, VARYING, WARP
from gpuless.emulator.analysis.signs import with_masks
from gpuless.emulator.analysis.variables import (
    function_address,
    lay_out,
    parameter_places,
    parameter_units,
    visible_variables,
)
from gpuless.emulator.analysis.waits import reading_anew
from gpuless.emulator.ptx import Variable

# Most of these are imported because they register translations of instructions.
from gpuless.emulator.translate import (  # noqa: F401
    access,
    asynchronous,
    atomics,
    comparisons,
    conversions,
    floats,
    host,
    integers,
    matrices,
    runtime,
    warps,
)
from gpuless.emulator.translate.addresses import Place
from gpuless.emulator.translate.layout import LOCAL_SPAN, OFFSET, PRIVATE_SPAN
from gpuless.emulator.translate.translator import Translator
from gpuless.emulator.translate.typed import Integers
from gpuless.emulator.translate.values import ALL, LANES, Value

#: Extra bytes of local memory for each lane, beyond the frames of the functions.
LANE_STACK = 1 << 14


def _stack_check(frame):
    """Return IR that touches protected memory if a function's frame reaches into the next warp's stack."""
    return [
        "  %next.warp = add i32 %warp, 1\n  %next.warp64 = zext i32 %next.warp to i64",
        "  %stacks.before = mul i64 %next.warp64, %local.size\n  %stack.end = add i64 %local, %stacks.before",
        f"  %frame.end = add i64 %sp, {WARP * frame}\n  %full.up = icmp ugt i64 %frame.end, %stack.end",
        f"  %beyond = add i64 %local, {LOCAL_SPAN}\n  %touched = select i1 %full.up, i64 %beyond, i64 %sp",
        "  %touched.at = inttoptr i64 %touched to ptr\n  %unused = load volatile i8, ptr %touched.at",
    ]


class ModuleTranslator:
    """Translate a kernel and the functions it calls, for one shape of block.

    `alignments`: the known alignments of the kernel's parameters.
    """

    private_span = PRIVATE_SPAN
    translator = Translator
    prepared = staticmethod(lambda function: contracted(with_masks(function)))  # rewrites a function
    passed = ""  # IR that runs when all have reached a barrier

    def __init__(self, source, kernel, block, alignments=None):
        self.anew = reading_anew(source.functions)
        self.shared, self.static_shared = lay_out(
            visible_variables(source, source.functions[kernel]), ("shared",)
        )
        self.static_shared = -(-self.static_shared // 16) * 16
        source = joined(source, kernel, self.anew)
        functions = {name: self.prepared(function) for name, function in source.functions.items()}
        self.source = source = replace(source, functions=functions)
        self.kernel, self.block = functions[kernel], block
        self.alignments = alignments or {}
        self.threads = block[0] * block[1] * block[2]
        self.warps = -(-self.threads // WARP)
        self.declarations, self.definitions, self.names = {}, {}, {}
        self.uses_barriers = self.uses_host = self.spins = False
        self.frames = 0
        self.globals, _ = lay_out(source.variables.values(), ("global", "const"))
        self.waiting, self.done = [self.kernel], []
        self.units = parameter_units(source)

    def translate(self):
        """Return the IR of the module."""
        self.names[self.kernel.name] = "kernel"
        bodies = []
        while self.waiting:
            function = self.waiting.pop()
            translator = self.translator(self, function, self.names[function.name])
            bodies.append(self._assemble(translator, *translator.translate()))
            self.frames += translator.frame
        pieces = [runtime.text(self.warps, self.uses_barriers, self.static_shared, self.passed)]
        if self.uses_host:
            pieces.append(host.text(self.uses_barriers))
        known = pieces[0]
        pieces += [f"declare {text}" for text in self.declarations if text not in known]
        return "\n".join([*pieces, *self.definitions.values(), *bodies])

    def declare(self, signature):
        """Declare an intrinsic function."""
        self.declarations[signature] = None

    def define(self, name, text):
        """Define a helper function."""
        self.definitions[name] = text

    @property
    def lane_stack(self):
        """Bytes of local memory for each lane."""
        return self.frames + LANE_STACK

    @property
    def facts(self):
        """What a launch must know beside the machine code, as JSON can hold it."""
        return [self.lane_stack, self.spins]

    # --- Functions -------------------------------------------------------------------------------------

    def begin(self, t):
        """Return the mask of lanes at the beginning of a function."""
        if not t.function.kernel:
            return "%mask"
        if self.threads % WARP == 0:
            return "-1"
        rest = (1 << self.threads % WARP) - 1
        return str(rest) if self.warps == 1 else "%full"

    def end(self, t):
        """Write the end of a function."""
        t.line("ret void")

    def misaligned(self, t):
        """Write the code for misaligned addresses: note it and trap."""
        at = t.new(f"getelementptr i8, ptr %ctx, i64 {OFFSET['misaligned']}")
        t.line(f"store volatile i32 1, ptr {at}")
        self.declare("void @llvm.trap()")
        t.line("call void @llvm.trap()")
        t.line("unreachable")

    def signature(self, t):
        """Return a function's signature in IR."""
        if t.function.kernel:
            return "define internal void @kernel(ptr noalias %ctx, i32 noundef %warp)"
        given = [f"ptr %res{i}" for i in range(len(t.function.results))]
        given += [f"ptr %par{i}" for i in range(len(t.function.parameters))]
        listed = ", ".join(["ptr %ctx", "i32 %warp", "i64 %sp", "i32 %mask", *given])
        return f"define internal void @{t.name}({listed})"

    def _assemble(self, t, signature, lines):
        head = [signature + " #0 {", "entry:"]
        head += [f"  {name} = alloca {type_}, align 64" for name, type_ in t.slots.items()]
        head += [f"  store i32 0, ptr {name}" for name in t.slots if name.startswith(("%mask", "%rounds"))]
        # LLVM keeps a variable in memory if its address escapes.
        head += [f'  call void asm sideeffect "", "r"(ptr {name})' for name in t.fixed]
        for name, type_ in _FIELDS.items():
            field = f"%at.{name}"
            head.append(f"  {field} = getelementptr i8, ptr %ctx, i64 {OFFSET[name]}")
            head.append(f"  %{name} = load {type_}, ptr {field}, align 4, !noundef !0")
        for name, (text, place) in t.given.items():
            head.append(f"  {name}.at = getelementptr i8, ptr %params, i64 {place}\n  {name} = {text}")
        if t.function.kernel:
            head.append("  %warp64 = zext i32 %warp to i64\n  %stack = mul i64 %warp64, %local.size")
            head.append("  %sp = add i64 %local, %stack")
            if self.warps > 1 and self.threads % WARP:
                last, rest = self.warps - 1, (1 << self.threads % WARP) - 1
                head.append(
                    f"  %last = icmp eq i32 %warp, {last}\n  %full = select i1 %last, i32 {rest}, i32 -1"
                )
        elif t.frame:
            head += _stack_check(t.frame)
        if 0 in t.analysis.masked:
            head.append(f"  store i32 {t.full}, ptr %mask0")
            head += [f"  store i32 {t.full}, ptr %mask.inside"] if t.rounds else []
        return "\n".join([*head, "  br label %block0", *lines, "}"])

    def call(self, t, name, results, given):
        """Write a call of a function of the module, or of one that CUDA provides."""
        if name in t.function.registers:
            self._call_through(t, name, results, given)
        elif name in self.source.functions:
            self._call_own(t, name, results, given, t.mask)
        else:
            self._call_provided(t, name, results, given)

    def _call_own(self, t, name, results, given, mask):
        if name not in self.names:
            self.names[name] = f"function{len(self.names)}"
            self.waiting.append(self.source.functions[name])
        pointers = ", ".join(f"ptr {self._blob(t, one)}" for one in (*results, *given))
        top = t.new(f"add i64 %sp, {WARP * t.frame}")
        listed = f"ptr %ctx, i32 %warp, i64 {top}, i32 {mask}{', ' if pointers else ''}{pointers}"
        t.line(f"call void @{self.names[name]}({listed})")

    def _call_through(self, t, register, results, given):
        """Write calls by address: for each possible function, one with the lanes that have its address."""
        wanted = t.vector(t.operand(register, "b64"), 64)
        sizes = [[t.function.variables[one].size for one in names] for names in (results, given)]
        for name, function in self.source.functions.items():
            taken = [[one.size for one in listed] for listed in (function.results, function.parameters)]
            if function.kernel or taken != sizes:
                continue
            address = f"splat (i64 {function_address(self.source, name)})"
            found = t.mask_of(t.new(f"icmp eq <{WARP} x i64> {wanted}, {address}"))
            mask = t.new(f"and i32 {t.mask}, {found}")
            call, after = t.fresh("call"), t.fresh("after")
            none = t.new(f"icmp eq i32 {mask}, 0")
            t.line(f"br i1 {none}, label %{after}, label %{call}")
            t.label(call)
            self._call_own(t, name, results, given, mask)
            t.line(f"br label %{after}")
            t.label(after)

    def _call_provided(self, t, name, results, given):
        sizes = tuple(tuple(t.function.variables[one].size for one in names) for names in (given, results))
        wanted = host.sizes(name)
        if wanted is not None and (sizes[0] != wanted[0] or sizes[1] not in ((), wanted[1])):
            t.refuse(f"{name} takes parameters of {wanted[0]} bytes and gives {wanted[1]}, not {sizes}")
        pointers = [[self._blob(t, one) for one in names] for names in (results, given)]
        if not host.write_call(t, name, *pointers):
            t.refuse(f"Unresolved extern function '{name}'")  # in ptxas's words

    # --- Parameters ------------------------------------------------------------------------------------

    def _blob(self, t, name):
        """Return a pointer to a function's own parameter or result, or to one that it passes."""
        own = [*t.function.results, *t.function.parameters]
        for i, variable in enumerate(own):
            if variable.name == name and not t.function.kernel:
                count = len(t.function.results)
                return f"%res{i}" if i < count else f"%par{i - count}"
        variable = t.function.variables[name]
        slot = f"%passed.{name}"
        t.slots[slot] = f"[{WARP * variable.size} x i8]"
        return slot

    def parameter(self, t, address, bits, count):
        """Return `count` values in a parameter of a kernel, or of a function, where each lane has its own."""
        if t.function.kernel and address.base in t.function.registers:
            return self._parameter_at(t, address, bits, count)
        place = self._kernel_parameter(t, address)
        if place is not None:
            return [Value(UNIFORM, _given(t, place + i * bits // 8, bits)) for i in range(count)]
        unit, found = self._unit(t, address.base, bits), []
        i = Integers(t, ALL, bits)
        for at in range(8 * address.offset, 8 * address.offset + count * bits, bits):
            total = "zeroinitializer"
            for low in range(0, bits, unit):
                pointer = self._piece(t, address.base, at + low)
                one = t.new(f"load {ALL.int(unit)}, ptr {pointer}, align {unit // 8}")
                total = i("or", total, i("shl", i.resized(one, unit), low)) if unit < bits else one
            found.append(Value(VARYING, None, total))
        return found

    def _parameter_at(self, t, address, bits, count):
        """Return values in the kernel's parameters at an address that is computed."""
        value, base = t.operand(address.base), t.new(f"getelementptr i8, ptr %params, i64 {address.offset}")
        if lanes.uniform(value.kind):
            pointer = t.new(f"getelementptr i8, ptr {base}, i64 {value.scalar}")
            return access.load(t, Place(pointer, lanes.ZERO, None, False), bits, count)
        pointers = t.new(f"getelementptr i8, ptr {base}, {ALL.int(64)} {t.vector(value, 64)}")
        return access.load(t, Place(None, None, pointers, False), bits, count)

    def _piece(self, t, name, at):
        """Return a pointer to the piece at a bit offset of a parameter, a vector of all lanes."""
        return t.new(f"getelementptr i8, ptr {self._blob(t, name)}, i64 {at // 8 * WARP}")

    def _unit(self, t, name, bits):
        """Return the size in bits of the pieces in which a parameter is held."""
        return 8 * self.units.get((t.function.name, name), bits // 8)

    def set_parameter(self, t, address, bits, values):
        """Store values to a result or an argument."""
        unit = self._unit(t, address.base, bits)
        for i, value in enumerate(values):
            whole = t.vector(value, bits)
            for low in range(0, bits, unit):
                piece = whole
                if unit < bits:
                    shifted = Integers(t, ALL, bits)("lshr", whole, low)
                    piece = Integers(t, ALL, unit).resized(shifted, bits)
                self._set_piece(t, address.base, 8 * address.offset + i * bits + low, unit, piece)

    def _set_piece(self, t, name, at, bits, vector):
        pointer = self._piece(t, name, at)
        if t.masked and name in {result.name for result in t.function.results}:
            old = t.new(f"load {ALL.int(bits)}, ptr {pointer}, align {bits // 8}")
            vector = Integers(t, ALL, bits).select(t.mask_vector(), vector, old)
        t.line(f"store {ALL.int(bits)} {vector}, ptr {pointer}, align {bits // 8}")

    def _kernel_parameter(self, t, address):
        """Return the offset of an address in the kernel's parameters, None if it is another function's."""
        places = parameter_places(t.function)[0] if t.function.kernel else {}
        return places[address.base] + address.offset if address.base in places else None

    # --- Names -----------------------------------------------------------------------------------------

    def variable(self, t, name):
        """Return the address of a variable."""
        if name in t.places:
            kind = t.analysis.local_kind(name)
            return Value(kind, t.new(f"add i64 %sp, {t.places[name]}"))
        if name in self.shared:
            return Value(UNIFORM, str(self.shared[name]))
        if name in self.globals:
            return Value(UNIFORM, t.new(f"add i64 %globals, {self.globals[name]}"))
        if self._is_dynamic(t, name):
            return Value(UNIFORM, str(self.static_shared))
        if t.function.kernel and name in parameter_places(t.function)[0]:
            return Value(UNIFORM, str(parameter_places(t.function)[0][name]))
        if name in self.source.functions:
            return Value(UNIFORM, str(function_address(self.source, name)))
        return t.refuse(f"the emulator does not know {name}")

    def _is_dynamic(self, t, name):
        variable = t.function.variables.get(name) or self.source.variables.get(name)
        return isinstance(variable, Variable) and variable.space == "shared"

    def special(self, t, name, kind):
        """Return the value of a special register that is no constant."""
        if name.startswith("%tid."):
            return self._thread(t, name[-1], kind)
        if name[1:] in OFFSET and name[1:] in _FIELDS:
            return Value(UNIFORM, name)
        if name in ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"):
            return self._clock(t, name)
        if name in ("%envreg1", "%envreg2"):  # the upper and the lower half of the workspace's address
            half = t.new(f"lshr i64 %workspace, {32 if name == '%envreg1' else 0}")
            return Value(UNIFORM, t.new(f"trunc i64 {half} to i32"))
        plain = {"%warpid": "%warp", "%nwarpid": str(self.warps), "%nsmid": "128", "%gridid": "0"}
        plain |= {"%cluster_ctarank": "0", "%cluster_nctarank": "1", "%is_explicit_cluster": "false"}
        for axis in "xyz":  # each block is a cluster by itself
            plain |= {f"%cluster_ctaid.{axis}": "0", f"%cluster_nctaid.{axis}": "1"}
            plain |= {f"%clusterid.{axis}": f"%ctaid.{axis}", f"%nclusterid.{axis}": f"%nctaid.{axis}"}
        plain |= {"%total_smem_size": str(self.static_shared), "%ctaid": "0"}
        if name in plain:
            return Value(UNIFORM, plain[name])
        return t.refuse(f"the emulator does not know the register {name}")

    def _clock(self, t, name):
        self.declare("i64 @llvm.readcyclecounter()")
        now = t.new("call i64 @llvm.readcyclecounter()")
        if name.endswith("_hi"):
            now = t.new(f"lshr i64 {now}, 32")
        if name in ("%clock64", "%globaltimer"):
            return Value(UNIFORM, now)
        return Value(UNIFORM, t.new(f"trunc i64 {now} to i32"))

    def _thread(self, t, axis, kind):
        """Return a coordinate of the thread, computed from the number of its warp."""
        x, y, _ = self.block
        first = t.new(f"mul i32 %warp, {WARP}")
        if kind is not VARYING:
            return Value(kind, _coordinate(t, "i32", first, axis, (str(x), str(y), str(x * y))))
        linear = t.new(f"add {ALL.int(32)} {t.splat(first, 'i32')}, {LANES}")
        sizes = tuple(f"splat (i32 {size})" for size in (x, y, x * y))
        return Value(VARYING, None, _coordinate(t, ALL.int(32), linear, axis, sizes))


_FIELDS = {"params": "ptr", "arena": "ptr", "shared": "ptr", "local": "i64", "globals": "i64"}
_FIELDS |= {"workspace": "i64"}
_FIELDS |= {f"{name}.{axis}": "i32" for name in ("ctaid", "nctaid") for axis in "xyz"}
_FIELDS |= {"dynamic_smem_size": "i32", "smid": "i32", "local.size": "i64", "shared.room": "i64"}


def _given(t, place, bits):
    """Return a kernel parameter, which is loaded once, at the beginning.

    It is marked `!noundef`: otherwise LLVM would spend much time on it wherever lanes diverge.
    """
    name = f"%given.{place}.{bits}"
    t.given[name] = f"load i{bits}, ptr {name}.at, align {bits // 8}, !noundef !0", place
    return name


def _coordinate(t, type_, linear, axis, sizes):
    x, y, xy = sizes
    if axis == "x":
        return t.new(f"urem {type_} {linear}, {x}")
    if axis == "y":
        return t.new(f"urem {type_} {t.new(f'udiv {type_} {linear}, {x}')}, {y}")
    return t.new(f"udiv {type_} {linear}, {xy}")
