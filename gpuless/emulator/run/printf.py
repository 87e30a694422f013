"""Format text as C's printf does, with arguments in a kernel's memory."""

import ctypes
import locale
import re

from gpuless.emulator.run.reading import LONGEST

_DIRECTIVE = re.compile(rb"%([-+ #0]*)(\*|\d+)?(\.(?:\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
_libc = ctypes.CDLL(None)
_libc.newlocale.restype = _libc.uselocale.restype = ctypes.c_void_p
_libc.newlocale.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p
_libc.uselocale.argtypes = (ctypes.c_void_p,)
_libc.snprintf.argtypes = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p

_PLAIN = _libc.newlocale(1 << locale.LC_NUMERIC, b"C", None)  # 1.5, not 1,5, in any locale


class _Given:
    """The arguments of a printf in memory."""

    def __init__(self, at, memory):
        self.at, self.memory = at, memory

    def take(self, type_):
        """Return the next argument."""
        size = ctypes.sizeof(type_)
        self.at = -(-self.at // size) * size
        value = type_.from_buffer_copy(self.memory.read(self.at, size))
        self.at += size
        return value


def format_text(form, at, memory):
    """Return the formatted text and the number of arguments; `at`: the address of the first argument.

    >>> from gpuless.emulator.run.reading import Memory
    >>> from gpuless.emulator.translate.layout import ARENA_SPAN
    >>> numbers = (ctypes.c_int64 * 2)(-3, 255)
    >>> at = ctypes.addressof(numbers)
    >>> format_text(b"%lld of %#6llx%%", at, Memory(at - at % ARENA_SPAN))
    ('-3 of   0xff%', 2)
    """
    given, count = _Given(at, memory), 0

    def convert(match):
        nonlocal count
        flags, width, precision, length, kind = match.groups(b"")
        if kind == b"%":
            return b"%"
        if width == b"*":
            width = b"%d" % given.take(ctypes.c_int).value
        if precision == b".*":
            precision = b".%d" % given.take(ctypes.c_int).value
        if width[:1] == b"-":
            flags, width = flags + b"-", width[1:]
        if precision[:2] == b".-":
            precision = b""  # none at all
        width, precision = _bounded(width), b"." * bool(precision) + _bounded(precision[1:])
        count += 1
        return _convert(b"%" + flags + width + precision, length, kind, given)

    text = _DIRECTIVE.sub(convert, form)
    return text.decode(errors="replace"), count


def _bounded(digits):
    return b"%d" % min(int(digits), LONGEST) if digits else b""


def _convert(head, length, kind, given):
    """Format the next argument."""
    if kind in b"eEfFgGaA":
        return _printed(head + kind, given.take(ctypes.c_double))
    if kind == b"s":
        at = given.take(ctypes.c_uint64).value
        return _printed(head + kind, ctypes.c_char_p(given.memory.string(at) if at else b"(null)"))
    if kind == b"n":
        return b""
    if kind == b"c":
        return _printed(head + kind, given.take(ctypes.c_int))
    if kind == b"p":
        return _printed(head + kind, given.take(ctypes.c_void_p))
    if length in (b"l", b"ll", b"j", b"z", b"t"):
        return _printed(head + b"ll" + kind, given.take(ctypes.c_int64))
    return _printed(head + length.replace(b"L", b"") + kind, given.take(ctypes.c_int))


def _printed(directive, value):
    """Format one value with C's own printf."""
    before, size, room = _libc.uselocale(_PLAIN), 128, 0
    try:
        while size > room:  # the second buffer is large enough
            room, buffer = size, ctypes.create_string_buffer(size)
            size = min(_libc.snprintf(buffer, room, directive, value), LONGEST) + 1
        return buffer.raw[: max(size - 1, 0)]
    finally:
        _libc.uselocale(before)
