"""The driver's library gets into the process wherever temporary files are."""

import ctypes
import os
import tempfile

import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("the library is the emulated GPU's", allow_module_level=True)

from gpuless.emulator.driver import stub

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int)


def called(number):
    """Load a library whose function returns a number; return that number and the library."""
    library = stub.Library({"f": FUNCTION(lambda: number)})
    return FUNCTION(library._jumps)(), library


@pytest.fixture
def no_programs(monkeypatch):
    """Forbid loading from the folder for temporary files, as if it were mounted noexec."""
    load = ctypes.CDLL

    def refuse(path, *options):
        if path and path.startswith(tempfile.gettempdir()):
            raise OSError(f"{path}: failed to map segment from shared object")
        return load(path, *options)

    monkeypatch.setattr(ctypes, "CDLL", refuse)


@pytest.fixture
def no_memory_files(monkeypatch):
    """Forbid files in memory, as some kernel settings do."""

    def refuse(*arguments):
        raise PermissionError("memfd_create")

    monkeypatch.setattr(os, "memfd_create", refuse)


def test_temporary_files_need_not_be_executable(no_programs):
    assert called(7)[0] == 7


def test_files_in_memory_need_not_be_allowed(no_memory_files, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert called(7)[0] == 7
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_named_if_neither_may_be_executed(no_programs, no_memory_files):
    with pytest.raises(OSError, match=rf"from {tempfile.gettempdir()}: .*Set TMPDIR to a folder"):
        called(7)


def test_each_library_is_another():
    (first, one), (second, other) = called(1), called(2)
    assert (first, second) == (1, 2)
    assert one._jumps != other._jumps
