"""A Sphinx extension: what the course's pages need beyond what notebooks and docstrings say."""

import html
import re
from functools import cache
from pathlib import Path

import course_map
import first_page
from docutils import nodes
from docutils.parsers.rst import Directive
from reference import source_of
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

REPOSITORY = "https://github.com/cnn-numba/cnn-numba"
ROOT = Path(__file__).parents[2]
#: From so many letters on, what a table's cell says would make a tower of words on a telephone.
LONG = 160


class CourseMap(Directive):
    """Put the map of the course here."""

    def run(self):
        """Return it as it is written."""
        picture, words = course_map.draw(), course_map.listed()
        return [nodes.raw("", f'<div class="map-frame">{picture}</div>{words}', format="html")]


class LiveCell(Directive):
    """Put a cell of the page `first` here, to be run in it."""

    required_arguments = 1

    def run(self):
        """Return it as the cell of a notebook is written."""
        cell = self.arguments[0]
        code = f"<pre>{html.escape(first_page.stub(cell))}</pre>"
        return [
            nodes.raw(
                "",
                f'<div class="cell tag_live-{cell}"><div class="cell_input">{code}</div></div>',
                format="html",
            )
        ]


class Glossary(SphinxPostTransform):
    """Show a term's explanation where the pointer rests on a link to it."""

    default_priority = 900  # after links have been resolved

    def run(self, **kwargs):
        """Give each link to the glossary a title."""
        for reference in self.document.findall(nodes.reference):
            page, _, anchor = reference.get("refuri", "").partition("#")
            if page.endswith("README.html") and anchor in explanations():
                reference["reftitle"] = explanations()[anchor]


class LongCells(SphinxPostTransform):
    """Mark the cells of tables that say much: on a telephone they stay wide enough to be read."""

    default_priority = 900

    def run(self, **kwargs):
        """Give each such cell a class."""
        for cell in self.document.findall(nodes.entry):
            if len(cell.astext()) >= LONG:
                cell["classes"].append("long")


@cache
def explanations():
    """Return the text of each term of the glossary, by its anchor."""
    text = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    terms = re.findall(r"^#### (.+)\n\n((?:.+\n)+)", text, re.MULTILINE)
    return {_anchor(term): " ".join(explanation.split()) for term, explanation in terms}


def _anchor(term):
    return re.sub(r"[^\w\- ]", "", term.lower()).replace(" ", "-")


def to_repository(app, docname, source):
    """Let links to files that are no pages go to the repository."""

    def address(link):
        target = link[1]
        path = (Path(docname).parent / target.partition("#")[0]).as_posix()
        parts = []
        for part in path.split("/"):
            parts = parts[:-1] if part == ".." else [*parts, part]
        path = "/".join(parts)
        if (Path(app.srcdir) / path).exists() or not (ROOT / path).exists():
            return link[0]
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{path})"

    source[0] = re.sub(r"\]\((?!https?:|#|mailto:|attachment:)([^)\s]+)\)", address, source[0])


def unlink_types(app, document):
    """Undo links from the words of a parameter's type: ``shape`` is a word there, and no function of ours."""
    for link in list(document.findall(addnodes.pending_xref)):
        if link.get("reftype") == "class" and link["reftarget"].islower():
            link.replace_self(link.children)


def add_live_cells(app, page, template, context, doctree):
    """Load what runs cells on the pages that have such cells, and on no others."""
    if app.config.live_script and "tag_live-" in context.get("body", ""):
        app.add_js_file(f"page/{app.config.live_script}", type="module")
        app.add_css_file("page/live.css")


def setup(app):
    """Register it."""
    app.add_config_value("live_script", "", "html", str)
    app.connect("html-page-context", add_live_cells)
    app.add_directive("course-map", CourseMap)
    app.add_directive("live-cell", LiveCell)
    app.add_post_transform(Glossary)
    app.add_post_transform(LongCells)
    app.connect("source-read", to_repository)
    app.connect("doctree-read", unlink_types)
    app.connect("viewcode-find-source", lambda app, name: source_of(name))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
