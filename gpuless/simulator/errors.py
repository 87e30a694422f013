"""The errors that end a launch in the simulator, with what happened and where as fields.

`gpuless.simulator.words` makes the sentences from these fields.
"""

from typing import NamedTuple

from gpuless.positions import Shape
from gpuless.simulator import words
from gpuless.simulator.foreign import cause_of


class Place(NamedTuple):
    """The position of a thread in the kernel and in the grid."""

    kernel: str
    site: object
    """The `Site` of its instruction; None if unknown."""
    block: tuple
    thread: tuple
    """x, y, z of both."""
    launch: Shape

    def lines(self):
        """Return two lines of text: the source and the thread."""
        return words.place(self)

    def __str__(self):
        return "\n".join(f"  {line}" for line in self.lines())


class SourcePlace(NamedTuple):
    """A place in the source of a kernel or a device function."""

    function: str
    line: int
    source: str
    """The source text there."""
    device: bool = False
    """Whether the function is a device function."""

    def __str__(self):
        return f"in {'device function' if self.device else 'kernel'} {self.function}, line {self.line}"


class UnsupportedPython(TypeError):
    """Python in a kernel that Numba cannot compile for a GPU, or an argument that it cannot pass.

    Attributes
    ----------
    code : str
        The unsupported code as in the source, such as ``np.dot``; empty if the reason needs no subject.
    reason : str
        Why it isn't supported; a sentence, with `code` as its subject if there is one.
    where : SourcePlace or None
        Its place in the source, if known.
    whole_array : bool
        Whether an array is used where one of its elements is needed.
    of_compiler : bool
        Whether the reason is the compiler's.
    cause : Cause or None
        What the compiler's reason is about, if known.
    """

    def __init__(self, reason, code="", where=None, whole_array=False, of_compiler=False, cause=None):
        self.reason, self.code, self.where = reason, code, where
        self.whole_array, self.of_compiler, self.cause = whole_array, of_compiler, cause
        super().__init__(words.unsupported(self))


class LaunchStopped(RuntimeError):
    """A launch that was stopped because it reached a limit (`gpuless.set_limits`).

    Attributes
    ----------
    reason : str
        Which limit.
    place : Place or None
        The position of the thread that ran.
    """

    def __init__(self, reason: str, place: Place | None = None) -> None:
        super().__init__(f"{reason}\n{place}" if place else reason)
        self.reason, self.place = reason, place


class Divergence(NamedTuple):
    """Two threads of a block, of which the first waits in vain for the second."""

    kind: str
    """ "divergent barrier" or "divergent warp"."""
    threads: tuple
    """Their numbers in the block; twice the same for a lane that its own mask leaves out."""
    sites: tuple
    """Where each waits, as `Site`; None for one that has finished."""
    launch: Shape
    block: tuple
    """x, y, z."""
    operation: str = ""
    """The operation of a warp that the first waits at, such as "ballot_sync"; empty for a barrier."""
    mask: int | None = None
    lanes: tuple = ()
    """Lanes that the mask names but that don't come; none if it leaves out the lane itself."""
    other_mask: int | None = None
    """The mask of the operation that the other waits at, if it is one of a warp."""
    rounds: tuple = ()
    """If both wait at one barrier in a loop: the loop's variable, and its value in each thread."""


class DivergenceError(RuntimeError):
    """Threads of a block, or lanes of a warp, wait in vain for others, or a lane's mask leaves it out.

    Attributes
    ----------
    found : Divergence
    kind : str
        "divergent barrier" or "divergent warp".
    site, other_site : Site or None
        Where the first waits, and where the other waits instead; None if the other has finished.
    threads : tuple of int
        The two threads, by their number in the block.
    """

    def __init__(self, found: Divergence, kernel: str) -> None:
        where = f"  in kernel {kernel}, {found.launch.block_called(found.block)}"
        super().__init__(f"{words.divergence(found)}\n{where}")
        self.found, self.kind, self.threads = found, found.kind, found.threads
        self.site, self.other_site = found.sites


def located(error, place):
    r"""Return an exception of the same type that also says where in the grid it happened.

    Its attributes are `reason`, `place`, and `cause`: what Python's or NumPy's message is about, if known.

    >>> place = Place("add", None, (0, 0, 0), (3, 0, 0), Shape(block=(8, 1, 1)))
    >>> found = located(IndexError("index 7 is out of bounds"), place)
    >>> found, found.place.thread
    (IndexError('index 7 is out of bounds\n  in kernel add\n  block 0, thread 3'), (3, 0, 0))
    """
    reason = words.explained(error)
    message = f"{reason}\n{place}"
    try:
        same = type(error)(message)
    except Exception:  # its constructor needs more than a message
        same = RuntimeError(f"{type(error).__name__}: {message}")
    cause = cause_of(error)
    vars(same).update({"reason": reason, "cause": cause, **vars(error), "place": place})
    return same.with_traceback(error.__traceback__)
