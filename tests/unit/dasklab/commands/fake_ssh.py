"""A stand-in for ssh: the remote command runs here, with a guest program that remembers what it is asked."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from dasklab.console.lab import guest_program
from dasklab.machines.inventory.ansible_inventory import DEFAULT

INVENTORY = DEFAULT.parent / "examples" / "existing" / "hosts.yml"
SSH = """#!/bin/sh
for last; do :; done
echo "$*" >>"$FAKE_SSH/asked"
exec sh -c "$last"
"""
GUEST = f"""#!{sys.executable}
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["FAKE_SSH"])
part, action, arguments = sys.argv[1], sys.argv[2], json.loads((sys.argv[3:] or ["{{}}"])[0])
with (folder / "steps").open("a") as file:
    file.write(json.dumps([f"{{part}}.{{action}}", arguments]) + "\\n")
if (folder / "refuse").exists():
    sys.exit("dasklab-guest: " + (folder / "refuse").read_text())
state = folder / "state.json"
if action == "apply":
    state.write_text(json.dumps(arguments))
elif action == "clear":
    state.unlink(missing_ok=True)
links = json.loads(state.read_text()) if state.exists() else {{"links": [], "ttl_s": None}}
configured = [{{"policer": False, **link}} for link in links["links"]]
print(json.dumps({{"interface": "eth1", "configured": configured, "expires_in_s": links["ttl_s"],
    "differences": []}}))
"""


class FakeSsh:
    """The folder with what was asked; ``program`` adds a command that the host has."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir(parents=True)
        self.program("ssh", SSH)
        self.guest = self.program("dasklab-guest", GUEST)

    def program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    @property
    def steps(self) -> list[tuple[str, dict[str, object]]]:
        """The guest program's steps with their arguments."""
        return [tuple(json.loads(line)) for line in (self.folder / "steps").read_text().splitlines()]

    @property
    def asked(self) -> str:
        """Every command line of ssh."""
        return (self.folder / "asked").read_text()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSsh:
    fake = FakeSsh(tmp_path / "host")
    monkeypatch.setenv("FAKE_SSH", str(fake.folder))
    monkeypatch.setenv("PATH", f"{fake.bin}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DASKLAB_INVENTORY", str(INVENTORY))
    monkeypatch.setattr(guest_program, "PROGRAM", str(fake.guest))
    return fake
