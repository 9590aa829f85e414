"""Run simulations on the workers of a Dask cluster, which need not have dasklab."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
from distributed import Client
from distributed.diagnostics.plugin import UploadFile

from dasklab.errors import LabError
from dasklab.predict.engine import one_process
from dasklab.predict.engine.code import SimulationCode, code_versions
from dasklab.predict.engine.one_process import ProcessResult, run_on_worker
from dasklab.predict.engine.processes import Engine
from dasklab.records.recorder.base import NAME as RECORDER

CONNECT_S = 10
NEEDED = ("pydantic", "platformdirs", "yaml", "numpy")  # what a simulation imports besides Dask


@contextmanager
def cluster_engine(address: str, code: SimulationCode, outcomes: Path | None) -> Iterator[Engine]:
    """Upload the simulation's code to all workers, also to those that join later; remove it at the end.

    Args:
        address: of a scheduler. TLS is configured as for any Dask client.
        code: what a simulation imports of dasklab.
        outcomes: the folder of earlier outcomes.

    Raises:
        LabError: the cluster cannot be reached, or must not or cannot simulate.
    """
    with _client(address) as client, _travels_by_value():
        _require_free(client, address)
        _require_equal(client, address)
        name = f"dasklab-{code.identity}.zip"
        with TemporaryDirectory() as folder:
            file = Path(folder, name)
            file.write_bytes(code.archive)
            client.register_plugin(UploadFile(str(file), load=False), name=name)
        executor = client.get_executor(pure=False)

        def run(document: str, seed: int) -> ProcessResult:  # Dask sends a function by value if it is local
            return run_on_worker(document, seed, name)

        try:
            yield Engine(executor, run, outcomes)
        finally:
            executor.shutdown(wait=False)
            with suppress(OSError, TimeoutError):  # the cluster is gone, and the code with it
                client.unregister_worker_plugin(name)
                client.run(one_process.remove, name, on_error="ignore")


def _client(address: str) -> Client:
    try:
        return Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise LabError(
            f"--on {address}: {error}", "is the scheduler running, and is this its address?"
        ) from error


@contextmanager
def _travels_by_value() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(one_process)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(one_process)


def _require_free(client: Client, address: str) -> None:
    """Refuse clusters whose timing is being measured."""
    plugins, is_lab = client.run_on_scheduler(one_process.scheduler_traits)
    if is_lab:
        raise LabError(f"--on {address}: this is a lab's cluster, whose times are measured")
    if RECORDER in plugins:
        raise LabError(f"--on {address}: this cluster is being recorded")


def _require_equal(client: Client, address: str) -> None:
    """Refuse workers that lack a package, or whose versions would give other outcomes."""
    versions: Any = client.get_versions()
    workers = versions["workers"]
    if not workers:
        raise LabError(f"--on {address}: the cluster has no workers", "start one: dask worker SCHEDULER")
    own = code_versions()
    for worker, installed in workers.items():
        for name, ours in own.items():
            theirs = str(installed["packages"].get(name))
            if theirs.split(".")[:3] != ours.split(".")[:3]:
                raise LabError(
                    f"--on {address}: {worker} has {name} {theirs}, this program {ours}",
                    "install the same versions: outcomes depend on them",
                )
    for worker, missing in client.run(one_process.missing_modules, list(NEEDED)).items():
        if missing:
            raise LabError(
                f"--on {address}: {worker} lacks what simulations import",
                f"install there: {', '.join(missing)}",
            )
