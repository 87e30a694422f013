"""The class of an instruction, such as load or integer, and its number of floating point operations."""

_CLASSES = {
    "control": "bra brx ret exit call trap brkpt",
    "load": "ld ldu ldmatrix cp",
    "store": "st stmatrix",
    "atomic": "atom red",
    "barrier": "bar barrier membar fence mbarrier nanosleep griddepcontrol",
    "exchange": "shfl vote match redux activemask elect movmatrix",
    "tensor": "mma",
    "compare": "setp set selp slct",
    "convert": "cvt",
    "move": "mov cvta mapa getctarank isspacep createpolicy",
    "arithmetic": "add sub mul mul24 mad mad24 fma addc subc madc div rem neg abs min max sad rcp sqrt rsqrt "
    "sin cos ex2 lg2 tanh copysign testp and or xor not lop3 cnot shl shr shf bfe bfi bfind brev clz popc "
    "prmt dp4a dp2a fns bmsk szext",
}
_CLASS = {name: kind for kind, names in _CLASSES.items() for name in names.split()}
#: The classes of instructions, in the order in which they are listed.
CLASSES = ("fma", "float", "integer", "tensor", "load", "store", "atomic", "exchange", "barrier")
CLASSES += ("control", "compare", "convert", "move", "other")


def class_of(instruction):
    """Return the one of `CLASSES` that an instruction belongs to."""
    opcode = instruction.opcode
    found = _CLASS.get(opcode[0], "other")
    if opcode[0] == "wmma":
        return {"load": "load", "store": "store"}.get(opcode[1], "tensor")
    if "param" in opcode and opcode[0] in ("ld", "st"):
        return "move"  # in machine code parameters are constants or registers
    if found == "arithmetic":
        floating = _float_type(opcode) is not None
        return "fma" if floating and opcode[0] in ("fma", "mad") else "float" if floating else "integer"
    return found


def _float_type(opcode):
    """Return the floating point type that an instruction computes in, or None."""
    if opcode[0] in ("and", "or", "xor", "not"):
        return None
    return next((part for part in reversed(opcode) if part in _FLOATS), None)


_FLOATS = {"f16": 1, "bf16": 1, "f32": 1, "f64": 1, "f16x2": 2, "bf16x2": 2, "f32x2": 2}


def flops_of(instruction):
    """Return (type, floating point operations per lane, those per warp), or None if there are none."""
    opcode = instruction.opcode
    if opcode[0] == "mma" or opcode[:2] == ("wmma", "mma"):
        shape = next(part for part in opcode if part[0] == "m" and part[1:2].isdigit())
        m, n, k = (int(piece) for piece in shape[1:].replace("n", " ").replace("k", " ").split())
        return "tensor", 0, 2 * m * n * k
    type_ = _float_type(opcode)
    each = {"fma": 2, "mad": 2, "add": 1, "sub": 1, "mul": 1}.get(opcode[0], 0)
    if type_ is None or not each:
        return None
    return type_.removesuffix("x2"), each * _FLOATS[type_], 0
