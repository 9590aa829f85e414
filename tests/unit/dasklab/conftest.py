"""A fake lab: it writes a trial's files at once, as the playbook would, from a simple model.

The numbers follow only from the plain content of trial.json, not from code under test. The types of the files
are the project's, so that content which the playbook could not write fails here, too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dasklab.model import files
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import Setup
from dasklab.model.settings.impairments import AMOUNTS, IMPAIRMENTS, needs_netem
from dasklab.model.settings.nic import DRIVERS
from dasklab.report.pages import pictures
from dasklab.results.run import Trial
from dasklab.running.driver import driver

BASE_RTT_MS, BASE_MBIT = 1.0, 9000.0
PAIR = ("scheduler", "worker-1")
HOSTS = ("client", "scheduler", "worker-1", "worker-2", "worker-3")
SETUP = Setup.model_validate(
    {
        "hosts": HOSTS,
        "kinds": ["vm", "container"],
        "guests": dict.fromkeys(HOSTS, "vm"),
        "nics": {host: {} for host in HOSTS},
    }
)
Json = dict[str, Any]


class FakeLab:
    """A run takes ``seconds(trial)`` +- 2 %; ``spoil(trial, files)`` may change the files and the status."""

    def __init__(
        self,
        seconds: Callable[[Json], float] = lambda trial: 4.0,
        spoil: Callable[[Json, Json], int] = lambda trial, files: 0,
    ) -> None:
        self.seconds, self.spoil, self.ran, self.resets = seconds, spoil, [], 0

    def run_trial(self, stored: Trial) -> int:
        trial = json.loads((stored.folder / "trial.json").read_text())
        self.ran.append(trial["trial"])
        answered = answers(trial, self.seconds(trial), random.Random(trial["trial"]))
        status = self.spoil(trial, answered)
        for name, document in answered.items():
            (stored.folder / name).write_text(json.dumps(document))
        return status

    def reset(self) -> None:
        self.resets += 1

    def require_endpoint(self) -> None:
        return


def answers(trial: Json, seconds: float, noise: random.Random) -> Json:
    """Return a trial's files by name, as plain data."""
    src, dst = PAIR
    rtt = BASE_RTT_MS + sum(link["delay_ms"] for way in (PAIR, PAIR[::-1]) for link in passed(trial, *way))
    caps = [link["rate_mbit"] for link in passed(trial, *PAIR)]
    caps += [trial["nics"][host]["rate_mbit"] for host in PAIR]
    mbit = min([cap * 0.956 for cap in caps if cap], default=BASE_MBIT)
    documents = (
        files.Timings.model_validate({
            "workload": trial["workload"]["name"],
            "params": {},
            "tasks": None,
            "samples": [
                {"repeat": i, "warmup": i < trial["warmups"], "start": 100.0 + i, "stop": 101.0 + i,
                 "answer": 16.0, "duration_s": seconds * noise.uniform(0.98, 1.02),
                 "transfer_bytes": 1000, "ok": True}
                for i in range(trial["repeats"] + trial["warmups"])
            ],
            "check": {"expected": 16.0, "answer": 16.0, "tolerance": 0.1, "ok": True},
            "cluster": {"workers": trial["workers"], "threads": trial["workers"], "addresses": {}},
            "versions": {"dask": "2026.8.0", "distributed": "2026.8.0", "python": "3.11.2", "numpy": "2.4.6"},
        }),
        files.Measured.model_validate({
            "rtt": [
                {"src": src, "dst": dst, "phase": phase, "pings": 10,
                 "samples_ms": [rtt * noise.uniform(0.999, 1.001) for _ in range(10)]}
                for phase in ("before", "after")
            ],
            "throughput": [
                {"src": src, "dst": dst, "phase": phase, "proto": "tcp", "seconds": 2.0, "retransmits": 0,
                 "rtt_ms": [9.0, 10.0, 11.0], "mbit": mbit * noise.uniform(0.999, 1.001)}
                for phase in ("before", "after")
            ],
        }),
        files.Configured.model_validate({
            "bridge": {"name": "vmbr1", "ageing_s": 0 if trial["bridge"] == "flooding" else 300},
            "hosts": {host: configured(trial, host) for host in trial["nics"]},
        }),
        files.Hosts.model_validate({"hypervisor": {"name": "pve", "accel": "tcg"}}),
    )  # fmt: skip
    return {document.FILE: json.loads(document.to_json()) for document in documents}


def capture_report(workload: str = "array_study", **counted: Any) -> Json:
    """Return a capture.json without losses, with the fields ``counted`` replaced."""
    none = dict.fromkeys(("dropped_kernel", "dropped_interface", "left_behind", "softnet_dropped"), 0)
    tier = {"name": "", "file": "", "filter": "", "snaplen_bytes": 512, "bytes": 0, "frames": 0} | none
    del tier["softnet_dropped"]
    timings = {
        "schema": 4,
        "workload": workload,
        "params": {},
        "tasks": None,
        "samples": [],
        "check": {"expected": 0, "answer": 0, "tolerance": 0, "ok": True},
        "cluster": {"workers": 3, "threads": 3, "addresses": {}},
        "versions": {},
    }
    return {
        "schema": 4,
        "interface": "eth2",
        "driver": "virtio_net",
        "promiscuity": 1,
        "start": 100.0,
        "stop": 200.0,
        "expired": False,
        "snaplen": 512,
        "filter": "",
        "frames": 100,
        **none,
        "nic_statistics": {"rx_packets": 103, "rx_bytes": 40000},
        "tiers": [tier | {"received": 30}, tier | {"received": 70}],
        "timings": timings,
    } | counted


def passed(trial: Json, src: str, dst: str) -> Iterator[Json]:
    """Yield the impairments that a frame from ``src`` to ``dst`` passes."""
    for host, way, peer in ((src, "egress", dst), (dst, "ingress", src)):
        link = trial["links"].get(host)
        if link and link["direction"] in (way, "both") and link["peer"] in (None, peer):
            yield link


def configured(trial: Json, host: str) -> Json:
    """Return the configuration that is read back from a host that applied everything."""
    nic, link = trial["nics"][host], trial["links"].get(host)
    rate = f",rate={nic['rate_mbit'] * 125000 / 1048576:.7f}" if nic["rate_mbit"] else ""
    applied = list(kernel(link)) if link else []
    return {
        "interface": "eth1",
        "driver": min(DRIVERS[nic["model"]]),
        "mtu": 1500,
        "offloads": {"tso": False, "gso": False},
        "congestion_control": "cubic",
        "link": applied,
        "qdisc_before": [],
        "qdisc_after": [queue(part) for part in applied if not part["policer"]],
        "net": f"{nic['model']}=02:DA:5C:00:00:01,bridge=vmbr1,firewall=0{rate}",
    }


def kernel(link: Json) -> Iterator[Json]:
    """Yield the queues and policers of a link."""
    amounts = {key: link[key] for key in AMOUNTS}
    nothing = dict.fromkeys(AMOUNTS, 0)
    for side in ("egress", "ingress") if link["direction"] == "both" else (link["direction"],):
        scope = {"direction": side, "peer": link["peer"]}
        queued = amounts | ({"rate_mbit": 0} if link["policer"] else {})
        if any(queued.values()):
            yield {**scope, "policer": False, **queued}
        if link["policer"]:
            yield {**scope, "policer": True, **nothing, "rate_mbit": link["rate_mbit"]}


def queue(amounts: Json, drops: int = 0, packets: int = 5000) -> Json:
    """Return a link's queue as ``tc -s -j qdisc show`` prints it: seconds, shares, bytes per second."""
    netem: Json = {"limit": 1000}
    for impairment in IMPAIRMENTS:
        section, name = impairment.read_back
        value = amounts[impairment.key] / impairment.unit.from_tc
        netem.setdefault(section, {"correlation": 0})[name] = value
    counted = {"drops": drops, "packets": packets, "bytes": 0}
    place = {"handle": "da5c:", "root": True, "dev": "eth1"}
    if needs_netem({key: amounts[key] for key in AMOUNTS}):
        return {"kind": "netem", **place, "options": netem, **counted}
    return {"kind": "tbf", **place, "options": bucket(amounts["rate_mbit"], lat=12_000), **counted}


def bucket(rate_mbit: float, **room: int) -> Json:
    """Return a token bucket's options as tc prints them."""
    return {"rate": rate_mbit * 125000, "burst": 131072, **room}


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not draw the figures of a page, for tests of its text."""
    monkeypatch.setattr(pictures, "save", lambda figure, stem: "<svg/>")


@pytest.fixture
def sweep() -> Experiment:
    """A small delay sweep on the scheduler."""
    return Experiment.model_validate(
        {
            "title": "T",
            "question": "Q?",
            "metrics": {"compute_s": "fig14", "rtt_ms": None},
            "factors": {"delay_ms": {"sets": "links.scheduler.delay_ms", "levels": [0, 50, 200]}},
            "repeats": 5,
            "blocks": 2,
            "repeat_s": 4,
        }
    )


@pytest.fixture
def measured(tmp_path: Path, sweep: Experiment) -> Callable[..., driver.ActiveRun]:
    """A function that runs the sweep on a fake lab and returns the run."""

    def run(lab: FakeLab, name: str = "delay_scheduler") -> driver.ActiveRun:
        active = driver.start(tmp_path / "results", name, sweep, SETUP, quick=False)
        driver.execute(active, lab, lambda trial, state: None)
        return active

    return run
