"""Build the documentation with Sphinx: ``make docs``.

The source folder is the project's root, because the pages of ``docs/`` link to READMEs beside the code, and
those links lead to the same pages here and in the repository. Tables of metrics, causes and parts of the time
are written from the registries that own them, so they cannot be out of date.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from dasklab.breakdown.model.causes import CAUSES
from dasklab.model.settings.metric import METRICS

sys.path.insert(0, str(Path(__file__).parent))  # where gallery.py, sequence.py and tables.py are
from tables import markdown_table

project = "dasklab"
author = "The dasklab authors"
release = version = importlib.metadata.version("dasklab")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "gallery", "sequence"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "*.md",
    "lab/**/README.md",
    "roles/*/README.md",
    "tests/README.md",
    "tests/data/*/README.md",
]
exclude_patterns = ["docs/_build", ".venv", ".git", "results", "**/.*", "**/site-packages"]
html_theme = "furo"
html_title = "dasklab"
html_copy_source = False
html_show_copyright = False
html_static_path = ["static"]
html_extra_path = ["extra"]  # a first page where people look for one, as the root is docs/index
html_css_files = ["pages.css"]
html_js_files = ["accessible.js"]
templates_path = ["templates"]
highlight_language = "text"
myst_heading_anchors = 4
myst_enable_extensions = ["substitution"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"


myst_substitutions = {
    "metrics": markdown_table(
        ("name", "title", "unit", "source", "worse"),
        ((f"`{m.name}`", m.title, m.unit, m.source, m.worse or "neither") for m in METRICS.values()),
    ),
    "causes": markdown_table(
        ("part", "cause", "title", "what it means"),
        ((c.part.title, f"`{c.name}`", c.title, c.explanation) for c in CAUSES),
    ),
}
