"""What the reference backends share: checks of arrays of any layout, rounding, and sliding windows.

Only they import it. It imports NumPy, the checks of settings and the declarations, and nothing else: the
references share no arithmetic with the backends that they are compared with.
"""

import numpy as np

from cnn_numba.arguments import MOST_ELEMENTS, PRECISIONS, choice, pair, shown
from cnn_numba.ops.specs import Memory


def rounded(array, precision):
    """Round real numbers to a precision, in an array of the same dtype.

    Each becomes the nearest number of the format. A tie goes to the even one; in tf32 away from zero, as the
    GPU's instruction does. Numbers beyond the largest become infinity.

    Parameters
    ----------
    array : ndarray, float32 or float64
        float64 becomes float32 first, unless the precision is "float32".
    precision : {"float32", "tf32", "float16", "bfloat16"}
        They have 23, 10, 10 and 7 bits after the point, and exponents of 8 bits, float16 of 5.

    Examples
    --------
    >>> [float(rounded(np.float32(1 + 2**-11), precision)) for precision in ("tf32", "float16", "bfloat16")]
    [1.0009765625, 1.0, 1.0]
    """
    if choice(precision, "precision", PRECISIONS) == "float32":
        return array
    with np.errstate(over="ignore"):
        single = np.asarray(array, np.float32)
        bits = single.view(np.uint32)
        if precision == "float16":
            near = single.astype(np.float16).astype(np.float32)
        elif precision == "tf32":
            near = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        else:
            even = bits >> np.uint32(16) & np.uint32(1)
            near = (bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(single), single, near.view(np.float32)).astype(array.dtype)


def put(out, result):
    """Return `result`, written into `out` if there is one."""
    if out is None:
        return result
    out[...] = result
    return out


def _real(name, array):
    """Return an array of real numbers in float64."""
    if array is None:
        raise TypeError(f"{name} must hold real numbers, got None")
    array = np.asarray(array)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {shown(array.dtype)}")
    return array.astype(np.float64, copy=False)


def _check(name, array, shape, dtype, writeable=False):
    """Return an input as float64, an output unchanged; refuse what is not a plain array of the right kind.

    Real inputs may have any real dtype, and an output any dtype of its kind; other dtypes must match exactly.
    """
    is_array = isinstance(array, np.ndarray)
    if is_array and type(array) not in (np.ndarray, np.memmap):
        raise TypeError(f"{name} must be a plain array, got {type(array).__name__}")
    if dtype == np.float32 and not writeable:
        return _real(name, array)
    if writeable and dtype != np.float64:
        fits = is_array and array.dtype.kind == dtype.kind
        wanted = "be a float array" if dtype.kind == "f" else f"be an array like {dtype}"
    else:
        fits, wanted = is_array and array.dtype == dtype, f"have dtype {dtype}"
    if not fits:
        got = shown(array.dtype) if is_array else f"{type(array).__name__}: {shown(array)}"
        got += f": convert it with .astype(np.{dtype})" * (is_array and not writeable)
        raise TypeError(f"{name} must {wanted}, got {got}")
    return array


def _check_memory(written, read, may_be=()):
    """Refuse outputs that share memory with another array, unless they are exactly an input in `may_be`."""
    arrays = {name: array for name, array in {**written, **read}.items() if isinstance(array, np.ndarray)}
    for name, array in written.items():
        for other, that in arrays.items():
            exactly = other in may_be and array.__array_interface__ == that.__array_interface__
            if other != name and np.may_share_memory(array, that) and not exactly:
                raise ValueError(f"{name} must not share memory with {other}")


class Windows:
    """How a window slides over images; each attribute is a pair, vertical and horizontal."""

    def __init__(self, image, kernel_size, stride, padding):
        self.image = image
        self.kernel, self.stride = pair(kernel_size, "kernel_size"), pair(stride, "stride")
        self.padding = pair(padding, "padding", minimum=0)
        height, width = (size + 2 * pad for size, pad in zip(image, self.padding, strict=True))
        if height * width > MOST_ELEMENTS:
            raise ValueError(
                f"padding {shown(padding)} makes images of {height} x {width}, more than "
                f"{MOST_ELEMENTS} pixels"
            )
        sizes = zip(image, self.kernel, self.stride, self.padding, strict=True)
        self.out = tuple((size + 2 * pad - k) // step + 1 for size, k, step, pad in sizes)
        if min(self.out) < 1:
            raise ValueError(
                f"a window of {self.kernel} does not fit into an image of {image} "
                f"with padding {self.padding} on each side"
            )


def _window(sizes, stride, padding, kernel_size=None):
    """Return the windows of a convolution, or of a pooling if no axes belong to a kernel."""
    image = sizes["H"], sizes["W"]
    if "K_h" in sizes:
        return Windows(image, (sizes["K_h"], sizes["K_w"]), stride, padding)
    windows = Windows(image, kernel_size, kernel_size if stride is None else stride, padding)
    if any(2 * pad > k for pad, k in zip(windows.padding, windows.kernel, strict=True)):
        raise ValueError(
            f"padding must be at most half of kernel_size, got padding {shown(padding)} and kernel_size "
            f"{shown(kernel_size)}"
        )
    return windows


#: The references take real numbers in any layout. Outputs of None are not replaced: see `put`.
ANYTHING = Memory(_check, lambda shape, dtype: None, _check_memory, _window)
