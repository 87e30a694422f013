"""Read a kernel's machine code (SASS) or, without a disassembler, its PTX.

Either becomes a list of `Instruction`, each with its kind and its source line.
"""

import posixpath
import re
from typing import NamedTuple

from gpuless.source.files import source_file


class Instruction(NamedTuple):
    """One instruction of a kernel."""

    opcode: str
    """With its modifiers: "LDG.E.128", "ld.global.v4.f32"."""
    operands: str
    kind: str
    """One of `KINDS`."""
    file: str
    """The source file; "" if unknown."""
    line: int
    """The source line; 0 if unknown."""
    predicate: str = ""
    """Its condition: "@!P0"."""

    @property
    def text(self):
        """The instruction as one line of assembly."""
        return f"{self.predicate} {self.opcode} {self.operands}".strip()


def is_numbas(file):
    """Return whether code is numba's own, such as float16 arithmetic; it is attributed to its caller."""
    named = posixpath.basename(file.replace("\\", "/")) in ("<unnamed-cu>", "reshape_funcs")  # CUDA C++
    return named or "/numba/cuda/" in file.replace("\\", "/")


def read_sass(document):
    """Read the parsed JSON that ``nvdisasm --emit-json --print-line-info`` writes for one kernel.

    It has a header, the functions and the source files. Returns a list of `Instruction`.
    """
    _, functions, sources = document
    folders = sources.get("directories", [])
    files = [source_file(posixpath.join(folders[f["dir-idx"]], f["file"])) for f in sources.get("files", [])]
    instructions = []
    for function in functions:
        entries = function["sass-instructions"]
        if not any("source-line" in entry for entry in entries):
            continue  # from a linked library
        file, line = "", 0
        for entry in entries:
            # Entries have a line only if it changes.
            if "source-line" in entry and not is_numbas(files[entry["source-file-id"]]):
                file, line = files[entry["source-file-id"]], entry["source-line"]
            opcode, operands = entry["opcode"], entry.get("operands", "")
            if opcode == "NOP":  # padding after the end
                continue
            kind = sass_kind(opcode, operands)
            instructions.append(Instruction(opcode, operands, kind, file, line, entry.get("predicate", "")))
    return instructions


# The first part of SASS opcodes, by kind. The leading U of uniform instructions is left out.
_SASS = {
    "FMA": "FFMA FFMA2 FFMA32I",
    "FP32": "FADD FADD2 FADD32I FMUL FMUL2 FMUL32I FMNMX FMNMX3 FSEL FSET FSETP FCHK FSWZADD",
    "FP64": "DADD DMUL DFMA DSETP DMNMX DSET",
    "FP16": "HADD2 HADD2_32I HMUL2 HMUL2_32I HFMA2 HFMA2_32I HMNMX2 HSET2 HSETP2 VHMNMX",
    "tensor core": "HMMA IMMA BMMA DMMA QMMA OMMA HGMMA IGMMA BGMMA QGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA",
    "special function": "MUFU",
    "integer": (
        "IADD IADD2 IADD3 IADD32I IADD64 IMAD IMUL IMNMX IMNMX3 VIMNMX VIMNMX3 VIADD VIADDMNMX ISETP ISET "
        "IABS ISCADD LEA LOP LOP3 LOP32I SHF SHL SHR POPC FLO BREV BMSK SGXT IDP IDP4A XMAD ICMP PRMT "
        "VABSDIFF VABSDIFF4"
    ),
    "conversion": "I2F I2FP F2I F2IP F2F F2FP FRND I2I I2IP",
    "move": "MOV MOV32I SEL S2R S2UR CS2R R2UR P2R R2P PLOP3 PSETP P2UR LEPC CCTL CCTLL UMOV MOVM",
    "global load": "LDG LD LDGSTS UBLKCP",
    "global store": "STG ST",
    "shared load": "LDS LDSM",
    "shared store": "STS STSM",
    "local load": "LDL",
    "local store": "STL",
    "constant load": "LDC LDCU",
    "atomic": "ATOM ATOMG ATOMS RED REDG REDS ATOMGS",
    "barrier": "BAR MEMBAR DEPBAR LDGDEPBAR ERRBAR SYNCS B2R R2B FENCE CGAERRBAR ARRIVES",
    "warp": "SHFL VOTE VOTEU MATCH REDUX WARPSYNC ELECT CREDUX NANOSLEEP YIELD",
    "branch": "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BSSY BSYNC BREAK BMOV KILL BPT RTT ACQBULK PREEXIT",
}
KINDS = (*_SASS, "other")
_SASS_KINDS = {name: kind for kind, names in _SASS.items() for name in names.split()}


def sass_kind(opcode, operands=""):
    """Return the kind of a SASS instruction.

    >>> sass_kind("LDG.E.128"), sass_kind("F2F.F64.F32"), sass_kind("USHF.R.S32.HI")
    ('global load', 'FP64', 'integer')
    """
    base, *modifiers = opcode.split(".")
    # Conversions from and to float64, and the approximations with which its division starts, are slow too.
    if "F64" in modifiers or "RCP64H" in modifiers or "RSQ64H" in modifiers:
        return "FP64"
    # The compiler also copies with multiply-adds, to use idle units.
    if "MOV" in modifiers or (base == "HFMA2" and operands.replace(" ", "").split(",")[1:3] == ["-RZ", "RZ"]):
        return "move"
    if base not in _SASS_KINDS and base.startswith("U"):
        base = base[1:]
    return _SASS_KINDS.get(base, "other")


# --- PTX ---------------------------------------------------------------------------------------------------


def read_ptx(text: str) -> list[Instruction]:
    """Read the PTX of one kernel as a list of `Instruction`.

    Examples
    --------
    >>> [one.text for one in read_ptx(".visible .entry f() { add.f32 %f1, %f1, %f2; ret; }")]
    ['add.f32 %f1, %f1, %f2', 'ret']
    """
    named = re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M)
    files = {number: source_file(path) for number, path in named}
    instructions, statement, where = [], "", ("", 0)
    body = text[text.find(".entry") :].partition("{")[2]
    for row in body.splitlines():
        row = row.partition("//")[0].strip()
        if row.startswith(".loc"):
            where = _ptx_location(row, files) or where
        if row.startswith(".") or row.endswith(":"):  # directives and labels
            continue
        *complete, statement = f"{statement} {row}".split(";")
        instructions += [_ptx_instruction(part, *where) for part in complete if part.strip("{} \t")]
    return instructions


def _ptx_location(row, files):
    """Return (file, line) of the innermost function that isn't numba's, None if there is none."""
    for number, line in re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", row):
        file = files.get(number, "")
        if line != "0" and not is_numbas(file):
            return file, int(line)
    return None


def _ptx_instruction(statement, file, line):
    words = statement.lstrip("{} \t")
    predicate, _, rest = words.partition(" ") if words.startswith("@") else ("", "", words)
    opcode, _, operands = rest.replace("\t", " ").strip().partition(" ")
    return Instruction(opcode, operands.strip(), ptx_kind(opcode), file, line, predicate)


_PTX = {
    "tensor core": "mma wmma wgmma tcgen05",
    "warp": "shfl vote match redux activemask elect",
    "branch": "bra brx call ret exit trap",
    "barrier": "bar barrier membar fence mbarrier griddepcontrol",
    "atomic": "atom red",
    "move": "mov selp cvta isspacep prefetch",
    "special function": "rcp sqrt rsqrt sin cos lg2 ex2 tanh",
    "conversion": "cvt",
    "integer": "and or xor not cnot lop3 shl shr shf bfe bfi bfind brev clz popc prmt sad dp2a dp4a mul24",
}
_PTX_KINDS = {name: kind for kind, names in _PTX.items() for name in names.split()}
_SPACES = ("global", "shared", "local")


def ptx_kind(opcode):
    """Return the kind of a PTX instruction.

    >>> ptx_kind("ld.global.v4.f32"), ptx_kind("cvt.f64.f32"), ptx_kind("fma.rn.f32")
    ('global load', 'FP64', 'FMA')
    """
    base, *modifiers = opcode.split(".")
    modifiers = [modifier.partition(":")[0] for modifier in modifiers]  # "shared::cta" is "shared"
    if base in ("ld", "ldu", "st", "ldmatrix", "stmatrix"):
        if "param" in modifiers or "const" in modifiers:
            return "constant load" if base != "st" else "move"
        space = next((space for space in _SPACES if space in modifiers), "global")
        return f"{space} {'load' if base.startswith('ld') else 'store'}"
    kind = _PTX_KINDS.get(base)
    if kind in ("move", "atomic", "warp", "branch", "tensor core", "barrier"):
        return kind
    if "f64" in modifiers:
        return "FP64"
    return kind or _ptx_arithmetic(base, modifiers)


def _ptx_arithmetic(base, modifiers):
    kind = modifiers[-1] if modifiers else ""
    if kind in ("f32", "f32x2"):
        return "FMA" if base in ("fma", "mad") else "FP32"
    if kind.startswith(("f16", "bf16")):
        return "FP16"
    if base == "setp" and kind == "pred":
        return "move"
    return "integer" if kind[:1] in ("s", "u", "b") else "other"


# --- properties of an instruction --------------------------------------------------------------------------


def memory_bits(instruction):
    """Return how many bits a load or store moves per thread.

    >>> memory_bits(Instruction("LDG.E.128", "R4,[R2]", "global load", "", 0))
    128
    >>> memory_bits(Instruction("ld.global.v2.f32", "{%f1,%f2},[%rd1]", "global load", "", 0))
    64
    """
    opcode = instruction.opcode
    if opcode[:1].islower():
        vector = re.search(r"\.v(\d)", opcode)
        element = re.search(r"\.[bsuf](\d+)", opcode)
        return int(vector[1] if vector else 1) * int(element[1] if element else 32)
    bits = re.search(r"\.(?:[USB]?)(8|16|64|128|256)(?:\.|$)", opcode)
    return int(bits[1]) if bits else 32


def makes_index_wrap(instruction):
    """Return whether an instruction extracts an index's sign, as Python's ``x[-1]`` requires.

    >>> makes_index_wrap(Instruction("SHF.R.S32.HI", "R5,RZ,0x1f,R4", "integer", "", 0))
    True
    """
    opcode, operands = instruction.opcode, instruction.operands.replace(" ", "")
    if opcode.startswith("shr.s"):
        return operands.endswith((",63", ",31"))
    return opcode.lstrip("U") == "SHF.R.S32.HI" and ",0x1f," in operands


def address(instruction):
    """Return the address of a load or store as (base, offset in bytes), None if it has none.

    >>> address(Instruction("LDG.E", "R0,desc[UR4][R12.64+0x8]", "global load", "", 0))
    ('R12.64', 8)
    >>> address(Instruction("ld.shared.f32", "%f1, [%r3+-4]", "shared load", "", 0))
    ('%r3', -4)
    """
    brackets = re.findall(r"\[([^\]]*)\]", instruction.operands)
    if not brackets:
        return None
    *base, last = brackets[-1].replace("+-", "+ -").replace(" ", "").split("+")
    try:
        return "+".join(base), int(last, 0)
    except ValueError:
        return "+".join([*base, last]), 0


def called(instruction):
    """Return the name of the function that an instruction calls, None if it isn't a call."""
    return instruction.operands if instruction.opcode.upper().startswith("CALL") else None
