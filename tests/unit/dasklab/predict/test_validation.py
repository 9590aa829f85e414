"""Intervals allow for what was missed; what is unlike all that was foretold is said."""

from __future__ import annotations

import pytest
from dasklab.predict.prediction import row
from dasklab.predict.validation import Case, Validated, kept, near

from tests.unit.dasklab.sim.samples import MACHINES, scenario

LIKE = scenario(rates_mbit=dict.fromkeys(MACHINES, 100.0))
KNOWN = Validated(
    cases=tuple(
        Case.of(LIKE, error) for error in (0.1, -0.2, 0.05, 0.0, 0.1, 0.02, 0.03, 0.3, 0.1, -0.05, 0.1)
    )
)


def test_an_interval_allows_for_what_nine_tenths_of_the_cases_were_missed_by() -> None:
    assert KNOWN.missed == pytest.approx(0.2)
    wide = KNOWN.widened(row("x", [4.0, 4.0], [0.0, 0.0], simulated=True))
    assert (wide.mean_s, wide.low_s, wide.high_s) == (4.0, pytest.approx(4 / 1.2), pytest.approx(4.8))


def test_what_is_like_a_case_is_inside() -> None:
    assert list(KNOWN.outside(LIKE)) == []
    assert list(KNOWN.outside(LIKE.model_copy(update={"workers": 4}))) == []  # next to three


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workers": 64}, "workers 64 (validated: 3)"),
        ({"bridge": "flooding"}, "bridge flooding (validated: learning)"),
        ({"rates_mbit": dict.fromkeys(MACHINES, 1000.0)}, "rate_mbit 1,000 (validated: 100)"),
        ({"links": {"worker-1": {"delay_ms": 2}}}, "delay_ms 2 (validated: 0)"),
        ({"links": {"scheduler": {"loss_pct": 1}}}, "loss_pct 1 (validated: 0)"),
        ({"workload": {"name": "merge"}}, "workload merge (validated: array_study)"),
        ({"cores": 2}, "cores 2 shared (validated: own)"),
        ({"racks": [{"workers": 3}]}, "racks (validated: none)"),
    ],
)
def test_what_is_unlike_all_cases_is_said(changes: dict[str, object], said: str) -> None:
    asked = {"rates_mbit": dict.fromkeys(MACHINES, 100.0)} | changes
    assert list(KNOWN.outside(scenario(**asked))) == [said]


def test_faster_than_links_without_a_cap_is_not_outside_but_faster_than_a_cap_is() -> None:
    # one lab's free links had 20 Gbit/s, another's have 60: neither holds anything back
    free = Validated(cases=(Case.of(scenario(rates_mbit=dict.fromkeys(MACHINES, 20_000.0)), 0.1),))
    assert list(free.outside(scenario(rates_mbit=dict.fromkeys(MACHINES, 60_000.0)))) == []
    assert list(free.outside(scenario(rates_mbit={}))) == []
    assert list(KNOWN.outside(scenario(rates_mbit={}))) == ["rate_mbit 1e+05 (validated: 100)"]


def test_without_any_case_everything_is_outside() -> None:
    assert Validated().missed == 0
    assert "workers 3 (validated: none)" in list(Validated().outside(LIKE))
    assert not near(1.0, [])


def test_what_is_kept_can_be_read() -> None:
    assert Validated.read().cases


def block(script: str, told: str) -> str:
    return f"<!-- by {script} --keep -->\n{told}\n<!-- end -->\n"


def test_what_a_benchmark_told_takes_the_place_of_what_it_had_told_only() -> None:
    old, new, other = block("one.py", "old"), block("one.py", "new"), block("other.py", "its own")
    assert kept(f"a\n{old}b\n{other}c\n", "one.py", "new") == f"a\n{new}b\n{other}c\n"
    assert kept(f"a\n{other}b\n{old}c\n", "one.py", "new") == f"a\n{other}b\n{new}c\n"


@pytest.mark.parametrize("readme", ["", "<!-- by one.py --keep -->\nold\n"])
def test_a_readme_without_such_a_place_is_not_written(readme: str) -> None:
    with pytest.raises(ValueError, match=r"by one\.py --keep"):
        kept(readme, "one.py", "new")
