"""Cells that run in a page of the book, in a headless Chromium and in a headless Firefox.

Skipped for a browser that is not installed, and if `make page` has not fetched the packages. Running
Python needs NumPy for Pyodide, which no registry has: ``CNN_NUMBA_PYODIDE_WHEELS`` names its folder.
"""

import html
import json
import os
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import pytest
from browser import Quiet, chrome_in, serving, until
from firefox import firefox_in
from helpers import PROGRAMS
from test_exercises import FOUND
from test_in_page import answers_of, asked, in_page, judged_alone, live

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "build" / "page" / "npm" / "node_modules"
if not MODULES.is_dir():
    pytest.skip("the packages of the pages are not there: make page", allow_module_level=True)
WHEELS = os.environ.get("CNN_NUMBA_PYODIDE_WHEELS")

pytestmark = pytest.mark.slow
needs_wheels = pytest.mark.skipif(not WHEELS, reason="CNN_NUMBA_PYODIDE_WHEELS names no wheels for Pyodide")
STEM = "00_start_here"
CELLS = ("brighten-kernel-stub", "count-kernel-stub")
#: The most that a page may load for running cells before anything runs: mostly CodeMirror.
BUDGET = 420_000
PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Cells</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="live.css"></head>
<body style="--pst-color-surface: #f3f4f5; --pst-color-text-base: #222; --pst-color-text-muted: #48566b;
--pst-color-background: #fff"><main><h1>Cells</h1>{cells}</main><p><a href="#">behind</a></p>
<script type="module" src="{script}"></script></body></html>"""
CELL = """<section><h2>{cell}</h2><div class="cell tag_live-{cell}"><div class="cell_input">
<pre>{source}
</pre></div><div class="cell_output">as stored</div></div>
<div class="cell tag_exercise-check">the check</div></section>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return a folder with a page of two exercises and the files that run them."""
    folder = tmp_path_factory.mktemp("site") / "page"
    sys.path.insert(0, str(ROOT / "docs" / "book"))  # its modules are in no package
    try:
        import bundle

        _, script = bundle.write(folder, ROOT / "build" / "page")
    finally:
        sys.path.remove(str(ROOT / "docs" / "book"))
    sources = {f"{f.cells.name.replace('_', '-')}-stub": f.cells.stub for f in FOUND if f.path.stem == STEM}
    cells = "".join(CELL.format(cell=cell, source=html.escape(sources[cell])) for cell in CELLS)
    (folder / f"{STEM}.html").write_text(PAGE.format(cells=cells, script=script), encoding="utf-8")
    return folder


class Outside(Quiet):
    """A proxy that rejects and records all requests: local files need none."""

    asked: ClassVar[list] = []

    def refuse(self):
        """Record the requested address, or host and port."""
        self.asked.append(self.path)
        self.send_error(403)

    do_CONNECT = do_GET = do_HEAD = do_OPTIONS = do_POST = do_PUT = refuse


def chromium_in(folder, proxy):
    return chrome_in(folder, f"proxy-server={proxy.removesuffix('/')}")


@pytest.fixture(scope="module", params=[chromium_in, firefox_in])
def browser(site, tmp_path_factory, request):
    """Yield a browser and the address of the page."""
    folder = tmp_path_factory.mktemp("browser")
    with serving(site) as address, serving(site, Outside) as proxy:
        with request.param(folder, proxy) as driver:
            yield driver, f"{address}{STEM}.html"


@pytest.fixture
def page(browser):
    """Return a browser with the page as at a first visit."""
    chrome, address = browser
    chrome.get(address)
    chrome.execute_script("localStorage.clear()")
    return opened(chrome, address)


def opened(chrome, address):
    chrome.get(address)
    until(chrome, lambda chrome: chrome.execute_script("return document.documentElement.dataset.live") == "2")
    return chrome


def part(page, selector, cell=CELLS[0]):
    return page.find_element("css selector", f".tag_live-{cell} {selector}")


def shown(page, cell=CELLS[0]):
    """Return the text of an editor."""
    lines = page.find_elements("css selector", f".tag_live-{cell} .cm-line")
    return "\n".join(line.get_property("textContent") for line in lines)


def press(page, *keys):
    from selenium.webdriver import ActionChains

    ActionChains(page).send_keys(*keys).perform()


def focused(page):
    return page.execute_script("return document.activeElement.className || document.activeElement.tagName")


def source_of(name):
    return next(found for found in FOUND if found.cells.name == name)


# --- Without Python ----------------------------------------------------------------------------------------


def test_before_the_first_run_no_byte_of_python_is_loaded(page):
    script = "return performance.getEntriesByType('resource').map((e) => [e.name, e.decodedBodySize])"
    loaded = {name.split("/")[-1]: size for name, size in page.execute_script(script)}
    loaded.pop("favicon.ico", None)
    assert sorted(re.sub("-[0-9a-f]{16}", "", name) for name in loaded) == ["live.css", "live.mjs"]
    assert sum(loaded.values()) < BUDGET


def test_loaded_files_name_only_the_release_of_pyodide(site):
    texts = [path.read_text(encoding="utf-8") for path in site.glob("*.mjs")]
    assert len(texts) == 2
    hosts = {host for text in texts for host in re.findall(r"https?://([\w.-]+)", text)}
    assert hosts <= {"cdn.jsdelivr.net", "www.w3.org"}


def test_nothing_is_requested_but_the_release_of_pyodide(page):
    page.execute_async_script("fetch('http://elsewhere.invalid/').finally(arguments[0])")
    assert "http://elsewhere.invalid/" in Outside.asked  # so that a request would be seen
    Outside.asked.clear()
    part(page, ".cm-content").click()
    press(page, "# mine\n")
    run(page)
    hosts = {re.match(r"(?:\w+://)?([^/:]+)", address)[1] for address in Outside.asked}
    by_browsers = re.compile(r"(^|\.)(google|googleapis|gstatic|mozilla|firefox)\.(com|net|org)$")
    own = set(filter(by_browsers.search, hosts))
    assert hosts - own == (set() if WHEELS else {"cdn.jsdelivr.net"})


def test_an_editor_replaces_the_cell_and_its_check(page):
    assert shown(page) == source_of("brighten_kernel").cells.stub
    assert [button.text for button in page.find_elements("css selector", ".live-bar button")[:3]] == [
        *("Run and check", "Stop", "Reset")
    ]
    assert not page.find_element("css selector", ".tag_exercise-check").is_displayed()
    assert "nothing is sent anywhere" in page.find_element("css selector", ".live-note").text


def test_edits_are_kept_and_reset_restores_the_stub(page, browser):
    part(page, ".cm-content").click()
    press(page, "# mine\n")
    assert "# mine" in shown(page)
    opened(*browser)
    assert "# mine" in shown(page)
    assert "# mine" not in shown(page, CELLS[1])
    part(page, "button:nth-of-type(3)").click()
    assert shown(page) == source_of("brighten_kernel").cells.stub
    opened(*browser)
    assert shown(page) == source_of("brighten_kernel").cells.stub


def test_tab_moves_through_the_page_and_indents_in_the_editor(page):
    from selenium.webdriver import Keys

    reached = []
    while "behind" not in reached and len(reached) < 30:
        press(page, Keys.TAB)
        reached.append(page.execute_script("return document.activeElement.textContent.trim()"))
    assert "behind" in reached
    part(page, ".cm-content").click()
    press(page, Keys.HOME, Keys.TAB)
    assert re.search(r"^ {4,}", "\n".join(shown(page).splitlines()), re.MULTILINE)
    assert "cm-content" in focused(page)
    press(page, Keys.ESCAPE, Keys.TAB)
    assert "cm-content" not in focused(page)


def test_editors_buttons_and_outputs_have_names(page):
    assert part(page, ".cm-content").get_attribute("aria-label") == (
        "Python: brighten-kernel-stub, cell 1. Escape, then Tab leaves the editor."
    )
    assert part(page, ".live-run").accessible_name == "Run and check: brighten-kernel-stub, cell 1"
    assert part(page, ".live-output").get_attribute("role") == "status"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(page, theme):
    axe = Path(find_spec("axe_core_python").origin).with_name("axe.min.js").read_text(encoding="utf-8")
    page.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
    if theme == "dark":
        page.execute_script(
            "const style = document.body.style; style.background = '#121212'; style.color = '#eee';"
            "for (const [name, value] of Object.entries({'surface': '#29313d', 'text-base': '#eee',"
            "'text-muted': '#9ca4af', 'background': '#121212'}))"
            "style.setProperty(`--pst-color-${name}`, value);"
        )
    page.execute_script(axe)
    script = "axe.run('main', {runOnly: ['wcag2a', 'wcag2aa']}).then(arguments[0])"
    found = page.execute_async_script(script)["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []


def test_a_telephone_is_wide_enough(page):
    page.set_window_size(420, 900)
    assert page.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 2
    page.set_window_size(1200, 1000)


def test_a_workbook_is_read_into_the_editors_and_kept(page, browser, tmp_path):
    files = {
        "start_here_count_kernel.py": '"""`count_kernel`, found right."""\n\nx = 1\n',
        "elsewhere_x.py": "x = 2\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    chooser = page.find_element("css selector", ".live-note input[type=file]")
    chooser.send_keys("\n".join(str(tmp_path / name) for name in files))
    until(page, lambda page: "1 answers read" in page.find_element("css selector", ".live-note").text)
    assert shown(page, CELLS[1]) == "x = 1"
    keys = page.execute_script("return Object.keys(localStorage).sort()")
    assert keys == [
        "cnn-numba:answer:00_start_here:count-kernel-stub",
        "cnn-numba:workbook:start_here_count_kernel.py",
    ]


# --- With Python -------------------------------------------------------------------------------------------


def write(page, source, cell=CELLS[0]):
    """Put a source into an editor, as if it had been typed."""
    page.execute_script("localStorage.setItem(...arguments)", f"cnn-numba:answer:{STEM}:{cell}", source)
    opened(page, page.current_url)


def run(page, cell=CELLS[0]):
    """Press the button; return the output."""
    part(page, ".live-run", cell).click()
    ended = re.compile(r"\d s$|^Stopped")
    until(page, lambda page: ended.search(part(page, ".live-state", cell).text))
    return part(page, ".live-output", cell).text


@needs_wheels
def test_answers_get_the_verdicts_of_a_notebook(page):
    found = source_of("count_kernel")
    for source, verdict in {
        found.cells.stub: "○ not solved yet: count_kernel\nThe kernel is unchanged",
        found.cells.solution: "✔ solved: count_kernel\nRight in all",
    }.items():
        write(page, source, CELLS[1])
        assert run(page, CELLS[1]).startswith(verdict)
    assert not part(page, ".cell_output", CELLS[1]).is_displayed()
    kept = page.execute_script("return localStorage['cnn-numba:workbook:start_here_count_kernel.py']")
    assert "cuda.atomic.add(counts, level, 1)" in kept


@needs_wheels
@pytest.mark.parametrize("key", ["CONTROL", "SHIFT"])
def test_a_later_run_needs_no_new_start_and_keys_run(page, key):
    from selenium.webdriver import ActionChains, Keys

    run(page)
    part(page, ".cm-content").click()
    start, key = time.monotonic(), getattr(Keys, key)
    ActionChains(page).key_down(key).send_keys(Keys.ENTER).key_up(key).perform()
    until(page, lambda page: re.search(r"\d s$", part(page, ".live-state").text))
    assert time.monotonic() - start < 20
    assert "not solved yet" in part(page, ".live-output").text


@needs_wheels
def test_stop_ends_an_endless_loop_and_the_next_run_starts_fresh(page):
    write(page, "while True:\n    pass")
    part(page, ".live-run").click()
    until(page, lambda page: part(page, ".live-state").text == "Running …")
    part(page, "button:nth-of-type(2)").click()
    until(page, lambda page: part(page, ".live-state").text.startswith("Stopped"))
    write(page, source_of("brighten_kernel").cells.solution)
    assert run(page).startswith("✔ solved: brighten_kernel")


@needs_wheels
def test_output_and_errors_are_shown_with_their_lines(page):
    write(page, "print('\\x1b[31mred\\x1b[0m <b>')\nx = 1\nx / 0")
    assert run(page).splitlines() == [
        "red <b>",
        "ZeroDivisionError: division by zero",
        "  line 3 of brighten-kernel-stub: x / 0",
    ]
    assert part(page, ".live-output .live-red").text == "red"


@needs_wheels
def test_a_needed_package_is_fetched_on_request(page):
    write(page, "import PIL\n" + source_of("brighten_kernel").cells.solution)
    assert "No module named 'PIL'" in run(page)
    part(page, ".live-fetch").click()
    until(page, lambda page: "✔ solved" in part(page, ".live-output").text)


# --- All answers -------------------------------------------------------------------------------------------


def judged_in(page, answers):
    """Return the verdicts on answers in the page: a cell judges them, and prints a line for each."""
    judging = (PROGRAMS / "judging.py").read_text()
    write(page, f"{judging}\njudge(json.loads({json.dumps(json.dumps(answers))}))")
    part(page, ".live-run").click()
    script = "return document.querySelector('.live-output').textContent.split('\\n')"
    for count in range(1, len(answers) + 1):
        until(page, lambda page, count=count: len(page.execute_script(script)) > count)
    return [json.loads(line) for line in page.execute_script(script)[: len(answers)]]


@needs_wheels
@pytest.mark.exhaustive("test_in_page.py: a Python with NumPy alone comes to the verdicts of a notebook")
@pytest.mark.parametrize("notebook", sorted({found.path.stem for found in in_page()}))
def test_pyodide_says_the_same_as_python_with_numpy_alone(site, page, tmp_path, notebook):
    found = [each for each in in_page() if each.path.stem == notebook]
    answers = [asked(each, source) for each in found for source in answers_of(each)]
    there = judged_alone(live.unpack(next(site.glob("course-*.zip")), tmp_path), answers)
    for said in there:  # NumPy's own integers have 32 bits in Pyodide
        said[2] = said[2].replace("dtype int64", "dtype int32")
    assert judged_in(page, answers) == there
