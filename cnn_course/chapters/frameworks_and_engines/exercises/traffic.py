"""`traffic`: the bytes of fused kernels."""

from itertools import pairwise

from cnn_course.engine.checks.exercise import Exercise


def _counted(
    reads=lambda asked, made: set(asked) - made,
    keep=lambda made, others, results: made & (others | results),
    size=lambda sizes, name: sizes[name],
):
    """Return a count of the bytes of kernels, in one point not as it should be."""

    def traffic(kernels, sizes, results):
        total = 0
        for kernel in kernels:
            made = {output for output, _ in kernel}
            asked = [name for _, inputs in kernel for name in inputs]
            others = {
                name for other in kernels if other is not kernel for _, inputs in other for name in inputs
            }
            moved = [*reads(asked, made), *keep(made, others, set(results))]
            total += sum(size(sizes, name) for name in moved)
        return total

    return traffic


def _loads_inner_arrays(kernels, sizes, results):
    """Return the bytes where the names of all that is loaded or stored are one set."""
    total = 0
    for kernel in kernels:
        made = {output for output, _ in kernel}
        asked = {name for _, inputs in kernel for name in inputs}
        others = {name for other in kernels if other is not kernel for _, inputs in other for name in inputs}
        total += sum(sizes[name] for name in asked | made & (others | set(results)))
    return total


def _next_only(kernels, sizes, results):
    """Return the bytes where an array is stored only if the next kernel loads it, or if it is a result."""
    total = 0
    for place, kernel in enumerate(kernels):
        made = {output for output, _ in kernel}
        asked = {name for _, inputs in kernel for name in inputs}
        others = {name for other in kernels[place + 1 :][:1] for _, inputs in other for name in inputs}
        total += sum(sizes[name] for name in asked - made | made & (others | set(results)))
    return total


def _last_outputs(kernels, sizes, results):
    """Return the bytes where a kernel stores what its last operation makes, and nothing else."""
    total = 0
    for kernel in kernels:
        made = {output for output, _ in kernel}
        asked = {name for _, inputs in kernel for name in inputs}
        total += sum(sizes[name] for name in asked - made) + sizes[kernel[-1][0]]
    return total


def _once_in_all(kernels, sizes, results):
    """Return the bytes of the arrays that are moved at all."""
    moved = set()
    for kernel in kernels:
        made = {output for output, _ in kernel}
        others = {name for other in kernels if other is not kernel for _, inputs in other for name in inputs}
        moved |= {name for _, inputs in kernel for name in inputs} - made | made & (others | set(results))
    return sum(sizes[name] for name in moved)


def _plans(rng):
    """Draw programs, each cut into kernels in several ways."""
    yield [[("y", ("x",))]], {"x": 4, "y": 8}, ("y",)
    # A by-product that nothing uses.
    yield [[("a", ("x",)), ("mask", ("a",)), ("y", ("a",))]], {"x": 4, "a": 8, "mask": 16, "y": 32}, ("y",)
    chain = [("a", ("x",)), ("b", ("a", "bias")), ("c", ("b",)), ("d", ("c", "x", "x"))]
    fork = [("a", ("x",)), ("b", ("a", "a")), ("c", ("a", "y")), ("d", ("b", "c"))]
    for operations, results in ((chain, ("d",)), (chain, ("d", "b")), (fork, ("d", "c"))):
        names = sorted({name for output, inputs in operations for name in (output, *inputs)})
        sizes = {name: 4 * int(rng.integers(1, 1000)) for name in names}
        for cuts in ((), (2,), (1, 3), (1, 2, 3)):
            ends = [0, *cuts, len(operations)]
            yield [operations[a:b] for a, b in pairwise(ends)], sizes, results


traffic = Exercise(
    "traffic",
    reference=_counted(),
    cases=_plans,
    mistakes={
        "inner arrays written": (
            "You store all that a kernel makes. An array that only this kernel uses stays in registers.",
            _counted(keep=lambda made, others, results: made),
            ("(made & (others | set(results)))", "made"),
        ),
        "inner arrays read": (
            "You count an array that a kernel makes and uses. While it runs that is in its registers: it "
            "is not loaded, and it is stored only if *another* kernel loads it or it is a result.",
            _counted(reads=lambda asked, made: set(asked)),
            _loads_inner_arrays,
            ("(asked - made) |", "asked |"),
            ("if k is not kernel ", ""),
        ),
        "inner arrays moved": (
            "You count arrays that one operation of a kernel makes for the next: they stay in registers.",
            _counted(reads=lambda asked, made: set(asked), keep=lambda made, others, results: made),
            ("for name in moved", "for names in (asked, made) for name in names"),
        ),
        "operation by operation": (
            "You count what each operation loads and stores by itself, as if nothing were fused: within a "
            "kernel arrays stay in registers.",
            lambda kernels, sizes, results: sum(
                sizes[output] + sum(sizes[name] for name in inputs)
                for kernel in kernels
                for output, inputs in kernel
            ),
            """
            total = 0
            for kernel in kernels:
                for output, inputs in kernel:
                    total += sizes[output] + sum(sizes[name] for name in inputs)
            return total
            """,
        ),
        "loads of the next kernel only": (
            "You ask only the next kernel whether it loads an array. Any later one may.",
            _next_only,
            (
                "{name for k in kernels if k is not kernel for _, inputs in k for name in inputs}",
                "{n for k in kernels[kernels.index(kernel) + 1 :][:1] for _, inputs in k for n in inputs}",
            ),
        ),
        "loaded twice": (
            "A kernel loads an array once, however often its operations use it: take the set of names.",
            _counted(reads=lambda asked, made: [name for name in asked if name not in made]),
            [
                (
                    "{name for _, inputs in kernel for name in inputs}",
                    "[name for _, inputs in kernel for name in inputs if name not in made]",
                ),
                (
                    "(asked - made) | (made & (others | set(results)))",
                    "[*asked, *(made & (others | set(results)))]",
                ),
            ],
        ),
        "nothing stored": (
            "You count what is loaded only. A kernel also stores what others need, and what is a result.",
            _counted(keep=lambda made, others, results: ()),
            ("(asked - made) | (made & (others | set(results)))", "asked - made"),
        ),
        "nothing loaded": (
            "You count what is stored only. A kernel also loads what it has not made.",
            _counted(reads=lambda asked, made: ()),
            ("(asked - made) | (made & (others", "(made & (others"),
        ),
        "results forgotten": (
            "What is among `{results}` is stored, whether another kernel uses it or not.",
            _counted(keep=lambda made, others, results: made & others),
            ("(others | set(results))", "others"),
        ),
        "only results stored": (
            "You store the results only. What a later kernel loads has to be stored as well.",
            _counted(keep=lambda made, others, results: made & results),
            ("(others | set(results))", "set(results)"),
        ),
        "stored twice": (
            "A result that another kernel loads as well is stored once: take the set of names.",
            _counted(keep=lambda made, others, results: [*(made & others), *(made & results)]),
            (
                "(asked - made) | (made & (others | set(results)))",
                "[*(asked - made), *(made & others), *(made & set(results))]",
            ),
        ),
        "last outputs stored": (
            "You store only what each kernel makes last. Store every array that another kernel needs.",
            _last_outputs,
            ("(made & (others | set(results)))", "{kernel[-1][0]}"),
        ),
        "once in all": (
            "You count each array once in all. Count it once for each kernel that loads or stores it.",
            _once_in_all,
            [
                ("total = 0", "everything = set(results)"),
                ("total += sum(sizes[name] for name in moved)", "everything |= asked - made"),
                ("return total", "return sum(sizes[name] for name in everything)"),
            ],
        ),
        "arrays counted": (
            "You count arrays. Count bytes: add up their `{sizes}`.",
            _counted(size=lambda sizes, name: 1),
            ("sum(sizes[name] for name in moved)", "len(moved)"),
        ),
    },
)
