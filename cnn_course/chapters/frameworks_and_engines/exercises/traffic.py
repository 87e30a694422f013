"""`traffic`: the memory traffic of fused kernels."""

from itertools import pairwise

from cnn_course.engine.checks.exercise import Exercise


def _counted(
    reads=lambda asked, made: set(asked) - made,
    keep=lambda made, others, results: made & (others | results),
    size=lambda sizes, name: sizes[name],
):
    """Return a count of the bytes of kernels, with one mistake."""

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
    """Return the bytes if loaded and stored arrays are counted as one set of names."""
    total = 0
    for kernel in kernels:
        made = {output for output, _ in kernel}
        asked = {name for _, inputs in kernel for name in inputs}
        others = {name for other in kernels if other is not kernel for _, inputs in other for name in inputs}
        total += sum(sizes[name] for name in asked | made & (others | set(results)))
    return total


def _next_only(kernels, sizes, results):
    """Return the bytes if an array is stored only for the next kernel, or as a result."""
    total = 0
    for place, kernel in enumerate(kernels):
        made = {output for output, _ in kernel}
        asked = {name for _, inputs in kernel for name in inputs}
        others = {name for other in kernels[place + 1 :][:1] for _, inputs in other for name in inputs}
        total += sum(sizes[name] for name in asked - made | made & (others | set(results)))
    return total


def _last_outputs(kernels, sizes, results):
    """Return the bytes if a kernel stores only the output of its last operation."""
    total = 0
    for kernel in kernels:
        made = {output for output, _ in kernel}
        asked = {name for _, inputs in kernel for name in inputs}
        total += sum(sizes[name] for name in asked - made) + sizes[kernel[-1][0]]
    return total


def _once_in_all(kernels, sizes, results):
    """Return the bytes if each array that is moved counts once."""
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
            "You store everything that a kernel computes. An array that only this kernel uses stays in "
            "registers.",
            _counted(keep=lambda made, others, results: made),
            ("(made & (others | set(results)))", "made"),
        ),
        "inner arrays read": (
            "You count an array that a kernel computes and uses. It's in registers, so it isn't loaded, and "
            "it's stored only if *another* kernel loads it or it's a result.",
            _counted(reads=lambda asked, made: set(asked)),
            _loads_inner_arrays,
            ("(asked - made) |", "asked |"),
            ("if k is not kernel ", ""),
        ),
        "inner arrays moved": (
            "You count arrays that one operation of a kernel computes for the next: they stay in registers.",
            _counted(reads=lambda asked, made: set(asked), keep=lambda made, others, results: made),
            ("for name in moved", "for names in (asked, made) for name in names"),
        ),
        "operation by operation": (
            "You count the loads and stores of each operation, as if nothing were fused: within a kernel, "
            "arrays stay in registers.",
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
            "You check only whether the next kernel loads an array. Any later kernel may.",
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
            "You count only loads. A kernel also stores arrays that other kernels need, and results.",
            _counted(keep=lambda made, others, results: ()),
            ("(asked - made) | (made & (others | set(results)))", "asked - made"),
        ),
        "nothing loaded": (
            "You count only stores. A kernel also loads arrays that it hasn't computed.",
            _counted(reads=lambda asked, made: ()),
            ("(asked - made) | (made & (others", "(made & (others"),
        ),
        "results forgotten": (
            "Arrays in `{results}` are stored, whether another kernel uses them or not.",
            _counted(keep=lambda made, others, results: made & others),
            ("(others | set(results))", "others"),
        ),
        "only results stored": (
            "You store only the results. Arrays that a later kernel loads must be stored too.",
            _counted(keep=lambda made, others, results: made & results),
            ("(others | set(results))", "set(results)"),
        ),
        "stored twice": (
            "A result that another kernel loads is still stored only once: take the set of names.",
            _counted(keep=lambda made, others, results: [*(made & others), *(made & results)]),
            (
                "(asked - made) | (made & (others | set(results)))",
                "[*(asked - made), *(made & others), *(made & set(results))]",
            ),
        ),
        "last outputs stored": (
            "You store only each kernel's last output. Store every array that another kernel needs.",
            _last_outputs,
            ("(made & (others | set(results)))", "{kernel[-1][0]}"),
        ),
        "once in all": (
            "You count each array once in total. Count it once for each kernel that loads or stores it.",
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
