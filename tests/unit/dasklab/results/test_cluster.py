"""A cluster that is not as asked makes its trial invalid: settings, seat, layout."""

from __future__ import annotations

import json
import random
import re
from typing import Any, get_args

import pytest
from dasklab.errors import LabError
from dasklab.model import experiment
from dasklab.model.experiment import Experiment
from dasklab.model.files import ObservedCluster, Timings
from dasklab.model.trial import Trial
from dasklab.model.variants import SCHEDULER_VARIANTS, SchedulerVariant
from dasklab.results.validity.cluster import differences
from dasklab.running.trials import plan

from tests.unit.dasklab.conftest import SETUP, Json, answers

DOCUMENT: Json = {"title": "", "question": "", "metrics": {"rtt_ms": None}}
COMPRESSION, SATURATION = "distributed.comm.compression", "distributed.scheduler.worker-saturation"
SEATED = {"command": "/opt/dasklab/bin/dasklab_seat", "loop": "asyncio", "placement": "distributed.scheduler"}


def asked(**settings: Any) -> Trial:
    return plan("x", Experiment.model_validate(DOCUMENT | settings), SETUP)[0]


def said(trial: Trial, cluster: Json | None = None, **config: Any) -> list[str]:
    """What is found of a trial whose workload said this."""
    told = answers(json.loads(trial.to_json()), 1.0, random.Random(1))["timings.json"]
    told["cluster"] |= cluster or {}
    return list(differences(trial, Timings.model_validate(told | {"config": config})))


def processes(*found: tuple[str, int, int]) -> Json:
    named = (dict(zip(("host", "pid", "threads"), each, strict=True)) for each in found)
    return {"processes": {f"w{number}": each for number, each in enumerate(named)}}


def test_a_setting_of_dask_is_what_the_processes_run_with() -> None:
    trial = asked(dask={"distributed": {"comm": {"compression": "lz4"}}})
    lz4 = {COMPRESSION: "lz4"}
    assert said(trial, client=lz4, scheduler=lz4) == []
    assert said(trial, client=lz4, scheduler={COMPRESSION: False}) == [
        "scheduler: requested dask distributed.comm.compression: 'lz4', it runs with False"
    ]
    assert said(trial) == [f"requested dask {COMPRESSION}: 'lz4', but settings were not read back"]


def test_a_seat_s_settings_are_the_scheduler_s_alone() -> None:
    trial = asked(scheduler={"variant": "no-queuing"})
    assert trial.resolved_scheduler.settings == {"distributed": {"scheduler": {"worker-saturation": "inf"}}}
    seated = {"scheduler": SEATED}
    assert said(trial, seated, scheduler={SATURATION: "inf"}, client={SATURATION: 1.1}) == []
    assert said(trial, seated, scheduler={SATURATION: 1.1}, client={SATURATION: 1.1}) == [
        f"scheduler: requested dask {SATURATION}: 'inf', it runs with 1.1"
    ]


@pytest.mark.parametrize(
    ("variant", "runs", "wrong"),
    [
        ("dask", {}, []),
        ("dask", {"placement": "dasklab_random"}, ["but dasklab_random chooses the workers"]),
        ("random", {"placement": "dasklab_random"}, []),
        ("random", {}, ["but distributed.scheduler chooses the workers"]),
        ("dask", {"loop": "uvloop"}, ["its event loop is uvloop"]),
    ],
)
def test_who_sits_on_the_scheduler_s_seat_is_what_runs(variant: str, runs: Json, wrong: list[str]) -> None:
    trial = asked(scheduler={"variant": variant})
    expected = [f"scheduler: requested {variant}, {each}" for each in wrong]
    assert said(trial, {"scheduler": SEATED | runs}) == expected


def test_uvloop_is_the_loop_of_what_runs_and_not_only_a_setting() -> None:
    trial = asked(scheduler={"variant": "uvloop"})
    told = {"distributed.admin.event-loop": "uvloop"}
    assert said(trial, {"scheduler": SEATED | {"loop": "uvloop"}}, scheduler=told) == []
    assert said(trial, {"scheduler": SEATED}, scheduler=told) == [
        "scheduler: requested uvloop, its event loop is asyncio"
    ]


def test_a_command_is_what_was_started_and_without_one_the_inventory_s_may_be_anything() -> None:
    trial = asked(scheduler={"command": "/opt/rsds --fast"})
    other = {"command": "/opt/rsds --fast", "placement": "", "loop": ""}
    assert said(trial, {"scheduler": other}) == []
    assert said(trial, {"scheduler": SEATED}) == [
        "scheduler: requested /opt/rsds --fast, it was started as /opt/dasklab/bin/dasklab_seat"
    ]
    assert said(trial) == ["scheduler: requested /opt/rsds --fast, but it was not read back"]
    assert said(asked(), {"scheduler": other}) == []


def test_each_host_has_the_layout_that_was_asked() -> None:
    trial = asked(layout="2x1", workers=2)
    right = [("10.0.0.3", 1, 1), ("10.0.0.3", 2, 1), ("10.0.0.4", 1, 1), ("10.0.0.4", 2, 1)]
    assert said(trial, processes(*right)) == []
    assert said(trial, processes(*right[:3], ("10.0.0.4", 2, 4))) == [
        "10.0.0.4: requested 1 threads per worker, some workers have 4"
    ]
    one = "10.0.0.4: requested 2 worker processes, it has 1"
    assert said(trial, processes(*right[:3])) == [one]
    assert said(trial, processes(*right[:3], ("10.0.0.4", 1, 1))) == [one]  # two workers of one process
    assert said(trial) == ["requested layout 2x1, but workers were not read back"]


def test_zero_workers_are_what_runs_where_they_were_asked() -> None:
    zero = asked(worker={"variant": "zero"}, layout="2x1", workers=1)
    right = processes(("10.0.0.3", 1, 1), ("10.0.0.3", 1, 1))
    for process in right["processes"].values():
        process["zero"] = True
    assert said(zero, right) == []
    assert said(zero, processes(("10.0.0.3", 1, 1), ("10.0.0.3", 2, 1))) == [
        "requested zero workers, Dask's run: w0, w1"
    ]
    assert said(asked(), right) == ["requested Dask's workers, zero workers run: w0, w1"]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"scheduler": {"variant": "rsds"}},
            "scheduler.variant: 'rsds' is not allowed; allowed: "
            "dask, random, no-queuing, no-stealing, uvloop",
        ),
        (
            {"scheduler": {"variant": "dask", "command": "x"}},
            "scheduler: a scheduler is a variant or a command",
        ),
        ({"scheduler": {"command": " "}}, "scheduler.command: a command has at least one word"),
        ({"layout": "0x2"}, "layout: a layout is PROCESSESxTHREADS, as 2x1, got '0x2'"),
    ],
)
def test_what_a_seat_or_a_layout_may_be_is_said_in_a_line(given: Json, line: str) -> None:
    with pytest.raises(LabError, match=re.escape(f"mine.yml: {line}")):
        experiment.check(DOCUMENT | given, "mine.yml")


def test_every_occupant_has_its_name_in_the_type() -> None:
    assert set(SCHEDULER_VARIANTS) == set(get_args(SchedulerVariant))


def test_a_host_has_its_own_name_whatever_runs_there() -> None:
    """Captures know hosts, not processes: a worker's number must not make a host that nobody hears."""
    addresses = {
        "worker-1-1": "tcp://10.0.0.3:1",
        "worker-1-2": "tcp://10.0.0.3:2",
        "worker-2": "tcp://10.0.0.4:1",
    }
    found = ObservedCluster(workers=3, threads=3, addresses=addresses)
    assert found.names == {"10.0.0.3": "worker-1", "10.0.0.4": "worker-2"}
