"""What runs on a host can be stopped: no unit makes a stop wait for systemd's minute and a half."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from dasklab.paths import ROLES
from dasklab_guest import capture, probe
from jinja2 import Environment, StrictUndefined

from tests.waiting import PATIENCE_S

STAGES = 4  # stop-sigterm, stop-sigkill, final-sigterm, final-sigkill: each may take TimeoutStopSec
DASK = ROLES / "dask"


def render(name: str, **variables: Any) -> str:
    """Return a template of role dask with the role's defaults."""
    environment = Environment(undefined=StrictUndefined, autoescape=False)
    environment.filters |= {"to_json": json.dumps, "ternary": lambda value, yes, no: yes if value else no}
    defaults = yaml.safe_load((DASK / "defaults" / "main.yml").read_text())
    texts = {"dask_scheduler_address": "10.77.1.12", "dask_listen": "--host 10.77.1.13"}
    return environment.from_string((DASK / "templates" / name).read_text()).render(
        defaults | texts | variables
    )


@pytest.mark.parametrize("name", ["dask-scheduler", "dask-worker"])
def test_cluster_stops_within_seconds(name: str) -> None:
    """Nothing waits for a worker that is paused or computing."""
    settings = dict(re.findall(r"^(\w+)=(.*)$", render(f"{name}.service.j2"), re.MULTILINE))
    assert STAGES * int(settings["TimeoutStopSec"]) <= 15
    assert (settings["KillSignal"], settings["KillMode"]) == ("SIGKILL", "control-group")
    assert settings.get("SendSIGKILL", "yes") == "yes"


@pytest.fixture
def systemd_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a ``systemd-run`` on the path that writes its arguments into a file, one per line."""
    program, arguments = tmp_path / "systemd-run", tmp_path / "arguments"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {arguments}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return arguments


def stop_timeout_s(arguments: str) -> int:
    return int(re.findall(r"^--property=TimeoutStopSec=(\d+)$", arguments, re.MULTILINE)[0])


def test_capture_that_does_not_end_is_killed(systemd_run: Path) -> None:
    capture.start_tier(capture.tiers("10.77.1.12", 512)[0], "eth2", 600, 32, 100)
    assert stop_timeout_s(systemd_run.read_text()) <= 20


def test_capture_without_a_scheduler_is_one_file_of_all_frames() -> None:
    [tier] = capture.tiers("", 512)
    assert (tier["file"], tier["filter"]) == ("capture.pcap", "")


def test_iperf_server_that_does_not_end_is_killed(systemd_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "stop_units", lambda *names: None)
    monkeypatch.setattr(probe, "host", lambda: {"lab": {"address": "10.77.1.12"}})
    probe.serve(600)
    arguments = systemd_run.read_text()
    assert arguments.endswith("iperf3\n--server\n--bind\n10.77.1.12\n")
    assert stop_timeout_s(arguments) <= 5


@pytest.mark.parametrize(
    ("processes", "threads", "started"),
    [
        ("1", "0", [["worker-1"]]),
        ("1", "4", [["worker-1", "4"]]),
        ("3", "2", [["worker-1-1", "2"], ["worker-1-2", "2"], ["worker-1-3", "2"]]),
    ],
)
def test_host_starts_the_workers_of_its_layout(
    processes: str, threads: str, started: list[list[str]], tmp_path: Path
) -> None:
    """Several workers have a number; a single one has the host's name, which peers and reports know."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    program = render("dasklab_workers.sh.j2", dask_venv=str(tmp_path), inventory_hostname="worker-1")
    layout = {"DASKLAB_PROCESSES": processes, "DASKLAB_THREADS": threads}
    process = subprocess.run(
        ["sh", "-c", program],
        env={"PATH": "/usr/bin:/bin", **layout},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    lines = sorted(process.stdout.splitlines())
    assert [re.findall(r"--(?:name|nthreads) (\S+)", line) for line in lines] == started
