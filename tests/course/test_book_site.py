"""The book as `make book` has built it: links, accessibility, telephones. Skipped where it is not built."""

import functools
import re
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import chrome_in, serving

SITE = Path(__file__).parents[2] / "build" / "book" / "html"
if not (SITE / "index.html").exists():
    pytest.skip("the book is not built: make book", allow_module_level=True)

PAGES = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)
CHAPTERS = [path.relative_to(SITE).as_posix() for path in PAGES if path.parent.name in ("notebooks", "docs")]
LOOKED_AT = [
    "index.html",
    "draw.html",
    "notebooks/00_start_here.html",
    "notebooks/05_pooling_and_reductions.html",
    "notebooks/README.html",
    "docs/teaching.html",
    "api/operations.html",
    "api/cnn_numba.nn.html",
]


class Page(HTMLParser):
    """What a page links to, its ids, and its pictures without a description."""

    def __init__(self, path):
        super().__init__()
        self.links, self.ids, self.undescribed = [], set(), 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found["id"]} if found.get("id") else set()
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        self.undescribed += tag == "img" and not found.get("alt")


@functools.cache
def page(path):
    return Page(path)


def broken(path):
    """Yield the links of a page that lead to no file of the site, or to no place in it."""
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


def test_terms_explain_themselves_where_the_pointer_rests():
    text = (SITE / "notebooks" / "04_shared_memory_and_tiling.html").read_text(encoding="utf-8")
    links = re.findall(r"<a [^>]*README.html#[^>]*>", text)
    assert len(links) > 10
    assert all("title=" in link for link in links)
    assert 'title="A piece of an array that a block loads' in text


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
