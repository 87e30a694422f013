"""What ends a launch in the simulator, as data: what happened, and where.

The sentences are made of these fields in `gpuless.simulator.words`.
"""

from typing import NamedTuple

from gpuless.positions import Shape
from gpuless.simulator import words
from gpuless.simulator.foreign import cause_of


class Place(NamedTuple):
    """Where a thread was."""

    kernel: str
    site: object
    """The `Site` of its instruction; None if that is not known."""
    block: tuple
    thread: tuple
    """x, y, z of both."""
    launch: Shape

    def lines(self):
        """Return it as two lines of text, the source and the thread."""
        return words.place(self)

    def __str__(self):
        return "\n".join(f"  {line}" for line in self.lines())


class SourcePlace(NamedTuple):
    """A place in the source of a kernel or a device function."""

    function: str
    line: int
    source: str
    """What stands there."""
    device: bool = False
    """Whether it is in a device function."""

    def __str__(self):
        return f"in {'device function' if self.device else 'kernel'} {self.function}, line {self.line}"


class UnsupportedPython(TypeError):
    """Python in a kernel that Numba cannot compile for a GPU, or an argument that it cannot pass.

    Attributes
    ----------
    code : str
        What is not available, as the source has it, such as ``np.dot``; empty if the reason says it all.
    reason : str
        Why not; a sentence, to which `code` is the subject if there is one.
    where : SourcePlace or None
        Where it is written, if the source has been looked at.
    whole_array : bool
        Whether an array stands where one of its elements is needed.
    of_compiler : bool
        Whether the reason is the compiler's.
    cause : Cause or None
        What the compiler's reason is about, where that is known.
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
        Where the thread was that ran.
    """

    def __init__(self, reason: str, place: Place | None = None) -> None:
        super().__init__(f"{reason}\n{place}" if place else reason)
        self.reason, self.place = reason, place


class Divergence(NamedTuple):
    """Two threads of a block of which one waits for the other in vain."""

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
    """Of a warp, such as "ballot_sync", that the first waits at; empty for a barrier."""
    mask: int | None = None
    lanes: tuple = ()
    """Lanes that the mask names and that do not come; none if it leaves out the lane itself."""
    other_mask: int | None = None
    """Of the operation of a warp that the other waits at."""
    rounds: tuple = ()
    """Where both wait at one barrier in a loop: its variable, and the value that each has for it."""


class DivergenceError(RuntimeError):
    """Threads of a block, or lanes of a warp, wait for others that never arrive, or leave themselves out.

    Attributes
    ----------
    found : Divergence
    kind : str
        "divergent barrier" or "divergent warp".
    site, other_site : Site or None
        Where the one waits, and where the other waits instead; None if the other has finished.
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

    It has `reason` and `place` as attributes, and as `cause` what Python or NumPy means, if that is known.

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
