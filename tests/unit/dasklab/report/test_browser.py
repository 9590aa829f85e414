"""The report in a real browser: layout at three widths, light and dark, axe-core, interaction, paper."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from dasklab import report
from dasklab.model import experiment
from dasklab.running import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json
from tests.unit.dasklab.stored_run import previous_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is missing: pip install -e '.[dev]'"
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
WIDTHS = (1280, 768, 400)


@pytest.fixture(scope="module")
def page_of_two_runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with a comparison, an invalid trial, and the time breakdown of a stored run."""

    def spoil(trial: Json, files: Json) -> int:
        return 2 if trial["cell"] == "delay_ms=50" and trial["block"] == 1 else 0

    folder = tmp_path_factory.mktemp("browser")
    name, content = experiment.load("delay_scheduler", quick=True)
    run = driver.start(folder / "results", name, content, SETUP, quick=True)
    lab = FakeLab(lambda trial: 4.0 + 0.02 * trial["factors"]["delay_ms"], spoil)
    driver.execute(run, lab, lambda trial, state: None)
    return report.write([run.directory, previous_run(folder / "stored")], folder / "report").as_uri()


@pytest.fixture
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engines:
        chromium = engines.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def violations(page: Any) -> list[str]:
    """Return what axe-core finds wrong with the page, with all details open."""
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    axe = resources.files("axe_playwright_python") / "axe.min.js"
    page.add_script_tag(content=axe.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    return [f"{rule['id']}: {json.dumps([node['target'] for node in rule['nodes']])}" for rule in found]


def test_page_fits_and_is_accessible_at_every_width(page_of_two_runs: str, browser: Any) -> None:
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            page, messages = (
                browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme),
                [],
            )
            page.on("console", lambda message, seen=messages: seen.append(message.text))
            page.on("pageerror", lambda error, seen=messages: seen.append(str(error)))
            page.on("requestfailed", lambda request, seen=messages: seen.append(request.url[:80]))
            page.goto(page_of_two_runs)
            if width != WIDTHS[1]:  # its rules depend on colours and on what is folded
                assert violations(page) == [], (scheme, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (scheme, width)
            assert messages == [], (scheme, width)
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(22, 24, 27)") == (scheme == "dark")
            page.close()


def test_links_lead_somewhere(page_of_two_runs: str, browser: Any) -> None:
    page = browser.new_page()
    page.goto(page_of_two_runs)
    targets = page.eval_on_selector_all("a[href^='#']", "links => links.map((a) => a.getAttribute('href'))")
    assert len([target for target in targets if "-trial-" not in target]) == 2
    assert len(targets) > 2
    assert page.evaluate("ids => ids.filter((id) => !document.querySelector(id))", targets) == []


def test_cell_leads_to_its_trials_though_they_are_folded_and_filtered(
    page_of_two_runs: str, browser: Any
) -> None:
    page = browser.new_page()
    page.goto(page_of_two_runs)
    link = page.locator("td.trials a").nth(1)
    row = page.locator(f"id={link.get_attribute('href').removeprefix('#')}")
    assert row.count() == 1 and not row.is_visible()
    page.locator("details", has=row).evaluate("(box) => { box.open = true; }")
    page.locator("details", has=row).get_by_label("Filter rows").fill("no such trial")
    assert not row.is_visible()
    page.locator("details", has=row).evaluate("(box) => { box.open = false; }")
    link.click()
    row.wait_for(state="visible")
    assert row.evaluate("(row) => getComputedStyle(row).outlineStyle") == "solid"


def test_tables_sort_and_filter_by_keyboard(page_of_two_runs: str, browser: Any) -> None:
    page = browser.new_page()
    page.goto(page_of_two_runs)
    table = page.locator("table.cells.sortable").first

    def cells() -> list[str]:
        names: list[str] = table.locator("tbody tr:visible td:first-child code").all_text_contents()
        return names

    assert cells() == ["delay_ms=0", "delay_ms=50", "delay_ms=100", "delay_ms=200"]
    table.locator("thead button").nth(2).focus()
    page.keyboard.press("Enter")  # the median, least first
    page.keyboard.press("Enter")
    assert cells() == ["delay_ms=200", "delay_ms=100", "delay_ms=50", "delay_ms=0"]
    assert table.locator("th[aria-sort=descending]").count() == 1
    page.get_by_label("Filter rows").first.fill("delay_ms=50")
    assert cells() == ["delay_ms=50"]
    page.get_by_label("Filter rows").first.fill("")
    assert len(cells()) == 4


def test_paper_shows_what_is_folded_on_the_screen(page_of_two_runs: str, browser: Any) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(page_of_two_runs)
    folded = page.locator("details", has=page.locator("table")).last.locator("table").first
    assert not folded.is_visible()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert folded.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("input[type=search]").first.is_visible()
