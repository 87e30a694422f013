"""Machine code on disk: reused, keyed by all it depends on, and never an obstacle."""

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from fresh_python import PATH
from ptx_programs import run
from quick_code import compiled_plainly
from warm_python import warm

from gpuless.emulator.run import cache, machine
from gpuless.emulator.translate import processor

TEXT = """
.visible .entry f(.param .u64 _ZN1aB2v1E, .param .u64 _ZN1bB2v2E) {
    .reg .b64 %rd<6>; .reg .b32 %r<4>;
    .loc 1 7 0
    ld.param.u64 %rd1, [_ZN1aB2v1E]; ld.param.u64 %rd2, [_ZN1bB2v2E];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4]; add.s32 %r3, %r2, 5; st.global.u32 [%rd5], %r3;
    ret;
}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Use an empty folder of machine code."""
    monkeypatch.setenv("GPULESS_CACHE", str(tmp_path / "kept"))
    cache._make_room.cache_clear()
    yield tmp_path / "kept"
    cache._make_room.cache_clear()


@pytest.fixture
def compiled(monkeypatch):
    """Return a list that grows by one with each compilation."""
    found, compile_object = [], machine.compile_object
    monkeypatch.setattr(machine, "compile_object", lambda text: found.append(text) or compile_object(text))
    return found


def check(text=TEXT, block=(32, 1, 1)):
    """Run the kernel, and check that it adds 5."""
    given = np.arange(64, dtype=np.uint32)
    _, result = run(text, [given, np.zeros(64, np.uint32)], block=block)
    threads = block[0] * block[1]
    assert result.tolist() == [*(given[:threads] + 5), *[0] * (64 - threads)]


def test_cached_code_is_not_compiled_again(folder, compiled):
    check()
    before = len(compiled)
    check()
    assert before >= 1
    assert len(compiled) == before
    assert [path.name[0] != "." for path in folder.iterdir()] == [True]


def test_plainly_compiled_code_is_not_used_by_others(folder, compiled, monkeypatch):
    with compiled_plainly(monkeypatch):
        check()
        check()
    assert (len(compiled), len([*folder.iterdir()])) == (0, 1)
    check()
    assert (len(compiled), len([*folder.iterdir()])) == (1, 2)


@pytest.mark.parametrize(
    ("text", "block"),
    [
        (TEXT.replace("5;", "6;"), (32, 1, 1)),
        (TEXT, (64, 1, 1)),
        (TEXT, (8, 4, 1)),
        # The same names, one of them elsewhere.
        (TEXT.replace("%rd1, [_ZN1aB2v1E]", "%rd1, [_ZN1bB2v2E]"), (32, 1, 1)),
    ],
    ids=["code", "more threads", "shape", "names"],
)  # fmt: skip
def test_different_programs_have_different_keys(text, block):
    assert cache.key(text, "f", block) != cache.key(TEXT, "f", (32, 1, 1))


def test_numbers_in_names_and_lines_of_source_do_not_count():
    other = TEXT.replace("v1E", "v31E").replace("v2E", "v4E").replace(".loc 1 7 0", ".loc 1 9 3")
    assert cache.key(other, "f") == cache.key(TEXT, "f")


def test_another_emulator_or_processor_compiles_again(folder, compiled, monkeypatch):
    check()
    for target, name, value in [
        (cache, "_sources", "other"),
        (processor, "target", ("another processor",)),
    ]:
        before = len(compiled)
        with monkeypatch.context() as patch:
            patch.setattr(target, name, lambda value=value: value)
            check()
        assert len(compiled) == before + 1, name


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: b"", lambda c: c[:50] + b"\1" + c[51:]])
def test_a_damaged_file_is_compiled_again(folder, compiled, damage):
    check()
    (path,) = folder.iterdir()
    sound = path.read_bytes()
    path.write_bytes(damage(sound))
    before = len(compiled)
    check()
    assert len(compiled) == before + 1
    assert path.read_bytes() == sound


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPULESS_CACHE", str(tmp_path / "file" / "kept"))
    with pytest.warns(
        RuntimeWarning, match=f"cannot be kept in {tmp_path}/file/kept: .*; set GPULESS_CACHE to"
    ):
        check()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning only
        cache.write("one", b"content")
        assert cache.read("one") is None


def test_a_full_disk_stops_no_kernel(folder):
    lines = (
        "import resource, test_cache as t",
        "t.check()",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))",  # no file may be longer
        "t.check(t.TEXT.replace('add.s32 %r3', 'mov.u32 %r3, 1; add.s32 %r3'))",
    )
    env = os.environ | {"PYTHONPATH": PATH + os.pathsep + str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-c", "\n".join(lines)], env=env, check=True, timeout=120)
    assert len(list(folder.iterdir())) == 1  # and nothing half-written


def open_to_others(path):
    path.chmod(path.stat().st_mode | 0o002)


def open_to_a_group(path):
    path.chmod(path.stat().st_mode | 0o020)


def of_another(path):
    os.chown(path, os.geteuid() + 1, -1)


@pytest.fixture
def anothers(monkeypatch):
    """Make files given to `of_another` belong to another user; only root may do that."""
    if os.geteuid() == 0:
        return
    given, fstat, stat = set(), os.fstat, os.stat

    def owned(state):
        return os.stat_result([*state[:4], state.st_uid + (state.st_ino in given), *state[5:10]])

    monkeypatch.setattr(os, "chown", lambda path, *_: given.add(stat(path).st_ino))
    monkeypatch.setattr(os, "fstat", lambda *args: owned(fstat(*args)))
    monkeypatch.setattr(os, "stat", lambda *args, **named: owned(stat(*args, **named)))


@pytest.mark.parametrize("change", [open_to_others, open_to_a_group, of_another])
@pytest.mark.parametrize("changed", ["folder", "file"])
def test_files_that_others_may_have_written_are_not_used(folder, anothers, changed, change):
    cache.write("one", b"content")
    assert cache.read("one") == b"content"
    (file,) = folder.iterdir()
    change(folder if changed == "folder" else file)
    with pytest.warns(RuntimeWarning, match=rf"{folder}.* are not used: .*set\s+GPULESS_CACHE .*chmod 700"):
        assert cache.read("one") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning only
        assert cache.read("one") is None
        cache.write("two", b"content")
    assert (cache.read("two") is None) == (changed == "folder")


def test_a_world_writable_folder_is_not_used(folder, tmp_path):
    cache.write("one", b"content")
    tmp_path.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=f"all users may replace what is in {tmp_path}"):
        assert cache.read("one") is None
    tmp_path.chmod(0o1777)  # as /tmp: only the owner may
    assert cache.read("one") == b"content"


def test_a_file_under_another_name_is_not_used(folder):
    cache.write("one", b"content")
    (path,) = folder.iterdir()
    path.rename(path.with_stem("two"))
    assert cache.read("two") is None


def test_planted_machine_code_does_not_run(folder, compiled):
    check()
    (name,) = (path.stem for path in folder.iterdir())
    run(TEXT.replace("5;", "6;"), [np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)], block=(32, 1, 1))
    (other,) = {path.stem for path in folder.iterdir()} - {name}
    cache.write(name, cache.read(other))
    with pytest.raises(AssertionError):
        check()  # it adds 6: the file in the folder is used
    folder.chmod(0o777)
    before = len(compiled)
    with pytest.warns(RuntimeWarning, match="are not used"):
        check()
    assert len(compiled) == before + 1


def test_least_recently_used_files_are_removed_first(folder, monkeypatch):
    folder.mkdir(0o700)
    now = time.time()
    for name, age in [
        ("used", 0),
        ("older", 3e5),
        ("oldest", 4e5),
        (".partial-dead", 2e5),
        (".partial-live", 10),
    ]:
        path = folder / f"{name}.gpuless"
        path.write_bytes(bytes(1000))
        os.utime(path, (now - age, now - age))
    monkeypatch.setattr(cache, "LIMIT", 3000)
    cache.write("new", b"x")
    assert sorted(path.stem for path in folder.iterdir()) == [".partial-live", "new", "older", "used"]


def test_files_of_others_stay_in_the_folder(folder, monkeypatch):
    folder.mkdir(0o700)
    (folder / "of another program").mkdir()
    (folder / "letter.txt").write_bytes(bytes(1000))
    os.utime(folder / "letter.txt", (1e9, 1e9))
    monkeypatch.setattr(cache, "LIMIT", 0)
    cache.write("new", b"x")
    assert (folder / "letter.txt").exists()
    assert cache.read("new") == b"x"


def test_a_file_that_another_process_deletes_meanwhile_prevents_nothing(folder):
    folder.mkdir(0o700)
    (folder / "gone.gpuless").symlink_to("nowhere")
    cache.write("new", b"x")
    assert cache.read("new") == b"x"


def test_using_a_file_makes_it_recent(folder):
    cache.write("one", b"content")
    (path,) = folder.iterdir()
    os.utime(path, (1e9, 1e9))
    assert cache.read("one") == b"content"
    assert time.time() - path.stat().st_mtime < 100


def test_processes_share_a_folder(folder):
    lines = (
        "import test_cache as t",
        "for n in range(8): t.check(t.TEXT.replace('add.s32 %r3', f'mov.u32 %r3, {n}; add.s32 %r3'))",
    )
    env = os.environ | {"PYTHONPATH": PATH + os.pathsep + str(Path(__file__).parent)}
    processes = [warm("emulator").start(["-c", "\n".join(lines)], env) for _ in range(4)]
    assert [warm("emulator").ended(process, wait=True)[0] for process in processes] == [0] * 4
    assert len(list(folder.iterdir())) == 8
