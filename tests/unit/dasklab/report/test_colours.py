"""Everybody can tell the parts of a run's time apart, and read the text, on light and dark pages."""

from __future__ import annotations

import re
from colorsys import rgb_to_hsv
from itertools import combinations

import pytest
from dasklab.breakdown.model.causes import CAUSES, PARTS, Cause, Group
from dasklab.report.templates.rendering import render

from tests.unit.dasklab.report.colour_vision import VISION, ciede2000, contrast, difference

LEAST_DIFFERENCE = 15  # CIEDE2000
TEXT, GRAPHICS = 4.5, 3.0  # contrast, WCAG 2.2 AA: 1.4.3 and 1.4.11
PAIRS = (  # text and what it stands on
    ("ink", "paper"), ("ink", "card"), ("ink", "note"), ("soft", "paper"), ("soft", "card"),
    ("link", "paper"), ("good-ink", "good"), ("bad-ink", "bad"),
)  # fmt: skip


def colours() -> dict[str, dict[str, str]]:
    """Return the colours of the style sheet by scheme and name."""
    css = render("report.css", {})
    light, dark = re.findall(r":root \{(.*?)\}", css, re.S)[:2]
    return {
        scheme: dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", text))
        for scheme, text in (("light", light), ("dark", dark))
    }


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [  # of Sharma, Wu and Dalal's test data
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.49, -0.001), (50, -2.49, 0.0011), 7.2195),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_difference_is_that_of_the_published_data(
    one: tuple[float, ...], other: tuple[float, ...], expected: float
) -> None:
    assert ciede2000(one, other) == pytest.approx(expected, abs=1e-4)


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_any_two_parts_can_be_told_apart(scheme: str, vision: str) -> None:
    own = [colours()[scheme][part.name] for part in PARTS]
    near = {pair: difference(*pair, vision) for pair in combinations(own, 2)}
    assert {pair: d for pair, d in near.items() if d < LEAST_DIFFERENCE} == {}


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_two_runs_side_by_side_can_be_told_apart(scheme: str, vision: str) -> None:
    css = render("report.css", {})
    then, now = (
        re.search(rf"^\.{name} {{ background: var\(--(\w+)\)", css, re.M)[1] for name in ("then", "now")
    )
    own = colours()[scheme]
    assert difference(own[then], own[now], vision) >= LEAST_DIFFERENCE


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_graphics_stand_out(scheme: str) -> None:
    own = colours()[scheme]
    assert {pair for pair in PAIRS if contrast(own[pair[0]], own[pair[1]]) < TEXT} == set()
    graphics = [*(part.name for part in PARTS), "bar", "base", "whisker", "note-edge"]
    assert {name for name in graphics if contrast(own[name], own["paper"]) < GRAPHICS} == set()


def test_every_group_of_causes_is_in_one_of_five_parts() -> None:
    assert len(PARTS) == 5
    assert sorted(group.name for part in PARTS for group in part.groups) == sorted(
        group.name for group in Group
    )


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_a_cause_is_a_shade_of_its_part_of_the_time(cause: Cause) -> None:
    """So the same second has the same hue in `explain.svg` and in the report."""
    hue, saturation, value = rgb_to_hsv(*_parts_of(cause.colour))
    expected = rgb_to_hsv(*_parts_of(cause.part.light))
    assert hue == pytest.approx(expected[0], abs=0.02) or saturation < 0.03
    assert saturation <= expected[1] + 0.01 and value >= expected[2] - 0.01


def test_the_first_cause_of_a_part_has_its_colour() -> None:
    first = {cause.part.name: cause.colour for cause in reversed(CAUSES)}
    assert first == {part.name: part.light for part in PARTS}


def _parts_of(colour: str) -> list[float]:
    return [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
