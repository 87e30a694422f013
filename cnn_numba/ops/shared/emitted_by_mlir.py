"""How numba-cuda-mlir writes an instruction of `intrinsics`: in MLIR's dialect of LLVM."""

from cnn_numba import device
from cnn_numba.device.compiler import types

if device.COMPILER == "mlir":  # else it may not be installed
    from numba_cuda_mlir._mlir import ir
    from numba_cuda_mlir._mlir.dialects import llvm, vector
    from numba_cuda_mlir.lowering_utilities import GEP_DYNAMIC_INDEX, convert, memref_data_pointer

_REGISTERS = {"r": "i32", "f": "f32", "l": "i64"}
_FLOAT4, _ALIGNMENT = "vector<4xf32>", 16


def assembly(line, constraints, outputs, inputs, always):
    """Return the generator of a line of PTX; see `intrinsics.ptx`."""

    def code(builder, target, arguments, keywords):
        values = _values(builder, arguments)
        given = [_in_register(value, letter) for value, letter in zip(values, inputs, strict=True)]
        kinds = [_REGISTERS[letter] for letter in outputs]
        result = kinds[0] if len(kinds) == 1 else f"!llvm.struct<({', '.join(kinds)})>"
        result = _type(result) if kinds else None
        found = llvm.inline_asm(result, given, line, constraints, has_side_effects=always)
        returned = builder.get_numba_type(target.name)
        if not kinds:
            builder.store_var(target, None)
        elif len(kinds) == 1:
            builder.store_var(target, _cast(found, builder.get_mlir_type(returned)))
        else:
            kind = builder.get_mlir_type(returned.dtype)
            parts = (llvm.extractvalue(_type(each), found, [i]) for i, each in enumerate(kinds))
            builder.store_var(target, tuple(_cast(part, kind) for part in parts))

    return code


def _type(text):
    return ir.Type.parse(text)


def _cast(value, kind):
    return value if value.type == kind else llvm.bitcast(kind, value)


def _values(builder, arguments):
    """Yield the numbers, also those in tuples, and for an array with an index the element's address."""
    arguments = iter(arguments)
    for argument in arguments:
        kind, value = builder.get_numba_type(argument.name), builder.load_var(argument)
        if isinstance(kind, types.Array):
            yield _pointer(value, builder.load_var(next(arguments)))
        elif isinstance(kind, types.BaseTuple):
            yield from value
        else:
            yield value


def _pointer(array, index):
    """Return a generic pointer: functions get arrays in any kind of memory."""
    number, offset = ir.MemRefType(array.type).element_type, [convert(index, _type("i64"))]
    return llvm.getelementptr(
        _type("!llvm.ptr"), memref_data_pointer(array), offset, [GEP_DYNAMIC_INDEX], number, None
    )


def _in_register(value, letter):
    """Return a value as that kind of register holds it; a pointer in 32 bits is one to shared memory."""
    register = _type(_REGISTERS[letter])
    if isinstance(value.type, llvm.PointerType):
        if letter == "r":
            value = llvm.addrspacecast(_type("!llvm.ptr<3>"), value)
        return llvm.ptrtoint(register, value)
    if value.type == _type("i1"):
        return llvm.zext(register, value)
    if value.type == _type("f32") and letter == "r":
        return llvm.bitcast(register, value)
    return convert(value, register)  # arguments may have other types than in the signature


def load4(builder, target, arguments, keywords):
    """Generate a load of four numbers at once."""
    (pointer,) = _values(builder, arguments)
    four = llvm.load(_type(_FLOAT4), pointer, alignment=_ALIGNMENT)
    builder.store_var(target, tuple(vector.extract(four, [], [i]) for i in range(4)))


def store4(builder, target, arguments, keywords):
    """Generate a store of four numbers at once."""
    pointer, *values = _values(builder, arguments)
    llvm.store(vector.from_elements(_type(_FLOAT4), values), pointer, alignment=_ALIGNMENT)
    builder.store_var(target, None)
