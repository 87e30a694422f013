"""Random programs whose threads wait for each other: for locks, flags and counters, and at barriers.

Each is written in PTX and as Python functions of the set of threads that reach a statement.
In any order of threads a statement has one outcome: a lock guards a sum, and what others wait for is
written once. No program comes to a standstill where each thread goes on that need not wait. Threads wait for
others at the same statement, or for what is done at one that was written here before. One that holds a lock
waits for none but those with higher numbers.
"""

import random

MASK = 0xFFFFFFFF
WARP = 32
SHAPES = [(1, 1), (20, 1), (32, 1), (33, 1), (64, 1), (96, 1), (32, 2), (40, 3), (64, 3)]  # a block, the grid
LOCKS = 3
_REGISTERS = (
    ".reg .b32 %acc, %t, %i, %lane, %w, %x<12>, %c0, %n<300>, %s<150>; .reg .b64 %g, %y<6>; .reg .pred %p<4>;"
)
_PLACE = f"""mov.u32 %t, %tid.x; mov.u32 %x0, %ctaid.x; mov.u32 %x1, %ntid.x; mad.lo.u32 %i, %x0, %x1, %t;
mov.u32 %lane, %laneid; add.u32 %x1, %x1, {WARP - 1}; shr.u32 %x1, %x1, 5; shr.u32 %x2, %t, 5;
mad.lo.u32 %w, %x0, %x1, %x2;"""
_HEAD = f""".visible .entry f(.param .u64 p0)
{{
.shared .align 4 .b8 exchange[4096];
{_REGISTERS}
ld.param.u64 %g, [p0]; {_PLACE}
mad.lo.u32 %acc, %i, 77, 5;
"""
_FUNCTION = f""".func (.param .b32 out) {{}}(.param .b32 a, .param .b32 c, .param .b64 m)
{{{{
{_REGISTERS}
ld.param.u32 %acc, [a]; ld.param.u32 %c0, [c]; ld.param.u64 %g, [m]; {_PLACE}
{{}}
st.param.b32 [out], %acc;
ret;
}}}}
"""
_READINGS = [  # of [%y0] into %x5, again and again
    "atom.global.add.u32 %x5, [%y0], 0;",
    "atom.global.or.b32 %x5, [%y0], 0;",
    "atom.global.cas.b32 %x5, [%y0], 9, 9;",
    "ld.volatile.global.u32 %x5, [%y0];",
    "ld.acquire.gpu.global.u32 %x5, [%y0];",
    "membar.gl; ld.global.u32 %x5, [%y0];",
    "nanosleep.u32 20; ld.global.u32 %x5, [%y0];",
]


class Program:
    """A program: `ptx`, its initial `memory`, and `run`, which returns the final memory.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.block, self.grid = self.rng.choice(SHAPES)
        self.count = self.block * self.grid
        self.warps = -(-self.block // WARP)
        self.lines, self.functions, self.memory = [], [], []
        self.labels = self.loops = self.instances = 0
        self.alive = set(range(self.count))
        self.result = self.cells(self.count)
        self.locks, self.totals = self.cells(2 * LOCKS), self.cells(LOCKS)
        self.tickets = {number for number in range(LOCKS) if self.rng.random() < 0.3}
        self.indirect = self.rng.random() < 0.3  # some statements are functions
        self.steps, self.posts = [], []
        self.body(self.alive, 3, 1, self.steps)
        self._finish()
        starts = " ".join(f"mov.u32 %s{i}, 0;" for i in range(self.instances))
        self.ptx = "\n".join([*self.functions, _HEAD, starts, *self.lines, "}"])

    def run(self):
        """Return the memory after all threads have ended, as far as it is determined."""
        state = State(self.count)
        state.do(self.steps, set(range(self.count)))
        return state.acc, state.totals

    def seen(self, memory):
        """Return the part of a program's final memory that `run` returns."""
        return memory[self.result : self.result + self.count], memory[self.totals : self.totals + LOCKS]

    # --- Writing ---------------------------------------------------------------------------------------

    def cells(self, count, values=None):
        """Reserve numbers in memory; return where they begin."""
        at = len(self.memory)
        self.memory += values or [0] * count
        return at

    def label(self):
        """Return a new label."""
        self.labels += 1
        return f"L{self.labels}"

    def write(self, *lines):
        """Write lines of PTX."""
        self.lines += lines

    def warp_of(self, i):
        """Return the number of a thread's warp in the grid."""
        return i // self.block * self.warps + i % self.block // WARP

    def groups(self, threads, key):
        """Return threads by a key."""
        found = {}
        for i in sorted(threads):
            found.setdefault(key(i), []).append(i)
        return found

    def _finish(self):
        self.write(
            f"mul.wide.u32 %y0, %i, 4; add.s64 %y0, %g, %y0; st.global.u32 [%y0+{4 * self.result}], %acc;"
        )
        self.write("ret;")

    # --- Statements that hold others -------------------------------------------------------------------

    def body(self, threads, depth, times, steps):
        """Write statements for a set of threads, each repeated that often; return the remaining threads."""
        for _ in range(self.rng.randrange(1, 4) + (depth == 3)):
            kinds = ["leaf"] * 5 + ["free"] + ["guard", "guard", "loop", "loop", "switch"] * (depth > 0)
            kinds += ["leave", "post", "post", "collect", "collect"] * (times == 1)
            kind = self.rng.choice(kinds)
            if threads and (kind != "collect" or self.posts):
                threads = getattr(self, "_" + kind)(threads, depth, times, steps)
        return threads

    def _predicate(self):
        """Set %p1 to a condition that threads differ in; return it in Python."""
        n = self.rng.randrange(1, max(2, self.block))
        kind = self.rng.choice(["below", "from", "one", "odd", "third", "warp", "block"])
        if kind in ("below", "from"):
            self.write(f"setp.{'lt' if kind == 'below' else 'ge'}.u32 %p1, %t, {n};")
            return lambda i: (i % self.block < n) == (kind == "below")
        if kind == "one":
            self.write(f"setp.eq.u32 %p1, %t, {n - 1};")
            return lambda i: i % self.block == n - 1
        if kind in ("warp", "block"):  # which whole warps have alike
            self.write(f"mov.u32 %x1, %{'warpid' if kind == 'warp' else 'ctaid.x'}; setp.eq.u32 %p1, %x1, 0;")
            return lambda i: (i % self.block // WARP if kind == "warp" else i // self.block) == 0
        if kind == "odd":
            self.write("and.b32 %x1, %t, 1; setp.ne.u32 %p1, %x1, 0;")
            return lambda i: i % self.block & 1
        self.write("rem.u32 %x1, %i, 3; setp.eq.u32 %p1, %x1, 0;")
        return lambda i: i % 3 == 0

    def _apart(self, text):
        """Call a function that writes lines; return these lines, without writing them, and its result."""
        before, self.lines = self.lines, []
        result = text()
        written, self.lines = self.lines, before
        return written, result

    def _guard(self, threads, depth, times, steps):
        holds, after, end = self._predicate(), self.label(), self.label()
        ways = {True: {i for i in threads if holds(i)}, False: {i for i in threads if not holds(i)}}
        ways = dict(self.rng.sample(list(ways.items()), 2))  # those of the second may wait for the first
        found, left = [], set()
        for way, there in ways.items():
            inner = []
            if self.rng.random() < 0.7 or not found:
                lines, rest = self._apart(
                    lambda there=there, inner=inner: self.body(there, depth - 1, times, inner)
                )
            else:
                lines, rest = [], there
            found.append((way, there, inner, lines))
            left |= rest
        steps.append(lambda state, active: [state.do(inner, active & there) for _, there, inner, _ in found])
        (way, _, _, lines), (_, _, _, others) = self.rng.sample(found, 2)
        self.write(f"@{'!' * way}%p1 bra {after};", *lines, f"bra {end};", f"{after}:", *others, f"{end}:")
        return left

    def _switch(self, threads, depth, times, steps):
        labels, table, end, ways = [self.label() for _ in range(3)], self.label(), self.label(), []
        self.write(
            f"rem.u32 %x1, %t, 3;\n{table}: .branchtargets {', '.join(labels)};", f"brx.idx %x1, {table};"
        )
        left = set()
        for case, label in enumerate(labels):
            inner, there = [], {i for i in threads if i % self.block % 3 == case}
            lines, rest = self._apart(
                lambda there=there, inner=inner: self.body(there, depth - 1, times, inner)
            )
            left |= rest
            ways.append((there, inner, [f"{label}:", *lines, f"bra {end};"]))
        steps.append(lambda state, active: [state.do(inner, active & there) for there, inner, _ in ways])
        for _, _, lines in self.rng.sample(ways, 3):
            self.write(*lines)
        self.write(f"{end}:")
        return left

    def _loop(self, threads, depth, times, steps):
        count, n, head, inner = self.rng.randrange(1, 4), f"%n{self.loops}", self.label(), []
        self.loops += 1
        self.write(f"mov.u32 {n}, 0;", f"{head}:")
        left = self.body(threads, depth - 1, 4 * times, inner)
        gone = set()
        if self.rng.random() < 0.3 and times == 1:  # some return in the last round
            over = self.label()
            self.write(f"setp.ne.u32 %p0, {n}, {count - 1};", f"@%p0 bra {over};")
            holds = self._predicate()
            gone = {i for i in left if holds(i)}
            self.write(f"@!%p1 bra {over};")
            self._finish()
            self.write(f"{over}:")
        self.write(f"add.u32 {n}, {n}, 1; setp.lt.u32 %p0, {n}, {count};", f"@%p0 bra {head};")
        self.alive = self.alive - gone

        def step(state, there):
            for _ in range(count):
                state.do(inner, there)
            state.gone |= gone & there

        steps.append(step)
        return left - gone

    def _free(self, threads, depth, times, steps):
        """Write a loop with its own number of rounds for each thread: none waits for others in it."""
        n, head, end, inner = f"%n{self.loops}", self.label(), self.label(), []
        self.loops += 1
        self.write(f"and.b32 {n}, %acc, 3;", f"{head}:", f"setp.eq.u32 %p0, {n}, 0;", f"@%p0 bra {end};")
        for _ in range(self.rng.randrange(1, 3)):
            self._lock(threads, inner, None)
        self.write(f"sub.u32 {n}, {n}, 1; bra {head};", f"{end}:")

        def step(state, there):
            left = {i: state.acc[i] & 3 for i in there}
            while there := {i for i in there if left[i]}:
                state.do(inner, there)
                left = {i: left[i] - 1 for i in there}

        steps.append(step)
        return threads

    def _leave(self, threads, depth, times, steps):
        holds, over = self._predicate(), self.label()
        gone = {i for i in threads if holds(i)}
        self.write(f"@!%p1 bra {over};")
        self._finish()
        self.write(f"{over}:")
        self.alive = self.alive - gone
        steps.append(lambda state, there: state.gone.update(gone & there))
        return threads - gone

    def _leaf(self, threads, depth, times, steps):
        leaves = [self._lock, self._lock, self._flag, self._counter, self._warp, self._warp, self._barrier]
        leaves += [self._chain] * (times == 1)
        leaf, instance = self.rng.choice(leaves), f"%s{self.instances}"
        self.instances += 1
        if self.indirect and self.rng.random() < 0.5:
            lines, _ = self._apart(lambda: leaf(threads, steps, "%c0"))
            name, text = f"g{len(self.functions)}", "\n".join(lines)
            if "exchange" not in text:  # which is the kernel's
                self.functions.append(_FUNCTION.format(name, text))
                self.write(
                    "{ .param .b32 pa; .param .b32 pc; .param .b64 pm; .param .b32 got;",
                    f"st.param.b32 [pa], %acc; st.param.b32 [pc], {instance}; st.param.b64 [pm], %g;",
                    f"call (got), {name}, (pa, pc, pm); ld.param.b32 %acc, [got]; }}",
                )
            else:
                self.write(text.replace("%c0", instance))
        else:
            leaf(threads, steps, instance)
        self.write(f"add.u32 {instance}, {instance}, 1;")
        return threads

    # --- Statements that wait --------------------------------------------------------------------------

    def _at(self, cell, index="%i"):
        """Set %y0 to the address of a number."""
        self.write(f"mul.wide.u32 %y0, {index}, 4; add.s64 %y0, %y0, %g; add.s64 %y0, %y0, {4 * cell};")

    def _spin(self, how, value):
        """Wait until the number at %y0 fulfils a condition."""
        again = self.label()
        self.write(f"{again}: {self.rng.choice(_READINGS)}", f"setp.{how}.u32 %p0, %x5, {value};")
        self.write(f"@!%p0 bra {again};")

    def _lock(self, threads, steps, instance, lowest=0):
        number = self.rng.randrange(lowest, LOCKS)
        lock, total, inner = 4 * (self.locks + 2 * number), 4 * (self.totals + number), []
        kind = self.rng.choice(["cas", "exch", "looked at first", "until done"])
        kind = "ticket" if number in self.tickets else kind
        again, over = self.label(), self.label()
        done = f"%n{self.loops}"
        self.loops += 1
        take = "exch.b32 %x5, [%g+{}], 1" if kind == "exch" else "cas.b32 %x5, [%g+{}], 0, 1"
        take = f"atom.global.{take.format(lock)}; setp.ne.u32 %p0, %x5, 0;"
        if kind == "until done":
            self.write(f"mov.u32 {done}, 0;", f"{again}:", take, f"@%p0 bra {over};")
        elif kind == "ticket":
            self.write(f"atom.global.add.u32 %x6, [%g+{lock}], 1; add.s64 %y0, %g, {lock + 4};")
            self._spin("eq", "%x6")
        elif kind == "looked at first":
            self.write(f"{again}: ld.volatile.global.u32 %x5, [%g+{lock}]; setp.ne.u32 %p0, %x5, 0;")
            self.write(f"@%p0 bra {again};", take, f"@%p0 bra {again};")
        else:
            self.write(f"{again}: {take}", f"@%p0 bra {again};")
        self.write("membar.gl;")
        times = self._add(total, number, inner)
        if number + 1 < LOCKS and self.rng.random() < 0.3:
            self._lock(threads, inner, None, number + 1)
        self.write("membar.gl;")
        if kind == "ticket":
            self.write(f"red.global.add.u32 [%g+{lock + 4}], 1;")
        else:
            self.write(f"atom.global.exch.b32 %x5, [%g+{lock}], 0;")
        if kind == "until done":
            self.write(f"mov.u32 {done}, 1;", f"{over}: setp.eq.u32 %p0, {done}, 0;", f"@%p0 bra {again};")
        steps.append(lambda state, there: state.do(inner, there))
        return times

    def _add(self, total, number, steps):
        """Add to a sum that a lock guards, while holding the lock."""
        times, again, n, over = self.rng.choice([1, 1, 2]), self.label(), f"%n{self.loops}", self.label()
        self.loops += 1
        self.write(
            f"mov.u32 {n}, {times};", f"{again}: ld.global.u32 %x2, [%g+{total}]; and.b32 %x3, %acc, 255;"
        )
        self.write(
            "and.b32 %x4, %acc, 1; setp.eq.u32 %p0, %x4, 0; add.u32 %x2, %x2, %x3;", f"@%p0 bra {over};"
        )
        self.write("add.u32 %x2, %x2, 1000;", f"{over}: st.global.u32 [%g+{total}], %x2;")
        self.write(
            f"mad.lo.u32 %acc, %acc, 5, 1; sub.u32 {n}, {n}, 1; setp.ne.u32 %p0, {n}, 0;",
            f"@%p0 bra {again};",
        )

        def step(state, there):
            for i in there:
                for _ in range(times):
                    state.totals[number] += (state.acc[i] & 255) + 1000 * (state.acc[i] & 1)
                    state.acc[i] = state.acc[i] * 5 + 1 & MASK
            state.totals[number] &= MASK

        steps.append(step)

    def _flag(self, threads, steps, instance):
        """One thread writes what the others wait for; its own work comes before or after that."""
        writer, flag, data = self.rng.choice(sorted(threads)), self.cells(1), self.cells(64)

        def produce():
            over = self.label()
            self.write(f"setp.ne.u32 %p0, %i, {writer};", f"@%p0 bra {over};")
            self._at(data, instance)
            self.write(
                "st.global.u32 [%y0], %acc; membar.gl;",
                f"atom.global.add.u32 %x5, [%g+{4 * flag}], 1;",
                f"{over}:",
            )

        def consume():
            over = self.label()
            self.write(
                f"setp.eq.u32 %p0, %i, {writer};", f"@%p0 bra {over};", f"add.s64 %y0, %g, {4 * flag};"
            )
            self._spin("gt", instance)
            self.write("membar.gl;")
            self._at(data, instance)
            self.write("ld.volatile.global.u32 %x2, [%y0]; add.u32 %acc, %acc, %x2;", f"{over}:")

        for part in self.rng.sample([produce, consume], 2):
            part()

        def step(state, there):
            for i in there - {writer}:
                state.acc[i] = state.acc[i] + state.acc[writer] & MASK

        steps.append(step)

    def _partners(self, threads, key):
        """Return a table of threads with the same key, one for each."""
        groups = self.groups(threads, key)
        found = [self.rng.choice(groups[key(i)]) if i in threads else 0 for i in range(self.count)]
        return self.cells(self.count, found), found

    @staticmethod
    def _exchanging(partners):
        def step(state, there):
            before = list(state.acc)
            for i in there:
                state.acc[i] = before[i] + 3 * before[partners[i]] & MASK

        return step

    def _counter(self, threads, steps, instance):
        """All threads reach a counter before any continues, as in a hand-made barrier of the whole grid."""
        table, partners = self._partners(threads, lambda i: 0)
        counter, data = self.cells(1), self.cells(2 * self.count)
        self.write(f"and.b32 %x6, {instance}, 1; mad.lo.u32 %x7, %x6, {self.count}, %i;")
        self._at(data, "%x7")
        self.write(f"st.global.u32 [%y0], %acc; membar.gl; red.global.add.u32 [%g+{4 * counter}], 1;")
        self.write(
            f"mad.lo.u32 %x8, {instance}, {len(threads)}, {len(threads)}; add.s64 %y0, %g, {4 * counter};"
        )
        self._spin("ge", "%x8")
        self._at(table)
        self.write(f"ld.global.u32 %x7, [%y0]; mad.lo.u32 %x7, %x6, {self.count}, %x7; membar.gl;")
        self._at(data, "%x7")
        self.write("ld.volatile.global.u32 %x2, [%y0]; mad.lo.u32 %acc, %x2, 3, %acc;")
        steps.append(self._exchanging(partners))

    def _post(self, threads, depth, times, steps):
        """Each thread writes something that others may wait for later."""
        number, flags, data = len(self.posts), self.cells(self.count), self.cells(self.count)
        self.posts.append((sorted(threads), flags, data))
        self._at(data)
        self.write("st.global.u32 [%y0], %acc; membar.gl;")
        self._at(flags)
        self.write("st.volatile.global.u32 [%y0], 1;")
        steps.append(lambda state, there: state.posted.update({number: list(state.acc)}))
        return threads

    def _collect(self, threads, depth, times, steps):
        """Wait for what others wrote before, perhaps threads on another branch."""
        number = self.rng.randrange(len(self.posts))
        writers, flags, data = self.posts[number]
        chosen = [self.rng.choice(writers) for _ in range(self.count)]
        self._at(self.cells(self.count, chosen))
        self.write("ld.global.u32 %x6, [%y0];")
        self._at(flags, "%x6")
        self._spin("ne", "0")
        self.write("membar.gl;")
        self._at(data, "%x6")
        self.write("ld.volatile.global.u32 %x2, [%y0]; mad.lo.u32 %acc, %x2, 3, %acc;")

        def step(state, there):
            for i in there:
                state.acc[i] = state.acc[i] + 3 * state.posted[number][chosen[i]] & MASK

        steps.append(step)
        return threads

    def _chain(self, threads, steps, instance):
        """Each thread waits for another one, in a chain."""
        order = sorted(threads)
        self.rng.choice([self.rng.shuffle, list.reverse, list])(order)
        before = dict(zip(order[1:], order, strict=False))
        table = self.cells(self.count, [before.get(i, self.count) for i in range(self.count)])
        flags, data = self.cells(self.count + 1), self.cells(self.count + 1)
        self.memory[flags + self.count] = 1
        self._at(table)
        self.write("ld.global.u32 %x6, [%y0];")
        self._at(flags, "%x6")
        self._spin("ne", "0")
        self.write("membar.gl;")
        self._at(data, "%x6")
        self.write("ld.volatile.global.u32 %x2, [%y0]; mad.lo.u32 %acc, %x2, 3, %acc;")
        self._at(data)
        self.write("st.global.u32 [%y0], %acc; membar.gl;")
        self._at(flags)
        self.write("st.volatile.global.u32 [%y0], 1;")

        def step(state, there):
            for i in order:
                state.acc[i] = state.acc[i] + 3 * (state.acc[before[i]] if i in before else 0) & MASK

        steps.append(step)

    def _barrier(self, threads, steps, instance):
        """The threads of a block exchange numbers, if all that have not returned get there."""
        blocks, everybody = (self.groups(some, lambda i: i // self.block) for some in (threads, self.alive))
        if any(everybody[block] != there for block, there in blocks.items()):
            return self._warp(threads, steps, instance)
        self._exchange(threads, steps, lambda i: i // self.block, "bar.sync 0;")
        return None

    def _exchange(self, threads, steps, key, meet):
        table, partners = self._partners(threads, key)
        self._at(table)
        self.write(f"ld.global.u32 %x7, [%y0]; rem.u32 %x7, %x7, {self.block}; shl.b32 %x7, %x7, 2;")
        self.write(
            "mov.u32 %x11, exchange; add.u32 %x7, %x7, %x11; shl.b32 %x8, %t, 2; add.u32 %x8, %x8, %x11;"
        )
        self.write(
            f"st.shared.u32 [%x8], %acc;\n{meet}\nld.shared.u32 %x2, [%x7];",
            f"mad.lo.u32 %acc, %x2, 3, %acc;\n{meet}",
        )
        steps.append(self._exchanging(partners))

    def _warp(self, threads, steps, instance):
        """The lanes of a warp meet: those of a mask, or all that have not returned."""
        warps, everybody = (self.groups(some, self.warp_of) for some in (threads, self.alive))
        members = "-1"
        if self.rng.random() < 0.5 or any(everybody[warp] != there for warp, there in warps.items()):
            masks = {warp: sum(1 << i % self.block % WARP for i in there) for warp, there in warps.items()}
            table = self.cells(0, [masks.get(warp, 0) for warp in range(self.warps * self.grid)])
            self._at(table, "%w")
            self.write("ld.global.u32 %x9, [%y0];")
            members = str(next(iter(masks.values()))) if len(set(masks.values())) == 1 else "%x9"
        kind = self.rng.choice(["exchange", "shfl", "ballot", "any", "redux"])
        if kind == "exchange":
            self._exchange(threads, steps, self.warp_of, f"bar.warp.sync {members};")
        elif kind == "shfl":
            table, partners = self._partners(threads, self.warp_of)
            self._at(table)
            self.write(f"ld.global.u32 %x7, [%y0]; rem.u32 %x7, %x7, {self.block}; and.b32 %x7, %x7, 31;")
            self.write(f"shfl.sync.idx.b32 %x2, %acc, %x7, 31, {members}; mad.lo.u32 %acc, %x2, 3, %acc;")
            steps.append(self._exchanging(partners))
        else:
            self._vote(kind, members, warps, steps)

    def _vote(self, kind, members, warps, steps):
        self.write("and.b32 %x1, %acc, 4; setp.ne.u32 %p2, %x1, 0;")
        if kind == "ballot":
            self.write(f"vote.sync.ballot.b32 %x2, %p2, {members}; popc.b32 %x2, %x2;")
        elif kind == "any":
            self.write(f"vote.sync.any.pred %p3, %p2, {members}; selp.u32 %x2, 1, 0, %p3;")
        else:
            self.write(f"redux.sync.add.u32 %x2, %acc, {members};")
        self.write("add.u32 %acc, %acc, %x2;")

        def step(state, there):
            for lanes in warps.values():
                yes = [state.acc[i] & 4 > 0 for i in lanes]
                found = {"ballot": sum(yes), "any": any(yes), "redux": sum(state.acc[i] for i in lanes)}[kind]
                for i in lanes:
                    state.acc[i] = state.acc[i] + found & MASK

        steps.append(step)


class State:
    """The threads of a program while it runs in Python."""

    def __init__(self, count):
        self.acc = [i * 77 + 5 for i in range(count)]
        self.totals, self.gone, self.posted = [0] * LOCKS, set(), {}

    def do(self, steps, threads):
        """Run statements for threads, except those that have returned."""
        for step in steps:
            if there := threads - self.gone:
                step(self, there)
