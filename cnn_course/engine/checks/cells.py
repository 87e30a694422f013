"""Which cells of a notebook have failed: what they were to define is not what a check would be given.

After a syntax error the name still stands for what an earlier run of the cell defined, and a check of that
would praise or blame the wrong thing. So in IPython (JupyterLab, Colab, VS Code) every cell that is run is
looked at: which functions it was to define, and whether it did. Outside of IPython nothing is watched.
"""

import keyword
import re
import sys
from typing import NamedTuple

from cnn_course.engine.checks import errors

# "def name(", also where the word is misspelt, which is one of the errors.
_DEFINITION = re.compile(r"^[ \t]*(\w+)[ \t]+(\w+)[ \t]*(?:\(|:|$)", re.MULTILINE)
_OTHER_WORDS = {*keyword.kwlist} - {"def"}


class Failure(NamedTuple):
    """A cell that was to define a function, and did not."""

    error: BaseException
    source: str
    stands: object
    """What the function's name still stands for."""

    def describe(self):
        """Return what the learner reads: a sentence, and further lines."""
        error, place = _in_pythons_words(self.error, self.source), ()
        if isinstance(error, SyntaxError) and error.lineno:
            written = (error.text or "").strip()
            place = (f"Line {error.lineno} of the cell" + (f": `{written}`" if written else "."),)
        message = (
            f"Your last run of the cell above failed with {errors.text(error)}. Fix that first, and run the "
            "cell again: until then the name stands for what was defined before."
        )
        return message, place


def _in_pythons_words(error, source):
    """Return a syntax error as Python reports it, where IPython says only "incomplete input"."""
    if isinstance(error, SyntaxError) and error.msg == "incomplete input":
        try:
            compile(source, "<cell>", "exec")
        except SyntaxError as own:
            return own
    return error


_failures = {}  # by the function's name
_before = {}  # what the names of the running cell stood for


def failure_of(name: str, attempt: object) -> Failure | None:
    """Return why the last cell that was to define a function did not; None if it did, or if that is unknown.

    Parameters
    ----------
    name : str
        The function's.
    attempt : object
        What a check was given: if it is not what the cell has left, it has been defined in another way.
    """
    failure = _failures.get(name)
    return failure if failure is not None and failure.stands is attempt else None


def watch(shell: object = None):
    """Look at every cell from now on.

    Parameters
    ----------
    shell : InteractiveShell, optional
        By default the one that this process is run from; without one nothing happens.
    """
    if shell is None and "IPython" in sys.modules:
        shell = sys.modules["IPython"].get_ipython()
    if shell is None or getattr(shell, "_course_watches_cells", False):
        return
    shell._course_watches_cells = True
    shell.events.register("pre_run_cell", lambda info: _begin(shell, info))
    shell.events.register("post_run_cell", lambda result: _end(shell, result))


def _defined_in(source):
    found = _DEFINITION.findall(source or "")
    return {name for word, name in found if word not in _OTHER_WORDS}


def _begin(shell, info):
    _before.clear()
    _before.update({name: shell.user_ns.get(name) for name in _defined_in(info.raw_cell)})


def _end(shell, result):
    error = result.error_before_exec or result.error_in_exec
    source = result.info.raw_cell if result.info else ""
    for name in _defined_in(source):
        # What comes after a definition may fail: the definition is there.
        stands = shell.user_ns.get(name)
        if error is not None and stands is _before.get(name):
            _failures[name] = Failure(error, source, stands)
        else:
            _failures.pop(name, None)
