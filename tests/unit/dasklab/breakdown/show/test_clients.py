"""Sentences about other clients, where a record does not know who sent what."""

from __future__ import annotations

from dataclasses import replace

from dasklab.breakdown.model.repeat import Extent
from dasklab.breakdown.show.clients import client_sentences

from tests.unit.dasklab.breakdown.timelines import Row, make_repeat, task

LOAD = task("load-1", "worker-1", 1, 1.0, 9.0)
GRAPH: Row = {
    "begin_s": 0.0, "sent_s": 0.1, "received_s": 0.2, "materialise_s": 0.0, "order_s": 0.0, "state_s": 0.0,
    "tasks": 1, "nbytes": 100.0, "client": "Client-1",
}  # fmt: skip


def sentences(*graphs: Row) -> list[str]:
    repeat = replace(
        make_repeat([LOAD], graphs=graphs, threads={"worker-1": 1}), client="Client-1", extent=Extent.BLOCK
    )
    return [*map(str, client_sentences(repeat))]


def test_tasks_without_a_sender_were_there_before() -> None:
    assert sentences(GRAPH) == [
        "Tasks that were there before the recording, of an unknown client: 1 task (load) ran for 8.0 s of the"
        " 8.0 s of all tasks."
    ]


def test_without_graphs_nobody_knows_who_sent_tasks() -> None:
    """Dask 2024.8 does not say when a graph arrives."""
    assert sentences() == []
