"""Link pieces of PTX."""

import ctypes
import re

from gpuless.emulator.driver.errors import DriverError, Result, refuse_if
from gpuless.emulator.driver.options import Options
from gpuless.emulator.driver.table import Handles, driver_function, put_handle

_HEADER = re.compile(r"^\s*\.(?:version|target|address_size)\b[^\n]*$", re.M)
_SYMBOL = re.compile(
    r"^[ \t]*((?:\.(?:visible|extern|weak|common)[ \t]+)*)"
    r"(?:\.(?:func|entry)\b\s*(?:\([^()]*\)\s*)?|\.(?:global|const|shared)\b[^;={]*?)"
    r"([\w$]+)\s*(?=[(;={\[]|\n)",
    re.M,
)
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_FILE = re.compile(r"^(\s*\.file\s+)(\d+)", re.M)
_LOC = re.compile(r"^(\s*\.loc\s+)(\d+)", re.M)
_TEXT_KIND = 1


def join(texts):
    r"""Join pieces of PTX.

    A piece's private symbol is renamed if an earlier piece has a symbol of that name.

    >>> head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    >>> print(join([head + ".global .u32 x;", head + ".global .u32 x;"]))
    .version 8.0
    .target sm_80
    .address_size 64
    .global .u32 x;
    .global .u32 x$1;
    """
    if len(texts) == 1:
        return texts[0]
    head = "\n".join(line.strip() for line in _HEADER.findall(texts[0]))
    pieces, taken, files = [], set(), 0
    for number, text in enumerate(texts):
        text = _HEADER.sub("", text.rstrip("\0 \n"))
        own = {name for words, name in _SYMBOL.findall(text) if not words.strip()}
        clashing = {name: f"{name}${number}" for name in own & taken}
        if clashing:
            text = _NAME.sub(lambda match, new=clashing: new.get(match[0], match[0]), text)
        taken |= {name for _, name in _SYMBOL.findall(text)}
        here = max((int(count) for _, count in _FILE.findall(text)), default=0)
        for pattern in (_FILE, _LOC):
            text = pattern.sub(lambda match, first=files: f"{match[1]}{int(match[2]) + first}", text)
        files += here
        pieces.append(text.strip("\n"))
    return "\n".join([head, *pieces])


class _Link:
    """Pieces of PTX to join."""

    def __init__(self, options):
        self.pieces, self.joined, self.options = [], None, options

    def add(self, image, kind):
        """Add a piece."""
        refuse_if(kind != _TEXT_KIND, Result.NO_BINARY_FOR_GPU, "the emulated GPU links PTX, no machine code")
        try:
            self.pieces.append(image.rstrip(b"\0").decode())
        except UnicodeDecodeError:
            raise DriverError(Result.INVALID_PTX) from None


_links = Handles()


@driver_function("cuLinkCreate", types="uppp")
def _create(count, options, values, found):
    put_handle(found, _links.add(_Link(Options(count, options, values))))


@driver_function("cuLinkAddData", types="pipzpupp")
def _add_data(link, kind, data, size, name, *options):
    Options(*options)
    _links[link].add(ctypes.string_at(data, size), kind)


@driver_function("cuLinkAddFile", types="picupp")
def _add_file(link, kind, path, *options):
    Options(*options)
    try:
        with open(path, "rb") as file:
            _links[link].add(file.read(), kind)
    except OSError as error:
        raise DriverError(Result.NOT_FOUND, str(error)) from None


@driver_function("cuLinkComplete", types="ppp")
def _complete(link, image, size):
    link = _links[link]
    refuse_if(not link.pieces)
    link.joined = ctypes.create_string_buffer(link.options.apply(join(link.pieces)).encode())
    link.options.report()
    put_handle(image, ctypes.addressof(link.joined))
    put_handle(size, len(link.joined))


@driver_function("cuLinkDestroy", types="p")
def _destroy(link):
    _links.remove(link)
