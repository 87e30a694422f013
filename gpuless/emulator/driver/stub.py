"""The library that programs load as NVIDIA's driver: its functions jump to ours.

A program loads ``libcuda.so.1`` and gets the driver's functions from its ``cuGetProcAddress_v2``, or by name.
This module writes such a library, a small ELF file, and loads it first; then it fills in the addresses to
which the functions jump. It needs no compiler.
"""

import atexit
import contextlib
import ctypes
import os
import platform
import struct
import tempfile

SONAME = "libcuda.so.1"
SLOTS, JUMPS = "gpuless_driver_slots", "gpuless_driver_jumps"
_MACHINES = {"x86_64": 62, "aarch64": 183}
_PAGE = 1 << 16  # the largest page that Linux uses on these processors
_JUMP = 16  # bytes of code for each function


def _jump(machine, here, slot):
    """Return machine code that jumps to the address stored in a slot."""
    if machine == "x86_64":
        return b"\xff\x25" + struct.pack("<i", slot - here - 6)  # jmp *[rip + distance]
    pages = (slot >> 12) - (here >> 12)
    adrp = 0x90000000 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5 | 16
    ldr = 0xF9400000 | (slot & 0xFFF) // 8 << 10 | 16 << 5 | 16
    return struct.pack("<III", adrp, ldr, 0xD61F0200)  # br x16


#: A function that returns 0.
_SUCCESS = {"x86_64": b"\x31\xc0\xc3", "aarch64": struct.pack("<II", 0x52800000, 0xD65F03C0)}


def shared_object(names, spare=0, machine=None):
    """Return the library as bytes.

    `names`: the functions that it exports; `spare`: how many more jumps it has, for functions without a name;
    `machine`: the processor, by default this one. After the last jump is a function that returns 0.
    """
    machine = machine or platform.machine()
    texts, jumps = [SONAME, SLOTS, JUMPS, *names], len(names) + spare
    strings, at = b"\0", {}
    for text in texts:
        at[text] = len(strings)
        strings += text.encode() + b"\0"
    symbols_at, count = 0x200, len(names) + 3
    strings_at = symbols_at + 24 * count
    hash_at = -(-(strings_at + len(strings)) // 8) * 8
    # One bucket, and a chain through all symbols.
    table = struct.pack(f"<{3 + count}I", 1, count, 1, *[0, *range(2, count), 0])
    end = hash_at + len(table)
    code_at = -(-end // _PAGE) * _PAGE
    data_at = code_at + -(-_JUMP * (jumps + 1) // _PAGE) * _PAGE
    dynamic_at = data_at + 8 * jumps
    places = [code_at + _JUMP * i for i in range(jumps)]
    symbols = bytes(24) + struct.pack("<IBBHQQ", at[SLOTS], 0x11, 0, 6, data_at, 8 * jumps)  # variables
    symbols += struct.pack("<IBBHQQ", at[JUMPS], 0x11, 0, 5, code_at, _JUMP * jumps)
    for name, place in zip(names, places, strict=False):
        symbols += struct.pack("<IBBHQQ", at[name], 0x12, 0, 5, place, _JUMP)  # functions
    code = b"".join(
        _jump(machine, place, data_at + 8 * i).ljust(_JUMP, b"\0") for i, place in enumerate(places)
    )
    code += _SUCCESS[machine]
    entries = [(14, at[SONAME]), (4, hash_at), (5, strings_at), (6, symbols_at)]
    entries += [(10, len(strings)), (11, 24), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, _MACHINES[machine], 1, 0, 64, 0, 0, 64, 56, 5, 64, 0, 0)

    def segment(kind, flags, begin, size, align):
        return struct.pack("<IIQQQQQQ", kind, flags, begin, begin, begin, size, size, align)

    segments = segment(1, 4, 0, end, _PAGE) + segment(1, 5, code_at, len(code), _PAGE)
    segments += segment(1, 6, data_at, 8 * jumps + len(dynamic), _PAGE)
    segments += segment(2, 6, dynamic_at, len(dynamic), 8)
    segments += struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # no executable stack
    image = bytearray(dynamic_at + len(dynamic))
    parts = [(0, header + segments), (symbols_at, symbols), (strings_at, strings), (hash_at, table)]
    for place, content in [*parts, (code_at, code), (dynamic_at, dynamic)]:
        image[place : place + len(content)] = content
    return bytes(image)


def _load(image):
    """Load a shared object from memory or, failing that, from a temporary file."""
    with contextlib.suppress(AttributeError, OSError):  # no files in memory, or they may not be executed
        # It stays open: the loader would take another file with the same number for this one.
        file = open(os.memfd_create("gpuless"), "wb", buffering=0, closefd=False)
        file.write(image)
        return ctypes.CDLL(f"/proc/self/fd/{file.fileno()}", ctypes.RTLD_GLOBAL)
    try:
        with tempfile.NamedTemporaryFile(prefix="gpuless-", suffix=".so", buffering=0) as file:
            file.write(image)
            return ctypes.CDLL(file.name, ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise OSError(
            f"the emulated GPU cannot load its driver from {tempfile.gettempdir()}: {error}. Set TMPDIR to a "
            "folder from which programs may run (not mounted noexec)"
        ) from error


class Library:
    """The loaded library; more functions may be added."""

    _SPARE = 1024

    def __init__(self, functions):
        self._library = _load(shared_object(list(functions), self._SPARE))
        self._slots = (ctypes.c_uint64 * (len(functions) + self._SPARE)).in_dll(self._library, SLOTS)
        self._jumps = ctypes.addressof(ctypes.c_char.in_dll(self._library, JUMPS))
        self._functions = []
        self._nothing = self._jumps + _JUMP * len(self._slots)
        self._slots[:] = [self._nothing] * len(self._slots)
        for function in functions.values():
            self.add(function)
        # Destructors that run after the interpreter's end find functions that return success.
        atexit.register(self.retire)

    def add(self, function):
        """Return the address of a jump to a function."""
        number = len(self._functions)
        self._functions.append(function)
        self._slots[number] = ctypes.cast(function, ctypes.c_void_p).value
        return self._jumps + _JUMP * number

    def retire(self):
        """Redirect all jumps to a function that does nothing."""
        self._slots[:] = [self._nothing] * len(self._slots)
