"""Run a compiler's own tests on the emulated GPU, and compare the outcome with a list.

``python conformance.py`` runs those that numba-cuda's wheel ships, each module in its own process;
``python conformance.py cudapy.test_array`` those that are named. The wheel of numba-cuda-mlir ships none:
``python conformance.py --mlir CLONE`` runs those of a clone of its repository. Tests that do not pass are
in ``conformance.toml`` or ``conformance-mlir.toml`` with a reason, and the tests there must not pass.
The output of the modules and the failures are kept in ``build``, in a folder named like the list.
When all have run, and all is as listed, the table in ``docs/emulated-gpu.md`` is rewritten.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "emulated-gpu.md"
OUTCOMES = ("passed", "failed", "skipped")
_REPOSITORY = "https://github.com/NVIDIA/numba-cuda-mlir"
_LIMIT = 1200  # seconds for a module


@dataclasses.dataclass(frozen=True)
class Suite:
    """The tests of a compiler.

    Parameters
    ----------
    name : str
        Of the list, of the folder of logs and of the table.
    compiler : str
        The tested distribution.
    packages : dict of str to str
        The folders of tests, below the root, and the subject of each.
    imported_as : str
        The package that the modules are imported from; with "" pytest imports them by their files.
    first : str
        A module to import before the tests: if all run in one process, an earlier test has imported it.
    clone : Path, optional
        Of the repository that has the tests; without it the package has them.
    """

    name: str
    compiler: str
    packages: dict
    imported_as: str = ""
    first: str = ""
    clone: Path | None = None

    @property
    def list(self):
        """The file that lists the tests that do not pass."""
        return HERE / f"{self.name}.toml"

    @property
    def logs(self):
        """The folder for the output of the modules."""
        return HERE.parents[1] / "build" / self.name

    @property
    def root(self):
        """The folder of the packages."""
        return self.clone or Path(importlib.util.find_spec(self.imported_as).submodule_search_locations[0])

    @property
    def options(self):
        """Pytest's options: the repository's own settings, without options for plugins that need a GPU."""
        if self.clone:
            return ["-c", str(self.clone / "pyproject.toml"), "-o", "addopts="]
        return ["-c", os.devnull, "--rootdir", str(self.root)]

    def folder(self, package):
        """Return the folder of a package, which is named by the last part of its path."""
        return self.root / next(path for path in self.packages if Path(path).name == package)


NUMBA_CUDA = Suite(
    "conformance",
    "numba-cuda",
    {
        "cudapy": "kernels, and what is called in them",
        "cudadrv": "driver, arrays, streams, linking",
        "doc_examples": "the examples of the manual",
        "nrt": "memory counted by references",
    },
    imported_as="numba.cuda.tests",
    first="numba.cuda",
)
MLIR = Suite(
    "conformance-mlir",
    "numba-cuda-mlir",
    {
        "tests": "kernels, and what is called in them",
        "tests/ast_transforms": "loops unrolled and constants folded in the source",
        "tests/infra": "PTX, MLIR and machine code, written and linked",
        "tests/memory_management": "memory counted by references",
        "tests/mlir": "its builders of MLIR",
        "tests/runtime": "complex functions",
        "tests/doc_examples": "the examples of the manual",
        "tests/numba_cuda_tests/cudapy": "kernels, in the tests taken from numba-cuda",
        "tests/numba_cuda_tests/cudadrv": "driver, arrays, streams, linking, in those likewise",
    },
    first="numba_cuda_mlir.cuda",
)


def of_clone(path):
    """Return the tests of a clone of numba-cuda-mlir; ``SystemExit`` says what it lacks."""
    clone = Path(path).absolute()
    for pattern in [".git", "pyproject.toml", *(f"{package}/test_*.py" for package in MLIR.packages)]:
        if not any(clone.glob(pattern)):
            sys.exit(f"{clone} is no clone of {_REPOSITORY}: it has no {pattern}")
    return dataclasses.replace(MLIR, clone=clone)


# --- As a plugin of pytest, in the process of a module -----------------------------------------------------


class _Module(pytest.Module):
    """A module that is imported by name: from the file pytest would not find the name."""

    def _getobj(self):
        folder, file = self.path.parts[-2:]
        package = os.environ["CONFORMANCE_PACKAGE"]
        return importlib.import_module(f"{package}.{folder}.{file.removesuffix('.py')}")


def pytest_sessionstart():
    """Import what modules expect others to have imported."""
    importlib.import_module(os.environ["CONFORMANCE_FIRST"])


def pytest_pycollect_makemodule(module_path, parent):
    """Collect a module of the tests."""
    return _Module.from_parent(parent, path=module_path) if os.environ["CONFORMANCE_PACKAGE"] else None


def pytest_collect_directory(path, parent):
    """Collect a folder, and not as a package that is imported by its file."""
    return pytest.Dir.from_parent(parent, path=path) if os.environ["CONFORMANCE_PACKAGE"] else None


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """Replace the fixture of numba-cuda's own conftest.py, which the wheel lacks."""
    request.cls._dump_failed_filechecks = False


def pytest_collection_modifyitems(items):
    """Record the tests to run."""
    _note(*({"test": _name(item.nodeid), "outcome": "not run"} for item in items))


def pytest_runtest_logreport(report):
    """Record the outcome of a test, or of a part of it."""
    if report.when == "call" or not report.passed:
        outcome = "passed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
        _note({"test": _name(report.nodeid), "outcome": outcome, "why": _why(report)})


def pytest_collectreport(report):
    """Record a module that cannot be imported, or is skipped as a whole."""
    if not report.passed:
        _note({"test": _name(report.nodeid), "outcome": report.outcome, "why": _why(report)})


def _why(report):
    if isinstance(report.longrepr, tuple):  # file, line, reason: it was skipped
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash else report.longreprtext


def _name(node):
    """Return package.module.class.test of a node's name, which has a path in its first part."""
    path, *rest = node.split("::")
    return ".".join(
        [*path.removesuffix(".py").split("/")[-2:], *rest]
    )  # a test may pretend that this is Windows


def _note(*records):
    with open(os.environ["CONFORMANCE_NOTES"], "a", encoding="utf-8") as notes:
        notes.writelines(json.dumps(record) + "\n" for record in records)


# --- Running -----------------------------------------------------------------------------------------------


def modules(suite):
    """Return all modules, as ``package.module``."""
    return [
        f"{Path(package).name}.{file.stem}"
        for package in suite.packages
        for file in sorted((suite.root / package).glob("test_*.py"))
    ]


def run(suite, module, folder, limit=_LIMIT):
    """Run a module in its own process.

    Parameters
    ----------
    suite : Suite
        The tests.
    module : str
        ``package.module``.
    folder : Path
        Where notes are kept.
    limit : float
        Seconds until it is stopped.

    Returns
    -------
    dict of str to (str, str)
        For each test of the module its outcome and the reason.
    """
    package, name = module.split(".")
    notes = folder / f"{module}.jsonl"
    notes.unlink(missing_ok=True)
    path = [str(suite.clone or ""), str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "CONFORMANCE_NOTES": str(notes),
        "CONFORMANCE_PACKAGE": suite.imported_as,
        "CONFORMANCE_FIRST": suite.first,
        "GPULESS": "emulator",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }
    plugins = ["gpuless", "conformance", "no:cacheprovider", "no:nbval", "no:xdist"]
    options = [*suite.options, "-q", "-W", "ignore", *(part for plugin in plugins for part in ("-p", plugin))]
    command = [sys.executable, "-m", "pytest", *options, str(suite.folder(package) / f"{name}.py")]
    with open(folder / f"{module}.log", "w", encoding="utf-8") as log:
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, stdout=log, stderr=log, timeout=limit, check=False
            )
            end = "passed" if done.returncode in (0, 1, 5) else f"the process ended with {done.returncode}"
        except subprocess.TimeoutExpired:
            end = f"the process was stopped after {limit} seconds"
    return _read(notes, module, end)


def _read(notes, module, end):
    """Return outcome and reason of each recorded test."""
    found = {}
    for line in notes.read_text(encoding="utf-8").splitlines() if notes.exists() else ():
        record = json.loads(line)
        before = found.get(record["test"], ("not run", ""))[0]
        if before != "failed" and (before, record["outcome"]) != ("skipped", "passed"):
            found[record["test"]] = record["outcome"], record.get("why", "")
    if not found and end != "passed":
        found[module] = "not run", ""
    return {
        test: ("failed", end) if what == "not run" else (what, why) for test, (what, why) in found.items()
    }


def run_all(suite, chosen, folder, processes=2, tell=print):
    """Run modules, several at a time; return outcome and reason of each test."""
    found = {}
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        running = {pool.submit(run, suite, module, folder): module for module in chosen}
        for done in concurrent.futures.as_completed(running):
            found |= done.result()
            counts = collections.Counter(outcome for outcome, _ in done.result().values())
            tell(
                f"{running[done]}: {', '.join(f'{counts[word]} {word}' for word in OUTCOMES if counts[word])}"
            )
    return found


# --- Comparing ---------------------------------------------------------------------------------------------


def listed(suite):
    """Return (outcome, reason, outcome on other machines or None) of each listed test."""
    entries = tomllib.loads(suite.list.read_text(encoding="utf-8"))["reason"]
    return {
        test: (entry["outcome"], entry["why"], entry.get("elsewhere"))
        for entry in entries
        for test in entry["tests"]
    }


def differences(suite, found, chosen):
    """Return the differences from the list, a line for each test; `chosen` are the modules that ran."""
    known = {test: entry for test, entry in listed(suite).items() if _module(test) in chosen}
    lines = []
    for test, (outcome, why) in sorted(found.items()):
        expected, _, elsewhere = known.get(test, ("passed", "", None))
        if outcome not in (expected, elsewhere):
            lines.append(f"{test}: {outcome}, listed as {expected}: {_first_line(why)}")
    return lines + [
        f"{test}: listed, and there is no such test" for test in sorted(known.keys() - found.keys())
    ]


def _module(test):
    return ".".join(test.split(".")[:2])


def _first_line(text):
    return (text.strip().splitlines() or [""])[0]


def table(suite, found):
    """Return how many tests of each package passed, failed and were skipped, as a table in Markdown."""
    counts = collections.Counter((test.split(".")[0], outcome) for test, (outcome, _) in found.items())
    lines = [f"| {tested(suite)} | {' | '.join(OUTCOMES)} |", "|---|---|---|---|"]
    for package, what in suite.packages.items():
        numbers = [counts[Path(package).name, outcome] for outcome in OUTCOMES]
        if any(numbers):
            lines.append(f"| `{package}`: {what} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def tested(suite):
    """Return the version of the compiler, and tag and commit of the tests of a clone."""
    compiler = f"{suite.compiler} {importlib.metadata.version(suite.compiler)}"
    if not suite.clone:
        return f"tests of {compiler}"
    command = ["git", "-C", str(suite.clone), "describe", "--tags", "--always", "--long", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return f"tests of {commit}, {compiler}"


def _marks(suite):
    return f"<!-- {suite.name} -->\n", f"<!-- /{suite.name} -->\n"


def recorded(suite):
    """Return the table of the page."""
    begin, end = _marks(suite)
    return PAGE.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].strip()


def record(suite, found):
    """Write the table into the page."""
    begin, end = _marks(suite)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    PAGE.write_text(f"{before}{begin}{table(suite, found)}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def main():
    """Run the modules on the command line; exit with 1 if the outcome differs from the list."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mlir", metavar="CLONE", help="run the tests of this clone of numba-cuda-mlir")
    parser.add_argument("modules", nargs="*", help="such as cudapy.test_array; all by default")
    parser.add_argument("-j", "--processes", type=int, default=2)
    options = parser.parse_args()
    suite = NUMBA_CUDA if options.mlir is None else of_clone(options.mlir)
    unknown = set(options.modules) - set(modules(suite))
    if unknown:
        parser.error(f"there are no tests {', '.join(sorted(unknown))} in {suite.root}")
    chosen = options.modules or modules(suite)
    suite.logs.mkdir(parents=True, exist_ok=True)
    found = run_all(suite, chosen, suite.logs, options.processes)
    print(f"\n{table(suite, found)}\n")
    wrong = differences(suite, found, chosen)
    print("\n".join(wrong) if wrong else f"All is as {suite.list.name} says.")
    if not (wrong or options.modules):
        record(suite, found)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
