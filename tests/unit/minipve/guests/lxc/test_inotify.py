"""The kernel's limit of inotify instances."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.errors import MachineError
from minipve.guests.lxc import power


def test_limit_is_raised_only_if_too_low(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "max_user_instances"
    monkeypatch.setattr(power, "INOTIFY_LIMIT_FILE", file)
    file.write_text("128\n")
    assert power.ensure_inotify_limit(24) == "" and file.read_text() == "128\n"
    assert "raised from 128 to 65536" in power.ensure_inotify_limit(25) and file.read_text() == "65536"
    assert power.ensure_inotify_limit(500) == ""
    file.write_text("128\n")
    monkeypatch.setattr(Path, "write_text", lambda *_: (_ for _ in ()).throw(PermissionError()))
    with pytest.raises(MachineError, match=r"sysctl -w fs\.inotify\.max_user_instances=65536"):
        power.ensure_inotify_limit(50)
