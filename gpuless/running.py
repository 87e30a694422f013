"""Run programs that don't import gpuless on the GPU that `select` chooses."""

import builtins
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
import types
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path

from gpuless.selection import Selection, select

_STARTUP = str(Path(__file__).parent / "startup")


def inherit(gpu: str | None = None) -> Selection:
    """Select a GPU for this process and for those that it starts.

    `gpu`: a value for ``GPULESS``: "hardware", "emulator" or "simulator".
    """
    if gpu:
        os.environ["GPULESS"] = gpu
    path = os.environ.get("PYTHONPATH", "")
    if _STARTUP not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([_STARTUP, path] if path else [_STARTUP])
    return select()


def program_of(options):
    """Return a function that runs the program of a command line, None if there is no program.

    `options`: has the words after -m as `module`, those after -c as `code`, and others as `script`.
    """
    for run, given in ((run_module, options.module), (run_code, options.code), (run_script, options.script)):
        if given:
            return lambda: run(given[0], given[1:])
    return None


def run_script(path: str, arguments: list[str]):
    """Run a file as ``python path arguments`` does.

    `path`: a file, or a folder or archive with a ``__main__.py``; "-" for standard input.
    """
    if path == "-":
        _run_input(arguments)
        return
    if not os.path.exists(path):
        missing = f"can't open file {os.path.abspath(path)!r}: [Errno 2] No such file or directory"
        print(f"python -m gpuless: {missing}", file=sys.stderr)
        sys.exit(2)
    sys.argv = [path, *arguments]
    if pkgutil.get_importer(path) is not None:  # a folder or an archive
        sys.excepthook = _hide_our_frames
        runpy.run_path(path, run_name="__main__")
        return
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    file = os.path.abspath(path)
    with io.open_code(file) as opened:
        source = opened.read()
    _run_as(source, file)


def run_module(name: str, arguments: list[str]):
    """Run a module as ``python -m name arguments`` does."""
    sys.argv = [name, *arguments]
    if not _exists(name):
        sys.exit(f"{sys.executable}: No module named {name}")
    sys.excepthook = _hide_our_frames
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_code(code: str, arguments: list[str]):
    """Run text as ``python -c code arguments`` does."""
    sys.argv = ["-c", *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = ""
    _execute(code, "<string>", __loader__=BuiltinImporter)


def _run_input(arguments):
    """Run standard input as ``python - arguments`` does."""
    sys.argv = ["-", *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = ""
    _run_as(sys.stdin.buffer.read(), "<stdin>")


def _run_as(source, file):
    _execute(source, file, __file__=file, __loader__=SourceFileLoader("__main__", file), __cached__=None)


def _execute(source, file, **names):
    """Run source code as the module `__main__`, which is kept for threads and functions called at exit."""
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main.__dict__.update(names, __builtins__=builtins)
    sys.excepthook = _hide_our_frames
    exec(compile(source, file, "exec", dont_inherit=True), main.__dict__)


def _exists(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


_HERE = Path(__file__).parent
_OUR_FILES = (__file__, str(_HERE / "__main__.py"), str(_HERE / "profile" / "command.py"))
_OUR_FILES += (runpy.run_path.__code__.co_filename,)


def _hide_our_frames(kind, error, traceback):
    """Print an exception without the frames of this package that come before the program's."""
    while traceback and traceback.tb_frame.f_code.co_filename in _OUR_FILES:
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    sys.__excepthook__(kind, error, traceback)
