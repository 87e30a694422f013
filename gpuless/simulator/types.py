"""The types used in kernels and signatures, for when there is no compiler with its own.

They have Numba's names. On the host, a type converts a number as NumPy does; in a kernel it is the `cast` of
its dtype. Array types and signatures are only data, as the simulator compiles nothing.
"""

import importlib

import numpy as np


class Type:
    """A type, identified by its name.

    >>> float32(0.1), float32[:, ::1], void(int32, float32[:])
    (np.float32(0.1), array(float32, 2d, C), (int32, array(float32, 1d, A)) -> none)
    """

    def __init__(self, name):
        self.name = self.key = name

    def __repr__(self):
        return self.name

    def __eq__(self, other):
        return isinstance(other, Type) and self.name == other.name

    def __hash__(self):
        return hash(self.name)

    def __call__(self, *arguments):
        """Convert a number; called with types, return a signature with this return type."""
        if len(arguments) == 1 and not isinstance(arguments[0], Type):
            return self.converted(arguments[0])
        return Signature(self, arguments)

    def converted(self, value):
        """Return a value of the host in this type."""
        raise TypeError(f"{self} cannot convert a value, such as {value!r}")

    def __getitem__(self, axes):
        """Return the type of an array of this type: ``[:, ::1]`` is C-contiguous, ``[::1, :]`` Fortran's."""
        axes = axes if isinstance(axes, tuple) else (axes,)
        if not all(isinstance(axis, slice) for axis in axes):
            raise TypeError(f"the axes of an array's type are written as colons, {self}[:, ::1], not {axes}")
        layout = "C" if axes[-1].step == 1 else "F" if axes[0].step == 1 else "A"
        return Array(self, len(axes), layout)

    def __reduce__(self):
        return _named, (self.name,)


def _named(name):
    """Return the type of this name in the process that unpickles it: the compiler's, if there is one."""
    return getattr(_compiler().cuda.types, name)


def _record(dtype):
    return _compiler().from_dtype(dtype)


def _array(dtype, ndim, layout):
    """Return the type of an array of elements, whose type may be the compiler's."""
    axes = [slice(None)] * ndim
    if layout in "CF":
        axes[-1 if layout == "C" else 0] = slice(None, None, 1)
    return dtype[tuple(axes)]


def _compiler():
    importlib.import_module("numba.cuda.types")
    return importlib.import_module("numba")


class Signature(Type):
    """The types of a function's arguments and its result."""

    def __init__(self, return_type, args):
        super().__init__(f"({', '.join(map(str, args))}) -> {return_type}")
        self.return_type, self.args = return_type, tuple(args)

    def __reduce__(self):
        return _signature, (self.return_type, self.args)


def _signature(returned, arguments):
    return returned(*arguments)


class Scalar(Type):
    """The type of one element; `numpy_dtype` is NumPy's."""

    def __init__(self, name, dtype=None):
        super().__init__(name)
        self.numpy_dtype = np.dtype(dtype or name)

    def converted(self, value):
        """Return a value of the host in this type."""
        return self.numpy_dtype.type(value)

    @property
    def bitwidth(self):
        """The number of bits."""
        return 8 * self.numpy_dtype.itemsize


class Number(Scalar):
    """A number."""


class Integer(Number):
    """An integer."""

    @property
    def signed(self):
        """Whether it may be negative."""
        return self.numpy_dtype.kind == "i"


class Float(Number):
    """A number with a fraction."""


class Complex(Number):
    """A complex number."""

    @property
    def underlying_float(self):
        """The type of its parts."""
        return from_dtype(np.dtype(f"f{self.numpy_dtype.itemsize // 2}"))


class Boolean(Scalar):
    """A truth value."""

    def converted(self, value):
        """Return a value of the host in this type."""
        return bool(value)


class Record(Scalar):
    """A record, which has fields."""

    def __reduce__(self):
        return _record, (self.numpy_dtype,)


class NoneType(Type):
    """The type of None."""


class Opaque(Type):
    """The type of an object that only kernels have."""


class Array(Type):
    """An array: the type of its elements, its number of axes, and its layout, "C", "F" or "A" for any."""

    def __init__(self, dtype, ndim, layout, readonly=False):
        super().__init__(f"array({dtype}, {ndim}d, {layout})")
        self.dtype, self.ndim, self.layout, self.mutable = dtype, ndim, layout, not readonly

    def __reduce__(self):
        return _array, (self.dtype, self.ndim, self.layout)


class Tuple(Type):
    """A tuple."""

    def __init__(self, types):
        super().__init__(f"Tuple({', '.join(map(str, types))})")
        self.types = tuple(types)

    def __reduce__(self):
        return Tuple, (self.types,)


class UniTuple(Type):
    """A tuple of elements of one type."""

    def __init__(self, dtype, count):
        super().__init__(f"UniTuple({dtype} x {count})")
        self.dtype, self.count = dtype, count

    def __reduce__(self):
        return UniTuple, (self.dtype, self.count)


int8, int16, int32, int64 = map(Integer, ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(Integer, ("uint8", "uint16", "uint32", "uint64"))
float16, float32, float64 = map(Float, ("float16", "float32", "float64"))
complex64, complex128 = map(Complex, ("complex64", "complex128"))
boolean = Boolean("bool")
void = NoneType("none")
dim3, grid_group = Opaque("Dim3"), Opaque("GridGroup")
_NUMBERS = (
    *(int8, int16, int32, int64, uint8, uint16, uint32, uint64),
    *(float16, float32, float64, complex64, complex128, boolean),
)
# Numba's other names for them; those of C types by their size on this machine.
_ALIASES = {
    **{"bool": boolean, "bool_": boolean, "b1": boolean, "none": void},
    **{"i1": int8, "i2": int16, "i4": int32, "i8": int64},
    **{"u1": uint8, "u2": uint16, "u4": uint32, "u8": uint64},
    **{"f2": float16, "f4": float32, "f8": float64, "c8": complex64, "c16": complex128, "double": float64},
    **{"byte": uint8, "char": int8, "uchar": uint8, "short": int16, "ushort": uint16},
    **{"longlong": int64, "ulonglong": uint64},
}
_OF_THIS_MACHINE = {
    **{"intp": np.intp, "uintp": np.uintp, "ssize_t": np.intp, "size_t": np.uintp, "int_": np.intp},
    **{"uint": np.uintp, "intc": np.intc, "uintc": np.uintc, "long_": np.dtype("l"), "ulong": np.dtype("L")},
}


def from_dtype(dtype):
    """Return the type of elements with a NumPy dtype.

    >>> from_dtype(np.dtype("uint8"))
    uint8
    """
    dtype = np.dtype(dtype)
    known = next((kind for kind in _NUMBERS if kind.numpy_dtype == dtype), None)
    if known is None and dtype.names is None:
        raise NotImplementedError(f"kernels have no numbers of type {dtype}")
    return known or Record(f"Record({dtype})", dtype)


def typeof(value):
    """Return the type of a value of the host.

    >>> typeof(np.zeros((2, 3), np.float32)), typeof(1), typeof((1.5, True))
    (array(float32, 2d, C), int64, Tuple(float64, bool))
    """
    if isinstance(value, tuple):
        kinds = [typeof(each) for each in value]
        return UniTuple(kinds[0], len(kinds)) if len(set(kinds)) == 1 else Tuple(kinds)
    if value is None:
        return void
    if isinstance(value, (bool, int)):
        return boolean if isinstance(value, bool) else int64
    if not hasattr(value, "dtype"):
        value = np.asarray(value)
    kind, ndim = from_dtype(value.dtype), getattr(value, "ndim", 0)
    if ndim == 0:
        return kind
    flags = value.flags
    return Array(kind, ndim, "C" if flags["C_CONTIGUOUS"] else "F" if flags["F_CONTIGUOUS"] else "A")


#: The types by their names in `numba.cuda` and `numba`.
NAMES = {kind.name: kind for kind in _NUMBERS} | _ALIASES | {"boolean": boolean, "void": void}
NAMES |= {name: from_dtype(dtype) for name, dtype in _OF_THIS_MACHINE.items()}
