"""What the simulator refuses, and how it says where."""


class UnsupportedPython(TypeError):
    """Python in a kernel that Numba cannot compile for a GPU, or an argument that it cannot pass."""


class LaunchStopped(RuntimeError):
    """A launch that reached a limit (`gpuless.set_limits`): it would perhaps not have ended."""


class DivergenceError(RuntimeError):
    """Threads of a block, or lanes of a warp, that wait for others who never come or leave themselves out.

    Attributes
    ----------
    kind : str
        "divergent barrier" or "divergent warp".
    site, other_site : Site or None
        Where the one waits, and where the other waits instead; None if the other has finished.
    threads : tuple of int
        The two threads, by their number in the block.
    """

    def __init__(
        self, message: str, kind: str, site: object, other_site: object, threads: tuple[int, ...]
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.site = site
        self.other_site = other_site
        self.threads = threads


# What NumPy and Python say of a float that should be an integer, and what to do about it.
_FLOATS = ("only integers, slices", "object cannot be interpreted as an integer")


def _explained(message):
    if message.startswith(_FLOATS[0]):
        message = "an index must be an integer"
    elif _FLOATS[1] not in message:
        return message
    return f"{message}; if it comes from `/`, which gives a float, use `//`"


def located(error, where):
    r"""Return an exception of the same type whose message also says where in the grid it happened.

    >>> located(IndexError("index 7 is out of bounds"), "in kernel add")
    IndexError('index 7 is out of bounds\nin kernel add')
    """
    message = f"{_explained(str(error))}\n{where}"
    try:
        same = type(error)(message)
    except Exception:  # its constructor wants more than a message
        same = RuntimeError(f"{type(error).__name__}: {message}")
    return same.with_traceback(error.__traceback__)
