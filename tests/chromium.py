"""Chromium, in which tests open pages, and axe-core, which finds what is not accessible in them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is missing: pip install -e '.[dev]'"
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")


@contextmanager
def started_chromium() -> Iterator[Any]:
    """Start the browser, and close it at the end."""
    with playwright.sync_playwright() as engines:
        browser = engines.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def violations(page: Any) -> list[str]:
    """Return what axe-core finds wrong with the page, with all details open."""
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    axe = resources.files("axe_playwright_python") / "axe.min.js"
    page.add_script_tag(content=axe.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    return [f"{rule['id']}: {json.dumps([node['target'] for node in rule['nodes']])}" for rule in found]
