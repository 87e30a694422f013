"""The book as `make book` builds it: links, accessibility, phones. Skipped if it is not built."""

import functools
import json
import re
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import chrome_in, element, serving, until

from cnn_course.engine.outline import NOTEBOOKS

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "book" / "html"
if not (SITE / "index.html").exists():
    pytest.skip("the book is not built: make book", allow_module_level=True)

PAGES = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)
CHAPTERS = [path.relative_to(SITE).as_posix() for path in PAGES if path.parent.name in ("notebooks", "docs")]
LOOKED_AT = [
    "index.html",
    "draw.html",
    "notebooks/00_start_here.html",
    "notebooks/05_pooling_and_softmax.html",
    "notebooks/README.html",
    "docs/teaching.html",
    "api/operations.html",
    "api/commands.html",
    "api/cnn_numba.nn.html",
    "search.html",
    "_modules/cnn_numba/extras.html",
]


class Page(HTMLParser):
    """A page's links, its ids, and its pictures without a description."""

    def __init__(self, path):
        super().__init__()
        self.links, self.ids, self.undescribed = [], set(), 0
        self.following = []  # the page before, and the next
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found["id"]} if found.get("id") else set()
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
            if found.get("class") in ("left-prev", "right-next"):
                self.following.append(found["href"])
        self.undescribed += tag == "img" and not found.get("alt")


@functools.cache
def page(path):
    return Page(path)


def broken(path):
    """Yield the broken links of a page: no such file, or no such place in it."""
    for link in page(path).links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        place = unquote(parts.fragment)
        if not target.exists() or (place and target.suffix == ".html" and place not in page(target).ids):
            yield link


def test_every_link_leads_somewhere():
    found = {path.relative_to(SITE).as_posix(): sorted(set(broken(path))) for path in PAGES}
    assert {name: links for name, links in found.items() if links} == {}


def test_every_picture_is_described():
    assert [path.name for path in PAGES if page(path).undescribed] == []


def test_terms_are_explained_on_hover():
    text = (SITE / "notebooks" / "11_shared_memory_and_tiling.html").read_text(encoding="utf-8")
    links = re.findall(r"<a [^>]*README.html#[^>]*>", text)
    assert len(links) > 10
    assert all("title=" in link for link in links)
    assert 'title="A piece of an array that a block loads' in text


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.number)
def test_a_chapter_can_be_downloaded_and_leads_to_the_next(notebook):
    chapter, place = SITE / "notebooks" / f"{notebook.stem}.html", NOTEBOOKS.index(notebook)
    file = f"notebooks/{notebook.stem}.ipynb"
    repository = "cnn-numba/cnn-numba/blob/main"
    assert f"https://colab.research.google.com/github/{repository}/{file}" in page(chapter).links
    assert f"../_sources/{file}" in page(chapter).links
    assert (SITE / "_sources" / file).read_bytes() == (ROOT / file).read_bytes()
    following = page(chapter).following
    assert following[:1] == [f"{NOTEBOOKS[place - 1].stem}.html" if place else "../draw.html"]
    if place + 1 < len(NOTEBOOKS):
        assert following[1:] == [f"{NOTEBOOKS[place + 1].stem}.html"]


def test_names_of_the_first_edition_lead_to_the_second():
    source = (ROOT / "docs" / "book" / "build.py").read_text(encoding="utf-8")
    moved = re.findall(r'^    "(\w+)": "(\w+)",$', source, re.MULTILINE)
    assert len(moved) == 19
    for before, stem in moved:
        text = (SITE / "notebooks" / f"{before}.html").read_text(encoding="utf-8")
        assert f'content="0; url={stem}.html"' in text
        assert (SITE / "notebooks" / f"{stem}.html").exists()


def test_still_pictures_say_what_moves_in_jupyterlab():
    sliders = pads = 0
    for notebook in NOTEBOOKS:
        source = (ROOT / "notebooks" / f"{notebook.stem}.ipynb").read_text(encoding="utf-8")
        text = (SITE / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        code = "".join(cell_source(source))
        explorers = len(re.findall(r"explore\(", code))
        assert text.count("sliders move in JupyterLab or Colab") == explorers, notebook.stem
        sliders += explorers
        pads += text.count("Here the pad is a still picture")
    assert (sliders > 15, pads) == (True, 1)


def cell_source(text):
    """Yield the code of a notebook's cells."""
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"]) + "\n"


def test_words_of_a_type_are_no_links():
    text = (SITE / "api" / "cnn_numba.ops.conv.html").read_text(encoding="utf-8")
    assert "array_like, shape (H, W)" in re.sub(r"<[^>]+>", "", text)
    assert not re.findall(r'<a class="reference internal"[^>]*><span class="pre">shape</span></a>', text)
    assert not re.findall(r"<a [^>]*>shape</a>", text)


def test_nothing_is_fetched_from_elsewhere():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert 'src="http' not in text, path.name
        assert '<link rel="stylesheet" type="text/css" href="http' not in text, path.name


@pytest.fixture(scope="module")
def chrome(tmp_path_factory):
    """Yield a browser and the address of the book."""
    with serving(SITE) as address, chrome_in(tmp_path_factory.mktemp("browser")) as chrome:
        chrome.set_script_timeout(600)
        yield chrome, address


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(theme, chrome):
    chrome, address = chrome
    axe = Path(find_spec("axe_core_python").origin).with_name("axe.min.js").read_text(encoding="utf-8")
    rules = "{runOnly: ['wcag2a', 'wcag2aa']}"
    for name in LOOKED_AT:
        chrome.get(address + name)
        for key in ("mode", "theme"):
            chrome.execute_script(f"localStorage.setItem('{key}', '{theme}')")
        chrome.get(address + name)
        assert chrome.execute_script("return document.documentElement.dataset.theme") == theme
        chrome.execute_script(axe)
        found = chrome.execute_async_script(f"axe.run(document, {rules}).then(arguments[0])")["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], name


@pytest.mark.slow
def test_no_chapter_is_wider_than_a_telephone(chrome):
    chrome, address = chrome
    chrome.set_window_size(420, 900)
    wide = "return document.documentElement.scrollWidth - window.innerWidth"
    for name in CHAPTERS:
        chrome.get(address + name)
        assert chrome.execute_script(wide) <= 2, name


@pytest.mark.slow
def test_no_page_of_the_reference_is_wider_than_a_telephone_or_cuts_a_name(chrome):
    chrome, address = chrome
    chrome.set_window_size(420, 900)
    wide = "return document.documentElement.scrollWidth - window.innerWidth"
    cut = """return [...document.querySelectorAll(".prev-next-area a")]
      .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent.trim())"""
    for path in sorted((SITE / "api").glob("*.html")):
        chrome.get(f"{address}api/{path.name}")
        assert chrome.execute_script(wide) <= 2, path.name
        assert chrome.execute_script(cut) == [], path.name


@pytest.mark.slow
def test_tables_are_read_on_a_telephone(chrome):
    chrome[0].set_window_size(420, 900)
    narrow = """return [...document.querySelectorAll("main table.table td")]
      .filter((each) => each.textContent.trim().length >= 165 && each.clientWidth < 180)
      .map((each) => each.textContent)"""
    assert show(chrome, "docs/modelled-times.html").execute_script(narrow) == []
    wider = """const table = document.querySelector("main table.table");
    return table.scrollWidth - table.parentElement.clientWidth"""
    assert show(chrome, "notebooks/README.html").execute_script(wider) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_links_look_alike_inside_and_outside_of_tables(theme, chrome):
    page = show(chrome, "notebooks/README.html", theme)
    colours = """return [...document.querySelectorAll("article p > a.reference")]
      .map((each) => getComputedStyle(each).color)"""
    assert len(set(page.execute_script(colours))) == 1


def press(chrome, *keys):
    """Press keys in the focused element."""
    from selenium.webdriver import ActionChains

    ActionChains(chrome).send_keys(*keys).perform()


def show(chrome, name, theme="light"):
    """Open a page of the book in a theme."""
    chrome, address = chrome
    chrome.get(address + name)
    if chrome.execute_script("return document.documentElement.dataset.theme") != theme:
        for key in ("mode", "theme"):
            chrome.execute_script(f"localStorage.setItem('{key}', '{theme}')")
        chrome.get(address + name)
    return chrome


FOCUSED = """
const reached = document.activeElement;
if (reached === document.body) return null;
const grey = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
let behind = reached.parentElement;
const clear = (each) => /rgba\\(.*, 0\\)/.test(getComputedStyle(each).backgroundColor);
while (behind && clear(behind)) behind = behind.parentElement;
const paper = grey(getComputedStyle(behind ?? document.body).backgroundColor);
const style = getComputedStyle(reached);
const line = grey(style.outlineColor);
const contrast = (Math.max(line, paper) + 0.05) / (Math.min(line, paper) + 0.05);
const box = reached.getBoundingClientRect();
const seen = box.width && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
return [reached.outerHTML.slice(0, 200), style.outlineStyle, parseFloat(style.outlineWidth), contrast, seen,
  style.opacity];
"""


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_keyboard_focus_is_visible_and_reaches_everything(theme, chrome):
    from selenium.webdriver import Keys

    chrome[0].set_window_size(420, 900)
    page = show(chrome, "notebooks/00_start_here.html", theme)
    reached = []
    for _ in range(300):
        press(page, Keys.TAB)
        found = page.execute_script(FOCUSED)
        if found is None:
            break
        reached.append(found)
    assert found is None  # no trap
    assert len(reached) > 50
    assert "Skip to main content" in reached[0][0]
    for html, style, width, contrast, seen, opacity in reached[1:]:
        assert seen, html
        assert style == "solid", html
        assert width >= 2, html
        assert contrast >= 3, html
        assert float(opacity) > 0.9, html


@pytest.mark.slow
def test_scrollable_elements_are_reached_by_keys(chrome):
    chrome[0].set_window_size(420, 900)
    unreached = """return [...document.querySelectorAll("main *")].filter((each) =>
      each.clientWidth && each.scrollWidth > each.clientWidth + 1 && each.tabIndex < 0
      && /auto|scroll/.test(getComputedStyle(each).overflowX)
      && !each.querySelector("a, button, [tabindex='0']")
    ).map((each) => each.outerHTML.slice(0, 100))"""
    for name in ("notebooks/05_pooling_and_softmax.html", "docs/emulated-gpu.html", "api/operations.html"):
        page = show(chrome, name)
        until(page, lambda page: page.execute_script("return document.readyState") == "complete")
        until(page, lambda page: not page.execute_script(unreached))


@pytest.mark.slow
def test_hints_open_and_close_by_keys_also_without_javascript(chrome):
    from selenium.webdriver import Keys

    chrome[0].execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = show_plainly(chrome, "notebooks/10_the_machine.html")
        hint = next(e for e in page.find_elements("css selector", "summary") if e.text == "Hint 1")
        details = hint.find_element("xpath", "..")
        for key in (Keys.ENTER, Keys.SPACE):
            hint.send_keys(key)
            assert details.get_attribute("open")
            assert len(details.text) > len("Hint 1") + 20
            hint.send_keys(key)
            assert not details.get_attribute("open")
        assert len(page.find_element("css selector", "main").text) > 5000
    finally:
        chrome[0].execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def show_plainly(chrome, name):
    """Open a page."""
    chrome, address = chrome
    chrome.get(address + name)
    return chrome


@pytest.mark.slow
def test_search_opens_and_closes_by_keys_and_finds_words_everywhere(chrome):
    from selenium.webdriver import ActionChains, Keys

    chrome[0].set_window_size(1200, 900)
    page = show(chrome, "index.html")
    dialog = page.find_element("id", "pst-search-dialog")
    until(page, lambda page: dialog.get_attribute("aria-label") == "Search the book")
    ActionChains(page).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL).perform()
    until(page, lambda page: dialog.is_displayed())
    press(page, Keys.ESCAPE)
    until(page, lambda page: not dialog.is_displayed())
    ActionChains(page).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL).perform()
    press(page, "halo", Keys.ENTER)
    element(page, "#search-results li a")
    until(page, lambda page: "finished" in element(page, ".search-summary").text)
    found = [link.text for link in page.find_elements("css selector", "#search-results li a")]
    assert "11 · Shared memory and tiling" in found
    assert any(name.startswith("cnn_numba.") for name in found)


@pytest.mark.slow
def test_theme_changes_by_keys(chrome):
    from selenium.webdriver import Keys

    chrome[0].set_window_size(1200, 900)
    page = show(chrome, "draw.html")
    button = element(page, ".theme-switch-button")
    assert button.accessible_name
    button.send_keys(Keys.ENTER)
    element(page, ".theme-change-button[data-mode=dark]").send_keys(Keys.ENTER)
    until(page, lambda page: page.execute_script("return document.documentElement.dataset.theme") == "dark")
