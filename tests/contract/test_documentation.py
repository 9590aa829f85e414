"""The documentation builds without a warning; each page can be reached, and each link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlparse

import pytest
from dasklab.breakdown.model.causes import CAUSES
from dasklab.model.settings.metric import METRICS

from tests.chromium import needs_chromium, started_chromium, violations

ROOT = Path(__file__).parents[2]
pytest.importorskip("furo", reason="furo is missing: pip install -e '.[docs]'")


class Page(HTMLParser):
    """The links of a page, the anchors in it, and its text."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.words: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [values[key] or "" for key in ("href", "src") if key in values]
        self.anchors |= {values[key] or "" for key in ("id", "name") if key in values}

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages. The options are those of `make docs`."""
    folder = tmp_path_factory.mktemp("site")
    recipe = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "sphinx-build" in line)
    program, *options = recipe.split()
    assert program == "$(BIN)/sphinx-build" and "-W" in options
    argv = [
        sys.executable,
        "-m",
        "sphinx",
        *options[:-1],
        "-d",
        str(folder / "doctrees"),
        str(folder / "html"),
    ]
    built = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """What the reader can reach from the first page, by following links."""
    pages, frontier = dict[Path, Page](), [site / "index.html"]
    while frontier:
        file = frontier.pop()
        if file not in pages and file.suffix == ".html" and file.exists():
            pages[file] = Page(file)
            frontier += [target for target, _ in targets(file, pages[file])]
    return pages


def targets(file: Path, page: Page) -> list[tuple[Path, str]]:
    """Return the files that a page links to, with the anchors in them."""
    local = [link for link in page.links if link and not urlparse(link).scheme]
    split = [urldefrag(link.partition("?")[0]) for link in local]
    return [
        ((file.parent / unquote(path)).resolve() if path else file, unquote(anchor)) for path, anchor in split
    ]


def test_every_page_can_be_reached(site: Path, pages: dict[Path, Page]) -> None:
    sources = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    sources += [*ROOT.glob("roles/*/README.md"), *ROOT.glob("lab/**/README.md"), ROOT / "README.md"]
    built = {site / path.relative_to(ROOT).with_suffix(".html") for path in sources}
    assert len(built) > 60
    assert sorted(built - set(pages)) == []


def test_every_link_leads_to_a_file_and_a_place_in_it(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for file, page in pages.items():
        for target, anchor in targets(file, page):
            place = pages.get(target)
            if not target.exists() or (anchor and place and anchor not in place.anchors):
                broken.append(f"{file.relative_to(site)}: {target.name}#{anchor}")
    assert broken == []


def test_tables_follow_from_the_registries(site: Path, pages: dict[Path, Page]) -> None:
    words = pages[site / "docs" / "reference" / "metrics.html"].words
    assert {*METRICS, *(cause.name for cause in CAUSES)} <= set(words)


def test_reports_of_stored_runs_can_be_reached(site: Path, pages: dict[Path, Page]) -> None:
    stored = sorted(path.stem for path in (ROOT / "docs" / "gallery").glob("*.zip"))
    reports = [site / "docs" / "gallery" / name / "report.html" for name in stored]
    assert len(stored) >= 3 and set(reports) <= set(pages)


def test_report_names_cells_in_words_where_it_says_what_they_spend(
    site: Path, pages: dict[Path, Page]
) -> None:
    words = pages[site / "docs" / "gallery" / "slow_links" / "report.html"].words
    assert any(word.startswith("50 Mbit/s on every link: +") for word in words)
    assert not any(word.startswith("slow=all: ") for word in words)


def test_cells_of_a_stored_run_are_a_table(site: Path, pages: dict[Path, Page]) -> None:
    words = pages[site / "docs" / "results" / "nic-matrix.html"].words
    row = words[words.index("RTL8139") :]
    assert {"RTT", "TCP throughput", "Time to compute"} <= set(words)
    assert any(re.fullmatch(r"[\d.,]+ \([\d.,]+ to [\d.,]+\) ms", word) for word in row)


def test_diagrams_are_drawn(site: Path, pages: dict[Path, Page]) -> None:
    page = pages[site / "docs" / "explanation" / "time-breakdown.html"]
    assert "arrived to ready: waits for data" in page.words
    assert not any("sequenceDiagram" in text for other in pages.values() for text in other.words)


@needs_chromium
def test_pages_are_accessible(site: Path) -> None:
    """Pages of each kind: what the theme and our tables, diagrams and reports make of them."""
    names = [
        "README", "docs/index", "docs/tutorials/lab", "docs/how-to/record-a-cluster",
        "docs/reference/commands", "docs/reference/metrics", "docs/explanation/time-breakdown",
        "docs/results/nic-matrix",
        "docs/results/gallery", "docs/gallery/slow_links/report", "docs/gallery/baseline/report", "search",
    ]  # fmt: skip
    with started_chromium() as browser:
        for width, scheme in ((1280, "light"), (400, "dark")):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            for name in names:
                page.goto((site / f"{name}.html").as_uri())
                assert violations(page) == [], (name, width, scheme)


CUT_CODE = """[...document.querySelectorAll("pre")]
    .filter((pre) => pre.scrollWidth > pre.clientWidth + 1 && !pre.closest(".drawing"))
    .map((pre) => pre.innerText.slice(0, 80))"""


@needs_chromium
def test_code_fits_its_column(site: Path) -> None:
    """On pages of text, at three widths; reports have tests of their own."""
    files = [file for file in sorted((site / "docs").rglob("*.html")) if "gallery" not in file.parts]
    cut = dict[tuple[str, int], Any]()
    with started_chromium() as browser:
        page = browser.new_page()
        for file in [site / "README.html", *files]:
            page.goto(file.as_uri())
            for width in (1280, 768, 400):
                page.set_viewport_size({"width": width, "height": 900})
                if found := page.evaluate(CUT_CODE):
                    cut[file.name, width] = found
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (file, width)
    assert len(files) > 50
    assert cut == {}
