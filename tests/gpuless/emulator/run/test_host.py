"""Functions of the host for kernels: printf, malloc, free and assert, called in PTX."""

import contextlib
import ctypes
import locale
from ctypes import c_int, c_uint64

import numpy as np
import pytest
from ptx_programs import results, run, threads, workers

from gpuless.emulator.ptx import PtxError
from gpuless.emulator.run import host
from gpuless.emulator.run.faults import Fault
from gpuless.emulator.run.printf import format_text
from gpuless.emulator.run.reading import Memory
from gpuless.emulator.translate.layout import ARENA_SPAN

STORE = "st.global.u32 [%out], %x9;"
DECLARATIONS = """
.extern .func (.param .b32 got) vprintf (.param .b64 text, .param .b64 at);
.extern .func (.param .b64 got) malloc (.param .b64 size);
.extern .func free (.param .b64 at);
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
"""


@pytest.fixture
def heap(monkeypatch):
    """Return a heap, which otherwise the driver makes."""
    made = host.Heap(workers().arena, 1 << 20)
    start = made._next
    monkeypatch.setattr(host._Heaps, "heap", made)
    yield made
    workers().arena.free(start)


def text(name, content):
    """Return a variable that holds a text."""
    numbers = ", ".join(map(str, [*content.encode(), 0]))
    return f".global .align 1 .b8 {name}[{len(content.encode()) + 1}] = {{{numbers}}};\n"


def printf(form, *numbers):
    """Return PTX that prints numbers of 64 bits, by a variable's name and registers or immediates."""
    stores = " ".join(f"st.local.b64 [%y51+{8 * i}], {one};" for i, one in enumerate(numbers))
    return f"""{{ .local .align 8 .b8 given[64]; .param .b64 text; .param .b64 at; .param .b32 got;
    mov.u64 %y50, {form}; mov.u64 %y51, given; {stores}
    st.param.b64 [text], %y50; st.param.b64 [at], %y51;
    call (got), vprintf, (text, at); ld.param.b32 %x9, [got]; }}"""


# A call by an address, with parameters and a result of 4 bytes.
INDIRECT = """
.func (.param .b32 out) twice(.param .b32 in) {
    .reg .b32 %r<3>; ld.param.b32 %r1, [in]; add.s32 %r2, %r1, %r1; st.param.b32 [out], %r2; ret; }
"""
CALL = """mov.u64 %y1, twice;
{ .param .b32 given; .param .b32 got; st.param.b32 [given], %t;
proto: .callprototype (.param .b32 _) _ (.param .b32 _);
call (got), %y1, (given), proto; ld.param.b32 %x1, [got]; }
"""


def test_functions_of_cuda_in_a_module_that_calls_by_addresses(heap, capsys):
    """Functions of the module may have their parameters in pieces, those of CUDA have not."""
    body = f"""{CALL} cvt.u64.u32 %y2, %x1;
    {{ .param .b64 size; .param .b64 got; st.param.b64 [size], 64;
    call (got), malloc, (size); ld.param.b64 %y3, [got]; }}
    st.u64 [%y3], %y2; ld.u64 %y4, [%y3]; setp.gt.u32 %p1, %t, 2;
    @%p1 bra OFF;
    {printf("form", "%y4")}
    OFF: {{ .param .b64 at; st.param.b64 [at], %y3; call free, (at); }}
    cvt.u32.u64 %x9, %y4; {STORE}"""
    found, _ = results(body, before=DECLARATIONS + INDIRECT, variables=text("form", "%lld\n"))
    assert found == [2 * i for i in range(32)]
    assert not heap._sizes  # all is freed
    host.flush()
    assert capsys.readouterr().out == "0\n2\n4\n"


def test_an_assertion_in_a_module_that_calls_by_addresses(monkeypatch):
    asserted = []
    launch = workers().launch
    monkeypatch.setattr(workers(), "launch", lambda *given: asserted.extend(launch(*given)))
    body = f"""{CALL} mov.u32 %x9, 0; setp.ne.u32 %p1, %x1, 10;
    @%p1 bra OFF;
    mov.u64 %y2, why; mov.u64 %y3, file; mov.u64 %y4, name;
    {{ .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
    st.param.b64 [m], %y2; st.param.b64 [f], %y3; st.param.b32 [l], 7; st.param.b64 [n], %y4;
    st.param.b64 [s], 1; call __assertfail, (m, f, l, n, s); }}
    OFF: {STORE}"""
    variables = text("why", "x < 5") + text("file", "f.cu") + text("name", "fill")
    run(threads(body, 1, DECLARATIONS + INDIRECT, variables), [np.zeros(32, np.uint32)])
    assert asserted == ["f.cu:7: fill: block: [0, 0, 0], thread: [5, 0, 0] Assertion `x < 5` failed."]


def test_a_cuda_function_declared_differently_is_rejected():
    body = "{ .param .b32 size; .param .b64 got; st.param.b32 [size], 64; call (got), malloc, (size); }"
    with pytest.raises(PtxError, match=r"malloc takes parameters of \(8,\) bytes and gives \(8,\)"):
        results(body + STORE)


# --- What they read ----------------------------------------------------------------------------------------


def printed(form, *numbers):
    """Return the output of printf for numbers: Python floats or ctypes."""
    laid_out = bytearray()
    for one in numbers:
        one = ctypes.c_double(one) if isinstance(one, float) else one
        laid_out += bytes(-len(laid_out) % ctypes.sizeof(one)) + bytes(one)
    buffer = ctypes.create_string_buffer(bytes(laid_out) + bytes(8))
    at = ctypes.addressof(buffer)
    return format_text(form.encode(), at, Memory(at - at % ARENA_SPAN))[0]


@pytest.mark.parametrize(
    ("form", "numbers", "wanted"),
    [
        ("%.*f", [c_int(-1), 1.5], "1.500000"),
        ("%.*f|%*d|", [c_int(1), 2.25, c_int(-5), c_int(3)], "2.2|3    |"),
        ("%12.2a|%a", [1.5, 0.5], "   0x1.80p+0|0x1p-1"),
        ("%#.3o %+u %05.3d %hhd", [c_int(9), c_int(7), c_int(7), c_int(300)], "011 7   007 44"),
        (
            "%05f|%lu %x",
            [float("inf"), c_uint64(2**64 - 1), c_int(-1)],
            "  inf|18446744073709551615 ffffffff",
        ),
        ("%c%c %s%%", [c_int(0xC3), c_int(0xA9), c_uint64(0)], "é (null)%"),
    ],
)
def test_printf_prints_as_c_does(form, numbers, wanted):
    assert printed(form, *numbers) == wanted


def test_printf_prints_the_same_in_every_language():
    """A program may have set the locale of its user, with a decimal comma."""
    before = locale.setlocale(locale.LC_NUMERIC)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8"):
        with contextlib.suppress(locale.Error):  # this computer may have neither
            locale.setlocale(locale.LC_NUMERIC, name)
    try:
        assert printed("%.1f", 2.5) == "2.5"
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)


def test_no_width_is_too_large():
    assert len(printed("%2147483647d %.*f", c_int(1), c_int(2**31 - 1), 0.5)) == (2 << 20) + len(" ")


WILD = """.global .align 1 .b8 name[3] = {111, 107, 0};
.global .align 1 .b8 form[4] = {37, 115, 10, 0};
"""


@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"], ids=["", "barrier"])
@pytest.mark.parametrize("wild", [12344, 1 << 60, "%a0"])
@pytest.mark.parametrize("what", ["text", "form", "numbers"])
def test_wild_addresses_given_to_printf(wild, barrier, what, capsys):
    """One thread's address is wild, and this thread is named."""
    wild_at = f"setp.eq.u32 %p1, %t, 21; mov.u64 %y3, {wild}; @%p1 mov.u64 %y2, %y3;"
    if wild == "%a0":
        wild_at += "@%p1 add.u64 %y2, %y2, 1048576;"
    call = {
        "text": printf("form", "%y2"),
        "form": printf("%y2"),
        "numbers": printf("form", "%y1").replace("[at], %y51", "[at], %y2"),
    }[what]
    start = {"text": "name", "form": "name", "numbers": "numbers"}[what]
    body = f"{barrier} mov.u64 %y1, name; mov.u64 %y2, {start}; {wild_at} {call} {STORE}"
    variables = WILD + ".global .align 8 .u64 numbers[2] = {name, name};"
    match = r"illegal memory access at 0x\w+(.|\n)*kernel f, block \(0, 0, 0\), thread \(21, 0, 0\)"
    with pytest.raises(Fault, match=match) as caught:
        run(threads(body, 1, DECLARATIONS, variables), [np.zeros(32, np.uint32)])
    assert caught.value.kind == "address"
    assert (wild != 12344) or "at 0x3038:" in str(caught.value)
    host.flush()
    assert capsys.readouterr().out.startswith("ok")


def test_the_address_of_no_text_is_null(capsys):
    results(f"mov.u64 %y2, 0; {printf('form', '%y2')} {STORE}", block=1, before=DECLARATIONS, variables=WILD)
    host.flush()
    assert capsys.readouterr().out == "(null)\n"


def test_a_text_without_an_end_is_cut(capsys):
    body = printf("form", "%a0") + STORE
    endless = np.full(3 << 20, ord("x"), np.uint8)
    results(body, [endless], block=1, before=DECLARATIONS, variables=WILD)
    host.flush()
    assert capsys.readouterr().out == "x" * (1 << 20) + "\n"


@pytest.mark.parametrize("which", range(3))
def test_wild_addresses_given_to_an_assertion(which):
    given = ["name"] * 3
    given[which] = "99999"
    body = f"""mov.u64 %y2, {given[0]}; mov.u64 %y3, {given[1]}; mov.u64 %y4, {given[2]};
    {{ .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
    st.param.b64 [m], %y2; st.param.b64 [f], %y3; st.param.b32 [l], 7; st.param.b64 [n], %y4;
    st.param.b64 [s], 1; call __assertfail, (m, f, l, n, s); }}"""
    with pytest.raises(Fault, match="illegal memory access at 0x1869f: kernel f"):
        results(body, before=DECLARATIONS, variables=WILD)
