"""A block that did little or nothing on the cluster has a sentence of its own."""

from __future__ import annotations

from dataclasses import replace

from dasklab.breakdown.model.repeat import Extent, Repeat
from dasklab.breakdown.show.block import block_sentences

from tests.unit.dasklab.breakdown.timelines import Row, make_repeat, task

ONE = {"worker-1": 1}


def block(**tables: list[Row]) -> Repeat:
    return replace(make_repeat(threads=ONE, tables=tables), extent=Extent.BLOCK)


def sentences(repeat: Repeat) -> list[str]:
    return [*map(str, block_sentences(repeat))]


def line(activity: int) -> Row:
    return {
        "start_s": 1.0,
        "stop_s": 5.0,
        "waits": activity,
        "file": "a.py",
        "line": 3,
        "code": "x.compute()",
    }


def test_block_in_which_nothing_ran() -> None:
    assert sentences(block(lines=[line(0)])) == ["Nothing of this block ran on the cluster."]


def test_computation_outside_of_the_cluster() -> None:
    nothing, local = sentences(block(lines=[line(2)]))
    assert nothing == "Nothing of this block ran on the cluster."
    assert local.startswith("Dask computed for 4.0 s in the client's own process, with another scheduler")


def test_tasks_that_were_left_behind_are_counted() -> None:
    """Three tasks were known from 1 on, and one of them had ended when the block did."""
    repeat = make_repeat([task("a", "worker-1", 1, 1.0, 3.0)], threads=ONE, unfinished=[(1.0, 3), (3.0, 2)])
    repeat = replace(repeat, extent=Extent.BLOCK)
    assert sentences(repeat) == ["2 tasks were not finished on the cluster when the block ended."]


def test_tasks_that_another_client_left_behind_are_not_counted() -> None:
    """Each client sent two tasks at 1 that nobody computed; the recorded client is A."""
    keys = {"a-1": "A", "a-2": "A", "b-1": "B", "b-2": "B"}
    tables = {
        "introduced": [{"key": key, "graph": 1, "client": client} for key, client in keys.items()],
        "tasks": [{"key": key, "waiting_s": 1.0} for key in keys],
    }
    repeat = replace(make_repeat(threads=ONE, tables=tables), extent=Extent.BLOCK, client="A")
    assert sentences(repeat)[-1] == "2 tasks were not finished on the cluster when the block ended."
