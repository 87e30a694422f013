"""What every matrix product on the GPU checks before its kernel is launched."""

from cnn_numba import device
from cnn_numba.ops.shapes import check_device_array, device_output


def product_arguments(a, b, out, transpose_a, transpose_b):
    """Check the arguments of ``a @ b``, either of them perhaps transposed.

    Parameters
    ----------
    a, b : device array, two axes, float32
    out : device array or None
    transpose_a, transpose_b : bool

    Returns
    -------
    device array, shape (M, N), float32
        `out`, allocated if it was None.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong dtype, shape or layout, or is not on the device.
    """
    check_device_array("a", a, (None, None))
    check_device_array("b", b, (None, None))
    rows, depth = a.shape[::-1] if transpose_a else a.shape
    b_depth, columns = b.shape[::-1] if transpose_b else b.shape
    if depth != b_depth:
        raise ValueError(
            f"a has {depth} elements to multiply and b has {b_depth} (a has shape {a.shape}, b has shape "
            f"{b.shape}, transpose_a is {transpose_a}, transpose_b is {transpose_b})"
        )
    return device_output("out", out, (rows, columns), inputs={"a": a, "b": b})


def aligned(matrix):
    """Return whether each row of a matrix consists of whole vectors of four, in multiples of 16 bytes.

    Parameters
    ----------
    matrix : device array, two axes, float32

    Returns
    -------
    bool
    """
    # Where a simulated array lies says nothing about a GPU, which begins every allocation at such a multiple.
    address = 0 if device.simulated() else matrix.__cuda_array_interface__["data"][0]
    return matrix.shape[1] % 4 == 0 and address % 16 == 0
