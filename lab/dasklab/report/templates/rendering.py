"""Render the templates of the report: pages with one style sheet, and the same texts as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from dasklab.breakdown.model.causes import PARTS
from dasklab.model.forms.number_format import format_number
from dasklab.report.templates import markdown
from dasklab.report.words import sentences
from dasklab.results.statistics.interval import format_interval

TEMPLATES = Path(__file__).parent


def render(name: str, content: Mapping[str, Any]) -> str:
    """Return the text of a page or of a style sheet."""
    is_markdown = name.endswith(".md")
    return _environment(is_markdown).get_template(f"{name}.j2").render(content)


@cache
def _environment(is_markdown: bool) -> Environment:
    environment = Environment(
        finalize=markdown.escape if is_markdown else None,
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": format_number, "interval": format_interval, "facts": sentences.facts}
    environment.filters |= {"code": markdown.code, "codes": markdown.codes, "cells": markdown.cells}
    environment.globals["parts"] = PARTS
    return environment
