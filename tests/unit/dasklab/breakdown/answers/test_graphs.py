"""The stages of graphs, and which of them grow with the square of the number of tasks."""

from __future__ import annotations

import pytest
from dasklab.breakdown.answers.graphs import GRAPH_STAGES, GraphTimes, graph_times, growth, quadratic
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show import wording

from tests.unit.dasklab.breakdown.timelines import Row, make_repeat


def repeat(number: int, *graphs: Row) -> Repeat:
    return make_repeat(number=number, start=10.0, stop=20.0, threads={}, graphs=graphs)


def test_stages_are_means_over_repeats_of_all_graphs_of_each() -> None:
    first = {"begin_s": 11.0, "sent_s": 11.5, "received_s": 12.5, "tasks": 100, "nbytes": 1000,
             "materialise_s": 0.25, "order_s": 0.5, "state_s": 0.75}  # fmt: skip
    second = {"begin_s": 15.0, "sent_s": 15.5, "received_s": 15.75, "tasks": 50, "nbytes": 500,
              "materialise_s": 0.25, "order_s": 0.5, "state_s": 0.25}  # fmt: skip
    times = graph_times([repeat(0, first, second), repeat(1, first)])
    assert times is not None
    assert (times.tasks, times.nbytes) == (125.0, 1250.0)
    # between two graphs of a repeat the client waited: only the first was built since the repeat's start
    expected = {
        "build": 1.0,
        "pickle": 0.75,
        "upload": 1.125,
        "materialise": 0.375,
        "order": 0.75,
        "state": 0.875,
    }
    assert times.seconds == pytest.approx(expected)
    assert graph_times([repeat(0)]) is None


def times(tasks: int, **seconds: float) -> GraphTimes:
    return GraphTimes(tasks, 100.0 * tasks, {stage.name: 0.0 for stage in GRAPH_STAGES} | seconds)


def test_quadratic_stages_are_named_unless_they_are_short() -> None:
    small = times(1000, materialise=0.02, order=0.01, state=0.07, pickle=0.00001)
    large = times(4000, materialise=0.32, order=0.044, state=0.28, pickle=0.00016)
    exponents = growth([large, small])
    assert exponents == pytest.approx(
        {"materialise": 2.0, "order": 1.07, "state": 1.0, "pickle": 2.0}, abs=0.01
    )
    assert [stage.name for stage in quadratic([small, large])] == ["materialise"]
    sentence = wording.quadratic_growth([small, large])
    assert sentence.endswith("or nearly: scheduler: unpacked and made single tasks.")
    rows = {row[0]: row[1:] for row in wording.growth_rows({"a": small, "b": large})}
    assert rows["scheduler: unpacked and made single tasks"] == ("20.0", "80.0", "2.00")
    assert rows["client: built, until Dask has it"] == ("0", "0", "")
    assert growth([small, times(3000, materialise=1.0)]) == {}
    assert growth([]) == {} and quadratic([]) == []


def test_a_graph_in_words() -> None:
    graphs = times(2000, upload=0.5)
    assert wording.graph_size(graphs) == "Graphs: 2000 tasks, 200 kB, 100 bytes per task."
    title = "on the wire to the scheduler, until it has handled it"
    assert (title, "500", "250", "yes") in list(wording.graph_rows(graphs))
    assert wording.graph_size(None) == "" and list(wording.graph_rows(None)) == []
