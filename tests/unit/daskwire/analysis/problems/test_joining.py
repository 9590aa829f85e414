"""One fault is one row: findings on several paths of a host, or in both directions of one, are joined."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import WORKERS, Cluster, Read, findings, transfer


def lossy(paths: list[tuple[str, str]]) -> Cluster:
    """Let all workers send data to each other; some paths lose packets."""
    cluster = Cluster()
    cluster.work()
    for number, source in enumerate(WORKERS):
        for destination in WORKERS:
            if source != destination:
                talk = cluster.fetch(source, destination, 2.0 + number, step_ns=10_000_000)
                loses = (source, destination) in paths
                transfer(talk, 600_000, lambda i, loses=loses: "lost behind" if loses and i % 12 == 6 else "")
    return cluster


@pytest.mark.parametrize(("paths", "places"), [
    ([("w1", "w2")], [("w1", "w2")]),
    ([("w1", "w2"), ("w3", "w2")], [("w2", "")]),
    ([("w2", "w1"), ("w2", "w3")], [("w2", "")]),
    ([("w1", "w2"), ("w2", "w1")], [("w1", "w2")]),
    ([("w1", "w2"), ("w3", "w2"), ("w2", "w1"), ("w2", "w3")], [("w2", "")]),
])  # fmt: skip
def test_one_fault_is_one_row(
    read: Read, paths: list[tuple[str, str]], places: list[tuple[str, str]]
) -> None:
    rows = findings(read(lossy(paths).packets))
    assert [row["problem"] for row in rows] == ["loss"]
    assert [{row["source"], row["destination"]} for row in rows] == [set(place) for place in places]
    assert rows[0]["number"] == 35 * len(paths)


def test_faults_of_two_hosts_are_two_rows(read: Read) -> None:
    """Two of the three workers to which the scheduler sends lose packets: it is not the scheduler's link."""
    cluster = Cluster()
    cluster.work(4.0)
    for name, talk in cluster.streams.items():
        talk.time_ns, talk.step_ns = cluster.at(5.0), 10_000_000
        transfer(talk, 600_000, lambda i, name=name: "lost behind" if name != "w3" and i % 12 == 6 else "")
        cluster.beat(name, 15.0)
    rows = [row for row in findings(read(cluster.packets)) if row["problem"] == "loss"]
    assert [(row["source"], row["destination"]) for row in rows] == [("scheduler", "w1"), ("scheduler", "w2")]
