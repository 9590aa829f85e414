"""A fault strikes when it should, is observed while it lasts, and is undone whatever ends it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dasklab_guest import fault
from dasklab_guest.common import HostError

CUT = {"does": "cut", "at_s": 0.1, "for_s": 0.2}
KILL = {"does": "kill", "at_s": 0.1}


class Host:
    """A host with a link and a service; ``commands`` are those that it ran, in their order."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.up = self.active = True

    def run(self, argv: Sequence[str]) -> str:
        command = " ".join(argv)
        self.commands.append(command)
        if command.startswith("ip link set eth1 "):
            self.up = argv[-1] == "up"
        if "NAME.service" in command:
            self.active = argv[1] == "start"
        return ""

    def interfaces(self) -> list[dict[str, Any]]:
        return [{"ifname": "eth1", "flags": ["UP"] if self.up else []}]

    def is_active(self, *_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(stdout="active\n" if self.active else "failed\n")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()
    for name in ("REQUEST", "STARTED", "EFFECT"):
        monkeypatch.setattr(fault, name, tmp_path / name)
    monkeypatch.setattr(fault, "RUNTIME", tmp_path)
    monkeypatch.setattr(fault, "run", host.run)
    monkeypatch.setattr(fault, "start_unit", lambda *arguments, **properties: None)
    monkeypatch.setattr(fault, "stop_units", lambda *patterns: None)
    monkeypatch.setattr(fault, "interfaces", host.interfaces)
    monkeypatch.setattr(fault, "host", dict)
    monkeypatch.setattr(fault, "lab_link", lambda settings, links: links[0])
    monkeypatch.setattr(fault.subprocess, "run", host.is_active)
    return host


def arm(request: dict[str, Any]) -> None:
    fault.arm(**request, service="NAME.service", ttl_s=600)


def strike(host: Host, request: dict[str, Any]) -> Any:
    arm(request)
    host.commands.clear()
    fault.STARTED.touch()
    fault.strike()
    return json.loads(fault.EFFECT.read_text())


def test_link_is_down_for_its_time_and_up_again(host: Host) -> None:
    effect = strike(host, CUT)
    assert host.commands == ["ip link set eth1 down", "ip link set eth1 up"]
    assert effect["state"] == "down"
    assert 0.1 <= effect["at_s"] < 0.6
    assert 0.2 <= effect["lasted_s"] < 0.7


def test_killed_service_stays_away(host: Host) -> None:
    effect = strike(host, KILL)
    assert host.commands == ["systemctl kill --signal=KILL NAME.service", "systemctl stop NAME.service"]
    assert (effect["state"], effect["lasted_s"]) == ("failed", None)


def test_restarted_service_runs_again(host: Host) -> None:
    effect = strike(host, {"does": "restart", "at_s": 0, "for_s": 0.1})
    assert host.commands[-1] == "systemctl start NAME.service"
    assert host.active
    assert 0.1 <= effect["lasted_s"] < 0.6


def test_unit_that_ends_early_leaves_the_link_up(host: Host) -> None:
    arm(CUT)
    host.run(["ip", "link", "set", "eth1", "down"])
    fault.repair()
    assert host.up


def test_fault_that_did_not_strike_is_reported_and_forgotten(host: Host) -> None:
    arm(CUT)
    assert fault.end() == {"at_s": None, "lasted_s": None, "state": "nothing"}
    assert not fault.REQUEST.exists()


def test_new_fault_knows_nothing_of_the_one_before(host: Host) -> None:
    strike(host, CUT)
    arm(KILL)
    assert not fault.STARTED.exists()
    assert not fault.EFFECT.exists()


def test_unknown_fault_is_refused(host: Host) -> None:
    with pytest.raises(HostError, match="no fault 'melt'; there are kill, restart, cut"):
        arm({"does": "melt", "at_s": 0})
