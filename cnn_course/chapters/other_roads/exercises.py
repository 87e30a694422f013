"""The checks of notebook 15, ``15_other_roads``: programs in OpenCL C, Triton and CUDA C++, and a tuner."""

import contextlib
import functools
import os
import re
from dataclasses import dataclass

import numpy as np

from cnn_course.chapters.other_roads.roads import missing, source, watched
from cnn_course.chapters.other_roads.roads.blocks import language
from cnn_course.chapters.other_roads.roads.complaints import fault_of, first_error
from cnn_course.chapters.other_roads.roads.cuda_cpp import CudaCpp
from cnn_course.chapters.other_roads.roads.opencl import OpenCL
from cnn_course.chapters.other_roads.roads.tuning import TARGETS, Candidate
from cnn_course.engine.checks.evidence import plain
from cnn_course.engine.checks.exercise import Exercise, Verdict, Wrong
from cnn_course.engine.checks.kernels import normal
from cnn_course.engine.checks.uninitialised import code_of, names_in
from cnn_numba import device
from gpuless.inspector import occupancy

# Behind each array that a program may write lies this, which it may not.
MARGIN, UNTOUCHED = 64, np.float32(-12345)
# Numbers of float32 in a page of memory, or in several.
PAGE = 4096


@dataclass(frozen=True, repr=False)
class RoadExercise(Exercise):
    """An exercise in another language: without its package there is nothing that could be judged.

    Parameters
    ----------
    languages : tuple of str
        Any of these will do; names of `cnn_course.chapters.other_roads.roads.missing`.
    broken : callable, optional
        Where a program is to be repaired: what the stub returns, given the first case's arguments.
    """

    languages: tuple = ()
    broken: object = None

    def __call__(self, attempt):
        """Check `attempt`, or say why that cannot be done here."""
        reasons = [missing(one) for one in self.languages]
        if all(reasons):
            return Verdict(self.name, "unsolved", f"It cannot be checked here. {' '.join(reasons)}")
        return super().__call__(getattr(attempt, "fn", attempt))  # Triton's kernels hold their function

    def _verdict(self, attempt):
        if self.broken and callable(attempt) and self._is_as_given(attempt):
            return self._unsolved("The program is still the one you were given.")
        return super()._verdict(attempt)

    def _is_as_given(self, attempt):
        given = self.inputs()[-1].args
        try:
            return _spaceless(attempt(*given[0].shape)) == _spaceless(self.broken(*given[0].shape))
        except Exception:
            return False  # the run of the cases reports it


def _spaceless(value):
    return tuple("".join(part.split()) if isinstance(part, str) else part for part in value)


def _without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


@functools.lru_cache(maxsize=4)
def _compiled(text):
    """Compile CUDA C++; the compiler's first complaint is shown in its own words."""
    try:
        return CudaCpp(text)
    except Exception as error:
        raise Wrong("does not compile", f"The compiler refuses it: {first_error(error)}.") from None


def _insist_on_text(text, name):
    if not isinstance(text, str):
        raise Wrong("not a text", f"The program is a text, and you return a {type(text).__name__}.")
    if not re.search(rf"\b{name}\s*\(", text):
        raise Wrong("another name", f"The kernel is to be called `{name}`: that is what the launch asks for.")


def _launched(road, name, grid, block, given, size, *numbers, before=0):
    """Launch a kernel that fills `size` numbers; return them, once it is known that it wrote no others.

    `before` so many numbers lie before those that it is given.
    """
    d_given = road.array(np.concatenate([np.zeros(before, np.float32), given.ravel()]))
    d_given = d_given[before:] if before else d_given
    d_out = road.array(np.concatenate([np.full(size, np.nan, np.float32), np.full(MARGIN, UNTOUCHED)]))
    try:
        road.launch(name, grid, block, d_given, d_out, *numbers)
        out = road.host(d_out)
    except Exception as error:
        raise Wrong(*_fault(error)) from None
    if not (out[size:] == UNTOUCHED).all():
        raise Wrong("writes past the edge", f"It writes past the end of `out`, which has {size} numbers.")
    return out[:size]


_OUT_OF_BOUNDS = "It touches memory that belongs to no array, or to no place of a shared one."


def _fault(error):
    kind = fault_of(error)
    if kind == "address":
        return "out of bounds", _OUT_OF_BOUNDS
    if kind == "barrier":
        return "divergent barrier", "Some threads wait at a barrier for ever, as others never reach it."
    return "fails", f"The launch fails: {plain(str(error)).strip().splitlines()[0]}"


# --- From Numba to OpenCL ----------------------------------------------------------------------------------

GROUP, ROUNDS = 64, 6


def _block_sums(x, tree=lambda part: part.sum(), tail=0.0):
    groups = -(-x.size // GROUP)
    full = np.full(groups * GROUP, tail)
    full[: x.size] = x
    return np.array([tree(part) for part in full.reshape(groups, GROUP)])


def _run_block_sums(attempt, x):
    """Compile and run the kernel as CUDA C++, then in OpenCL; that order names faults, and does no harm."""
    text = attempt()
    _insist_on_text(text, "block_sums")
    # OpenCL C has these words without underscores, too.
    code = re.sub(r"\b(kernel|global|local)\b", r"__\1", _without_comments(text))
    _insist_on_words(code)
    if not device.simulated():
        _refuse_what_is_seen(code)
    if not re.search(r"\b(for|while)\b.*barrier|barrier.*barrier.*barrier", code, re.DOTALL):
        raise _no_barrier("Between two rounds of the tree there is no `barrier`")
    groups, result = -(-x.size // GROUP), None
    if not device.simulated():
        road = _compiled(source("opencl_words.h") + code)
        result = _launched(road, "block_sums", groups, GROUP, x, groups, x.size)
    if result is None or (not missing("OpenCL") and np.allclose(result, _block_sums(x), atol=1e-4)):
        result = _launched(_built(text), "block_sums", (groups * GROUP,), (GROUP,), x, groups, x.size)
    return result


def _insist_on_words(code):
    if "__shared__" in code:
        raise Wrong("a word of CUDA", "`__shared__` is CUDA's word: in OpenCL it is `__local`.")
    if re.search(r"\bint\b[^;()]*\bhalf\b", code):
        raise Wrong("half", "`half` is the name of a type in OpenCL: call the step otherwise.")
    if "__local" not in code:
        raise Wrong("no local memory", "The tree is to stand in local memory: `__local float partial[64];`.")
    if re.search(r"\bif\s*\([^;{}]*\)\s*(\{[^{}]*)?barrier", code):
        raise Wrong(
            "divergent barrier",
            "A `barrier` stands in an `if`, and some work-items never come to it. Here they are not waited "
            "for; on other devices that is not promised. Put it behind the `if`.",
        )
    if any("CLK_LOCAL_MEM_FENCE" not in fence for fence in re.findall(r"barrier\s*\(([^)]*)\)", code)):
        raise Wrong(
            "another fence",
            "A `barrier` has to make what stands in local memory visible: `barrier(CLK_LOCAL_MEM_FENCE)`.",
        )


def _no_barrier(where):
    return Wrong(
        "missing barrier",
        f"{where}: a work-item adds what another may not have written yet. On one device that is seen, on "
        "the next it is not.",
    )


@functools.lru_cache(maxsize=4)
def _watched(code):
    # Of 64 work-items, 40 have a number.
    return watched.watch(code, "block_sums", np.ones(16 * GROUP, np.float32), 40)


def _refuse_what_is_seen(code):
    """Raise `Wrong` if work-items touch the local array as they may not, though the sums be right."""
    seen = _watched(code)
    if seen is None:
        return
    for touch in seen.touches:
        if touch.how == watched.OUTSIDE:
            raise Wrong(
                "past the local array",
                f"Work-item {touch.item} touches `{seen.array}[{touch.place}]`, and the array has "
                f"{seen.size} places. What lies there is not yours.",
            )
    if len(set(seen.barriers)) > 1:
        raise Wrong(
            "leaves early",
            "Work-items without a number leave before a `barrier`, and put no 0 into the tile. All of a "
            "group have to come to each barrier: let the `if` hold for the number alone.",
        )
    if found := watched.race(seen):
        writes, touches = found
        what = "writes it, too" if touches.how == watched.WRITTEN else "reads it"
        where = (
            f"Work-item {writes.item} writes `{seen.array}[{writes.place}]`, work-item {touches.item} "
            f"{what}, and no `barrier` stands between"
        )
        if max(seen.barriers) < ROUNDS + 1:
            raise _no_barrier(where)
        raise Wrong(
            "race", f"{where}. In a round, only the items below `step` may add: the others are read from."
        )
    if sum(touch.item == 0 and touch.how == watched.READ for touch in seen.touches) > GROUP // 2:
        raise Wrong(
            "one item adds", "One work-item adds up all of them, and 63 wait. A tree takes six rounds."
        )


@functools.lru_cache(maxsize=4)
def _built(text):
    try:
        with _quiet():
            return OpenCL(text)
    except Exception as error:
        message = f"OpenCL's compiler refuses it: {first_error(error)}."
        raise Wrong("does not compile", message) from None


@contextlib.contextmanager
def _quiet():
    """Keep back what a library in C writes to the standard error by itself, such as "3 errors generated"."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


block_sums_source = RoadExercise(
    "block_sums_source",
    reference=_block_sums,
    cases=lambda rng: [(normal(rng, size) + np.float32(1),) for size in (64, 5, 200, 321, 1000)],
    run=_run_block_sums,
    rtol=1e-5,
    languages=("CUDA C++", "OpenCL"),
    mistakes={
        "no guard": (
            "The last group reads past the end of `{x}`: work-items from `n` on must put a 0 into the tile.",
            lambda x: np.where(np.arange(-(-x.size // GROUP)) < x.size // GROUP, _block_sums(x), np.nan),
            ("i < n ? x[i] : 0.0f", "x[i]"),
        ),
        "first group only": (
            "Every group sums up the first one's numbers: use `get_global_id`, not `get_local_id`.",
            lambda x: np.full(-(-x.size // GROUP), _block_sums(x[:GROUP])[0]),
            ("i = get_global_id(0)", "i = get_local_id(0)"),
        ),
        "no tree": (
            "You write the group's first number: nothing has been added to it.",
            lambda x: _block_sums(x, lambda part: part[0]),
            ("if (t < step) partial[t] += partial[t + step];", ""),
        ),
        "one round too few": (
            "The last round is missing, in which place 0 gets what place 1 holds.",
            lambda x: _block_sums(x, lambda part: part[::2].sum()),
            ("step > 0", "step > 1"),
        ),
        "one round too many": (
            "Half of the numbers are not in the sum: the first round adds the upper 32 to the lower 32.",
            lambda x: _block_sums(x, lambda part: part[:32].sum()),
            ("int step = 32", "int step = 16"),
        ),
        "not written": (
            "Nothing arrives in `out[get_group_id(0)]`.",
            lambda x: np.full(-(-x.size // GROUP), np.nan),
            ("if (t == 0) out[get_group_id(0)] = partial[0];", ""),
        ),
    },
)

# --- A program for a row -----------------------------------------------------------------------------------

EPS = 1e-5


def _standardise(x, mean=None, variance=None, rows=None):
    x = np.float64(x)
    mean = x.mean(axis=1, keepdims=True) if mean is None else mean
    variance = ((x - mean) ** 2).mean(axis=1, keepdims=True) if variance is None else variance
    return (x - mean) / np.sqrt(variance + EPS)


def _next_power(size):
    return 1 << int(size - 1).bit_length()


def _block_of(x):
    return _next_power(x.shape[1])


def _padded(x, fill):
    """Return the rows as long as a block, filled up."""
    return np.pad(np.float64(x), ((0, 0), (0, _block_of(x) - x.shape[1])), constant_values=fill)


def _zeros_in_variance(x):
    mean = x.mean(axis=1, keepdims=True)
    filled = _padded(x, 0)
    return _standardise(x, mean, ((filled - mean) ** 2).sum(axis=1, keepdims=True) / x.shape[1])


def _divided_by_the_block(x):
    mean = x.sum(axis=1, keepdims=True) / _block_of(x)
    return _standardise(x, mean, ((x - mean) ** 2).sum(axis=1, keepdims=True) / _block_of(x))


def _blocks(x):
    """Return what each program's block holds that masks nothing."""
    flat = np.concatenate([np.float64(x).ravel(), np.full(_block_of(x), np.nan)])
    return flat[np.arange(len(x))[:, None] * x.shape[1] + np.arange(_block_of(x))]


def _unmasked(x, in_variance):
    mean = _blocks(x).sum(axis=1, keepdims=True) / x.shape[1]
    return _standardise(x, mean, ((in_variance - mean) ** 2).sum(axis=1, keepdims=True) / x.shape[1])


class Addresses:
    """What a program's loads and stores ask for, looked at before the interpreter does it.

    Where an array lies in memory differs from run to run, and no finding says it.

    Parameters
    ----------
    arrays : dict of str to int
        For each array's name its address.
    rows, columns : int
    """

    def __init__(self, arrays, rows, columns):
        self.arrays, self.rows, self.columns = arrays, rows, columns
        self.stored, self.finding = set(), None

    def __call__(self, program, addresses, mask, is_store):
        """Note one load or store; raise `Wrong` before it touches memory outside of the arrays."""
        columns, reach = self.columns, self.rows * self.columns + _next_power(self.columns)
        addresses, mask = np.broadcast_arrays(np.int64(addresses), mask)
        begins = {name: int(addresses.flat[0] - base) // 4 for name, base in self.arrays.items()}
        name = min(begins, key=lambda name: abs(begins[name]))
        if not -reach <= begins[name] <= reach:  # from which array it was counted, an address does not show
            self._refuse(
                "row begins elsewhere" if addresses.size > 1 else "out of bounds",
                f"Program {program} goes far from `{'` and `'.join(begins)}`: its row, of {columns} numbers, "
                f"begins at place {program * columns}. `program_id` rows lie before it.",
            )
        if is_store:
            self.stored.add(name)
        begins, places = begins[name], (addresses.ravel() - self.arrays[name]) // 4
        asked = places[mask.ravel()]
        if places.size > 1 and begins not in (0, program * columns):
            self._refuse(
                "row begins elsewhere",
                f"Program {program} begins at place {begins} of `{name}`, and its row, of {columns} numbers, "
                f"at place {program * columns}: `program_id` rows lie before it.",
            )
        if begins and not asked.size:
            self._refuse(
                "mask on the address",
                f"Program {program} masks all of its row out. The mask asks for the place in the row, "
                "`k < columns`, and not for the address.",
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


# What of Triton's interpreter touches memory: which argument holds the pointers, which the mask.
_TOUCHING = {
    "create_masked_load": (0, 1),
    "create_masked_store": (0, 2),
    "create_atomic_rmw": (1, 3),
    "create_atomic_cas": (0, None),
}


@contextlib.contextmanager
def _looked_at(addresses):
    """Have all that touches memory in Triton's interpreter shown to `addresses` first."""
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


def _run_rows(attempt, x):
    """Interpret the program, each array amid others of NaN, so that what lies beside it is no number."""
    triton, _ = language()
    import torch

    if {"np", "numpy"} & set(names_in(code_of(attempt))):
        raise Wrong("NumPy", "Here NumPy works, as Triton interprets; compiled, there is only `tl`.")
    rows, columns = x.shape
    margin = _block_of(x)
    # Both lie in one piece of memory, further apart than what a place may be beside an array.
    given, _, out = np.full((3, x.size + 2 * margin), np.nan, np.float32)
    given[margin:-margin] = x.ravel()
    out[:margin] = out[-margin:] = UNTOUCHED
    tensors = [torch.from_numpy(array)[margin:] for array in (given, out)]
    bases = dict(zip(("x", "out"), (tensor.data_ptr() for tensor in tensors), strict=True))
    addresses = Addresses(bases, rows, columns)
    try:
        with _looked_at(addresses):
            triton.jit(attempt)[(rows,)](*tensors, columns, BLOCK=margin)
    except Exception as error:
        raise (addresses.finding or Wrong("raises", f"Triton stops: {plain(str(error))}")) from None
    if "out" not in addresses.stored:
        into = " You store into `x`." if addresses.stored else " There is no `tl.store`."
        raise Wrong("nothing stored", f"Nothing arrives in `out`.{into}")
    if not (out[-margin:] == UNTOUCHED).all():
        raise Wrong(
            "writes past the edge",
            "A program writes all of its block, past the end of the row: the store needs the mask as well.",
        )
    return out[margin:-margin].reshape(x.shape)


def _row_cases(rng):
    for shape in ((1, 8), (1, 5), (3, 7), (4, 17), (5, 30)):
        yield (3 * normal(rng, shape) + np.float32(2),)
    # Rows of nearly the same numbers, and of the same: there the 1e-5 counts.
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
            "The mean is right, the variance is not: what the mask filled up with 0 differs from the mean, "
            "and counts. Set the difference to 0 there: `tl.where`.",
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
            "Every program works on row 0: `tl.program_id(0)` says which one is its own.",
            lambda x: np.where(np.arange(len(x))[:, None] < 1, _standardise(x), np.nan),
            ("tl.program_id(0) * columns + k", "k"),
        ),
        "one number less": (
            "You divide the squares by one less than there are.",
            lambda x: _standardise(x, variance=x.astype(np.float64).var(axis=1, ddof=1, keepdims=True)),
            ("(distance * distance, axis=0) / columns", "(distance * distance, axis=0) / (columns - 1)"),
        ),
        "not rooted": (
            "You divide by the variance, and not by its root.",
            lambda x: (x - x.mean(axis=1, keepdims=True)) / (np.float64(x).var(axis=1, keepdims=True) + EPS),
            ("tl.sqrt(variance + 1e-5)", "(variance + 1e-5)"),
        ),
        "without the 1e-5": (
            "Right, but where a row's numbers are nearly the same: add 1e-5 to the variance, under the root.",
            _with_deviation(np.sqrt),
            _with_deviation(lambda variance: np.sqrt(variance + 1e-3)),
            _with_deviation(lambda variance: np.sqrt(variance) + 1e-5),
            ("variance + 1e-5", "variance"),
            ("1e-5", "1e-3"),
            ("tl.sqrt(variance + 1e-5)", "(tl.sqrt(variance) + 1e-5)"),
        ),
        "mean not taken away": (
            "You divide the numbers themselves: their mean is to be taken away first.",
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

# --- A program in CUDA C++, repaired -----------------------------------------------------------------------

THREADS, WARP, MOST_THREADS = 256, 32, 1024


def _pool(maps):
    return _windows(maps).max(axis=0)


def _windows(maps):
    height, width = maps.shape[1] // 2 * 2, maps.shape[2] // 2 * 2
    return np.stack([maps[:, i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)])


def _rounded_down(maps):
    pooled = _pool(maps)
    flat = pooled.ravel().copy()
    flat[flat.size // THREADS * THREADS :] = np.nan
    return flat.reshape(pooled.shape)


def _pool_with(maps, row_length=None, plane_length=None, down=2, across=2, below=None):
    """Pool as if rows and planes were so long, windows so far apart, and a window's second row `below`."""
    channels, height, width = maps.shape
    row_length = width if row_length is None else row_length
    plane_length = height * width if plane_length is None else plane_length
    below = row_length if below is None else below
    c, h, w = np.indices((channels, height // 2, width // 2))
    first = c * plane_length + down * h * row_length + across * w
    flat = np.concatenate([maps.ravel(), np.zeros(4 * width, maps.dtype)])
    return np.max([flat[first + i * below + j] for i in (0, 1) for j in (0, 1)], axis=0)


# What `nvcc` takes from a header that NVRTC does without.
_INFINITY = "#define INFINITY __int_as_float(0x7f800000)\n"

_BROKEN = r"""
extern "C" __global__ void max_pool(const float *maps, float *out, int channels, int height, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[2 * i] = maps[i];
}
"""


def _broken_pooling(channels, height, width):
    return _BROKEN, channels * height * width // 4 // THREADS, THREADS


def _run_pooling(attempt, maps):
    program = attempt(*maps.shape)
    if not (isinstance(program, tuple) and len(program) == 3):
        raise Wrong(
            "not a program", "Return a tuple of three: the source, the blocks, and the threads of a block."
        )
    text, blocks, threads = program
    _insist_on_text(text, "max_pool")
    _insist_on_a_launch(maps, blocks, threads)
    if 'extern "C"' not in _without_comments(text):
        raise Wrong(
            "no extern",
            'Without `extern "C"` the compiler adds the types of the parameters to the name, and the launch '
            "finds no `max_pool`.",
        )
    channels, height, width = maps.shape
    size = channels * (height // 2) * (width // 2)
    road = _compiled_as_written(_INFINITY + text)
    numbers = size, channels, height, width
    before = -maps.size % PAGE  # behind the last number begins memory that belongs to no array
    try:
        out = _launched(road, "max_pool", int(blocks), int(threads), maps, *numbers, before=before)
    except Wrong as found:
        if found.mistake != "out of bounds":
            raise
        raise Wrong(
            "out of bounds",
            f"{_OUT_OF_BOUNDS} Is a thread with no place in `out` gone before it reads, and is each address "
            "within `maps`?",
        ) from None
    return out.reshape(channels, height // 2, width // 2)


def _compiled_as_written(text):
    """Compile with loads that stay where they stand: the compiler would put early ones behind the guard."""
    try:
        return _compiled(re.sub(r"\bconst\s+float\s*\*", "const volatile float *", text))
    except Wrong:
        return _compiled(text)


def _insist_on_a_launch(maps, blocks, threads):
    for name, number in (("number of blocks", blocks), ("number of threads", threads)):
        if not isinstance(number, (int, np.integer)):
            raise Wrong("not whole", f"The {name} is to be a whole number, and you return {number!r}.")
    if blocks < 1:
        raise Wrong(
            "rounded down",
            f"For {maps.shape} you launch {blocks} blocks: the number of blocks is rounded down, and what "
            "fills no block is never computed.",
        )
    if not WARP <= threads <= MOST_THREADS:
        raise Wrong(
            "threads of a block",
            f"For {maps.shape} you launch {blocks} blocks of {threads} threads; a block has a warp of {WARP} "
            f"or more, and {MOST_THREADS} at most. The number of blocks comes first, then that of threads.",
        )


pooling_program = RoadExercise(
    "pooling_program",
    reference=_pool,
    cases=lambda rng: [
        (normal(rng, shape) - np.float32(1),)
        for shape in ((1, 32, 32), (2, 6, 4), (3, 11, 13), (4, 26, 27), (2, 40, 31))
    ],
    run=_run_pooling,
    languages=("CUDA C++",),
    broken=_broken_pooling,
    mistakes={
        "rounded down": (
            "The number of blocks is rounded down: what fills no whole block is never computed.",
            _rounded_down,
            ("-(-places // 256)", "places // 256"),
        ),
        "no maximum": (
            "One number of each four is kept, whichever it is: no largest is taken.",
            *(lambda maps, k=k: _windows(maps)[k] for k in range(4)),
            ("fmaxf(above, below)", "four[0]"),
        ),
        "one row only": (
            "You compare two numbers of each window, and there are four: two in a row, and two below them.",
            lambda maps: _windows(maps)[:2].max(axis=0),
            ("fmaxf(above, below)", "above"),
        ),
        "smallest": (
            "You keep the smallest of each four.",
            lambda maps: _windows(maps).min(axis=0),
            ("fmaxf", "fminf", 3),
        ),
        "windows overlap": (
            "Windows overlap: a place further in `out` is two further in `{maps}`, across and down.",
            lambda maps: _pool_with(maps, down=1),
            lambda maps: _pool_with(maps, across=1),
            lambda maps: _pool_with(maps, down=1, across=1),
            ("2 * row", "row"),
            ("2 * column", "column"),
        ),
        "first channel only": (
            "Every channel of `out` is made from the first one of `{maps}`.",
            lambda maps: _pool_with(maps, plane_length=0),
            ("c * height + 2 * row", "2 * row"),
        ),
        "row of out": (
            "The number below is a row of `{maps}` further on, `four[width]`, and not a row of `out`.",
            lambda maps: _pool_with(maps, below=maps.shape[2] // 2),
            [("four[width]", "four[w]"), ("four[width + 1]", "four[w + 1]")],
        ),
        "from 0": (
            "Where all four are negative you get 0: begin with one of the four.",
            lambda maps: np.maximum(_pool(maps), 0),
            ("fmaxf(above, below)", "fmaxf(0, fmaxf(above, below))"),
        ),
        "mean": (
            "You take the mean of each four. Max-pooling keeps the largest.",
            lambda maps: _windows(maps).mean(axis=0),
            ("fmaxf(above, below)", "(four[0] + four[1] + four[width] + four[width + 1]) / 4"),
        ),
        "odd width": (
            "Right for even widths. A row of `{maps}` is `width` long, twice the row of `out` or one more.",
            lambda maps: _pool_with(maps, maps.shape[2] // 2 * 2, maps.shape[1] * maps.shape[2]),
            lambda maps: _pool_with(
                maps, maps.shape[2] // 2 * 2, maps.shape[1] // 2 * 2 * (maps.shape[2] // 2 * 2)
            ),
            [
                ("(c * height + 2 * row) * width", "c * height * width + 2 * row * 2 * w"),
                ("four[width]", "four[2 * w]"),
                ("four[width + 1]", "four[2 * w + 1]"),
            ],
            [
                ("(c * height + 2 * row) * width", "(c * 2 * h + 2 * row) * 2 * w"),
                ("four[width]", "four[2 * w]"),
                ("four[width + 1]", "four[2 * w + 1]"),
            ],
        ),
        "odd height": (
            "Right for even heights. A channel of `{maps}` has `height` rows, perhaps one more than `2 * h`.",
            lambda maps: _pool_with(maps, maps.shape[2], maps.shape[1] // 2 * 2 * maps.shape[2]),
            ("(c * height + 2 * row)", "(c * 2 * h + 2 * row)"),
        ),
    },
)

# --- The auto-tuner ----------------------------------------------------------------------------------------

ENOUGH_WARPS = 16


class Judge:
    """Says whether a candidate is right, and counts how often it is asked."""

    def __init__(self, right):
        self.right, self.asked = right, []

    def __call__(self, candidate):
        """Answer for one candidate."""
        self.asked.append(candidate)
        return candidate in self.right

    def __repr__(self):
        return f"a function that finds {len(self.right)} right"


class Candidates(list):
    """Candidates that a verdict shows in few words."""

    def __repr__(self):
        return f"[{len(self)} candidates, the first {self[0].name}]"


def _up(a, b):
    return -(-a // b)


def _time(one, m, n, depth, gpu, up=_up, of_parts=max, bytes_of=None, enough=ENOUGH_WARPS, **slip):
    """Return the model's seconds; None for what does not fit."""
    if one.threads > MOST_THREADS:
        return None
    held = occupancy(gpu.cc, one.threads, one.registers, one.shared)
    if not held.blocks:
        return None
    blocks = up(m, one.tile_m) * up(n, one.tile_n)
    numbers = (
        blocks * depth * (one.tile_m + one.tile_n) + m * n
        if bytes_of is None
        else bytes_of(one, blocks, m, n, depth)
    )
    memory = 4 * numbers / gpu.bandwidth
    at_once = gpu.sms * held.blocks if slip.get("waves") else gpu.sms
    rounds = up(blocks, at_once) if slip.get("tail", True) else blocks / at_once
    work = rounds * slip.get("operations", 2) * one.tile_m * one.tile_n * depth
    arithmetic = work / (gpu.flops / gpu.sms * min(1, held.warps / enough))
    return of_parts((memory, arithmetic))


def _tune(candidates, m, n, depth, gpu, is_right, worst=False, ask=True, last=False, **model):
    times = {place: _time(one, m, n, depth, gpu, **model) for place, one in enumerate(candidates)}
    times = dict(reversed(times.items())) if last else times
    fitting = sorted((place for place in times if times[place] is not None), key=times.get, reverse=worst)
    for place in fitting:
        if not ask or is_right(candidates[place]):
            return place, times[place]
    raise ValueError("no candidate is right")


def _candidate(rng):
    per_m, per_n = (int(rng.choice([1, 2, 4, 8])) for _ in range(2))
    down, across = (int(rng.choice([4, 8, 16, 32])) for _ in range(2))
    tile_k = int(rng.choice([4, 8, 16, 32, 64]))
    tile_m, tile_n = per_m * down, per_n * across
    registers = 24 + 2 * per_m * per_n + int(rng.integers(0, 6))
    shared = 4 * tile_k * (tile_m + tile_n)
    return Candidate(tile_m, tile_n, tile_k, per_m, per_n, down * across, registers, shared)


_OF_THE_NOTEBOOK = (
    (16, 16, 16, 1, 1, 256, 25, 2048),
    (32, 32, 16, 2, 2, 256, 32, 4096),
    (64, 64, 4, 2, 2, 1024, 30, 2048),
    (64, 64, 16, 4, 4, 256, 56, 8192),
    (128, 64, 16, 8, 4, 256, 92, 12288),
    (64, 64, 8, 1, 1, 4096, 19, 4096),
    (128, 128, 64, 4, 4, 1024, 80, 65536),
)


def _tunings(rng):
    for number in range(16):
        sizes = [int(size) for size in rng.choice([48, 100, 333, 1000, 2500], 3)]
        gpu = TARGETS[number % 2]
        # What does not fit, and would be fast, and others, of which no two take the same time.
        found = {_time(one, *sizes, gpu): one for one in (_candidate(rng) for _ in range(12))}
        candidates = Candidates([*found.values(), Candidate(256, 128, 64, 8, 8, 512, 96, 98304)])
        right = frozenset(one for one in candidates if rng.random() < 0.6)
        yield candidates, *sizes, gpu, Judge(frozenset() if number == 11 else right)
    # The notebook's: one has 4096 threads, two take the same time, and a multiprocessor holds several blocks.
    candidates = Candidates(Candidate(*one) for one in _OF_THE_NOTEBOOK)
    for sizes in ((1024,) * 3, (960, 1100, 2000)):
        for right in (frozenset(candidates), frozenset(candidates) - {candidates[2]}):
            yield candidates, *sizes, TARGETS[1], Judge(right)


def _asks_as_often_as_it_must(attempt):
    """Raise `Wrong` if candidates are judged that need not be."""
    for candidates, *sizes, gpu, judge in _tunings(np.random.default_rng(1)):
        needed, asked = Judge(judge.right), Judge(judge.right)
        try:
            _tune(candidates, *sizes, gpu, needed)
            attempt(candidates, *sizes, gpu, asked)
        except ValueError:
            continue
        if len(asked.asked) > len(needed.asked):
            raise Wrong(
                "all are checked",
                f"The answer is right, and `is_right` was asked {len(asked.asked)} times where "
                f"{len(needed.asked)} would do. It compiles and runs a kernel: rank first, then ask from the "
                "fastest on, and stop at the first that is right.",
            )


def _division_by_no_warps(candidates, m, n, depth, gpu, is_right):
    if any(one.threads <= MOST_THREADS and not occupancy(gpu.cc, *one[5:]).blocks for one in candidates):
        raise ZeroDivisionError
    return _tune(candidates, m, n, depth, gpu, is_right)


def _refused_threads(candidates, m, n, depth, gpu, is_right):
    if any(one.threads > MOST_THREADS for one in candidates):
        raise ValueError
    return _tune(candidates, m, n, depth, gpu, is_right)


tune = Exercise(
    "tune",
    reference=_tune,
    cases=_tunings,
    properties=(_asks_as_often_as_it_must,),
    mistakes={
        "does not fit": (
            "A block that fits into no multiprocessor has 0 warps: skip it where `occupancy` returns no "
            "blocks, before you divide by the warps.",
            _division_by_no_warps,
            ("        if held.blocks == 0:\n            continue\n", ""),
        ),
        "too many threads": (
            f"`occupancy` refuses the candidate with more than {MOST_THREADS} threads: leave it out first.",
            _refused_threads,
            ("        if one.threads > 1024:\n            continue\n", ""),
        ),
        "last of equals": (
            "Of two that are equally fast, you take the last in the list. Take the first.",
            functools.partial(_tune, last=True),
            [
                ("append((max(memory, arithmetic), place))", "append((max(memory, arithmetic), -place))"),
                ("is_right(candidates[place])", "is_right(candidates[-place])"),
                ("return place, time", "return -place, time"),
            ],
        ),
        "waves": (
            "Blocks that a multiprocessor holds at the same time share its arithmetic: a round is one block "
            "for each multiprocessor, `blocks / sms`, however many it holds.",
            functools.partial(_tune, waves=True),
            ("-(-blocks // gpu.sms)", "-(-blocks // (gpu.sms * held.blocks))"),
        ),
        "multiply-add as one": (
            "A multiply-add is two operations: a block has `2 * tile_m * tile_n * {depth}` of them.",
            functools.partial(_tune, operations=1),
            ("* 2 * one.tile_m", "* one.tile_m"),
        ),
        "tuple swapped": (
            "The place in the list comes first, then the time.",
            lambda *given: _tune(*given)[::-1],
            ("return place, time", "return time, place"),
        ),
        "not checked": (
            "Your choice is the fastest of the model, right or wrong. Ask `{is_right}`.",
            functools.partial(_tune, ask=False),
            ("if is_right(candidates[place]):", "if True:"),
        ),
        "slowest": (
            "You take the slowest.",
            functools.partial(_tune, worst=True),
            ("sorted(ranking)", "sorted(ranking, reverse=True)"),
        ),
        "sum of both": (
            "You add the two times. Memory and arithmetic work at the same time: the longer one counts.",
            functools.partial(_tune, of_parts=sum),
            ("max(memory, arithmetic)", "memory + arithmetic"),
        ),
        "shorter of both": (
            "You take the shorter of the two times: the longer one is waited for.",
            functools.partial(_tune, of_parts=min),
            ("max(memory, arithmetic)", "min(memory, arithmetic)"),
        ),
        "rounded down": (
            "Round up: tiles that stick out of the matrix count whole, and so does a last block.",
            functools.partial(_tune, up=lambda a, b: max(1, a // b)),
            functools.partial(_tune, up=lambda a, b: a // b),
            [
                (
                    "-(-m // one.tile_m) * -(-n // one.tile_n)",
                    "max(1, m // one.tile_m) * max(1, n // one.tile_n)",
                ),
                ("-(-blocks // gpu.sms)", "max(1, blocks // gpu.sms)"),
            ],
        ),
        "no tail": (
            "You share the blocks out in fractions. The busiest multiprocessor decides: round up.",
            functools.partial(_tune, tail=False),
            ("-(-blocks // gpu.sms)", "blocks / gpu.sms"),
        ),
        "occupancy ignored": (
            "Few warps do not keep the arithmetic busy: below 16, only `warps / 16` of its speed counts.",
            functools.partial(_tune, enough=1e-9),
            (" * min(1, held.warps / 16)", ""),
        ),
        "tile read once": (
            "A block reads as many columns of `a`, and rows of `b`, as `{depth}` says, each as long as its "
            "tile: `{depth} * (tile_m + tile_n)` numbers.",
            functools.partial(
                _tune,
                bytes_of=lambda one, blocks, m, n, depth: (
                    blocks * one.tile_k * (one.tile_m + one.tile_n) + m * n
                ),
            ),
            functools.partial(_tune, bytes_of=lambda one, blocks, m, n, depth: m * depth + depth * n + m * n),
            ("(blocks * depth * (", "(blocks * one.tile_k * ("),
        ),
        "results not written": (
            "The results have to be written, too: `{m} * {n}` numbers.",
            functools.partial(
                _tune, bytes_of=lambda one, blocks, m, n, depth: blocks * depth * (one.tile_m + one.tile_n)
            ),
            (" + m * n) / gpu", ") / gpu"),
        ),
    },
)
