"""The sentences of findings and of errors that end a launch, each made from fields."""

import pytest

from gpuless.positions import Shape
from gpuless.sanitizer import Finding, words
from gpuless.sanitizer.findings import KINDS, Branch, Collision, Remedy, Unwritten, WarpCall
from gpuless.simulator import (
    Cause,
    Divergence,
    DivergenceError,
    LaunchStopped,
    Place,
    SourcePlace,
    UnsupportedPython,
    cause_of,
    compiler_cause,
    foreign,
)
from gpuless.simulator.errors import located
from gpuless.source.instructions import Site, place as place_in

LAUNCH = Shape((4, 1, 1), (8, 4, 1))
HERE, THERE = (Site("blur", line, f"y[{line}] = 0", "", 0) for line in (3, 5))
FIELDS = {
    "array": "x",
    "index": (3, 4),
    "operation": "read",
    "other_operation": "write",
    "site": HERE,
    "other_site": THERE,
    "block": (2, 0, 0),
    "other_block": (3, 0, 0),
    "thread": (1, 2, 0),
    "other_thread": (7, 0, 0),
    "launch": LAUNCH,
    "shape": (8, 8),
    "space": "shared",
}


def divergence(kind="divergent barrier", **more):
    return Divergence(kind, (17, 7), (HERE, THERE), LAUNCH, (2, 0, 0), **more)


SENTENCES = [
    (
        "missing barrier",
        Remedy("block"),
        "thread (1, 2) of block 2 reads x[3, 4] in the barrier interval in which thread (7, 0) writes it: "
        "cuda.syncthreads() is missing between the two",
    ),
    (
        "write-write race",
        Collision(at_once=False),
        "thread (1, 2) and thread (7, 0) of block 2 both write x[3, 4] in one barrier interval: which value "
        "stays is chance; is a barrier missing between the two, or an index wrong?",
    ),
    (
        "lost update",
        None,
        "thread (1, 2) of block 2 and thread (7, 0) of block 3 both read x[3, 4], change it and write it "
        "back; nothing keeps one from overwriting what the other wrote: use cuda.atomic",
    ),
    (
        "race between blocks",
        None,
        "thread (1, 2) of block 2 reads x[3, 4], and thread (7, 0) of block 3 writes it; blocks run in any "
        "order and no barrier holds between them: give each its own elements, or make it two launches",
    ),
    (
        "divergent barrier",
        divergence(),
        "in block 2, thread (1, 2) waits at a barrier (blur, line 3: y[3] = 0) and thread (7, 0) waits at "
        "blur, line 5: y[5] = 0: every thread of a block must reach the same barriers",
    ),
    (
        "divergent warp",
        WarpCall("ballot_sync", 0xFF, (4, 5, 6)),
        "thread (1, 2) of block 2 calls ballot_sync with mask 0xff, which names lanes 4 to 6 of its warp, "
        "and these never come: call it where they come too, or name only the lanes that do",
    ),
    (
        "absent lane",
        WarpCall("shfl_sync", 0xFF, (20,), "unnamed"),
        "thread (1, 2) of block 2 takes the value of lane 20 by shfl_sync, and that lane is not in the mask "
        "0xff; the value is garbage, and the results depend on it",
    ),
    (
        "division by zero",
        None,
        "thread (1, 2) of block 2 divides by zero; a GPU goes on: `/` gives infinity, `//` and `%` give 0",
    ),
    ("out of bounds", None, "thread (1, 2) of block 2 reads x[3, 4], and x has shape (8, 8)"),
    (
        "negative index",
        None,
        "thread (1, 2) of block 2 reads x[3, 4] by a negative index, which counts from the end: is a guard "
        "missing?",
    ),
    (
        "uninitialised read",
        None,
        "thread (1, 2) of block 2 reads x[3, 4] before anyone has written it: a new shared array holds "
        "garbage",
    ),
    (
        "never written",
        Unwritten(2, 64),
        "2 of the 64 elements of x are never written, the first is x[3, 4]: does the grid cover it all?",
    ),
    (
        "NaN produced",
        None,
        "thread (1, 2) of block 2 writes NaN to x[3, 4], computed from numbers that are not NaN",
    ),
    ("depends on order", "reversed", "x differs when blocks and threads run reversed"),
]


@pytest.mark.parametrize(("kind", "detail", "sentence"), SENTENCES, ids=[kind for kind, *_ in SENTENCES])
def test_a_finding_of_each_kind_is_one_sentence(kind, detail, sentence):
    finding = Finding(kind, **FIELDS, detail=detail)
    assert finding.message == sentence
    assert words.seen(finding) + words.advice(finding) == sentence


def test_there_is_a_sentence_for_every_kind():
    assert {kind for kind, *_ in SENTENCES} == set(KINDS)


@pytest.mark.parametrize(
    ("remedy", "advice"),
    [
        (Remedy(""), "no barrier helps, as other blocks do the same"),
        (Remedy("either"), "cuda.syncthreads() (or cuda.syncwarp(), as the block is one warp) is missing"),
        (
            Remedy("warp", Branch("t < 8", 9)),
            "cuda.syncwarp() is missing between the two, outside of `if t <",
        ),
        (Remedy("warp", Branch("t < 8", 9), inside=True), "must not stand inside of `if t < 8:` (line 9)"),
        (Remedy("block", Branch("t < 8", 9), each_round=True), "in each round of the loop, outside of `if t"),
        (Remedy("block", both_change=True), "unless an index is wrong: both read and write it"),
    ],
)
def test_the_advice_against_a_race(remedy, advice):
    assert advice in words.advice(Finding("missing barrier", **FIELDS, detail=remedy))


def test_small_numbers_of_elements():
    one = {**FIELDS, "shape": (1,), "index": (3,), "array": "y"}
    assert Finding("out of bounds", **one).message.endswith("reads y[3], and y has 1 element")
    none = Finding("never written", **one, detail=Unwritten(4, 4))
    assert none.message == "no thread writes y"


def test_an_index_of_a_view():
    view = {**FIELDS, "in_view": True}
    sentence = "thread (1, 2) of block 2 reads element [3, 4] of a view of x, and the view has shape (8, 8)"
    assert Finding("out of bounds", **view).message == sentence
    row = Finding("out of bounds", **{**view, "index": (9, slice(None, None, 2))}).message
    assert row.endswith("reads part [9, ::2] of a view of x, and the view has shape (8, 8)")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({}, "thread (1, 2) waits at a barrier and thread (7, 0) waits at another: every thread"),
        (
            {"rounds": ("k", 0, 1)},
            "in the round k = 0 of a loop, and thread (7, 0) in the round k = 1: every",
        ),
        (
            {"operation": "shfl_sync", "mask": 0xFF, "lanes": (7, 8), "other_mask": 0xF},
            "waits at shfl_sync with mask 0xff, which names lanes 7 to 8, and lane 7 waits "
            "elsewhere with mask 0xf",
        ),
        ({"operation": "shfl_sync", "mask": 0xFF}, "calls shfl_sync with mask 0xff, which does not name it"),
    ],
)
def test_threads_that_wait_in_vain_without_their_lines(more, sentence):
    found = Finding("divergent warp", **FIELDS, detail=divergence(**more))
    assert sentence in words.waiting(found, sites=False)
    assert "line 3" in words.waiting(found)


def test_a_divergence_names_its_place_and_keeps_its_fields():
    error = DivergenceError(divergence(), "blur")
    assert str(error).endswith("\n  in kernel blur, block 2")
    assert (error.kind, error.threads, error.site) == ("divergent barrier", (17, 7), HERE)


def test_an_error_keeps_its_type_and_names_its_place():
    place = Place("blur", THERE, (2, 0, 0), (1, 2, 0), LAUNCH)
    error = located(TypeError("'float' object cannot be interpreted as an integer"), place)
    assert type(error) is TypeError
    assert error.place is place
    assert error.reason.endswith("as an integer; if it comes from `/`, which gives a float, use `//`")
    assert str(error).endswith("\n  in kernel blur, line 5: y[5] = 0\n  block 2, thread (1, 2)")
    assert "device function blur" in str(located(KeyError(1), place._replace(kernel="other")))


def test_unsupported_python_gives_the_word_and_the_reason():
    where = SourcePlace("blur", 4, "sorted(x)")
    error = UnsupportedPython("is not supported", "sorted()", where)
    assert str(error) == "in kernel blur, line 4: sorted() is not supported\n    sorted(x)"
    again = located(error, Place("blur", None, (0, 0, 0), (0, 0, 0), LAUNCH))
    assert (again.code, again.reason, again.where) == ("sorted()", "is not supported", where)


def test_a_stopped_launch_is_noted_in_one_line():
    stop = LaunchStopped("no end", Place("blur", HERE, (1, 0, 0), (0, 0, 0), LAUNCH))
    where = "(in kernel blur, line 3: y[3] = 0, block 1, thread (0, 0))"
    assert words.stopped_note(stop) == f"the launch was stopped before its end: no end {where}"
    assert words.stopped_note(stop, "reversed").startswith("reversed, the launch did not end: no end")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("'TracedArray' object has no attribute 'mean'", Cause("no attribute", "mean")),
        ("module 'numba.cuda' has no attribute 'syncthread'", Cause("not in cuda", "syncthread")),
        ("Atomic.add() missing 1 required positional argument", Cause("arguments", "Atomic.add")),
        ("setting an array element with a sequence.", Cause("sequence")),
        ("must be real number, not TracedArray", Cause("whole array")),
        (
            "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            "(n?,k),(k,m?)->(n?,m?) (size 4 is different from 3)",
            Cause("product", "@", ("3", "4")),
        ),
        (
            "operands could not be broadcast together with remapped shapes [original->remapped]: "
            "(2,3)->(2,newaxis,3) (4,5)->(5,4) ",
            Cause("einsum", "einsum", ("(2,3)", "(4,5)")),
        ),
        (
            "Cannot cast ufunc 'add' output from dtype('O') to dtype('float32') with casting rule ...",
            Cause("none"),
        ),
        ("unsupported operand type(s) for +: 'float' and 'NoneType'", Cause("none")),
        ("'NoneType' object is not subscriptable", Cause("none")),
        ("invalid index to scalar variable.", Cause("number")),
        ("'numpy.float32' object does not support item assignment", Cause("number")),
        ("'float' object is not subscriptable", Cause("number")),
        ("'IntegerArray' object has no attribute 'foo'", Cause("no attribute", "foo")),
        ("division by zero", None),
    ],
)
def test_errors_of_python_and_numpy_in_words(text, cause):
    assert cause_of(TypeError(text)) == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "Unknown attribute 'mean' of type float32\nUntyped global name 'x'",  # the first counts
            Cause("no attribute", "mean", ("float32",)),
        ),
        ("Untyped global name 'rates': Cannot determine", Cause("not usable", "rates")),
        ("NameError: name 'b' is not defined", Cause("not defined", "b")),
        (
            "found for signature:\n \n >>> getitem(Tuple(int64, float64), Literal[int](1))",
            Cause("not applied", "getitem", ("tuple", "integer")),
        ),
        ("a text of another kind", None),
    ],
)
def test_errors_of_numba_in_words(text, cause):
    assert compiler_cause(text) == cause


def test_an_error_of_the_compiler_is_parsed():
    text = (
        "blur does not compile for compute capability 8.0: Failed in cuda mode pipeline\n"
        "Unknown attribute 'mean' of type float32\nFile \"kernels.py\", line 7:\ndef blur(x):"
    )
    found = foreign.read_refusal(text)
    assert found.reason == "Unknown attribute 'mean' of type float32"
    assert found.cause == Cause("no attribute", "mean", ("float32",))
    assert found.places == (("kernels.py", 7, "blur"),)
    assert foreign.read_refusal("NRT required").reason == "it would need memory for a new array"


def test_an_exception_is_never_placed_in_numpy():
    """Pyodide's NumPy may be bytecode compiled elsewhere."""
    numpys = {"__name__": "numpy.lib.mixins"}
    exec(compile("def func(x): return x.missing", "of/another/machine/mixins.py", "exec"), numpys)
    try:
        numpys["func"](1)
    except AttributeError as error:
        found = place_in(error.__traceback__)
    assert found.text == 'numpys["func"](1)'
