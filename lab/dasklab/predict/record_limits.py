"""Caveats: recorded effects that the simulation omits or holds constant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasklab.breakdown.answers.facts.facts import Facts
from dasklab.breakdown.model.repeat import Extent, Repeat
from dasklab.predict.client_program import ClientProgram
from dasklab.sim.program import Program
from dasklab.terminal import counted, data_size, enumerated

MIN_NAMED_S = 0.1  # shorter waits are not worth a sentence


def limits(client: ClientProgram, repeat: Repeat, facts: Facts, workers: int) -> Iterator[str]:
    """Yield a sentence for each thing of a record that is simulated otherwise than it was.

    Args:
        workers: how many are simulated if their number is not changed.
    """
    left_out = client.left_out
    if left_out.failed:
        yield f"Left out: {counted(left_out.failed, 'failed attempt')}. The simulation has no failures."
    if left_out.computed_again:
        again = counted(left_out.computed_again, "computation")
        yield f"Left out: {again} of lost results. In the simulation no worker is lost."
    if left_out.unfinished:
        yield f"Left out: {counted(left_out.unfinished, 'task')} without a result."
    if repeat.joined or repeat.left:
        yield f"Workers joined or left; simulated: {counted(workers, 'worker')} from the start to the end."
    if repeat.extent is Extent.WATCHED:
        yield (
            "The client was not recorded: each graph is sent after the results that were there when it came;"
            " between graphs the client takes as long as it did."
        )
    yield from _memory(repeat, facts)
    yield from _timing(client.program, facts)


def _memory(repeat: Repeat, facts: Facts) -> Iterator[str]:
    """Yield what happened because memory was short."""
    paused = repeat.evidence.paused
    stop, start = np.minimum(paused.stop, repeat.stop), np.maximum(paused.start, repeat.start)
    if (paused_s := float(np.maximum(stop - start, 0).sum())) >= MIN_NAMED_S:
        yield f"Workers were paused for {paused_s:.1f} s because memory was short. This is left out."
    if facts.spilled_bytes:
        moved = data_size(facts.spilled_bytes)
        yield f"Workers moved {moved} to and from disk because memory was short. This is left out."


def _timing(program: Program, facts: Facts) -> Iterator[str]:
    """Yield what depended on the order of events, and stays as it was."""
    waited_s = sum(use.waited_s for use in facts.primitives)
    if waited_s >= MIN_NAMED_S:
        kinds = enumerated(sorted({use.kind for use in facts.primitives}))
        yield f"Tasks waited {waited_s:.1f} s for Dask's {kinds}: they wait as long, whatever changes."
    if early := _sent_early(program):
        yield (
            f"{counted(early, 'graph was', 'graphs were')} sent before all results of earlier ones were there"
            " (as_completed, for example): each is sent after as many results, whichever they are."
        )


def _sent_early(program: Program) -> int:
    """Return how many graphs followed a wait for some, but not all, of what the client wanted."""
    early, waited, results = 0, False, 0
    for step in program.steps:
        if step.does == "wait":
            some = any(count < len(program.graphs[graph].wanted_keys) for graph, count in step.results)
            waited |= some or 0 < step.total < results
        elif step.does == "send":
            early, waited = early + waited, False
            results += len(program.graphs[step.graph].wanted_keys)
    return early
