"""Problems are ranked by cost; consequences are listed with their cause."""

from __future__ import annotations

from typing import Any

import pytest
from daskwire.analysis.problems.detect import ranked
from daskwire.analysis.problems.finding import Finding
from daskwire.analysis.problems.kinds import KINDS


def test_problems_are_ranked_by_cost() -> None:
    def finding(kind: str, node: str, cost_s: float, **more: Any) -> Finding:
        return Finding(KINDS[kind], "evidence", ("", node, ""), (0, 1), cost_s, **more)

    cause, effect = finding("blocked worker loop", "w1", 2.0), finding("zero window", "w1", 3.0)
    other, note = finding("zero window", "w2", 4.0), finding("loss", "w3", 9.0, is_note=True)
    first = finding("TLS without keys", "", 0.0)
    result = ranked([note, other, effect, cause, first])
    assert [(f.kind.name, f.pair[1], f.cost_s) for f in result[:3]] == [
        ("TLS without keys", "", 0.0), ("blocked worker loop", "w1", 5.0), ("zero window", "w2", 4.0),
    ]  # fmt: skip
    assert [f.pair[1] for f in result[3:]] == ["w3", "w1"]
    assert result[4].what == "evidence (a consequence of: blocked worker loop of w1)"


def test_no_second_counts_twice_in_which_everything_stood_still() -> None:
    second = 1_000_000_000
    lost = Finding(KINDS["lost scheduler"], "evidence", ("", "s", ""), (0, 10 * second), 10.0)
    refused = Finding(KINDS["refused connects"], "evidence", ("", "s", ""), (4 * second, 12 * second), 8.0)
    waiting = Finding(KINDS["standstill"], "evidence", ("", "", ""), (5 * second, 10 * second), 5.0)
    assert ranked([refused, waiting, lost])[0].cost_s == pytest.approx(12.0)


@pytest.mark.parametrize("costs", [(1.0, 2.0), (2.0, 1.0)])
def test_findings_that_explain_each_other_do_not_hide_each_other(costs: tuple[float, float]) -> None:
    kinds = ("loss", "retransmission time-outs")
    assert all(kind in KINDS[other].effects for kind, other in (kinds, kinds[::-1]))
    one, two = (
        Finding(KINDS[kind], "evidence", ("", "w1", ""), (0, 1), cost_s)
        for kind, cost_s in zip(kinds, costs, strict=True)
    )
    first, second = ranked([one, two])
    assert (first.kind.name, first.cost_s, first.is_note) == (kinds[costs.index(2.0)], 3.0, False)
    assert second.is_note and second.kind != first.kind


def test_reordering_explains_loss() -> None:
    """TCP retransmits what was only overtaken; lost segments do not overtake."""
    assert "loss" in KINDS["reordering"].effects and "reordering" not in KINDS["loss"].effects


@pytest.mark.parametrize(("place", "effect", "is_consequence"), [
    (("w4", ""), ("scheduler", "w4"), True),
    (("scheduler", "w4"), ("scheduler", "w4"), True),
    (("scheduler", "w4"), ("w4", "scheduler"), True),
    (("scheduler", "w4"), ("scheduler", "w2"), False),
    (("scheduler", "w4"), ("scheduler", ""), False),
])  # fmt: skip
def test_consequence_is_on_the_same_path(
    place: tuple[str, str], effect: tuple[str, str], is_consequence: bool
) -> None:
    """Of two faults at two links, neither hides the other, though both concern the scheduler."""
    slow = Finding(KINDS["slow link"], "evidence", ("", *place), (0, 1), 9.0)
    loss = Finding(KINDS["loss"], "evidence", ("", *effect), (0, 1), 1.0)
    assert sum(not finding.is_note for finding in ranked([slow, loss])) == (1 if is_consequence else 2)


def test_path_affects_what_its_hosts_do() -> None:
    loss = Finding(KINDS["loss"], "evidence", ("", "scheduler", "w4"), (0, 1), 9.0)
    late = Finding(KINDS["late heartbeats"], "evidence", ("", "w4", ""), (0, 1), 1.0)
    note = ranked([loss, late])[1]
    assert note.is_note and note.what == "evidence (a consequence of: loss of scheduler to w4)"


@pytest.mark.parametrize("cause", ["asymmetric path", "incomplete capture"])
def test_answer_that_was_not_captured_is_no_missing_answer(cause: str) -> None:
    unseen = Finding(
        KINDS[cause], "evidence", ("", "w1", "w2") if cause == "asymmetric path" else ("", "", "")
    )
    worker = Finding(KINDS["unregistered worker"], "evidence", ("", "w1", "scheduler"), (0, 1), 13.0)
    same_path = Finding(KINDS[cause], "evidence", ("", "scheduler", "w1"))
    assert [finding.is_note for finding in ranked([unseen, worker, same_path])].count(True) == 1
