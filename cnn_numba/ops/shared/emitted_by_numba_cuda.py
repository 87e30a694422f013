"""How numba-cuda writes an instruction of `intrinsics`: with llvmlite."""

from llvmlite import ir

from cnn_numba.device.compiler import types

_WORD, _NUMBER = ir.IntType(32), ir.FloatType()
_REGISTERS = {"r": _WORD, "f": _NUMBER, "l": ir.IntType(64)}
_FLOAT4, _ALIGNMENT = ir.VectorType(_NUMBER, 4), 16


def assembly(line, constraints, outputs, inputs, always):
    """Return the generator of a line of PTX; see `intrinsics.ptx`."""

    def code(context, builder, signature, arguments):
        values = _values(context, builder, signature.args, arguments)
        given = [_in_register(builder, value, letter) for value, letter in zip(values, inputs, strict=True)]
        kinds = [_REGISTERS[letter] for letter in outputs]
        result = ir.VoidType() if not kinds else kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
        function = ir.FunctionType(result, [value.type for value in given])
        found = builder.call(ir.InlineAsm(function, line, constraints, always), given)
        if not kinds:
            return context.get_dummy_value()
        returned = signature.return_type
        if len(kinds) == 1:
            return builder.bitcast(found, context.get_value_type(returned))
        kind = context.get_value_type(returned.dtype)
        parts = [builder.bitcast(builder.extract_value(found, i), kind) for i in range(len(kinds))]
        return context.make_tuple(builder, returned, parts)

    return code


def _values(context, builder, kinds, arguments):
    """Yield the numbers, also those in tuples, and for an array with an index the element's address."""
    pairs = iter(zip(kinds, arguments, strict=True))
    for kind, value in pairs:
        if isinstance(kind, types.Array):
            yield _pointer(context, builder, kind, value, *next(pairs))
        elif isinstance(kind, types.BaseTuple):
            yield from (builder.extract_value(value, i) for i in range(len(kind)))
        else:
            yield value


def _pointer(context, builder, array_type, array, index_type, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [context.cast(builder, index, index_type, types.intp)])


def _in_register(builder, value, letter):
    """Return a value as that kind of register holds it; a pointer in 32 bits is one to shared memory."""
    if isinstance(value.type, ir.PointerType):
        if letter == "r":
            value = builder.addrspacecast(value, value.type.pointee.as_pointer(3))
        return builder.ptrtoint(value, _REGISTERS[letter])
    if value.type == ir.IntType(1):
        return builder.zext(value, _REGISTERS[letter])
    return builder.bitcast(value, _REGISTERS[letter])


def _vector(context, builder, signature, arguments):
    """Return a pointer to the four numbers that begin at an element."""
    pointer = _pointer(context, builder, signature.args[0], arguments[0], signature.args[1], arguments[1])
    return builder.bitcast(pointer, _FLOAT4.as_pointer())


def load4(context, builder, signature, arguments):
    """Generate a load of four numbers at once."""
    vector = builder.load(_vector(context, builder, signature, arguments))
    vector.align = _ALIGNMENT
    elements = [builder.extract_element(vector, ir.Constant(_WORD, i)) for i in range(4)]
    return context.make_tuple(builder, signature.return_type, elements)


def store4(context, builder, signature, arguments):
    """Generate a store of four numbers at once."""
    vector = ir.Constant(_FLOAT4, ir.Undefined)
    for i, value in enumerate(arguments[2:]):
        vector = builder.insert_element(vector, value, ir.Constant(_WORD, i))
    builder.store(vector, _vector(context, builder, signature, arguments)).align = _ALIGNMENT
    return context.get_dummy_value()
