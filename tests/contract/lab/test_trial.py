"""The playbook of a trial, in a lab without machines: what it orders, collects, reports and resets."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from dasklab.model.experiments import experiment
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Failed
from dasklab.model.settings.nic import NicSettings
from dasklab.results.storage import documents
from dasklab.running.plan.trials import plan
from dasklab.running.playbooks import collect
from dasklab.running.playbooks.orders import TIMED_PHASES
from pydantic import ValidationError

from tests.contract.lab.dry_lab import HOSTS, SAMPLE, TEMPLATES, DryLab
from tests.unit.dasklab.conftest import SETUP

EXPERIMENT = {
    "title": "t",
    "question": "q",
    "metrics": {"compute_s": None},
    "factors": {"bridge": {"sets": "bridge", "levels": ["learning"]}},
    "workload": {"name": "array_study", "params": {"size": 1000}},
    "links": {"worker-1": {"delay_ms": 5}},
    "repeats": 2,
    "blocks": 1,
    "ttl_s": 60,
    "probes": {"pings": 5, "iperf_runs": 1, "iperf_s": 1},
}
NICS = {"worker-1": NicSettings(model="virtio", rate_mbit=50)}


def trial_of(folder: Path, **settings: Any) -> RequestedTrial:
    """Return the baseline of an experiment with these settings."""
    path = folder / "own.yml"
    path.write_text(yaml.safe_dump({**EXPERIMENT, **settings}))
    trials = plan("own", experiment.load(str(path))[1], SETUP)
    return next(trial for trial in trials if trial.baseline).model_copy(update={"guests": {}, "nics": NICS})


@pytest.fixture
def lab(tmp_path: Path) -> DryLab:
    lab = DryLab.make(tmp_path)
    lab.request(trial_of(tmp_path))
    return lab


def failures(process: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what the screen shows of failures: headings and their lines."""
    return [line for line in process.stdout.splitlines() if re.match(r"  FAILED|          \S", line)]


def reset_hosts(lab: DryLab) -> set[str]:
    """Return the hosts whose last step was the reset."""
    return {host for host in HOSTS if lab.steps(host)[-1:] == [("reset", {})]}


def test_trial_delivers_orders_collects_results_and_resets_the_hosts(tmp_path: Path) -> None:
    lab = DryLab.make(tmp_path)
    trial = trial_of(tmp_path, capture=True, captured_repeats=2)
    lab.request(trial)
    process = lab.play_trial()
    assert process.returncode == 0, process.stdout

    ordered = json.loads((lab.trial / "orders.json").read_text())["trial"]["phases"]
    for host in HOSTS:
        expected = [step for phase in ordered for step in phase["orders"].get(host, {"steps": []})["steps"]]
        assert lab.steps(host)[:-1] == [(step["do"], step["arguments"]) for step in expected]
    assert reset_hosts(lab) == set(HOSTS)
    assert lab.requests() == [
        {"nics": {"worker-1": NICS["worker-1"].model_dump()}, "guests": {}, "state": "started"}
    ]

    collect.collect(lab.trial, "")
    files = {path.name for path in lab.trial.iterdir()}
    results = {"configured.json", "measured.json", "timings.json", "hosts.json", "capture.json"}
    assert files == results | {"trial.json", "orders.json", "record", "capture-record"}
    assert (lab.trial / "record" / "record.json").read_text() == "{}"
    [sample] = json.loads((lab.trial / "timings.json").read_text())["samples"]
    assert (sample["duration_s"], sample["answer"]) == (SAMPLE["duration_s"], SAMPLE["answer"])
    assert sorted(json.loads((lab.trial / "configured.json").read_text())["hosts"]) == sorted(HOSTS)


def with_templates(trial: RequestedTrial) -> RequestedTrial:
    """Return a trial with TEMPLATES in each of its strings that may be any text."""
    text = " ".join(TEMPLATES)
    document = json.loads(trial.model_dump_json())

    def replace(inner: dict[str, Any] | list[Any], key: Any) -> None:
        before = inner[key]
        if isinstance(before, dict | list):
            for place in list(before) if isinstance(before, dict) else range(len(before)):
                replace(before, place)
        elif isinstance(before, str):
            inner[key] = f"{before} # {text}"
            try:
                RequestedTrial.model_validate(document)
            except ValidationError:
                inner[key] = before

    replace({"trial": document}, "trial")
    return RequestedTrial.model_validate(document)


def test_no_string_of_a_trial_is_a_template(tmp_path: Path) -> None:
    lab = DryLab.make(tmp_path)
    names = {name: name for name in ("__ansible_unsafe", "__ansible_type", *TEMPLATES)}
    trial = with_templates(
        trial_of(
            tmp_path,
            workload={"name": "own", "params": {"label": "a"}, "source": "def prepare(client, label): pass"},
            dask={"distributed": {"nanny": {"environ": names}}},
            scheduler={"command": "scheduler"},
        )
    )
    lab.request(trial)
    message = f"dasklab-guest: {' '.join(TEMPLATES)}"
    lab.fail("worker-3", "host.counters", message)
    lab.play_trial()
    collected = (lab.trial / "collected" / "failed-worker-3.json").read_text()
    assert json.loads(collected)["result"]["msg"] == message
    assert not list(tmp_path.rglob("executed"))

    steps = [step for host in HOSTS for step in lab.steps(host)]
    ordered = json.loads((lab.trial / "orders.json").read_text())["trial"]["phases"]
    by_phase = [phase for phase in ordered if phase["name"] in TIMED_PHASES[:6]]
    for host in HOSTS:
        expected = [step for phase in by_phase for step in phase["orders"].get(host, {"steps": []})["steps"]]
        assert lab.steps(host)[:-1] == [(step["do"], step["arguments"]) for step in expected]
    assert json.dumps(steps).count("1+1") >= 10


def test_results_of_an_earlier_trial_are_not_collected(lab: DryLab) -> None:
    for host in HOSTS:
        (lab.folder / host / "trial" / "old.pcap").touch()
    process = lab.play_trial()
    assert process.returncode == 0, process.stdout
    assert list((lab.trial / "collected").glob("*/old.pcap")) == []


def test_failed_step_ends_the_trial_and_its_reason_is_kept(lab: DryLab) -> None:
    lab.fail("client", "workload.run", "dasklab-guest: the workload hangs: not done within 60 s")
    process = lab.play_trial()
    assert process.returncode != 0
    failed = collect.failure(lab.trial)
    assert failed is not None and (failed.status, failed.host) == ("failed", "client")
    assert failed.reasons == ("client: Run phase 'run': the workload hangs: not done within 60 s",)
    assert "cluster.stop" not in dict(lab.steps("worker-1"))
    assert reset_hosts(lab) == set(HOSTS)


def test_cause_that_five_hosts_share_is_printed_once_and_unsupported_is_no_failure(lab: DryLab) -> None:
    for host in HOSTS:
        lab.fail(host, "link.apply", "unsupported: tc: no netem", status=3)
    process = lab.play_trial()
    assert failures(process)[:2] == [
        f"  FAILED  {', '.join(HOSTS)}: Run phase 'prepare'",
        "          unsupported: tc: no netem",
    ]
    assert process.stdout.count("no netem") == 1
    failed = collect.failure(lab.trial)
    assert failed is not None and failed.status == "unsupported"
    assert reset_hosts(lab) == set(HOSTS)


def test_failure_survives_being_stored(lab: DryLab) -> None:
    lab.fail("worker-2", "probe.rtt", "dasklab-guest: ping: not found")
    lab.play_trial()
    failed = collect.failure(lab.trial)
    assert failed is not None
    documents.write(lab.trial, failed)
    assert documents.read(Failed, lab.trial) == failed


def test_started_machines_are_waited_for_and_new_ones_configured(lab: DryLab) -> None:
    changes = {"created": ["worker-2"], "starting": ["worker-1", "worker-2"]}
    (lab.folder / "result.json").write_text(json.dumps(changes))
    process = lab.play_trial()
    assert process.returncode == 0, process.stdout
    assert "Wait for SSH: ok 2" in process.stdout
    assert re.findall(r"configures (\S+)", process.stdout) == ["worker-2"]


def test_reset_gives_the_nics_of_the_inventory_back(lab: DryLab) -> None:
    process = lab.play("reset.yml")
    assert process.returncode == 0, process.stdout
    assert reset_hosts(lab) == set(HOSTS)
    assert lab.requests() == [{"nics": {}, "guests": {}, "state": "started"}]


def test_host_that_cannot_be_reset_does_not_keep_the_others_impaired(lab: DryLab) -> None:
    lab.fail("worker-2", "reset", "dasklab-guest: could not reset link: tc: busy")
    process = lab.play("reset.yml")
    assert process.returncode != 0
    assert "  FAILED  worker-2: Reset hosts\n" in process.stdout
    assert reset_hosts(lab) == set(HOSTS)
    assert lab.requests() == [{"nics": {}, "guests": {}, "state": "started"}]
