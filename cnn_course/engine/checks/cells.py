"""Watches for cells that fail: a check would then judge an older definition.

After a syntax error, a function's name still refers to an earlier run's definition. So in IPython
(JupyterLab, Colab, VS Code) this module notes for every cell which functions it should define, and whether it
did. Outside of IPython it watches nothing.
"""

import keyword
import re
import sys
from typing import NamedTuple

from cnn_course.engine.checks import errors

# "def name(", even if `def` is misspelt, as in some syntax errors.
_DEFINITION = re.compile(r"^[ \t]*(\w+)[ \t]+(\w+)[ \t]*(?:\(|:|$)", re.MULTILINE)
_OTHER_WORDS = {*keyword.kwlist} - {"def"}


class Failure(NamedTuple):
    """A cell that failed to define its function."""

    error: BaseException
    source: str
    stands: object
    """What the function's name still refers to."""

    def describe(self):
        """Return a sentence for the learner, and further lines."""
        error, place = _in_pythons_words(self.error, self.source), ()
        if isinstance(error, SyntaxError) and error.lineno:
            written = (error.text or "").strip()
            place = (f"Line {error.lineno} of the cell" + (f": `{written}`" if written else "."),)
        message = (
            f"Your last run of the cell above failed with {errors.text(error)}. Fix that first, and run the "
            "cell again: until then the name refers to the older definition."
        )
        return message, place


def _in_pythons_words(error, source):
    """Return Python's own syntax error if IPython's is only "incomplete input"."""
    if isinstance(error, SyntaxError) and error.msg == "incomplete input":
        try:
            compile(source, "<cell>", "exec")
        except SyntaxError as own:
            return own
    return error


_failures = {}  # by the function's name
_before = {}  # the values of the running cell's names before it ran


def failure_of(name: str, attempt: object) -> Failure | None:
    """Return why the last cell that should define a function failed; None if it did not fail, or if unknown.

    `attempt` is the function passed to the check. If the failed cell did not leave it under this name, it was
    defined elsewhere.
    """
    failure = _failures.get(name)
    return failure if failure is not None and failure.stands is attempt else None


def watch(shell: object = None):
    """Watch every cell from now on.

    Parameters
    ----------
    shell : InteractiveShell, optional
        By default this process's; without one nothing happens.
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
        # If only code after the definition fails, the function is defined.
        stands = shell.user_ns.get(name)
        if error is not None and stands is _before.get(name):
            _failures[name] = Failure(error, source, stands)
        else:
            _failures.pop(name, None)
