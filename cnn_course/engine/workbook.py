"""The reader's workbook: a Python file for each answer that a check has accepted.

A check that turns green stores the answer: its source, and everything it uses from its notebook (imports,
constants, functions). So later notebooks can call the kernels of earlier ones, and notebook 09 builds a
network of them. The folder is ``notebooks/workbook`` of the checkout (elsewhere, ``workbook`` where Python
was started), or the one that ``CNN_NUMBA_WORKBOOK`` names. Git ignores it, and you may delete it at any time.

Using an answer runs its file. In the checkout's folder every answer may run, like the checkout's other files.
Elsewhere only answers that a check has stored for this account may run. Others may be anyone's code: they run
only if ``CNN_NUMBA_TRUST_WORKBOOK`` names their folder or one above it. Only `answer` runs files.
"""

import ast
import contextlib
import datetime
import hashlib
import os
import sys
import types
from pathlib import Path

from cnn_course.engine.outline import NOTEBOOKS, Notebook, notebook_on
from cnn_course.engine.standalone import NotStandalone, standalone
from cnn_numba.data.files import CHECKOUT
from cnn_numba.whole_files import written_whole


class NotTrusted(ValueError):
    """An answer may be anyone's code, and you have not allowed it to run; the message says how."""


def folder() -> Path:
    """Return the path of the workbook, which may not exist yet."""
    chosen = os.environ.get("CNN_NUMBA_WORKBOOK")
    if chosen:
        return Path(chosen).expanduser()
    notebooks = CHECKOUT / "notebooks"
    return (notebooks if notebooks.is_dir() else Path.cwd()) / "workbook"


def place_of(exercise) -> Notebook | None:
    """Return the notebook of an exercise; None if it belongs to no notebook."""
    # Two notebooks may have exercises of the same name, so the loaded modules decide.
    for notebook in NOTEBOOKS:
        module = sys.modules.get(f"cnn_course.chapters.{notebook.topic}.exercises")
        if getattr(module, exercise.name, None) is exercise:
            return notebook
    return None


def keep(exercise, attempt) -> str:
    """Store an answer that its check has accepted; return a line for the reader.

    The line is empty if nothing is stored: the exercise is in no notebook, or the answer was not written in
    one.
    """
    notebook, function = place_of(exercise), getattr(attempt, "py_func", attempt)
    if notebook is None or getattr(function, "__module__", None) != "__main__":
        return ""
    path = _named(notebook.topic, exercise.name)
    head = f'"""`{exercise.name}` of notebook {notebook.number}, found right on {datetime.date.today()}."""\n'
    try:
        text, line = f"{head}\n{standalone(function)}", "Kept in your workbook."
    except NotStandalone as reason:
        text, line = head, f"Noted in your workbook as solved, without its source: {reason}."
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as file:
            file.write(text.encode())
        if not _is_trusted_folder():
            _record_of(text.encode()).parent.mkdir(parents=True, exist_ok=True)
            _record_of(text.encode()).touch()
    except OSError as error:
        return f"It could not be kept in your workbook: {error}."
    return line


def note_of_earlier(exercise, attempt) -> str:
    """Return a line for a wrong answer if the workbook has a right one, else an empty string."""
    notebook = place_of(exercise)
    if notebook is None or getattr(getattr(attempt, "py_func", attempt), "__module__", None) != "__main__":
        return ""
    return "Your workbook keeps the right answer from before." if is_solved(notebook, exercise.name) else ""


def is_solved(notebook, name: str) -> bool:
    """Return whether an exercise of a notebook (of `outline`) is solved by the workbook."""
    return _path(notebook.topic, name).is_file()


def has_source(topic: str, name: str) -> bool:
    """Return whether the workbook has the source of an answer; it is read, not run."""
    # Python's parser raises the last two if code is nested too deeply.
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        module = ast.parse(_path(topic, name).read_bytes())
        return any(isinstance(node, ast.FunctionDef) and node.name == name for node in module.body)
    return False


def _named(key, name):
    return folder() / f"{key}_{name}.py"


def _path(topic, name):
    """Return the path of an answer, by its topic or by its notebook's number in the first edition."""
    places = [_named(key, name) for key in (topic, *notebook_on(topic).earlier)]
    return next((path for path in places if path.is_file()), places[0])


def answer(topic: str, name: str, otherwise: object = None) -> object:
    """Return the reader's answer to an exercise, or something else if there is none.

    Parameters
    ----------
    topic : str
        Of the notebook, such as ``"convolution_on_the_gpu"``.
    name : str
        Of the exercise, such as ``"conv2d_kernel"``.
    otherwise : object
        Returned if the exercise is not solved, or the workbook does not have its source.

    Raises
    ------
    NotTrusted
        If no check of yours stored the answer, and ``CNN_NUMBA_TRUST_WORKBOOK`` does not name its folder.

    Examples
    --------
    >>> answer("convolution_on_the_gpu", "no_such_kernel", otherwise="another one")
    'another one'
    """
    path = _path(topic, name)
    if not path.is_file():
        return otherwise
    return getattr(_imported(path), name, otherwise)


def _is_trusted_folder():
    """Return whether the workbook is the checkout's, or in a folder that the reader trusts."""
    word = os.environ.get("CNN_NUMBA_TRUST_WORKBOOK")
    trusted = [CHECKOUT / "notebooks" / "workbook", *([Path(word).expanduser()] if word else [])]
    return any(folder().resolve().is_relative_to(each.resolve()) for each in trusted)


def _record_of(content):
    """Return the path of a file that exists if a check has stored this content for this account."""
    return Path.home() / ".cache" / "cnn-numba" / "kept" / hashlib.sha256(content).hexdigest()


def _imported(path):
    """Run a file of the workbook as a new module."""
    content = path.read_bytes()
    if not _is_trusted_folder() and not _record_of(content).exists():
        raise NotTrusted(
            f"{path} was not kept by a check of yours, so it may be anyone's code and was not run. To let it "
            f"run, set the environment variable CNN_NUMBA_TRUST_WORKBOOK={path.parent}, best in a container "
            "(docs/teaching.md). Otherwise delete it"
        )
    module = types.ModuleType(f"workbook_{path.stem}")
    module.__file__ = str(path)
    try:
        # Run the content that was checked, not bytecode that may lie beside it.
        exec(compile(content, path, "exec"), vars(module))
    except Exception as error:
        raise ValueError(
            f"{path} of your workbook does not run ({type(error).__name__}: {error}): delete it, and run the "
            "exercise's check again"
        ) from error
    return module
