"""The report in a real browser: layout at three widths, light and dark, axe-core, interaction, paper.

The pages: the first one, of two runs of an experiment and a stored run, and of one run alone; the 2019
study's; a trial's without and a trial's with a timeline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from dasklab import report
from dasklab.breakdown.model.causes import PARTS
from dasklab.model.experiments import experiment
from dasklab.results.run import Run
from dasklab.running.driver import driver

from tests.chromium import needs_chromium, started_chromium, violations
from tests.unit.dasklab.conftest import SETUP, FakeLab, Json
from tests.unit.dasklab.stored_run import previous_run

pytestmark = needs_chromium
WIDTHS = (1280, 768, 400)


def spoil(trial: Json, files: Json) -> int:
    return 2 if trial["cell"] == "delay_ms=50" and trial["block"] == 1 else 0


def sweep(folder: Path, slope: float) -> Path:
    """A run of the delay sweep in which one trial fails."""
    name, content = experiment.load("delay_scheduler", quick=True)
    run = driver.start(folder, name, content, SETUP, quick=True)
    lab = FakeLab(lambda trial: 4.0 + slope * trial["factors"]["delay_ms"], spoil)
    driver.execute(run, lab, lambda trial, state: None)
    return run.stored.folder


@pytest.fixture(scope="module")
def page_of_two_runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with a comparison, an invalid trial, and the time breakdown of a stored run."""
    folder = tmp_path_factory.mktemp("browser")
    runs = [sweep(folder / "results", 0.02), previous_run(folder / "stored")]
    return report.write([Run(run) for run in runs], folder / "report").as_uri()


@pytest.fixture(scope="module")
def site(page_of_two_runs: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The address of a page of each kind."""
    folder = tmp_path_factory.mktemp("browser")
    then = sweep(folder / "then", 0.02)
    runs = [then.rename(then.with_name("20251122T000000Z")), sweep(folder / "now", 0.03)]  # not in one second
    trials = page_of_two_runs.replace("report.html", "trials")
    plain = sorted(Path(unquote(urlsplit(trials).path)).glob("delay_scheduler-*-trial-2.html"))
    return {
        "first": page_of_two_runs,
        "one run": report.write([Run(previous_run(folder / "stored"))], folder / "one" / "report").as_uri(),
        "side by side": report.write([Run(run) for run in runs], folder / "report").as_uri(),
        "study": page_of_two_runs.replace("report.html", "study_2019.html"),
        "trial": plain[0].as_uri(),
        "timeline": f"{trials}/baseline-20251123T000000Z-trial-1.html",
    }


KINDS = ("first", "one run", "side by side", "study", "trial", "timeline")


@pytest.fixture
def browser() -> Iterator[Any]:
    with started_chromium() as browser:
        yield browser


def opened(browser: Any, address: str, width: int = 1280, scheme: str = "light") -> tuple[Any, list[str]]:
    """Open a page, and wait for its timeline; return it with its complaints on the console."""
    page, messages = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme), []
    page.on("console", lambda message: messages.append(message.text) if message.type != "info" else None)
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("requestfailed", lambda request: messages.append(request.url[:80]))
    page.goto(address)
    if page.locator(".timeline").count():
        page.locator(".timeline[data-drawn]").wait_for()
    return page, messages


@pytest.mark.parametrize("kind", KINDS)
def test_page_fits_and_is_accessible_at_every_width(kind: str, site: dict[str, str], browser: Any) -> None:
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            page, messages = opened(browser, site[kind], width, scheme)
            if width != WIDTHS[1]:  # its rules depend on colours and on what is folded
                assert violations(page) == [], (scheme, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (scheme, width)
            assert messages == [], (scheme, width)
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(22, 24, 27)") == (scheme == "dark")
            page.close()


@pytest.mark.parametrize("kind", KINDS)
def test_links_between_pages_lead_to_files_and_places(kind: str, site: dict[str, str], browser: Any) -> None:
    page, _ = opened(browser, site[kind])
    links = page.eval_on_selector_all("a[href]", "links => links.map((a) => a.href)")
    of_files = [urlsplit(link) for link in links if link.startswith("file:")]
    assert of_files
    for target in of_files:
        file = Path(unquote(target.path))
        assert file.exists(), file
        if target.fragment:
            assert f'id="{target.fragment}"' in file.read_text(), target


def axis(page: Any) -> list[float]:
    """Return the ends of the timeline's time axis."""
    ends = "(({ start, end }) => [start, end])(Bokeh.documents[0].get_model_by_name('time'))"
    return page.evaluate(ends)


def test_timeline_zooms_and_moves_by_keyboard_and_buttons(site: dict[str, str], browser: Any) -> None:
    page, messages = opened(browser, site["timeline"])
    start, end = axis(page)
    assert start == 0 and end > 0.05
    page.locator(".timeline").focus()
    page.keyboard.press("+")
    assert axis(page) == pytest.approx([end / 4, 3 * end / 4])
    page.keyboard.press("ArrowRight")
    assert axis(page) == pytest.approx([3 * end / 8, 7 * end / 8])
    for _ in range(2):  # not beyond the end
        page.keyboard.press("ArrowRight")
        assert axis(page) == pytest.approx([end / 2, end])
    page.get_by_role("button", name="Earlier").click()
    assert axis(page) == pytest.approx([3 * end / 8, 7 * end / 8])
    assert page.locator(".controls output").text_content().startswith(f"{3 * end / 8:.4f} to ")
    page.keyboard.press("0")
    assert axis(page) == pytest.approx([0, end])
    panels = page.evaluate("Bokeh.documents[0].roots()[0].children.map((panel) => panel.x_range.name)")
    assert panels == ["time"] * 4 and messages == []  # one axis for all


CROWD = """(([start, end]) => {
  const [rows, number] = [4, 50000]; // of 10 s each, without gaps
  const names = ["row", "left", "length", "top", "bottom", "colour", "what", "detail", "count"];
  const columns = Object.fromEntries(names.map((name) => [name, []]));
  for (let at = 0; at < rows * number; at++) {
    const [row, place] = [Math.floor(at / number), at % number];
    const values = [row, place * 10 / number, 10 / number, row, row + 1, 0, 1, at, 1];
    names.forEach((name, column) => columns[name].push(values[column]));
  }
  const drawn = new Levels({ get_column: (name) => columns[name] }).between(start, end, 1000);
  const ends = drawn.left.map((left, at) => [drawn.top[at], left, drawn.right[at]]);
  const gaps = ends.slice(1).filter(([row, left], at) => row === ends[at][0] && left > ends[at][2] + 1e-9);
  return { bars: ends.length, intervals: drawn.count.reduce((a, b) => a + b), gaps: gaps.length };
})"""


def test_narrow_bars_are_drawn_together_until_one_zooms_in(site: dict[str, str], browser: Any) -> None:
    page, _ = opened(browser, site["timeline"])
    whole = page.evaluate(CROWD, [0, 10])
    assert whole["intervals"] == 200_000 and whole["gaps"] == 0
    assert 1_000 < whole["bars"] <= 4 * (10 / 0.015 + 1)
    near = page.evaluate(CROWD, [5, 5.02])
    assert near["bars"] == near["intervals"] == pytest.approx(4 * 100, abs=8)


def test_bar_of_the_timeline_says_what_it_is(site: dict[str, str], browser: Any) -> None:
    page, messages = opened(browser, site["timeline"])
    box = page.locator("#timeline").bounding_box()
    page.locator("#timeline").scroll_into_view_if_needed()
    box = page.locator("#timeline").bounding_box()
    text = ""
    for step in range(30):  # along the second row of threads
        page.mouse.move(box["x"] + 170 + 15 * step, box["y"] + 62)
        page.wait_for_timeout(40)
        text = page.evaluate(TOOLTIP)
        if "computing" in text:
            break
    assert re.search(r"computing.*-[0-9a-f]{8,}.*[\d.]+ ms from 0\.\d{4} s on", text, re.S), text
    assert messages == []


# Bokeh's tooltips are in the shadow of its views.
TOOLTIP = """(() => {
  const below = (one) => (one.shadowRoot ? inside(one.shadowRoot) : []);
  const inside = (node) => [...node.querySelectorAll("*")].flatMap(
    (one) => [...(one.matches(".bk-Tooltip") ? [one] : []), ...below(one)],
  );
  return inside(document).map((one) => one.shadowRoot.textContent).join(" ");
})()"""


def test_timeline_follows_the_scheme_and_paper(site: dict[str, str], browser: Any) -> None:
    page, _ = opened(browser, site["timeline"], scheme="dark")
    colours = "Bokeh.documents[0].get_model_by_name('colours').palette.map(String)"
    paper = "Bokeh.documents[0].roots()[0].children[0].background_fill_color"
    assert page.evaluate(colours) == [part.dark for part in PARTS]
    assert page.evaluate(paper) == "#16181b"
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"{paper} === '#fdfdfb'")
    assert page.evaluate(colours) == [part.light for part in PARTS]
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{paper} === '#16181b'")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(paper) == "#ffffff" and page.evaluate(colours) == [part.light for part in PARTS]


def test_narrow_screen_has_short_names_of_rows(site: dict[str, str], browser: Any) -> None:
    labels = "[...Bokeh.documents[0].roots()[0].children[0].left[0].major_label_overrides.values()]"
    for width, expected in ((1280, "worker-1"), (400, "w1")):
        page, _ = opened(browser, site["timeline"], width)
        assert page.evaluate(labels)[1] == expected


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
