"""``dasklab top`` with a stand-in for ssh, which runs this machine's own guest program."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.console.lab import guest_program
from dasklab.paths import ROLES

from tests.unit.dasklab.commands.fake_ssh import FakeSsh, host

__all__ = ["host"]
GUEST = f"""#!{sys.executable}
import json, sys
sys.path.insert(0, {str(ROLES / "base" / "files")!r})
from dasklab_guest import host
host.lab_link = lambda *_: {{"ifname": "lo"}}
host.host = host.interfaces = lambda: None
host.requested_links = lambda: [{{"rate_mbit": 50, "delay_ms": 20}}]
host.watch(**json.loads(sys.argv[3]))
"""


@pytest.fixture
def watched(host: FakeSsh, monkeypatch: pytest.MonkeyPatch) -> FakeSsh:
    monkeypatch.setattr(guest_program, "PROGRAM", str(host.program("watching-guest", GUEST)))
    return host


def test_table_has_a_row_per_host(watched: FakeSsh) -> None:
    result = CliRunner().invoke(main, ["top", "--every", "1", "--samples", "1"])
    assert result.exit_code == 0, result.output
    heads, *rows = result.output.splitlines()
    assert heads.split() == [
        *("host", "CPU", "memory", "sends", "receives", "retransmits", "drops", "impairment")
    ]
    assert [row.split()[0] for row in rows] == ["client", "scheduler", "worker-1", "worker-2", "worker-3"]
    assert all("20 ms of delay, 50 Mbit/s of rate limit" in row for row in rows)


def test_json_is_one_line_per_sample(watched: FakeSsh) -> None:
    result = CliRunner().invoke(main, ["top", "--every", "1", "--samples", "2", "--json"])
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert len(lines) == 2 and lines[1]["time"] - lines[0]["time"] == pytest.approx(1, abs=0.9)
    assert 0 <= lines[0]["hosts"]["worker-1"]["cpu"] <= 1
    assert lines[0]["problems"] == {}


def test_programs_on_the_hosts_end_with_the_command(watched: FakeSsh) -> None:
    CliRunner().invoke(main, ["top", "--every", "1", "--samples", "1"])
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    assert not [line for line in lines if str(watched.bin).encode() in line]


def test_hosts_that_do_not_answer_are_an_error(host: FakeSsh) -> None:
    host.program("ssh", "#!/bin/sh\necho 'Connection refused' >&2\nexit 255\n")
    result = CliRunner().invoke(main, ["top"])
    assert (result.exit_code, "no host answers any more; client: Connection refused" in result.output) == (
        1,
        True,
    )
