"""Which room imports which: arrows point one way, and gpuless could leave."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# From the top down. A room imports from itself and from those below it.
ROOMS = ("cli", "pretrained", "beyond", "train", "nn", "data", "ops", "device", "extras", "arguments")
# The rooms of gpuless, from the top down, and which it imports besides itself: none that stands above it.
GPULESS = {
    "__main__": "running nvidia",
    "testing": "running",
    "emulator/explain": "running counts emulator",
    "running": "selection",
    "startup": "selection",
    "sanitizer": "access simulator source positions wrapping limits",
    "access": "simulator source positions limits",
    "inspector": "compiler frontends source wrapping limits",
    "selection": "simulator frontends emulator nvidia",
    "counts": "frontends emulator positions limits",
    "simulator": "compiler source positions limits importing",
    "compiler": "frontends limits",
    "frontends": "emulator importing",
    "emulator": "positions importing limits nvidia trust",
    "source": "",
    "positions": "",
    "wrapping": "",
    "importing": "",
    "limits": "",
    "nvidia": "",
    "trust": "",
}
# The stages of a kernel's way through the emulator: each imports from itself and those before it.
STAGES = ("ptx", "analysis", "translate", "run", "driver")
PUBLIC = re.compile(r"gpuless(\.(access|inspector|nvidia|sanitizer|selection|simulator|trust))?")


def imports_of(path):
    """Return (module, line) of what a file imports; names imported from a package count as its modules."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}, line {node.lineno}: a relative import in {package}"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def files_of(package):
    return sorted((ROOT / package).rglob("*.py"))


def room_of(module):
    """Return which of `ROOMS` a module of cnn_numba is in, None for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_itself_and_those_below(room):
    file = ROOT / "cnn_numba" / f"{room}.py"
    files = [file] if file.is_file() else files_of(f"cnn_numba/{room}")
    assert files
    above = ROOMS[: ROOMS.index(room)]
    for path in files:
        for module, line in imports_of(path):
            if module.startswith("cnn_numba."):
                assert room_of(module) not in above, f"{path}, line {line} imports {module}, of a room above"


@pytest.mark.parametrize("room", GPULESS)
def test_a_room_of_gpuless_imports_only_from_those_below(room):
    rooms, allowed = list(GPULESS), GPULESS[room].split()
    assert set(allowed) <= set(rooms[rooms.index(room) + 1 :]), f"{room} is to import from above"
    own = {ROOT / f"gpuless/{other}.py" for other in rooms if other != room}
    for path in files_of(f"gpuless/{room}") or [ROOT / f"gpuless/{room}.py"]:
        for module, line in imports_of(path) if path not in own else ():
            package, _, rest = module.partition(".")
            if package == "gpuless":
                assert rest.partition(".")[0] in (room, *allowed), f"{path}, line {line} imports {module}"


def test_every_file_of_gpuless_is_in_a_room():
    found = {path.relative_to(ROOT / "gpuless").parts[0].removesuffix(".py") for path in files_of("gpuless")}
    assert found == {"__init__", *(room for room in GPULESS if "/" not in room)}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_of_the_emulator_imports_from_itself_and_those_before(stage):
    before = STAGES[: STAGES.index(stage) + 1]
    files = files_of(f"gpuless/emulator/{stage}")
    assert len(files) > 3
    for path in files:
        for module, line in imports_of(path):
            if module.startswith("gpuless.emulator."):
                assert module.split(".")[2] in before, f"{path}, line {line} imports {module}"


def test_every_file_of_the_emulator_is_in_a_stage():
    found = {path.relative_to(ROOT / "gpuless/emulator").parts[0] for path in files_of("gpuless/emulator")}
    assert found == {"__init__.py", "install.py", "explain.py", *STAGES}


def test_files_of_gpuless_import_each_other_in_no_circle():
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files_of("gpuless")}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    imported = {
        name: {_file_of(module, modules) for module, _ in imports_of(path)} - {name, None}
        for name, path in modules.items()
    }
    # Who imports nobody is in none, nor is who is imported by nobody.
    while free := {
        name for name in imported if not imported[name] or name not in set().union(*imported.values())
    }:
        imported = {name: others - free for name, others in imported.items() if name not in free}
    assert not imported, f"a circle among {sorted(imported)}"


def _file_of(module, modules):
    """Return the file that an import is of: a module, or the one that a name is taken from."""
    owner = module.rpartition(".")[0]
    return module if module in modules else owner if owner in modules else None


def test_only_frontends_touch_the_internals_of_a_compiler():
    for path in files_of("gpuless"):
        if (ROOT / "gpuless/frontends") not in path.parents:
            for module, line in imports_of(path):
                internal = module.startswith(("numba.cuda.", "numba_cuda"))
                assert not internal, f"{path}, line {line} imports {module}: that is for gpuless/frontends"


def test_gpuless_knows_nothing_of_the_course():
    for path in files_of("gpuless"):
        for module, line in imports_of(path):
            assert module.split(".")[0] != "cnn_numba", f"{path}, line {line}"
        assert "cnn_numba" not in path.read_text(encoding="utf-8"), path


def test_the_package_uses_the_public_face_of_gpuless():
    for path in files_of("cnn_numba"):
        for module, line in imports_of(path):
            if module.split(".")[0] == "gpuless":
                owner = module.rpartition(".")[0] or module
                assert PUBLIC.fullmatch(owner), f"{path}, line {line} imports {module}"


def test_a_reference_imports_numpy_and_what_references_share():
    """And the checks of settings and shapes, which are the same in every room; no arithmetic of another room.

    Declarations of an operation's arguments, and `specs.py` which reads them, compare sizes and compute none:
    they are shared, and import no more than a reference does.
    """
    allowed = (
        *("numpy", "math", "operator", "numbers", "re", "functools", "typing", "collections.abc"),
        *("cnn_numba.arguments", "cnn_numba.ops._reference", "cnn_numba.ops.specs"),
    )
    paths = [*files_of("cnn_numba/ops"), *files_of("cnn_numba/beyond")]
    paths = [path for path in paths if path.name in ("reference.py", "_reference.py", "specs.py")]
    for path in paths:
        declarations = ".".join([*path.relative_to(ROOT).parts[:-1], "checks"])
        for module, line in imports_of(path):
            if module == declarations:
                paths.append(path.with_name("checks.py"))
            else:
                assert module.startswith(allowed), f"{path}, line {line} imports {module}"


def test_nothing_is_imported_by_its_name_as_text():
    for path in files_of("cnn_numba"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"""import_module\(f?["']cnn_numba""", text), path


def test_where_is_asked_of_the_room_and_not_of_a_word():
    for path in files_of("cnn_numba"):
        if "device" in path.parts or path.name == "backends.py":
            continue
        assert not re.search(r"""[!=]= ["']gpu["']|["']gpu["'] [!=]=""", path.read_text(encoding="utf-8")), (
            path
        )
