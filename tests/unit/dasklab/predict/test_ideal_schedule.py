"""A program on ideal machines takes what its threads, its longest chain or its client takes."""

from __future__ import annotations

import pytest
from dasklab.predict.ideal_schedule import CLIENT, GRAPHS, schedule
from dasklab.sim.program import ClientStep, Program, SentGraph

SEND, GATHER = ClientStep(does="send"), ClientStep(does="gather", keys=(4,))


def program(*steps: ClientStep, seconds: tuple[float, ...] = (1, 1, 1, 1, 2)) -> Program:
    """Four tasks ``map``, a task ``merge`` that needs them, and a graph that takes 0.5 s to prepare."""
    return Program(
        keys=("map-0", "map-1", "map-2", "map-3", "merge-0"),
        needs=((), (), (), (), (0, 1, 2, 3)),
        works=tuple(((0.0, own, 8),) for own in seconds),
        graphs=(SentGraph(tasks=(0, 1, 2, 3, 4), wanted_keys=(4,), loop_s=0.5),),
        steps=steps,
    )


@pytest.mark.parametrize(("threads", "seconds"), [(1, 6.5), (2, 4.5), (3, 4.5), (4, 3.5), (None, 3.5)])
def test_more_threads_help_as_long_as_tasks_wait_for_one(threads: int | None, seconds: float) -> None:
    ideal = schedule(program(SEND, GATHER), threads)
    assert (ideal.seconds, ideal.task_s, ideal.client_s) == (seconds, 6, 0)


def test_path_adds_up_and_names_what_it_goes_through() -> None:
    pause = ClientStep(does="pause", seconds=3)
    ideal = schedule(program(pause, SEND, GATHER, pause))
    assert ideal.path_s == {CLIENT: 6, GRAPHS: 0.5, "map": 1, "merge": 2}
    assert sum(ideal.path_s.values()) == ideal.seconds == 9.5
    assert ideal.client_s == 6


def test_pause_while_tasks_run_costs_only_what_exceeds_them() -> None:
    ideal = schedule(program(SEND, ClientStep(does="pause", seconds=4), GATHER))
    assert (ideal.seconds, ideal.client_s) == (4, 0.5)
    assert ideal.path_s == {CLIENT: 4}


def test_level_tasks_have_no_straggler() -> None:
    skewed = program(SEND, GATHER, seconds=(1, 1, 1, 5, 2))
    assert schedule(skewed, 4).seconds == 7.5
    assert schedule(skewed, 4, is_level=True).seconds == 4.5


def test_resubmitted_tasks_run_as_often_as_recorded() -> None:
    once = program(SEND, GATHER, SEND, GATHER)
    twice = once.model_copy(update={"works": tuple(works * 2 for works in once.works)})
    assert (schedule(once, 4).seconds, schedule(twice, 4).seconds) == (3.5, 7)
