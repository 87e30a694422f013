"""The reader's workbook: every answer that a check has found right, as a Python file of its own.

A check that turns green keeps the answer: its source, and what that uses of its notebook (imports, constants,
functions beside it). So the kernels of one notebook can be called from a later one, and notebook 08 builds a
network of them. The folder is ``notebooks/workbook`` of the checkout (elsewhere, ``workbook`` where Python
was started), or what ``CNN_NUMBA_WORKBOOK`` names; git ignores it, and it may be deleted at any time.
"""

import datetime
import importlib.util
import os
from pathlib import Path

from cnn_numba.course import contents
from cnn_numba.course.standalone import NotStandalone, standalone
from cnn_numba.data.files import CHECKOUT
from cnn_numba.train.checkpoint import written_whole


def folder() -> Path:
    """Return where the workbook is, whether or not there is one yet."""
    chosen = os.environ.get("CNN_NUMBA_WORKBOOK")
    if chosen:
        return Path(chosen).expanduser()
    notebooks = CHECKOUT / "notebooks"
    return (notebooks if notebooks.is_dir() else Path.cwd()) / "workbook"


def keep(exercise, attempt) -> str:
    """Keep an answer that its check has found right, and say so in a line for the reader.

    Parameters
    ----------
    exercise : Exercise
    attempt : function
        As the check was given it.

    Returns
    -------
    str
        Empty if there is nothing to keep: the exercise is in no notebook, or the answer was not written in
        one.
    """
    notebook, function = contents.place_of(exercise), getattr(attempt, "py_func", attempt)
    if notebook is None or getattr(function, "__module__", None) != "__main__":
        return ""
    path = folder() / f"{notebook.number}_{exercise.name}.py"
    head = f'"""`{exercise.name}` of notebook {notebook.number}, found right on {datetime.date.today()}."""\n'
    try:
        text, told = f"{head}\n{standalone(function)}", "Kept in your workbook."
    except NotStandalone as reason:
        text, told = head, f"Noted in your workbook as solved, without its source: {reason}."
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as file:
            file.write(text.encode())
    except OSError as error:
        return f"It could not be kept in your workbook: {error}."
    return told


def told_of_earlier(exercise, attempt) -> str:
    """Say, for a wrong answer, that the workbook keeps a right one; empty if it has none."""
    notebook = contents.place_of(exercise)
    if notebook is None or getattr(getattr(attempt, "py_func", attempt), "__module__", None) != "__main__":
        return ""
    return "Your workbook keeps the right answer from before." if is_solved(notebook, exercise.name) else ""


def is_solved(notebook, name: str) -> bool:
    """Tell whether the workbook says that an exercise of a notebook (of `contents`) is solved."""
    return (folder() / f"{notebook.number}_{name}.py").is_file()


def answer(topic: str, name: str, otherwise: object = None) -> object:
    """Return the reader's answer to an exercise, or something else where there is none.

    Parameters
    ----------
    topic : str
        The notebook, such as ``"convolution_on_the_gpu"``.
    name : str
        The exercise, such as ``"conv2d_kernel"``.
    otherwise : object
        What to return if the exercise is not solved, or the workbook has no source of it.

    Examples
    --------
    >>> answer("convolution_on_the_gpu", "no_such_kernel", otherwise="another one")
    'another one'
    """
    path = folder() / f"{contents.notebook_on(topic).number}_{name}.py"
    if not path.is_file():
        return otherwise
    return getattr(_imported(path), name, otherwise)


def _imported(path):
    """Run a file of the workbook as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"workbook_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(
            f"{path} of your workbook does not run ({type(error).__name__}: {error}): delete it, and run the "
            "exercise's check again"
        ) from error
    return module
