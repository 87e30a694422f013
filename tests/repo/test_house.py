"""The imports between files: arrows point one way, there is no cycle, and gpuless could leave."""

import ast
import re

import pytest
from house import PACKAGES, ROOT, arrows, circles, files_of, imports_of, module_of, tree_of

from cnn_course.engine.outline import NOTEBOOKS

# From the top down. A file imports from its own package and from those below.
HOUSE = ("notebooks", "cnn_course", "benchmarks", "cnn_numba", "gpuless")
# From the top down, in cnn_numba. A part imports from itself and from those below it.
PARTS = ("cli", "pretrained", "beyond", "train", "nn", "data", "ops", "device")
PARTS += ("starting", "whole_files", "extras", "arguments")
# Which arrows point up, and why.
UPWARDS = {
    ("cnn_numba/cli", "benchmarks"): "`cnn-numba bench` runs them in a clone, and says so elsewhere",
}
# In no part: the package itself, `python -m cnn_numba`, and the old place of the course, for one release.
OUTSIDE = ("__init__", "__main__", "course")
# The parts of gpuless, from the top down, and which parts below each imports besides itself.
GPULESS = {
    "__main__": "profile running frontends nvidia",
    "testing": "profile running",
    "profile": "running inspector selection compiler source frontends emulator limits positions "
    "wrapping nvidia importing",
    "emulator/explain": "running counts emulator",
    "running": "selection",
    "startup": "selection",
    "sanitizer": "access simulator source positions wrapping limits",
    "access": "simulator source positions importing limits wrapping",
    "inspector": "compiler frontends source wrapping limits",
    "selection": "simulator frontends emulator nvidia",
    "counts": "frontends emulator positions limits wrapping",
    "simulator": "compiler source positions limits causes importing",
    "compiler": "frontends limits",
    "frontends": "emulator importing",
    "emulator": "source positions importing limits nvidia trust",
    "source": "",
    "positions": "",
    "wrapping": "",
    "importing": "",
    "limits": "causes",
    "causes": "",
    "nvidia": "",
    "trust": "",
}
# The stages of a kernel's way through the emulator: each imports from itself and those before it.
STAGES = ("ptx", "analysis", "translate", "run", "driver")
PUBLIC = re.compile(r"gpuless(\.(access|inspector|nvidia|sanitizer|selection|simulator|trust))?")


def part_of(module):
    """Return the place of a module: its folder or file in the package, "" for the package."""
    return (*module.split("."), "")[1]


@pytest.mark.parametrize("package", HOUSE[1:])
def test_a_package_imports_only_from_those_below(package):
    above, used = HOUSE[: HOUSE.index(package)], set()
    for path in files_of(package):
        for module, line in imports_of(path):
            top = module.split(".")[0]
            arrow = f"{package}/{part_of(module_of(path))}", top
            used |= {arrow} & UPWARDS.keys()
            assert top not in above or arrow in UPWARDS, f"{path}, line {line} imports {module}, from above"
    assert used == {arrow for arrow in UPWARDS if arrow[0].startswith(f"{package}/")}, (
        "is not needed any more"
    )


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_from_itself_and_those_below(part):
    above = (*PARTS[: PARTS.index(part)], *OUTSIDE)
    for path in files_of(f"cnn_numba/{part}"):
        for module, line in imports_of(path):
            if module.startswith("cnn_numba."):
                assert part_of(module) not in above, f"{path}, line {line} imports {module}, of a part above"


def test_every_file_of_the_package_is_in_a_part():
    found = {
        path.relative_to(ROOT / "cnn_numba").parts[0].removesuffix(".py") for path in files_of("cnn_numba")
    }
    assert found <= {*PARTS, *OUTSIDE}


def topic_of(module):
    """Return the chapter of a module, None for other modules."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["cnn_course", "chapters"] and len(parts) > 2 else None


def test_the_engine_knows_no_chapter():
    for path in files_of("cnn_course/engine"):
        for module, line in imports_of(path):
            assert topic_of(module) is None, f"{path}, line {line} imports {module}"


def test_a_chapter_imports_no_later_chapter():
    topics = [notebook.topic for notebook in NOTEBOOKS]
    for path in files_of("cnn_course/chapters"):
        if topic := topic_of(module_of(path)):
            for module, line in imports_of(path):
                assert topic_of(module) not in topics[topics.index(topic) + 1 :], (
                    f"{path}, line {line}: {module}"
                )


def test_the_outline_imports_nothing_of_the_course():
    assert [module for module, _ in imports_of(ROOT / "cnn_course/engine/outline.py")] == [
        "typing.NamedTuple"
    ]


@pytest.mark.parametrize("top", [True, False], ids=["when imported", "when called"])
def test_no_files_import_each_other(top):
    assert [sorted(circle) for circle in circles(arrows(top))] == []


@pytest.mark.parametrize("part", GPULESS)
def test_a_part_of_gpuless_imports_only_from_those_below(part):
    parts, allowed = list(GPULESS), GPULESS[part].split()
    assert set(allowed) <= set(parts[parts.index(part) + 1 :]), f"{part} is to import from above"
    own = {ROOT / f"gpuless/{other}.py" for other in parts if other != part}
    for path in files_of(f"gpuless/{part}"):
        for module, line in imports_of(path) if path not in own else ():
            package, _, rest = module.partition(".")
            if package == "gpuless":
                assert rest.partition(".")[0] in (part, *allowed), f"{path}, line {line} imports {module}"


def test_every_file_of_gpuless_is_in_a_part():
    found = {path.relative_to(ROOT / "gpuless").parts[0].removesuffix(".py") for path in files_of("gpuless")}
    assert found == {"__init__", *(part for part in GPULESS if "/" not in part)}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_of_the_emulator_imports_only_itself_and_earlier_stages(stage):
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


def test_the_package_uses_only_the_public_names_of_gpuless():
    for path in files_of("cnn_numba"):
        for module, line in imports_of(path):
            if module.split(".")[0] == "gpuless":
                owner = module.rpartition(".")[0] or module
                assert PUBLIC.fullmatch(owner), f"{path}, line {line} imports {module}"


def test_a_reference_imports_only_numpy_and_shared_parts():
    """Also other references and the checks of settings and shapes, but no arithmetic of another backend.

    The declarations in its `checks.py`, and `specs.py` that reads them, compare sizes and compute
    nothing: they are shared, and import no more than a reference does.
    """
    allowed = (
        *("numpy", "math", "operator", "numbers", "re", "functools", "typing", "collections.abc", "weakref"),
        *("cnn_numba.arguments", "cnn_numba.ops._reference", "cnn_numba.ops.specs"),
    )
    paths = [*files_of("cnn_numba/ops"), *files_of("cnn_numba/beyond")]
    paths = [path for path in paths if path.name in ("reference.py", "_reference.py", "specs.py")]
    for path in paths:
        declarations = ".".join([*path.relative_to(ROOT).parts[:-1], "checks"])
        for module, line in imports_of(path):
            if module == declarations:
                paths.append(path.with_name("checks.py"))
            elif not re.match(r"cnn_numba\.ops\.\w+\.reference\b", module):
                assert module.startswith(allowed), f"{path}, line {line} imports {module}"


# What imports a module by its name.
IMPORTERS = {"import_module", "__import__", "resolve_name", "run_module"}
# The course by its old place.
OLD = ("cnn_numba/course.py", "cnn_course/old_names.py")


def test_nothing_is_imported_by_a_name_in_a_string():
    for path in [path for package in PACKAGES for path in files_of(package)]:
        calls = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
        for call in (call for call in calls if ast.unparse(call.func).split(".")[-1] in IMPORTERS):
            where = f"{path}, line {call.lineno}: {ast.unparse(call)}"
            name = call.args[0]
            if isinstance(name, ast.Constant):
                assert name.value.split(".")[0] not in PACKAGES or str(path.relative_to(ROOT)) in OLD, where
            else:  # gpuless has two compilers, the course many frameworks
                assert path.relative_to(ROOT).parts[0] in ("gpuless", "cnn_course"), where


def test_layers_do_not_unpack_sequences_into_operations():
    """A reader sees which argument is which: inputs in order, the rest by keyword."""
    for path in files_of("cnn_numba"):
        in_layers = {"nn", "train", "beyond"} & set(path.relative_to(ROOT / "cnn_numba").parts)
        if in_layers and not re.match(r"(reference|cpu|gpu)", path.name):
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.Call) and "ops." in ast.unparse(node.func):
                    starred = [ast.unparse(each) for each in node.args if isinstance(each, ast.Starred)]
                    # `ConvChain.gather` passes its own arguments on.
                    assert set(starred) <= {"*arguments"}, f"{path}, line {node.lineno}: {ast.unparse(node)}"


BACKENDS = {"reference", "cpu", "gpu"}
# The functions that compare their names, and why; in device/ they are wishes for a device.
COMPARED = {
    "cnn_numba/ops/backends.py: backend": "makes the backend of a name",
    "cnn_numba/cli/resume.py: held_by": "compares what a file says",
    "cnn_numba/train/recipe.py: check_recipe": "compares what a file says",
}


def owner_of(node, path):
    """Return the name of the function that a node is in, "" outside of functions."""
    functions = [each for each in ast.walk(tree_of(path)) if isinstance(each, ast.FunctionDef)]
    around = [each for each in functions if each.lineno <= node.lineno <= each.end_lineno]
    return max(around, key=lambda each: each.lineno).name if around else ""


def test_code_asks_the_backend_instead_of_comparing_names():
    for path in files_of("cnn_numba"):
        if ROOT / "cnn_numba/device" not in path.parents:
            for node in ast.walk(tree_of(path)):
                parts = ast.walk(node) if isinstance(node, ast.Compare | ast.MatchValue) else ()
                if any(isinstance(part, ast.Constant) and part.value in BACKENDS for part in parts):
                    found = f"{path.relative_to(ROOT)}: {owner_of(node, path)}"
                    assert found in COMPARED, f"{found}, line {node.lineno}: {ast.unparse(node)}"
