"""Choose where the simulations of a command run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dasklab.predict.engine.code import SimulationCode
from dasklab.predict.engine.processes import ENGINE, local_engine
from dasklab.results import cached


@contextmanager
def simulations_on(address: str | None) -> Iterator[None]:
    """Run the simulations of the block on a Dask cluster, or else on this machine, and keep their outcomes.

    What was simulated before is not simulated again, so a command that was interrupted goes on.

    Args:
        address: of a scheduler. TLS is configured as for any Dask client.

    Raises:
        LabError: the cluster cannot be reached, or must not or cannot simulate.
    """
    code = SimulationCode.installed()
    outcomes = cached.place("simulations", code.identity)
    outcomes.mkdir(parents=True, exist_ok=True)
    if address:
        from dasklab.predict.engine.cluster import cluster_engine  # imports Dask

        engines = cluster_engine(address, code, outcomes)
    else:
        engines = local_engine(outcomes)
    with engines as engine:
        token = ENGINE.set(engine)
        try:
            yield
        finally:
            ENGINE.reset(token)
