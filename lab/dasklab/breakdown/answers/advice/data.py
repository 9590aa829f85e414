"""Rules about data: between the client and the workers, and between workers."""

from __future__ import annotations

from dasklab.breakdown.answers.advice.rules import (
    DASK,
    DISTRIBUTED,
    AdviceRule,
    Measurements,
    Symptom,
    process,
)
from dasklab.breakdown.model.causes import GATHER, PLACEMENT, SCATTER
from dasklab.terminal import counted

MANY_OBJECTS = 100


def _gather(case: Measurements) -> Symptom | None:
    seconds = case.path_s(GATHER)
    return Symptom(
        seconds, f"Moving results through the scheduler to the client took {seconds:.1f} s {case.length}"
    )


def _scatter(case: Measurements) -> Symptom | None:
    if case.facts.scattered >= MANY_OBJECTS:
        return None
    seconds = case.path_s(SCATTER)
    return Symptom(seconds, f"Scattering data took {seconds:.1f} s {case.length}")


def _scatter_many(case: Measurements) -> Symptom | None:
    count = case.facts.scattered
    if count < MANY_OBJECTS:
        return None
    seconds = case.path_s(SCATTER)
    return Symptom(seconds, f"Scattering {counted(count, 'object')} took {seconds:.1f} s {case.length}")


def _placement(case: Measurements) -> Symptom | None:
    seconds, place = case.bottleneck(PLACEMENT)
    return Symptom(
        seconds,
        f"Tasks on {process(place)} waited {seconds:.1f} s {case.length} for data that another worker had",
    )


RULES = (
    AdviceRule(
        "results through the scheduler", "",
        "Reduce results on the workers first, or let tasks write them to storage.",
        f"{DISTRIBUTED}/efficiency.html#leave-data-on-the-cluster", _gather,
    ),
    AdviceRule(
        "scatter", "", "Let tasks load the data.",
        f"{DASK}/best-practices.html#load-data-with-dask", _scatter,
    ),
    AdviceRule(
        "many scattered objects", counted(MANY_OBJECTS, "object"), "Scatter a few large ones.",
        f"{DISTRIBUTED}/locality.html#data-scatter", _scatter_many,
    ),
    AdviceRule(
        "avoidable transfers", "",
        "Let the scheduler choose the workers of tasks, or keep together what is used together.",
        f"{DISTRIBUTED}/locality.html", _placement,
    ),
)  # fmt: skip
