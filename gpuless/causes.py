"""What an error is about: errors of gpuless have it as `cause`, `simulator.foreign` finds it in messages."""

from typing import NamedTuple


class Cause(NamedTuple):
    """What an error message is about.

    ===============  ==================================================================================
    no attribute     an array has no attribute `name`; with a type, a value of that type has none
    launch sizes     the numbers of blocks or threads aren't integers
    not configured   a kernel is called without grid and block
    not in cuda      `numba.cuda` has no attribute `name`
    arguments        wrong arguments for a function of cuda; `name` is like "Atomic.add"
    no array         the atomic operation `name` got something else in place of an array
    sequence         an array is stored where NumPy expects one number
    whole array      an array is used where a number is needed
    number           a number is indexed
    no common type   `name` has different types in different places
    not usable       a kernel cannot use the kind of value in the global `name`
    not defined      there is no `name`
    not applied      Numba has no operation or function `name` for these types
    product          ``@`` of two arrays whose summed axes differ in size: `types`, as strings
    einsum           ``np.einsum`` of arrays in which a letter has several sizes: `types` are their shapes
    none             None is used where a number or an array is needed
    ===============  ==================================================================================
    """

    kind: str
    name: str = ""
    types: tuple = ()
    """Named as by `type_kind`."""
