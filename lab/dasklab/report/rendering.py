"""Render the templates of the report: pages with one style sheet, and the same texts as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from dasklab.model.number_format import format_number
from dasklab.report import sentences
from dasklab.report.time_parts import PARTS
from dasklab.results.statistics.interval import format_interval

TEMPLATES = Path(__file__).parent


def render(name: str, content: Mapping[str, Any]) -> str:
    """Return the text of a page or of a style sheet."""
    return _environment().get_template(f"{name}.j2").render(content)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": format_number, "interval": format_interval, "facts": sentences.facts}
    environment.globals["parts"] = PARTS
    return environment
