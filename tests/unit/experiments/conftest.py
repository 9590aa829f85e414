"""A lab that answers at once: it writes a trial's files as the playbook does, from a formula."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.model.experiment import Experiment
from lab.results.validity import added_delay_ms, cap_mbit
from lab.running import driver
from lab.running.trials import Trial

BASE_RTT_MS, BASE_MBIT = 1.0, 9000.0
PAIR = ("scheduler", "worker-1")


class FakeLab:
    """``seconds(trial)`` is what a run takes, give or take 2 %; ``spoil`` may change a trial's files."""

    def __init__(
        self,
        seconds: Callable[[Trial], float] = lambda trial: 4.0,
        spoil: Callable[[Trial, dict[str, Any]], int] = lambda trial, files: 0,
    ) -> None:
        self.seconds, self.spoil, self.ran, self.cleaned = seconds, spoil, [], 0

    def run_trial(self, directory: Path) -> int:
        trial = Trial.model_validate_json((directory / "trial.json").read_text())
        self.ran.append(trial.trial)
        files = answers(trial, self.seconds(trial), random.Random(trial.trial))
        status = self.spoil(trial, files)
        for name, document in files.items():
            (directory / name).write_text(json.dumps(document))
        return status

    def clean(self) -> None:
        self.cleaned += 1


def answers(trial: Trial, seconds: float, noise: random.Random) -> dict[str, Any]:
    cap = cap_mbit(trial, *PAIR)
    mbit = min(BASE_MBIT, cap * 0.956) if cap else BASE_MBIT
    rtt = BASE_RTT_MS + added_delay_ms(trial, *PAIR)
    src, dst = PAIR
    return {
        "timings.json": {
            "schema": 1,
            "workload": trial.workload.name,
            "tasks": None,
            "samples": [
                {"run": i, "warmup": i < trial.warmups, "start": 100.0 + i, "stop": 101.0 + i,
                 "duration_s": seconds * noise.uniform(0.98, 1.02), "transfer_bytes": 1000, "ok": True}
                for i in range(trial.runs + trial.warmups)
            ],
            "check": {"expected": 16.0, "got": 16.0, "tolerance": 0.1, "ok": True},
            "cluster": {"workers": trial.workers, "threads": trial.workers, "addresses": {}},
            "versions": {"dask": "2026.8.0", "distributed": "2026.8.0", "python": "3.11.2", "numpy": "2.4.6"},
        },
        "delivered.json": {
            "schema": 1,
            "rtt": [
                {"src": src, "dst": dst, "phase": phase, "sent": 10,
                 "samples_ms": [rtt * noise.uniform(0.999, 1.001) for _ in range(10)]}
                for phase in ("before", "after")
            ],
            "throughput": [
                {"src": src, "dst": dst, "phase": phase, "proto": "tcp", "seconds": 2.0, "retransmits": 0,
                 "mbit": mbit * noise.uniform(0.999, 1.001)}
                for phase in ("before", "after")
            ],
        },
        "configured.json": {
            "schema": 1,
            "bridge": {"name": "vmbr1", "ageing_s": 0 if trial.bridge == "flooding" else 300},
            "hosts": {host: {"driver": "virtio_net", "offloads": {}, "net": None,
                             "qdisc_after": [{"kind": "netem", "drops": 0, "packets": 5000}]}
                      for host in trial.links},
        },
        "hosts.json": {"schema": 1, "hypervisor": {"name": "pve", "accel": "tcg"}, "hosts": {}},
    }  # fmt: skip


@pytest.fixture
def sweep() -> Experiment:
    """A small delay sweep on the scheduler."""
    return Experiment.model_validate(
        {
            "title": "T",
            "question": "Q?",
            "metrics": {"compute_s": "fig14", "rtt_ms": None},
            "factors": {"delay_ms": {"sets": "links.scheduler.delay_ms", "levels": [0, 50, 200]}},
            "runs": 5,
            "blocks": 2,
            "run_s": 4,
        }
    )


@pytest.fixture
def measured(tmp_path: Path, sweep: Experiment) -> Callable[..., driver.Run]:
    """Run the sweep on a fake lab; returns the run."""

    def run(lab: FakeLab, name: str = "delay_scheduler") -> driver.Run:
        begun = driver.start(tmp_path / "results", name, sweep, quick=False)
        driver.execute(begun, lab, lambda trial, state: None)
        return begun

    return run
