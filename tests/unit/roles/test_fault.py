"""A fault comes when it should, is looked at while it lasts, and is undone whatever ends it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

CUT = {"does": "cut", "at_s": 0.1, "for_s": 0.2}
KILL = {"does": "kill", "at_s": 0.1, "for_s": None}


class Host:
    """A host with a link and a service, which answers at once; ``did`` are the commands in their order."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.up = self.active = True

    def run(self, words: list[str]) -> str:
        said = " ".join(words)
        self.did.append(said)
        if said.startswith("ip link set eth1 "):
            self.up = words[-1] == "up"
        if "NAME.service" in said:
            self.active = words[1] == "start"
        return ""

    def addresses(self) -> list[dict[str, Any]]:
        return [{"ifname": "eth1", "flags": ["UP"] if self.up else []}]

    def asked(self, *_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(stdout="active\n" if self.active else "failed\n")


@pytest.fixture
def there(fault: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host()
    for name in ("ASKED", "TOLD", "SEEN"):
        monkeypatch.setattr(fault, name, tmp_path / name)
    monkeypatch.setattr(fault, "PLACE", tmp_path)
    monkeypatch.setattr(fault, "run", found.run)
    monkeypatch.setattr(fault, "addresses", found.addresses)
    monkeypatch.setattr(fault, "config", dict)
    monkeypatch.setattr(fault, "lab_link", lambda settings, links: links[0])
    monkeypatch.setattr(fault.subprocess, "run", found.asked)
    return found


def struck(fault: ModuleType, there: Host, asked: dict[str, Any]) -> Any:
    fault.arm(json.dumps(asked), "NAME.service", 600)
    there.did.clear()
    fault.TOLD.touch()
    fault.strike()
    return json.loads(fault.SEEN.read_text())


def test_a_link_is_down_for_its_time_and_up_again(fault: ModuleType, there: Host) -> None:
    seen = struck(fault, there, CUT)
    assert there.did == ["ip link set eth1 down", "ip link set eth1 up"]
    assert seen["state"] == "down"
    assert 0.1 <= seen["at_s"] < 0.6
    assert 0.2 <= seen["lasted_s"] < 0.7


def test_what_is_killed_stays_away(fault: ModuleType, there: Host) -> None:
    seen = struck(fault, there, KILL)
    assert there.did == ["systemctl kill --signal=KILL NAME.service", "systemctl stop NAME.service"]
    assert (seen["state"], seen["lasted_s"]) == ("failed", None)


def test_what_is_restarted_runs_again(fault: ModuleType, there: Host) -> None:
    seen = struck(fault, there, {"does": "restart", "at_s": 0, "for_s": 0.1})
    assert there.did[-1] == "systemctl start NAME.service"
    assert there.active
    assert 0.1 <= seen["lasted_s"] < 0.6


def test_a_unit_that_is_ended_early_leaves_the_link_up(fault: ModuleType, there: Host) -> None:
    fault.arm(json.dumps(CUT), "NAME.service", 600)
    there.run(["ip", "link", "set", "eth1", "down"])
    fault.mend()
    assert there.up


def test_a_fault_that_did_not_come_is_said_and_forgotten(fault: ModuleType, there: Host) -> None:
    fault.arm(json.dumps(CUT), "NAME.service", 600)
    assert fault.end() == {"at_s": None, "lasted_s": None, "state": "nothing"}
    assert there.did[-1] == "systemctl stop dasklab-fault*"
    assert not fault.ASKED.exists()


def test_a_new_fault_knows_nothing_of_the_one_before(fault: ModuleType, there: Host) -> None:
    struck(fault, there, CUT)
    fault.arm(json.dumps(KILL), "NAME.service", 600)
    assert not fault.TOLD.exists()
    assert not fault.SEEN.exists()


def test_the_unit_has_an_end_and_mends_behind_it(fault: ModuleType) -> None:
    words = fault.command("/x/fault.py", 600)
    assert "--property=RuntimeMaxSec=600" in words
    assert "--property=ExecStopPost=/x/fault.py mend" in words
    assert "--property=TimeoutStopSec=5" in words
    assert words[-2:] == ["/x/fault.py", "strike"]
