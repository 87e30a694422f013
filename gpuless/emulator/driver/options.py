"""Options of the driver's compiler and linker: ``CUjit_option``."""

import ctypes
import re

from gpuless.emulator.driver.device import device
from gpuless.emulator.driver.errors import DriverError, Result, check_choice, refuse_if

_REGISTERS, _TIME, _INFO, _INFO_SIZE, _ERROR, _ERROR_SIZE, _LEVEL = 0, 2, 3, 4, 5, 6, 7
_TARGET, _BLOCKS, _THREADS = 9, 31, 32
#: Refused options: addresses for symbols, code for a later link, bounds that override the code's.
_REFUSED = {17, 18, 19, 20, 33}
#: Options that become directives of the kernels that have none.
_DIRECTIVES = {_REGISTERS: "maxnreg", _BLOCKS: "minnctapersm", _THREADS: "maxntid"}
_CHOICES = {_LEVEL: range(5), 10: range(2), 14: range(3)}


class Options:
    """The options of a call; `options`, `values`: the addresses of their numbers and values."""

    def __init__(self, count=0, options=None, values=None):
        numbers = (ctypes.c_int * count).from_address(options) if count else ()
        self._places = {number: values + 8 * i for i, number in enumerate(numbers)}
        for number in self._places:
            self._check(number, self._value(number))

    def _value(self, number):
        """Return the value of an option: 32 bits, or an address."""
        kind = ctypes.c_uint64 if number in (_INFO, _ERROR) else ctypes.c_uint32
        return kind.from_address(self._places[number]).value

    def _check(self, number, value):
        check_choice(number, *range(36))
        if number in _REFUSED and value:
            raise DriverError(Result.NOT_SUPPORTED, f"option {number} of the compiler, on the emulated GPU")
        check_choice(value, *_CHOICES.get(number, (value,)))
        major, minor = device().capability
        if number == _TARGET and value > 10 * major + minor:
            raise DriverError(
                Result.NO_BINARY_FOR_GPU, f"machine code for {value / 10} on a GPU of {major}.{minor}"
            )

    def apply(self, text):
        """Return PTX with the options' directives for its kernels."""
        given = {name: self._value(number) for number, name in _DIRECTIVES.items() if number in self._places}
        return bounded(text, **{name: value for name, value in given.items() if value})

    def report(self, error=""):
        """Fill in the logs, and 0 as the time taken."""
        for place, size, text in ((_INFO, _INFO_SIZE, ""), (_ERROR, _ERROR_SIZE, error)):
            if not {place, size} - self._places.keys():
                room = self._value(size)
                content = text.encode()[: max(0, room - 1)]
                if room:
                    ctypes.memmove(self._value(place), content + b"\0", len(content) + 1)
                ctypes.c_uint32.from_address(self._places[size]).value = len(content)
        if _TIME in self._places:
            ctypes.c_float.from_address(self._places[_TIME]).value = 0


def bounded(text, **bounds):
    """Return PTX with directives added to its kernels; the kernels' own come later and override them."""
    lines = "".join(rf"\n.{name} {value}" for name, value in bounds.items())
    return re.sub(r"(\.entry\s+[\w$]+\s*(?:\([^()]*\))?)", rf"\1{lines} ", text) if bounds else text


def check_library_options(count, options):
    """Refuse library options that are unknown, or that ask for tables written by the host's compiler."""
    for number in (ctypes.c_int * count).from_address(options) if count else ():
        check_choice(number, 0, 1)
        refuse_if(number == 0, detail="a library of PTX has no table of functions for the host")
