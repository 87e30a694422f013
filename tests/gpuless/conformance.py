"""Run the tests that numba-cuda's wheel ships on the emulated GPU, and compare the outcome with a list.

``python conformance.py`` runs all of them, each module in a process of its own; ``python conformance.py
cudapy.test_array`` those that are named. Whatever does not pass stands in ``conformance.toml`` with its
reason, and whatever stands there must not pass. What the modules print, and why tests failed, is kept in
``build/conformance``. When all have run, and all is as listed, the table in ``docs/emulated-gpu.md`` is
written anew.
"""

import argparse
import collections
import concurrent.futures
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
LIST = HERE / "conformance.toml"
PAGE = HERE.parents[1] / "docs" / "emulated-gpu.md"
_BEGIN, _END = "<!-- conformance -->\n", "<!-- /conformance -->\n"
PACKAGES = {
    "cudapy": "kernels, and what is called in them",
    "cudadrv": "driver, arrays, streams, linking",
    "doc_examples": "the examples of the manual",
    "nrt": "memory counted by references",
}
OUTCOMES = ("passed", "failed", "skipped")
_TESTS = "numba.cuda.tests"
_LIMIT = 1200  # seconds that a module may take


# --- As a plugin of pytest, in the process of a module -----------------------------------------------------


class _Module(pytest.Module):
    """A module that is imported by its name; by its file pytest would not find out the name."""

    def _getobj(self):
        folder, file = self.path.parts[-2:]
        return importlib.import_module(f"{_TESTS}.{folder}.{file.removesuffix('.py')}")


def pytest_pycollect_makemodule(module_path, parent):
    """Collect a module of the tests."""
    return _Module.from_parent(parent, path=module_path)


def pytest_collect_directory(path, parent):
    """Collect a folder, and not as a package that is imported by its file."""
    return pytest.Dir.from_parent(parent, path=path)


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """Stand for the fixture that numba-cuda's own conftest.py has, which the wheel lacks."""
    request.cls._dump_failed_filechecks = False


def pytest_collection_modifyitems(items):
    """Note the tests that are to be run."""
    _note(*({"test": _name(item.nodeid), "outcome": "not run"} for item in items))


def pytest_runtest_logreport(report):
    """Note what has become of a test, or of a part of it."""
    if report.when == "call" or not report.passed:
        outcome = "passed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
        _note({"test": _name(report.nodeid), "outcome": outcome, "why": _why(report)})


def pytest_collectreport(report):
    """Note a module that could not be imported, or is skipped as a whole."""
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
    return ".".join([*Path(path).with_suffix("").parts[-2:], *rest])


def _note(*records):
    with open(os.environ["CONFORMANCE_NOTES"], "a", encoding="utf-8") as notes:
        notes.writelines(json.dumps(record) + "\n" for record in records)


# --- Running -----------------------------------------------------------------------------------------------


def modules():
    """Return the modules that there are, as ``package.module``."""
    return [
        f"{folder}.{file.stem}" for folder in PACKAGES for file in sorted(_folder(folder).glob("test_*.py"))
    ]


def _folder(package):
    spec = importlib.util.find_spec(f"{_TESTS}.{package}")
    return Path(spec.submodule_search_locations[0])


def run(module, folder, limit=_LIMIT):
    """Run a module in a process of its own.

    Parameters
    ----------
    module : str
        ``package.module``.
    folder : Path
        Where notes are kept.
    limit : float
        Seconds, after which it is stopped.

    Returns
    -------
    dict of str to (str, str)
        For each test of the module its outcome and the reason.
    """
    package, name = module.split(".")
    notes = folder / f"{module}.jsonl"
    notes.unlink(missing_ok=True)
    path = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "CONFORMANCE_NOTES": str(notes),
        "GPULESS": "emulator",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }
    plugins = [
        "-p",
        "gpuless",
        "-p",
        "conformance",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:nbval",
        "-p",
        "no:xdist",
    ]
    options = ["-c", os.devnull, "--rootdir", str(_folder(package).parent), "-q", "-W", "ignore", *plugins]
    command = [sys.executable, "-m", "pytest", *options, str(_folder(package) / f"{name}.py")]
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
    """Return outcome and reason of each test that was noted."""
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


def run_all(chosen, folder, processes=2, tell=print):
    """Run modules, so many at a time; return outcome and reason of each test."""
    found = {}
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        running = {pool.submit(run, module, folder): module for module in chosen}
        for done in concurrent.futures.as_completed(running):
            found |= done.result()
            counts = collections.Counter(outcome for outcome, _ in done.result().values())
            tell(
                f"{running[done]}: {', '.join(f'{counts[word]} {word}' for word in OUTCOMES if counts[word])}"
            )
    return found


# --- Comparing ---------------------------------------------------------------------------------------------


def listed():
    """Return (outcome, reason, whether it may pass elsewhere) of each test that is listed."""
    entries = tomllib.loads(LIST.read_text(encoding="utf-8"))["reason"]
    return {
        test: (entry["outcome"], entry["why"], entry.get("may_pass", False))
        for entry in entries
        for test in entry["tests"]
    }


def differences(found, chosen):
    """Return what is other than the list says, a line for each test; `chosen` are the modules that ran."""
    known = {test: entry for test, entry in listed().items() if _module(test) in chosen}
    lines = []
    for test, (outcome, why) in sorted(found.items()):
        expected, _, may_pass = known.get(test, ("passed", "", False))
        if outcome != expected and not (may_pass and outcome == "passed"):
            lines.append(f"{test}: {outcome}, listed as {expected}: {_first_line(why)}")
    return lines + [
        f"{test}: listed, and there is no such test" for test in sorted(known.keys() - found.keys())
    ]


def _module(test):
    return ".".join(test.split(".")[:2])


def _first_line(text):
    return (text.strip().splitlines() or [""])[0]


def table(found):
    """Return how many tests of each package passed, failed and were skipped, as a table in Markdown."""
    counts = collections.Counter((test.split(".")[0], outcome) for test, (outcome, _) in found.items())
    lines = ["| tests of numba-cuda " + version() + " | " + " | ".join(OUTCOMES) + " |", "|---|---|---|---|"]
    for package, what in PACKAGES.items():
        numbers = [counts[package, outcome] for outcome in OUTCOMES]
        if any(numbers):
            lines.append(f"| `{package}`: {what} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def version():
    """Return numba-cuda's."""
    return importlib.metadata.version("numba-cuda")


def recorded():
    """Return the table that the page has."""
    return PAGE.read_text(encoding="utf-8").partition(_BEGIN)[2].partition(_END)[0].strip()


def record(found):
    """Write the table into the page."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    PAGE.write_text(f"{before}{begin}{table(found)}\n{_END}{rest.partition(_END)[2]}", encoding="utf-8")


def main():
    """Run what the command line names; exit with 1 if the outcome is other than the list says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="such as cudapy.test_array; all by default")
    parser.add_argument("-j", "--processes", type=int, default=2)
    options = parser.parse_args()
    chosen = options.modules or modules()
    folder = HERE.parents[1] / "build" / "conformance"
    folder.mkdir(parents=True, exist_ok=True)
    found = run_all(chosen, folder, options.processes)
    print(f"\n{table(found)}\n")
    wrong = differences(found, chosen)
    print("\n".join(wrong) if wrong else f"All is as {LIST.name} says.")
    if not (wrong or options.modules):
        record(found)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
