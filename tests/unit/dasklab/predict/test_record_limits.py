"""What a record shows that simulations have otherwise, or leave as it was, is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dasklab.predict import record
from dasklab.predict.client_program import ClientProgram
from dasklab.predict.record_limits import limits
from dasklab.results.run import open_trial
from dasklab.sim.program import ClientStep, Program, SentGraph

RECORDS = Path(__file__).parents[3] / "data" / "records"
SEND = (ClientStep(does="send"), ClientStep(does="send", graph=1))


@pytest.fixture(scope="module")
def work() -> record.RecordedWork:
    """A record of which nothing is left out."""
    return record.read(open_trial(RECORDS / "before_and_after"))


def sentences(work: record.RecordedWork, *waits: ClientStep) -> list[str]:
    """Return the sentences on a program that sends a graph of three tasks, waits, and sends another."""
    graphs = (SentGraph(tasks=(0, 1, 2), wanted_keys=(0, 1, 2)), SentGraph(tasks=(3,), wanted_keys=(3,)))
    program = Program(
        keys=("a-0", "a-1", "a-2", "b-0"),
        needs=((),) * 4,
        works=(((0.0, 0.1, 8),),) * 4,
        graphs=graphs,
        steps=(SEND[0], *waits, SEND[1]),
    )
    client = ClientProgram(program, work.client_program.left_out)
    return [*limits(client, work.repeat, work.explained.facts, 2)]


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("leak_pause", "Workers were paused for 4.4 s because memory was short. This is left out."),
        ("queue", "Tasks waited 2.5 s for Dask's Queue: they wait as long, whatever changes."),
        ("noworkers", "Workers joined or left; simulated: 1 worker from the start to the end."),
        ("retries", "Left out: 24 failed attempts. The simulation has no failures."),
    ],
)
def test_what_is_not_repeated_is_said(folder: str, sentence: str) -> None:
    assert sentence in record.read(open_trial(RECORDS / folder)).limits


def test_of_a_plain_record_nothing_is_said(work: record.RecordedWork) -> None:
    assert work.limits == ()


def test_spilling_is_said(work: record.RecordedWork) -> None:
    facts = replace(work.explained.facts, spilled_bytes=12e6)
    assert [*limits(work.client_program, work.repeat, facts, 2)] == [
        "Workers moved 12 MB to and from disk because memory was short. This is left out."
    ]


@pytest.mark.parametrize(
    ("wait", "early"),
    [
        (ClientStep(does="wait", total=2), True),
        (ClientStep(does="wait", total=3), False),
        (ClientStep(does="wait", results=((0, 2),)), True),
        (ClientStep(does="wait", results=((0, 3),)), False),
    ],
)
def test_graphs_that_depend_on_what_comes_first_are_said(
    work: record.RecordedWork, wait: ClientStep, early: bool
) -> None:
    said = [sentence.startswith("1 graph was sent before all") for sentence in sentences(work, wait)]
    assert said == [True] * early
    assert sentences(work) == []
