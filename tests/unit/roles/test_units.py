"""What runs on a host can be stopped: no unit makes a stop wait for systemd's minute and a half."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from dasklab.paths import SHARE as ROOT
from jinja2 import Environment, StrictUndefined

from tests.waiting import PATIENCE_S

STAGES = 4  # stop-sigterm, stop-sigkill, final-sigterm, final-sigkill: each may take TimeoutStopSec
DASK = ROOT / "roles" / "dask"


def unit(name: str) -> dict[str, str]:
    """The settings of a unit of role dask, with the role's defaults."""
    variables = yaml.safe_load((DASK / "defaults" / "main.yml").read_text())
    text = (DASK / "templates" / f"{name}.service.j2").read_text()
    environment = Environment(undefined=StrictUndefined, autoescape=False)
    environment.filters |= {"to_json": json.dumps, "dirname": os.path.dirname}
    given = {**variables, "base_dask_settings": "/run/x", "dask_cluster_file": "/run/x.env"}
    given |= {
        "dask_seat_file": "/run/x.json",
        "dask_workers_program": "/bin/w",
        "dask_scheduler_command": "s",
    }
    return dict(re.findall(r"^(\w+)=(.*)$", environment.from_string(text).render(given), re.MULTILINE))


@pytest.mark.parametrize("name", ["dask-scheduler", "dask-worker"])
def test_a_cluster_is_stopped_in_seconds_whatever_runs_in_it(name: str) -> None:
    """A worker that is paused or computes, or of whose end systemd is not told, is not waited for."""
    rules = unit(name)
    assert STAGES * int(rules["TimeoutStopSec"]) <= 15
    assert (rules["KillSignal"], rules["KillMode"]) == ("SIGKILL", "control-group")
    assert rules.get("SendSIGKILL", "yes") == "yes"


def test_a_capture_that_does_not_end_is_killed(capture: ModuleType) -> None:
    asked = {"ttl_s": 600, "buffer_mib": 32, "file_max_mb": 100}
    words = capture.command(capture.tiers("10.77.1.12", 512)[0], "eth2", asked)
    [limit] = [word for word in words if word.startswith("--property=TimeoutStopSec=")]
    assert int(limit.rpartition("=")[2]) <= 20


def test_an_iperf_server_that_does_not_end_is_killed(
    probe: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(probe, "run", started.append)
    monkeypatch.setattr(probe.subprocess, "run", lambda *words, **options: None)
    probe.serve("10.77.1.12", 600)
    assert "--property=TimeoutStopSec=5" in started[0]


@pytest.mark.parametrize(
    ("processes", "threads", "started"),
    [
        ("1", "0", [["worker-1"]]),
        ("1", "4", [["worker-1", "4"]]),
        ("3", "2", [["worker-1-1", "2"], ["worker-1-2", "2"], ["worker-1-3", "2"]]),
    ],
)
def test_a_host_starts_the_workers_of_its_layout(
    processes: str, threads: str, started: list[list[str]], tmp_path: Path
) -> None:
    """Several are told apart by their number; one has the host's name, which peers and reports know."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    variables = yaml.safe_load((DASK / "defaults" / "main.yml").read_text())
    given = {**variables, "dask_venv": str(tmp_path), "inventory_hostname": "worker-1", "base_bin": "/bin"}
    text = (DASK / "templates" / "workers.sh.j2").read_text()
    program = Environment(undefined=StrictUndefined, autoescape=False).from_string(text).render(given)
    layout = {"DASKLAB_PROCESSES": processes, "DASKLAB_THREADS": threads}
    environment = {"PATH": "/usr/bin:/bin", **layout}
    done = subprocess.run(
        ["sh", "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    lines = sorted(done.stdout.splitlines())
    assert [re.findall(r"--(?:name|nthreads) (\S+)", line) for line in lines] == started


def test_what_forks_are_of_ends_when_what_it_has_read_is_another(tmp_path: Path) -> None:
    """A trial with the settings of the one before finds Dask imported; any other imports it with its own."""
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/said\n')
    (tmp_path / "systemctl").chmod(0o755)
    [task] = yaml.safe_load((DASK / "tasks" / "restart.yml").read_text())
    environment = Environment(undefined=StrictUndefined, autoescape=False)
    environment.filters |= {"to_json": json.dumps, "quote": shlex.quote}
    line = environment.from_string(task["ansible.builtin.raw"])

    def restarted(**settings: object) -> list[str]:
        (tmp_path / "said").unlink(missing_ok=True)
        told = line.render(
            base_dask_settings=tmp_path / "dask",
            dask_own_settings=settings,
            dask_cluster="",
            dask_cluster_file=tmp_path / "cluster.env",
            dask_fork=True,
            dask_imports=f"cat {tmp_path}/dask/*.yaml",
            dask_forkserver_of=tmp_path / "of",
            dask_takes_part=True,
            dask_service="",
        )
        found = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        subprocess.run(["sh", "-c", told], check=True, env=found, timeout=PATIENCE_S)
        return (tmp_path / "said").read_text().splitlines()

    stops, starts = "stop dasklab-forkserver.service", "start dasklab-forkserver.service"
    assert restarted(compression="lz4") == [stops, starts]
    assert restarted(compression="lz4") == [starts]
    assert restarted(compression=None) == [stops, starts]
