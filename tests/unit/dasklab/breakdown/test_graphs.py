"""A graph's stages, and which of them grow with the square of its size."""

from __future__ import annotations

import pytest
from dasklab.breakdown import wording
from dasklab.breakdown.graphs import STAGES, Way, graphs, growth, squares
from dasklab.breakdown.run import Graph, Run


def run(number: int, *found: Graph) -> Run:
    return Run(number, 10.0, 20.0, {}, [], graphs=list(found))


def test_stages_are_means_over_runs_of_all_graphs_of_each() -> None:
    first = Graph(11.0, 11.5, 12.5, tasks=100, nbytes=1000, materialise=0.25, order=0.5, state=0.75)
    second = Graph(15.0, 15.5, 15.75, tasks=50, nbytes=500, materialise=0.25, order=0.5, state=0.25)
    found = graphs([run(0, first, second), run(1, first)])
    assert found is not None
    assert (found.tasks, found.nbytes) == (125.0, 1250.0)
    # between two graphs of a run the client waited: only the first was built from the run's start on
    expected = {
        "build": 1.0,
        "pickle": 0.75,
        "upload": 1.125,
        "materialise": 0.375,
        "order": 0.75,
        "state": 0.875,
    }
    assert found.seconds == pytest.approx(expected)
    assert graphs([run(0)]) is None


def way(tasks: int, **seconds: float) -> Way:
    return Way(tasks, 100.0 * tasks, dict.fromkeys(STAGES, 0.0) | seconds)


def test_what_grows_with_the_square_is_named_and_trifles_are_not() -> None:
    small = way(1000, materialise=0.02, order=0.01, state=0.07, pickle=0.00001)
    large = way(4000, materialise=0.32, order=0.044, state=0.28, pickle=0.00016)
    powers = growth([large, small])
    assert powers == pytest.approx({"materialise": 2.0, "order": 1.07, "state": 1.0, "pickle": 2.0}, abs=0.01)
    assert squares([small, large]) == ["materialise"]
    assert wording.square([small, large]).endswith("or nearly: scheduler: unpacked and made single tasks.")
    rows = {row[0]: row[1:] for row in wording.growth_rows({"a": small, "b": large})}
    assert rows["scheduler: unpacked and made single tasks"] == ("20.0", "80.0", "2.00")
    assert rows["client: built, until Dask has it"] == ("0.0", "0.0", "")
    assert growth([small, way(3000, materialise=1.0)]) == {}
    assert growth([]) == {} and squares([]) == []


def test_a_graph_is_told_in_words() -> None:
    told = way(2000, upload=0.5)
    assert wording.graph(told) == "Graphs of a run: 2000 tasks, 0.20 MB, 100 bytes a task."
    assert ("on the wire to the scheduler, until it has it", "500.00", "250.0", "yes") in wording.graph_rows(
        told
    )
    assert wording.graph(None) == "" and list(wording.graph_rows(None)) == []
