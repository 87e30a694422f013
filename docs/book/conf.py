"""How Sphinx makes the book; `build.py` lays its sources out and calls it."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

project = "cnn-numba"
author = "the cnn-numba authors"
html_title = "cnn-numba"
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "course_pages",
]
# A name is documented where it is defined; what it is an instance of may stand elsewhere.
viewcode_follow_imported_members = False
root_doc = "index"
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
nb_execution_mode = "off"  # the outputs are those that the notebooks hold
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4

default_role = "py:obj"
add_module_names = False  # each stands below its module's heading
# Types in docstrings are words, and some of them are names as well.
suppress_warnings = ["ref.python", "myst.header"]

html_theme = "sphinx_book_theme"
html_css_files = ["book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
html_theme_options = {
    "repository_url": "https://github.com/cnn-numba/cnn-numba",
    "repository_branch": "main",
    "path_to_docs": "",
    "use_repository_button": True,
    "use_source_button": True,
    "use_download_button": True,
    "launch_buttons": {"colab_url": "https://colab.research.google.com", "notebook_interface": "jupyterlab"},
    "show_toc_level": 2,
}
# The pages of sources, of which there are hundreds, are reached from the reference, and lead back there.
html_sidebars = {
    "_modules/**": [],
    "[!_]**": ["navbar-logo.html", "sbt-sidebar-nav.html"],
}
html_copy_source = True
html_last_updated_fmt = None
