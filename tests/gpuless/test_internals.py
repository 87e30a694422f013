"""docs/internals.md, and the command on it that shows a kernel at each stage: `gpuless.emulator.explain`."""

import platform
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fresh_python import PROGRAMS, program_text
from test_running import PLAIN, call, call_warm

import gpuless

if not gpuless.select().emulated:
    pytest.skip("explains what the emulated GPU does", allow_module_level=True)

from numba import cuda

from gpuless import emulator
from gpuless.emulator import explain

pytestmark = pytest.mark.filterwarnings("ignore:Host array")
COMMAND = "-m", "gpuless.emulator.explain"
command = partial(call_warm, *COMMAND)
PACKAGE = Path(gpuless.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "internals.md"
STAGES = ["Python", "PTX", "Analyses", "LLVM IR", "Machine code", "Run"]
TWO_KERNELS = program_text("launches_of_two_kernels.py")


def stages(text):
    """Return the output by the name of each stage, and the line above them as ""."""
    head, *parts = re.split(r"^\d\. (.*)\n", text, flags=re.M)
    return {"": head.strip()} | {
        name: shown.rstrip() for name, shown in zip(parts[::2], parts[1::2], strict=True)
    }


def test_the_command_asks_for_a_script_only(tmp_path):
    status, _, error = command(cwd=tmp_path)
    assert status == 2
    assert error.endswith("error: the following arguments are required: script\n")


def explained(kernel, grid, block, *arguments, full=False):
    """Launch a kernel; return its stages."""
    with emulator.count_launches() as tallies:
        kernel[grid, block](*arguments)
    return stages(explain.explain(tallies[0], full))


# --- The page -----------------------------------------------------------------------------------------------


def test_the_page_shows_the_output_of_the_command(tmp_path):
    program, shown = re.search(
        r"^```python\n(.*?)^```.*?^```text\n(.*?)^```", PAGE.read_text(), re.M | re.S
    ).groups()
    (tmp_path / "kernel.py").write_text(program)
    status, printed, complaints = call(*PLAIN, *COMMAND, "kernel.py", cwd=tmp_path)
    assert (status, complaints) == (0, "")
    found, expected = stages(printed), stages(shown)
    assert list(found) == list(expected) == ["", *STAGES]
    for each in (found, expected):
        # How many instructions there are depends on the processor, and so may the IR.
        head = re.compile(r"   \d+ instructions, of which \d+ use vectors, for \S+")
        assert head.fullmatch(each.pop("Machine code"))
        each["LLVM IR"] = each["LLVM IR"] if platform.machine() == "x86_64" else ""
    assert found == expected


def test_the_page_lists_each_file_once():
    listed = []
    tables = re.findall(r"^\| gpuless/(\S+) \| \|\n((?:\|.*\n)*)", PAGE.read_text(), re.M)
    for folder, rows in tables:
        listed += [f"{folder}/{name}" for name in re.findall(r"`(\w+\.py)`", re.sub(r" \| .*", "", rows))]
    files = {
        path.relative_to(PACKAGE).as_posix()
        for name in ("emulator", "frontends")
        for path in (PACKAGE / name).rglob("*.py")
    }
    aside = {"emulator/install.py", "emulator/explain.py"}  # which the text names
    assert sorted(listed) == sorted(name for name in files - aside if not name.endswith("__init__.py"))
    assert all(f"`{name}`" in PAGE.read_text() for name in aside)


# --- The command --------------------------------------------------------------------------------------------


def test_the_first_launch_or_that_of_the_named_kernel_is_shown(tmp_path):
    (tmp_path / "two.py").write_text(TWO_KERNELS)
    status, printed, complaints = command("two.py", cwd=tmp_path)
    assert status == 0
    assert stages(printed)[""] == "first_kernel[1, 1]"
    assert complaints == "given []\n"  # the program's output is not mixed in
    status, printed, complaints = command(
        "--kernel", "second_kernel", "two.py", "--", "a", "-b", cwd=tmp_path
    )
    assert stages(printed)[""] == "second_kernel[1, 1]"
    assert "x[0] = 2" in stages(printed)["Python"]
    assert complaints == "given ['a', '-b']\n"


def test_a_wrong_name_gives_the_list_of_names(tmp_path):
    (tmp_path / "two.py").write_text(TWO_KERNELS)
    status, printed, complaints = command("two.py", "--kernel", "third", cwd=tmp_path)
    assert (status, printed) == (2, "")
    assert complaints.endswith("error: two.py launches no kernel 'third', but first_kernel, second_kernel\n")


def test_a_program_without_a_launch_is_an_error(tmp_path):
    shutil.copy(PROGRAMS / "program_without_a_launch.py", tmp_path / "none.py")
    status, printed, complaints = command("none.py", cwd=tmp_path)
    assert (status, printed) == (2, "")
    assert complaints.endswith("error: none.py launches no kernel: call one, as in kernel[1, 32](x)\n")


def test_a_missing_file_and_a_failing_program_are_errors(tmp_path):
    status, printed, complaints = command("absent.py", cwd=tmp_path)
    assert (status, printed) == (2, "")
    assert complaints.endswith("error: there is no file 'absent.py'\n")
    (tmp_path / "failing.py").write_text("raise KeyError('why')")
    status, printed, complaints = command("failing.py", cwd=tmp_path)
    assert (status, printed) == (1, "")
    assert complaints.endswith("KeyError: 'why'\n")
    (tmp_path / "ending.py").write_text("raise SystemExit(7)")
    assert command("ending.py", cwd=tmp_path) == (7, "", "")


# --- What is shown ------------------------------------------------------------------------------------------


@cuda.jit
def sum_kernel(x, total):
    part = cuda.shared.array(1, np.int32)
    if cuda.threadIdx.x == 0:
        part[0] = 0
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        cuda.atomic.add(part, 0, x[i])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        total[0] = part[0]


def test_loops_masks_and_shared_memory_are_described():
    found = explained(
        sum_kernel, 1, (16, 2), np.arange(100, dtype=np.int32), np.zeros(1, np.int32), full=True
    )
    assert found[""] == "sum_kernel[1, (16, 2, 1)]"
    assert re.search(r"block \d+: some lanes may be off; a loop begins, up to block \d+", found["Analyses"])
    assert re.search(r"mov\.u32 %r\d+, %tid\.x +0, 1, 2, \.\.\., 15\n", found["Analyses"])
    assert re.search(r"shared atomics: \d+ requests, \d+ wavefronts", found["Run"])
    assert "more lines" not in "".join(found.values())
    assert re.search(r"^   \d+ instructions.*\n   kernel:\n", found["Machine code"])


def test_a_long_stage_is_shortened():
    found = explained(sum_kernel, 1, 32, np.arange(100, dtype=np.int32), np.zeros(1, np.int32))
    shown = found["LLVM IR"].split("\n")
    assert len(shown) == explain.SHOWN + 1
    assert re.fullmatch(r"   \.\.\. \d+ more lines: --full shows them", shown[-1])


def test_a_source_that_is_not_in_a_file_is_not_shown():
    scope = {"cuda": cuda}
    exec("@cuda.jit\ndef made_kernel(x):\n    x[0] = 1", scope)
    found = explained(scope["made_kernel"], 1, 1, np.zeros(1))
    assert found["Python"] == "   (not known: its PTX was not compiled from a Python function in a file)"
    assert "made_kernel" in found["PTX"]
