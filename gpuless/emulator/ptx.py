"""Read PTX, the assembly language of NVIDIA's virtual machine, as its compilers write it.

`parse` returns a `Module` of `Function` objects, each a flat list of instructions with labels; nothing is
understood yet but the form. "PTX ISA" (NVIDIA) is the reference; section numbers in this package are of
version 9.
"""

import re
import struct
from dataclasses import dataclass, field, replace
from typing import NamedTuple

BITS = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16}
BITS |= {"b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "tf32": 32}
BITS |= {"u16x2": 32, "s16x2": 32, "e4m3x2": 16, "e5m2x2": 16}
BITS |= {"b64": 64, "u64": 64, "s64": 64, "f64": 64, "b128": 128}


class PtxError(ValueError):
    """PTX that cannot be read, or an instruction that is not known."""


class Address(NamedTuple):
    """A memory operand: a register or the name of a variable, and an offset in bytes."""

    base: str
    offset: int


class Location(NamedTuple):
    """A line of the source: the number of its file and its own, and where the call is if it is inlined."""

    file: int
    line: int
    caller: tuple | None = None


@dataclass(slots=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    opcode : tuple of str
        Its name and modifiers, as in ("ld", "global", "f32").
    operands : list
        Names of registers and variables, immediates as they are written, an `Address`, or a tuple of these.
    guard : (str, bool) or None
        The predicate it stands under, and whether that is negated.
    location : Location or None
    """

    opcode: tuple
    operands: list
    guard: tuple | None
    location: Location | None

    @property
    def text(self):
        """Return it much as it was written, for messages."""
        guard = f"@{'!' * self.guard[1]}{self.guard[0]} " if self.guard else ""
        brackets = "()" if self.opcode[0] == "call" else "{}"
        operands = ", ".join(_written(operand, brackets) for operand in self.operands)
        return f"{guard}{'.'.join(self.opcode)} {operands}".rstrip()


def _written(operand, brackets):
    """Return an operand as PTX has it, with these brackets where it is several."""
    if isinstance(operand, Address):
        return f"[{operand.base}{f'{operand.offset:+}' if operand.offset else ''}]"
    if isinstance(operand, tuple):
        return brackets[0] + ", ".join(_written(one, brackets) for one in operand) + brackets[1]
    return operand


@dataclass(slots=True)
class Variable:
    """A variable of a module or of a function: where it lives, and with which bytes it begins."""

    name: str
    space: str
    align: int
    size: int
    initial: bytes = b""
    external: bool = False
    pointers: tuple = ()  # (offset, name of a variable): addresses among the initial bytes


@dataclass
class Function:
    """A kernel or a device function.

    Attributes
    ----------
    registers : dict
        The width in bits of each.
    body : list
        Instructions, and labels as text.
    parameters, results : list of Variable
    """

    name: str
    kernel: bool
    parameters: list
    results: list = field(default_factory=list)
    registers: dict = field(default_factory=dict)
    variables: dict = field(default_factory=dict)
    body: list = field(default_factory=list)
    tables: dict = field(default_factory=dict)  # labels that `brx.idx` chooses from
    limits: dict = field(default_factory=dict)  # .maxntid, .reqntid, ...


@dataclass
class Module:
    """A translation unit."""

    text: str
    functions: dict = field(default_factory=dict)
    variables: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    version: tuple = ()
    target: str = ""
    identity: int = 0  # of its text


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_REGISTERS = re.compile(r"(.+)<(\d+)>$")
_GUARD = re.compile(r"@(!?)([%$\w]+)\s+")
_DECLARATION = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(shared|global|const|local|param)\s+(?:\.align\s+(\d+)\s+)?"
    r"(?:\.v([24])\s+)?\.(\w+)\s+(?:\.ptr\s*(?:\.\w+\s*)?(?:\.align\s+\d+\s+)?)?([\w$%.]+)\s*((?:\[\d*\]\s*)*)(?:=\s*(.*))?$",
    re.S,
)


def parse(text):
    """Read the PTX of a module.

    Parameters
    ----------
    text : str

    Returns
    -------
    Module

    Raises
    ------
    PtxError
        With the piece that could not be read.

    Examples
    --------
    >>> module = parse('.visible .entry f() { .reg .b32 %r<2>; mov.u32 %r1, 7; ret; }')
    >>> [instruction.text for instruction in module.functions["f"].body]
    ['mov.u32 %r1, 7', 'ret']
    """
    module = _Parser(_COMMENT.sub("", text.rstrip("\0 \n"))).module
    for function in module.functions.values():
        _give_homes(function)
        _pass_in_memory(function, module)
    module.identity = identity(text)
    return module


def identity(text):
    """Return a number that tells the PTX of one module from that of others."""
    return hash(text.rstrip("\0 \n"))


def _give_homes(function):
    """Let parameters whose addresses a function takes lie in local memory, into which they are copied first.

    In a function that a kernel calls such an address is one of local memory. In a kernel it is one of the
    parameters, which only `ld.param` reads, unless `cvta.param` makes one of it that any load may be given.
    """
    instructions = [item for item in function.body if not isinstance(item, str)]
    escape = any(one.opcode[0] == "cvta" and "param" in one.opcode for one in instructions)
    if function.kernel and not escape:
        return
    taken = {operand for one in instructions for operand in one.operands if isinstance(operand, str)}
    given = [one for one in function.parameters if one.name in taken and one.space == "param"]
    homes, copies = {}, []
    for one in given:
        homes[one.name] = home = Variable(f"{one.name}.home", "local", one.align, one.size)
        function.variables[home.name] = home
        copies += _copies(function, one, home, instructions[0].location)
    if homes:
        function.body = copies + [_at_home(item, homes, function.registers) for item in function.body]


def _copies(function, parameter, home, location):
    """Return instructions that copy a parameter to its home."""
    found, at = [], 0
    while at < parameter.size:
        size = min(8, parameter.align)
        while at % size or at + size > parameter.size:
            size //= 2
        register = f"%{parameter.name}.{at}"
        function.registers[register] = 8 * size
        for name, variable, space in (("ld", parameter, "param"), ("st", home, "local")):
            operands = [register, Address(variable.name, at)]
            opcode = (name, space, f"b{8 * size}")
            found.append(Instruction(opcode, operands if name == "ld" else operands[::-1], None, location))
        at += size
    return found


def _at_home(item, homes, registers):
    """Return an instruction such that it finds parameters in their homes."""
    if isinstance(item, str) or item.opcode[0] == "call":
        return item

    def moved(operand):
        if isinstance(operand, Address):
            return operand._replace(base=moved(operand.base))
        return homes[operand].name if isinstance(operand, str) and operand in homes else operand

    bases = [operand.base for operand in item.operands if isinstance(operand, Address)]
    opcode = item.opcode
    if opcode[0] == "cvta" or any(base in homes or base in registers for base in bases):
        opcode = tuple("local" if part in ("param", "param_entry") else part for part in opcode)
    return replace(item, opcode=opcode, operands=[moved(operand) for operand in item.operands])


def _pass_in_memory(function, module):
    """Make parameters, results and arguments that are registers ones in memory, as all others are."""
    loads, stores = [], []
    for moves, listed in ((loads, function.parameters), (stores, function.results)):
        for i, variable in enumerate(listed):
            if variable.space == "reg":
                listed[i] = Variable(f"{variable.name}.passed", "param", variable.size, variable.size)
                function.registers[variable.name] = 8 * variable.size
                moves.append((variable.name, listed[i]))
    body = [_move("ld", None, *move) for move in loads]
    for item in function.body:
        if isinstance(item, str) or item.opcode[0] not in ("ret", "call"):
            body.append(item)
        elif item.opcode[0] == "ret":
            body += [*(_move("st", item, *move) for move in stores), item]
        else:
            body += _call(function, module, item, len(body))
    function.body = [*body, *(_move("st", None, *move) for move in stores)]


def _move(name, like, register, variable):
    """Return an instruction that loads or stores a parameter, under the same guard as another."""
    operands = [register, Address(variable.name, 0)]
    guard, location = (like.guard, like.location) if like else (None, None)
    opcode = (name, "param", f"b{8 * variable.size}")
    return Instruction(opcode, operands if name == "ld" else operands[::-1], guard, location)


def _call(function, module, call, number):
    """Return a call, and before and behind it the moves of what it passes in registers."""
    at = 1 if isinstance(call.operands[0], tuple) else 0
    called = module.functions.get(call.operands[at])
    if called is None:
        return [call]
    before, behind, operands = [], [], list(call.operands)
    for place, listed, moves in ((0, called.results, behind), (at + 1, called.parameters, before)):
        if place < len(operands) and place != at and isinstance(operands[place], tuple):
            names = list(operands[place])
            for i, variable in enumerate(listed):
                if names[i] not in function.variables:
                    passed = Variable(f"passed.{number}.{place}.{i}", "param", variable.size, variable.size)
                    function.variables[passed.name] = passed
                    if names[i] != "_":
                        moves.append(_move("ld" if moves is behind else "st", call, names[i], passed))
                    names[i] = passed.name
            operands[place] = tuple(names)
    return [*before, replace(call, operands=operands), *behind]


class _Parser:
    def __init__(self, text):
        self.text, self.at, self.module = text, 0, Module(text)
        while self._skip_space():
            self._top()

    def _skip_space(self):
        self.at = re.compile(r"\s*").match(self.text, self.at).end()
        return self.at < len(self.text)

    def _take(self, pattern):
        match = re.compile(pattern, re.S).match(self.text, self.at)
        if match is None:
            raise PtxError(f"this PTX cannot be read: {self.text[self.at : self.at + 80]!r}")
        self.at = match.end()
        return match

    def _top(self):
        rest = self.text[self.at : self.at + 8]
        if rest.startswith((".version", ".address", ".target")):
            name, value = self._take(r"\.(\w+)\s+([^\n]*)\n?").groups()
            if name == "target":
                self.module.target = value.strip()
            elif name == "version":
                self.module.version = tuple(map(int, re.findall(r"\d+", value)))
        elif rest.startswith(".file"):
            number, name = self._take(r'\.file\s+(\d+)\s+"([^"]*)"[^\n]*\n?').groups()
            self.module.files[int(number)] = name
        elif rest.startswith(".section"):
            self._take(r"\.section\s+[\w.]+\s*\{.*?\}")
        elif re.compile(r"(?:\.(?:visible|extern|weak)\s+)*\.(?:entry|func)\b").match(self.text, self.at):
            self._function()
        else:
            statement = self._take(r"([^;]*);")[1]
            if not statement.startswith((".pragma", ".alias")):
                variable = _variable(statement)
                if not (variable.external and variable.name in self.module.variables):
                    self.module.variables[variable.name] = variable

    def _function(self):
        kind, results, name, parameters, rest, end = self._take(
            r"(?:\.(?:visible|extern|weak)\s+)*\.(entry|func)\s*(?:\(([^()]*)\)\s*)?([\w$]+)\s*"
            r"(?:\(([^()]*)\))?\s*([^{;]*)([{;])"
        ).groups()
        if end == ";":
            return  # a declaration
        function = Function(name, kind == "entry", _parameters(parameters), _parameters(results))
        words = "maxntid|reqntid|minnctapersm|maxnreg|reqnctapercluster"
        for word, values in re.findall(rf"\.({words})\s+([\d,\s]+)", rest):
            function.limits[word] = tuple(int(value) for value in values.split(","))
        self.module.functions[name] = function
        _Body(self, function).read()


class _Body:
    """Read the statements of a function; braces inside of it open scopes of registers."""

    def __init__(self, parser, function):
        self.parser, self.function = parser, function
        self.scopes, self.scope_count, self.location = [{}], 0, None
        self.operands = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\)|[^\s,]+")

    def read(self):
        text, depth = self.parser.text, 1
        piece = re.compile(r"\s*(?:([{}])|([$\w.%]+)\s*:(?!:)|(\.loc\b[^\n]*)|)", re.S)
        statement = re.compile(r"\s*([^;]*);", re.S)
        while depth:
            match = piece.match(text, self.parser.at)
            brace, label, loc = match.groups()
            if brace:
                depth += 1 if brace == "{" else -1
                self._scope(brace)
            elif label:
                self.function.body.append(label)
            elif loc:
                self._loc(loc)
            else:
                match = statement.match(text, self.parser.at)
                if match is None:
                    raise PtxError(f"the function {self.function.name} does not end")
                self._statement(match[1])
            self.parser.at = match.end()

    def _scope(self, brace):
        if brace == "{":
            self.scope_count += 1
            self.scopes.append({})
        else:
            self.scopes.pop()

    def _loc(self, text):
        _, file, line, *rest = text.replace(",", " ").split()
        caller = None
        if "inlined_at" in rest:
            at = rest.index("inlined_at")
            caller = int(rest[at + 1]), int(rest[at + 2])
        self.location = Location(int(file), int(line), caller) if int(line) else self.location

    def _statement(self, text):
        if text.startswith("."):
            self._directive(text)
            return
        guard = _GUARD.match(text)
        if guard:
            text = text[guard.end() :]
        opcode, rest = [*text.split(None, 1), ""][:2]
        operands = [self._operand(piece) for piece in self._split(rest)]
        parts = opcode.strip().replace("::", "_").split(".")
        if parts[-1] == "relu":  # of integers it is written behind the type, of others before it
            parts[-2:] = parts[:-3:-1]
        self.function.body.append(
            Instruction(
                tuple(parts),
                operands,
                (self._name(guard[2]), bool(guard[1])) if guard else None,
                self.location,
            )
        )

    def _split(self, text):
        return self.operands.findall(text) if text else ()

    def _operand(self, text):
        if text[0] == "[":
            inner = text[1:-1].strip()
            base, sign, offset = re.match(r"([^+\-\s,]+)\s*([+-]?)\s*([+-]?\w*)", inner).groups()
            offset = int(offset, 0) if offset else 0
            return Address(self._name(base), -offset if sign == "-" else offset)
        if text[0] in "{(":
            return tuple(self._operand(piece) for piece in self._split(text[1:-1].replace(",", " ")))
        if "|" in text:
            return tuple(self._name(piece) for piece in text.split("|"))
        return self._name(text)

    def _name(self, text):
        negated = text.startswith("!")
        name = text[1:] if negated else text
        for scope in reversed(self.scopes):
            if name in scope:
                name = scope[name]
                break
        return "!" + name if negated else name

    def _directive(self, text):
        if text.startswith(".reg"):
            self._registers(text)
        elif text.startswith((".pragma", ".callprototype", ".alias")) or ".callprototype" in text:
            pass
        elif text.startswith(".branchtargets"):
            name = self.function.body.pop()  # the label right before it is the table's name
            self.function.tables[name] = re.findall(r"[$\w]+", text.removeprefix(".branchtargets"))
        else:
            variable = _variable(text)
            variable.name = self._declare(variable.name)
            self.function.variables[variable.name] = variable

    def _registers(self, text):
        kind, *names = text.removeprefix(".reg").replace(",", " ").split()
        for name in names:
            many = _REGISTERS.match(name)
            for one in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
                self.function.registers[self._declare(one)] = _bits(kind)

    def _declare(self, name):
        if len(self.scopes) == 1:
            return name
        self.scopes[-1][name] = f"{name}.{self.scope_count}"
        return self.scopes[-1][name]


def _parameters(text):
    pieces = re.split(r",(?![^{}]*\})", text) if text and text.strip() else []
    return [_variable(piece.strip()) if ".param" in piece else _result(piece) for piece in pieces]


def _result(text):
    """Return a parameter or result of a function that is a register."""
    _, kind, name = text.split()
    return Variable(name, "reg", 0, _bits(kind) // 8)


def _bits(kind):
    """Return the width of a type as it is written in a declaration, with its dot."""
    if kind[1:] not in BITS:
        raise PtxError(f"the emulator does not know the type {kind}")
    return BITS[kind[1:]]


def _variable(text):
    match = _DECLARATION.match(text.strip())
    if match is None:
        raise PtxError(f"this PTX cannot be read: {text.strip()[:80]!r}")
    space, align, vector, kind, name, lengths, initial = match.groups()
    element = _bits(f".{kind}") // 8
    size = element * int(vector or 1)
    for length in re.findall(r"\[(\d*)\]", lengths):
        size *= int(length or 0)
    data, pointers = _initial(initial, kind, element) if initial else (b"", ())
    return Variable(
        name, space, int(align or element), size, data, ".extern" in text.split(name)[0], pointers
    )


def _initial(text, kind, element):
    """Return the bytes a variable begins with, and where among them addresses are to be put."""
    values = re.findall(r"[^\s,{}]+", re.sub(r"generic\(([^()]*)\)", r"\1", text))
    data, pointers = bytearray(), []
    for value in values:
        if re.match(r"[A-Za-z_$]", value) and not re.match(r"0[fFdD]", value):
            pointers.append((len(data), value))
            value = "0"
        data += number(value, kind).to_bytes(element, "little")
    return bytes(data), tuple(pointers)


def number(text, kind):
    """Return an immediate as the bits that it has in a register of a kind.

    Parameters
    ----------
    text : str
        Such as "-1", "0xff", "0f3F800000" or "0d3FF0000000000000".
    kind : str
        A PTX type such as "u32" or "f32".

    Returns
    -------
    int

    Examples
    --------
    >>> hex(number("-1", "s16")), hex(number("0f3F800000", "f64")), hex(number("1.5", "f32"))
    ('0xffff', '0x3ff0000000000000', '0x3fc00000')
    """
    bits = BITS[kind]
    if text[:2] in ("0f", "0F") and len(text) == 10:
        return _float_bits(int(text[2:], 16), 32, bits if kind[0] == "f" else 32) & ((1 << bits) - 1)
    if text[:2] in ("0d", "0D") and len(text) == 18:
        return _float_bits(int(text[2:], 16), 64, bits if kind[0] == "f" else 64) & ((1 << bits) - 1)
    if "." in text:
        return int.from_bytes(struct.pack({16: "<e", 32: "<f", 64: "<d"}[bits], float(text)), "little")
    text = text.rstrip("U")
    value = int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0)
    return value & ((1 << bits) - 1)


def _float_bits(value, have, want):
    if have == want:
        return value
    form = {16: "<e", 32: "<f", 64: "<d"}
    plain = struct.unpack(form[have], value.to_bytes(have // 8, "little"))[0]
    return int.from_bytes(struct.pack(form[want], plain), "little")
