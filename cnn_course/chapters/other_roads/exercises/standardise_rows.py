"""One Triton program per row."""

import contextlib

import numpy as np

from cnn_course.chapters.other_roads.exercises.common import UNTOUCHED, RoadExercise
from cnn_course.chapters.other_roads.roads.blocks import language
from cnn_course.engine.checks import errors
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import normal
from cnn_course.engine.checks.uninitialised import code_of, names_in

EPS = 1e-5


def _standardise(x, mean=None, variance=None):
    x = np.float64(x)
    mean = x.mean(axis=1, keepdims=True) if mean is None else mean
    variance = ((x - mean) ** 2).mean(axis=1, keepdims=True) if variance is None else variance
    return (x - mean) / np.sqrt(variance + EPS)


def _next_power(size):
    return 1 << int(size - 1).bit_length()


def _block_of(x):
    return _next_power(x.shape[1])


def _padded(x, fill):
    """Return the rows, padded to the length of a block."""
    return np.pad(np.float64(x), ((0, 0), (0, _block_of(x) - x.shape[1])), constant_values=fill)


def _zeros_in_variance(x):
    mean = x.mean(axis=1, keepdims=True)
    filled = _padded(x, 0)
    return _standardise(x, mean, ((filled - mean) ** 2).sum(axis=1, keepdims=True) / x.shape[1])


def _divided_by_the_block(x):
    mean = x.sum(axis=1, keepdims=True) / _block_of(x)
    return _standardise(x, mean, ((x - mean) ** 2).sum(axis=1, keepdims=True) / _block_of(x))


def _blocks(x):
    """Return the block of each program without a mask."""
    flat = np.concatenate([np.float64(x).ravel(), np.full(_block_of(x), np.nan)])
    return flat[np.arange(len(x))[:, None] * x.shape[1] + np.arange(_block_of(x))]


def _unmasked(x, in_variance):
    mean = _blocks(x).sum(axis=1, keepdims=True) / x.shape[1]
    return _standardise(x, mean, ((in_variance - mean) ** 2).sum(axis=1, keepdims=True) / x.shape[1])


class Addresses:
    """Checks the addresses of a program's loads and stores before the interpreter uses them.

    Addresses differ from run to run, so findings name places in arrays instead.

    Parameters
    ----------
    arrays : dict of str to int
        The address of each array, by name.
    rows, columns : int
    """

    def __init__(self, arrays, rows, columns):
        self.arrays, self.rows, self.columns = arrays, rows, columns
        self.stored, self.finding, self.widest = set(), None, 0

    def __call__(self, program, addresses, mask, is_store):
        """Record one load or store; raise `Wrong` before it accesses memory outside of the arrays."""
        columns, reach = self.columns, self.rows * self.columns + _next_power(self.columns)
        addresses, mask = np.broadcast_arrays(np.int64(addresses), mask)
        begins = {name: int(addresses.flat[0] - base) // 4 for name, base in self.arrays.items()}
        name = min(begins, key=lambda name: abs(begins[name]))
        if not -reach <= begins[name] <= reach:  # an address does not show which array it belongs to
            self._refuse(
                "row begins elsewhere" if addresses.size > 1 else "out of bounds",
                f"Program {program} goes far from `{'` and `'.join(begins)}`: its row of {columns} numbers "
                f"begins at place {program * columns}, after `program_id` rows.",
            )
        if is_store:
            self.stored.add(name)
            self.widest = max(self.widest, addresses.size)
        begins, places = begins[name], (addresses.ravel() - self.arrays[name]) // 4
        asked = places[mask.ravel()]
        if places.size > 1 and begins not in (0, program * columns):
            self._refuse(
                "row begins elsewhere",
                f"Program {program} begins at place {begins} of `{name}`, but its row of {columns} numbers "
                f"begins at place {program * columns}, after `program_id` rows.",
            )
        if begins and not asked.size:
            self._refuse(
                "mask on the address",
                f"Program {program} masks out its whole row. In the mask, compare the place in the row, `k < "
                "columns`, not the address.",
            )
        outside = asked[(asked < 0) | (asked >= reach)]
        if outside.size:
            self._refuse(
                "out of bounds",
                f"Program {program} touches place {outside[0]} of `{name}`, which has "
                f"{self.rows * columns} numbers.",
            )

    def _refuse(self, mistake, message):
        self.finding = Wrong(mistake, message)
        raise self.finding


# The interpreter's functions that access memory: the arguments with the pointers and the mask.
_TOUCHING = {
    "create_masked_load": (0, 1),
    "create_masked_store": (0, 2),
    "create_atomic_rmw": (1, 3),
    "create_atomic_cas": (0, None),
}


@contextlib.contextmanager
def _checked_by(addresses):
    """Show each memory access of Triton's interpreter to `addresses` first."""
    from triton.runtime.interpreter import interpreter_builder as builder

    def shown(touch, pointers, mask, is_store):
        def look_and_touch(*given, **named):
            there = True if mask is None else given[mask].data
            addresses(builder.grid_idx[0], given[pointers].data, there, is_store)
            return touch(*given, **named)

        return look_and_touch

    for name, places in _TOUCHING.items():
        setattr(builder, name, shown(getattr(builder, name), *places, "load" not in name))
    try:
        yield
    finally:
        for name in _TOUCHING:
            delattr(builder, name)


def _stopped(error, attempt):
    """Return the finding of an exception, which Triton's interpreter wraps in its own."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    lines = (errors.line_of(each, attempt, "function") for each in chain)
    return Wrong("raises", f"Triton stops: {errors.text(chain[-1])}.", *next(filter(None, lines), ()))


def _run_rows(attempt, x):
    """Interpret the program, with NaN in memory on both sides of each array."""
    triton, _ = language()
    import torch

    if {"np", "numpy"} & set(names_in(code_of(attempt))):
        raise Wrong("NumPy", "NumPy works here because Triton interprets. A compiled program has only `tl`.")
    rows, columns = x.shape
    margin = _block_of(x)
    # Both lie in one allocation, further apart than a place may lie outside its array.
    given, _, out = np.full((3, x.size + 2 * margin), np.nan, np.float32)
    given[margin:-margin] = x.ravel()
    out[:margin] = out[-margin:] = UNTOUCHED
    tensors = [torch.from_numpy(array)[margin:] for array in (given, out)]
    bases = dict(zip(("x", "out"), (tensor.data_ptr() for tensor in tensors), strict=True))
    addresses = Addresses(bases, rows, columns)
    try:
        with _checked_by(addresses):
            triton.jit(attempt)[(rows,)](*tensors, columns, BLOCK=margin)
    except Exception as error:
        raise (addresses.finding or _stopped(error, attempt)) from None
    if "out" not in addresses.stored:
        into = " You store into `x`." if addresses.stored else " There is no `tl.store`."
        raise Wrong("nothing stored", f"Nothing is stored in `out`.{into}")
    if addresses.widest < columns:
        raise Wrong(
            "number by number",
            "You store one number at a time, as a thread does. A program works on its whole row at once: "
            "`tl.arange(0, BLOCK)` gives a block of places, and one `tl.store` stores them all.",
        )
    if not (out[-margin:] == UNTOUCHED).all():
        raise Wrong(
            "writes past the edge",
            "A program writes its whole block, past the end of the row: the store needs the mask as well.",
        )
    return out[margin:-margin].reshape(x.shape)


def _row_cases(rng):
    for shape in ((1, 8), (1, 5), (3, 7), (4, 17), (5, 30)):
        yield (3 * normal(rng, shape) + np.float32(2),)
    # Rows of nearly equal and of equal numbers: there the 1e-5 matters.
    yield (np.concatenate([0.003 * normal(rng, (2, 6)), np.full((1, 6), 2, np.float32)]),)


def _with_deviation(deviation):
    return lambda x: (x - x.mean(axis=1, keepdims=True)) / deviation(np.float64(x).var(axis=1, keepdims=True))


standardise_rows = RoadExercise(
    "standardise_rows",
    reference=_standardise,
    cases=_row_cases,
    run=_run_rows,
    rtol=1e-4,
    languages=("Triton",),
    mistakes={
        "zeros in the variance": (
            "The variance counts the zeros that the mask filled in. Set their distance from the mean to 0: "
            "`tl.where`.",
            _zeros_in_variance,
            ("tl.where(there, values - mean, 0.0)", "values - mean"),
        ),
        "divided by the block": (
            "You divide by the length of the block. A row has `columns` numbers.",
            _divided_by_the_block,
            lambda x: _standardise(
                x,
                variance=((x - x.mean(axis=1, keepdims=True)) ** 2).sum(axis=1, keepdims=True) / _block_of(x),
            ),
            ("/ columns", "/ BLOCK", 2),
            ("tl.sum(distance * distance, axis=0) / columns", "tl.sum(distance * distance, axis=0) / BLOCK"),
        ),
        "first row only": (
            "Every program works on row 0: `tl.program_id(0)` is the number of its row.",
            lambda x: np.where(np.arange(len(x))[:, None] < 1, _standardise(x), np.nan),
            ("tl.program_id(0) * columns + k", "k"),
        ),
        "one number less": (
            "You divide the squares by `columns - 1`. Divide by `columns`.",
            lambda x: _standardise(x, variance=x.astype(np.float64).var(axis=1, ddof=1, keepdims=True)),
            ("(distance * distance, axis=0) / columns", "(distance * distance, axis=0) / (columns - 1)"),
        ),
        "not rooted": (
            "You divide by the variance. Divide by its root.",
            lambda x: (x - x.mean(axis=1, keepdims=True)) / (np.float64(x).var(axis=1, keepdims=True) + EPS),
            ("tl.sqrt(variance + 1e-5)", "(variance + 1e-5)"),
        ),
        "without the 1e-5": (
            "Right, except where a row's numbers are nearly equal: add 1e-5 to the variance, under the root.",
            _with_deviation(np.sqrt),
            _with_deviation(lambda variance: np.sqrt(variance + 1e-3)),
            _with_deviation(lambda variance: np.sqrt(variance) + 1e-5),
            ("variance + 1e-5", "variance"),
            ("1e-5", "1e-3"),
            ("tl.sqrt(variance + 1e-5)", "(tl.sqrt(variance) + 1e-5)"),
        ),
        "mean not taken away": (
            "You divide the numbers themselves: subtract their mean first.",
            lambda x: x / np.sqrt(np.float64(x).var(axis=1, keepdims=True) + EPS),
            ("tl.store(out + place, distance /", "tl.store(out + place, values /"),
        ),
        "no mask on the load": (
            "A block reads past the end of its row, even past the last one: the load needs a mask.",
            lambda x: _unmasked(x, x),
            lambda x: _unmasked(x, _blocks(x)),
            ("mask=there, other=0.0", ""),
        ),
    },
)
