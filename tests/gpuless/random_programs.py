"""Random programs, each written in PTX and as a Python generator that one thread runs.

The two share only the random draws: the lanes of a warp, their masks and where they meet
have no counterpart in Python, whose own ``if``, ``while``, ``break``, ``continue``, ``return`` do the work.
"""

import random
import re

#: Numbers in the array that a program reads, in a thread's row of the output array, and counters.
INPUTS, ROW, COUNTERS, TABLE = 64, 8, 16, 48  # of a row the rest is for registers
REGISTERS = 6
_MASK = "& 0xFFFFFFFF"
_OPERATIONS = {
    "add.s32": "({a} + {b})",
    "sub.s32": "({a} - {b})",
    "mul.lo.s32": "({a} * {b})",
    "and.b32": "({a} & {b})",
    "or.b32": "({a} | {b})",
    "xor.b32": "({a} ^ {b})",
    "min.u32": "min({a}, {b})",
    "max.u32": "max({a}, {b})",
    "shl.b32": "({a} << ({b}) if {b} < 32 else 0)",
    "shr.u32": "({a} >> ({b}) if {b} < 32 else 0)",
    "shr.s32": "(signed({a}) >> min({b}, 31))",
}
_TEMPORARY = re.compile(r"(%(?:t[5-8]|rd[67]|p1))\b")
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_HEAD = """.visible .entry f(.param .u64 p0, .param .u64 p1, .param .u64 p2)
{
.reg .b32 %r<6>; .reg .b32 %w<2>; .reg .b32 %n<60>; .reg .b32 %t<9>; .reg .b64 %rd<12>; .reg .pred %p<9>;
.shared .align 4 .b8 exchange[4096]; .shared .align 4 .b8 table[192];
ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];
mov.u32 %t0, %tid.z; mov.u32 %t1, %ntid.y; mov.u32 %t2, %tid.y; mad.lo.s32 %t0, %t0, %t1, %t2;
mov.u32 %t1, %ntid.x; mov.u32 %t2, %tid.x; mad.lo.s32 %t0, %t0, %t1, %t2;
mov.u32 %t1, %ntid.x; mov.u32 %t2, %ntid.y; mul.lo.s32 %t1, %t1, %t2; mov.u32 %t2, %ntid.z;
mul.lo.s32 %t1, %t1, %t2;
mov.u32 %t2, %ctaid.x; mad.lo.s32 %t3, %t2, %t1, %t0; mul.wide.u32 %rd4, %t3, 64; add.s64 %rd5, %rd2, %rd4;
mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %t0; mov.u32 %r5, 9;
and.b32 %t4, %t0, 63; mul.wide.u32 %rd6, %t4, 4; add.s64 %rd6, %rd1, %rd6; ld.global.u32 %r4, [%rd6];
mov.u32 %w0, %ctaid.x; ld.global.u32 %w1, [%rd1+8];
"""
_PYTHON_HEAD = """
def thread(tx, ty, linear, count, block, given, row, counters, exchange, table):
    r0, r1, r2, r3, r4, r5 = tx, ty, block, linear, given[linear & 63], 9
    w0, w1 = block, given[2]
"""


class Program:
    """A program: `ptx`, and `thread`, a function that returns a generator.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.lines, self.python, self.indent = [_HEAD], [], 1
        self.labels = self.counters = 0
        self.serial = self.rng.randrange(2)
        self.barriers = self.rng.random() < 0.4
        if self.barriers:
            self._fill_table()
        self.block(3, 0, [], True)
        self._finish()
        self.ptx = "\n".join([*self.lines, "}"])
        for kind, name in ("b32", "t"), ("b64", "rd"), ("pred", "p"):
            names = ", ".join(sorted(set(re.findall(rf"%{name}\d_\d+", self.ptx))))
            self.ptx = self.ptx.replace("{\n", f"{{\n.reg .{kind} {names};\n", 1) if names else self.ptx
        self.source = _PYTHON_HEAD + "\n".join(self.python) + "\n    if False:\n        yield\n"
        space = {"signed": lambda a: a - (1 << 32) if a >> 31 else a}
        exec(self.source, space)
        self.thread = space["thread"]

    # --- Writing -------------------------------------------------------------------------------------

    def line(self, ptx=None, python=None):
        """Write a line in each language."""
        if ptx:
            # Half of the programs have temporary registers of their own for each statement, as compilers do.
            self.lines.append(_TEMPORARY.sub(rf"\1_{self.serial}", ptx) if self.serial else ptx)
        if python:
            self.python.append("    " * self.indent + python)

    def label(self):
        """Return a new label."""
        self.labels += 1
        return f"L{self.labels}"

    def register(self):
        """Return a register's number."""
        return self.rng.randrange(REGISTERS)

    def operand(self):
        """Return an operand in both languages."""
        if self.rng.random() < 0.35:
            number = self.rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 31, 255])
            return str(number), str(number)
        if self.rng.random() < 0.1:
            which = self.rng.randrange(2)
            return f"%w{which}", f"w{which}"
        which = self.register()
        return f"%r{which}", f"r{which}"

    def condition(self, uniform):
        """Set %p1 to a condition; return it in Python."""
        self.serial += self.serial > 0
        kind, (how, sign) = self.rng.choice(["u32", "s32"]), self.rng.choice(list(_COMPARISONS.items()))
        if uniform:
            (a, x), (b, y) = self.uniform_operand(), (str(n := self.rng.randrange(4)), str(n))
        elif self.rng.random() < 0.4:
            (a, x), bit = self.operand(), self.rng.choice([1, 2, 4, 8, 3])
            self.line(f"and.b32 %t5, {a}, {bit};")
            a, x, b, y, how, sign = "%t5", f"({x} & {bit})", "0", "0", "ne", "!="
        else:
            (a, x), (b, y) = self.operand(), self.operand()
        self.line(f"setp.{how}.{kind} %p1, {a}, {b};")
        return f"{x} {sign} {y}" if kind == "u32" else f"signed({x}) {sign} signed({y})"

    def uniform_operand(self):
        """Return a small number that is the same in all threads of a block."""
        which = self.rng.randrange(2)
        self.line(f"and.b32 %t5, %w{which}, 3;")
        return "%t5", f"(w{which} & 3)"

    # --- Statements ----------------------------------------------------------------------------------

    def block(self, depth, loop_depth, loops, uniform):
        """Write some statements."""
        start = len(self.python)
        kinds = ["assign"] * 6 + [
            "guarded",
            "select",
            "select",
            "load",
            "load",
            "store",
            "count",
            "scope",
            "uniform",
        ]
        if depth:
            kinds += ["if", "if", "if", "loop", "loop", "switch"]
            kinds += ["leave"] * (2 if loops else 0)
        kinds += ["return"] * (depth < 3 and self.rng.random() < 0.3)
        if self.barriers:
            kinds += ["table"] + ["exchange"] * (2 if uniform else 0)
        for _ in range(self.rng.randrange(1, 5) + (2 if depth == 3 else 0)):
            kind = self.rng.choice(kinds)
            self.serial += self.serial > 0
            if kind == "loop" and loop_depth == 2:
                kind = "assign"
            if kind in ("if", "loop", "switch"):
                getattr(self, "_" + kind)(depth - 1, loop_depth, loops, uniform)
            elif kind == "leave":
                self._leave(loops)
            elif kind == "uniform":
                self._uniform(uniform)
            else:
                getattr(self, "_" + kind)()
        if len(self.python) == start:
            self.line(None, "pass")

    def _assign(self, guard="", python="{}"):
        name = self.rng.choice(list(_OPERATIONS))
        target, (a, x), (b, y) = self.register(), self.operand(), self.operand()
        value = _OPERATIONS[name].format(a=x, b=y)
        self.line(f"{guard}{name} %r{target}, {a}, {b};", python.format(f"r{target} = {value} {_MASK}"))

    def _guarded(self):
        condition = self.condition(False)
        negated = self.rng.random() < 0.5
        self._assign("@!%p1 " if negated else "@%p1 ", f"if {'not ' * negated}({condition}): {{}}")

    def _select(self):
        """Choose one of two numbers, perhaps the same for all threads: %tid.y often is."""
        condition, target = self.condition(False), self.register()
        (a, x), (b, y) = (self.operand() if self.rng.random() < 0.6 else ("%tid.y", "ty") for _ in range(2))
        self.line(f"selp.b32 %r{target}, {a}, {b}, %p1;", f"r{target} = {x} if {condition} else {y}")

    def _uniform(self, uniform):
        if uniform:
            number, which = self.rng.randrange(9), self.rng.randrange(2)
            self.line(
                f"add.s32 %w{which}, %w{1 - which}, {number};",
                f"w{which} = (w{1 - which} + {number}) {_MASK}",
            )

    def _scope(self):
        target, (a, x), (b, y) = self.register(), self.operand(), self.operand()
        self.line("{ .reg .b32 %t0; .reg .b32 %s;")
        self.line(f"add.s32 %s, {a}, {b}; mov.b32 %t0, %s; add.s32 %r{target}, %t0, 1; }}")
        self.line(None, f"r{target} = ({x} + {y} + 1) {_MASK}")

    def _index(self, limit):
        """Set %t5 to a register plus something, %p1 to whether it is an index; return both in Python."""
        which, add = self.register(), self.rng.randrange(-3, 4)
        self.line(f"add.s32 %t5, %r{which}, {add};")
        self.line(f"setp.lt.u32 %p1, %t5, {limit};")
        return f"((r{which} + {add}) {_MASK})"

    def _load(self):
        """Read where an index is one: most others are off the array."""
        index, target, end = self._index(INPUTS), self.register(), self.label()
        wide = self.rng.choice(["u32", "s32"])
        self.line(f"@!%p1 bra {end};\nmul.wide.{wide} %rd6, %t5, 4; add.s64 %rd7, %rd1, %rd6;")
        self.line(f"ld.global.u32 %r{target}, [%rd7];\n{end}:")
        self.line(None, f"if {index} < {INPUTS}: r{target} = given[{index}]")

    def _table(self):
        index, target, end = self._index(TABLE), self.register(), self.label()
        self.line(f"@!%p1 bra {end};\nshl.b32 %t5, %t5, 2; mov.u32 %t6, table; add.s32 %t6, %t6, %t5;")
        self.line(f"ld.shared.u32 %r{target}, [%t6];\n{end}:")
        self.line(None, f"if {index} < {TABLE}: r{target} = table[{index}]")

    def _store(self):
        value, (a, x) = self.register(), self.operand()
        self.line(f"and.b32 %t5, {a}, {ROW - 1}; mul.wide.u32 %rd6, %t5, 4; add.s64 %rd7, %rd5, %rd6;")
        self.line(f"st.global.u32 [%rd7], %r{value};", f"row[{x} & {ROW - 1}] = r{value}")

    def _count(self):
        value, (a, x) = self.register(), self.operand()
        self.line(f"and.b32 %t5, {a}, {COUNTERS - 1}; mul.wide.u32 %rd6, %t5, 4; add.s64 %rd7, %rd3, %rd6;")
        self.line(f"red.global.add.u32 [%rd7], %r{value};", f"counters[{x} & {COUNTERS - 1}] += r{value}")

    def _return(self):
        condition, value, over = self.condition(False), self.register(), self.label()
        self.line(f"@!%p1 bra {over};\nst.global.u32 [%rd5+12], %r{value};\nret;\n{over}:")
        self.line(None, f"if {condition}:\n{'    ' * self.indent}    row[3] = r{value}; return")

    def _leave(self, loops):
        word, label = self.rng.choice(loops[-1])
        condition = self.condition(False)
        self.line(f"@%p1 bra {label};", f"if {condition}: {word}")

    def _if(self, depth, loop_depth, loops, uniform):
        alike = self.rng.random() < 0.3
        condition, other, end = self.condition(alike), self.label(), self.label()
        self.line(f"@!%p1 bra {other};", f"if {condition}:")
        self.indent += 1
        self.block(depth, loop_depth, loops, uniform and alike)
        self.indent -= 1
        if self.rng.random() < 0.5:
            self.line(f"{other}:")
            return
        self.line(f"bra.uni {end};\n{other}:", "else:")
        self.indent += 1
        self.block(depth, loop_depth, loops, uniform and alike)
        self.indent -= 1
        self.line(f"{end}:")

    def _loop(self, depth, loop_depth, loops, uniform):
        alike = self.rng.random() < 0.4
        counter, n = f"%n{self.counters}", f"n{self.counters}"
        self.counters += 1
        a, x = self.uniform_operand() if alike else self.operand()
        self.line(f"and.b32 {counter}, {a}, 3;", f"{n} = {x} & 3")
        head, end = self.label(), self.label()
        # If all threads loop alike, and there may be barriers, none leaves.
        ways = [] if alike and uniform else [[("break", end)]]
        if self.rng.random() < 0.5:
            ways = [[*ways[0], ("continue", head)]] if ways else ways
            self.line(f"{head}:\nsetp.eq.u32 %p2, {counter}, 0;\n@%p2 bra {end};", f"while {n}:")
            self.line(f"sub.s32 {counter}, {counter}, 1;")
            self.indent += 1
            self.line(None, f"{n} -= 1")
            self.block(depth, loop_depth + 1, ways, uniform and alike)
            self.indent -= 1
            self.line(f"bra {head};\n{end}:")
            return
        self.line(f"{head}:", "while True:")
        self.indent += 1
        self.block(depth, loop_depth + 1, ways, uniform and alike)
        self.line(f"setp.eq.u32 %p2, {counter}, 0;\nsub.s32 {counter}, {counter}, 1;", f"if not {n}: break")
        self.line(f"@!%p2 bra {head};\n{end}:", f"{n} -= 1")
        self.indent -= 1

    def _switch(self, depth, loop_depth, loops, uniform):
        count = self.rng.choice([2, 4])
        (a, x), table, end = self.operand(), self.label(), self.label()
        labels = [self.label() for _ in range(count)]
        listed = [*labels[:-1], labels[0] if self.rng.random() < 0.3 else labels[-1]]
        self.line(f"and.b32 %t7, {a}, {count - 1};\n{table}: .branchtargets {', '.join(listed)};")
        self.line(f"brx.idx %t7, {table};", f"chosen = {x} & {count - 1}")
        bodies = []
        for label in labels:
            self.line(f"{label}:")
            begin, self.indent = len(self.python), self.indent + 1
            self.block(depth, loop_depth, loops, False)
            self.indent -= 1
            bodies.append(self.python[begin:])
            del self.python[begin:]
            through = self.rng.random() < 0.3 and label != labels[-1]
            bodies[-1].append(through)
            if not through:
                self.line(f"bra {end};")
        self.line(f"{end}:")
        for i, label in enumerate(listed):
            self.line(None, f"{'el' * bool(i)}if chosen == {i}:")
            at = labels.index(label)
            while True:
                *body, through = bodies[at]
                self.python += body
                at += 1
                if not through:
                    break

    def _fill_table(self):
        over = self.label()
        self.line(
            "shl.b32 %t5, %t0, 2; mov.u32 %t6, exchange; add.s32 %t6, %t6, %t5; st.shared.u32 [%t6], %t0;"
        )
        self.line(f"mov.u32 %t7, %t0;\n{over}a:\nsetp.ge.u32 %p1, %t7, {TABLE};\n@%p1 bra {over};")
        self.line("shl.b32 %t5, %t7, 2; mov.u32 %t6, table; add.s32 %t6, %t6, %t5; mul.lo.s32 %t8, %t7, 5;")
        self.line(f"st.shared.u32 [%t6], %t8;\nadd.s32 %t7, %t7, %t1;\nbra {over}a;\n{over}:\nbar.sync 0;")
        self.line(None, "exchange[linear] = linear")
        self.line(None, f"for i in range(linear, {TABLE}, count): table[i] = 5 * i")
        self.line(None, "yield")

    def _exchange(self):
        """Pass a number to the thread some places before, round a ring."""
        value, target, far = self.register(), self.register(), self.rng.choice([1, 5, 31, 32, 33])
        self.line("shl.b32 %t5, %t0, 2; mov.u32 %t6, exchange; add.s32 %t6, %t6, %t5;")
        self.line(f"st.shared.u32 [%t6], %r{value};\nbar.sync 0;", f"exchange[linear] = r{value}")
        self.line(f"add.s32 %t5, %t0, {far}; rem.u32 %t5, %t5, %t1;", "yield")
        self.line("shl.b32 %t5, %t5, 2; mov.u32 %t6, exchange; add.s32 %t6, %t6, %t5;")
        self.line(
            f"ld.shared.u32 %r{target}, [%t6];\nbar.sync 0;",
            f"r{target} = exchange[(linear + {far}) % count]",
        )
        self.line(None, "yield")

    def _finish(self):
        for i in range(REGISTERS):
            self.line(f"st.global.u32 [%rd5+{4 * (ROW + i)}], %r{i};", f"row[{ROW + i}] = r{i}")
        self.line("ret;")


def expected(program, grid, shape, given):
    """Return (rows of all threads, counters) if threads run one by one up to each barrier."""
    x, y, z = shape
    count, rows, counters = x * y * z, [], [0] * COUNTERS
    for block in range(grid):
        exchange, table, waiting = [0] * count, [0] * TABLE, []
        for linear in range(count):
            rows.append([0] * 2 * ROW)
            place = (linear % x, linear // x % y, linear, count, block)
            waiting.append(program.thread(*place, given, rows[-1], counters, exchange, table))
        while waiting:
            waiting = [thread for thread in waiting if next(thread, "gone") != "gone"]
    return rows, [number & 0xFFFFFFFF for number in counters]
