"""Parse PTX text as compilers write it.

`parse` returns a `Module` of `Function` objects; the body of each is a flat list of instructions and labels.
"""

import re
import struct

from gpuless.emulator.ptx.model import (
    BITS,
    Address,
    Function,
    Instruction,
    Location,
    Module,
    PtxError,
    Variable,
)
from gpuless.emulator.ptx.parameters import give_homes, pass_in_memory

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_REGISTERS = re.compile(r"(.+)<(\d+)>$")
_GUARD = re.compile(r"@(!?)([%$\w]+)\s+")
_NESTED = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\)")
_DECLARATION = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(shared|global|const|local|param)\s+(?:\.align\s+(\d+)\s+)?"
    r"(?:\.v([24])\s+)?\.(\w+)\s+(?:\.ptr\s*(?:\.\w+\s*)?(?:\.align\s+\d+\s+)?)?([\w$%.]+)\s*((?:\[\d*\]\s*)*)(?:=\s*(.*))?$",
    re.S,
)


def parse(text):
    """Parse the PTX of a module; PtxError shows the text that cannot be parsed.

    >>> module = parse('.visible .entry f() { .reg .b32 %r<2>; mov.u32 %r1, 7; ret; }')
    >>> [instruction.text for instruction in module.functions["f"].body]
    ['mov.u32 %r1, 7', 'ret']
    """
    module = _Parser(_COMMENT.sub("", text.rstrip("\0 \n"))).module
    for function in module.functions.values():
        give_homes(function)
        pass_in_memory(function, module)
    module.identity = identity(text)
    return module


def identity(text):
    """Return a hash of a module's PTX."""
    return hash(text.rstrip("\0 \n"))


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
    """Parse the statements of a function; inner braces open scopes for registers."""

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
        if "\n" in rest and _NESTED.sub("", rest).count(",") != len(operands) - 1:
            raise PtxError(f"a `;` is missing after {text.partition(chr(10))[0].strip()!r}")
        parts = opcode.strip().replace("::", "_").split(".")
        if parts[-1] == "relu":  # integers have it after the type, other types before
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
            name = self.function.body.pop()  # the label before it names the table
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
    """Return a parameter or result that is passed in a register."""
    _, kind, name = text.split()
    return Variable(name, "reg", 0, _bits(kind) // 8)


def _bits(kind):
    """Return the width of a type; it is written with a dot, as in a declaration."""
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
    """Return the initial bytes of a variable, and the (offset, name) of each address among them."""
    values = re.findall(r"[^\s,{}]+", re.sub(r"generic\(([^()]*)\)", r"\1", text))
    data, pointers = bytearray(), []
    for value in values:
        if re.match(r"[A-Za-z_$]", value) and not re.match(r"0[fFdD]", value):
            pointers.append((len(data), value))
            value = "0"
        data += number(value, kind).to_bytes(element, "little")
    return bytes(data), tuple(pointers)


def number(text, kind):
    """Return the bits of an immediate in a register of a PTX type.

    `text`: such as "-1", "0xff", "0f3F800000" or "0d3FF0000000000000"; `kind`: such as "u32" or "f32".

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
