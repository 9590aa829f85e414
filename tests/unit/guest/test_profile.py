"""Which processes py-spy samples: a service's main process, or the Python children of its shell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dasklab_guest import profile


class Host:
    """Processes below a folder like /proc, and the units that were started."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.units: list[tuple[Sequence[str], dict[str, Any]]] = []

    def add(self, pid: int, program: str, *children: int) -> None:
        folder = self.root / "proc" / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True)
        (folder / "task" / str(pid) / "children").write_text(" ".join(map(str, children)))
        (folder / "exe").symlink_to(f"/usr/bin/{program}")

    def start_unit(self, name: str, argv: Sequence[str], **properties: Any) -> None:
        self.units.append((argv, properties))

    @property
    def outputs(self) -> list[str]:
        words = [word for argv, _ in self.units for word in argv]
        return [Path(word).name for word in words if word.startswith("--output=")]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path)
    for name in ("PROC", "TRIAL", "RUNTIME"):
        monkeypatch.setattr(profile, name, tmp_path / name.lower())
    monkeypatch.setattr(profile, "APPEAR_TIMEOUT_S", 0.1)
    monkeypatch.setattr(profile, "run", lambda argv: "10\n")
    monkeypatch.setattr(profile, "start_unit", host.start_unit)
    monkeypatch.setattr(profile, "stop_units", lambda *patterns: None)
    return host


def start(processes: int = 1) -> Any:
    return profile.start("dask-worker.service", "/opt/py-spy", processes, 600)["pids"]


def test_python_service_is_sampled_with_its_children(host: Host) -> None:
    host.add(10, "python3.11", 11)
    host.add(11, "python3.11")
    assert start() == [10]
    assert host.outputs == ["profile.json"]


def test_python_children_of_a_shell_have_files_of_their_own(host: Host) -> None:
    host.add(10, "dash", 11, 12, 13)
    host.add(11, "python3.11")
    host.add(12, "sleep")
    host.add(13, "python3.11")
    assert start(processes=2) == [11, 13]
    assert host.outputs == ["profile-1.json", "profile-2.json"]


def test_service_without_python_is_waited_for_and_then_left(host: Host) -> None:
    host.add(10, "rsds")
    assert start() == []
    assert host.outputs == []


def test_unit_ends_with_the_signal_that_makes_py_spy_write(host: Host) -> None:
    host.add(10, "python3.11")
    start()
    [(_, properties)] = host.units
    assert (properties["KillSignal"], properties["RuntimeMaxSec"]) == ("SIGINT", 600)


def test_profiles_are_listed(host: Host) -> None:
    host.add(10, "python3.11")
    start()
    (profile.TRIAL / "profile.json").write_text("{}")
    (profile.RUNTIME / "profile.log").write_text("py-spy> Wrote\n")
    assert profile.stop() == {"files": ["profile.json"], "messages": []}


def test_without_a_profile_py_spys_last_words_are_the_answer(host: Host) -> None:
    host.add(10, "python3.11")
    start()
    (profile.RUNTIME / "profile.log").write_text("Error:\nPermission Denied\n")
    assert profile.stop() == {"files": [], "messages": ["Permission Denied"]}
