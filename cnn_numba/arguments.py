"""Checks of arguments other than arrays, of indices, and how an error message shows a value.

Most functions return a valid value, or raise a TypeError or ValueError that calls the value `name`.
`SETTINGS` says once what a setting may be in every backend, layer and optimiser. Every module may import this
one, the references too; it imports only NumPy.
"""

import functools
import numbers
import operator
import reprlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

#: The most elements of an array or an axis on the GPU: the kernels index in 32 bits, which is faster.
MOST_ELEMENTS = 2**31 - 1
#: The largest float32: a larger setting would be infinite in the kernels.
LARGEST = float(np.finfo(np.float32).max)

_SHOWN = 5  # values of an array, a list or the like
_LONGEST = 200  # characters


class _Repr(reprlib.Repr):
    """A repr of bounded length."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxlong, self.maxother = 3, 60, 60, _LONGEST
        for name in ("tuple", "list", "array", "dict", "set", "frozenset", "deque"):
            setattr(self, f"max{name}", _SHOWN)

    def repr1(self, x: Any, level: int) -> str:
        if isinstance(x, np.dtype):
            return str(x)
        if isinstance(x, np.generic) or not hasattr(x, "dtype") or not hasattr(x, "shape"):
            return super().repr1(x, level)
        # The values of a device array, or of another library's, would have to be copied first.
        first = x.reshape(-1)[: _SHOWN + 1].tolist() if isinstance(x, np.ndarray) else []
        values = f": {super().repr1(first, level)[1:-1]}" if first else ""
        return f"{type(x).__name__} of shape {tuple(x.shape)} and dtype {str(x.dtype)[: _SHOWN * 10]}{values}"

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python refuses to print thousands of digits
            return f"an int of {x.bit_length()} bits"


_repr = _Repr()


def shown(value: object) -> str:
    """Return a value as text for a message: a long one shortened, an array as type, shape and first values.

    Examples
    --------
    >>> shown("1"), shown(np.zeros((2, 3)))
    ("'1'", 'ndarray of shape (2, 3) and dtype float64: 0.0, 0.0, 0.0, 0.0, 0.0, ...')
    >>> shown([*range(1000)])
    '[0, 1, 2, 3, 4, ...], a list of 1000'
    """
    text = " ".join(_repr.repr(value).split("\n"))
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    sized = (list, tuple, dict, set, frozenset, str, bytes)
    if isinstance(value, sized) and len(value) > _SHOWN and "..." in text:
        text = f"{text}, a {type(value).__name__} of {len(value)}"
    return text


def integer(
    value: object, name: str, minimum: int = 0, maximum: int | None = MOST_ELEMENTS, kind: str = "an int"
) -> int:
    """Return `value`, of any integer type but bool, as an int; a `maximum` of None is no limit."""
    return _integers((value,), kind, value, name, minimum, maximum)[0]


def _integers(
    entries: Sequence[Any], kind: str, value: object, name: str, minimum: int, maximum: int | None
) -> tuple[int, ...]:
    """Return `entries` as a tuple of int; errors say that `name` must be `kind`, and show `value`."""
    if not all(type(entry) is int or _is(numbers.Integral, entry) for entry in entries):
        raise TypeError(f"{name} must be {kind}, got {shown(value)}")
    result = tuple(map(operator.index, entries))
    if min(result) < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {shown(value)}")
    if maximum is not None and max(result) > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {shown(value)}")
    return result


def _is(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def pair(value: object, name: str, minimum: int = 1) -> tuple[int, int]:
    """Return an integer, or a pair of them (vertical, horizontal), as a pair of int."""
    if type(value) is int and minimum <= value <= MOST_ELEMENTS:  # the usual case; the rest takes 1 µs
        return value, value
    kind = "an int or a pair of ints"
    entries = value if isinstance(value, (tuple, list)) else (value, value)
    if len(entries) != 2:
        raise TypeError(f"{name} must be {kind}, got {shown(value)}")
    vertical, horizontal = _integers(entries, kind, value, name, minimum, MOST_ELEMENTS)
    return vertical, horizontal


def sizes(
    value: object, name: str, axes: str | None = None, minimum: int = 0, maximum: int | None = MOST_ELEMENTS
) -> tuple[int, ...]:
    """Return a shape as a tuple of int; without `axes` it has one or more axes."""
    kind = f"{axes or 'a tuple'} of ints"
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name} must be {kind}, got {shown(value)}")
    if not value or (axes and len(value) != axes.count(",") + 1):
        raise ValueError(f"{name} must be {axes or 'a tuple of one or more ints'}, got {shown(tuple(value))}")
    return _integers(value, kind, value, name, minimum, maximum)


def number(
    value: Any, name: str, low: float = 0.0, high: float = LARGEST, without: Collection[float] = ()
) -> float:
    """Return `value`, of any real type but bool, as a float between `low` and `high`, none of `without`."""
    # `float` first: a check against the abstract class takes 1 µs.
    if type(value) is not float and not _is(numbers.Real, value):
        raise TypeError(f"{name} must be a number, got {shown(value)}")
    if not low <= value <= high or value in without:  # before the conversion: an int may be too large
        least, most = "above" if low in without else "at least", "below" if high in without else "at most"
        raise ValueError(f"{name} must be {least} {low:g} and {most} {high:g}, got {shown(value)}")
    return float(value)


def flag(value: object, name: str) -> bool:
    """Return `value`, True or False, as a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def choice(value: object, name: str, choices: Collection[str]) -> str:
    """Return `value` if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {shown(value)}")
    return value


def instance(value: object, name: str, *kinds: type) -> None:
    """Check that `value` is of one of these types."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be of type {wanted}, got {shown(value)}")


def check_indices(
    indices: np.ndarray,
    count: int,
    name: str = "indices",
    error: type[Exception] = IndexError,
    kind: str = "",
) -> None:
    """Raise an error unless all indices lie between 0 and ``count - 1``; `kind` says what they number."""
    if indices.size and not 0 <= indices.min() <= indices.max() < count:
        position = np.argwhere((indices < 0) | (indices >= count))[0].tolist()
        where = ", ".join(map(str, position))
        wrong, there = indices[tuple(position)], kind and f": there are {count} {kind}"
        raise error(f"{name} must lie in 0..{count - 1}, got {wrong} at position {where}{there}")


def per_channel(value: Any, name: str, channels: int) -> tuple[float, ...]:
    """Return a setting, one number or one for each channel, as a tuple with one for each.

    Examples
    --------
    >>> per_channel(0.5, "std", 3), per_channel([0.25, 0.5], "mean", 2)
    ((0.5, 0.5, 0.5), (0.25, 0.5))
    """
    several = isinstance(value, (tuple, list)) or getattr(value, "ndim", 0) == 1
    if several and len(value) != channels:
        kind = f"one number or one for each of {channels} channels"
        raise ValueError(f"{name} must be {kind}, got {shown(value)}")
    return tuple(SETTINGS[name](each, name) for each in (value if several else [value] * channels))


#: What the operands of a product may be rounded to; `cnn_numba.ops._reference.rounded` is the contract.
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")

_SHARE = functools.partial(number, high=1.0, without=(1.0,))
_WORD = functools.partial(integer, maximum=2**32 - 1)
#: The check of each setting by its name: a function of the value and the name.
SETTINGS: dict[str, Callable[[Any, str], Any]] = {
    "lr": number,
    "weight_decay": number,
    "eps": number,
    "rtol": number,
    "atol": number,
    "momentum": functools.partial(number, high=1.0),
    "beta1": _SHARE,
    "beta2": _SHARE,
    "betas": _SHARE,
    "label_smoothing": _SHARE,
    "growth": functools.partial(number, low=1.0, without=(1.0,)),
    "backoff": functools.partial(number, high=1.0, without=(0.0, 1.0)),
    "mean": functools.partial(number, low=-LARGEST),
    "std": functools.partial(number, low=float(np.finfo(np.float32).tiny)),
    "temperature": number,
    "step": functools.partial(integer, minimum=1),
    "interval": functools.partial(integer, minimum=1),
    "precision": functools.partial(choice, choices=PRECISIONS),
    "seed": _WORD,  # of an augmentation; a model's seed may be larger
    "epoch": _WORD,
    **dict.fromkeys(("training", "causal", "nesterov", "relu", "flip", "transpose_a", "transpose_b"), flag),
    **dict.fromkeys(("return_sequences", "resume", "progress", "graph"), flag),
}


def settings(**values: Any) -> tuple[Any, ...]:
    """Return settings as plain numbers, each checked by `SETTINGS`."""
    return tuple(SETTINGS[name](value, name) for name, value in values.items())
