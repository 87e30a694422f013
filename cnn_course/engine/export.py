"""Exporting a notebook as a single HTML page, whose links lead to the repository."""

import re

from nbconvert.preprocessors import Preprocessor
from traitlets import Bool

from cnn_course.engine.notebooks import REPOSITORY

_LINK = re.compile(r"\]\((?!https?:|#|mailto:|attachment:)([^)\s]+)\)")


class RepositoryLinks(Preprocessor):
    """Redirect links to other notebooks and files, which are not beside the page, to the repository."""

    enabled = Bool(True, help="Whether it does anything; off by default in nbconvert's own.").tag(config=True)

    def preprocess_cell(self, cell, resources, index):
        """Rewrite the links of a text.

        Examples
        --------
        >>> import nbformat
        >>> cell = nbformat.v4.new_markdown_cell("[a tile](README.md#tile), [source](../data/README.md)")
        >>> print(*RepositoryLinks().preprocess_cell(cell, {}, 0)[0].source.split(", "), sep=chr(10))
        [a tile](https://github.com/cnn-numba/cnn-numba/blob/main/notebooks/README.md#tile)
        [source](https://github.com/cnn-numba/cnn-numba/blob/main/data/README.md)
        """
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(lambda link: f"]({_address(link[1])})", cell.source)
        return cell, resources


def _address(target):
    """Return the repository's address of a file that a notebook links to."""
    path = target.removeprefix("../") if target.startswith("../") else f"notebooks/{target}"
    return f"https://github.com/{REPOSITORY}/blob/main/{path}"
