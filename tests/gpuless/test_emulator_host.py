"""What kernels ask their host for: printf, malloc, free and assert, in PTX that calls them."""

import numpy as np
import pytest
from ptx_programs import results, run, threads, workers

from gpuless.emulator import host
from gpuless.emulator.ptx import PtxError

STORE = "st.global.u32 [%out], %x9;"
DECLARATIONS = """
.extern .func (.param .b32 got) vprintf (.param .b64 text, .param .b64 at);
.extern .func (.param .b64 got) malloc (.param .b64 size);
.extern .func free (.param .b64 at);
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
"""


@pytest.fixture(autouse=True)
def heap(monkeypatch):
    """Have a heap, as the driver makes one."""
    monkeypatch.setattr(host._Heaps, "heap", host.Heap(workers().arena, 1 << 20))


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


def test_functions_of_cuda_in_a_module_that_calls_by_addresses(capsys):
    """Those of the module may have their parameters in pieces, of which CUDA's know nothing."""
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
    assert not host._Heaps.heap._sizes  # all is given back
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


def test_a_function_of_cuda_that_is_declared_otherwise_is_refused():
    body = "{ .param .b32 size; .param .b64 got; st.param.b32 [size], 64; call (got), malloc, (size); }"
    with pytest.raises(PtxError, match=r"malloc takes parameters of \(8,\) bytes and gives \(8,\)"):
        results(body + STORE)
