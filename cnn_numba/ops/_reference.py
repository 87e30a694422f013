"""What the reference rooms share: the rule about memory, for arrays that may be anything NumPy takes.

Only they import it, and it imports NumPy only, so that the definitions share no code with what they judge.
"""

import numpy as np


def check_arrays(written, read, may_be=()):
    """Insist on plain arrays; what is written shares no memory, or is exactly an input that it may be.

    Parameters
    ----------
    written, read : dict of str to array_like or None
        By the names of the arguments. What is no array has no memory to share.
    may_be : collection of str
        Names of the inputs that an output may be.

    Raises
    ------
    TypeError
        If an array is masked, a matrix or of another class of its own.
    ValueError
        If memory is shared against the rule of `cnn_numba.ops`: see `cnn_numba.ops.shapes`.
    """
    named = {**written, **read}
    arrays = {name: array for name, array in named.items() if isinstance(array, np.ndarray)}
    for name, array in arrays.items():
        if type(array) not in (np.ndarray, np.memmap):
            raise TypeError(f"{name} must be a plain array, got {type(array).__name__}")
        for other, that in arrays.items():
            exactly = other in may_be and array.__array_interface__ == that.__array_interface__
            if name in written and other != name and np.may_share_memory(array, that) and not exactly:
                raise ValueError(f"{name} must not share memory with {other}")
