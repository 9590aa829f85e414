"""Sentences about a block in which nothing ran on the cluster, or that left tasks behind."""

from __future__ import annotations

from collections.abc import Iterator

from dasklab.breakdown.model.repeat import Extent, Repeat
from dasklab.breakdown.show.sentence import Sentence
from dasklab.terminal import counted

TOPIC = "block"
LEAST_S = 0.1  # shorter local computations are not mentioned


def block_sentences(repeat: Repeat) -> Iterator[Sentence]:
    """Say what the cluster had to do with a block, where that is less than a reader expects."""
    if repeat.extent is not Extent.BLOCK:
        return
    has_graphs = any(graph.is_recorded for graph in repeat.graphs)
    if not has_graphs and not (len(repeat.tasks) and repeat.is_users.any()) and not _moves_data(repeat):
        yield Sentence(TOPIC, "Nothing of this block ran on the cluster.", repeat.makespan)
    lines = repeat.lines
    seconds = float((lines.stop - lines.start)[lines.local].sum())
    if seconds > LEAST_S:
        yield Sentence(
            TOPIC,
            f"Dask computed for {seconds:.1f} s in the client's own process, with another scheduler than the"
            " cluster's: that is part of the client's own code.",
            seconds,
        )
    left = repeat.left_behind
    if left > 0:
        verb = "was" if left == 1 else "were"
        yield Sentence(
            TOPIC, f"{counted(left, 'task')} {verb} not finished on the cluster when the block ended."
        )


def _moves_data(repeat: Repeat) -> bool:
    return "scatter" in repeat.calls.kind or len(repeat.evidence.actors.start) > 0
