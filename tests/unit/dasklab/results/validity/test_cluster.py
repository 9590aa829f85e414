"""The running cluster is compared with the request: settings, scheduler, workers, layout, engine."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from dasklab.errors import LabError
from dasklab.model.experiments import experiment
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import ObservedCluster, Timings
from dasklab.model.settings.variants import SCHEDULER_VARIANTS, SchedulerVariant
from dasklab.results.validity.cluster import differences
from dasklab.spark.settings import PYSPARK_VERSION as SPARK

from tests.unit.dasklab.conftest import Json
from tests.unit.dasklab.results.trials import EXPERIMENT, files_of, trial

COMPRESSION, SATURATION = "distributed.comm.compression", "distributed.scheduler.worker-saturation"
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
DASK = {
    "command": "/opt/dasklab/bin/dasklab_scheduler",
    "loop": "asyncio",
    "placement": "distributed.scheduler",
}


def reasons(requested: RequestedTrial, cluster: Json | None = None, **timings: Any) -> list[str]:
    """Return the differences of a trial whose workload reported this cluster."""
    reported = files_of(requested)["timings.json"]
    reported["cluster"] |= cluster or {}
    return list(differences(requested, Timings.model_validate(reported | timings)))


def processes(*workers: tuple[str, int, int], zero: bool = False) -> Json:
    """Return workers, each of which has a host, a process id and a number of threads."""
    rows = (dict(zip(("host", "pid", "threads"), worker, strict=True)) for worker in workers)
    return {"processes": {f"w{number}": row | {"zero": zero} for number, row in enumerate(rows)}}


def test_processes_run_with_the_requested_settings() -> None:
    requested = trial(dask={"distributed": {"comm": {"compression": "lz4"}}})
    lz4 = {COMPRESSION: "lz4"}
    assert reasons(requested, config={"client": lz4, "scheduler": lz4}) == []
    assert reasons(requested, config={"client": lz4, "scheduler": {COMPRESSION: False}}) == [
        "scheduler: requested dask distributed.comm.compression: 'lz4', it runs with False"
    ]
    assert reasons(requested) == [f"requested dask {COMPRESSION}: 'lz4', but settings were not read back"]


def test_settings_of_a_variant_are_for_the_scheduler_alone() -> None:
    requested = trial(scheduler={"variant": "no-queuing"})
    client = {SATURATION: 1.1}
    config = {"scheduler": {SATURATION: "inf"}, "client": client}
    assert reasons(requested, {"scheduler": DASK}, config=config) == []
    assert reasons(requested, {"scheduler": DASK}, config={"scheduler": client, "client": client}) == [
        f"scheduler: requested dask {SATURATION}: 'inf', it runs with 1.1"
    ]


@pytest.mark.parametrize(
    ("variant", "running", "difference"),
    [
        ("dask", {}, None),
        ("dask", {"placement": "dasklab_random"}, "but dasklab_random chooses the workers"),
        ("random", {"placement": "dasklab_random"}, None),
        ("random", {}, "but distributed.scheduler chooses the workers"),
        ("dask", {"loop": "uvloop"}, "its event loop is uvloop"),
    ],
)
def test_requested_scheduler_variant_runs(variant: str, running: Json, difference: str | None) -> None:
    requested = trial(scheduler={"variant": variant})
    expected = [f"scheduler: requested {variant}, {difference}"] if difference else []
    assert reasons(requested, {"scheduler": DASK | running}) == expected


def test_uvloop_is_the_running_loop_and_not_only_a_setting() -> None:
    requested = trial(scheduler={"variant": "uvloop"})
    config = {"scheduler": {"distributed.admin.event-loop": "uvloop"}}
    assert reasons(requested, {"scheduler": DASK | {"loop": "uvloop"}}, config=config) == []
    assert reasons(requested, {"scheduler": DASK}, config=config) == [
        "scheduler: requested uvloop, its event loop is asyncio"
    ]


def test_requested_command_was_started() -> None:
    requested = trial(scheduler={"command": "/opt/rsds --fast"})
    rsds = {"command": "/opt/rsds --fast", "placement": "", "loop": ""}
    assert reasons(requested, {"scheduler": rsds}) == []
    assert reasons(requested, {"scheduler": DASK}) == [
        f"scheduler: requested /opt/rsds --fast, it was started as {DASK['command']}"
    ]
    assert reasons(requested) == ["scheduler: requested /opt/rsds --fast, but it was not read back"]


def test_inventory_s_scheduler_may_be_anything() -> None:
    assert reasons(trial(), {"scheduler": {"command": "/opt/rsds", "placement": "", "loop": ""}}) == []


def test_each_host_has_the_requested_layout() -> None:
    requested = trial(layout="2x1", workers=2)
    workers = [("10.0.0.3", 1, 1), ("10.0.0.3", 2, 1), ("10.0.0.4", 1, 1), ("10.0.0.4", 2, 1)]
    assert reasons(requested, processes(*workers)) == []
    assert reasons(requested, processes(*workers[:3], ("10.0.0.4", 2, 4))) == [
        "10.0.0.4: requested 1 threads per worker, some workers have 4"
    ]
    too_few = ["10.0.0.4: requested 2 worker processes, it has 1"]
    assert reasons(requested, processes(*workers[:3])) == too_few
    assert reasons(requested, processes(*workers[:3], ("10.0.0.4", 1, 1))) == too_few  # in one process
    assert reasons(requested) == ["requested layout 2x1, but workers were not read back"]


def test_zero_workers_run_only_if_they_were_requested() -> None:
    zero = trial(worker={"variant": "zero"}, layout="2x1", workers=1)
    workers = processes(("10.0.0.3", 1, 1), ("10.0.0.3", 1, 1), zero=True)
    assert reasons(zero, workers) == []
    assert reasons(zero, processes(("10.0.0.3", 1, 1), ("10.0.0.3", 2, 1))) == [
        "requested zero workers, Dask's run: w0, w1"
    ]
    assert reasons(trial(), workers) == ["requested Dask's workers, zero workers run: w0, w1"]


def test_requested_engine_computed_with_the_requested_settings() -> None:
    spark = {BROADCAST: -1, "spark.shuffle.compress": False}
    requested = trial(engine="spark", workload={"name": "join"}, spark=spark)
    client = {BROADCAST: "-1", "spark.shuffle.compress": "false"}
    packages, versions = {"client": {"pyspark": SPARK}}, {"spark": SPARK}
    reported: Json = {"config": {"client": client}, "packages": packages, "versions": versions}
    assert reasons(requested, **reported) == []
    changed = {"config": {"client": client | {BROADCAST: "10485760b"}}}
    assert reasons(requested, **reported | changed) == [
        f"client: requested {BROADCAST} -1, it runs with 10485760b"
    ]
    dask = {"versions": {"dask": "1"}}
    assert reasons(requested, **reported | dask) == ["requested engine spark, but dask computed"]
    assert reasons(trial()) == []
    assert reasons(trial(), versions=versions) == ["requested engine dask, but spark computed"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"scheduler": {"variant": "rsds"}},
            f"scheduler.variant: 'rsds' is not allowed; allowed: {', '.join(SCHEDULER_VARIANTS)}",
        ),
        (
            {"scheduler": {"variant": "dask", "command": "x"}},
            "scheduler: a scheduler is a variant or a command",
        ),
        ({"scheduler": {"command": " "}}, "scheduler.command: a command has at least one word"),
        ({"layout": "0x2"}, "layout: a layout is PROCESSESxTHREADS, such as 2x1, got '0x2'"),
    ],
)
def test_invalid_scheduler_or_layout_is_refused_in_one_line(settings: Json, message: str) -> None:
    with pytest.raises(LabError, match=re.escape(f"mine.yml: {message}")):
        experiment.check(EXPERIMENT | settings, "mine.yml")


def test_type_names_every_variant() -> None:
    assert set(SCHEDULER_VARIANTS) == set(get_args(SchedulerVariant))


def test_several_workers_of_a_host_have_one_name_in_captures() -> None:
    """Captures identify hosts, not processes."""
    addresses = {
        "worker-1-1": "tcp://10.0.0.3:1",
        "worker-1-2": "tcp://10.0.0.3:2",
        "worker-2": "tcp://10.0.0.4:1",
    }
    cluster = ObservedCluster(workers=3, threads=3, addresses=addresses)
    assert cluster.names == {"10.0.0.3": "worker-1", "10.0.0.4": "worker-2"}
