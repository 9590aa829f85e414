"""The plan of benchmarks/chaos.py strikes all that docs/results/kills.md promises, whatever the seed."""

from __future__ import annotations

import pytest

from benchmarks import chaos

PAIRS = {
    *(("up", f"with {second}") for second in ("up", "run", "destroy")),
    *(("run", f"with {second}") for second in ("up", "run", "destroy")),
    *(("destroy", f"with {second}") for second in ("up", "run")),
}


@pytest.mark.parametrize("seed", range(5))
def test_plan_has_sixty_kills_all_pairs_and_all_troubles(seed: int) -> None:
    rows = [row for target in chaos.COMMANDS for row in chaos.plan(target, seed)]
    kills = [row for row in rows if row[1] in (*chaos.OF_A_LAB, *chaos.OF_A_CLUSTER)]
    assert len(kills) >= 60
    assert {command for command, _ in kills} == {name for names in chaos.COMMANDS.values() for name in names}
    assert {blow for _, blow in kills} == {*chaos.OF_A_LAB, *chaos.OF_A_CLUSTER}
    assert sorted(row for row in rows if row[1].startswith("with ")) == sorted(PAIRS)
    assert {blow for _, blow in rows} == set(chaos.BLOWS)


def test_table_counts_what_struck_and_tells_the_kinds_of_faults_apart() -> None:
    faults = ["false ok: x", "left: process sleep", "lost: y", "the next up failed"]
    rows = [
        {"command": "up", "blow": "SIGKILL", "struck": True, "load": 2, "faults": faults},
        {"command": "up", "blow": "SIGKILL", "struck": False, "load": 7, "faults": []},
    ]
    assert list(chaos.table(rows))[2:] == [
        "| SIGKILL | `up` 1 | 1 | 1 | 1 | 2 | 1 |",
        "| all | | 1 | 1 | 1 | 2 | 1 |",
        "\nLoad of the machine: 2 to 7.",
    ]
